// The newest events, polled while the page is visible.
import { signal } from "@preact/signals";
import { useEffect, useRef, useState } from "preact/hooks";
import { projectPath } from "../session";
import { request } from "./client";
import type { StoredEvent } from "./types";

const POLL_MS = 2000;
const MOST = 500;

interface EventsPage {
  next: string | null;
  results: StoredEvent[];
}

export interface LiveFilter {
  event: string;
  distinct_id: string;
}

/** Whether the page is visible: a hidden one does not poll. */
const isVisible = signal(!document.hidden);
document.addEventListener("visibilitychange", () => { isVisible.value = !document.hidden; });

/** The newest events first. `arrived` are the ids of those that came after the first page. */
export function useLiveEvents(filter: LiveFilter, isPaused: boolean, limit: number) {
  const [events, setEvents] = useState<StoredEvent[]>([]);
  const [error, setError] = useState<Error | null>(null);
  const [isLoaded, setLoaded] = useState(false);
  const arrived = useRef(new Set<string>());
  const known = useRef<Map<string, StoredEvent>>(new Map());
  const filterText = JSON.stringify(filter);

  useEffect(() => {
    known.current = new Map();
    arrived.current = new Set();
    setEvents([]);
    setLoaded(false);
  }, [filterText, projectPath.value]);

  useEffect(() => {
    if (isPaused || !isVisible.value) return;
    const controller = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    const poll = async () => {
      try {
        const isFirst = known.current.size === 0;
        const page = await request<EventsPage>("GET", `${projectPath.value}/events/`, { query: { ...filter, limit }, signal: controller.signal });
        const fresh = page.results.filter(({ id }) => !known.current.has(id));
        for (const event of fresh) {
          known.current.set(event.id, event);
          if (!isFirst || isLoadedOnce.current) arrived.current.add(event.id);
        }
        isLoadedOnce.current = true;
        setLoaded(true);
        setError(null);
        if (fresh.length > 0 || isFirst) {
          const sorted = [...known.current.values()].sort((a, b) => (b.timestamp ?? "").localeCompare(a.timestamp ?? "") || b.id.localeCompare(a.id));
          known.current = new Map(sorted.slice(0, MOST).map((event) => [event.id, event]));
          setEvents(sorted.slice(0, MOST));
        }
      } catch (failure) {
        if (controller.signal.aborted) return;
        setError(failure as Error);
      }
      timer = setTimeout(poll, POLL_MS);
    };
    const isLoadedOnce = { current: known.current.size > 0 };
    void poll();
    return () => {
      controller.abort();
      clearTimeout(timer);
    };
  }, [filterText, isPaused, isVisible.value, projectPath.value]);

  return { events, error, isLoaded, arrived: arrived.current };
}
