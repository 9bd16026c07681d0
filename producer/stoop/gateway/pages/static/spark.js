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
  if (values.length < 2) return svg;
  const at = (value, i) => `${60 - values.length + i} ${0.95 - (0.9 * value) / most}`;
  const line = `M ${values.map(at).join(" L ")}`;
  svg.append(path("line", line), path("area", `${line} V 1 H ${60 - values.length} Z`));
  return svg;
}

function path(kind, d) {
  const drawn = document.createElementNS(SVG, "path");
  drawn.setAttribute("class", kind);
  drawn.setAttribute("d", d);
  return drawn;
}
