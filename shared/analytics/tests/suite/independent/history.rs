//! Small histories: persons, groups, cohorts, and events in order of arrival.

use std::collections::BTreeMap;

use chrono::{DateTime, SecondsFormat, Utc};
use chrono_tz::Tz;
use serde_json::{Map, Value, json};

use super::dice::Dice;
use crate::support::World;

pub const SECOND: i64 = 1_000_000;
pub const HOUR: i64 = 3_600 * SECOND;
pub const DAY: i64 = 24 * HOUR;

pub type Properties = Map<String, Value>;

#[derive(Clone, Debug)]
pub struct Event {
    pub id: String,
    pub name: String,
    pub time: i64,
    pub properties: Properties,
}

#[derive(Clone, Debug)]
pub struct Person {
    pub ids: Vec<String>,
    pub properties: Properties,
}

#[derive(Clone, Debug)]
pub struct Group {
    pub index: u8,
    pub key: String,
    pub properties: Properties,
}

#[derive(Clone, Debug)]
pub struct Cohort {
    pub id: u64,
    pub members: Vec<String>,
}

#[derive(Clone, Debug)]
pub struct History {
    pub zone: Tz,
    pub week_start: i64,
    pub now: i64,
    /// The project counts distinct ids instead of persons.
    pub by_distinct_id: bool,
    pub persons: Vec<Person>,
    pub groups: Vec<Group>,
    pub cohorts: Vec<Cohort>,
    pub events: Vec<Event>,
}

pub fn utc(time: i64) -> DateTime<Utc> {
    DateTime::from_timestamp_micros(time).unwrap()
}

pub fn iso(time: i64) -> String {
    utc(time).to_rfc3339_opts(SecondsFormat::Micros, true)
}

impl History {
    /// The actor that is counted for an event of this distinct id.
    pub fn actor(&self, id: &str) -> String {
        if self.by_distinct_id { id.to_owned() } else { self.person(id) }
    }

    /// The person of a distinct id; an unknown id is a person of its own.
    pub fn person(&self, id: &str) -> String {
        let known = self.persons.iter().position(|person| person.ids.iter().any(|own| own == id));
        known.map_or_else(|| id.to_owned(), |index| format!("person {index}"))
    }

    pub fn person_property(&self, id: &str, key: &str) -> Option<&Value> {
        self.persons.iter().find(|person| person.ids.iter().any(|own| own == id))?.properties.get(key)
    }

    pub fn group_property(&self, event: &Event, index: u8, key: &str) -> Option<&Value> {
        let name = event.properties.get(&format!("$group_{index}"))?;
        let group = self.groups.iter().find(|group| group.index == index && json!(group.key) == *name)?;
        group.properties.get(key)
    }

    pub fn is_member(&self, cohort: u64, id: &str) -> bool {
        let person = self.person(id);
        let cohort = self.cohorts.iter().find(|known| known.id == cohort).unwrap();
        cohort.members.iter().any(|member| self.person(member) == person)
    }

    /// The history in the format of the corpus cases.
    pub fn case(&self) -> Value {
        let persons = self.persons.iter().map(|p| json!({"distinct_ids": p.ids, "properties": p.properties}));
        let groups = self.groups.iter().map(|group| {
            json!({"type_index": group.index, "type": format!("type {}", group.index), "key": group.key,
                "properties": group.properties})
        });
        let cohorts = self.cohorts.iter().map(|cohort| {
            json!({"id": cohort.id, "name": format!("cohort {}", cohort.id), "static_distinct_ids": cohort.members})
        });
        let events = self.events.iter().map(|event| {
            json!({"event": event.name, "distinct_id": event.id, "timestamp": iso(event.time),
                "properties": event.properties})
        });
        json!({
            "now": iso(self.now),
            "project": {"timezone": self.zone.name(), "week_start_day": self.week_start,
                "aggregate_users_by_distinct_id": self.by_distinct_id},
            "persons": persons.collect::<Vec<_>>(),
            "groups": groups.collect::<Vec<_>>(),
            "cohorts": cohorts.collect::<Vec<_>>(),
            "actions": [],
            "events": events.collect::<Vec<_>>(),
        })
    }

