// The editor of one flag, with reach, evaluation, status, history, usage and roles.
import { useState } from "preact/hooks";
import { ApiError } from "../api/client";
import type { Flag } from "../api/types";
import { Choice, ErrorBox, Field, Loading, Select, ViewHeader } from "../components/basics";
import { showError, showNotice } from "../components/notices";
import { Conditions } from "../flags/conditions";
import { type Conflict, ConfirmDialog, ConflictDialog, needsConfirmation } from "../flags/dialogs";
import { type FlagDraft, NEW_DRAFT, createFlag, fetchFlag, findProblem, listChanges, restoreFlag, saveFlag, setDeleted, startDraft } from "../flags/draft";
import { EvaluatePerson } from "../flags/evaluate";
import { FlagHistory } from "../flags/history";
import { FlagImpactSection } from "../flags/impact";
import { WholeReach } from "../flags/reach";
import { FlagRoles } from "../flags/roles";
import { FlagStatusCard, FlagUsage } from "../flags/usage";
import { Variants } from "../flags/variants";
import { buildLink, navigate, replaceQuery, route } from "../router";
import { explainMissingScope } from "../session";
import { useRequest } from "../use_request";
import { useUnsaved } from "../use_unsaved";

const RUNTIMES: ["all" | "client" | "server", string][] = [["all", "clients and servers"], ["client", "clients"], ["server", "servers"]];
type Section = "history" | "usage" | "impact" | "roles";
const SECTIONS: [Section, string][] = [["history", "History"], ["usage", "Usage"], ["impact", "Impact"], ["roles", "Roles"]];

function Basics({ draft, onChange, isNew }: { draft: FlagDraft; onChange: (changes: Partial<FlagDraft>) => void; isNew: boolean }) {
  return (
    <section class="fields" aria-label="Key and state">
      <Field label="Key" value={draft.key} required autoFocus={isNew} name="flag-key" onInput={(key) => onChange({ key: key.trim() })} hint={isNew ? "The name in code. It decides who is in a rollout." : undefined} />
      <Field label="Description" value={draft.name} onInput={(name) => onChange({ name })} />
      <Field label="Tags, separated by commas" value={draft.tags.join(", ")} onInput={(text) => onChange({ tags: text.split(",").map((tag) => tag.trim()).filter((tag, index, all) => tag !== "" || index === all.length - 1 && index > 0) })} />
      <Select label="Evaluated for" value={draft.evaluation_runtime ?? "all"} values={RUNTIMES} onChange={(runtime) => onChange({ evaluation_runtime: runtime })} />
      <label class="check"><input type="checkbox" checked={draft.active} onChange={(event) => onChange({ active: event.currentTarget.checked })} /> The flag is on</label>
      <label class="check">
        <input type="checkbox" checked={draft.ensure_experience_continuity ?? false} onChange={(event) => onChange({ ensure_experience_continuity: event.currentTarget.checked })} />
        Keep the value of a person across a login
      </label>
    </section>
  );
}

function NewFlag() {
  const [draft, setDraft] = useState<FlagDraft>(NEW_DRAFT);
  const [error, setError] = useState<Error | null>(null);
  useUnsaved(listChanges(NEW_DRAFT, draft).length > 0, "the new flag");
  const submit = async (event: Event) => {
    event.preventDefault();
    const problem = findProblem(draft);
    if (problem) return setError(new Error(problem));
    try {
      const created = await createFlag(draft);
      showNotice(`The flag ${created.key} was created.`);
      navigate(buildLink("flags", created.id));
    } catch (failure) {
      setError(failure as Error);
    }
  };
  return (
    <form class="flag-editor" onSubmit={submit}>
      <ViewHeader title="New flag"><button type="submit" class="primary">Create flag</button></ViewHeader>
      {error && <ErrorBox error={error} />}
      <Basics draft={draft} isNew onChange={(changes) => setDraft({ ...draft, ...changes })} />
      <Conditions filters={draft.filters} onChange={(filters) => setDraft({ ...draft, filters })} />
      <Variants filters={draft.filters} onChange={(filters) => setDraft({ ...draft, filters })} />
    </form>
  );
}

function useSaving(flag: Flag) {
  const [draft, setDraft] = useState(() => startDraft(flag));
  const [base, setBase] = useState(flag);
  const [conflict, setConflict] = useState<Conflict | null>(null);
  const [isConfirming, setConfirming] = useState(false);
  const [error, setError] = useState<Error | null>(null);
  const store = async (against: Flag) => {
    setConfirming(false);
    setConflict(null);
    try {
      const saved = await saveFlag(against, draft);
      setBase(saved);
      setDraft(startDraft(saved));
      setError(null);
      showNotice(`${saved.key} was saved as version ${saved.version}.`, async () => {
        const restored = await restoreFlag(against, saved);
        setBase(restored);
        setDraft(startDraft(restored));
      });
    } catch (failure) {
      if (!(failure instanceof ApiError && failure.status === 409)) return setError(failure as Error);
      setConflict({ base: against, theirs: await fetchFlag(flag.id), message: failure.message });
    }
  };
  const save = () => {
    const problem = findProblem(draft);
    if (problem) return setError(new Error(problem));
    setError(null);
    if (needsConfirmation(startDraft(base), draft)) setConfirming(true);
    else void store(base);
  };
  const reset = (stored: Flag) => {
    setBase(stored);
    setDraft(startDraft(stored));
    setConflict(null);
    setError(null);
  };
  return { draft, setDraft, base, conflict, setConflict, isConfirming, setConfirming, error, save, store, reset };
}

