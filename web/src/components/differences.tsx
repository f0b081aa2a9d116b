// A readable difference of two versions.
import type { Difference } from "../flags/describe";

export function Differences({ rows }: { rows: Difference[] }) {
  return (
    <dl class="differences">
      {rows.map(({ label, before, after }, index) => (
        <div key={index}>
          <dt>{label}</dt>
          {before !== null && <dd class="before"><span class="for-readers">before: </span><del>{before}</del></dd>}
          {after !== null && <dd class="after"><span class="for-readers">after: </span><ins>{after}</ins></dd>}
        </div>
      ))}
    </dl>
  );
}
