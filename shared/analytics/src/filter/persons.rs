//! Filters for the person list: they test person properties, without events.
//!
//! Must stay true: operators work as in queries; a filter of any other type is an error and never ignored, because users
//! would not notice that a list is too long.

use std::collections::BTreeSet;

use chrono::DateTime;
use chrono_tz::Tz;
use pennon_filters::CompileBudget;
use pennon_filters::error::{CalcError, CalcResult};
use pennon_filters::work_budget::{ComparisonBudget, WorkBudget};
use serde_json::{Map, Value};

use super::{Parser, Predicate};
use crate::limits;
use crate::scan::{ColumnRef, JoinedColumnKey};

/// A filter on person properties.
#[derive(Debug, Clone)]
pub struct PersonFilter(Predicate);

impl PersonFilter {
    /// Parses a list or group of filters from JSON text. The default type is `person`. Relative dates are relative to
    /// `now`, in its time zone; errors name the field `attr`.
    pub fn parse(text: &str, now: DateTime<Tz>, attr: &str) -> CalcResult<Self> {
        let invalid =
            || CalcError::invalid(attr, "Properties are a list of filters, or a group of them, as JSON.");
        let mut value: Value = serde_json::from_str(text).map_err(|_| invalid())?;
        let is_valid_shape = match &value {
            Value::Array(_) => true,
            Value::Object(object) => object.contains_key("values") || object.contains_key("key"),
            _ => false,
        };
        if !is_valid_shape {
            return Err(invalid());
        }
        set_person_type(&mut value, attr, 0)?;
        let filter = Parser::default().parse(Some(&value), attr)?;
        let predicate = Predicate::new(&filter, now, &mut CompileBudget::default(), attr)?;
        let mut by_id = false;
        predicate.for_each_column(&mut |key| {
            by_id |= !matches!(key, ColumnRef::Joined(JoinedColumnKey::Person(_)))
        });
        if by_id {
            let what =
                "a list of persons filtered by the property distinct_id; the parameter distinct_id finds one";
            return Err(CalcError::unsupported(attr, what));
        }
        Ok(Self(predicate))
    }

    /// The keys of the properties that are tested.
    pub fn keys(&self) -> BTreeSet<String> {
        let mut keys = BTreeSet::new();
        self.0.for_each_column(&mut |key| {
            if let ColumnRef::Joined(JoinedColumnKey::Person(name)) = key {
                keys.insert(name.clone());
            }
        });
        keys
    }

    /// Whether a person with these properties passes. An error if cancelled, if a text is too long for a regular expression,
    /// or if no comparisons are left in the budget, which all persons of a list share.
    pub fn fits(
        &self,
        properties: &Map<String, Value>,
        budget: &mut ComparisonBudget,
        is_cancelled: &dyn Fn() -> bool,
    ) -> CalcResult<bool> {
        budget.pass(is_cancelled, |work| fits(&self.0, properties, work))
    }
}

fn fits(predicate: &Predicate, properties: &Map<String, Value>, work: &WorkBudget<'_>) -> CalcResult<bool> {
    match predicate {
        Predicate::All(members) => {
            for member in members {
                if !fits(member, properties, work)? {
                    return Ok(false);
                }
            }
            Ok(true)
        }
        Predicate::Any(members) => {
            for member in members {
                if fits(member, properties, work)? {
                    return Ok(true);
                }
            }
            Ok(false)
        }
        Predicate::Column(ColumnRef::Joined(JoinedColumnKey::Person(key)), test) => {
            test.matches_within_budget(properties.get(key), work)
        }
        // `parse` rejects all other predicates.
        _ => Ok(false),
    }
}

