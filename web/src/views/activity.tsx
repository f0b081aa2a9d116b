// Who changed what: flags, insights, dashboards, cohorts, actions.
import { useState } from "preact/hooks";
import { request } from "../api/client";
import type { ActivityEntry, ActivityPage } from "../api/types";
import { Choice, Empty, ErrorBox, Loading, Pager, ViewHeader } from "../components/basics";
import { Differences } from "../components/differences";
import { describeChange } from "../flags/describe";
import { EntryHead } from "../flags/history";
import { buildLink, replaceQuery, route } from "../router";
import { projectPath } from "../session";
import { useRequest } from "../use_request";

const LIMIT = 25;
type Log = "feature_flags" | "insights" | "dashboards" | "cohorts" | "actions";
const LOGS: [Log, string][] = [["feature_flags", "Flags"], ["insights", "Insights"], ["dashboards", "Dashboards"], ["cohorts", "Cohorts"], ["actions", "Actions"]];

function linkEntry(entry: ActivityEntry): string | null {
  if (entry.scope === "FeatureFlag") return buildLink("flags", entry.item_id);
  if (entry.scope === "Insight") return buildLink("insights", entry.detail.short_id ?? entry.item_id);
  return entry.scope === "Dashboard" ? buildLink("dashboards", entry.item_id) : null;
}

function Entry({ entry }: { entry: ActivityEntry }) {
  const link = linkEntry(entry);
  const name = entry.detail.name || `${entry.scope} ${entry.item_id}`;
  return (
    <li>
      <h2>{link ? <a href={link}>{name}</a> : name}</h2>
      <EntryHead entry={entry} />
      <Differences rows={(entry.detail.changes ?? []).flatMap(({ field, before, after }) => describeChange(field ?? "", before, after))} />
    </li>
  );
}

export function ActivityView() {
  const log = (route.value.query.get("log") as Log | null) ?? "feature_flags";
  const [offset, setOffset] = useState(0);
  const { data, error, reload } = useRequest(
    (signal) => request<ActivityPage>("GET", `${projectPath.value}/${log}/activity/`, { query: { limit: LIMIT, page: offset / LIMIT + 1 }, signal }), [log, offset, projectPath.value],
  );
  return (
    <>
      <ViewHeader title="Activity" />
      <div class="toolbar"><Choice label="Log" value={log} values={LOGS} onChange={(chosen) => { setOffset(0); replaceQuery({ log: chosen }); }} /></div>
      {error && <ErrorBox error={error} retry={reload} />}
      {!data && !error && <Loading />}
      {data && data.results.length === 0 && <Empty>No entry.</Empty>}
      {data && <ol class="entries">{data.results.map((entry) => <Entry key={entry.id} entry={entry} />)}</ol>}
      {data && <Pager count={data.total_count} offset={offset} limit={LIMIT} onChange={setOffset} />}
    </>
  );
}
