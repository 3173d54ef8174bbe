"use strict";
// Tables: sorted by their headings, seven columns at first, copied or saved in full from the data on the page.
(() => {
  const MOST = 7, UNITS = { "µs": 1e-6, ms: 1e-3, s: 1, min: 60, h: 3600 }, RAISED = "⁰¹²³⁴⁵⁶⁷⁸⁹";

  // The number that a cell begins with: 1,234 and 2.0 × 10⁻⁶ and 3 min 05 s; NaN if it is text.
  function value(text) {
    const plain = text.trim().replaceAll("−", "-").replaceAll(",", "");
    const power = plain.match(/^([+-]?[\d.]+) × 10(⁻?)([⁰¹²³⁴-⁹]+)/);
    if (power) return power[1] * 10 ** ((power[2] ? -1 : 1) * [...power[3]].map((digit) => RAISED.indexOf(digit)).join(""));
    const times = [...plain.matchAll(/([\d.]+) (µs|ms|s|min|h)(?![a-z])/g)];
    if (times.length) return times.reduce((sum, [, number, unit]) => sum + number * UNITS[unit], 0);
    const first = plain.match(/^[<>≤≥≈]?\s*([+-]?\d*\.?\d+)/);
    return first ? Number(first[1]) : NaN;
  }

  function sort(table, heading, column) {
    const order = heading.getAttribute("aria-sort") === "ascending" ? -1 : 1, body = table.tBodies[0];
    const rows = [...body.rows].map((row) => [row, row.cells[column].textContent.trim()]);
    const numbers = new Map(rows.map(([row, text]) => [row, value(text)]));
    const missing = (row, text) => text === "–";
    const numeric = rows.every(([row, text]) => missing(row, text) || !Number.isNaN(numbers.get(row)));
    rows.sort(([a, x], [b, y]) => {
      // What is missing stays at the end in either order.
      if (missing(a, x) || missing(b, y)) return missing(a, x) - missing(b, y);
      return order * (numeric ? numbers.get(a) - numbers.get(b) : x.localeCompare(y, "en", { numeric: true }));
    });
    table.querySelectorAll("[aria-sort]").forEach((each) => each.removeAttribute("aria-sort"));
    heading.setAttribute("aria-sort", order > 0 ? "ascending" : "descending");
    body.append(...rows.map(([row]) => row));
  }

  // Hide or show the columns from the eighth on; a heading over several columns spans those that are shown.
  function narrow(table, most) {
    for (const row of table.rows) {
      let start = 0;
      for (const cell of row.cells) {
        const span = Number(cell.dataset.span ??= cell.colSpan), left = Math.min(span, most - start);
        cell.classList.toggle("away", left <= 0);
        if (left > 0) cell.colSpan = left;
        start += span;
      }
    }
  }

  function button(label, act) {
    const made = document.createElement("button");
    made.type = "button";
    made.textContent = label;
    made.addEventListener("click", () => act(made));
    return made;
  }

  for (const figure of document.querySelectorAll("figure.table")) {
    const table = figure.querySelector("table"), headings = [...table.tHead.rows[table.tHead.rows.length - 1].cells];
    const csv = JSON.parse(figure.querySelector(".table-data").textContent);
    headings.forEach((heading, column) => {
      const sorting = button("", () => sort(table, heading, column));
      sorting.className = "sort";
      sorting.append(...heading.childNodes);
      heading.append(sorting);
    });
    for (const row of table.tBodies[0].rows) {
      [...row.cells].forEach((cell, column) => { cell.dataset.label = headings[column].textContent; });
    }
    table.classList.add("as-cards");
    const bar = figure.querySelector(".files");
    const copy = button("copy", async (made) => {
      try {
        await navigator.clipboard.writeText(csv);
        made.textContent = "copied";
      } catch {
        made.textContent = "this browser does not allow copying";
      }
    });
    const save = button("CSV", () => {
      const link = document.createElement("a");
      link.href = URL.createObjectURL(new Blob([csv], { type: "text/csv" }));
      link.download = `${figure.id.replace("table-", "")}.csv`;
      link.click();
      URL.revokeObjectURL(link.href);
    });
    bar.replaceChildren(copy, save);
    if (headings.length > MOST) {
      const words = [`all ${headings.length} columns`, `${MOST} columns`];
      let all = false;
      narrow(table, MOST);
      bar.prepend(button(words[0], (made) => {
        all = !all;
        narrow(table, all ? Infinity : MOST);
        made.textContent = words[Number(all)];
      }));
    }
  }
})();
