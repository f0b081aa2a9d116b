//! Paths by definition: lists of texts, cut step by step as the rules are worded.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, NaiveDate, NaiveTime, TimeZone, Utc};
use chrono_tz::Tz;
use pennon_analytics::{InsightKind, ParsedQuery, Query};
use pennon_filters::CalcError;
use serde_json::{Value, json};

use super::history::{Event, History, SECOND, utc};
use super::path_spec::{Funnel, MINUTE, PathsSpec};
use crate::paths::people;
use crate::support::differences;

/// A step: its name and its time.
type Step = (String, i64);
/// A person and the steps of one of its sessions.
type Session = (String, Vec<Step>);

fn text(value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(Value::Number(number)) if number.as_f64().unwrap().fract() == 0.0 => {
            format!("{}", number.as_f64().unwrap())
        }
        Some(other) => other.to_string(),
    }
}

fn without_slash(text: &str) -> String {
    if text.len() > 1 && text.ends_with('/') { text[..text.len() - 1].to_owned() } else { text.to_owned() }
}

/// Whether events of a type are named by the property of their type.
fn is_named(spec: &PathsSpec, name: &'static str) -> bool {
    match spec.types.as_slice() {
        [] => !spec.excluded.contains(&name),
        types => types.contains(&name),
    }
}

/// The item of an event; none if it is not in the paths.
fn item(spec: &PathsSpec, event: &Event) -> Option<String> {
    let of_types =
        ["$pageview", "$screen", "custom_event"].into_iter().filter(|name| spec.types.contains(name));
    let of_types: Vec<&str> = of_types.collect();
    let is_read = of_types.iter().any(|name| match *name {
        "custom_event" => !event.name.starts_with('$'),
        name => event.name == name,
    });
    if !of_types.is_empty() && !is_read {
        return None;
    }
    let mut item = if event.name == "$pageview" && is_named(spec, "$pageview") {
        without_slash(&text(event.properties.get("$current_url")))
    } else if event.name == "$screen" && is_named(spec, "$screen") {
        text(event.properties.get("$screen_name"))
    } else if spec.expression && is_named(spec, "hogql") {
        text(event.properties.get("v"))
    } else {
        event.name.clone()
    };
    for (from, to) in &spec.cleaning {
        item = item.replace(from, to);
    }
    // Every end of every start is tried.
    let matches_until = |grouping: &str, end: usize| {
        (0..=end).any(|start| {
            item.is_char_boundary(start) && item.is_char_boundary(end) && is_like(grouping, &item[start..end])
        })
    };
    let groupings: Vec<&&str> = spec.groupings.iter().filter(|grouping| !grouping.is_empty()).collect();
    let first =
        (0..=item.len()).find_map(|end| groupings.iter().find(|grouping| matches_until(grouping, end)));
    let item = first.map_or(item.clone(), |grouping| (**grouping).to_owned());
    (!spec.excluded.contains(&item.as_str())).then_some(item)
}

/// Whether a pattern with `*` is for a whole text.
fn is_like(pattern: &str, text: &str) -> bool {
    match pattern.chars().next() {
        None => text.is_empty(),
        Some('*') => {
            (0..=text.len()).any(|at| text.is_char_boundary(at) && is_like(&pattern[1..], &text[at..]))
        }
        Some(letter) => {
            text.strip_prefix(letter).is_some_and(|rest| is_like(&pattern[letter.len_utf8()..], rest))
        }
    }
}

fn day_start(zone: Tz, day: NaiveDate) -> i64 {
    zone.from_local_datetime(&day.and_time(NaiveTime::MIN)).unwrap().timestamp_micros()
}

/// The instants of the range: from the start of a day, to the end of a day or of a second.
fn range(spec: &PathsSpec, history: &History) -> (i64, i64) {
    let day_of = |time: i64| utc(time).with_timezone(&history.zone).date_naive();
    let parsed = |text: &str| text.parse::<DateTime<Utc>>().unwrap().timestamp_micros();
    let from = match spec.from {
        "all" => day_of(history.events.iter().map(|event| event.time).min().unwrap_or(history.now)),
        text if text.len() == 10 => text.parse().unwrap(),
        text => day_of(parsed(text)),
    };
    let to = match spec.to {
        (text, true) => parsed(text) / SECOND * SECOND + SECOND,
        (text, false) => day_start(history.zone, text.parse::<NaiveDate>().unwrap().succ_opt().unwrap()),
    };
    (day_start(history.zone, from), to - 1)
}

/// The actor of an event in the funnel.
fn funnel_actor(history: &History, funnel: &Funnel, event: &Event) -> Option<String> {
    match funnel.group {
        None => Some(history.actor(&event.id)),
        Some(index) => {
            Some(text(event.properties.get(&format!("$group_{index}")))).filter(|key| !key.is_empty())
        }
    }
}