    pub fn world(&self) -> World {
        World::of_case(&self.case())
    }

    /// The history as text, for failures.
    pub fn describe(&self) -> String {
        let mut lines = vec![format!(
            "zone {}, week starts {}, now {}, by distinct id: {}",
            self.zone,
            self.week_start,
            iso(self.now),
            self.by_distinct_id
        )];
        for (index, person) in self.persons.iter().enumerate() {
            let line = format!("person {index}: {:?} {}", person.ids, json!(person.properties));
            lines.push(line);
        }
        for group in &self.groups {
            lines.push(format!("group {} {:?} {}", group.index, group.key, json!(group.properties)));
        }
        for cohort in &self.cohorts {
            lines.push(format!("cohort {} {:?}", cohort.id, cohort.members));
        }
        for event in &self.events {
            lines.push(format!(
                "{} {} {:?} {}",
                iso(event.time),
                event.id,
                event.name,
                json!(event.properties)
            ));
        }
        lines.join("\n")
    }

    /// Removes events as long as the failure remains.
    pub fn shrunk(mut self, is_faulty: &dyn Fn(&Self) -> bool) -> Self {
        loop {
            let before = self.events.len();
            let mut index = 0;
            while index < self.events.len() {
                let mut smaller = self.clone();
                smaller.events.remove(index);
                if is_faulty(&smaller) {
                    self = smaller;
                } else {
                    index += 1;
                }
            }
            if self.events.len() == before {
                return self;
            }
        }
    }
}

/// A value of one event property: a text, a number, a number as text, a boolean, null or missing.
pub fn some_value(dice: &mut Dice) -> Option<Value> {
    let values =
        [json!("p"), json!("q"), json!("p"), json!("Q"), json!(""), json!(95), json!("95"), json!(true)];
    match dice.within(0, 19) {
        0..=15 => Some(dice.pick(&values)),
        16 => Some(Value::Null),
        17 => Some(json!(1.5)),
        _ => None,
    }
}

fn properties(dice: &mut Dice) -> Properties {
    let mut properties = Map::new();
    for key in ["v", "w"] {
        if let Some(value) = some_value(dice) {
            properties.insert(key.to_owned(), value);
        }
    }
    properties
}

/// A number, a numeric text, or a value that is not a number.
fn some_number(dice: &mut Dice) -> Option<Value> {
    match dice.within(0, 9) {
        0..=5 => Some(json!(dice.within(-3, 40))),
        6 => Some(json!(dice.within(0, 400) as f64 / 8.0)),
        7 => Some(json!(dice.within(0, 30).to_string())),
        8 => Some(dice.pick(&[json!("ten"), json!(true), Value::Null, json!("")])),
        _ => None,
    }
}

/// Persons of one to three ids, two groups of each of two types, two cohorts; no events yet.
pub fn people(dice: &mut Dice, zone: Tz, now: i64) -> History {
    let mut persons = Vec::new();
    for person in 0..dice.count(1, 3) {
        let ids = (0..dice.count(1, 3)).map(|id| format!("{person}.{id}")).collect();
        persons.push(Person { ids, properties: properties(dice) });
    }
    let mut groups = Vec::new();
    for (index, key) in [(0, "g"), (0, "h"), (1, "g"), (1, "i")] {
        if dice.percent(80) {
            groups.push(Group { index, key: key.to_owned(), properties: properties(dice) });
        }
    }
    let ids: Vec<String> = persons.iter().flat_map(|person| person.ids.clone()).collect();
    let cohorts = (1..=2).map(|id| {
        let members = ids.iter().filter(|_| dice.percent(40)).cloned().collect();
        Cohort { id, members }
    });
    let cohorts = cohorts.collect();
    History {
        zone,
        week_start: dice.within(0, 1),
        now,
        by_distinct_id: dice.percent(6),
        persons,
        groups,
        cohorts,
        events: Vec::new(),
    }
}

