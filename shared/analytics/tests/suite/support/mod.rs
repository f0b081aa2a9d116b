//! Shared by the corpus tests: cases, partitions built from their events, and comparison with partial expectations.
#![allow(clippy::print_stdout)]

pub mod merged_partials;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use chrono::{DateTime, Utc};
use pennon_analytics::people::{MatchedActor, union};
use pennon_analytics::scan::{Column, ColumnKey, EventRun, EventSelection, MISSING, Partition, ScanRequest};
use pennon_analytics::{
    Action, Cohort, DataRequirements, Definitions, JoinData, ParsedQuery, PersonTimes, Plan, ProjectContext,
    PropertyTable, Query,
};
use pennon_filters::CalcError;
use pennon_filters::dates::WeekStart;
use serde_json::{Map, Value, json};
use uuid::Uuid;

use merged_partials::{MergedPartials, decoded_people};

pub const NOT_SUPPORTED: &str = "Not supported yet";

/// The cases of a corpus file.
pub fn cases(file: &str) -> Vec<Value> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/corpus/");
    let text = std::fs::read_to_string(format!("{folder}{file}")).unwrap();
    match serde_json::from_str(&text).unwrap() {
        Value::Array(list) => list,
        mut object => serde_json::from_value(object["cases"].take()).unwrap(),
    }
}

/// The parameters of a link, as an endpoint reads them from its query string.
pub fn link_parameters(url: &str) -> Map<String, Value> {
    let (_, query) = url.split_once('?').unwrap();
    let pairs = query.split('&').map(|pair| pair.split_once('=').unwrap());
    pairs.map(|(key, value)| (percent_decoded(key), Value::String(percent_decoded(value)))).collect()
}

fn percent_decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let hex = [rest.next().unwrap(), rest.next().unwrap()];
            bytes.push(u8::from_str_radix(std::str::from_utf8(&hex).unwrap(), 16).unwrap());
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).unwrap()
}

pub fn instant(text: &str) -> DateTime<Utc> {
    DateTime::parse_from_rfc3339(text).unwrap().with_timezone(&Utc)
}

/// One event of a case, with its person.
#[derive(Clone)]
pub struct Event {
    pub person: Uuid,
    pub distinct_id: String,
    pub name: String,
    pub time: i64,
    pub properties: Value,
}

/// A project with its events: the independent, slow counterpart of an event store.
pub struct World {
    pub project: ProjectContext,
    pub now: DateTime<Utc>,
    pub events: Vec<Event>,
    pub persons: BTreeMap<Uuid, Value>,
    /// Creation times of persons that imports recorded.
    pub created: BTreeMap<Uuid, i64>,
    /// The person of each distinct id.
    pub named: BTreeMap<String, Uuid>,
    /// By index of the type and key.
    pub groups: BTreeMap<(u8, String), Value>,
    /// Members of static cohorts.
    pub cohort_lists: BTreeMap<u64, HashSet<Uuid>>,
}

impl World {
    pub fn of_case(case: &Value) -> Self {
        let mut persons: BTreeMap<String, Uuid> = BTreeMap::new();
        let (mut known, mut created) = (BTreeMap::new(), BTreeMap::new());
        for (index, person) in case["persons"].as_array().unwrap().iter().enumerate() {
            known.insert(Uuid::from_u128(index as u128 + 1), person["properties"].clone());
            if let Some(time) = person["created_at"].as_str() {
                created.insert(Uuid::from_u128(index as u128 + 1), instant(time).timestamp_micros());
            }
            for id in person["distinct_ids"].as_array().unwrap() {
                persons.insert(id.as_str().unwrap().to_owned(), Uuid::from_u128(index as u128 + 1));
            }
        }
        let (groups, group_types) = groups_of(&case["groups"]);
        let mut unknown = 1_000_000_u128;
        let mut events = Vec::new();
        for event in case["events"].as_array().unwrap() {
            let id = event["distinct_id"].as_str().unwrap().to_owned();
            let person = *persons.entry(id.clone()).or_insert_with(|| {
                unknown += 1;
                Uuid::from_u128(unknown)
            });
            events.push(Event {
                person,
                distinct_id: id,
                name: event["event"].as_str().unwrap().to_owned(),
                time: instant(event["timestamp"].as_str().unwrap()).timestamp_micros(),
                properties: with_groups(event, &group_types),
            });
        }
        let cohort_lists = rosters_of(&case["cohorts"], &persons);
        let project = &case["project"];
        let now = case["now"].as_str().unwrap_or("2024-01-01T12:00:00Z");
        let mut project = project_of(project, &events);
        project.definitions = definitions_of(case);
        let now = instant(now);
        Self { project, now, events, persons: known, created, named: persons, groups, cohort_lists }
    }