/// The times of the steps that an actor took: the first completion, else its first entry. No ties.
fn funnel_times(history: &History, funnel: &Funnel, actor: &str) -> Vec<i64> {
    let range = (
        day_start(history.zone, "2024-01-01".parse().unwrap()),
        day_start(history.zone, "2024-01-05".parse().unwrap()) - 1,
    );
    let mut events: Vec<&Event> = history.events.iter().collect();
    events.sort_by_key(|event| event.time);
    let (mut entries, mut first) = (Vec::new(), None);
    for event in events {
        let is_inside = range.0 <= event.time && event.time <= range.1;
        if !is_inside || funnel_actor(history, funnel, event).as_deref() != Some(actor) {
            continue;
        }
        match (event.name.as_str(), entries.last()) {
            ("in", _) => {
                entries.push(event.time);
                first.get_or_insert(event.time);
            }
            ("out", Some(entry)) if event.time - entry <= funnel.window_minutes * MINUTE => {
                return vec![*entry, event.time];
            }
            _ => {}
        }
    }
    first.into_iter().collect()
}

/// Whether an event passes the funnel and is part of the paths.
fn passes_funnel(history: &History, funnel: &Funnel, event: &Event) -> bool {
    let Some(actor) = funnel_actor(history, funnel, event) else { return false };
    let times = funnel_times(history, funnel, &actor);
    let is_selected = match funnel.step {
        -2 => times.len() == 1,
        step => times.len() >= usize::try_from(step).unwrap(),
    };
    if !is_selected {
        return false;
    }
    let at = times[if funnel.step == 2 { 1 } else { 0 }];
    match funnel.path_type {
        "funnel_path_after_step" => event.time >= at,
        "funnel_path_before_step" if funnel.step < 0 => event.time <= at + funnel.window_minutes * MINUTE,
        "funnel_path_before_step" => event.time <= at,
        _ => times[0] <= event.time && event.time <= times[1],
    }
}

/// The sessions of every person, cut to the steps that count.
fn sessions(spec: &PathsSpec, history: &History) -> Vec<Session> {
    let (from, to) = range(spec, history);
    let mut of_persons: BTreeMap<String, Vec<Step>> = BTreeMap::new();
    for event in &history.events {
        let passes = spec.filter.is_none_or(|value| text(event.properties.get("v")) == value);
        let enters = spec.funnel.as_ref().is_none_or(|funnel| passes_funnel(history, funnel, event));
        let is_read = passes && enters && from <= event.time && event.time <= to;
        if is_read && let Some(item) = item(spec, event) {
            of_persons.entry(history.person(&event.id)).or_default().push((item, event.time));
        }
    }
    let gap = spec.funnel.as_ref().map_or(30, |funnel| funnel.window_minutes) * MINUTE;
    let mut sessions = Vec::new();
    for (person, mut events) in of_persons {
        // Events of one time stay as they came.
        events.sort_by_key(|(_, time)| *time);
        let splits = events.chunk_by(|left, right| right.1 - left.1 < gap);
        sessions.extend(splits.map(|events| (person.clone(), cut(spec, events.to_vec()))));
    }
    sessions
}

fn cut(spec: &PathsSpec, events: Vec<Step>) -> Vec<Step> {
    let runs = events.chunk_by(|left, right| left.0 == right.0);
    let mut steps: Vec<Step> = runs.map(|run| run.last().unwrap().clone()).collect();
    if steps.last().is_some_and(|(item, _)| item.is_empty()) {
        steps.pop();
    }
    let place =
        |steps: &[Step], point: &str| steps.iter().position(|(item, _)| *item == without_slash(point));
    if let Some(start) = spec.start {
        steps = place(&steps, start).map_or(Vec::new(), |at| steps[at..].to_vec());
    }
    if let Some(end) = spec.end {
        steps = place(&steps, end).map_or(Vec::new(), |at| steps[..=at].to_vec());
    }
    let limit = spec.steps.unwrap_or(5);
    if steps.len() <= limit {
        return steps;
    }
    match (spec.start, spec.end) {
        (_, None) => steps[..limit].to_vec(),
        (None, Some(_)) => steps[steps.len() - limit..].to_vec(),
        (Some(_), Some(_)) => {
            let half = limit / 2;
            let mut kept = steps[..half].to_vec();
            kept.push(("...".to_owned(), steps[half].1));
            kept.extend_from_slice(&steps[steps.len() - half..]);
            kept
        }
    }
}

fn key(number: usize, item: &str) -> String {
    format!("{number}_{item}")
}

