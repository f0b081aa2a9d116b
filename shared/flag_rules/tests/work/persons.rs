//! Work on persons: conditions and flags.

use std::collections::BTreeSet;
use std::rc::Rc;

use chrono::{DateTime, Utc};
use chrono_tz::Tz;
use pennon_filters::CancellationToken;
use pennon_flag_rules::Flag;
use pennon_flag_rules::blast_radius::Conditions;
use pennon_flag_rules::evaluate::{Evaluator, Subject};
use serde_json::{Map, Value, json};

fn instant(text: &str) -> DateTime<Utc> {
    DateTime::parse_from_rfc3339(text).unwrap().with_timezone(&Utc)
}

/// Work that has been prepared.
pub type Prepared = Box<dyn FnOnce()>;

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
        list.push(blast_radius(operator, &persons, &filter));
        list.push(flags(operator, &persons, &filter));
    }
    list
}

fn blast_radius(operator: &str, persons: &Persons, filter: &Value) -> PersonWork {
    let (persons, filter) = (persons.clone(), filter.clone());
    let prepare = move || -> Prepared {
        let (persons, filter) = (persons.clone(), filter.clone());
        Box::new(move || {
            let body = json!({"condition": {"properties": [filter], "rollout_percentage": 100}});
            let condition = Conditions::parse(body.as_object().unwrap()).unwrap();
            let blast = condition.compile([], Tz::UTC, instant("2024-03-01T00:00:00Z"));
            let none = BTreeSet::new();
            for person in persons.iter() {
                std::hint::black_box(blast.matches_person("p", person, &none));
            }
        })
    };
    PersonWork { name: format!("blast radius by {operator}"), prepare: Box::new(prepare) }
}

fn flags(operator: &str, persons: &Persons, filter: &Value) -> PersonWork {
    let flag: Flag = serde_json::from_value(json!({
        "id": 1, "key": "flag", "active": true, "version": 1,
        "created_at": "2020-01-01T00:00:00Z", "updated_at": "2020-01-01T00:00:00Z",
        "filters": {"groups": [{"properties": [filter], "rollout_percentage": 100}]},
    }))
    .unwrap();
    let (persons, flag) = (persons.clone(), Rc::new(flag));
    let prepare = move || -> Prepared {
        let (persons, flag) = (persons.clone(), flag.clone());
        Box::new(move || {
            let evaluator = Evaluator::new([&*flag], [], Tz::UTC);
            let (none, cancellation) = (BTreeSet::new(), CancellationToken::default());
            for person in persons.iter() {
                let subject = Subject::person("person", person, &none, instant("2024-03-01T00:00:00Z"));
                std::hint::black_box(evaluator.evaluate_all(&subject.until_cancelled(&cancellation)));
            }
        })
    };
    PersonWork { name: format!("flag by {operator}"), prepare: Box::new(prepare) }
}