/// Sets the type of filters without a type to `person`. An error for other types.
fn set_person_type(value: &mut Value, attr: &str, depth: usize) -> CalcResult<()> {
    if depth > 2 * limits::FILTER_DEPTH {
        return Err(limits::too_many(attr, "property groups inside each other", limits::FILTER_DEPTH));
    }
    match value {
        Value::Array(members) => {
            members.iter_mut().try_for_each(|member| set_person_type(member, attr, depth + 1))
        }
        Value::Object(object) if !object.contains_key("key") => match object.get_mut("values") {
            Some(members) => set_person_type(members, attr, depth + 1),
            None => Ok(()),
        },
        Value::Object(object) => match object.get("type") {
            None | Some(Value::Null) => {
                object.insert("type".to_owned(), Value::from("person"));
                Ok(())
            }
            Some(Value::String(kind)) if kind == "person" => Ok(()),
            Some(other) => {
                let what = format!(
                    "a list of persons filtered by what is of type {other}; filter it by properties of persons, with \
                     \"type\": \"person\""
                );
                Err(CalcError::unsupported(attr, what))
            }
        },
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    fn parse(value: &Value) -> CalcResult<PersonFilter> {
        let now = "2024-05-15T12:00:00Z".parse::<DateTime<chrono::Utc>>().unwrap();
        PersonFilter::parse(&value.to_string(), now.with_timezone(&Tz::UTC), "properties")
    }

    #[test]
    fn persons_are_filtered_by_properties() {
        let ann = json!({"plan": "pro", "age": 41, "seen": "2024-05-10", "gone": null});
        let ann = ann.as_object().unwrap();
        let fits = |filter: Value| {
            parse(&filter).unwrap().fits(ann, &mut ComparisonBudget::default(), &|| false).unwrap()
        };
        for (key, operator, value, want) in [
            ("plan", "exact", json!("pro"), true),
            ("plan", "exact", json!(["free", "pro"]), true),
            ("plan", "is_not", json!("pro"), false),
            ("none", "is_not", json!("pro"), true),
            ("plan", "icontains", json!("PR"), true),
            ("plan", "regex", json!("^f"), false),
            ("age", "gt", json!(40), true),
            ("age", "lt", json!("40"), false),
            ("gone", "is_set", Value::Null, false),
            ("none", "is_not_set", Value::Null, true),
            ("seen", "is_date_after", json!("-7d"), true),
            ("seen", "is_date_before", json!("-7d"), false),
        ] {
            let filter = json!({"key": key, "operator": operator, "value": value});
            assert_eq!(fits(json!([filter])), want, "{filter}");
            assert_eq!(fits(filter), want, "one by itself");
        }
        let (pro, old) = (
            json!({"key": "plan", "value": "pro", "type": "person"}),
            json!({"key": "age", "operator": "gt", "value": 50}),
        );
        assert!(!fits(json!([pro, old])));
        assert!(fits(json!({"type": "OR", "values": [old, {"type": "AND", "values": [pro]}]})));
        assert!(fits(json!([])), "no condition");
        assert_eq!(
            parse(&json!([pro, old])).unwrap().keys().into_iter().collect::<Vec<_>>(),
            ["age", "plan"]
        );
    }

    #[test]
    fn the_persons_of_a_list_share_its_comparisons() {
        let ann = json!({"plan": "pro"});
        let filter =
            parse(&json!([{"key": "plan", "operator": "icontains", "value": ["x", "y", "z"]}])).unwrap();
        let mut budget = ComparisonBudget::of(3 * 5 + 2);
        for _ in 0..5 {
            assert!(!filter.fits(ann.as_object().unwrap(), &mut budget, &|| false).unwrap());
        }
        let error = filter.fits(ann.as_object().unwrap(), &mut budget, &|| false).unwrap_err();
        assert_eq!(error, limits::too_many_evaluations());
    }

    #[test]
    fn other_filter_types_are_rejected() {
        for kind in ["event", "cohort", "hogql", "group", "flag", "anything"] {
            let nested = json!({"type": "OR", "values": [[{"key": "a", "value": 1, "type": kind}]]});
            for filter in [json!([{"key": "a", "value": 1, "type": kind}]), nested] {
                let error = parse(&filter).unwrap_err();
                assert_eq!(
                    (error.attr.as_deref(), error.kind),
                    (Some("properties"), pennon_filters::ErrorKind::Validation),
                    "{filter}"
                );
            }
        }
        let by_id = parse(&json!([{"key": "distinct_id", "value": "ann"}])).unwrap_err();
        assert!(by_id.detail.contains("distinct_id"), "{}", by_id.detail);
        for wrong in [
            json!("x"),
            json!(7),
            Value::Null,
            json!({"email": "x"}),
            json!([7]),
            json!([{"key": "a", "operator": "near", "value": 1}]),
        ] {
            assert!(parse(&wrong).is_err(), "{wrong}");
        }
        let deep = (0..200).fold(json!([]), |inner, _| json!({"type": "AND", "values": [inner]}));
        assert!(parse(&deep).is_err());
        let many = (0..=limits::FILTERS).map(|_| json!({"key": "a", "value": 1})).collect::<Vec<_>>();
        assert!(parse(&json!(many)).is_err() && parse(&json!(many[1..])).is_ok());
    }
}
