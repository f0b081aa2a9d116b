//! The query parameters of the list of insights: filters and order.
//!
//! Must stay true: filters combine with AND; the order is total (ties go by id), so pages neither repeat nor skip.

use std::cmp::Ordering;

use chrono::{DateTime, Utc};
use chrono_tz::Tz;
use pennon_analytics::kinds::stored_kinds;
use pennon_filters::body::FieldError;
use pennon_filters::body::fields::{self, invalid_choice};
use pennon_filters::dates::grammar::DateText;
use serde_json::Value;

use crate::insight::InsightRow;
use crate::limits;
use crate::placement::Dashboards;
use crate::views::view_times::ViewTimes;

/// A field that a list is sorted by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SortField {
    Id,
    ShortId,
    Name,
    Order,
    CreatedAt,
    UpdatedAt,
    LastModifiedAt,
    Favorited,
    Saved,
    LastViewedAt,
    CreatedBy,
}

const SORT_FIELDS: [(&str, SortField); 11] = [
    ("id", SortField::Id),
    ("short_id", SortField::ShortId),
    ("name", SortField::Name),
    ("order", SortField::Order),
    ("created_at", SortField::CreatedAt),
    ("updated_at", SortField::UpdatedAt),
    ("last_modified_at", SortField::LastModifiedAt),
    ("favorited", SortField::Favorited),
    ("saved", SortField::Saved),
    ("last_viewed_at", SortField::LastViewedAt),
    ("created_by", SortField::CreatedBy),
];

/// The query of a list of insights.
#[derive(Debug, Clone)]
pub struct InsightListQuery {
    /// Only insights that these users created. The existence of the users is not checked here.
    pub created_by: Option<Vec<u64>>,
    /// Only insights that the caller created.
    own: bool,
    short_id: Option<String>,
    saved: Option<bool>,
    favorited: bool,
    /// Lower case.
    search: Option<String>,
    insight: Option<String>,
    /// Only insights that are on all of these dashboards.
    dashboards: Vec<u64>,
    tags: Option<Vec<String>>,
    modified_after: Option<DateTime<Utc>>,
    modified_before: Option<DateTime<Utc>>,
    /// Only insights that refer to this flag. Not in the summary row: needs the record.
    pub feature_flag: Option<String>,
    /// Whether the response has the short JSON.
    pub basic: bool,
    order: SortField,
    descending: bool,
}

impl InsightListQuery {
    /// Parses the query parameters. The last of a repeated one is used, unknown ones are ignored. `now` is in the project's
    /// time zone.
    pub fn parse(parameters: &[(String, String)], now: DateTime<Tz>) -> Result<InsightListQuery, FieldError> {
        let last = |name: &str| {
            parameters.iter().rev().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
        };
        let some = |name: &str| last(name).filter(|value| !value.is_empty());
        let (order, descending) = order(some("order").unwrap_or("order"))?;
        Ok(InsightListQuery {
            created_by: some("created_by").map(user_ids).transpose()?,
            own: last("user").is_some(),
            short_id: some("short_id").map(str::to_owned),
            saved: some("saved").map(is_true),
            favorited: last("favorited").is_some(),
            search: some("search").map(search).transpose()?,
            insight: some("insight").map(str::to_owned),
            dashboards: some("dashboards").map(dashboards).transpose()?.unwrap_or_default(),
            tags: some("tags").map(tags).transpose()?,
            modified_after: some("date_from").map(|text| instant("date_from", text, now)).transpose()?,
            modified_before: some("date_to").map(|text| instant("date_to", text, now)).transpose()?,
            feature_flag: some("feature_flag").map(str::to_owned),
            basic: last("basic").is_some_and(is_true),
            order,
            descending,
        })
    }

    /// Whether the row matches the filters for the user `caller`. `live` are the dashboards that are not deleted.
    pub fn matches(&self, row: &InsightRow, caller: u64, live: &Dashboards) -> bool {
        let is_on = |id: &u64| row.dashboards.contains(id) && live.has(*id);
        let has =
            |text: &String| self.search.as_ref().is_none_or(|search| text.to_lowercase().contains(search));
        let texts = [&row.name, &row.derived_name, &row.description].into_iter().flatten().chain(&row.tags);
        self.created_by.as_ref().is_none_or(|ids| ids.contains(&row.created_by))
            && (!self.own || row.created_by == caller)
            && self.short_id.as_ref().is_none_or(|short_id| *short_id == row.short_id)
            && self.saved.is_none_or(|saved| match saved {
                true => row.saved || row.dashboards.iter().any(is_on),
                false => !row.saved,
            })
            && (!self.favorited || row.favorited)
            && (self.search.is_none() || texts.into_iter().any(has))
            && self.insight.as_ref().is_none_or(|kind| is_of_kind(row, kind))
            && self.dashboards.iter().all(is_on)
            && self.tags.as_ref().is_none_or(|tags| row.tags.iter().any(|tag| tags.contains(tag)))
            && self.modified_after.is_none_or(|at| row.last_modified_at > at)
            && self.modified_before.is_none_or(|at| row.last_modified_at < at)
    }

    /// Whether a filter depends on which dashboards are deleted.
    pub fn needs_dashboards(&self) -> bool {
        self.saved == Some(true) || !self.dashboards.is_empty()
    }

    /// Whether the order depends on when insights were viewed.
    pub fn needs_view_times(&self) -> bool {
        self.order == SortField::LastViewedAt
    }

