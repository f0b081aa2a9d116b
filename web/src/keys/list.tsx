// The user's keys, each with a button that revokes it.
import { useState } from "preact/hooks";
import { request } from "../api/client";
import type { ListedApiKey } from "../api/types";
import { Time } from "../components/basics";
import { Dialog } from "../components/dialog";
import { showError } from "../components/notices";
import { session } from "../session";

const isOwn = (key: ListedApiKey) => key.mask_value === session.value?.key.mask_value && key.label === session.value?.key.label;

function Revoke({ revoked, onClose, onRevoked }: { revoked: ListedApiKey; onClose: () => void; onRevoked: () => void }) {
  const revoke = async () => {
    try {
      await request("DELETE", `api/personal_api_keys/${revoked.id}/`);
      if (isOwn(revoked)) location.reload();
      onRevoked();
    } catch (failure) {
      showError(failure);
    }
    onClose();
  };
  return (
    <Dialog title={`Revoke ${revoked.label}`} onClose={onClose}>
      <p>Whatever uses this key gets a 401 within five seconds. This cannot be undone.{isOwn(revoked) && " It is the key of this tab: you are signed out."}</p>
      <p class="row"><button type="button" class="danger" onClick={revoke}>Revoke key</button><button type="button" onClick={onClose}>Cancel</button></p>
    </Dialog>
  );
}

export function KeyList({ keys, onChanged }: { keys: ListedApiKey[]; onChanged: () => void }) {
  const [revoked, setRevoked] = useState<ListedApiKey | null>(null);
  return (
    <>
      <div class="scroll">
        <table>
          <thead><tr><th scope="col">Label</th><th scope="col">Key</th><th scope="col">Scopes</th><th scope="col">Projects</th><th scope="col">Last used</th><th scope="col">Expires</th><th scope="col"><span class="for-readers">Revoke</span></th></tr></thead>
          <tbody>
            {keys.map((key) => (
              <tr key={key.id}>
                <th scope="row">{key.label}{isOwn(key) && <small> this tab</small>}</th>
                <td><code>{key.mask_value}</code></td>
                <td>{key.scopes.join(", ")}</td>
                <td>{key.scoped_teams.length > 0 ? key.scoped_teams.join(", ") : "all"}</td>
                <td><Time time={key.last_used_at} /></td>
                <td>{key.expires_at ? key.expires_at.slice(0, 10) : "never"}</td>
                <td><button type="button" class="small" onClick={() => setRevoked(key)}>Revoke<span class="for-readers"> {key.label}</span></button></td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {revoked && <Revoke revoked={revoked} onClose={() => setRevoked(null)} onRevoked={onChanged} />}
    </>
  );
}
