// The list of flags, with the search and the filters of the API.
import { useState } from "preact/hooks";
import { request } from "../api/client";
import type { Flag, Page } from "../api/types";
import { Empty, ErrorBox, Loading, Pager, Select, Time, ViewHeader } from "../components/basics";
import { buildLink, replaceQuery, route } from "../router";
import { explainMissingScope, projectPath } from "../session";
import { useRequest, useSettled } from "../use_request";
import { describeRollout } from "../flags/describe";

const LIMIT = 50;
const STATES: [string, string][] = [["", "all"], ["true", "on"], ["false", "off"], ["STALE", "stale"]];
const TYPES: [string, string][] = [["", "all"], ["boolean", "on or off"], ["multivariant", "with variants"], ["remote_config", "remote config"], ["experiment", "of experiments"]];
const RUNTIMES: [string, string][] = [["", "all"], ["server", "server"], ["client", "client"], ["all", "both"]];
const ORDERS: [string, string][] = [
  ["-created_at", "newest first"], ["-updated_at", "changed lately"], ["key", "by key"], ["last_called_at", "longest unused"], ["-last_called_at", "used lately"],
];

function FlagState({ flag }: { flag: Flag }) {
  if (flag.status === "STALE") return <span class="state stale" title="Unused for 30 days, or on for everybody">stale</span>;
  return flag.active ? <span class="state on">on</span> : <span class="state off">off</span>;
}

function FlagRow({ flag }: { flag: Flag }) {
  return (
    <tr>
      <th scope="row">
        <a href={buildLink("flags", flag.id)}><code>{flag.key}</code></a>
        {flag.name && <div class="note">{flag.name}</div>}
      </th>
      <td><FlagState flag={flag} /></td>
      <td>{describeRollout(flag.filters)}</td>
      <td class="secondary">{flag.tags.map((tag) => <span key={tag} class="tag">{tag}</span>)}</td>
      <td class="secondary"><Time time={flag.last_called_at} /></td>
      <td class="secondary"><Time time={flag.updated_at} /></td>
    </tr>
  );
}

export function FlagsView() {
  const query = route.value.query;
  const [search, setSearch] = useState(query.get("search") ?? "");
  const [tag, setTag] = useState(query.get("tag") ?? "");
  const settled = useSettled({ search, tag }, 200);
  const offset = Number(query.get("offset") ?? 0);
  const names = ["active", "type", "evaluation_runtime", "order", "key"] as const;
  const chosen = Object.fromEntries(names.map((name) => [name, query.get(name) ?? ""])) as Record<(typeof names)[number], string>;
  const change = (changes: Record<string, string>) => replaceQuery({ ...chosen, search, tag, offset: "", ...changes });
  const load = (signal: AbortSignal) => {
    const label = settled.tag.trim().toLowerCase();
    return request<Page<Flag>>("GET", `${projectPath.value}/feature_flags/`, {
      query: { ...chosen, search: settled.search, tags: label && JSON.stringify([label]), limit: LIMIT, offset: offset || undefined }, signal,
    });
  };
  const { data, error, isLoading, reload } = useRequest(load, [settled, offset, JSON.stringify(chosen), projectPath.value]);
  const missing = explainMissingScope("feature_flag:write");
  return (
    <>
      <ViewHeader title="Flags">
        {missing ? <span class="note">{missing}</span> : <a class="button primary" href={buildLink("flags", "new")}>New flag</a>}
      </ViewHeader>
      <form class="toolbar" role="search" onSubmit={(event) => event.preventDefault()}>
        <label class="field grow">
          <span class="for-readers">Search by key or name</span>
          <input type="search" placeholder="Search by key or name" value={search} onInput={(event) => { setSearch(event.currentTarget.value); change({ search: event.currentTarget.value }); }} />
        </label>
        <Select label="State" value={chosen.active} values={STATES} onChange={(active) => change({ active })} />
        <Select label="Type" value={chosen.type} values={TYPES} onChange={(type) => change({ type })} />
        <Select label="Runtime" value={chosen.evaluation_runtime} values={RUNTIMES} onChange={(runtime) => change({ evaluation_runtime: runtime })} />
        <label class="field narrow"><span>Tag</span><input type="text" value={tag} onInput={(event) => { setTag(event.currentTarget.value); change({ tag: event.currentTarget.value }); }} /></label>
        <Select label="Order" value={chosen.order || "-created_at"} values={ORDERS} onChange={(order) => change({ order })} />
      </form>
      {error && <ErrorBox error={error} retry={reload} />}
      {!data && isLoading && <Loading />}
      {data && data.results.length === 0 && <Empty>No flag matches. <button type="button" onClick={() => { setSearch(""); setTag(""); replaceQuery({}); }}>Remove all filters</button></Empty>}
      {data && data.results.length > 0 && (
        <table class="list" aria-busy={isLoading}>
          <thead>
            <tr>
              <th scope="col">Key and name</th><th scope="col">State</th><th scope="col">For whom</th><th scope="col" class="secondary">Tags</th>
              <th scope="col" class="secondary">Last used</th><th scope="col" class="secondary">Changed</th>
            </tr>
          </thead>
          <tbody>{data.results.map((flag) => <FlagRow key={flag.id} flag={flag} />)}</tbody>
        </table>
      )}
      {data && <Pager count={data.count} offset={offset} limit={LIMIT} onChange={(next) => change({ offset: next ? String(next) : "" })} />}
    </>
  );
}
