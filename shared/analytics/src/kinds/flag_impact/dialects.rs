//! The form of a flag impact query in requests: an object in the parameter `impact`.
//!
//! Must stay true: parsing what [`to_insight_filters`] writes gives the same query again.

use std::borrow::Cow;

use pennon_filters::{CalcError, CalcResult};
use serde_json::{Map, Value, json};

use super::flag::{FlagUnderTest, FlagVariant};
use super::limits::{
    self, CONFIDENCE_LEVEL_DEFAULT, CONFIDENCE_LEVEL_MAX, CONFIDENCE_LEVEL_MIN, MINIMUM_SAMPLE_DEFAULT,
    MINIMUM_SAMPLE_MAX, MINIMUM_SAMPLE_MIN, NAME_BYTES, VARIANT_BYTES,
};
use super::metric::Metric;
use super::query::{Exposure, FlagImpactQuery, InferenceMethod};
use crate::kinds::ParsedQuery;
use crate::query::node::get_object;
use crate::query::{Field, parse_integer};

type Object = Map<String, Value>;

/// The parameter with the query.
pub(super) const IMPACT: &str = "impact";

/// Parses a request: the parameter `impact`, an object or its JSON text.
pub(super) fn parse_filters(request: &Object) -> CalcResult<ParsedQuery> {
    let invalid = || CalcError::invalid(IMPACT, "Expected an object with the query of a flag's impact.");
    let impact: Cow<'_, Value> = match request.get(IMPACT) {
        None | Some(Value::Null) => {
            return Err(CalcError::coded("required", Some(IMPACT), "This field is required."));
        }
        Some(Value::String(text)) => Cow::Owned(serde_json::from_str(text).map_err(|_| invalid())?),
        Some(other) => Cow::Borrowed(other),
    };
    let query = parse_impact(impact.as_object().ok_or_else(invalid)?)?;
    Ok(ParsedQuery::Query(query.into()))
}

fn parse_impact(fields: &Object) -> CalcResult<FlagImpactQuery> {
    let flag = get_object(fields, "flag")?;
    let flag = parse_flag(flag.ok_or_else(|| CalcError::coded("required", Some("flag"), REQUIRED))?)?;
    let mut metric = match (fields.get("filters"), fields.get("query")) {
        (Some(Value::Object(filters)), _) => Metric::of_filters(filters, &flag)?,
        (_, None) => return Err(CalcError::coded("required", Some("query"), REQUIRED)),
        (_, Some(Value::Null)) => {
            return Err(CalcError::coded("null", Some("query"), "This field may not be null."));
        }
        (_, Some(node)) => Metric::of_node(node, &flag)?,
    };
    if let Some(dates) = get_object(fields, "dateRange")? {
        let date = |key: &'static str, attr: &'static str| Field::inside(Some(dates), key, attr);
        let text = |field: Field<'_>| field.text().map(|text| text.map(|text| text.trim().to_owned()));
        let common = metric.common_mut();
        common.dates.from = text(date("date_from", "dateRange__date_from"))?;
        common.dates.to = text(date("date_to", "dateRange__date_to"))?;
        common.dates.explicit = date("explicitDate", "dateRange__explicitDate").boolean()?;
        common.dates.validate()?;
    }
    Ok(FlagImpactQuery {
        flag,
        exposure: parse_exposure(fields)?,
        metric,
        method: parse_method(fields)?,
        confidence_level: parse_confidence_level(fields)?,
        minimum_sample: parse_minimum_sample(fields)?,
        control: parse_text(fields, "control", VARIANT_BYTES)?,
    })
}

const REQUIRED: &str = "This field is required.";

fn parse_flag(fields: &Object) -> CalcResult<FlagUnderTest> {
    let key = parse_text(fields, "key", NAME_BYTES)?;
    let key = key.ok_or_else(|| CalcError::coded("required", Some("flag__key"), REQUIRED))?;
    let invalid = |detail| CalcError::invalid("flag", detail);
    let group_type_index = match fields.get("group_type_index") {
        None | Some(Value::Null) => None,
        Some(index) => {
            let number = index.as_u64().filter(|index| *index < limits::GROUP_TYPES);
            let number = number.and_then(|index| u8::try_from(index).ok());
            Some(number.ok_or_else(|| limits::invalid_group_type("flag", index))?)
        }
    };
    let variants = fields.get("variants").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let variants = variants.iter().map(|variant| {
        let key = variant.get("key").and_then(Value::as_str);
        let key = key.ok_or_else(|| invalid("A variant needs a key."))?.to_owned();
        Ok(FlagVariant { key, share: variant.get("share").and_then(Value::as_f64) })
    });
    let no_split_reason = fields.get("no_split_reason").and_then(Value::as_str).map(str::to_owned);
    Ok(FlagUnderTest {
        key,
        group_type_index,
        variants: variants.collect::<CalcResult<_>>()?,
        no_split_reason,
    })
}

