//! What must not change an answer, or must double it.

use pennon_analytics::{InsightKind, ParsedQuery, PartitionResult};
use pennon_filters::CalcError;
use serde_json::{Value, json};

use super::history::{Event, History, Person};
use crate::support::differences;

/// A question, and what may be done to its history.
pub struct Asked {
    pub body: Value,
    pub is_funnel: bool,
    /// Events of another name break a run.
    pub is_strict: bool,
    /// Twice the people give twice the numbers.
    pub doubles: bool,
}

impl Asked {
    fn parse(&self, body: &Value) -> Result<ParsedQuery, CalcError> {
        let body = body.as_object().unwrap();
        if self.is_funnel {
            InsightKind::Funnels.parse_request(body)
        } else {
            InsightKind::Trends.parse_request(body)
        }
    }

    fn answer(&self, history: &History) -> Result<Value, CalcError> {
        history.world().ask(self.parse(&self.body))
    }
}

/// Another division of the actors, and parts that are merged in another order.
fn divided(history: &History, asked: &Asked) -> Result<Vec<(String, Value)>, CalcError> {
    let world = history.world();
    let ParsedQuery::Query(query) = asked.parse(&asked.body)? else { return Ok(Vec::new()) };
    let mut answers = Vec::new();
    for parts in [1, 2, 7] {
        answers.push((format!("{parts} parts"), world.answer(&query, parts)?));
    }
    let plan = query.plan(&world.project, world.now)?;
    let partitions = plan.join(world.partitions(plan.scan(), 5), world.facts(&plan), &|| false).unwrap();
    let partials: Result<Vec<PartitionResult>, CalcError> =
        partitions.iter().rev().map(|partition| plan.partial(partition, &|| false)).collect();
    let sum = partials?.into_iter().fold(PartitionResult::default(), |sum, part| part.merge(sum));
    answers.push(("parts in reverse".to_owned(), plan.finish(sum, &|| false)?.result));
    Ok(answers)
}

/// The same history told otherwise.
fn retold(history: &History, is_strict: bool) -> Vec<(&'static str, History)> {
    let mut told = Vec::new();
    // Events of one instant stay in their order.
    let mut sorted = history.clone();
    sorted.events.sort_by_key(|event| event.time);
    told.push(("arrival by time", sorted));
    let mut backwards = history.clone();
    backwards.events.sort_by_key(|event| std::cmp::Reverse(event.time));
    told.push(("latest first", backwards));
    if !history.by_distinct_id {
        told.push(("one id a person", merged(history)));
    }
    if !is_strict {
        told.push(("events of another name", with_strays(history)));
    }
    told
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

/// Beside each event one that nobody asks about; none before the first, which may be where the range begins.
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

/// Everybody twice, under other ids.
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

/// The numbers of people in an answer, times and labels aside.
fn counts(answer: &Value, factor: f64) -> Value {
    match answer {
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

/// A question with one more filter that everything passes.
fn refined(body: &Value) -> Value {
    let mut body = body.clone();
    let filter = json!({"key": "nobody has this", "operator": "is_not_set", "type": "event"});
    body["properties"].as_array_mut().unwrap().push(filter);
    body
}

/// What of all this does change the answer.
pub fn changes(history: &History, asked: &Asked) -> Result<Vec<String>, CalcError> {
    let plain = asked.answer(history)?;
    let mut wrong = Vec::new();
    for (how, got) in divided(history, asked)? {
        differences(&plain, &got, &how, 1e-9, &mut wrong);
    }
    for (how, other) in retold(history, asked.is_strict) {
        differences(&plain, &asked.answer(&other)?, how, 1e-9, &mut wrong);
    }
    let more = history.world().ask(asked.parse(&refined(&asked.body)))?;
    differences(&counts(&plain, 1.0), &counts(&more, 1.0), "one more filter", 1e-9, &mut wrong);
    if asked.doubles {
        let twice = counts(&asked.answer(&doubled(history))?, 1.0);
        differences(&counts(&plain, 2.0), &twice, "twice", 1e-9, &mut wrong);
    }
    Ok(wrong)
}