    /// The data that a plan needs besides events.
    pub fn facts(&self, plan: &Plan) -> JoinData {
        self.facts_for(plan.needs())
    }

    /// The data for these requirements.
    pub fn facts_for(&self, needs: &DataRequirements) -> JoinData {
        let persons = if needs.whole_persons {
            PropertyTable::whole(&needs.persons)
        } else {
            PropertyTable::new(&needs.persons)
        };
        let mut facts = JoinData { persons, ..JoinData::default() };
        for (person, properties) in &self.persons {
            facts.persons.add(*person, properties.as_object().unwrap());
        }
        for index in needs.groups.keys().chain(&needs.whole_groups) {
            let keys = needs.groups.get(index).cloned().unwrap_or_default();
            let known = facts.groups.entry(*index).or_insert_with(|| PropertyTable::whole(&keys));
            for ((_, key), properties) in self.groups.iter().filter(|((of, _), _)| of == index) {
                known.add(key.clone(), properties.as_object().unwrap());
            }
        }
        let named = self.named.iter().filter(|(id, _)| needs.distinct_ids.contains(*id));
        facts.named = named.map(|(id, person)| (id.clone(), *person)).collect();
        let cohort_lists = self.cohort_lists.iter().filter(|(id, _)| needs.cohort_lists.contains(id));
        facts.cohort_lists = cohort_lists.map(|(id, members)| (*id, members.clone())).collect();
        facts.imported_creations = self.created.iter().map(|(person, time)| (*person, *time)).collect();
        facts.first_person_events = vec![self.first_person_events()];
        facts.further = needs.further_scans().map(|scan| self.partitions(scan, 2)).collect();
        facts
    }

    /// The time of the earliest event of each person.
    fn first_person_events(&self) -> PersonTimes {
        let mut first: BTreeMap<Uuid, i64> = BTreeMap::new();
        for event in &self.events {
            let time = first.entry(event.person).or_insert(event.time);
            *time = event.time.min(*time);
        }
        let (persons, times) = first.into_iter().unzip();
        PersonTimes { persons: Arc::new(persons), times: Arc::new(times) }
    }

    /// The events that a scan requests, with their actors divided into `parts` partitions.
    pub fn partitions(&self, scan: &ScanRequest, parts: usize) -> Vec<Partition> {
        let persons: BTreeSet<Uuid> = self.events.iter().map(|event| event.person).collect();
        let mut dealt = vec![BTreeSet::new(); parts];
        for (index, person) in persons.into_iter().enumerate() {
            dealt[index % parts].insert(person);
        }
        dealt.into_iter().map(|actors| self.partition(scan, &actors)).collect()
    }