/// The edges, and how often and how long each is.
fn edges(spec: &PathsSpec, sessions: &[Session]) -> Value {
    let mut passages: BTreeMap<(String, String), Vec<i64>> = BTreeMap::new();
    for (_, steps) in sessions {
        for (index, pair) in steps.windows(2).enumerate() {
            let keys = (key(index + 1, &pair[0].0), key(index + 2, &pair[1].0));
            passages.entry(keys).or_default().push(pair[1].1 - pair[0].1);
        }
    }
    let weight = |times: &Vec<i64>| times.len() as u64;
    passages.retain(|_, times| {
        spec.least.is_none_or(|least| weight(times) >= least)
            && spec.most.is_none_or(|most| weight(times) <= most)
    });
    // The map is in the order of the keys' bytes, and the sort is stable.
    let mut rows: Vec<_> = passages.into_iter().collect();
    rows.sort_by_key(|(_, times)| std::cmp::Reverse(times.len()));
    rows.truncate(spec.edges.unwrap_or(50));
    let mut reached: BTreeSet<String> = rows
        .iter()
        .map(|((source, _), _)| source.clone())
        .filter(|source| source.starts_with("1_"))
        .collect();
    for _ in 0..rows.len() {
        let further = rows
            .iter()
            .filter(|((source, _), _)| reached.contains(source))
            .map(|((_, target), _)| target.clone());
        let further: Vec<String> = further.collect();
        reached.extend(further);
    }
    rows.retain(|((source, _), _)| reached.contains(source));
    let edge = |((source, target), times): &((String, String), Vec<i64>)| {
        let mean = times.iter().sum::<i64>() as f64 / times.len() as f64 / 1_000.0;
        json!({"source": source, "target": target, "value": times.len(), "average_conversion_time": mean})
    };
    rows.iter().map(edge).collect()
}

/// The persons behind the first edge, its steps, and the ends of sessions: the request, and who they are.
fn selections(sessions: &[Session]) -> Vec<(Value, BTreeSet<String>)> {
    let persons = |fits: &dyn Fn(&[Step]) -> bool| -> BTreeSet<String> {
        sessions.iter().filter(|(_, steps)| fits(steps)).map(|(person, _)| person.clone()).collect()
    };
    let mut selections = vec![(json!({}), persons(&|steps| !steps.is_empty()))];
    let Some((_, steps)) =
        sessions.iter().max_by_key(|(_, steps)| steps.len()).filter(|(_, steps)| steps.len() > 1)
    else {
        return selections;
    };
    let at = steps.len() / 2;
    let (before, after) = (&steps[at - 1].0, &steps[at].0);
    let has = |steps: &[Step], at: usize, item: &str| steps.get(at).is_some_and(|step| step.0 == item);
    let (first, second) = (key(at, before), key(at + 1, after));
    selections.push((
        json!({"path_start_key": first, "path_end_key": second}),
        persons(&|steps| has(steps, at - 1, before) && has(steps, at, after)),
    ));
    selections.push((json!({"path_end_key": second}), persons(&|steps| has(steps, at, after))));
    let goes_on = |steps: &[Step]| has(steps, at - 1, before) && steps.len() > at;
    selections.push((json!({"path_start_key": first}), persons(&goes_on)));
    let ends = |steps: &[Step]| has(steps, at, after) && steps.len() == at + 1;
    selections.push((json!({"path_dropoff_key": second}), persons(&ends)));
    selections
}

/// The number of edges of the expected result.
pub fn count_edges(history: &History, spec: &PathsSpec) -> usize {
    edges(spec, &sessions(spec, history)).as_array().unwrap().len()
}

/// Differences of the edges of a query, and of the persons behind them.
pub fn check(history: &History, spec: &PathsSpec) -> Result<Vec<String>, CalcError> {
    let body = spec.body();
    let fields = body.as_object().unwrap();
    let parsed = if spec.as_node {
        Query::from_query_node(&body)?
    } else {
        InsightKind::Paths.parse_request(fields)?
    };
    let ParsedQuery::Query(query) = parsed else { panic!("no query") };
    let world = history.world();
    let sessions = sessions(spec, history);
    let mut wrong = Vec::new();
    for parts in [1, 3] {
        differences(&edges(spec, &sessions), &world.calculate(&query, parts)?, "edges", 1e-9, &mut wrong);
    }
    let known = |id: &uuid::Uuid| {
        let ids = world.named.iter().filter(|(_, person)| *person == id);
        history.person(ids.map(|(id, _)| id).next().unwrap())
    };
    for (keys, want) in selections(&sessions) {
        let got: BTreeSet<String> =
            people(&world, &query, keys.as_object().unwrap())?.iter().map(known).collect();
        if got != want {
            wrong.push(format!("people of {keys}: want {want:?} got {got:?}"));
        }
    }
    Ok(wrong)
}
