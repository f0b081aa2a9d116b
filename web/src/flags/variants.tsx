// The editor of variants and payloads.
import type { FlagFilters, FlagVariant, Json } from "../api/types";
import { divideEqually, sumShares, withVariants } from "./draft";

const showPayload = (payload: Json | undefined) => (payload === undefined ? "" : typeof payload === "string" ? payload : JSON.stringify(payload));

function Payload({ name, filters, onChange }: { name: string; filters: FlagFilters; onChange: (filters: FlagFilters) => void }) {
  const set = (text: string) => {
    const payloads = { ...filters.payloads };
    if (text === "") delete payloads[name];
    else payloads[name] = text;
    onChange({ ...filters, payloads });
  };
  return (
    <label class="field grow">
      <span>Payload of {name || "the variant"} (JSON)</span>
      <textarea rows={1} spellcheck={false} placeholder="none" value={showPayload(filters.payloads?.[name])} onInput={(event) => set(event.currentTarget.value)} />
    </label>
  );
}

export function Variants({ filters, onChange }: { filters: FlagFilters; onChange: (filters: FlagFilters) => void }) {
  const variants = filters.multivariate?.variants ?? [];
  const change = (changed: FlagVariant[]) => onChange(withVariants(filters, changed));
  const changeOne = (order: number, changes: Partial<FlagVariant>) => {
    const renamed = variants.map((one, place) => (place === order ? { ...one, ...changes } : one));
    const before = variants[order].key;
    const payload = filters.payloads?.[before];
    if (changes.key === undefined || payload === undefined) return change(renamed);
    const { [before]: _, ...others } = filters.payloads ?? {};
    onChange(withVariants({ ...filters, payloads: { ...others, [changes.key]: payload } }, renamed));
  };
  const add = () => {
    const names = variants.length === 0 ? ["control", "test"] : [`variant-${variants.length + 1}`];
    change(divideEqually([...variants, ...names.map((key) => ({ key, rollout_percentage: 0 }))]));
  };
  const total = sumShares(variants);
  return (
    <section aria-label="Variants and payloads">
      <h2>Values</h2>
      {variants.length === 0 && (
        <>
          <p class="note">The flag is on or off. With variants it has one of several values.</p>
          <Payload name="true" filters={filters} onChange={onChange} />
        </>
      )}
      {variants.map((variant, order) => (
        <fieldset class="variant" key={order}>
          <legend class="for-readers">Variant {order + 1}</legend>
          <label class="field"><span>Key of variant {order + 1}</span><input type="text" spellcheck={false} value={variant.key} onInput={(event) => changeOne(order, { key: event.currentTarget.value.trim() })} /></label>
          <label class="field narrow"><span>Share, %</span><input type="number" min={0} max={100} step="any" value={variant.rollout_percentage} onInput={(event) => changeOne(order, { rollout_percentage: Number(event.currentTarget.value) || 0 })} /></label>
          <Payload name={variant.key} filters={filters} onChange={onChange} />
          <button type="button" class="small quiet" aria-label={`Remove variant ${variant.key}`} onClick={() => change(variants.filter((_, place) => place !== order))}>×</button>
        </fieldset>
      ))}
      {variants.length > 0 && <p class={total === 100 ? "note" : "problem"} role="status">The shares add up to {total} %.</p>}
      <div class="row">
        <button type="button" onClick={add}>{variants.length === 0 ? "Use variants" : "Add variant"}</button>
        {variants.length > 1 && <button type="button" onClick={() => change(divideEqually(variants))}>Divide equally</button>}
      </div>
    </section>
  );
}
