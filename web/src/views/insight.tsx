// The builder of one insight: the query, its picture, saving, dashboards, sharing.
import { useEffect, useState } from "preact/hooks";
import { request } from "../api/client";
import type { DashboardSummary, Insight, Page, QueryNode } from "../api/types";
import { Choice, ErrorBox, Field, Loading, ViewHeader } from "../components/basics";
import { showError, showNotice } from "../components/notices";
import { SharingDialog } from "../components/sharing";
import { QueryEditor } from "../insight/builder";
import { KINDS, nameInsight, startQuery, unwrap, wrap, prepareQuery } from "../insight/model";
import { QueryCode, QueryResult } from "../insight/result";
import { buildLink, navigate, rememberQuery, route } from "../router";
import { explainMissingScope, projectPath } from "../session";
import { useRequest } from "../use_request";
import { useUnsaved } from "../use_unsaved";

const insightsPath = () => `${projectPath.value}/insights/`;

function DashboardPicker({ insight, onChange }: { insight: Insight; onChange: (insight: Insight) => void }) {
  const { data, error, reload } = useRequest((signal) => request<Page<DashboardSummary>>("GET", `${projectPath.value}/dashboards/`, { query: { limit: 1000 }, signal }), []);
  const [name, setName] = useState("");
  const set = async (dashboards: number[]) => {
    try {
      onChange(await request<Insight>("PATCH", `${insightsPath()}${insight.id}/`, { body: { dashboards } }));
    } catch (failure) {
      showError(failure);
    }
  };
  const create = async (event: Event) => {
    event.preventDefault();
    try {
      const dashboard = await request<DashboardSummary>("POST", `${projectPath.value}/dashboards/`, { body: { name } });
      setName("");
      await set([...insight.dashboards, dashboard.id]);
      reload();
    } catch (failure) {
      showError(failure);
    }
  };
  return (
    <section class="card" aria-label="Dashboards">
      <h2>Dashboards</h2>
      {error && <ErrorBox error={error} />}
      {data?.results.map(({ id, name: title }) => (
        <div class="row" key={id}>
          <label class="check">
            <input type="checkbox" checked={insight.dashboards.includes(id)} onChange={(event) => set(event.currentTarget.checked ? [...insight.dashboards, id] : insight.dashboards.filter((one) => one !== id))} />
            {title || `Dashboard ${id}`}
          </label>
          {insight.dashboards.includes(id) && <a href={buildLink("dashboards", id)}>open</a>}
        </div>
      ))}
      <form class="row" onSubmit={create}>
        <Field label="New dashboard" value={name} onInput={setName} required />
        <button type="submit">Create and add</button>
      </form>
    </section>
  );
}

function useSave(insight: Insight | null, name: string, query: QueryNode, onSaved: (insight: Insight) => void) {
  const [error, setError] = useState<Error | null>(null);
  const save = async () => {
    const prepared = prepareQuery(query);
    if (typeof prepared === "string") return setError(new Error(prepared));
    try {
      const body = { name: name || null, query: wrap(prepared), saved: true };
      const saved = await request<Insight>(insight ? "PATCH" : "POST", insight ? `${insightsPath()}${insight.id}/` : insightsPath(), { body });
      setError(null);
      const before = insight && { name: insight.name, query: insight.query };
      showNotice(`${nameInsight(saved)} was saved.`, before ? async () => { onSaved(await request<Insight>("PATCH", `${insightsPath()}${saved.id}/`, { body: before })); } : undefined);
      onSaved(saved);
    } catch (failure) {
      setError(failure as Error);
    }
  };
  return { save, error };
}

