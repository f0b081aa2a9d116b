//! Changes of a history that must not change a result, or must double it.

use pennon_analytics::{InsightKind, ParsedQuery, PartitionResult};
use pennon_filters::CalcError;
use serde_json::{Value, json};

use super::history::{Event, History, Person};
use crate::support::differences;

/// A query, and which changes of its history keep the result.
pub struct CheckedQuery {
    pub body: Value,
    pub is_funnel: bool,
    /// Events of another name break a run.
    pub is_strict: bool,
    /// Twice the persons double the numbers.
    pub doubles: bool,
}

impl CheckedQuery {
    fn parse(&self, body: &Value) -> Result<ParsedQuery, CalcError> {
        let body = body.as_object().unwrap();
        if self.is_funnel {
            InsightKind::Funnels.parse_request(body)
        } else {
            InsightKind::Trends.parse_request(body)
        }
    }

    fn calculate(&self, history: &History) -> Result<Value, CalcError> {
        history.world().calculate_parsed(self.parse(&self.body))
    }
}

/// Another division of the actors, and parts that are merged in another order.
fn divided(history: &History, checked: &CheckedQuery) -> Result<Vec<(String, Value)>, CalcError> {
    let world = history.world();
    let ParsedQuery::Query(query) = checked.parse(&checked.body)? else { return Ok(Vec::new()) };
    let mut results = Vec::new();
    for parts in [1, 2, 7] {
        results.push((format!("{parts} parts"), world.calculate(&query, parts)?));
    }
    let plan = query.plan(&world.project, world.now)?;
    let partitions = plan.join(world.partitions(plan.scan(), 5), world.facts(&plan), &|| false).unwrap();
    let partials: Result<Vec<PartitionResult>, CalcError> =
        partitions.iter().rev().map(|partition| plan.partial(partition, &|| false)).collect();
    let sum = partials?.into_iter().fold(PartitionResult::default(), |sum, part| part.merge(sum));
    results.push(("parts in reverse".to_owned(), plan.finish(sum, &|| false)?.result));
    Ok(results)
}

/// The same history in other forms.
fn rearrange(history: &History, is_strict: bool) -> Vec<(&'static str, History)> {
    let mut variants = Vec::new();
    // Events of one instant keep their order.
    let mut sorted = history.clone();
    sorted.events.sort_by_key(|event| event.time);
    variants.push(("arrival by time", sorted));
    let mut backwards = history.clone();
    backwards.events.sort_by_key(|event| std::cmp::Reverse(event.time));
    variants.push(("latest first", backwards));
    if !history.by_distinct_id {
        variants.push(("one id a person", merged(history)));
    }
    if !is_strict {
        variants.push(("events of another name", with_strays(history)));
    }
    variants
}

fn merged(history: &History) -> History {
    let mut merged = history.clone();
    let first = |id: &String| {
        let owner = history.persons.iter().find(|person| person.ids.contains(id));
        owner.map_or_else(|| id.clone(), |person| person.ids[0].clone())
    };
    merged.events.iter_mut().for_each(|event| event.id = first(&event.id));
    merged.cohorts.iter_mut().for_each(|cohort| cohort.members.iter_mut().for_each(|id| *id = first(id)));
    merged.persons.iter_mut().for_each(|person| person.ids.truncate(1));
    merged
}

/// Adds an event that no query selects after each event; none before the first, because the range may start there.
fn with_strays(history: &History) -> History {
    let mut strayed = history.clone();
    for event in &history.events {
        let mut stray = event.clone();
        stray.name = "stray".to_owned();
        stray.properties.remove("$session_id");
        strayed.events.push(stray);
    }
    strayed
}

/// Each person twice, the second time with other ids.
fn doubled(history: &History) -> History {
    let mut doubled = history.clone();
    let other = |id: &String| format!("other {id}");
    for person in &history.persons {
        let ids = person.ids.iter().map(other).collect();
        doubled.persons.push(Person { ids, properties: person.properties.clone() });
    }
    for cohort in &mut doubled.cohorts {
        let others: Vec<String> = cohort.members.iter().map(other).collect();
        cohort.members.extend(others);
    }
    let again = history.events.iter().map(|event| Event { id: other(&event.id), ..event.clone() });
    doubled.events.extend(again);
    doubled
}

/// The counts of a result, multiplied; times and labels are unchanged.
fn counts(result: &Value, factor: f64) -> Value {
    match result {
        Value::Array(rows) => rows.iter().map(|row| counts(row, factor)).collect(),
        Value::Object(row) => {
            let scaled = |value: &Value| match value {
                Value::Number(number) => json!(number.as_f64().unwrap() * factor),
                Value::Array(data) => {
                    data.iter().map(|number| json!(number.as_f64().unwrap() * factor)).collect()
                }
                other => other.clone(),
            };
            let mut kept = serde_json::Map::new();
            for key in ["count", "data", "aggregated_value"] {
                kept.insert(key.to_owned(), row.get(key).map_or(Value::Null, scaled));
            }
            for key in
                ["average_conversion_time", "median_conversion_time", "breakdown_value", "label", "name"]
            {
                kept.insert(key.to_owned(), row.get(key).cloned().unwrap_or_default());
            }
            Value::Object(kept)
        }
        other => other.clone(),
    }
}

/// The query with one more filter that all events pass.
fn refined(body: &Value) -> Value {
    let mut body = body.clone();
    let filter = json!({"key": "absent", "operator": "is_not_set", "type": "event"});
    body["properties"].as_array_mut().unwrap().push(filter);
    body
}

/// The changes that do change the result, which is an error.
pub fn changes(history: &History, checked: &CheckedQuery) -> Result<Vec<String>, CalcError> {
    let plain = checked.calculate(history)?;
    let mut wrong = Vec::new();
    for (how, got) in divided(history, checked)? {
        differences(&plain, &got, &how, 1e-9, &mut wrong);
    }
    for (how, other) in rearrange(history, checked.is_strict) {
        differences(&plain, &checked.calculate(&other)?, how, 1e-9, &mut wrong);
    }
    let more = history.world().calculate_parsed(checked.parse(&refined(&checked.body)))?;
    differences(&counts(&plain, 1.0), &counts(&more, 1.0), "one more filter", 1e-9, &mut wrong);
    if checked.doubles {
        let twice = counts(&checked.calculate(&doubled(history))?, 1.0);
        differences(&counts(&plain, 2.0), &twice, "twice", 1e-9, &mut wrong);
    }
    Ok(wrong)
}
