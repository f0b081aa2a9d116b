// Does the flag help? A metric compared between the persons that saw each variant.
import { useState } from "preact/hooks";
import { suggestEvents } from "../api/names";
import type { Flag, FlagImpact } from "../api/types";
import { intervalChart } from "../charts/intervals";
import { type Picture, type PeopleRequest, formatNumber } from "../charts/picture";
import { seriesColor } from "../charts/svg";
import { Choice, ErrorBox, Loading, Select } from "../components/basics";
import { ValueList } from "../components/combobox";
import { showPeople } from "../components/people";
import { PictureBox } from "../components/picture";
import { calculateAt } from "../insight/calculate";
import { projectPath } from "../session";
import { useRequest } from "../use_request";

type Metric = "did" | "often" | "funnel";
const METRICS: [Metric, string][] = [["did", "share of persons with an event"], ["often", "events a person"], ["funnel", "share that completes a funnel"]];
const RANGES: [string, string][] = [["-7d", "last 7 days"], ["-30d", "last 30 days"], ["-90d", "last 90 days"], ["-180d", "last 180 days"]];
const VERDICTS: Record<string, string> = {
  higher: "higher", lower: "lower", no_difference_shown: "no difference shown", too_few_exposed: "too few persons", sample_ratio_mismatch: "wrong split",
};

interface ImpactRequest {
  metric: Metric;
  events: string[];
  from: string;
}

function buildMetric({ metric, events, from }: ImpactRequest): object {
  const series = events.map((event) => ({ kind: "EventsNode", event, name: event, ...(metric === "did" ? { math: "dau" } : {}) }));
  const range = { dateRange: { date_from: from } };
  return metric === "funnel" ? { kind: "FunnelsQuery", series, ...range } : { kind: "TrendsQuery", series: series.slice(0, 1), ...range };
}

const percent = (value: number) => `${(100 * value).toFixed(1)} %`;
const within = (interval: number[] | null, format: (value: number) => string) => (interval ? ` (${format(interval[0])} to ${format(interval[1])})` : "");

function linkTo(title: string, link: string | null): PeopleRequest | undefined {
  return link ? { title, link } : undefined;
}

function impactPicture(impact: FlagImpact): Picture {
  const isRate = impact.measure === "rate";
  const format = isRate ? percent : formatNumber;
  const valueOf = (variant: FlagImpact["variants"][number]) => (isRate ? variant.rate : variant.mean) ?? null;
  const shown = impact.variants.flatMap((variant, order) => {
    const value = valueOf(variant);
    return value === null ? [] : [{ name: variant.variant, value, interval: variant.interval as [number, number] | null, color: seriesColor(order) }];
  });
  const summary = shown.map(({ name, value, interval }) => `${name}: ${format(value)}${within(interval, format)}`).join("; ");
  return {
    summary,
    draw: shown.length > 0 ? ({ width }) => intervalChart(shown, { width, label: summary, format }) : null,
    legend: [],
    table: {
      columns: ["Variant", "Exposed", "Converted", isRate ? "Rate" : "Mean", "Difference", "Chance to win", "Verdict"],
      rows: impact.variants.map((variant) => {
        const { comparison } = variant;
        const value = valueOf(variant);
        return [
          { text: variant.is_control ? `${variant.variant} (compared with)` : variant.variant },
          { text: formatNumber(variant.exposed), people: linkTo(`Saw ${variant.variant}`, variant.exposed_persons_url) },
          { text: formatNumber(variant.converted), people: linkTo(`Saw ${variant.variant} and converted`, variant.converted_persons_url) },
          { text: value === null ? "–" : format(value) + within(variant.interval ?? null, format) },
          { text: comparison ? format(comparison.difference) + within(comparison.difference_interval ?? null, format) : "–" },
          { text: comparison?.chance_to_win === null || !comparison ? "–" : percent(comparison.chance_to_win) },
          { text: variant.verdict ? (VERDICTS[variant.verdict] ?? variant.verdict) : "–" },
        ];
      }),
    },
  };
}

function Impact({ impact, flag }: { impact: FlagImpact; flag: Flag }) {
  const { several_variants: several, sample_ratio: ratio } = impact;
  if (impact.exposed === 0) {
    return <p class="note">No person was exposed in this range: there is no event $feature_flag_called of {flag.key}. SDKs send it when they evaluate a flag.</p>;
  }
  const people = linkTo("Saw several variants", several.persons_url);
  return (
    <div role="status">
      {impact.variants.map(({ variant, sentence }) => sentence && <p key={variant}>{sentence}</p>)}
      {ratio.is_checked && ratio.is_mismatch && <p class="box error">The persons are not split as the flag says (p = {ratio.p_value.toExponential(1)}): some are missing from a variant, so no comparison can be trusted.</p>}
      {several.exposed > 0 && (
        <p>
          {people ? <button type="button" class="link" onClick={() => showPeople(people)}>{formatNumber(several.exposed)}</button> : formatNumber(several.exposed)} saw
          several variants and are left out.
        </p>
      )}
      <PictureBox picture={impactPicture(impact)} caption={`Impact of ${flag.key}`} isTableOpen />
      <p class="note">Intervals hold {percent(impact.confidence_level)} of the probability. How each number is calculated: docs/impact.md of Pennon.</p>
    </div>
  );
}

function Calculated({ flag, requested }: { flag: Flag; requested: ImpactRequest }) {
  const path = `${projectPath.value}/feature_flags/${flag.id}/impact/`;
  const { data, error, isLoading, reload } = useRequest((signal) => calculateAt(path, { query: buildMetric(requested) }, signal), [flag.id, flag.version, requested]);
  if (error) return <ErrorBox error={error} retry={reload} />;
  if (!data || isLoading) return <Loading text="Comparing …" />;
  return <Impact impact={data.results as FlagImpact} flag={flag} />;
}

export function FlagImpactSection({ flag }: { flag: Flag }) {
  const [metric, setMetric] = useState<Metric>("did");
  const [events, setEvents] = useState<string[]>([]);
  const [from, setFrom] = useState("-30d");
  const [requested, setRequested] = useState<ImpactRequest | null>(null);
  const [problem, setProblem] = useState<Error | null>(null);
  const submit = (event: Event) => {
    event.preventDefault();
    const needed = metric === "funnel" ? 2 : 1;
    if (events.length < needed) return setProblem(new Error(metric === "funnel" ? "Enter the events of at least two steps." : "Enter the event that counts."));
    setProblem(null);
    setRequested({ metric, events, from });
  };
  return (
    <section aria-label="Impact">
      <h2>Does it help?</h2>
      <form class="impact-form" onSubmit={submit}>
        <Choice label="Metric" value={metric} values={METRICS} onChange={setMetric} />
        <ValueList label={metric === "funnel" ? "Steps" : "Event"} values={metric === "funnel" ? events : events.slice(0, 1)} onChange={(values) => setEvents(metric === "funnel" ? values : values.slice(-1))} suggest={suggestEvents} />
        <Select label="Range" value={from} values={RANGES} onChange={setFrom} />
        <div class="row"><button type="submit">Compare variants</button></div>
      </form>
      {problem && <ErrorBox error={problem} />}
      {requested && <Calculated flag={flag} requested={requested} />}
    </section>
  );
}
