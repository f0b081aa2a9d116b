//! Converts stored values to text and numbers in SQL, as [`pennon_filters::text`] does.
//!
//! Must stay true: missing and null have no text and no number; `50.0` and `50` have the same text.

use super::{SqlColumn, SqlSegment, quote};
use crate::clickhouse::ColumnType;
use crate::scan::ColumnKey;

/// 2^53: below it, floats represent all whole numbers.
const EXACT_FLOAT_LIMIT: &str = "9007199254740992";

/// The text of a value of a segment's events.
pub(crate) fn text(segment: &SqlSegment, key: &ColumnKey) -> String {
    let ColumnKey::Property(key) = key else { return "distinct_id".to_owned() };
    first_non_null(
        property_column(segment, key).map(|(column, kind)| column_text(&column, kind)),
        json_column(segment, key).map(|it| json_text(&it)),
    )
    .unwrap_or_else(|| "CAST(NULL, 'Nullable(String)')".to_owned())
}

/// The number of a value of a segment's events.
pub(crate) fn number(segment: &SqlSegment, key: &ColumnKey) -> String {
    let ColumnKey::Property(key) = key else { return numeric("distinct_id") };
    first_non_null(
        property_column(segment, key).and_then(|(column, kind)| column_number(&column, kind)),
        json_column(segment, key).map(|it| json_number(&it)),
    )
    .unwrap_or_else(|| "CAST(NULL, 'Nullable(Float64)')".to_owned())
}

fn first_non_null(own: Option<String>, rest: Option<String>) -> Option<String> {
    match (own, rest) {
        (Some(own), Some(rest)) => Some(format!("ifNull({own}, {rest})")),
        (own, rest) => own.or(rest),
    }
}

/// The property column of a key.
fn property_column(segment: &SqlSegment, key: &str) -> Option<(String, ColumnType)> {
    let column = segment.columns.get(key)?;
    Some((quote::name(&format!("p.{key}")), column.kind))
}

/// The JSON text of a key in the JSON column; none if the file has no such value.
fn json_column(segment: &SqlSegment, key: &str) -> Option<String> {
    let listed = match (segment.columns.get(key), &segment.rest) {
        (Some(SqlColumn { exceptions, .. }), _) => *exceptions,
        (None, Some(keys)) => keys.iter().any(|listed| listed == key),
        (None, None) => true,
    };
    listed.then(|| format!("nullIf(JSONExtractRaw(properties, {}), '')", quote::text(key)))
}

fn column_text(column: &str, kind: ColumnType) -> String {
    match kind {
        ColumnType::Text => column.to_owned(),
        ColumnType::Integer | ColumnType::Boolean => format!("toString({column})"),
        ColumnType::Float => float_text(column),
        ColumnType::Json => json_text(column),
    }
}

/// None for types that are never numbers.
fn column_number(column: &str, kind: ColumnType) -> Option<String> {
    match kind {
        ColumnType::Text => Some(numeric(column)),
        ColumnType::Integer | ColumnType::Float => Some(format!("toFloat64({column})")),
        ColumnType::Boolean => None,
        ColumnType::Json => Some(json_number(column)),
    }
}

fn float_text(number: &str) -> String {
    format!(
        "if(trunc({number}) = {number} AND abs({number}) < {EXACT_FLOAT_LIMIT}, toString(toInt64({number})), toString({number}))"
    )
}

/// Parses a finite decimal number.
fn numeric(text: &str) -> String {
    format!("if(match({text}, '^[0-9+.eE-]+$'), toFloat64OrNull({text}), NULL)")
}

fn json_text(json: &str) -> String {
    let float = float_text(&format!("toFloat64OrNull({json})"));
    format!(
        "multiIf({json} IS NULL OR {json} = 'null', NULL, startsWith({json}, '\"'), JSONExtractString({json}), \
         match({json}, '^-?[0-9].*[.eE]'), {float}, {json})"
    )
}

fn json_number(json: &str) -> String {
    let spelled = numeric(&format!("JSONExtractString({json})"));
    format!(
        "multiIf({json} IS NULL, NULL, startsWith({json}, '\"'), {spelled}, match({json}, '^-?[0-9]'), \
         toFloat64OrNull({json}), NULL)"
    )
}