    fn partition(&self, scan: &ScanRequest, actors: &BTreeSet<Uuid>) -> Partition {
        let actors: Vec<Uuid> = actors.iter().copied().collect();
        let mut rows: BTreeMap<&str, Vec<(u32, i64, u128, &Event)>> = BTreeMap::new();
        for (seq, event) in self.events.iter().enumerate() {
            let named = match &scan.events {
                EventSelection::All => true,
                EventSelection::Named(names) => names.contains(&event.name),
            };
            let Ok(actor) = actors.binary_search(&event.person) else { continue };
            if named && scan.from <= event.time && event.time <= scan.to {
                let row = (u32::try_from(actor).unwrap(), event.time, seq as u128, event);
                rows.entry(&event.name).or_default().push(row);
            }
        }
        let runs = rows.into_iter().map(|(name, rows)| run(name, rows, &scan.columns)).collect();
        Partition { actors: Arc::new(actors), runs, ..Partition::default() }
    }

    /// The result of a query, calculated in so many partitions.
    pub fn calculate(&self, query: &Query, parts: usize) -> Result<Value, CalcError> {
        let plan = query.plan(&self.project, self.now)?;
        let mut sum = MergedPartials::default();
        let facts = self.facts(&plan);
        for partition in plan.join(self.partitions(plan.scan(), parts), facts, &|| false)? {
            sum.add(plan.partial(&partition, &|| false)?);
        }
        Ok(sum.finish(&plan)?.result)
    }

    /// The persons behind the number that `request` selects, ordered by id.
    pub fn people(
        &self,
        query: &Query,
        request: &Map<String, Value>,
        parts: usize,
    ) -> Result<Vec<MatchedActor>, CalcError> {
        let point = query.data_point(request)?;
        let plan = query.plan(&self.project, self.now)?;
        let mut people = Vec::new();
        for partition in plan.join(self.partitions(plan.scan(), parts), self.facts(&plan), &|| false)? {
            people.extend(decoded_people(&plan.people(&partition, &point, &|| false)?));
        }
        Ok(union(people))
    }

    /// The distinct ids of each person, or the key of each group, sorted.
    pub fn ids_of(&self, people: &[MatchedActor]) -> Vec<Vec<String>> {
        let ids = |one: &MatchedActor| match &one.key {
            Some(key) => vec![key.clone()],
            None => {
                let named = self.named.iter().filter(|(_, person)| **person == one.actor);
                named.map(|(id, _)| id.clone()).collect()
            }
        };
        let mut all: Vec<Vec<String>> = people.iter().map(ids).collect();
        all.sort();
        all
    }

    /// The result of a parsed request; the error of the endpoint if it has no query.
    pub fn calculate_parsed(&self, parsed: Result<ParsedQuery, CalcError>) -> Result<Value, CalcError> {
        match parsed? {
            ParsedQuery::Query(query) => self.calculate(&query, 3),
            ParsedQuery::Empty => {
                Err(CalcError::coded("required", Some("events"), "This field is required."))
            }
            ParsedQuery::OtherKind(kind) => Err(CalcError::unsupported("query", kind)),
        }
    }
}

/// Groups by index and key, and the names of their types by index.
fn groups_of(groups: &Value) -> (BTreeMap<(u8, String), Value>, BTreeMap<String, u8>) {
    let (mut known, mut types) = (BTreeMap::new(), BTreeMap::new());
    for group in groups.as_array().into_iter().flatten() {
        let index = u8::try_from(group["type_index"].as_u64().unwrap()).unwrap();
        known.insert((index, group["key"].as_str().unwrap().to_owned()), group["properties"].clone());
        types.insert(group["type"].as_str().unwrap().to_owned(), index);
    }
    (known, types)
}

/// The properties of an event with its groups as `$group_N`.
fn with_groups(event: &Value, types: &BTreeMap<String, u8>) -> Value {
    let mut properties = event["properties"].clone();
    for (name, key) in event["groups"].as_object().into_iter().flatten() {
        if let Some(index) = types.get(name) {
            properties[format!("$group_{index}")] = key.clone();
        }
    }
    properties
}

