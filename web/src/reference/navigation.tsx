// Search, and the tags with their operations. In narrow windows the list is closed until it is needed.
import { useContext, useEffect, useRef, useState } from "preact/hooks";
import { buildLink, route } from "../router";
import { Reference, type TagEntries } from "./document";
import { Method } from "./text";

function Tag({ tag: { name, entries }, isOpen, onToggle }: { tag: TagEntries; isOpen: boolean; onToggle: () => void }) {
  const { id } = route.value;
  const list = useRef<HTMLUListElement>(null);
  // The operation of a deep link may be below the end of the list.
  useEffect(() => list.current?.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest" }), [id]);
  return (
    <li>
      <button type="button" class="toggle" aria-expanded={isOpen} onClick={onToggle}>{name} <small>{entries.length}</small></button>
      {isOpen && (
        <ul ref={list}>
          {entries.map((entry) => (
            <li key={entry.id}>
              <a href={buildLink("operation", entry.id)} aria-current={entry.id === id ? "page" : undefined}>
                <Method method={entry.method} /><span>{entry.summary}</span>
              </a>
            </li>
          ))}
        </ul>
      )}
    </li>
  );
}

/** The slash moves the focus to the search, except where it is a character of a field. */
function useSearchShortcut(): preact.RefObject<HTMLInputElement | null> {
  const field = useRef<HTMLInputElement>(null);
  useEffect(() => {
    const onKey = (event: KeyboardEvent) => {
      if (event.key !== "/" || event.ctrlKey || event.metaKey || (event.target as HTMLElement).matches("input, textarea, select")) return;
      event.preventDefault();
      field.current?.focus();
    };
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  }, []);
  return field;
}

export function Navigation() {
  const api = useContext(Reference);
  const [text, setText] = useState("");
  const [isListOpen, setListOpen] = useState(false);
  const { id } = route.value;
  const current = id === null ? undefined : api.entries.get(id)?.tag;
  const [openTags, setOpenTags] = useState<ReadonlySet<string>>(new Set(current === undefined ? [] : [current]));
  const field = useSearchShortcut();
  useEffect(() => {
    if (current !== undefined) setOpenTags((previous) => new Set(previous).add(current));
    setListOpen(false);
  }, [id]);
  const isSearching = text.trim() !== "";
  const tags = api.search(text);
  const count = tags.reduce((sum, { entries }) => sum + entries.length, 0);
  const toggle = (name: string) => setOpenTags((previous) => {
    const next = new Set(previous);
    if (!next.delete(name)) next.add(name);
    return next;
  });
  const openFirst = (event: Event) => {
    event.preventDefault();
    if (isSearching && count > 0) location.hash = buildLink("operation", tags[0].entries[0].id);
  };
  return (
    <nav class="navigation" aria-label="Operations">
      <form role="search" onSubmit={openFirst}>
        <input ref={field} type="search" aria-label="Search operations" placeholder="Search operations ( / )" autoComplete="off" spellcheck={false} value={text}
          onInput={(event) => { setText(event.currentTarget.value); setListOpen(true); }} />
        <button type="button" class="list-toggle" aria-expanded={isListOpen} aria-controls="operations" onClick={() => setListOpen(!isListOpen)}>List</button>
      </form>
      <p class="note" role="status">{isSearching && (count === 0 ? "No operation contains these words." : `${count} of ${api.entries.size} operations`)}</p>
      <div id="operations" class={isListOpen ? "operations" : "operations closed"}>
        <a href={buildLink("")} aria-current={id === null ? "page" : undefined}>Overview</a>
        <ul>{tags.map((tag) => <Tag key={tag.name} tag={tag} isOpen={isSearching || openTags.has(tag.name)} onToggle={() => toggle(tag.name)} />)}</ul>
      </div>
    </nav>
  );
}
