// The sharing link of an insight or a dashboard.
import { useState } from "preact/hooks";
import { baseAddress, request } from "../api/client";
import type { Sharing } from "../api/types";
import { explainMissingScope } from "../session";
import { useRequest } from "../use_request";
import { Code, ErrorBox, Loading } from "./basics";
import { Dialog } from "./dialog";

const encodeAttribute = (text: string) => text.replace(/&/g, "&amp;").replace(/"/g, "&quot;").replace(/</g, "&lt;");

/** The address of the page that the token opens. */
export const buildSharingLink = (token: string) => `${baseAddress()}shared/${encodeURIComponent(token)}`;

/** Shows the page of the token inside of another page. */
export function buildFrame(token: string, name: string): string {
  return `<iframe src="${baseAddress()}embedded/${encodeURIComponent(token)}" title="${encodeAttribute(name)}" width="800" height="600" style="border: 0"></iframe>`;
}

/** `record` is the path of the insight or the dashboard, with a slash at the end. */
export function SharingDialog({ record, name, onClose }: { record: string; name: string; onClose: () => void }) {
  const path = `${record}sharing/`;
  const loaded = useRequest((signal) => request<Sharing>("GET", path, { signal }), [record]);
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
    <Dialog title={`Share ${name}`} onClose={onClose}>
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
              <p>This page shows the numbers to everyone with the link, without a key. It gives no access to anything else.</p>
              <Code text={buildSharingLink(sharing.access_token)} label="Sharing link" />
              <p><a href={buildSharingLink(sharing.access_token)} target="_blank" rel="noopener noreferrer">Open the page</a></p>
              <p>In a page of your own:</p>
              <Code text={buildFrame(sharing.access_token, name)} label="Frame" />
              <button type="button" disabled={missing !== null} onClick={() => change("POST", `${path}refresh/`, {})}>Replace the link</button>
              <p class="note">The former link stops working at once, as it does when sharing is switched off.</p>
            </>
          )}
        </>
      )}
    </Dialog>
  );
}