fn rosters_of(cohorts: &Value, persons: &BTreeMap<String, Uuid>) -> BTreeMap<u64, HashSet<Uuid>> {
    let mut cohort_lists = BTreeMap::new();
    for cohort in cohorts.as_array().into_iter().flatten() {
        if let Some(ids) = cohort["static_distinct_ids"].as_array() {
            let ids = ids.iter().filter_map(|id| persons.get(id.as_str().unwrap()));
            cohort_lists.insert(cohort["id"].as_u64().unwrap(), ids.copied().collect());
        }
    }
    cohort_lists
}

fn definitions_of(case: &Value) -> Definitions {
    let list = |key: &str| case[key].as_array().cloned().unwrap_or_default();
    let name = |record: &Value| record["name"].as_str().unwrap_or_default().to_owned();
    let action = |record: Value| {
        let steps = record["steps"].as_array().cloned().unwrap_or_default();
        (record["id"].as_u64().unwrap(), Action { name: name(&record), steps })
    };
    let cohort = |record: Value| {
        let cohort = Cohort {
            name: name(&record),
            is_static: record["static_distinct_ids"].is_array(),
            filters: record["filters"].clone(),
            groups: record["groups"].clone(),
        };
        (record["id"].as_u64().unwrap(), cohort)
    };
    Definitions {
        actions: list("actions").into_iter().map(action).collect(),
        cohorts: list("cohorts").into_iter().map(cohort).collect(),
    }
}

fn project_of(project: &Value, events: &[Event]) -> ProjectContext {
    ProjectContext {
        project_id: "7".to_owned(),
        timezone: project["timezone"].as_str().unwrap_or("UTC").parse().unwrap(),
        week_start: WeekStart::from_day(project["week_start_day"].as_i64().unwrap_or(0)),
        test_account_filters: project["test_account_filters"].as_array().cloned().unwrap_or_default(),
        path_cleaning_filters: project["path_cleaning_filters"].as_array().cloned().unwrap_or_default(),
        earliest_event: events.iter().map(|event| event.time).min(),
        aggregate_by_distinct_id: project["aggregate_users_by_distinct_id"].as_bool().unwrap_or(false),
        definitions: Definitions::default(),
    }
}

fn run(name: &str, mut rows: Vec<(u32, i64, u128, &Event)>, columns: &BTreeSet<ColumnKey>) -> EventRun {
    rows.sort_by_key(|(actor, time, seq, _)| (*actor, *time, *seq));
    let column = |key: &ColumnKey| {
        let (mut codes, mut values, mut known) = (Vec::new(), Vec::new(), HashMap::<Value, u32>::new());
        for (.., event) in &rows {
            let value = match key {
                ColumnKey::Property(key) => event.properties.get(key).cloned(),
                ColumnKey::DistinctId => Some(json!(event.distinct_id)),
                ColumnKey::AllProperties => Some(event.properties.clone()),
            };
            let code = value.map(|value| {
                *known.entry(value).or_insert_with_key(|value| {
                    values.push(value.clone());
                    u32::try_from(values.len() - 1).unwrap()
                })
            });
            codes.push(code.unwrap_or(MISSING));
        }
        (key.clone(), Column::new(codes, values))
    };
    EventRun {
        event: name.to_owned(),
        columns: columns.iter().map(column).collect(),
        actors: rows.iter().map(|row| row.0).collect(),
        times: rows.iter().map(|row| row.1).collect(),
        order: rows.iter().map(|row| row.2).collect(),
        joined_columns: BTreeMap::new(),
    }
}

/// The parameters of a query string.
pub fn decode_query(text: &str) -> Map<String, Value> {
    let decode = |text: &str| {
        let mut bytes = Vec::new();
        let mut rest = text.bytes();
        while let Some(byte) = rest.next() {
            let mut digit = || char::from(rest.next().unwrap()).to_digit(16).unwrap();
            bytes.push(if byte == b'%' { u8::try_from(digit() * 16 + digit()).unwrap() } else { byte });
        }
        String::from_utf8(bytes).unwrap()
    };
    let pairs = text.split('&').map(|pair| pair.split_once('=').unwrap());
    pairs.map(|(key, value)| (decode(key), json!(decode(value)))).collect()
}

