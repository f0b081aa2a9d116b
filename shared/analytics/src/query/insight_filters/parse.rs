//! Parses insight filters: flat objects with the lists `events` and `actions`.
//!
//! Must stay true: arrays and objects may be JSON strings; series are actions first, then events, stably sorted by
//! `order`, with a missing or zero order first.

use std::borrow::Cow;

use pennon_filters::{CalcError, CalcResult};
use serde_json::{Map, Value};

use super::super::field::{Field, RawBreakdown, RawCommon, RawSeries, parse_integer};

type Object = Map<String, Value>;

/// Parameter of links: `aggregation_group_type_index` 0 means the group type with index 0, as in query nodes. Without it, 0
/// means persons.
pub const GROUPS_FROM_ZERO: &str = "aggregation_group_types_from_zero";

/// The field with the group type that is counted, without a value for persons. 0 means persons and only 1 and above mean
/// groups, except in links of results for query nodes, which set [`GROUPS_FROM_ZERO`] to mean group type 0.
pub fn group_type_field(request: &Object) -> CalcResult<Field<'_>> {
    let group = Field::of(request, "aggregation_group_type_index", "aggregation_group_type_index");
    let from_zero = Field::of(request, GROUPS_FROM_ZERO, GROUPS_FROM_ZERO).boolean()?;
    let counts_persons = group.integer()?.is_none_or(|index| index == 0) && !from_zero;
    Ok(if counts_persons { Field { value: None, ..group } } else { group })
}

/// The fields that all kinds with series share.
pub fn common_fields(request: &Object) -> CalcResult<RawCommon<'_>> {
    let mut series = get_list(request, "actions")?
        .into_iter()
        .filter_map(|entry| raw_series(entry, "actions", true))
        .collect::<Vec<_>>();
    series.extend(
        get_list(request, "events")?.into_iter().filter_map(|entry| raw_series(entry, "events", false)),
    );
    series.sort_by_key(|entry| {
        entry.fields.get("order").and_then(parse_integer).filter(|order| *order != 0).unwrap_or(-1)
    });
    Ok(RawCommon { series, ..fields_without_series(request) })
}

/// The fields that all kinds share. The series are left empty, whatever `events` and `actions` hold.
pub fn fields_without_series(request: &Object) -> RawCommon<'_> {
    RawCommon {
        series: Vec::new(),
        properties: Field::of(request, "properties", "properties"),
        filter_test_accounts: Field::of(request, "filter_test_accounts", "filter_test_accounts"),
        date_from: Field::of(request, "date_from", "date_from"),
        date_to: Field::of(request, "date_to", "date_to"),
        explicit_date: Field::of(request, "explicit_date", "explicit_date"),
        interval: Field::of(request, "interval", "interval"),
        breakdown: breakdown_fields(request),
    }
}

fn breakdown_fields(request: &Object) -> RawBreakdown<'_> {
    let field = |key: &'static str| Field::of(request, key, key);
    RawBreakdown {
        breakdown: field("breakdown"),
        kind: field("breakdown_type"),
        breakdowns: field("breakdowns"),
        limit: field("breakdown_limit"),
        group_index: field("breakdown_group_type_index"),
        normalize_url: field("breakdown_normalize_url"),
        bins: field("breakdown_histogram_bin_count"),
        hide_other: field("breakdown_hide_other_aggregation"),
    }
}

/// Gets the entries of a list, which may be a JSON string.
pub fn get_list<'a>(request: &'a Object, key: &'static str) -> CalcResult<Vec<Cow<'a, Value>>> {
    let not_a_list = || CalcError::invalid(key, "Expected a list of items.");
    match request.get(key) {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::Array(list)) => Ok(list.iter().map(Cow::Borrowed).collect()),
        Some(Value::String(text)) if text.trim().is_empty() => Ok(Vec::new()),
        Some(Value::String(text)) => match serde_json::from_str(text) {
            Ok(Value::Array(list)) => Ok(list.into_iter().map(Cow::Owned).collect()),
            Ok(Value::Null) => Ok(Vec::new()),
            Ok(_) => Err(not_a_list()),
            Err(_) if matches!(key, "events" | "actions") => {
                Err(CalcError::invalid(key, "Properties are unparsable!"))
            }
            Err(_) => Err(CalcError::invalid(key, "The text is not valid JSON.")),
        },
        Some(_) => Err(not_a_list()),
    }
}

/// Parses an entry of a series list. Entries that are not objects and actions without an id are dropped.
pub fn raw_series<'a>(entry: Cow<'a, Value>, attr: &'static str, action: bool) -> Option<RawSeries<'a>> {
    let fields = match entry {
        Cow::Borrowed(Value::Object(fields)) => Cow::Borrowed(fields),
        Cow::Owned(Value::Object(fields)) => Cow::Owned(fields),
        _ => return None,
    };
    let id = fields.get("id").filter(|id| !id.is_null()).cloned();
    (id.is_some() || !action).then_some(RawSeries { attr, action, id, fields })
}
