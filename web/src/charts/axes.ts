// Grid lines and labels that charts with a value axis share.
import { scaleLinear } from "d3-scale";
import { type Size, type SvgNode, fitText, svg, textWidth } from "./svg";

export interface Frame {
  left: number;
  right: number;
  top: number;
  bottom: number;
}

export interface ValueAxis {
  scale: (value: number) => number;
  frame: Frame;
  lines: SvgNode;
}

/** A vertical axis from the smallest to the largest value, which includes zero. */
export function valueAxis(size: Size, lowest: number, highest: number, format: (value: number) => string): ValueAxis {
  const count = Math.max(2, Math.min(5, Math.floor(size.height / 45)));
  const linear = scaleLinear().domain([Math.min(0, lowest), Math.max(highest, lowest < 0 ? 0 : 1)]).nice(count);
  const ticks = linear.ticks(count);
  const labels = ticks.map(format);
  const frame = { left: Math.max(...labels.map(textWidth)) + 10, right: size.width - 8, top: 8, bottom: size.height - 22 };
  linear.range([frame.bottom, frame.top]);
  const lines = ticks.flatMap((tick, index) => [
    svg("line", { x1: frame.left, x2: frame.right, y1: linear(tick), y2: linear(tick), class: tick === 0 ? "axis" : "grid" }),
    svg("text", { x: frame.left - 6, y: linear(tick) + 4, "text-anchor": "end", class: "tick" }, labels[index]),
  ]);
  return { scale: (value) => linear(value), frame, lines: svg("g", {}, ...lines) };
}

/** Labels below `positions`, as many as fit side by side; the last one is always there. */
export function positionLabels(labels: string[], positions: number[], frame: Frame): SvgNode {
  const widest = Math.max(1, ...labels.map((label) => textWidth(fitText(label, 110)))) + 14;
  const fitting = Math.max(1, Math.floor((frame.right - frame.left) / widest));
  const every = Math.max(1, Math.ceil(labels.length / fitting));
  const shown = labels.map((_, index) => index).filter((index) => (labels.length - 1 - index) % every === 0);
  const texts = shown.map((index) => {
    const text = fitText(labels[index], 110);
    const half = textWidth(text) / 2;
    const x = Math.min(Math.max(positions[index], frame.left - 4 + half), frame.right + 6 - half);
    return svg("text", { x, y: frame.bottom + 16, "text-anchor": "middle", class: "tick" }, text);
  });
  return svg("g", {}, ...texts);
}