/// Differences of a result: every expected key must be equal, arrays must have the same length.
pub fn differences(want: &Value, got: &Value, path: &str, tolerance: f64, out: &mut Vec<String>) {
    match (want, got) {
        (Value::Object(want), Value::Object(got)) => {
            for (key, want) in want {
                match got.get(key) {
                    Some(got) => differences(want, got, &format!("{path}.{key}"), tolerance, out),
                    None => out.push(format!("{path}.{key}: missing")),
                }
            }
        }
        (Value::Array(want), Value::Array(got)) if want.len() == got.len() => {
            for (index, (want, got)) in want.iter().zip(got).enumerate() {
                differences(want, got, &format!("{path}.{index}"), tolerance, out);
            }
        }
        (Value::Number(left), Value::Number(right)) => {
            let (left, right) = (left.as_f64().unwrap(), right.as_f64().unwrap());
            if (left - right).abs() > tolerance * left.abs().max(right.abs()).max(1.0) {
                out.push(format!("{path}: want {left} got {right}"));
            }
        }
        (want, got) if want == got => {}
        (want, got) => out.push(format!("{path}: want {want} got {got}")),
    }
}

/// The rows of a result in the order of the expected ones, as far as they match; the others after them.
fn in_order_of(want: &Value, got: Value, tolerance: f64) -> Value {
    let (Value::Array(want), Value::Array(mut got)) = (want, got.clone()) else { return got };
    for (index, want) in want.iter().enumerate() {
        let fits = |got: &Value| {
            let mut wrong = Vec::new();
            differences(want, got, "", tolerance, &mut wrong);
            wrong.is_empty()
        };
        if let Some(place) = got.iter().skip(index).position(fits) {
            got.swap(index, index + place);
        }
    }
    Value::Array(got)
}

/// The outcomes of the cases of a file.
#[derive(Default)]
pub struct CaseOutcomes {
    pub calculated: usize,
    pub refused: usize,
    pub not_covered: Vec<String>,
    pub failures: Vec<String>,
}

impl CaseOutcomes {
    /// Compares the result of one case with its expectation, and counts it.
    pub fn record(&mut self, case: &Value, result: Result<Value, CalcError>, tolerance: f64) {
        let name = case["name"].as_str().unwrap();
        let expect = &case["expect"];
        match result {
            Err(error) if error.detail.starts_with(NOT_SUPPORTED) => {
                self.not_covered.push(format!("{name}: {error}"));
            }
            Err(_) if expect["status"] == json!(400) => self.refused += 1,
            Err(error) => self.failures.push(format!("{name}: refused: {error}")),
            Ok(_) if expect["status"] != json!(200) => {
                self.failures.push(format!("{name}: calculated, want an error"))
            }
            Ok(result) => {
                let mut wrong = Vec::new();
                let result = match expect["result_unordered"].as_bool() {
                    Some(true) => in_order_of(&expect["result"], result, tolerance),
                    _ => result,
                };
                differences(&expect["result"], &result, "result", tolerance, &mut wrong);
                self.calculated += 1;
                if !wrong.is_empty() {
                    self.failures.push(format!("{name}: {}", wrong.join("; ")));
                }
            }
        }
    }

    /// Asserts that all results are right, and that at least so many cases were calculated and rejected.
    pub fn check(&self, calculated: usize, refused: usize) {
        println!("{} calculated, {} refused as expected, not covered:", self.calculated, self.refused);
        for line in &self.not_covered {
            println!("  {line}");
        }
        assert!(self.failures.is_empty(), "{} wrong:\n{}", self.failures.len(), self.failures.join("\n"));
        assert!(self.calculated >= calculated, "only {} calculated", self.calculated);
        assert!(self.refused >= refused, "only {} refused", self.refused);
    }
}
