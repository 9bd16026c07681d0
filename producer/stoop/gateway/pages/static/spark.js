// A small line of the last values.

const SVG = "http://www.w3.org/2000/svg";

/** Draw values, oldest first, as wide as its place; it says nothing that the number beside it does not. */
export function spark(values) {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", "0 0 59 1");
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("class", "spark");
  svg.setAttribute("aria-hidden", "true");
  const most = Math.max(1, ...values);
  const line = document.createElementNS(SVG, "path");
  const at = (value, i) => `${60 - values.length + i} ${0.95 - (0.9 * value) / most}`;
  line.setAttribute("d", values.length > 1 ? `M ${values.map(at).join(" L ")}` : "");
  svg.append(line);
  return svg;
}