/// An event of a random person; sometimes of an unknown distinct id.
pub fn event(dice: &mut Dice, history: &History, names: &[&str], time: i64) -> Event {
    // Most events are of one person, so that this person gets far.
    let busy = if dice.percent(60) { &history.persons[..1] } else { &history.persons[..] };
    let ids: Vec<&String> = busy.iter().flat_map(|person| &person.ids).collect();
    let id = if dice.percent(5) { "stranger".to_owned() } else { dice.pick(&ids).clone() };
    let mut properties = properties(dice);
    if let Some(number) = some_number(dice) {
        properties.insert("n".to_owned(), number);
    }
    for (index, keys) in [(0, ["g", "h", "unlisted"]), (1, ["g", "i", ""])] {
        if dice.percent(60) {
            properties.insert(format!("$group_{index}"), json!(dice.pick(&keys)));
        }
    }
    if dice.percent(70) {
        properties.insert("$session_id".to_owned(), json!(format!("session {}", dice.within(0, 4))));
    }
    Event { id, name: dice.pick(names).to_owned(), time, properties }
}

/// A value as text; `None` for missing and null.
pub fn text(value: Option<&Value>) -> Option<String> {
    match value? {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => match number.as_f64().unwrap() {
            whole if whole.fract() == 0.0 => Some(format!("{whole:.0}")),
            part => Some(part.to_string()),
        },
        other => Some(other.to_string()),
    }
}

/// A filter on one property of the event.
#[derive(Clone, Debug, PartialEq)]
pub struct Filter {
    pub key: &'static str,
    pub value: &'static str,
    pub negated: bool,
}

impl Filter {
    pub fn any(dice: &mut Dice) -> Self {
        Self { key: dice.pick(&["v", "w"]), value: dice.pick(&["p", "q", "95"]), negated: dice.percent(50) }
    }

    pub fn body(&self) -> Value {
        let operator = if self.negated { "is_not" } else { "exact" };
        json!({"key": self.key, "value": self.value, "operator": operator, "type": "event"})
    }

    pub fn passes(&self, event: &Event) -> bool {
        (text(event.properties.get(self.key)).as_deref() == Some(self.value)) != self.negated
    }
}

/// The source of the values of a breakdown.
#[derive(Clone, Debug, PartialEq)]
pub enum Source {
    Event(Vec<&'static str>),
    Person(&'static str),
    Group(u8, &'static str),
    /// Ids; 0 means all persons.
    Cohorts(Vec<u64>),
}

impl Source {
    pub fn any(dice: &mut Dice) -> Self {
        match dice.within(0, 9) {
            0..=3 => Self::Event(vec!["v"]),
            4 => Self::Event(vec!["v", "w"]),
            5..=6 => Self::Person("v"),
            7 => Self::Group(dice.pick(&[0, 1]), "v"),
            8 => Self::Cohorts(vec![1, 2]),
            _ => Self::Cohorts(vec![0, 1]),
        }
    }

    /// Values of an event, `None` for each missing one. Not for cohorts.
    pub fn values(&self, history: &History, event: &Event) -> Vec<Option<String>> {
        match self {
            Self::Event(keys) => keys.iter().map(|key| text(event.properties.get(*key))).collect(),
            Self::Person(key) => vec![text(history.person_property(&event.id, key))],
            Self::Group(index, key) => vec![text(history.group_property(event, *index, key))],
            Self::Cohorts(_) => Vec::new(),
        }
    }
}

/// The number of cases with each outcome, printed at the end of a run.
#[derive(Default)]
pub struct OutcomeCounts(pub BTreeMap<String, usize>);

impl OutcomeCounts {
    pub fn count(&mut self, what: &str) {
        *self.0.entry(what.to_owned()).or_default() += 1;
    }
}
