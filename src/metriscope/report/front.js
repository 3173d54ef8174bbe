"use strict";
// Mark the section in view, open what a link points to, enlarge figures, and copy what was run.
const links = new Map([...document.querySelectorAll("nav a[href^='#']")].map((a) => [a.hash.slice(1), a]));
const watch = new IntersectionObserver(
  (entries) => entries.forEach((e) => links.get(e.target.id)?.classList.toggle("here", e.isIntersecting)),
  { rootMargin: "-20% 0px -70% 0px" },
);
document.querySelectorAll("main section[id]").forEach((section) => watch.observe(section));

// A link to a claim's name (#C17) works like a link to its fold.
function reveal() {
  const name = decodeURIComponent(location.hash.slice(1));
  const found = document.getElementById(name) ?? document.getElementById(`claim-${name}`);
  if (!found) return;
  for (let node = found; node; node = node.parentElement) if (node.tagName === "DETAILS") node.open = true;
  if (found.matches("figure.small")) enlarge(found, true);
  found.scrollIntoView();
}

function enlarge(figure, large) {
  figure.classList.toggle("large", large);
  const svg = figure.querySelector("svg");
  if (svg.dataset.whole) {
    svg.dataset.small ??= svg.getAttribute("viewBox");
    svg.setAttribute("viewBox", large ? svg.dataset.whole : svg.dataset.small);
  }
  const link = figure.querySelector(".enlarge");
  link.dataset.label ??= link.firstChild.textContent;
  link.firstChild.textContent = large ? "Shrink" : link.dataset.label;
  link.setAttribute("aria-expanded", String(large));
}

for (const link of document.querySelectorAll(".enlarge")) {
  const figure = link.closest("figure");
  link.href = `#${figure.id}`;
  link.setAttribute("role", "button");
  const toggle = (event) => {
    event.preventDefault();
    enlarge(figure, !figure.classList.contains("large"));
  };
  link.addEventListener("click", toggle);
  link.addEventListener("keydown", (event) => event.key === " " && toggle(event));
  figure.querySelector(".card").addEventListener("click", toggle);
}

for (const button of document.querySelectorAll("button.copy")) {
  button.addEventListener("click", async () => {
    const rows = button.dataset.copies ? [...document.querySelectorAll(`${button.dataset.copies} > div`)] : [];
    const text = button.dataset.text ?? rows.map((row) => [...row.children].map((part) => part.textContent).join(": ")).join("\n");
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "Copied";
    } catch {
      button.textContent = "This browser does not allow it";
    }
  });
}

addEventListener("hashchange", reveal);
reveal();
