// A table of events whose rows open to their properties.
import { useState } from "preact/hooks";
import type { JsonObject, StoredEvent } from "../api/types";
import { formatTime, formatValue } from "../format";
import { buildLink } from "../router";
import { Time } from "./basics";

export function PropertyTable({ properties, caption }: { properties: JsonObject; caption: string }) {
  const names = Object.keys(properties).sort();
  if (names.length === 0) return <p class="note">No properties.</p>;
  return (
    <table class="properties">
      <caption class="for-readers">{caption}</caption>
      <thead><tr><th scope="col">Property</th><th scope="col">Value</th></tr></thead>
      <tbody>{names.map((name) => <tr key={name}><th scope="row"><code>{name}</code></th><td>{formatValue(properties[name])}</td></tr>)}</tbody>
    </table>
  );
}

function EventRows({ event, isNew, hasPerson }: { event: StoredEvent; isNew: boolean; hasPerson: boolean }) {
  const [isOpen, setOpen] = useState(false);
  const columns = hasPerson ? 3 : 2;
  return (
    <>
      <tr class={isNew ? "arrived" : ""}>
        <th scope="row">
          <button type="button" class="link" aria-expanded={isOpen} onClick={() => setOpen(!isOpen)}>{isOpen ? "▾" : "▸"} {event.event}</button>
        </th>
        {hasPerson && <td>{event.person ? <a href={buildLink("persons", event.person.id)}>{event.distinct_id}</a> : event.distinct_id}</td>}
        <td><Time time={event.timestamp} /></td>
      </tr>
      {isOpen && (
        <tr class="opened">
          <td colSpan={columns}>
            <p class="note">{formatTime(event.timestamp)} · <code>{event.id}</code></p>
            <PropertyTable properties={event.properties} caption={`Properties of ${event.event}`} />
          </td>
        </tr>
      )}
    </>
  );
}

export function EventTable({ events, arrived, hasPerson = true }: { events: StoredEvent[]; arrived?: Set<string>; hasPerson?: boolean }) {
  return (
    <table class="list events">
      <thead><tr><th scope="col">Event</th>{hasPerson && <th scope="col">Person</th>}<th scope="col">When</th></tr></thead>
      <tbody>{events.map((event) => <EventRows key={event.id} event={event} isNew={arrived?.has(event.id) ?? false} hasPerson={hasPerson} />)}</tbody>
    </table>
  );
}
