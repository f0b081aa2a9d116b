// One dashboard: a tile for each insight.
import { useState } from "preact/hooks";
import { request } from "../api/client";
import type { Dashboard, Insight, Page, Tile } from "../api/types";
import { buildPicture } from "../charts/kinds";
import { Empty, ErrorBox, Field, Loading, Time, ViewHeader } from "../components/basics";
import { Combobox, type Suggestion } from "../components/combobox";
import { Dialog } from "../components/dialog";
import { showError, showNotice } from "../components/notices";
import { PictureBox } from "../components/picture";
import { SharingDialog } from "../components/sharing";
import { nameInsight, queryOfInsight } from "../insight/model";
import { buildLink, navigate } from "../router";
import { explainMissingScope, projectPath } from "../session";
import { useRequest } from "../use_request";

function TileBox({ insight, onRemove }: { insight: Insight; onRemove: (() => void) | null }) {
  const query = queryOfInsight(insight);
  const picture = query ? buildPicture(query, insight.result) : null;
  const name = nameInsight(insight);
  return (
    <article class="tile" aria-label={name}>
      <header>
        <h2><a href={buildLink("insights", insight.short_id)}>{name}</a></h2>
        {onRemove && <button type="button" class="small quiet" aria-label={`Remove ${name} from the dashboard`} onClick={onRemove}>×</button>}
      </header>
      {insight.description && <p class="note">{insight.description}</p>}
      {picture ? <PictureBox picture={picture} caption={`Numbers of ${name}`} height={220} /> : <Empty>The result of this insight could not be calculated. Open it to see why.</Empty>}
      <footer><Time time={insight.last_refresh} /></footer>
    </article>
  );
}

function EditDialog({ dashboard, onChange, onClose }: { dashboard: Dashboard; onChange: () => void; onClose: () => void }) {
  const [name, setName] = useState(dashboard.name ?? "");
  const [description, setDescription] = useState(dashboard.description ?? "");
  const path = `${projectPath.value}/dashboards/${dashboard.id}/`;
  const send = async (body: object, isRemoval: boolean) => {
    try {
      await request("PATCH", path, { body });
      onClose();
      if (!isRemoval) return onChange();
      showNotice(`${dashboard.name} was deleted.`, async () => { await request("PATCH", path, { body: { deleted: false } }); });
      navigate(buildLink("dashboards"));
    } catch (failure) {
      showError(failure);
    }
  };
  return (
    <Dialog title="Edit the dashboard" onClose={onClose}>
      <form onSubmit={(event) => { event.preventDefault(); void send({ name, description }, false); }}>
        <Field label="Name" value={name} onInput={setName} required />
        <Field label="Description" value={description} onInput={setDescription} />
        <div class="row end">
          <button type="button" class="danger" onClick={() => void send({ deleted: true }, true)}>Delete dashboard</button>
          <button type="submit" class="primary">Save</button>
        </div>
      </form>
    </Dialog>
  );
}

function AddInsight({ dashboard, onChange }: { dashboard: Dashboard; onChange: () => void }) {
  const [text, setText] = useState("");
  const path = `${projectPath.value}/insights/`;
  const suggest = async (search: string, signal: AbortSignal): Promise<Suggestion[]> => {
    const page = await request<Page<Insight>>("GET", path, { query: { search, saved: true, basic: true, limit: 30 }, signal });
    return page.results.filter(({ dashboards }) => !dashboards.includes(dashboard.id)).map((insight) => ({ value: insight.short_id, note: nameInsight(insight) }));
  };
  const add = async (shortId: string) => {
    try {
      const page = await request<Page<Insight>>("GET", path, { query: { short_id: shortId, basic: true } });
      const insight = page.results[0];
      if (!insight) throw new Error(`There is no insight ${shortId}. Choose one of the suggestions.`);
      await request("PATCH", `${path}${insight.id}/`, { body: { dashboards: [...insight.dashboards, dashboard.id] } });
      setText("");
      onChange();
    } catch (failure) {
      showError(failure);
    }
  };
  return <Combobox label="Add an insight" value={text} onChange={setText} suggest={suggest} onEnter={(id) => void add(id)} placeholder="search by name" />;
}

export function DashboardView({ id }: { id: string }) {
  const [mode, setMode] = useState<"blocking" | "force_blocking">("blocking");
  const [round, setRound] = useState(0);
  const [isEditing, setEditing] = useState(false);
  const [isSharing, setSharing] = useState(false);
  const { data, error, isLoading, reload } = useRequest(
    (signal) => request<Dashboard>("GET", `${projectPath.value}/dashboards/${encodeURIComponent(id)}/`, { query: { refresh: mode }, signal }), [id, mode, round],
  );
  const missing = explainMissingScope("dashboard:write");
  if (error) return <><ViewHeader title="Dashboard" /><ErrorBox error={error} retry={reload} /></>;
  if (!data) return <><ViewHeader title="Dashboard" /><Loading text="Calculating the tiles …" /></>;
  const remove = async (insight: Insight) => {
    const set = (dashboards: number[]) => request("PATCH", `${projectPath.value}/insights/${insight.id}/`, { body: { dashboards } });
    try {
      await set(insight.dashboards.filter((one) => one !== data.id));
      showNotice(`${nameInsight(insight)} was removed from the dashboard.`, async () => { await set(insight.dashboards); reload(); });
      reload();
    } catch (failure) {
      showError(failure);
    }
  };
  const tiles = data.tiles.filter((tile): tile is Tile & { insight: Insight } => tile.insight !== null);
  return (
    <>
      <ViewHeader title={data.name || `Dashboard ${data.id}`} detail={data.description}>
        <button type="button" disabled={isLoading} onClick={() => { setMode("force_blocking"); setRound(round + 1); }}>{isLoading ? "Calculating …" : "Recalculate"}</button>
        {missing ? <span class="note">{missing}</span> : <button type="button" onClick={() => setEditing(true)}>Edit</button>}
        {!explainMissingScope("sharing_configuration:read") && <button type="button" onClick={() => setSharing(true)}>Share</button>}
      </ViewHeader>
      {!missing && <div class="toolbar"><AddInsight dashboard={data} onChange={reload} /></div>}
      {tiles.length === 0 && <Empty>No insight is on this dashboard.</Empty>}
      <div class="tiles">{tiles.map(({ id: tile, insight }) => <TileBox key={tile} insight={insight} onRemove={missing ? null : () => void remove(insight)} />)}</div>
      {isSharing && <SharingDialog record={`${projectPath.value}/dashboards/${data.id}/`} name={data.name || `dashboard ${data.id}`} onClose={() => setSharing(false)} />}
      {isEditing && <EditDialog dashboard={data} onChange={reload} onClose={() => setEditing(false)} />}
    </>
  );
}
