// Boxes and points over a picture. The coordinates are fractions of the picture, and the overlay is as large as the
// picture, so nothing is computed when the picture changes its size.

import { h } from "./dom.js";

const SVG = "http://www.w3.org/2000/svg";

function shape(place) {
  if (place.x_min === undefined) {
    const dot = document.createElementNS(SVG, "path");
    // a line of no length with round ends is a dot in any proportion of the picture
    dot.setAttribute("d", `M ${place.x} ${place.y} l 0.00001 0`);
    dot.setAttribute("class", "dot");
    return dot;
  }
  const box = document.createElementNS(SVG, "rect");
  box.setAttribute("class", "box");
  box.setAttribute("x", place.x_min);
  box.setAttribute("y", place.y_min);
  box.setAttribute("width", Math.max(0, place.x_max - place.x_min));
  box.setAttribute("height", Math.max(0, place.y_max - place.y_min));
  return box;
}

const percent = (fraction) => `${Math.round(1000 * fraction) / 10}\u00a0%`;

/** Say where a place is. */
export function describe(place) {
  if (place.x_min === undefined) return `${percent(place.x)} across, ${percent(place.y)} down`;
  return `${percent(place.x_min)} to ${percent(place.x_max)} across, ${percent(place.y_min)} to ${percent(place.y_max)} down`;
}

/** A badge's distance from the picture's edge, whole within the picture. */
const inside = (fraction) => `clamp(.65rem, ${100 * fraction}%, 100% - .65rem)`;

/** Places on the picture and in a list; pointing at the one marks the other. */
export class Places {
  constructor(layer, list) {
    this.layer = layer;
    this.list = list;
    this.svg = document.createElementNS(SVG, "svg");
    this.svg.setAttribute("viewBox", "0 0 1 1");
    this.svg.setAttribute("preserveAspectRatio", "none");
    this.svg.setAttribute("aria-hidden", "true");
    this.clear();
  }

  clear() {
    this.count = 0;
    this.svg.replaceChildren();
    this.layer.replaceChildren(this.svg);
    this.list.replaceChildren();
  }

  add(place, label = "") {
    this.count += 1;
    const drawn = shape(place);
    const badge = h("span", { class: "badge", "aria-hidden": "true" }, this.count);
    badge.style.left = inside(place.x_min ?? place.x);
    badge.style.top = inside(place.y_min ?? place.y);
    const entry = h("li", { tabindex: "0" }, h("b", {}, label || `${this.count}`), " ", describe(place));
    const mark = (on) => [drawn, badge, entry].forEach((node) => node.classList.toggle("marked", on));
    for (const node of [drawn, entry]) {
      node.addEventListener("pointerenter", () => mark(true));
      node.addEventListener("pointerleave", () => mark(false));
    }
    drawn.addEventListener("click", () => entry.focus());
    entry.addEventListener("focus", () => mark(true));
    entry.addEventListener("blur", () => mark(false));
    this.svg.append(drawn);
    this.layer.append(badge);
    this.list.append(entry);
  }

  set(places, label) {
    this.clear();
    places.forEach((place) => this.add(place, label));
  }
}
