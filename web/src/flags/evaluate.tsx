// Evaluates the stored flag for one person.
import { useState } from "preact/hooks";
import { request } from "../api/client";
import { suggestPersons } from "../api/names";
import type { Flag, FlagEvaluation } from "../api/types";
import { Combobox } from "../components/combobox";
import { ErrorBox, Field } from "../components/basics";
import { formatValue } from "../format";
import { project, projectPath } from "../session";

export function EvaluatePerson({ flag, hasChanges }: { flag: Flag; hasChanges: boolean }) {
  const [person, setPerson] = useState("");
  const [groups, setGroups] = useState("");
  const [result, setResult] = useState<{ person: string; evaluation: FlagEvaluation } | null>(null);
  const [error, setError] = useState<Error | null>(null);
  const evaluate = async (distinctId: string) => {
    if (distinctId === "") return;
    try {
      const query = { distinct_id: distinctId, flag_keys: flag.key, groups: groups.trim() };
      const found = await request<Record<string, FlagEvaluation>>("GET", `${projectPath.value}/feature_flags/evaluation_reasons/`, { query });
      setResult({ person: distinctId, evaluation: found[flag.key] });
      setError(null);
    } catch (failure) {
      setError(failure as Error);
    }
  };
  const isForGroups = flag.filters.aggregation_group_type_index !== null && flag.filters.aggregation_group_type_index !== undefined;
  const shown = result?.evaluation;
  return (
    <section class="card" aria-label="Evaluate as person">
      <h2>Evaluate as person</h2>
      <form onSubmit={(event) => { event.preventDefault(); void evaluate(person); }}>
        <Combobox label="Distinct id" value={person} onChange={setPerson} onEnter={(id) => void evaluate(id)} suggest={suggestPersons} placeholder="any distinct id" />
        {(isForGroups || (project.value?.group_types.length ?? 0) > 0) && <Field label="Groups (JSON)" value={groups} onInput={setGroups} placeholder='{"company": "acme"}' />}
        <button type="submit">Evaluate</button>
      </form>
      {error && <ErrorBox error={error} />}
      {shown && (
        <div role="status"><dl class="pairs">
          <dt>Value for {result.person}</dt>
          <dd><strong class={shown.value === false ? "state off" : "state on"}>{shown.value === true ? "on" : shown.value === false ? "off" : formatValue(shown.value)}</strong></dd>
          <dt>Reason</dt>
          <dd>{shown.evaluation.description ?? shown.evaluation.reason}{shown.evaluation.condition_index !== null && ` (condition ${shown.evaluation.condition_index + 1})`}</dd>
        </dl></div>
      )}
      {hasChanges && <p class="note">The stored version is evaluated, without your unsaved changes.</p>}
    </section>
  );
}
