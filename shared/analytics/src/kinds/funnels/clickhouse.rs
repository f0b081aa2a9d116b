//! Funnels in SQL: the algorithm of [`super::calculation::scan`] as a fold over each actor's events.
//!
//! Must stay true: an actor's events are turned into *moves* `(time, step, event, marks)` in the order in which the local
//! algorithm processes them. A positive step is an event that matches the step, a negative one an exclusion in the gap
//! after that many steps, and 0 the end of an event in strict order, which drops all paths that the event does not
//! continue. The fold state has a path for each depth (time and event of each completed step), whether the path met an
//! exclusion, and the best path.

use pennon_filters::error::CalcResult;

use super::limits;
use crate::clickhouse::{StatementWriter, quote, unsupported};
use crate::kinds::funnels::{Attribution, FunnelVizType, FunnelsQuery, StepOrder};
use crate::query::{Breakdown, BreakdownBy};

/// The type of a path.
const PATH: &str = "Array(Tuple(Int64, UInt32))";
/// Maximum steps: their marks and gaps must fit into 64 bits.
const STEPS_MAX: usize = 32;

/// The select from `events`.
pub(super) fn select(writer: &mut StatementWriter<'_>, query: &FunnelsQuery) -> CalcResult<String> {
    check_supported(query)?;
    writer.compiler.add_actor_kind(writer.project.actor_kind(query.group_type_index));
    let shared = writer.common_condition(&query.common)?;
    let mut marks = Vec::new();
    for (step, series) in query.series.iter().enumerate() {
        marks.push(mark(&writer.series_condition(series)?, 1 << step));
    }
    for exclusion in &query.exclusions {
        let gaps =
            (exclusion.from_step + 1..=exclusion.to_step).fold(0_u64, |bits, gap| bits | 1 << (32 + gap));
        marks.push(mark(&writer.series_condition(&exclusion.series)?, gaps));
    }
    let strict = query.order == StepOrder::Strict;
    if strict {
        writer.compiler.include_event(None);
    }
    let value = match &query.common.breakdown {
        None => None,
        Some(breakdown) => Some(value(writer, breakdown)?),
    };
    let shown = value.as_ref().map_or(String::new(), |value| format!(", {value} AS value"));
    let matters = if strict { "" } else { " WHERE marks != 0" };
    // Several exclusions may cover the same gap.
    let marked = format!(
        "SELECT * FROM (SELECT actor, t, arrival{shown}, {} AS marks FROM events WHERE {shared}){matters}",
        either(&marks)
    );
    let paths = paths(query, &marked, value.is_some());
    Ok(match &query.common.breakdown {
        None => whole(query, &paths),
        Some(breakdown) => split(query, breakdown, &paths),
    })
}

fn check_supported(query: &FunnelsQuery) -> CalcResult<()> {
    let what = match query {
        FunnelsQuery { order: StepOrder::Unordered, .. } => "a funnel in any order",
        FunnelsQuery { viz: FunnelVizType::Trends, .. } => "a funnel over time",
        FunnelsQuery { viz: FunnelVizType::TimeToConvert, .. } => "conversion times in bins",
        FunnelsQuery { group_type_index: Some(_), .. } => "a funnel of groups",
        _ if query.steps.iter().any(|step| step.optional) => "a step that may be left out",
        _ if query.steps.iter().any(|step| step.first.is_some()) => "a step with a first-time filter",
        _ if matches!(query.attribution, Attribution::Step(_)) => "a breakdown by the event of a step",
        _ if query.series.len() > STEPS_MAX => "so many steps",
        _ => return Ok(()),
    };
    Err(unsupported(what))
}

fn mark(condition: &str, bits: u64) -> String {
    format!("if({condition}, toUInt64({bits}), 0)")
}

fn either(marks: &[String]) -> String {
    let mut marks = marks.iter();
    let first = marks.next().cloned().unwrap_or_else(|| "toUInt64(0)".to_owned());
    marks.fold(first, |all, one| format!("bitOr({all}, {one})"))
}

/// The breakdown values of an event; empty texts if missing.
fn value(writer: &mut StatementWriter<'_>, breakdown: &Breakdown) -> CalcResult<String> {
    let BreakdownBy::Dimensions { dimensions: parts, .. } = &breakdown.by else {
        return Err(unsupported("a breakdown by cohorts"));
    };
    let texts = writer.breakdown_parts(parts)?;
    // In funnels, missing is the empty text before URLs are normalized.
    let text = |(part, text): (&crate::query::BreakdownDimension, String)| {
        let missing = if part.normalize_url && part.source.kind() == "event" { "'/'" } else { "''" };
        format!("assumeNotNull(ifNull({text}, {missing}))")
    };
    let texts: Vec<String> = parts.iter().zip(texts).map(text).collect();
    Ok(format!("[{}]", texts.join(", ")))
}

