// Status and usage of a flag.
import { useState } from "preact/hooks";
import { request } from "../api/client";
import type { Flag, FlagStatus } from "../api/types";
import { ErrorBox, Loading, Time } from "../components/basics";
import { showError, showNotice } from "../components/notices";
import { PictureBox } from "../components/picture";
import { calculate } from "../insight/calculate";
import { buildPicture } from "../charts/kinds";
import { buildLink } from "../router";
import { projectPath } from "../session";
import { useRequest } from "../use_request";

export function FlagStatusCard({ flag, onChange }: { flag: Flag; onChange: () => void }) {
  const path = `${projectPath.value}/feature_flags/${flag.id}`;
  const { data, error } = useRequest((signal) => request<FlagStatus>("GET", `${path}/status/`, { signal }), [flag.id, flag.version]);
  const [isBusy, setBusy] = useState(false);
  const createDashboard = async () => {
    setBusy(true);
    try {
      await request("POST", `${path}/dashboard/`, { body: {} });
      showNotice("The usage dashboard was created.");
      onChange();
    } catch (failure) {
      showError(failure);
    } finally {
      setBusy(false);
    }
  };
  return (
    <section class="card" aria-label="Status">
      <h2>Status</h2>
      {error && <ErrorBox error={error} />}
      <dl class="pairs">
        {data && <><dt>State</dt><dd><span class={`state ${data.status === "stale" ? "stale" : flag.active ? "on" : "off"}`}>{data.status === "active" ? (flag.active ? "on" : "off") : data.status}</span></dd><dt>Why</dt><dd>{data.reason}</dd></>}
        <dt>Last used</dt><dd><Time time={flag.last_called_at} /></dd>
        <dt>Created</dt><dd><Time time={flag.created_at} /> by {flag.created_by?.email ?? "an import"}</dd>
        <dt>Version</dt><dd>{flag.version}</dd>
      </dl>
      {flag.usage_dashboard !== null
        ? <a href={buildLink("dashboards", flag.usage_dashboard)}>Usage dashboard</a>
        : flag.can_edit && <button type="button" class="small" disabled={isBusy} onClick={createDashboard}>Create a usage dashboard</button>}
    </section>
  );
}

export function FlagUsage({ flag }: { flag: Flag }) {
  const query = {
    kind: "TrendsQuery", interval: "day", dateRange: { date_from: "-30d" },
    series: [{ kind: "EventsNode", event: "$feature_flag_called", name: "Calls", properties: [{ key: "$feature_flag", value: [flag.key], operator: "exact", type: "event" }] }],
    breakdownFilter: { breakdown: "$feature_flag_response", breakdown_type: "event" },
  };
  const { data, error, reload } = useRequest((signal) => calculate(query, signal), [flag.key]);
  if (error) return <ErrorBox error={error} retry={reload} />;
  if (!data) return <Loading />;
  const picture = buildPicture(query, data.results);
  const isEmpty = Array.isArray(data.results) && data.results.length === 0;
  return (
    <section aria-label="Usage">
      <h2>Calls in the last 30 days, by value</h2>
      {isEmpty || !picture
        ? <p class="note">No event $feature_flag_called of this flag. SDKs send it when they evaluate a flag.</p>
        : <PictureBox picture={picture} caption={`Calls of ${flag.key}`} />}
    </section>
  );
}