/// A text of at most so many bytes; `None` if absent, null or empty.
fn parse_text(fields: &Object, attr: &'static str, bytes: usize) -> CalcResult<Option<String>> {
    match fields.get(attr) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) if text.len() > bytes => Err(limits::too_long(attr, "text", bytes)),
        Some(Value::String(text)) => Ok(Some(text.clone()).filter(|text| !text.is_empty())),
        Some(_) => Err(CalcError::invalid(attr, "A string is needed.")),
    }
}

fn parse_exposure(fields: &Object) -> CalcResult<Exposure> {
    let event = parse_text(fields, "exposure_event", NAME_BYTES)?;
    let [called, property] = Exposure::NAMES;
    match (parse_text(fields, "exposure", NAME_BYTES)?, event) {
        (Some(name), event) if name == property => Ok(Exposure::Property { event }),
        (Some(name), _) if name != called => Err(CalcError::invalid(
            "exposure",
            format!("\"{name}\" is not an exposure. It must be one of {called}, {property}."),
        )),
        (_, None) => Ok(Exposure::FlagCalled),
        (_, Some(_)) => Err(CalcError::invalid(
            "exposure_event",
            format!("Only the exposure {property} has an event; {called} reads $feature_flag_called."),
        )),
    }
}

fn parse_method(fields: &Object) -> CalcResult<InferenceMethod> {
    let Some(name) = parse_text(fields, "method", NAME_BYTES)? else { return Ok(InferenceMethod::Bayesian) };
    let known = InferenceMethod::NAMES.iter().find(|(known, _)| *known == name);
    known.map(|(_, method)| *method).ok_or_else(|| {
        let names = InferenceMethod::NAMES.map(|(name, _)| name).join(", ");
        CalcError::invalid("method", format!("\"{name}\" is not a method. It must be one of {names}."))
    })
}

fn parse_confidence_level(fields: &Object) -> CalcResult<f64> {
    let attr = "confidence_level";
    match fields.get(attr) {
        None | Some(Value::Null) => Ok(CONFIDENCE_LEVEL_DEFAULT),
        Some(given) => {
            let level = given.as_f64();
            let level = level.filter(|level| (CONFIDENCE_LEVEL_MIN..=CONFIDENCE_LEVEL_MAX).contains(level));
            level.ok_or_else(|| {
                let detail =
                    format!("Must be a number from {CONFIDENCE_LEVEL_MIN} to {CONFIDENCE_LEVEL_MAX}.");
                CalcError::invalid(attr, detail)
            })
        }
    }
}

fn parse_minimum_sample(fields: &Object) -> CalcResult<u64> {
    let attr = "minimum_sample";
    match fields.get(attr) {
        None | Some(Value::Null) => Ok(MINIMUM_SAMPLE_DEFAULT),
        Some(given) => {
            let count = parse_integer(given).and_then(|count| u64::try_from(count).ok());
            let count = count.filter(|count| (MINIMUM_SAMPLE_MIN..=MINIMUM_SAMPLE_MAX).contains(count));
            count.ok_or_else(|| {
                let detail =
                    format!("Must be a whole number from {MINIMUM_SAMPLE_MIN} to {MINIMUM_SAMPLE_MAX}.");
                CalcError::invalid(attr, detail)
            })
        }
    }
}

/// The fields beside those of the metric.
fn own_fields(query: &FlagImpactQuery) -> Object {
    let FlagUnderTest { key, group_type_index, variants, no_split_reason } = &query.flag;
    let variants: Vec<Value> =
        variants.iter().map(|variant| json!({"key": variant.key, "share": variant.share})).collect();
    let fields = [
        (
            "flag",
            json!({"key": key, "group_type_index": group_type_index, "variants": variants, "no_split_reason": no_split_reason}),
        ),
        ("exposure", json!(query.exposure.name())),
        ("exposure_event", json!(query.exposure.event())),
        ("method", json!(query.method.name())),
        ("confidence_level", json!(query.confidence_level)),
        ("minimum_sample", json!(query.minimum_sample)),
        ("control", json!(query.control)),
    ];
    fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// The query as the parameter `impact`; its metric as insight filters.
pub(super) fn to_insight_filters(query: &FlagImpactQuery) -> Object {
    let mut impact = own_fields(query);
    impact.insert("filters".to_owned(), Value::Object(query.metric.query().to_insight_filters()));
    std::iter::once((IMPACT.to_owned(), Value::Object(impact))).collect()
}

/// The query with defaults filled in.
pub(super) fn canonical_node(query: &FlagImpactQuery) -> Value {
    let mut node = own_fields(query);
    node.insert("kind".to_owned(), json!("FlagImpact"));
    node.insert("metric".to_owned(), query.metric.query().canonical_node());
    Value::Object(node)
}