/// The step times of each actor that entered the funnel, and its breakdown value.
fn paths(query: &FunnelsQuery, marked: &str, split: bool) -> String {
    let (value, by) = match (split, query.attribution) {
        (false, _) => (String::new(), ""),
        (true, Attribution::AllEvents) => (", value".to_owned(), ", value"),
        (true, attribution) => {
            let touch = if attribution == Attribution::LastTouch { "argMaxIf" } else { "argMinIf" };
            (format!(", {touch}(value, (t, arrival), arrayExists(text -> text != '', value)) AS value"), "")
        }
    };
    let split_value = if split { ", touched" } else { "" };
    let value = value.replace(" AS value", "");
    let touched = if split { format!("{value} AS touched") } else { String::new() };
    let empty = if split { padded(query) } else { String::new() };
    format!(
        "SELECT arrayMap(taken -> taken.1, best) AS times{empty} FROM (\n  \
         SELECT tupleElement(state, {best}) AS best, tupleElement(state, {tainted}) AS void{split_value} FROM (\n    \
         SELECT {fold} AS state{split_value} FROM (\n      \
         SELECT {moves} AS moves{split_value} FROM (\n        \
         SELECT arraySort(groupArray((t, arrival, marks))) AS history{touched}\n        \
         FROM ({marked})\n        GROUP BY actor{by}\n      )\n    )\n  )\n) WHERE notEmpty(best) AND NOT void",
        best = FoldState::of(query).best(),
        tainted = FoldState::of(query).best() + 1,
        fold = FoldState::of(query).fold(),
        moves = moves(query),
    )
}

/// The breakdown value; if missing, one empty text per part.
fn padded(query: &FunnelsQuery) -> String {
    let parts = match query.common.breakdown.as_ref().map(|breakdown| &breakdown.by) {
        Some(BreakdownBy::Dimensions { dimensions: parts, .. }) => parts.len(),
        _ => 1,
    };
    format!(", arrayResize(touched, {parts}, '') AS value")
}

/// Converts an actor's events to moves, instant by instant.
fn moves(query: &FunnelsQuery) -> String {
    let steps = query.series.len();
    let mut numbers: Vec<String> =
        (1..=steps).map(|step| format!("if(bitTest(event.3, {}), {step}, 99)", step - 1)).collect();
    if !query.exclusions.is_empty() {
        numbers.extend(
            (1..steps).map(|gap| format!("if(bitTest(event.3, {}) AND NOT mixed, -{gap}, 99)", 32 + gap)),
        );
    }
    if query.order == StepOrder::Strict {
        numbers.push("if(mixed, 99, 0)".to_owned());
    }
    let numbers = format!("arrayFilter(step -> step != 99, [{}])", numbers.join(", "));
    // If the events of an instant have different marks, moves are ordered by step. Else they are ordered by event, and within
    // an event: exclusions, steps from last to first, end of the event.
    let order = "if(mixed, (toInt64(move.2), toInt64(move.3)), (toInt64(move.3), \
                 toInt64(multiIf(move.2 < 0, -100 - move.2, move.2 = 0, 100, -move.2 + 99))))";
    let event = format!("arrayMap(step -> (event.1, toInt16(step), toUInt32(at), event.3), {numbers})");
    let instant = format!(
        "arraySort(move -> {order}, arrayFlatten(arrayMap((event, at) -> {event}, instant, arrayEnumerate(instant))))"
    )
    .replace("mixed", "arrayExists(other -> other.3 != instant[1].3, instant)");
    let begins = "arrayMap(at -> at = 1 OR history[at].1 != history[at - 1].1, arrayEnumerate(history))";
    format!(
        "arrayFlatten(arrayMap(instant -> {instant}, arraySplit((event, begins) -> begins, history, {begins})))"
    )
}

/// Layout of the fold state: a path for each depth but the last; with exclusions, whether each path met one; the best path;
/// with exclusions, whether the best path met one.
struct FoldState<'q> {
    query: &'q FunnelsQuery,
    steps: usize,
    window: i64,
    excludes: bool,
}

impl<'q> FoldState<'q> {
    fn of(query: &'q FunnelsQuery) -> Self {
        let excludes = !query.exclusions.is_empty();
        Self { query, steps: query.series.len(), window: query.window.micros(), excludes }
    }

