//! The persons of a project: who is stored, and what is known of them.
//!
//! Must stay true: a list goes through at most as many persons as the event store looks at one by one, and is refused
//! above that; one person is found by its id or a distinct id however many there are.

use axum::extract::State;
use axum::response::Response;
use chrono_tz::Tz;
use pennon_core::auth::Scope;
use pennon_core::error::{ApiError, ApiResult};
use pennon_core::http::{Call, Page, json};
use pennon_core::model::Project;
use pennon_engine::filter::PersonFilter;
use uuid::Uuid;

use crate::Calculation;
use crate::calculator::people::shown_person;
use crate::calculator::persons::Wanted;
use crate::errors::refusal;
use crate::handlers::READ_INSIGHTS;

/// Persons are the people behind numbers too: whoever may read these may look them up.
pub(crate) const READ_PERSONS: Scope = Scope::either("person:read", READ_INSIGHTS);
/// Most characters of a value that is looked for.
const TEXT_MAX: usize = 1000;

/// `GET P/persons/`
pub async fn list(State(state): State<Calculation>, call: Call) -> ApiResult<Response> {
    let deadline = state.calculator.deadline();
    let (access, []) = state.app.project(&call, READ_PERSONS, |_| []).await?;
    let wanted = wanted(&call, &access.project)?;
    let page = Page::of(&call);
    let found = state.calculator.list_persons(&access.project, wanted, page, deadline).await?;
    let results: Vec<String> =
        found.persons.into_iter().map(|person| shown_person(person).to_string()).collect();
    page.reply(&call, found.total, &results)
}

/// `GET P/persons/{id}/`
pub async fn retrieve(State(state): State<Calculation>, call: Call) -> ApiResult<Response> {
    let deadline = state.calculator.deadline();
    let (access, []) = state.app.project(&call, READ_PERSONS, |_| []).await?;
    let id: Uuid = call.param("id").parse().map_err(|_| {
        let detail =
            "The ID does not look like that of a person. A distinct id goes to persons/?distinct_id=.";
        ApiError::invalid("invalid_input", detail, Some("id"))
    })?;
    match state.calculator.person(&access.project, id, deadline).await? {
        Some(person) => Ok(json(shown_person(person))),
        None => Err(ApiError::not_found()),
    }
}

fn wanted(call: &Call, project: &Project) -> ApiResult<Wanted> {
    if call.query_value("cohort").is_some_and(|value| !value.trim().is_empty()) {
        let detail = "Not supported yet: the parameter cohort of a list of persons.";
        return Err(ApiError::invalid("invalid_input", detail, Some("cohort")));
    }
    let zone: Tz = project.timezone.parse().map_err(|error| ApiError::internal(&error))?;
    let properties = call.query_value("properties").map(str::trim).filter(|text| !text.is_empty());
    let parse = |text| PersonFilter::parse(text, call.now.with_timezone(&zone), "properties");
    Ok(Wanted {
        distinct_id: text(call, "distinct_id")?,
        email: text(call, "email")?,
        search: text(call, "search")?,
        properties: properties.map(parse).transpose().map_err(refusal)?,
    })
}

/// A value that is looked for; an empty one is none.
fn text(call: &Call, name: &str) -> ApiResult<Option<String>> {
    let value = call.query_value(name).unwrap_or("").trim();
    if value.chars().count() > TEXT_MAX {
        let detail = format!("Ensure this field has no more than {TEXT_MAX} characters.");
        return Err(ApiError::invalid("max_length", detail, Some(name)));
    }
    Ok((!value.is_empty()).then(|| value.to_owned()))
}
