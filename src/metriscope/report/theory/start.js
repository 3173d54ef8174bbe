for (const root of document.querySelectorAll("[data-theory]")) {
  const data = document.getElementById(`${root.dataset.theory}-data`), fold = root.closest("details:not([open])");
  const build = () => builders[root.dataset.theory](root, JSON.parse(data.textContent));
  // A figure inside a fold is built when the fold is first opened.
  if (fold) fold.addEventListener("toggle", build, { once: true });
  else build();
}
window.metriscopeTheory = theory;
