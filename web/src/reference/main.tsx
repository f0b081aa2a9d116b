// Starts the API reference: loads the OpenAPI document and replaces the content of the page, which has the title and the description.
import { render } from "preact";
import { useContext, useEffect, useRef } from "preact/hooks";
import { ErrorBox, Loading, Select } from "../components/basics";
import { buildLink, route } from "../router";
import { THEMES, type Theme, theme } from "../theme";
import { type ApiDocument, ApiReference, BASE_ADDRESS, Reference } from "./document";
import { Navigation } from "./navigation";
import { OperationView } from "./operation";
import { Overview } from "./overview";

function TopBar() {
  const { document: { info } } = useContext(Reference);
  return (
    <header class="top-bar">
      <a class="skip" href="#content" onClick={(event) => { event.preventDefault(); document.querySelector<HTMLElement>("main h1")?.focus(); }}>Skip to the content</a>
      <a class="brand" href={BASE_ADDRESS}><span aria-hidden="true" class="flag-mark" />Pennon</a>
      <span class="project-name">API reference {info.version}</span>
      <span class="spring" />
      <Select<Theme> label="Theme" isHidden value={theme.value} values={THEMES.map((one) => [one, one === "system" ? "auto" : one])} onChange={(chosen) => { theme.value = chosen; }} />
    </header>
  );
}

function CurrentView() {
  const { entries } = useContext(Reference);
  const { view, id } = route.value;
  if (view === "" || id === null) return <Overview />;
  const entry = view === "operation" ? entries.get(id) : undefined;
  if (entry) return <OperationView key={id} entry={entry} />;
  return <><h1 tabIndex={-1}>Not found</h1><p>There is no operation <code>{id}</code>. <a href={buildLink("")}>All operations</a></p></>;
}

/** After navigation the heading has the focus, and the title of the page is that of the operation. */
function useViewFocus(): void {
  const { entries } = useContext(Reference);
  const { id } = route.value;
  const isFirst = useRef(true);
  useEffect(() => {
    document.title = `${(id && entries.get(id)?.summary) || "API reference"} · Pennon`;
    if (!isFirst.current) {
      scrollTo(0, 0);
      document.querySelector<HTMLElement>("main h1")?.focus();
    }
    isFirst.current = false;
  }, [id]);
}

function Frame() {
  useViewFocus();
  return (
    <>
      <TopBar />
      <Navigation />
      <main id="content"><CurrentView /></main>
    </>
  );
}

async function loadDocument(): Promise<ApiDocument> {
  const address = `${BASE_ADDRESS}api/schema`;
  const response = await fetch(address).catch(() => null);
  if (!response?.ok) throw new Error(`${address} ${response ? `returned status ${response.status}` : "did not respond"}. Check that the server runs, then retry.`);
  return response.json();
}

async function start(): Promise<void> {
  const status = document.getElementById("status")!;
  render(<Loading text="Loading the operations …" />, status);
  try {
    const api = new ApiReference(await loadDocument());
    const place = document.getElementById("reference")!;
    place.replaceChildren();
    render(<Reference.Provider value={api}><Frame /></Reference.Provider>, place);
  } catch (error) {
    render(<ErrorBox error={error as Error} retry={() => void start()} />, status);
  }
}

void start();
