// One person: properties, ids, flags, events.
import { follow, request } from "../api/client";
import { useState } from "preact/hooks";
import type { FlagEvaluation, Person, StoredEvent } from "../api/types";
import { Empty, ErrorBox, Loading, Time, ViewHeader } from "../components/basics";
import { EventTable, PropertyTable } from "../components/events";
import { formatValue } from "../format";
import { buildLink } from "../router";
import { projectPath } from "../session";
import { useRequest } from "../use_request";

const LIMIT = 50;

interface EventsPage {
  next: string | null;
  results: StoredEvent[];
}

function PersonEvents({ id }: { id: string }) {
  const [links, setLinks] = useState<(string | null)[]>([null]);
  const current = links[links.length - 1];
  const load = (signal: AbortSignal) =>
    current ? follow<EventsPage>(current, { signal }) : request<EventsPage>("GET", `${projectPath.value}/events/`, { query: { person_id: id, limit: LIMIT }, signal });
  const { data, error, reload } = useRequest(load, [id, current]);
  if (error) return <ErrorBox error={error} retry={reload} />;
  if (!data) return <Loading />;
  if (data.results.length === 0) return <Empty>No event.</Empty>;
  return (
    <>
      <EventTable events={data.results} hasPerson={false} />
      {(data.next !== null || links.length > 1) && (
        <nav class="pager" aria-label="Pages of events">
          <button type="button" disabled={links.length === 1} onClick={() => setLinks(links.slice(0, -1))}>Newer</button>
          <button type="button" disabled={data.next === null} onClick={() => setLinks([...links, data.next])}>Older</button>
        </nav>
      )}
    </>
  );
}

function PersonFlags({ distinctId }: { distinctId: string }) {
  const { data, error, reload } = useRequest(
    (signal) => request<Record<string, FlagEvaluation>>("GET", `${projectPath.value}/feature_flags/evaluation_reasons/`, { query: { distinct_id: distinctId }, signal }), [distinctId],
  );
  if (error) return <ErrorBox error={error} retry={reload} />;
  if (!data) return <Loading />;
  const keys = Object.keys(data).sort();
  if (keys.length === 0) return <Empty>The project has no flag.</Empty>;
  return (
    <table class="list">
      <thead><tr><th scope="col">Flag</th><th scope="col">Value</th><th scope="col" class="secondary">Reason</th></tr></thead>
      <tbody>
        {keys.map((key) => {
          const { value, evaluation } = data[key];
          return (
            <tr key={key}>
              <th scope="row"><a href={buildLink("flags", null, { search: key })}><code>{key}</code></a></th>
              <td><span class={value === false ? "state off" : "state on"}>{value === true ? "on" : value === false ? "off" : formatValue(value)}</span></td>
              <td class="secondary">{evaluation.description ?? evaluation.reason}</td>
            </tr>
          );
        })}
      </tbody>
    </table>
  );
}

export function PersonView({ id }: { id: string }) {
  const { data, error, reload } = useRequest((signal) => request<Person>("GET", `${projectPath.value}/persons/${encodeURIComponent(id)}/`, { signal }), [id]);
  if (error) return <><ViewHeader title="Person" /><ErrorBox error={error} retry={reload} /></>;
  if (!data) return <><ViewHeader title="Person" /><Loading /></>;
  return (
    <>
      <ViewHeader title={data.name ?? data.id} detail={<>first seen <Time time={data.created_at} />{data.is_identified ? ", identified" : ""}</>} />
      <div class="halves">
        <section aria-label="Properties"><h2>Properties</h2><PropertyTable properties={data.properties} caption="Properties of the person" /></section>
        <section aria-label="Ids"><h2>Distinct ids</h2><ul class="ids">{data.distinct_ids.map((one) => <li key={one}><code>{one}</code></li>)}</ul></section>
        <section aria-label="Flags"><h2>Flags</h2>{data.distinct_ids[0] === undefined ? <Empty>Without a distinct id no flag is evaluated.</Empty> : <PersonFlags distinctId={data.distinct_ids[0]} />}</section>
        <section aria-label="Events"><h2>Events</h2><PersonEvents id={data.id} /></section>
      </div>
    </>
  );
}