    /// The 1-based index of the best path; the next element is whether it is void.
    fn best(&self) -> usize {
        let paths = self.steps - 1;
        1 + if self.excludes { 2 * paths } else { paths }
    }

    fn tainted(&self, depth: usize) -> String {
        match depth {
            0 => "0".to_owned(),
            _ => format!("q.{}", self.steps - 1 + depth),
        }
    }

    /// Start time of the path of a depth.
    fn start(depth: usize) -> String {
        if depth == 0 { "m.1".to_owned() } else { format!("q.{depth}[1].1") }
    }

    /// Condition: the path of this depth exists and its conversion window is open.
    fn open(&self, depth: usize) -> Option<String> {
        let open = format!("notEmpty(q.{depth}) AND m.1 - q.{depth}[1].1 <= {}", self.window);
        (depth > 0).then_some(open)
    }

    /// Condition: the path of the previous depth has not been extended to this one already.
    fn fresh(&self, depth: usize) -> Option<String> {
        let fresh = format!("(empty(q.{depth}) OR q.{depth}[1].1 != {})", Self::start(depth - 1));
        (depth < self.steps).then_some(fresh)
    }

    /// Condition: the move extends a path to this depth.
    fn takes(&self, depth: usize) -> String {
        let unused = (depth > 1).then(|| format!("NOT has(q.{}, (m.1, m.3))", depth - 1));
        let all = [Some(format!("m.2 = {depth}")), self.open(depth - 1), unused, self.fresh(depth)];
        all.into_iter().flatten().collect::<Vec<_>>().join(" AND ")
    }

    /// As [`FoldState::takes`], for a path that met no exclusion.
    fn takes_untainted(&self, depth: usize) -> String {
        match self.excludes && depth > 1 {
            true => format!("{} AND NOT {}", self.takes(depth), self.tainted(depth - 1)),
            false => self.takes(depth),
        }
    }

    fn longer(depth: usize) -> String {
        match depth {
            1 => "[(m.1, m.3)]".to_owned(),
            _ => format!("arrayPushBack(q.{}, (m.1, m.3))", depth - 1),
        }
    }

    /// Condition: the move is an exclusion that the path of this depth meets.
    fn meets(&self, depth: usize) -> String {
        let all = [Some(format!("m.2 = -{depth}")), self.open(depth), self.fresh(depth + 1)];
        all.into_iter().flatten().collect::<Vec<_>>().join(" AND ")
    }

    /// The path of a depth after the move.
    fn path_after(&self, depth: usize) -> String {
        let gone = match self.query.order {
            StepOrder::Strict => format!("m.2 = 0 AND NOT bitTest(m.4, {}), CAST([], '{PATH}'), ", depth - 1),
            _ => String::new(),
        };
        format!("multiIf({}, {}, {gone}q.{depth})", self.takes_untainted(depth), Self::longer(depth))
    }

    fn tainted_after(&self, depth: usize) -> String {
        let (taken, met, before) = (self.takes_untainted(depth), self.meets(depth), self.tainted(depth));
        format!("toUInt8(multiIf({taken}, 0, {met}, 1, {before}))")
    }

    /// Condition: the new path of this depth is better than the best one.
    fn is_better(&self, depth: usize) -> String {
        let (best, takes) = (self.best(), self.takes(depth));
        let longer = format!("length(q.{best}) < {depth}");
        match self.excludes {
            false => format!("{takes} AND {longer}"),
            true => format!("{takes} AND ({longer} OR (length(q.{best}) = {depth} AND q.{}))", best + 1),
        }
    }

    fn best_after(&self) -> String {
        let each =
            (1..=self.steps).map(|depth| format!("{}, {}, ", self.is_better(depth), Self::longer(depth)));
        format!("multiIf({}q.{})", each.collect::<String>(), self.best())
    }

    fn void_after(&self) -> String {
        let best = self.best();
        let better =
            (1..=self.steps).map(|depth| format!("{}, {}, ", self.is_better(depth), self.tainted(depth - 1)));
        let hit = (1..self.steps).map(|depth| {
            format!(
                "{} AND NOT {} AND length(q.{best}) = {depth} AND m.1 - q.{best}[1].1 <= {}, 1, ",
                self.meets(depth),
                self.tainted(depth),
                self.window
            )
        });
        format!("toUInt8(multiIf({}q.{}))", better.chain(hit).collect::<String>(), best + 1)
    }

