// The list of persons.
import { useState } from "preact/hooks";
import { request } from "../api/client";
import type { Page, Person } from "../api/types";
import { Empty, ErrorBox, Loading, Pager, Time, ViewHeader } from "../components/basics";
import { formatValue } from "../format";
import { buildLink, replaceQuery, route } from "../router";
import { projectPath } from "../session";
import { useRequest, useSettled } from "../use_request";

const LIMIT = 50;

export function PersonsView() {
  const [search, setSearch] = useState(route.value.query.get("search") ?? "");
  const settled = useSettled(search, 250);
  const offset = Number(route.value.query.get("offset") ?? 0);
  const { data, error, isLoading, reload } = useRequest(
    (signal) => request<Page<Person>>("GET", `${projectPath.value}/persons/`, { query: { search: settled, limit: LIMIT, offset: offset || undefined }, signal }), [settled, offset, projectPath.value],
  );
  return (
    <>
      <ViewHeader title="Persons" detail={data ? `${data.count} in all` : undefined} />
      <form class="toolbar" role="search" onSubmit={(event) => event.preventDefault()}>
        <label class="field grow"><span class="for-readers">Search persons</span><input type="search" placeholder="Search by name, email or distinct id" value={search} onInput={(event) => { setSearch(event.currentTarget.value); replaceQuery({ search: event.currentTarget.value }); }} /></label>
      </form>
      {error && <ErrorBox error={error} retry={reload} />}
      {!data && isLoading && <Loading />}
      {data && data.results.length === 0 && <Empty>No person matches.</Empty>}
      {data && data.results.length > 0 && (
        <table class="list" aria-busy={isLoading}>
          <thead><tr><th scope="col">Person</th><th scope="col" class="secondary">Email</th><th scope="col" class="secondary">Identified</th><th scope="col">First seen</th></tr></thead>
          <tbody>
            {data.results.map((person) => (
              <tr key={person.id}>
                <th scope="row"><a href={buildLink("persons", person.id)}>{person.name ?? person.id}</a>{person.distinct_ids[0] !== person.name && <div class="note"><code>{person.distinct_ids[0]}</code></div>}</th>
                <td class="secondary">{person.properties.email === undefined ? "" : formatValue(person.properties.email)}</td>
                <td class="secondary">{person.is_identified ? "yes" : "no"}</td>
                <td><Time time={person.created_at} /></td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
      {data && <Pager count={data.count} offset={offset} limit={LIMIT} onChange={(next) => replaceQuery({ search, offset: next ? String(next) : "" })} />}
    </>
  );
}