function Sections({ flag, onChange }: { flag: Flag; onChange: () => void }) {
  const section = (route.value.query.get("section") as Section | null) ?? "history";
  return (
    <div class="sections">
      <Choice label="Sections" value={section} values={SECTIONS} onChange={(chosen) => replaceQuery({ section: chosen })} />
      {section === "history" && <FlagHistory flag={flag} onChange={onChange} />}
      {section === "usage" && <FlagUsage flag={flag} />}
      {section === "impact" && <FlagImpactSection flag={flag} />}
      {section === "roles" && <FlagRoles flag={flag} />}
    </div>
  );
}

function FlagEditor({ flag }: { flag: Flag }) {
  const [isRemoving, setRemoving] = useState(false);
  const { draft, setDraft, base, conflict, setConflict, isConfirming, setConfirming, error, save, store, reset } = useSaving(flag);
  const change = (changes: Partial<FlagDraft>) => setDraft({ ...draft, ...changes });
  const hasChanges = listChanges(startDraft(base), draft).length > 0;
  useUnsaved(hasChanges, base.key);
  const refresh = () => fetchFlag(flag.id).then(reset, showError);
  const missing = explainMissingScope("feature_flag:write") ?? (base.can_edit ? null : "You may not edit this flag: none of your roles has access to it.");
  const off = { ...startDraft(base), active: base.deleted };
  const remove = async () => {
    setRemoving(false);
    try {
      await setDeleted(base, !base.deleted);
      showNotice(base.deleted ? `${base.key} was restored.` : `${base.key} was deleted.`, async () => { await setDeleted(base, base.deleted); });
      navigate(buildLink("flags"));
    } catch (failure) {
      showError(failure);
    }
  };
  return (
    <>
      <form class="flag-editor" onSubmit={(event) => { event.preventDefault(); save(); }}>
        <ViewHeader title={base.key} detail={base.deleted ? <span class="state off">deleted</span> : undefined}>
          {missing ? <span class="note">{missing}</span> : (
            <>
              <button type="button" disabled={!hasChanges} onClick={() => reset(base)}>Discard changes</button>
              <button type="submit" class="primary" disabled={!hasChanges}>Save</button>
            </>
          )}
        </ViewHeader>
        {error && <ErrorBox error={error} />}
        <div class="columns">
          <fieldset class="plain" disabled={missing !== null}>
            <Basics draft={draft} isNew={false} onChange={change} />
            <Conditions filters={draft.filters} onChange={(filters) => change({ filters })} />
            <Variants filters={draft.filters} onChange={(filters) => change({ filters })} />
            <div class="row"><button type="button" class="danger" onClick={() => (needsConfirmation(startDraft(base), off) ? setRemoving(true) : void remove())}>{base.deleted ? "Restore flag" : "Delete flag"}</button></div>
          </fieldset>
          <aside aria-label="Effect of the flag">
            <section class="card" aria-label="Reach"><h2>Reach</h2><WholeReach filters={draft.filters} isActive={draft.active} /></section>
            <FlagStatusCard flag={base} onChange={refresh} />
          </aside>
        </div>
      </form>
      <EvaluatePerson flag={base} hasChanges={hasChanges} />
      <Sections flag={base} onChange={refresh} />
      {isConfirming && <ConfirmDialog flag={base} draft={draft} onConfirm={() => store(base)} onClose={() => setConfirming(false)} />}
      {isRemoving && <ConfirmDialog flag={base} draft={off} onConfirm={() => void remove()} onClose={() => setRemoving(false)} />}
      {conflict && (
        <ConflictDialog
          conflict={conflict} draft={draft} onClose={() => setConflict(null)} onTakeTheirs={() => reset(conflict.theirs)}
          onSaveMine={() => store(conflict.theirs)}
        />
      )}
    </>
  );
}

function StoredFlag({ id }: { id: string }) {
  const { data, error, reload } = useRequest((signal) => fetchFlag(id, signal), [id]);
  if (error) return <><ViewHeader title="Flag" /><ErrorBox error={error} retry={reload} /></>;
  if (!data) return <><ViewHeader title="Flag" /><Loading /></>;
  return <FlagEditor flag={data} />;
}

export function FlagView({ id }: { id: string }) {
  return id === "new" ? <NewFlag /> : <StoredFlag key={id} id={id} />;
}
