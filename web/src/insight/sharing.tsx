// The sharing link of an insight.
import { useState } from "preact/hooks";
import { baseAddress, request } from "../api/client";
import type { Insight, Sharing } from "../api/types";
import { Code, ErrorBox, Loading } from "../components/basics";
import { Dialog } from "../components/dialog";
import { explainMissingScope, projectPath } from "../session";
import { useRequest } from "../use_request";
import { nameInsight } from "./model";

/** The address under which the insight is read with the token alone. */
export function buildSharingLink(insight: Insight, token: string): string {
  return `${baseAddress()}${projectPath.value}/insights/${insight.id}/?sharing_access_token=${encodeURIComponent(token)}`;
}

export function SharingDialog({ insight, onClose }: { insight: Insight; onClose: () => void }) {
  const path = `${projectPath.value}/insights/${insight.id}/sharing/`;
  const loaded = useRequest((signal) => request<Sharing>("GET", path, { signal }), [insight.id]);
  const [changed, setChanged] = useState<Sharing | null>(null);
  const [error, setError] = useState<Error | null>(null);
  const sharing = changed ?? loaded.data;
  const change = async (method: string, address: string, body: object) => {
    try {
      setChanged(await request<Sharing>(method, address, { body }));
      setError(null);
    } catch (failure) {
      setError(failure as Error);
    }
  };
  const missing = explainMissingScope("sharing_configuration:write");
  return (
    <Dialog title={`Share ${nameInsight(insight)}`} onClose={onClose}>
      {(error ?? loaded.error) && <ErrorBox error={(error ?? loaded.error)!} />}
      {!sharing && !loaded.error && <Loading />}
      {sharing && (
        <>
          <label class="check">
            <input type="checkbox" disabled={missing !== null} checked={sharing.enabled} onChange={(event) => change("PATCH", path, { enabled: event.currentTarget.checked })} />
            Share by link
          </label>
          {missing && <p class="note">{missing}</p>}
          {sharing.enabled && (
            <>
              <p>With this address the insight and its result are read without a key, as JSON. It gives no access to anything else.</p>
              <Code text={buildSharingLink(insight, sharing.access_token)} label="Sharing link" />
              <button type="button" disabled={missing !== null} onClick={() => change("POST", `${path}refresh/`, {})}>Replace the link</button>
              <p class="note">The former link stops working at once, as it does when sharing is switched off.</p>
            </>
          )}
        </>
      )}
    </Dialog>
  );
}
