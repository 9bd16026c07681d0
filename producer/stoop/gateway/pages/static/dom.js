// Builds elements. Text becomes a text node and nothing else, so an answer can hold no markup.

/** Make an element: `on…` are listeners, booleans are toggled, all else are attributes. */
export function h(tag, properties = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (typeof value === "boolean") node.toggleAttribute(name, value);
    else node.setAttribute(name, value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined).map(asNode));
  return node;
}

function asNode(child) {
  return child instanceof Node ? child : String(child);
}

export const byId = (id) => document.getElementById(id);

/** Replace an element's children. */
export function fill(node, ...children) {
  node.replaceChildren(...children.flat().filter((child) => child !== null && child !== undefined).map(asNode));
}

/** Replace a table's rows. Each cell gets its column's title, which narrow screens show instead of the table's head. */
export function fillRows(body, rows) {
  fill(body);
  addRows(body, rows);
}

export function addRows(body, rows) {
  const titles = [...body.closest("table").querySelectorAll("th")].map((cell) => cell.textContent);
  for (const row of rows) [...row.cells].forEach((cell, i) => (cell.dataset.title = titles[i]));
  body.append(...rows);
}

/** Show or hide an element. */
export function show(node, shown) {
  node.hidden = !shown;
}

/** Copy text, and say so on the button for a moment. */
export async function copy(button, text) {
  const label = button.textContent;
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  } catch {
    button.textContent = "Select it and copy";
  }
  setTimeout(() => (button.textContent = label), 1500);
}