    /// The fold over the moves.
    fn fold(&self) -> String {
        let depths = 1..self.steps;
        let nothing = format!("CAST([], '{PATH}')");
        let mut after: Vec<String> = depths.clone().map(|depth| self.path_after(depth)).collect();
        let mut begin = vec![nothing.clone(); self.steps - 1];
        if self.excludes {
            after.extend(depths.map(|depth| self.tainted_after(depth)));
            begin.extend(vec!["toUInt8(0)".to_owned(); self.steps - 1]);
        }
        after.push(self.best_after());
        begin.push(nothing);
        // A tuple needs at least two elements.
        after.push(if self.excludes { self.void_after() } else { format!("q.{}", self.best() + 1) });
        begin.push("toUInt8(0)".to_owned());
        format!("arrayFold((q, m) -> ({}),\n      moves, ({}))", after.join(",\n        "), begin.join(", "))
    }
}

/// The count of actors per step, and the non-zero durations to each step.
fn counts_and_durations(steps: usize) -> String {
    let counts: Vec<String> = (1..=steps).map(|step| format!("countIf(length(times) >= {step})")).collect();
    let hops = (2..=steps).map(|step| {
        let hop = format!("times[{step}] - times[{}]", step - 1);
        format!("groupArrayIf({hop}, length(times) >= {step} AND {hop} > 0)")
    });
    let hops: Vec<String> = std::iter::once("CAST([], 'Array(Int64)')".to_owned()).chain(hops).collect();
    format!("[{}] AS counts, [{}] AS hops", counts.join(", "), hops.join(", "))
}

/// The result columns from `counts` and `hops`, one row per step.
fn rows(query: &FunnelsQuery) -> (String, String) {
    let names = query.series.iter().map(|series| match &series.event_or_action {
        crate::query::EventOrAction::Event(name) => {
            name.as_deref().or(series.name.as_deref()).unwrap_or("All events").to_owned()
        }
        crate::query::EventOrAction::Action(id) => {
            series.name.clone().unwrap_or_else(|| format!("action {id}"))
        }
    });
    let names: Vec<String> = names.collect();
    let columns = "place - 1 AS step, step_name AS name, counts[place] AS count,\n  \
                   if(empty(hops[place]), NULL, toFloat64(arraySum(hop -> toInt128(hop), hops[place])) / length(hops[place]) / 1e6) \
                   AS average_conversion_time,\n  \
                   if(empty(hops[place]), NULL, arrayReduce('quantileExactInclusive(0.5)', hops[place]) / 1e6) \
                   AS median_conversion_time";
    let steps: Vec<String> = (1..=query.series.len()).map(|step| step.to_string()).collect();
    let join = format!(
        "ARRAY JOIN [{}] AS place, [{}] AS step_name",
        steps.join(", "),
        quote::texts(names.iter().map(String::as_str))
    );
    (columns.to_owned(), join)
}

fn whole(query: &FunnelsQuery, paths: &str) -> String {
    let (columns, join) = rows(query);
    format!(
        "SELECT {columns}\nFROM (SELECT {} FROM (\n{paths}\n))\n{join}\nORDER BY step",
        counts_and_durations(query.series.len())
    )
}

/// The breakdown values with the most actors at the last step, then at the one before; all others as one row.
fn split(query: &FunnelsQuery, breakdown: &Breakdown, paths: &str) -> String {
    let (columns, join) = rows(query);
    let limit = breakdown.limit.unwrap_or(limits::BREAKDOWN_LIMIT);
    let order: Vec<String> =
        (1..=query.series.len()).rev().map(|step| format!("counts[{step}] DESC")).collect();
    let order = order.join(", ");
    let hops = (1..=query.series.len()).map(|step| format!("arrayFlatten(groupArray(hops[{step}]))"));
    let hops = hops.collect::<Vec<_>>().join(", ");
    format!(
        "SELECT row AS breakdown_value, value_count, {columns}\nFROM (\n  \
         SELECT if(rank <= {limit}, value, ['Other']) AS row, sumForEach(counts) AS counts,\n    \
         [{hops}] AS hops, any(value_count) AS value_count\n  \
         FROM (SELECT *, row_number() OVER (ORDER BY {order}, value) AS rank, count() OVER () AS value_count FROM (\n    \
         SELECT value, {} FROM (\n{paths}\n    ) GROUP BY value\n  ))\n  GROUP BY row\n)\n{join}\n\
         ORDER BY {order}, breakdown_value, step",
        counts_and_durations(query.series.len())
    )
}
