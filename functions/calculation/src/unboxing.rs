//! What the funnel endpoint shows of breakdown values: clients from before breakdowns of several properties expect a
//! text where there is one property.

use pennon_core::http::Fields;
use serde_json::Value;

/// How the breakdown values of a request's rows are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unboxing {
    /// The list of the request was `breakdowns`, and so the rows call it.
    several: bool,
}

impl Unboxing {
    /// What a request, query string and body merged, asks for; none for the values as they are.
    pub fn of(request: &Fields) -> Option<Unboxing> {
        let is_funnel = request.get("insight").and_then(Value::as_str) == Some("FUNNELS");
        let kind = request.get("breakdown_type").and_then(Value::as_str);
        let several = request.get("breakdowns").is_some_and(|list| !list.is_null());
        let single = request.get("breakdown").is_some_and(Value::is_string);
        (is_funnel && matches!(kind, Some("person" | "event")) && (several || single))
            .then_some(Unboxing { several })
    }

    /// Changes the rows of a funnel by steps; other results stay as they are.
    pub fn apply(self, result: &mut Value) {
        for row in result.as_array_mut().into_iter().flatten().filter_map(Value::as_array_mut).flatten() {
            let Some(row) = row.as_object_mut() else { continue };
            for key in ["breakdown", "breakdown_value"] {
                if let Some(Value::Array(values)) = row.get_mut(key)
                    && values.len() == 1
                    && let Some(value) = values.pop()
                {
                    row.insert(key.to_owned(), value);
                }
            }
            if self.several
                && let Some(value) = row.remove("breakdown")
            {
                row.insert("breakdowns".to_owned(), value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    fn shown(request: Value, value: Value) -> Value {
        let mut result = json!([[{"breakdown": value, "breakdown_value": value, "count": 1}]]);
        if let Some(unboxing) = Unboxing::of(request.as_object().unwrap()) {
            unboxing.apply(&mut result);
        }
        result[0][0].take()
    }

    #[test]
    fn one_value_is_a_text_for_those_who_asked_the_old_way() {
        let old = json!({"insight": "FUNNELS", "breakdown_type": "event", "breakdown": "$browser"});
        let unboxed = json!({"breakdown": "Safari", "breakdown_value": "Safari", "count": 1});
        assert_eq!(shown(old.clone(), json!(["Safari"])), unboxed);
        let boxed = json!({"breakdown": ["Safari"], "breakdown_value": ["Safari"], "count": 1});
        for (key, value) in [
            ("insight", json!("funnels")),
            ("breakdown_type", json!("events")),
            ("breakdown_type", Value::Null),
            ("breakdown", json!(["$browser"])),
        ] {
            let mut other = old.clone();
            other[key] = value;
            assert_eq!(shown(other, json!(["Safari"])), boxed);
        }
    }

    #[test]
    fn a_list_of_breakdowns_keeps_its_name() {
        let request = json!({"insight": "FUNNELS", "breakdown_type": "person", "breakdowns": [{"property": "a"}]});
        let several = json!({"breakdowns": ["a", "b"], "breakdown_value": ["a", "b"], "count": 1});
        assert_eq!(shown(request.clone(), json!(["a", "b"])), several);
        assert_eq!(shown(request, json!(["a"])), json!({"breakdowns": "a", "breakdown_value": "a", "count": 1}));
    }

    #[test]
    fn a_funnel_over_time_is_left_alone() {
        let request = json!({"insight": "FUNNELS", "breakdown_type": "person", "breakdown": "a"});
        let mut result = json!([{"breakdown_value": ["a"], "data": [1]}]);
        Unboxing::of(request.as_object().unwrap()).unwrap().apply(&mut result);
        assert_eq!(result, json!([{"breakdown_value": ["a"], "data": [1]}]));
    }
}
