// The key of this tab, what it permits, and the commands that create and revoke keys: the API has no other operations for keys.
import { useState } from "preact/hooks";
import { Code, Field, Select, Time, ViewHeader } from "../components/basics";
import { quoteForShell } from "../insight/code";
import { SCOPES, hasScope, project, session } from "../session";

const EXPIRIES: [string, string][] = [["", "never"], ["7d", "in 7 days"], ["30d", "in 30 days"], ["90d", "in 90 days"], ["365d", "in a year"]];

function CreateCommand() {
  const [label, setLabel] = useState("console");
  const [scopes, setScopes] = useState<string[]>(["project:read", "feature_flag:read", "insight:read", "query:read", "person:read", "dashboard:read", "event_definition:read", "property_definition:read"]);
  const [expiry, setExpiry] = useState("90d");
  const [isLimited, setLimited] = useState(true);
  const command = [
    `pennon keys create --label ${quoteForShell(label || "console")}`,
    ...(isLimited ? scopes.map((scope) => `--scope ${scope}`) : []),
    `--project ${project.value?.id}`,
    ...(expiry ? [`--expires ${expiry}`] : []),
  ].join(" ");
  return (
    <section aria-label="Create a key">
      <h2>Create a key</h2>
      <p class="note">Keys are created on the command line, which needs access to the data directory or to the tables. The key is printed once; only its SHA-256 is stored.</p>
      <div class="row">
        <Field label="Label" value={label} onInput={setLabel} />
        <Select label="Expires" value={expiry} values={EXPIRIES} onChange={setExpiry} />
        <label class="check"><input type="checkbox" checked={isLimited} onChange={(event) => setLimited(event.currentTarget.checked)} /> Only these scopes</label>
      </div>
      {isLimited && (
        <fieldset class="scopes">
          <legend>Scopes</legend>
          {SCOPES.map(([scope, meaning]) => (
            <label class="check" key={scope}>
              <input type="checkbox" checked={scopes.includes(scope)} onChange={(event) => setScopes(event.currentTarget.checked ? [...scopes, scope] : scopes.filter((one) => one !== scope))} />
              <span><code>{scope}</code> <small>{meaning}</small></span>
            </label>
          ))}
        </fieldset>
      )}
      <Code text={command} label="Command that creates the key" />
      <p class="note">For another data directory add <code>--data DIR</code>, for a deployment <code>--cloud</code>.</p>
      <h2>List and revoke</h2>
      <Code text="pennon keys list" label="Command that lists the keys" />
      <Code text={`pennon keys revoke ${quoteForShell(session.value?.key.label ?? "LABEL")}`} label="Command that revokes this key" />
    </section>
  );
}

export function KeysView() {
  const key = session.value!.key;
  return (
    <>
      <ViewHeader title="Keys" />
      <div class="halves">
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
        <CreateCommand />
      </div>
    </>
  );
}
