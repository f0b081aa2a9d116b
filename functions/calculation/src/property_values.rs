//! The values of a property of events or persons, the most frequent first.

use std::collections::BTreeSet;

use axum::extract::State;
use axum::response::Response;
use pennon_core::auth::Scope;
use pennon_core::error::ApiResult;
use pennon_core::http::{Call, json};
use pennon_core::limits::calculation::{VALUES, VALUES_DEFAULT};
use serde_json::{Value, json as object};

use crate::Calculation;
use crate::calculator::property_values::{ValueCount, ValuesQuery};
use crate::events::READ_EVENTS;
use crate::parameters::{boolean, integer, repeated, required, text};

const READ_PERSON_VALUES: Scope = Scope::either("person:read", READ_EVENTS);
/// The key that lists the names of custom events: those that the vendor's libraries do not send by themselves.
const CUSTOM_EVENTS: &str = "custom_event";

/// `GET P/events/values/`
pub async fn event_values(State(state): State<Calculation>, call: Call) -> ApiResult<Response> {
    let deadline = state.calculator.deadline();
    let (access, []) = state.app.project(&call, READ_EVENTS, |_| []).await?;
    let mut query = query(&call)?;
    query.events = repeated(&call, "event_name")?;
    let is_column = boolean(&call, "is_column")? == Some(true);
    if query.key == CUSTOM_EVENTS || (is_column && query.key == "event") {
        let names = state.calculator.event_names(&access.project).await?;
        let names = names.into_iter().map(|event| event.name);
        let names = names.filter(|name| query.key != CUSTOM_EVENTS || !name.starts_with('$'));
        let search = query.search.as_deref().unwrap_or("").to_lowercase();
        let names = names.filter(|name| name.to_lowercase().contains(&search));
        let limit = if query.key == CUSTOM_EVENTS { VALUES } else { query.limit };
        return Ok(json(names.take(limit).map(|name| object!({"name": name})).collect::<Vec<_>>()));
    }
    let now = call.now.timestamp_micros();
    let values = state.calculator.event_property_values(&access.project, query, now, deadline).await?;
    Ok(json(values.iter().map(|counted| object!({"name": name_of(counted)})).collect::<Vec<_>>()))
}

/// `GET P/persons/values/`
pub async fn person_values(State(state): State<Calculation>, call: Call) -> ApiResult<Response> {
    let deadline = state.calculator.deadline();
    let (access, []) = state.app.project(&call, READ_PERSON_VALUES, |_| []).await?;
    let values = state.calculator.person_property_values(&access.project, query(&call)?, deadline).await?;
    let to_json = |counted| object!({"name": name_of(counted), "count": counted.count});
    Ok(json(values.iter().map(to_json).collect::<Vec<_>>()))
}

fn query(call: &Call) -> ApiResult<ValuesQuery> {
    required(call, "key")?;
    Ok(ValuesQuery {
        // A name may begin or end with a blank.
        key: call.query_value("key").unwrap_or_default().to_owned(),
        search: text(call, "value")?.map(str::to_owned),
        events: BTreeSet::new(),
        limit: integer(call, "limit", 1, VALUES)?.unwrap_or(VALUES_DEFAULT),
    })
}

/// The name of a value in the response: texts and numbers unchanged, other values as JSON text.
fn name_of(counted: &ValueCount) -> Value {
    match &counted.value {
        value @ (Value::String(_) | Value::Number(_)) => value.clone(),
        value => Value::from(value.to_string()),
    }
}
