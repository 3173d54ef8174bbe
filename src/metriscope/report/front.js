"use strict";
// Mark the section in view, and open what a link points to.
const links = new Map([...document.querySelectorAll("nav a[href^='#']")].map((a) => [a.hash.slice(1), a]));
const watch = new IntersectionObserver(
  (entries) => entries.forEach((e) => links.get(e.target.id)?.classList.toggle("here", e.isIntersecting)),
  { rootMargin: "-20% 0px -70% 0px" },
);
document.querySelectorAll("main section[id]").forEach((section) => watch.observe(section));