    /// The order of two insights. Null is last ascending and first descending; for `last_viewed_at` it is the other way
    /// round, so that the latest views come first.
    pub fn compare(&self, left: &InsightRow, right: &InsightRow, view_times: &ViewTimes) -> Ordering {
        let order = match self.order {
            SortField::Id => left.id.cmp(&right.id),
            SortField::ShortId => left.short_id.cmp(&right.short_id),
            SortField::Name => (left.name.is_none(), &left.name).cmp(&(right.name.is_none(), &right.name)),
            SortField::Order => (left.order.is_none(), left.order).cmp(&(right.order.is_none(), right.order)),
            SortField::CreatedAt => left.created_at.cmp(&right.created_at),
            SortField::UpdatedAt => left.updated_at.cmp(&right.updated_at),
            SortField::LastModifiedAt => left.last_modified_at.cmp(&right.last_modified_at),
            SortField::Favorited => left.favorited.cmp(&right.favorited),
            SortField::Saved => left.saved.cmp(&right.saved),
            SortField::LastViewedAt => view_times.get(&left.id).cmp(&view_times.get(&right.id)),
            SortField::CreatedBy => left.created_by.cmp(&right.created_by),
        };
        let order = if self.descending { order.reverse() } else { order };
        order.then(left.id.cmp(&right.id))
    }
}

fn is_of_kind(row: &InsightRow, kind: &str) -> bool {
    let wrapper = row.query_kind.as_deref();
    let is_sql = matches!(wrapper, Some("DataTableNode" | "DataVisualizationNode" | "InsightVizNode"))
        && row.source_kind.as_deref() == Some("HogQLQuery");
    if let Some((_, query)) = stored_kinds().find(|(name, _)| *name == kind) {
        return (wrapper.is_none() && row.filters_insight.as_deref() == Some(kind))
            || (wrapper == Some("InsightVizNode") && row.source_kind.as_deref() == Some(query));
    }
    match kind {
        "JSON" => wrapper.is_some() && !is_sql,
        "SQL" => is_sql,
        other => row.filters_insight.as_deref() == Some(other),
    }
}

/// The values of a query parameter that mean true.
pub fn is_true(text: &str) -> bool {
    matches!(text.to_ascii_lowercase().as_str(), "y" | "yes" | "t" | "true" | "on" | "1")
}

/// The error for a user that does not exist.
pub fn no_such_user() -> FieldError {
    let detail = "Select a valid choice. That choice is not one of the available choices.";
    FieldError::new("created_by", "invalid_choice", detail)
}

/// One id, or a JSON list of ids.
fn user_ids(text: &str) -> Result<Vec<u64>, FieldError> {
    let ids = match serde_json::from_str::<Value>(text.trim()) {
        Ok(Value::Array(list)) if list.len() <= limits::PARAMETER_ENTRIES => list,
        Ok(Value::Array(_)) => return Err(too_many("created_by")),
        Ok(value) => vec![value],
        Err(_) => return Err(no_such_user()),
    };
    ids.iter().map(|id| id.as_u64().ok_or_else(no_such_user)).collect()
}

fn search(text: &str) -> Result<String, FieldError> {
    if text.chars().count() > limits::SEARCH_CHARS {
        let detail = format!("Ensure this field has no more than {} characters.", limits::SEARCH_CHARS);
        return Err(FieldError::new("search", "max_length", detail));
    }
    Ok(text.to_lowercase())
}

fn dashboards(text: &str) -> Result<Vec<u64>, FieldError> {
    let name = "dashboards";
    let number = |id: &Value| fields::integer_key(name, id).map(|id| u64::try_from(id).unwrap_or(u64::MAX));
    list(name, text)?.iter().map(number).collect()
}

fn tags(text: &str) -> Result<Vec<String>, FieldError> {
    let tags = list("tags", text)?;
    let lower = |tag: &Value| tag.as_str().map(|tag| tag.trim().to_lowercase());
    tags.iter()
        .map(|tag| lower(tag).ok_or_else(|| FieldError::invalid("tags", "Not a valid string.")))
        .collect()
}

fn list(name: &str, text: &str) -> Result<Vec<Value>, FieldError> {
    match serde_json::from_str(text) {
        Ok(Value::Array(list)) if list.len() <= limits::PARAMETER_ENTRIES => Ok(list),
        Ok(Value::Array(_)) => Err(too_many(name)),
        _ => Err(FieldError::invalid(name, "Expected a JSON list.")),
    }
}

fn too_many(name: &str) -> FieldError {
    FieldError::invalid(name, format!("At most {} entries are allowed.", limits::PARAMETER_ENTRIES))
}

fn instant(name: &str, text: &str, now: DateTime<Tz>) -> Result<DateTime<Utc>, FieldError> {
    let text =
        DateText::parse_parameter(text, name).map_err(|error| FieldError::invalid(name, error.detail))?;
    let at = text
        .instant(now)
        .ok_or_else(|| FieldError::invalid(name, "The date lies outside the years 1 to 9999."))?;
    Ok(at.with_timezone(&Utc))
}

fn order(text: &str) -> Result<(SortField, bool), FieldError> {
    let (name, descending) = text.strip_prefix('-').map_or((text, false), |name| (name, true));
    let field = SORT_FIELDS.iter().find(|(known, _)| *known == name);
    field.map(|(_, field)| (*field, descending)).ok_or_else(|| invalid_choice("order", text))
}

#[cfg(test)]
mod tests;
