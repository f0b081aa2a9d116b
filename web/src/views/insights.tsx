// The list of saved insights.
import { useState } from "preact/hooks";
import { request } from "../api/client";
import type { Insight, Page } from "../api/types";
import { Empty, ErrorBox, Loading, Pager, Select, Time, ViewHeader } from "../components/basics";
import { KINDS, nameInsight, nameKind, queryOfInsight } from "../insight/model";
import { buildLink, replaceQuery, route } from "../router";
import { explainMissingScope, projectPath } from "../session";
import { useRequest, useSettled } from "../use_request";

const LIMIT = 50;
const FILTERS: [string, string][] = [["", "all"], ...KINDS.map(([kind, name]): [string, string] => [kind.replace(/Query$/, "").toUpperCase(), name])];
const SAVED: [string, string][] = [["", "all"], ["true", "saved"], ["favorited", "favorites"]];

export function InsightsView() {
  const query = route.value.query;
  const [search, setSearch] = useState(query.get("search") ?? "");
  const settled = useSettled(search, 200);
  const chosen = { insight: query.get("insight") ?? "", saved: query.get("saved") ?? "" };
  const offset = Number(query.get("offset") ?? 0);
  const change = (changes: Record<string, string>) => replaceQuery({ ...chosen, search, offset: "", ...changes });
  const load = (signal: AbortSignal) => {
    const filter = chosen.saved === "favorited" ? { favorited: true } : { saved: chosen.saved };
    const parameters = { insight: chosen.insight, ...filter, search: settled, order: "-last_modified_at", basic: true, limit: LIMIT, offset: offset || undefined };
    return request<Page<Insight>>("GET", `${projectPath.value}/insights/`, { query: parameters, signal });
  };
  const { data, error, isLoading, reload } = useRequest(load, [settled, offset, JSON.stringify(chosen), projectPath.value]);
  const missing = explainMissingScope("insight:write");
  return (
    <>
      <ViewHeader title="Insights">
        {missing && <span class="note">{missing}</span>}
        {KINDS.slice(0, 2).map(([kind, name], index) => (
          <a key={kind} class={index === 0 ? "button primary" : "button"} href={buildLink("insights", "new", { query: JSON.stringify({ kind, series: [{ kind: "EventsNode", event: null }, ...(index === 1 ? [{ kind: "EventsNode", event: null }] : [])], dateRange: { date_from: "-30d" } }) })}>New {name.toLowerCase()}</a>
        ))}
      </ViewHeader>
      <form class="toolbar" role="search" onSubmit={(event) => event.preventDefault()}>
        <label class="field grow">
          <span class="for-readers">Search insights</span>
          <input type="search" placeholder="Search by name" value={search} onInput={(event) => { setSearch(event.currentTarget.value); change({ search: event.currentTarget.value }); }} />
        </label>
        <Select label="Kind" value={chosen.insight} values={FILTERS} onChange={(insight) => change({ insight })} />
        <Select label="Show" value={chosen.saved} values={SAVED} onChange={(saved) => change({ saved })} />
      </form>
      {error && <ErrorBox error={error} retry={reload} />}
      {!data && isLoading && <Loading />}
      {data && data.results.length === 0 && <Empty>No insight matches.</Empty>}
      {data && data.results.length > 0 && (
        <table class="list" aria-busy={isLoading}>
          <thead><tr><th scope="col">Name</th><th scope="col">Kind</th><th scope="col" class="secondary">Changed by</th><th scope="col">Changed</th></tr></thead>
          <tbody>
            {data.results.map((insight) => (
              <tr key={insight.id}>
                <th scope="row"><a href={buildLink("insights", insight.short_id)}>{nameInsight(insight)}</a>{insight.description && <div class="note">{insight.description}</div>}</th>
                <td>{nameKind(queryOfInsight(insight)?.kind ?? "")}</td>
                <td class="secondary">{insight.last_modified_by?.email}</td>
                <td><Time time={insight.last_modified_at} /></td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
      {data && <Pager count={data.count} offset={offset} limit={LIMIT} onChange={(next) => change({ offset: next ? String(next) : "" })} />}
    </>
  );
}
