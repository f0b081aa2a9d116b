// Events as they arrive.
import { useState } from "preact/hooks";
import { useLiveEvents } from "../api/live_events";
import { suggestEvents, suggestPersons } from "../api/names";
import { Empty, ErrorBox, Loading, ViewHeader } from "../components/basics";
import { Combobox } from "../components/combobox";
import { EventTable } from "../components/events";
import { useSettled } from "../use_request";

export function LiveView() {
  const [event, setEvent] = useState("");
  const [person, setPerson] = useState("");
  const [isPaused, setPaused] = useState(false);
  const filter = useSettled({ event, distinct_id: person }, 300);
  const { events, error, isLoaded, arrived } = useLiveEvents(filter, isPaused, 50);
  return (
    <>
      <ViewHeader title="Live events">
        <span class={isPaused ? "state off" : "state on"} role="status">{isPaused ? "paused" : "live"}</span>
        <button type="button" aria-pressed={isPaused} onClick={() => setPaused(!isPaused)}>{isPaused ? "Continue" : "Pause"}</button>
      </ViewHeader>
      <div class="toolbar">
        <Combobox label="Event" value={event} onChange={setEvent} suggest={suggestEvents} placeholder="all events" />
        <Combobox label="Distinct id" value={person} onChange={setPerson} suggest={suggestPersons} placeholder="everyone" />
      </div>
      {error && <ErrorBox error={error} />}
      {!isLoaded && !error && <Loading />}
      {isLoaded && events.length === 0 && <Empty>No event yet.</Empty>}
      {events.length > 0 && <EventTable events={events} arrived={arrived} />}
    </>
  );
}
