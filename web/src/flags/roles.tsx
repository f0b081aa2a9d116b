// The roles that may edit a flag.
import { useState } from "preact/hooks";
import { request } from "../api/client";
import type { Flag, Page, Role, RoleAccess } from "../api/types";
import { ErrorBox, Loading, Select, Time } from "../components/basics";
import { showError } from "../components/notices";
import { explainMissingScope, project, projectPath } from "../session";
import { useRequest } from "../use_request";

export function FlagRoles({ flag }: { flag: Flag }) {
  const path = `${projectPath.value}/feature_flags/${flag.id}/role_access/`;
  const granted = useRequest((signal) => request<Page<RoleAccess>>("GET", path, { query: { limit: 1000 }, signal }), [flag.id]);
  const organization = project.value?.organization;
  const roles = useRequest((signal) => (organization ? request<Page<Role>>("GET", `api/organizations/${organization}/roles/`, { query: { limit: 1000 }, signal }) : null), [organization]);
  const [chosen, setChosen] = useState("");
  const change = async (method: string, address: string, body?: object) => {
    try {
      await request(method, address, { body });
      setChosen("");
      granted.reload();
    } catch (failure) {
      showError(failure);
    }
  };
  if (granted.error) return <ErrorBox error={granted.error} retry={granted.reload} />;
  if (!granted.data) return <Loading />;
  const list = granted.data.results;
  const others = (roles.data?.results ?? []).filter(({ id }) => !list.some(({ role }) => role?.id === id));
  const missing = explainMissingScope("feature_flag:write");
  return (
    <section aria-label="Roles">
      <p class="note">Administrators and the creator may always edit. Others need one of these roles where the organization or their role limits editing.</p>
      {list.length > 0 && (
        <table>
          <thead><tr><th scope="col">Role</th><th scope="col">Added</th><th scope="col"><span class="for-readers">Remove</span></th></tr></thead>
          <tbody>
            {list.map((one) => (
              <tr key={one.id}>
                <th scope="row">{one.role?.name}</th><td><Time time={one.added_at} /></td>
                <td><button type="button" class="small" disabled={missing !== null} onClick={() => change("DELETE", `${path}${one.id}/`)}>Remove {one.role?.name}</button></td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
      {roles.error && <ErrorBox error={roles.error} />}
      {missing ? <p class="note">{missing}</p> : others.length > 0 ? (
        <form class="row" onSubmit={(event) => { event.preventDefault(); if (chosen) void change("POST", path, { role_id: chosen }); }}>
          <Select label="Role" value={chosen} values={[["", "choose a role"], ...others.map(({ id, name }): [string, string] => [id, name])]} onChange={setChosen} />
          <button type="submit" disabled={chosen === ""}>Add role</button>
        </form>
      ) : <p class="note">{roles.data ? "The organization has no other role. Roles are declared in a workspace file: pennon init." : ""}</p>}
    </section>
  );
}
