// The list of dashboards.
import { useState } from "preact/hooks";
import { request } from "../api/client";
import type { DashboardSummary, Page } from "../api/types";
import { Empty, ErrorBox, Field, Loading, Pager, Time, ViewHeader } from "../components/basics";
import { showError } from "../components/notices";
import { buildLink, navigate, replaceQuery, route } from "../router";
import { explainMissingScope, projectPath } from "../session";
import { useRequest, useSettled } from "../use_request";

const LIMIT = 50;

export function DashboardsView() {
  const [search, setSearch] = useState(route.value.query.get("search") ?? "");
  const settled = useSettled(search, 200);
  const offset = Number(route.value.query.get("offset") ?? 0);
  const [name, setName] = useState("");
  const path = `${projectPath.value}/dashboards/`;
  const { data, error, isLoading, reload } = useRequest((signal) => request<Page<DashboardSummary>>("GET", path, { query: { search: settled, limit: LIMIT, offset: offset || undefined }, signal }), [path, settled, offset]);
  const missing = explainMissingScope("dashboard:write");
  const create = async (event: Event) => {
    event.preventDefault();
    try {
      const created = await request<DashboardSummary>("POST", path, { body: { name } });
      navigate(buildLink("dashboards", created.id));
    } catch (failure) {
      showError(failure);
    }
  };
  return (
    <>
      <ViewHeader title="Dashboards">{missing && <span class="note">{missing}</span>}</ViewHeader>
      <div class="toolbar">
        <form role="search" class="grow" onSubmit={(event) => event.preventDefault()}>
          <label class="field grow"><span class="for-readers">Search dashboards</span><input type="search" placeholder="Search by name" value={search} onInput={(event) => { setSearch(event.currentTarget.value); replaceQuery({ search: event.currentTarget.value }); }} /></label>
        </form>
        {!missing && <form class="row" onSubmit={create}><Field label="New dashboard" value={name} onInput={setName} required /><button type="submit">Create</button></form>}
      </div>
      {error && <ErrorBox error={error} retry={reload} />}
      {!data && isLoading && <Loading />}
      {data && data.results.length === 0 && <Empty>No dashboard.</Empty>}
      {data && data.results.length > 0 && (
        <table class="list">
          <thead><tr><th scope="col">Name</th><th scope="col" class="secondary">Tags</th><th scope="col">Created</th></tr></thead>
          <tbody>
            {data.results.map((one) => (
              <tr key={one.id}>
                <th scope="row"><a href={buildLink("dashboards", one.id)}>{one.name || `Dashboard ${one.id}`}</a>{one.pinned && <span class="tag">pinned</span>}{one.description && <div class="note">{one.description}</div>}</th>
                <td class="secondary">{one.tags.map((tag) => <span key={tag} class="tag">{tag}</span>)}</td>
                <td><Time time={one.created_at} /></td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
      {data && <Pager count={data.count} offset={offset} limit={LIMIT} onChange={(next) => replaceQuery({ search, offset: next ? String(next) : "" })} />}
    </>
  );
}
