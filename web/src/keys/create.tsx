// The form that creates a key, and its secret, which is shown once.
import { useState } from "preact/hooks";
import { request } from "../api/client";
import type { CreatedApiKey } from "../api/types";
import { Code, Field, Select } from "../components/basics";
import { showError } from "../components/notices";
import { quoteForShell } from "../insight/code";
import { SCOPES, project } from "../session";

const EXPIRIES: [string, string][] = [["", "never"], ["7", "in 7 days"], ["30", "in 30 days"], ["90", "in 90 days"], ["365", "in a year"]];
const DAY_MILLISECONDS = 24 * 60 * 60 * 1000;
const READ_SCOPES = SCOPES.map(([scope]) => scope).filter((scope) => scope.endsWith(":read"));

function ScopeChoice({ scopes, onChange }: { scopes: string[]; onChange: (scopes: string[]) => void }) {
  const toggle = (scope: string, isChosen: boolean) => onChange(isChosen ? [...scopes, scope] : scopes.filter((one) => one !== scope));
  return (
    <fieldset class="scopes">
      <legend>Scopes</legend>
      {SCOPES.map(([scope, meaning]) => (
        <label class="check" key={scope}>
          <input type="checkbox" checked={scopes.includes(scope)} onChange={(event) => toggle(scope, event.currentTarget.checked)} />
          <span><code>{scope}</code> <small>{meaning}</small></span>
        </label>
      ))}
    </fieldset>
  );
}

function SecretOnce({ created, onClose }: { created: CreatedApiKey; onClose: () => void }) {
  return (
    <section aria-label="The new key" class="secret">
      <h2>The new key</h2>
      <p role="status">Copy the key “{created.label}” now: it is not shown again. Only its SHA-256 is stored.</p>
      <Code text={created.value} label="The new key" />
      <p><button type="button" onClick={onClose}>I have copied it</button></p>
    </section>
  );
}

/** `canCreate`: the key of the tab may create others; otherwise the command that does. */
export function CreateKey({ canCreate, onCreated }: { canCreate: boolean; onCreated: () => void }) {
  const [label, setLabel] = useState("");
  const [scopes, setScopes] = useState(READ_SCOPES);
  const [isLimited, setLimited] = useState(true);
  const [isOfProject, setOfProject] = useState(true);
  const [days, setDays] = useState("90");
  const [created, setCreated] = useState<CreatedApiKey | null>(null);
  const granted = isLimited ? scopes : ["*"];
  const submit = async (event: Event) => {
    event.preventDefault();
    const expiry = days === "" ? null : new Date(Date.now() + Number(days) * DAY_MILLISECONDS).toISOString();
    const body = { label, scopes: granted, scoped_teams: isOfProject ? [project.value?.id] : [], expires_at: expiry };
    try {
      setCreated(await request<CreatedApiKey>("POST", "api/personal_api_keys/", { body }));
      setLabel("");
      onCreated();
    } catch (failure) {
      showError(failure);
    }
  };
  const command = [
    `pennon keys create --label ${quoteForShell(label || "console")}`,
    ...(isLimited ? scopes.map((scope) => `--scope ${scope}`) : []),
    ...(isOfProject ? [`--project ${project.value?.id}`] : []),
    ...(days === "" ? [] : [`--expires ${days}d`]),
  ].join(" ");
  if (created) return <SecretOnce created={created} onClose={() => setCreated(null)} />;
  return (
    <form aria-label="Create a key" onSubmit={submit}>
      <h2>Create a key</h2>
      <div class="row">
        <Field label="Label" value={label} onInput={setLabel} required={canCreate} placeholder="what uses the key" />
        <Select label="Expires" value={days} values={EXPIRIES} onChange={setDays} />
      </div>
      <div class="row">
        <label class="check"><input type="checkbox" checked={isOfProject} onChange={(event) => setOfProject(event.currentTarget.checked)} /> Only this project</label>
        <label class="check"><input type="checkbox" checked={isLimited} onChange={(event) => setLimited(event.currentTarget.checked)} /> Only these scopes</label>
      </div>
      {isLimited && <ScopeChoice scopes={scopes} onChange={setScopes} />}
      {canCreate ? <p><button type="submit" class="primary" disabled={granted.length === 0}>Create key</button></p> : <p class="note">Only a key with all scopes and without limits creates others. Where the data directory or the tables are, this command does:</p>}
      <details open={!canCreate}>
        <summary>On the command line</summary>
        <Code text={command} label="Command that creates the key" />
        <p class="note">For another data directory add <code>--data DIR</code>, for a deployment <code>--cloud</code>. <code>pennon keys list</code> and <code>pennon keys revoke</code> show and revoke keys.</p>
      </details>
    </form>
  );
}
