// The frame of the console: navigation, the chosen view, notices.
import type { ComponentType } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { baseAddress, keyRejected } from "./api/client";
import { Select } from "./components/basics";
import { KeyboardHelp, useShortcuts } from "./components/shortcuts";
import { Notices } from "./components/notices";
import { PeopleDialog } from "./components/people";
import { buildLink, route } from "./router";
import { chooseProject, leaveProject, project, session, signOut } from "./session";
import { THEMES, type Theme, theme } from "./theme";
import { ActivityView } from "./views/activity";
import { DashboardView } from "./views/dashboard";
import { DashboardsView } from "./views/dashboards";
import { FlagView } from "./views/flag";
import { FlagsView } from "./views/flags";
import { InsightView } from "./views/insight";
import { InsightsView } from "./views/insights";
import { KeysView } from "./views/keys";
import { LiveView } from "./views/live";
import { PersonView } from "./views/person";
import { PersonsView } from "./views/persons";
import { ChooseProject, SignIn } from "./views/sign_in";
import { StartView } from "./views/start";

interface View {
  name: string;
  title: string;
  list: ComponentType;
  /** The view of one record. */
  record?: ComponentType<{ id: string }>;
}

export const VIEWS: View[] = [
  { name: "", title: "Start", list: StartView },
  { name: "flags", title: "Flags", list: FlagsView, record: FlagView },
  { name: "insights", title: "Insights", list: InsightsView, record: InsightView },
  { name: "dashboards", title: "Dashboards", list: DashboardsView, record: DashboardView },
  { name: "live", title: "Live events", list: LiveView },
  { name: "persons", title: "Persons", list: PersonsView, record: PersonView },
  { name: "activity", title: "Activity", list: ActivityView },
  { name: "keys", title: "Keys", list: KeysView },
];

function Navigation() {
  const current = route.value.view;
  return (
    <nav class="navigation" aria-label="Views">
      <ul>
        {VIEWS.map(({ name, title }) => (
          <li key={name}><a href={buildLink(name)} aria-current={name === current ? "page" : undefined}>{title}</a></li>
        ))}
        <li><a href={`${baseAddress()}docs/`}>API reference</a></li>
      </ul>
    </nav>
  );
}

function TopBar() {
  const projects = session.value?.projects ?? [];
  const current = project.value!;
  return (
    <header class="top-bar">
      <a class="skip" href="#content" onClick={(event) => { event.preventDefault(); document.querySelector<HTMLElement>("main h1")?.focus(); }}>Skip to the content</a>
      <a class="brand" href={buildLink("")}><span aria-hidden="true" class="flag-mark" />Pennon</a>
      {projects.length > 1 ? (
        <Select label="Project" isHidden value={String(current.id)} values={projects.map(({ id, name }) => [String(id), name])} onChange={(id) => void chooseProject(Number(id)).catch(leaveProject)} />
      ) : <span class="project-name">{current.name}</span>}
      <span class="spring" />
      <KeyboardHelp />
      <Select<Theme> label="Theme" isHidden value={theme.value} values={THEMES.map((one) => [one, one === "system" ? "auto" : one])} onChange={(chosen) => { theme.value = chosen; }} />
      <button type="button" class="quiet" onClick={signOut}>Sign out</button>
    </header>
  );
}

function CurrentView() {
  const { view, id, query } = route.value;
  const found = VIEWS.find(({ name }) => name === view);
  if (!found) return <><h1 tabIndex={-1}>Not found</h1><p>There is no view {view}. <a href={buildLink("")}>Start page</a></p></>;
  if (id === null || !found.record) return <found.list />;
  return <found.record key={`${view}/${id}/${query.get("query") ?? ""}`} id={id} />;
}

/** After navigation the heading has the focus, and the title of the page is that of the view. */
function useViewFocus(): void {
  const { view, id } = route.value;
  const isFirst = useRef(true);
  useEffect(() => {
    const found = VIEWS.find(({ name }) => name === view);
    document.title = `${found?.title ?? "Not found"}${id ? ` ${id}` : ""} · Pennon`;
    if (!isFirst.current && !document.querySelector("dialog[open]")) {
      scrollTo(0, 0);
      document.querySelector<HTMLElement>("main h1")?.focus();
    }
    isFirst.current = false;
  }, [view, id]);
}

function Frame() {
  useViewFocus();
  useShortcuts();
  return (
    <div class="frame">
      <TopBar />
      <Navigation />
      <main id="content" key={project.value!.id}><CurrentView /></main>
      <PeopleDialog />
      <Notices />
    </div>
  );
}

export function App({ problem }: { problem: string | null }) {
  if (!session.value || keyRejected.value) return <SignIn problem={session.value ? null : problem} />;
  if (!project.value) return <ChooseProject />;
  return <Frame />;
}
