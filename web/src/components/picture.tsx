// A picture in the console: its chart in the width of its place, its legend, and its table.
import { h, type VNode } from "preact";
import { useLayoutEffect, useMemo, useState } from "preact/hooks";
import type { Cell, Picture } from "../charts/picture";
import type { SvgNode } from "../charts/svg";
import { showPeople } from "./people";

/** Texts become text nodes: nothing of an event can become markup. */
function toVirtual(node: SvgNode | string): VNode | string {
  return typeof node === "string" ? node : h(node.tag, node.attributes, ...node.children.map(toVirtual));
}

function useWidth(): [(element: HTMLElement | null) => void, number] {
  const [element, setElement] = useState<HTMLElement | null>(null);
  const [width, setWidth] = useState(0);
  useLayoutEffect(() => {
    if (!element) return;
    setWidth(element.clientWidth);
    const observer = new ResizeObserver(() => setWidth(element.clientWidth));
    observer.observe(element);
    return () => observer.disconnect();
  }, [element]);
  return [setElement, width];
}

export function Chart({ picture, height = 260 }: { picture: Picture; height?: number }) {
  const [setElement, width] = useWidth();
  const drawing = useMemo(() => (picture.draw && width > 0 ? picture.draw({ width, height }) : null), [picture, width, height]);
  const handleClick = (event: MouseEvent) => {
    const mark = event.target instanceof SVGElement ? event.target.dataset : {};
    const people = Object.keys(mark).length > 0 ? picture.findPeople?.(mark) : undefined;
    if (people) showPeople(people);
  };
  if (picture.total !== undefined) return <p class="total"><strong>{picture.total}</strong> <span>{picture.table.rows[0]?.[0].text}</span></p>;
  if (!picture.draw) return null;
  const isScrolled = drawing !== null && Number(drawing.attributes.width) > width;
  const scrolling = isScrolled ? { tabIndex: 0, role: "region" as const, "aria-label": "Chart, wider than the window" } : {};
  return (
    <div class={picture.findPeople ? "chart-place clickable" : "chart-place"} ref={setElement} onClick={handleClick} {...scrolling}>
      {drawing && toVirtual(drawing)}
    </div>
  );
}

export function Legend({ picture }: { picture: Picture }) {
  const most = 24;
  if (picture.legend.length < 2) return null;
  return (
    <ul class="legend">
      {picture.legend.slice(0, most).map(({ name, color, isEarlier }) => (
        <li key={name}><span class={isEarlier ? "swatch earlier" : "swatch"} style={{ background: color }} />{name}</li>
      ))}
      {picture.legend.length > most && <li>and {picture.legend.length - most} more</li>}
    </ul>
  );
}

/** Numbers are aligned at the right, texts at the left. */
const alignCell = (cell: Cell | undefined) => (cell && /^[-–\d]/.test(cell.text) ? "number" : undefined);

function TableCell({ cell, isHeader }: { cell: Cell; isHeader: boolean }) {
  const { text, people } = cell;
  const content = people ? <button type="button" class="link" title={`People: ${people.title}`} onClick={() => showPeople(people)}>{text}</button> : text;
  return isHeader ? <th scope="row">{content}</th> : <td class={alignCell(cell)}>{content}</td>;
}

export function PictureTable({ picture, caption }: { picture: Picture; caption: string }) {
  const { columns, rows } = picture.table;
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label={caption}>
      <table class="numbers">
        <caption class="for-readers">{caption}</caption>
        <thead><tr>{columns.map((column, index) => <th key={index} scope="col" class={index > 0 ? alignCell(rows[0]?.[index]) : undefined}>{column}</th>)}</tr></thead>
        <tbody>{rows.map((row, order) => <tr key={order}>{row.map((cell, index) => <TableCell key={index} cell={cell} isHeader={index === 0} />)}</tr>)}</tbody>
      </table>
    </div>
  );
}

export function PictureBox({ picture, caption, height, isTableOpen }: { picture: Picture; caption: string; height?: number; isTableOpen?: boolean }) {
  const isTable = picture.draw === null && picture.total === undefined;
  return (
    <figure class="picture">
      <Chart picture={picture} height={height} />
      <Legend picture={picture} />
      <figcaption class="for-readers">{picture.summary}</figcaption>
      {isTable ? <PictureTable picture={picture} caption={caption} /> : (
        <details open={isTableOpen}>
          <summary>Numbers</summary>
          <PictureTable picture={picture} caption={caption} />
        </details>
      )}
    </figure>
  );
}
