//! What is tested of each person apart from events: filters of person lists, cohorts.

use std::rc::Rc;

use chrono_tz::Tz;
use pennon_analytics::filter::PersonFilter;
use pennon_filters::{CalcError, ComparisonBudget};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use crate::support::{World, instant};
use crate::workloads::{Spread, world};

/// Work that has been prepared. It calls back to find out whether it was cancelled.
pub type Prepared = Box<dyn FnOnce(&dyn Fn() -> bool) -> Result<(), CalcError>>;

/// Work on persons.
pub struct PersonWork {
    pub name: String,
    /// Makes it ready.
    pub prepare: Box<dyn Fn() -> Prepared>,
}

type Persons = Rc<Vec<Map<String, Value>>>;

/// Persons whose properties no other person has.
fn persons(count: usize) -> Persons {
    let person = |index: usize| {
        let properties = json!({"mail": format!("p{index}@example.com"), "n": index, "plan": index % 7});
        properties.as_object().unwrap().clone()
    };
    Rc::new((0..count).map(person).collect())
}

/// Filters by so many values each.
fn filters(values: usize) -> Vec<(&'static str, Value)> {
    let mails: Vec<String> = (0..values).map(|index| format!("p{index}@example.com")).collect();
    let parts: Vec<String> = (0..values).map(|index| format!("{index}{index}x")).collect();
    vec![
        ("exact", json!({"key": "mail", "type": "person", "operator": "exact", "value": mails})),
        ("is_not", json!({"key": "mail", "type": "person", "operator": "is_not", "value": mails})),
        ("icontains", json!({"key": "mail", "type": "person", "operator": "icontains", "value": parts})),
        ("regex", json!({"key": "mail", "type": "person", "operator": "regex", "value": "[0-9]*7@"})),
        ("gt", json!({"key": "n", "type": "person", "operator": "gt", "value": 10})),
        ("is_date_after", json!({"key": "n", "type": "person", "operator": "is_date_after", "value": "-7d"})),
    ]
}

/// Work on so many persons, by filters of so many values each.
pub fn all(count: usize, values: usize) -> Vec<PersonWork> {
    let persons = persons(count);
    let mut list = Vec::new();
    for (operator, filter) in filters(values) {
        list.push(person_list(operator, &persons, &filter));
    }
    list
}

fn person_list(operator: &str, persons: &Persons, filter: &Value) -> PersonWork {
    let (persons, text) = (persons.clone(), json!([filter]).to_string());
    let prepare = move || -> Prepared {
        let (persons, text) = (persons.clone(), text.clone());
        Box::new(move |is_cancelled| {
            let now = instant("2024-03-01T00:00:00Z").with_timezone(&Tz::UTC);
            let filter = PersonFilter::parse(&text, now, "properties")?;
            let mut budget = ComparisonBudget::default();
            for person in persons.iter() {
                filter.fits(person, &mut budget, is_cancelled)?;
            }
            Ok(())
        })
    };
    PersonWork { name: format!("person list by {operator}"), prepare: Box::new(prepare) }
}

/// Counting the members of cohorts: by rules, by behaviour, on a list.
pub fn cohorts(values: usize, spread: Spread) -> Vec<PersonWork> {
    let world: Rc<World> = Rc::new(world(values, spread));
    let kinds = [(1, "rules"), (2, "behaviour"), (3, "a list")];
    let count = |(id, name): (u64, &str)| {
        let world = world.clone();
        let prepare = move || -> Prepared {
            let membership = world.project.membership(id, world.now).unwrap();
            let persons: Vec<Uuid> = world.persons.keys().copied().collect();
            let facts = world.facts_for(membership.needs());
            Box::new(move |is_cancelled| membership.count(&persons, facts, is_cancelled).map(drop))
        };
        PersonWork { name: format!("cohort members by {name}"), prepare: Box::new(prepare) }
    };
    kinds.into_iter().map(count).collect()
}
