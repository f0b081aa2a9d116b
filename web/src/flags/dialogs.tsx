// Dialogs of the flag editor: what a change means for everybody, and a concurrent change.
import type { Flag } from "../api/types";
import { formatNumber } from "../charts/picture";
import { Dialog } from "../components/dialog";
import { Differences } from "../components/differences";
import { ErrorBox, Loading } from "../components/basics";
import { useRequest } from "../use_request";
import { describeChange, describeRollout, includesAll, type Difference } from "./describe";
import { type FlagDraft, listChanges, startDraft } from "./draft";
import { countReach, nameActors } from "./reach";

export function listDifferences(before: FlagDraft, after: FlagDraft): Difference[] {
  return listChanges(before, after).flatMap((field) => describeChange(field, before[field], after[field]));
}

const isOnForAll = (draft: FlagDraft) => draft.active && includesAll(draft.filters);

/** Whether saving needs a confirmation: the flag is, or becomes, on for everybody, and that or its values change. */
export function needsConfirmation(before: FlagDraft, after: FlagDraft): boolean {
  const changes = listChanges(before, after);
  return (isOnForAll(before) || isOnForAll(after)) && (changes.includes("active") || changes.includes("filters"));
}

export function ConfirmDialog({ flag, draft, onConfirm, onClose }: { flag: Flag; draft: FlagDraft; onConfirm: () => void; onClose: () => void }) {
  const before = startDraft(flag);
  const groupType = draft.filters.aggregation_group_type_index ?? null;
  const { data, error } = useRequest((signal) => countReach({ condition: null, ...(groupType === null ? {} : { group_type_index: groupType }) }, signal), []);
  const total = data?.total ?? 0;
  return (
    <Dialog title={`Change ${flag.key} for everybody?`} onClose={onClose}>
      {error && <ErrorBox error={error} />}
      {!data && !error && <Loading text="Counting …" />}
      {data && (
        <p>
          {isOnForAll(before) ? "This flag is on for everybody: " : "This change turns the flag on for everybody: "}
          <strong>{formatNumber(total)} {nameActors(groupType, total)}</strong>.
          {!draft.active && " After the change it is off for all of them."}
          {draft.active && !includesAll(draft.filters) && ` After the change it is on for: ${describeRollout(draft.filters)}.`}
        </p>
      )}
      <Differences rows={listDifferences(before, draft)} />
      <div class="row end">
        <button type="button" onClick={onClose}>Cancel</button>
        <button type="button" class="primary" onClick={onConfirm}>Change it</button>
      </div>
    </Dialog>
  );
}

export interface Conflict {
  base: Flag;
  theirs: Flag;
  message: string;
}

/** Both versions side by side: a row for each part that one of them changed. */
export function ConflictDialog({ conflict, draft, onTakeTheirs, onSaveMine, onClose }: { conflict: Conflict; draft: FlagDraft; onTakeTheirs: () => void; onSaveMine: () => void; onClose: () => void }) {
  const base = startDraft(conflict.base);
  const theirs = new Map(listDifferences(base, startDraft(conflict.theirs)).map((row) => [row.label, row]));
  const mine = new Map(listDifferences(base, draft).map((row) => [row.label, row]));
  const labels = [...new Set([...theirs.keys(), ...mine.keys()])];
  const show = (text: string | null | undefined) => text ?? "none";
  return (
    <Dialog title="Two versions of this flag" onClose={onClose} isWide>
      <p role="alert">{conflict.message}</p>
      <div class="scroll" tabIndex={0} role="region" aria-label="Both versions">
        <table class="versions">
          <thead><tr><th scope="col">Part</th><th scope="col">When you opened it</th><th scope="col">Stored now</th><th scope="col">Yours</th></tr></thead>
          <tbody>
            {labels.map((label) => {
              const [stored, edited] = [theirs.get(label), mine.get(label)];
              const before = (stored ?? edited)!.before;
              return (
                <tr key={label}>
                  <th scope="row">{label}</th><td>{show(before)}</td>
                  <td class={stored ? "changed" : ""}>{show(stored ? stored.after : before)}</td>
                  <td class={edited ? "changed" : ""}>{show(edited ? edited.after : before)}</td>
                </tr>
              );
            })}
          </tbody>
        </table>
      </div>
      <div class="row end">
        <button type="button" onClick={onClose}>Continue editing</button>
        <button type="button" onClick={onTakeTheirs}>Take the stored version</button>
        <button type="button" class="primary" onClick={onSaveMine}>Save mine over it</button>
      </div>
    </Dialog>
  );
}
