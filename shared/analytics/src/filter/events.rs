//! Filters for the event list: they test single events, without joined data.
//!
//! Must stay true: operators work as in queries; a filter on anything but the event itself is an error and never ignored,
//! because users would not notice that a list is too long.

use std::borrow::Cow;

use chrono::DateTime;
use chrono_tz::Tz;
use pennon_filters::CompileBudget;
use pennon_filters::error::{CalcError, CalcResult};
use pennon_filters::work_budget::{ComparisonBudget, WorkBudget};
use serde_json::Value;

use super::{Parser, Predicate};
use crate::limits;
use crate::scan::{ColumnKey, ColumnRef};

/// Filter types that need only the event.
const TYPES: [&str; 4] = ["event", "events", "feature", "event_metadata"];

/// A filter on the name, distinct id and properties of events.
#[derive(Debug, Clone)]
pub struct EventFilter(Predicate);

/// An event that can be filtered.
pub trait FilterableEvent {
    /// Its name.
    fn name(&self) -> &str;
    /// Its distinct id.
    fn distinct_id(&self) -> &str;
    /// Its property of this name; `$group_0` and so on are the keys of its groups.
    fn property(&self, name: &str) -> Option<Cow<'_, Value>>;
}

impl EventFilter {
    /// Parses a list or group of filters from JSON text. Relative dates are relative to `now`, in its time zone; errors name
    /// the field `attr`.
    pub fn parse(text: &str, now: DateTime<Tz>, attr: &str) -> CalcResult<Self> {
        let invalid =
            || CalcError::invalid(attr, "Properties are a list of filters, or a group of them, as JSON.");
        let value: Value = serde_json::from_str(text).map_err(|_| invalid())?;
        if !matches!(value, Value::Array(_) | Value::Object(_)) {
            return Err(invalid());
        }
        require_types(&value, attr, 0)?;
        let filter = Parser::default().parse(Some(&value), attr)?;
        let predicate = Predicate::new(&filter, now, &mut CompileBudget::default(), attr)?;
        require_event(&predicate, attr)?;
        Ok(Self(predicate))
    }

    /// Whether an event passes. An error if cancelled, if a text is too long for a regular expression, or if no comparisons
    /// are left in the budget, which all events of a page share.
    pub fn fits(
        &self,
        event: &impl FilterableEvent,
        budget: &mut ComparisonBudget,
        is_cancelled: &dyn Fn() -> bool,
    ) -> CalcResult<bool> {
        budget.pass(is_cancelled, |work| fits(&self.0, event, work))
    }
}

fn fits(predicate: &Predicate, event: &impl FilterableEvent, work: &WorkBudget<'_>) -> CalcResult<bool> {
    match predicate {
        Predicate::All(members) => {
            for member in members {
                if !fits(member, event, work)? {
                    return Ok(false);
                }
            }
            Ok(true)
        }
        Predicate::Any(members) => {
            for member in members {
                if fits(member, event, work)? {
                    return Ok(true);
                }
            }
            Ok(false)
        }
        Predicate::EventName(test) => test.matches_within_budget(Some(&Value::from(event.name())), work),
        Predicate::Column(ColumnRef::Event(ColumnKey::DistinctId), test) => {
            test.matches_within_budget(Some(&Value::from(event.distinct_id())), work)
        }
        Predicate::Column(ColumnRef::Event(ColumnKey::Property(name)), test) => {
            test.matches_within_budget(event.property(name).as_deref(), work)
        }
        // `parse` rejects all other predicates.
        _ => Ok(false),
    }
}

/// An error for other filter types. The parser would ignore unknown and incomplete ones.
fn require_types(value: &Value, attr: &str, depth: usize) -> CalcResult<()> {
    if depth > 2 * limits::FILTER_DEPTH {
        return Err(limits::too_many(attr, "property groups inside each other", limits::FILTER_DEPTH));
    }
    match value {
        Value::Array(members) => members.iter().try_for_each(|member| require_types(member, attr, depth + 1)),
        Value::Object(object) if !object.contains_key("key") => match object.get("values") {
            Some(members) => require_types(members, attr, depth + 1),
            None => Ok(()),
        },
        Value::Object(object) => match object.get("type") {
            None | Some(Value::Null) => Ok(()),
            Some(Value::String(kind)) if TYPES.contains(&kind.as_str()) => Ok(()),
            Some(other) => {
                let what = format!("a list of events filtered by what is of type {other}");
                Err(CalcError::unsupported(attr, what))
            }
        },
        _ => Ok(()),
    }
}