function InsightEditor({ stored }: { stored: Insight | null }) {
  const [insight, setInsight] = useState(stored);
  const [name, setName] = useState(stored?.name ?? route.value.query.get("name") ?? "");
  const [query, setQuery] = useState<QueryNode>(() => unwrap(stored?.query ?? null) ?? readQueryOfRoute() ?? startQuery("TrendsQuery", null));
  const [isSharing, setSharing] = useState(false);
  // What is not saved yet survives a look at a person or a flag, and can be sent as a link.
  useEffect(() => {
    if (!insight) rememberQuery({ query: JSON.stringify(query), ...(name && { name }) });
  }, [insight, query, name]);
  const handleSaved = (saved: Insight) => {
    if (!insight) return navigate(buildLink("insights", saved.short_id));
    setInsight(saved);
    setName(saved.name ?? "");
    setQuery(unwrap(saved.query) ?? query);
  };
  const { save, error } = useSave(insight, name, query, handleSaved);
  const hasChanges = insight !== null && (name !== (insight.name ?? "") || JSON.stringify(query) !== JSON.stringify(unwrap(insight.query)));
  useUnsaved(hasChanges, name || "the insight");
  const missing = explainMissingScope("insight:write");
  const remove = async () => {
    if (!insight) return;
    const set = (deleted: boolean) => request("PATCH", `${insightsPath()}${insight.id}/`, { body: { deleted } });
    try {
      await set(true);
      showNotice(`${nameInsight(insight)} was deleted.`, async () => { await set(false); });
      navigate(buildLink("insights"));
    } catch (failure) {
      showError(failure);
    }
  };
  return (
    <>
      <ViewHeader title={insight ? nameInsight(insight) : "New insight"}>
        {missing ? <span class="note">{missing}</span> : (
          <>
            {insight && <button type="button" onClick={remove}>Delete</button>}
            {insight && <button type="button" onClick={() => setSharing(true)}>Share</button>}
            <button type="button" class="primary" onClick={save}>Save</button>
          </>
        )}
      </ViewHeader>
      {error && <ErrorBox error={error} />}
      <div class="builder">
        <form class="query-editor" onSubmit={(event) => event.preventDefault()}>
          <Field label="Name" name="insight-name" value={name} onInput={setName} placeholder="unnamed" />
          <Choice label="Kind of insight" value={query.kind} values={KINDS} onChange={(kind) => kind !== query.kind && setQuery(startQuery(kind, query))} />
          <QueryEditor query={query} onChange={setQuery} />
        </form>
        <div class="query-result">
          <QueryResult query={query} name={name || "this query"} />
          <QueryCode query={query} />
          {insight && <DashboardPicker insight={insight} onChange={setInsight} />}
        </div>
      </div>
      {isSharing && insight && <SharingDialog record={`${insightsPath()}${insight.id}/`} name={nameInsight(insight)} onClose={() => setSharing(false)} />}
    </>
  );
}

/** A query in the address, such as of a link of the start page. */
function readQueryOfRoute(): QueryNode | null {
  try {
    const query = JSON.parse(route.value.query.get("query") ?? "null");
    return KINDS.some(([kind]) => kind === query?.kind) ? query : null;
  } catch {
    return null;
  }
}

async function fetchInsight(id: string, signal: AbortSignal): Promise<Insight> {
  const page = await request<Page<Insight>>("GET", insightsPath(), { query: { short_id: id }, signal });
  if (page.results.length > 0) return page.results[0];
  return request<Insight>("GET", `${insightsPath()}${encodeURIComponent(id)}/`, { signal });
}

function StoredInsight({ id }: { id: string }) {
  const { data, error, reload } = useRequest((signal) => fetchInsight(id, signal), [id]);
  if (error) return <><ViewHeader title="Insight" /><ErrorBox error={error} retry={reload} /></>;
  if (!data) return <><ViewHeader title="Insight" /><Loading /></>;
  const node = unwrap(data.query);
  if (!node || !KINDS.some(([kind]) => kind === node.kind)) {
    return <><ViewHeader title={nameInsight(data)} /><p class="note">The console edits trends, funnels, retention, lifecycles, stickiness and paths that are stored as `query`. Change this insight through the API.</p></>;
  }
  return <InsightEditor stored={data} />;
}

export function InsightView({ id }: { id: string }) {
  return id === "new" ? <InsightEditor stored={null} /> : <StoredInsight key={id} id={id} />;
}
