// Charts as SVG, drawn to the width of their figure: bars, lines, and shares.
const CHART = { height: 130, top: 16, bottom: 18, side: 6 };

function svgNode(name, attributes, text) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", name);
  Object.entries(attributes).forEach(([key, value]) => node.setAttribute(key, value));
  if (text !== undefined) node.textContent = text;
  return node;
}

function drawing(figure, height = CHART.height) {
  const width = Math.max(240, figure.clientWidth || 320);
  const svg = svgNode("svg", { viewBox: `0 0 ${width} ${height}`, height, role: "img" });
  const caption = figure.closest("figure")?.querySelector("figcaption");
  svg.setAttribute("aria-label", caption ? caption.firstChild.textContent.trim() : "chart");
  figure.replaceChildren(svg);
  return { svg, width };
}

// The largest value at the top left, the first and last label below.
function frame(svg, width, largest, labels) {
  svg.append(svgNode("text", { x: CHART.side, y: 12 }, "max " + largest));
  if (!labels.length) return;
  svg.append(svgNode("text", { x: CHART.side, y: CHART.height - 5 }, labels[0]));
  if (labels.length > 1)
    svg.append(svgNode("text", { x: width - CHART.side, y: CHART.height - 5, "text-anchor": "end" }, labels.at(-1)));
}

const plotHeight = CHART.height - CHART.top - CHART.bottom;
const heightOf = (value, largest) => largest > 0 ? plotHeight * value / largest : 0;

// values: {label, value, title}. labelled: whether each bar has its own label below it.
function bars(figure, values, { labelled = false, format = String, largest } = {}) {
  const { svg, width } = drawing(figure);
  largest = largest ?? Math.max(0, ...values.map(one => one.value));
  const step = (width - 2 * CHART.side) / Math.max(values.length, 1);
  values.forEach((one, index) => {
    const height = Math.max(one.value > 0 ? 2 : 0, heightOf(one.value, largest)), x = CHART.side + index * step;
    const bar = svgNode("rect", {
      x: x + step * 0.08, y: CHART.height - CHART.bottom - height, width: step * 0.84, height, fill: one.colour || "var(--accent)" });
    bar.append(svgNode("title", {}, one.title || one.label + ": " + format(one.value)));
    svg.append(bar);
    if (!labelled) return;
    svg.append(svgNode("text", { x: x + step / 2, y: CHART.height - 5, "text-anchor": "middle" }, one.label));
    if (one.value) svg.append(svgNode("text", {
      x: x + step / 2, y: CHART.height - CHART.bottom - height - 3, "text-anchor": "middle" }, format(one.value)));
  });
  if (!labelled) frame(svg, width, format(largest), values.map(one => one.label));
}

// series: {values, colour}; a value that is null breaks the line.
function lines(figure, labels, series, format) {
  const { svg, width } = drawing(figure);
  const known = series.flatMap(one => one.values).filter(value => !isMissing(value));
  const largest = Math.max(0, ...known), step = (width - 2 * CHART.side) / Math.max(labels.length - 1, 1);
  series.forEach(one => {
    let path = "";
    one.values.forEach((value, index) => {
      if (isMissing(value)) return;
      const isFirst = !index || isMissing(one.values[index - 1]);
      const x = CHART.side + index * step, y = CHART.height - CHART.bottom - heightOf(value, largest);
      path += `${isFirst ? "M" : "L"}${x.toFixed(1)} ${y.toFixed(1)}`;
      const point = svgNode("circle", { cx: x, cy: y, r: 2.5, fill: one.colour });
      point.append(svgNode("title", {}, labels[index] + ": " + format(value)));
      svg.append(point);
    });
    svg.append(svgNode("path", { d: path, fill: "none", stroke: one.colour, "stroke-width": 1.5 }));
  });
  frame(svg, width, format(largest), labels);
}

// rows: {label, parts: [{value, colour}], note}; the values of a row are shares of `total`.
function shares(figure, rows, total) {
  const rowHeight = 24, { svg, width } = drawing(figure, Math.max(rowHeight * rows.length + 8, 32));
  const labels = 88, room = width - labels - 96;
  rows.forEach((row, index) => {
    const y = 8 + index * rowHeight;
    svg.append(svgNode("text", { x: CHART.side, y: y + 11 }, row.label));
    let x = labels;
    row.parts.forEach(part => {
      const length = total ? room * part.value / total : 0;
      const bar = svgNode("rect", { x, y, width: length, height: 14, fill: part.colour });
      bar.append(svgNode("title", {}, part.title));
      svg.append(bar);
      x += length;
    });
    svg.append(svgNode("text", { x: x + 6, y: y + 11 }, row.note));
  });
}
