// The charts as functions: geometry and texts from data that is calculated by hand.
import { expect, test } from "@playwright/test";
import { funnelChart } from "../src/charts/funnel";
import { buildPicture } from "../src/charts/kinds";
import { formatSeconds, formatShare } from "../src/charts/picture";
import { seriesChart } from "../src/charts/series";
import { type SvgNode, toMarkup } from "../src/charts/svg";

function findAll(node: SvgNode, matches: (node: SvgNode) => boolean): SvgNode[] {
  const below = node.children.flatMap((child) => (typeof child === "string" ? [] : findAll(child, matches)));
  return matches(node) ? [node, ...below] : below;
}

test("durations have the two largest units", () => {
  expect([0, 59, 75, 3600, 3725, 90_000, 200_000].map(formatSeconds)).toEqual(["0s", "59s", "1m 15s", "1h", "1h 2m", "1d 1h", "2d 7h"]);
  expect(formatShare(1, 3)).toBe("33.3 %");
  expect(formatShare(0, 0)).toBe("–");
});

test("bars are as long as their share of the first step", () => {
  const steps = [{ name: "a", counts: [40], remark: "" }, { name: "b", counts: [10], remark: "" }];
  const chart = funnelChart(steps, { width: 518, label: "A funnel", names: [""], format: String });
  const bars = findAll(chart, (node) => node.attributes.class === "bar");
  expect(bars.map(({ attributes }) => attributes.width)).toEqual([400, 100]);
  expect(findAll(chart, (node) => node.attributes.class === "lost").map(({ attributes }) => attributes.width)).toEqual([400]);
});

test("stacked bars add up, and values below zero are below the axis", () => {
  const data = { labels: ["x"], series: [{ name: "a", values: [30] }, { name: "b", values: [70] }, { name: "c", values: [-50] }] };
  const chart = seriesChart(data, { width: 300, height: 200, display: "stacked", label: "Stack", format: String });
  const [a, b, c] = findAll(chart, (node) => String(node.attributes.class).startsWith("bar")).map(({ attributes }) => ({ y: Number(attributes.y), height: Number(attributes.height) }));
  expect(b.y + b.height).toBeCloseTo(a.y, 0);
  expect(a.y + a.height).toBeCloseTo(c.y, 0);
  expect(b.height / a.height).toBeCloseTo(7 / 3, 1);
  expect(c.height / a.height).toBeCloseTo(5 / 3, 1);
});

test("texts are escaped", () => {
  const name = `<script>"&'</script>`;
  const chart = seriesChart({ labels: [name], series: [{ name, values: [1] }] }, { width: 300, height: 200, display: "lines", label: name, format: String });
  expect(toMarkup(chart)).not.toContain("<script>");
  expect(toMarkup(chart)).toContain("&lt;script&gt;");
});

test("the last period is drawn open only while it lasts", () => {
  const results = [{ label: "view", order: 0, count: 3, data: [1, 2], labels: ["1-Jan-2026", "2-Jan-2026"], days: [], filter: { date_to: "2026-01-02T23:59:59Z" } }];
  const countOpen = (now: string) => {
    const picture = buildPicture({ kind: "TrendsQuery" }, results, Date.parse(now));
    return findAll(picture!.draw!({ width: 300, height: 200 }), (node) => node.attributes.class === "line open").length;
  };
  expect(countOpen("2026-01-02T12:00:00Z")).toBe(1);
  expect(countOpen("2026-01-03T12:00:00Z")).toBe(0);
});

test("periods after the range have no cell in the grid of retention", () => {
  const row = (date: string, counts: number[]) => ({ label: "", date, breakdown_value: null, people_url: null, values: counts.map((count, index) => ({ count, label: `Day ${index}` })) });
  const picture = buildPicture({ kind: "RetentionQuery" }, [row("2026-01-01", [4, 2, 0]), row("2026-01-02", [3, 0, 0]), row("2026-01-03", [5, 0, 0])], 0)!;
  expect(picture.table.rows.map((cells) => cells.map(({ text }) => text))).toEqual([
    ["2026-01-01", "4", "2 (50.0 %)", "0 (0.0 %)"], ["2026-01-02", "3", "0 (0.0 %)", "–"], ["2026-01-03", "5", "–", "–"],
  ]);
  expect(findAll(picture.draw!({ width: 600, height: 200 }), (node) => node.attributes.class === "cell")).toHaveLength(6);
});

test("the picture of a funnel names what was lost", () => {
  const step = (name: string, order: number, count: number) => ({ name, custom_name: null, order, count, average_conversion_time: null, median_conversion_time: null, converted_people_url: `/in/${order}`, dropped_people_url: `/out/${order}` });
  const picture = buildPicture({ kind: "FunnelsQuery" }, [step("a", 0, 8), step("b", 1, 2)], 0)!;
  expect(picture.summary).toBe("8 began with a, 2 reached b (25.0 %).");
  expect(picture.table.rows[1].map(({ text }) => text)).toEqual(["2. b", "2", "25.0 %", "25.0 %", "6", "–", "–"]);
  expect(picture.findPeople!({ step: "1", series: "0" })?.link).toBe("/in/1");
  expect(picture.findPeople!({ step: "1", series: "0", lost: "1" })?.link).toBe("/out/1");
});
