// The user's keys: list, create and revoke them; the key of this tab and what it permits; the token of the project.
import { request } from "../api/client";
import type { ListedApiKey } from "../api/types";
import { Code, ErrorBox, Loading, Time, ViewHeader } from "../components/basics";
import { CreateKey } from "../keys/create";
import { KeyList } from "../keys/list";
import { SCOPES, hasScope, project, session } from "../session";
import { useRequest } from "../use_request";

/** Whether the key of the tab may manage keys: all scopes, no limit to projects or organizations. */
function canManageKeys(): boolean {
  const key = session.value!.key;
  return key.scopes.includes("*") && key.scoped_teams.length === 0 && key.scoped_organizations.length === 0;
}

function CurrentKey() {
  const key = session.value!.key;
  return (
    <section aria-label="The key of this tab">
      <h2>The key of this tab</h2>
      <dl class="pairs">
        <dt>Label</dt><dd>{key.label}</dd>
        <dt>Key</dt><dd><code>{key.mask_value}</code></dd>
        <dt>Created</dt><dd><Time time={key.created_at} /></dd>
        <dt>Last used</dt><dd><Time time={key.last_used_at} /></dd>
        <dt>Expires</dt><dd>{key.expires_at ? key.expires_at.slice(0, 10) : "never"}</dd>
        <dt>Projects</dt><dd>{key.scoped_teams.length > 0 ? key.scoped_teams.join(", ") : "all of its owner"}</dd>
        <dt>Scopes</dt><dd>{key.scopes.join(", ") || "none"}</dd>
      </dl>
      <h2>Project token</h2>
      <p class="note">Public: applications send events and evaluate flags with it.</p>
      {project.value?.api_token ? <Code text={project.value.api_token} label="Project token" /> : <p class="note">This key lacks the scope project:read, which shows the token.</p>}
      <h2>What this key permits</h2>
      <table>
        <thead><tr><th scope="col">Scope</th><th scope="col">Permits to</th><th scope="col">Granted</th></tr></thead>
        <tbody>{SCOPES.map(([scope, meaning]) => <tr key={scope}><th scope="row"><code>{scope}</code></th><td>{meaning}</td><td><span class={hasScope(scope) ? "state on" : "state off"}>{hasScope(scope) ? "yes" : "no"}</span></td></tr>)}</tbody>
      </table>
    </section>
  );
}

export function KeysView() {
  const canManage = canManageKeys();
  const keys = useRequest((signal) => (canManage ? request<ListedApiKey[]>("GET", "api/personal_api_keys/", { signal }) : null), [canManage]);
  return (
    <>
      <ViewHeader title="Keys" />
      {canManage && (
        <section aria-label="Your keys">
          {keys.error ? <ErrorBox error={keys.error} retry={keys.reload} /> : keys.data ? <KeyList keys={keys.data} onChanged={keys.reload} /> : <Loading />}
        </section>
      )}
      <div class="halves">
        <CurrentKey />
        <CreateKey canCreate={canManage} onCreated={keys.reload} />
      </div>
    </>
  );
}
