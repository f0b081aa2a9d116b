// The activity log of a flag as readable differences.
import { useState } from "preact/hooks";
import { request } from "../api/client";
import type { ActivityEntry, ActivityPage, Flag } from "../api/types";
import { Empty, ErrorBox, Loading, Pager, Time } from "../components/basics";
import { Differences } from "../components/differences";
import { showError, showNotice } from "../components/notices";
import { projectPath } from "../session";
import { useRequest } from "../use_request";
import { describeChange } from "./describe";

const LIMIT = 20;
const NO_FILTERS = { groups: [{ properties: [], rollout_percentage: null }] };
const EMPTY: Record<string, unknown> = { name: "", filters: NO_FILTERS, tags: [] };

/** The body that sets the changed fields of an entry back. Rejected with 409 if one was changed since. */
function buildUndo(entry: ActivityEntry): Record<string, unknown> | null {
  const changes = (entry.detail.changes ?? []).filter(({ field }) => field !== "version");
  if (changes.length === 0) return null;
  const read = (field: string, value: unknown) => value ?? (field in EMPTY ? EMPTY[field] : null);
  const version = entry.detail.changes?.find(({ field }) => field === "version")?.after;
  return {
    ...Object.fromEntries(changes.map(({ field, before }) => [field, read(field ?? "", before)])),
    version, original_flag: Object.fromEntries(changes.map(({ field, after }) => [field, read(field ?? "", after)])),
  };
}

export function EntryHead({ entry }: { entry: ActivityEntry }) {
  return <p class="entry-head"><strong>{entry.activity}</strong> by {entry.user.email ?? entry.user.first_name} <Time time={entry.created_at} /></p>;
}

export function FlagHistory({ flag, onChange }: { flag: Flag; onChange: () => void }) {
  const [offset, setOffset] = useState(0);
  const load = (signal: AbortSignal) =>
    request<ActivityPage>("GET", `${projectPath.value}/feature_flags/${flag.id}/activity/`, { query: { limit: LIMIT, page: offset / LIMIT + 1 }, signal });
  const { data, error, reload } = useRequest(load, [flag.id, flag.version, offset]);
  const undo = async (entry: ActivityEntry) => {
    try {
      await request("PATCH", `${projectPath.value}/feature_flags/${flag.id}/`, { body: buildUndo(entry) });
      showNotice("The change was undone.");
      onChange();
    } catch (failure) {
      showError(failure);
    }
  };
  if (error) return <ErrorBox error={error} retry={reload} />;
  if (!data) return <Loading />;
  if (data.results.length === 0) return <Empty>No entry.</Empty>;
  return (
    <section aria-label="History">
      <ol class="entries">
        {data.results.map((entry, order) => (
          <li key={entry.id}>
            <EntryHead entry={entry} />
            <Differences rows={(entry.detail.changes ?? []).flatMap(({ field, before, after }) => describeChange(field ?? "", before, after))} />
            {offset + order === 0 && flag.can_edit && buildUndo(entry) && <button type="button" class="small" onClick={() => undo(entry)}>Undo this change</button>}
          </li>
        ))}
      </ol>
      <Pager count={data.total_count} offset={offset} limit={LIMIT} onChange={setOffset} />
    </section>
  );
}
