// The persons behind a number.
import { signal } from "@preact/signals";
import { useState } from "preact/hooks";
import { follow, request } from "../api/client";
import type { PeopleRequest } from "../charts/picture";
import { buildLink } from "../router";
import { projectPath } from "../session";
import { useRequest } from "../use_request";
import { Empty, ErrorBox, Loading, Time } from "./basics";
import { Dialog } from "./dialog";

const shown = signal<PeopleRequest | null>(null);

export function showPeople(people: PeopleRequest): void {
  shown.value = people;
}

interface Actor {
  type?: string;
  id: string;
  name: string | null;
  distinct_ids?: string[];
  group_key?: string;
  matched_times?: string[];
}

interface PeoplePage {
  actors: (Actor & { appearances?: number[] })[];
  total: number | null;
  next: string | null;
}

interface RawPage {
  results?: { people: Actor[]; count: number }[];
  result?: { person: Actor; appearances: number[] }[];
  next: string | null;
  total_count?: number;
}

const LIMIT = 50;

async function loadPage(people: PeopleRequest, next: string | null, signal: AbortSignal): Promise<PeoplePage> {
  const options = { signal, body: people.body, query: { limit: LIMIT } };
  let page: RawPage;
  if (people.list) {
    const offset = next ? Number(new URL(next).searchParams.get("offset")) : 0;
    page = await request<RawPage>("POST", `${projectPath.value}/persons/${people.list}/`, { ...options, query: { limit: LIMIT, offset } });
  } else {
    page = await follow<RawPage>(next ?? people.link ?? "", { signal, query: next ? {} : { limit: LIMIT } });
  }
  const actors = page.result?.map(({ person, appearances }) => ({ ...person, appearances })) ?? page.results?.flatMap(({ people: list }) => list) ?? [];
  return { actors, total: page.total_count ?? null, next: page.next };
}

function PeopleList({ people }: { people: PeopleRequest }) {
  const [links, setLinks] = useState<(string | null)[]>([null]);
  const current = links[links.length - 1];
  const { data, error, isLoading, reload } = useRequest((signal) => loadPage(people, current, signal), [people, current]);
  if (error) return <ErrorBox error={error} retry={reload} />;
  if (!data) return <Loading />;
  if (data.actors.length === 0) return <Empty>There is no person behind this number.</Empty>;
  return (
    <>
      <p>{data.total !== null ? `${data.total} in all. ` : ""}{isLoading ? "Loading …" : ""}</p>
      <table>
        <thead><tr><th scope="col">Person</th><th scope="col" class="secondary">Distinct id</th><th scope="col">{data.actors[0].appearances ? "Returned" : "Last matching event"}</th></tr></thead>
        <tbody>
          {data.actors.map((actor) => (
            <tr key={actor.id}>
              <th scope="row">
                {actor.type === "group" ? (actor.group_key ?? actor.id) : <a href={buildLink("persons", actor.id)} onClick={() => { shown.value = null; }}>{actor.name ?? actor.id}</a>}
              </th>
              <td class="secondary"><code>{actor.distinct_ids?.[0] ?? actor.id}</code></td>
              <td>{actor.appearances ? <code>{actor.appearances.join(" ")}</code> : <Time time={actor.matched_times?.[actor.matched_times.length - 1]} />}</td>
            </tr>
          ))}
        </tbody>
      </table>
      <nav class="pager" aria-label="Pages of persons">
        <button type="button" disabled={links.length === 1} onClick={() => setLinks(links.slice(0, -1))}>Previous</button>
        <button type="button" disabled={data.next === null} onClick={() => setLinks([...links, data.next])}>Next</button>
      </nav>
    </>
  );
}

export function PeopleDialog() {
  const people = shown.value;
  if (!people) return null;
  return (
    <Dialog title={people.title} onClose={() => { shown.value = null; }}>
      <PeopleList people={people} />
    </Dialog>
  );
}