/// An error for predicates that need more than the event.
fn require_event(predicate: &Predicate, attr: &str) -> CalcResult<()> {
    let what = match predicate {
        Predicate::All(members) | Predicate::Any(members) => {
            return members.iter().try_for_each(|member| require_event(member, attr));
        }
        Predicate::EventName(_)
        | Predicate::Column(ColumnRef::Event(ColumnKey::DistinctId | ColumnKey::Property(_)), _) => {
            return Ok(());
        }
        Predicate::Column(..) => "persons, groups, sessions or cohorts",
        Predicate::Expression(_) => "an SQL expression",
        Predicate::Time(_) => "timestamp; use the parameters after and before",
        Predicate::Elements(_) => "elements",
    };
    Err(CalcError::unsupported(attr, format!("a list of events filtered by {what}")))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    struct Bought(Value);

    impl FilterableEvent for Bought {
        fn name(&self) -> &str {
            "bought"
        }

        fn distinct_id(&self) -> &str {
            "ann"
        }

        fn property(&self, name: &str) -> Option<Cow<'_, Value>> {
            self.0.get(name).map(Cow::Borrowed)
        }
    }

    fn parse(value: &Value) -> CalcResult<EventFilter> {
        let now = "2024-05-15T12:00:00Z".parse::<DateTime<chrono::Utc>>().unwrap();
        EventFilter::parse(&value.to_string(), now.with_timezone(&Tz::UTC), "properties")
    }

    #[test]
    fn events_are_filtered_by_properties_and_names() {
        let event = Bought(json!({"plan": "pro", "price": 41, "$feature/new": "on", "at": "2024-05-10"}));
        let fits = |filter: Value| {
            parse(&filter).unwrap().fits(&event, &mut ComparisonBudget::default(), &|| false).unwrap()
        };
        for (filter, expected) in [
            (json!({"key": "plan", "value": "pro"}), true),
            (json!({"key": "plan", "value": ["free"], "type": "event"}), false),
            (json!({"key": "price", "operator": "gt", "value": 40}), true),
            (json!({"key": "none", "operator": "is_not_set", "value": ""}), true),
            (json!({"key": "none", "operator": "is_not", "value": "x"}), true),
            (json!({"key": "new", "value": "on", "type": "feature"}), true),
            (json!({"key": "event", "value": "bought", "type": "event_metadata"}), true),
            (json!({"key": "distinct_id", "value": "bob", "type": "event_metadata"}), false),
            (json!({"key": "at", "operator": "is_date_after", "value": "-7d"}), true),
        ] {
            assert_eq!(fits(json!([filter])), expected, "{filter}");
        }
        let (pro, cheap) =
            (json!({"key": "plan", "value": "pro"}), json!({"key": "price", "operator": "lt", "value": 5}));
        assert!(!fits(json!([pro, cheap])));
        assert!(fits(json!({"type": "OR", "values": [cheap, pro]})));
        assert!(fits(json!([])), "nothing is restricted");
    }

    #[test]
    fn the_events_of_a_page_share_its_comparisons() {
        let event = Bought(json!({"plan": "pro"}));
        let filter =
            parse(&json!([{"key": "plan", "operator": "icontains", "value": ["x", "y", "z"]}])).unwrap();
        let mut budget = ComparisonBudget::of(3 * 5 + 2);
        for _ in 0..5 {
            assert!(!filter.fits(&event, &mut budget, &|| false).unwrap());
        }
        let error = filter.fits(&event, &mut budget, &|| false).unwrap_err();
        assert_eq!(error, limits::too_many_evaluations());
        let cancelled = filter.fits(&event, &mut ComparisonBudget::default(), &|| true).unwrap_err();
        assert_eq!(cancelled, CalcError::timeout());
    }

    #[test]
    fn other_filter_types_are_rejected() {
        for kind in ["person", "session", "hogql", "element", "cohort", "group", "flag", "anything"] {
            let filter = json!({"key": "text", "value": "1", "type": kind});
            for filters in [json!([filter]), json!({"type": "OR", "values": [[filter]]})] {
                let error = parse(&filters).unwrap_err();
                assert_eq!(error.attr.as_deref(), Some("properties"), "{filters}");
                assert!(error.detail.contains(kind), "{filters}: {}", error.detail);
            }
        }
        for key in ["person_id", "timestamp"] {
            let filter =
                json!([{"key": key, "operator": "gt", "value": "2024-01-01", "type": "event_metadata"}]);
            assert!(parse(&filter).is_err(), "{key}");
        }
        for wrong in [
            json!("x"),
            json!(7),
            Value::Null,
            json!([7]),
            json!([{"key": "a", "operator": "near", "value": 1}]),
        ] {
            assert!(parse(&wrong).is_err(), "{wrong}");
        }
        let deep = (0..200).fold(json!([]), |inner, _| json!({"type": "AND", "values": [inner]}));
        assert!(parse(&deep).is_err());
    }
}
