// The start page: the project's numbers at once, flags that changed lately, and the first event.
import { useState } from "preact/hooks";
import { request } from "../api/client";
import { useLiveEvents } from "../api/live_events";
import type { Flag, Insight, Page, QueryNode } from "../api/types";
import { buildPicture } from "../charts/kinds";
import { Empty, ErrorBox, Loading, Time, ViewHeader } from "../components/basics";
import { PictureBox } from "../components/picture";
import { describeRollout } from "../flags/describe";
import { calculate } from "../insight/calculate";
import { nameInsight, unwrap } from "../insight/model";
import { buildLink } from "../router";
import { hasScope, project, projectPath } from "../session";
import { useRequest } from "../use_request";
import { Snippets } from "../start/snippets";

const ACTIVE: QueryNode = {
  kind: "TrendsQuery", interval: "day", dateRange: { date_from: "-30d" }, series: [{ kind: "EventsNode", event: null, name: "Active persons", custom_name: "Active persons", math: "dau" }],
};

function QueryTile({ title, query, link }: { title: string; query: QueryNode; link: string }) {
  const { data, error, reload } = useRequest((signal) => calculate(query, signal), [JSON.stringify(query), projectPath.value]);
  const picture = data ? buildPicture(query, data.results) : null;
  return (
    <article class="tile" aria-label={title}>
      <header><h2><a href={link}>{title}</a></h2></header>
      {error && <ErrorBox error={error} retry={reload} />}
      {!data && !error && <Loading text="Calculating …" />}
      {picture && <PictureBox picture={picture} caption={`Numbers of ${title}`} height={200} />}
    </article>
  );
}

/** The funnel that was changed last, or an invitation to make one. */
function FunnelTile() {
  const { data, error, reload } = useRequest(
    (signal) => request<Page<Insight>>("GET", `${projectPath.value}/insights/`, { query: { insight: "FUNNELS", saved: true, order: "-last_modified_at", basic: true, limit: 1 }, signal }), [projectPath.value],
  );
  const funnel = data?.results[0];
  const query = funnel ? unwrap(funnel.query) : null;
  if (funnel && query) return <QueryTile title={nameInsight(funnel)} query={query} link={buildLink("insights", funnel.short_id)} />;
  const empty: QueryNode = { kind: "FunnelsQuery", series: [{ kind: "EventsNode", event: null }, { kind: "EventsNode", event: null }], dateRange: { date_from: "-30d" } };
  return (
    <article class="tile" aria-label="Funnel">
      <header><h2>Funnel</h2></header>
      {error && <ErrorBox error={error} retry={reload} />}
      {data && <Empty>No funnel is saved. <a href={buildLink("insights", "new", { query: JSON.stringify(empty) })}>Build one</a></Empty>}
    </article>
  );
}

function ChangedFlags() {
  const { data, error, reload } = useRequest(
    (signal) => request<Page<Flag>>("GET", `${projectPath.value}/feature_flags/`, { query: { order: "-updated_at", limit: 6 }, signal }), [projectPath.value],
  );
  return (
    <article class="tile" aria-label="Flags that changed lately">
      <header><h2><a href={buildLink("flags", null, { order: "-updated_at" })}>Flags that changed lately</a></h2></header>
      {error && <ErrorBox error={error} retry={reload} />}
      {data && data.results.length === 0 && <Empty>No flag. {hasScope("feature_flag:write") && <a href={buildLink("flags", "new")}>Create one</a>}</Empty>}
      {data && data.results.length > 0 && (
        <table class="list">
          <thead><tr><th scope="col">Flag</th><th scope="col">State</th><th scope="col" class="secondary">For whom</th><th scope="col">Changed</th></tr></thead>
          <tbody>
            {data.results.map((flag) => (
              <tr key={flag.id}>
                <th scope="row"><a href={buildLink("flags", flag.id)}><code>{flag.key}</code></a></th>
                <td><span class={flag.active ? "state on" : "state off"}>{flag.active ? "on" : "off"}</span></td>
                <td class="secondary">{describeRollout(flag.filters)}</td>
                <td><Time time={flag.updated_at} /></td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </article>
  );
}

/** Green as soon as an event arrives while the page is open. */
function FirstEvent() {
  const [isOpen, setOpen] = useState(project.value?.ingested_event === false);
  return (
    <details class="first-event" open={isOpen} onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>Send your first event</summary>
      {isOpen && <WaitForEvent />}
    </details>
  );
}

function WaitForEvent() {
  const { events, arrived, isLoaded } = useLiveEvents({ event: "", distinct_id: "" }, false, 20);
  const newest = events.find(({ id }) => arrived.has(id));
  return (
    <>
      <p class={newest ? "waiting arrived" : "waiting"} role="status">
        {newest ? <>✓ <strong>{newest.event}</strong> of {newest.distinct_id} arrived. <a href={buildLink("live")}>See live events</a></> : isLoaded ? "Waiting for an event …" : "Connecting …"}
      </p>
      <Snippets />
    </>
  );
}

export function StartView() {
  return (
    <>
      <ViewHeader title={project.value?.name ?? "Start"} />
      {project.value?.ingested_event === false && <FirstEvent />}
      <div class="start">
        <div>
          <QueryTile title="Active persons a day" query={ACTIVE} link={buildLink("insights", "new", { query: JSON.stringify(ACTIVE), name: "Active persons a day" })} />
          <ChangedFlags />
        </div>
        <FunnelTile />
      </div>
      {project.value?.ingested_event !== false && <FirstEvent />}
    </>
  );
}
