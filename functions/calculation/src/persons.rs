//! The persons of a project: list and details.
//!
//! Must stay true: a list scans at most as many persons as the event store allows for a scan, and fails above that; the
//! lookup of one person by id or distinct id works for any number of persons.

use axum::extract::State;
use axum::response::Response;
use chrono_tz::Tz;
use pennon_analytics::filter::PersonFilter;
use pennon_core::auth::Scope;
use pennon_core::error::{ApiError, ApiResult};
use pennon_core::http::{Call, Page, json};
use pennon_core::limits::calculation::TEXT_CHARS;
use pennon_core::model::Project;
use uuid::Uuid;

use crate::Calculation;
use crate::calculator::actors::person_json;
use crate::calculator::persons::PersonListFilter;
use crate::errors::engine_error;
use crate::handlers::READ_INSIGHTS;

/// The actors behind the numbers of an insight are persons too, so the scope for insights is enough.
pub(crate) const READ_PERSONS: Scope = Scope::either("person:read", READ_INSIGHTS);

/// `GET P/persons/`
pub async fn list(State(state): State<Calculation>, call: Call) -> ApiResult<Response> {
    let deadline = state.calculator.deadline();
    let (access, []) = state.app.project(&call, READ_PERSONS, |_| []).await?;
    let filter = filter(&call, &access.project)?;
    let page = Page::of(&call);
    let persons = state.calculator.list_persons(&access.project, filter, page, deadline).await?;
    let results: Vec<String> =
        persons.persons.into_iter().map(|person| person_json(person).to_string()).collect();
    page.reply(&call, persons.total, &results)
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
    match state.calculator.get_person(&access.project, id, deadline).await? {
        Some(person) => Ok(json(person_json(person))),
        None => Err(ApiError::not_found()),
    }
}

fn filter(call: &Call, project: &Project) -> ApiResult<PersonListFilter> {
    if call.query_value("cohort").is_some_and(|value| !value.trim().is_empty()) {
        let detail = "Not supported yet: the parameter cohort of a list of persons.";
        return Err(ApiError::invalid("invalid_input", detail, Some("cohort")));
    }
    let zone: Tz = project.timezone.parse().map_err(|error| ApiError::internal(&error))?;
    let properties = call.query_value("properties").map(str::trim).filter(|text| !text.is_empty());
    let parse = |text| PersonFilter::parse(text, call.now.with_timezone(&zone), "properties");
    Ok(PersonListFilter {
        distinct_id: text(call, "distinct_id")?,
        email: text(call, "email")?,
        search: text(call, "search")?,
        properties: properties.map(parse).transpose().map_err(engine_error)?,
    })
}

/// A search value; `None` where it is empty.
fn text(call: &Call, name: &str) -> ApiResult<Option<String>> {
    let value = call.query_value(name).unwrap_or("").trim();
    if value.chars().count() > TEXT_CHARS {
        let detail = format!("Ensure this field has no more than {TEXT_CHARS} characters.");
        return Err(ApiError::invalid("max_length", detail, Some(name)));
    }
    Ok((!value.is_empty()).then(|| value.to_owned()))
}
