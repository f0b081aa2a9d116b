//! The lifecycle query and its parser.

use pennon_filters::CalcResult;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::limits;
use super::raw_query::RawLifecycle;
use crate::filter::Parser;
use crate::query::{CommonFields, Series, parse_fields_without_breakdown, parse_series};

/// A lifecycle query.
#[derive(Debug, Clone, PartialEq)]
pub struct LifecycleQuery {
    /// At least one; an event has to match all of them. The first one names the result.
    pub series: Vec<Series>,
    /// Filters, date range and interval; never a breakdown.
    pub common: CommonFields,
    /// The group type to count; `None` counts persons.
    pub group_type_index: Option<u8>,
}

/// What an actor is in a period.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum LifecycleStatus {
    /// Its first active period, in which it was also created.
    New,
    /// Active as in the period before.
    Returning,
    /// Active, but not in the period before, and not new.
    Resurrecting,
    /// Not active any more since the period before.
    Dormant,
}

impl LifecycleStatus {
    /// All statuses, in the order of results.
    pub const ALL: [Self; 4] = [Self::New, Self::Returning, Self::Resurrecting, Self::Dormant];

    /// The names in requests and responses, in the same order.
    pub const NAMES: [&'static str; 4] = ["new", "returning", "resurrecting", "dormant"];

    /// The name in requests and responses.
    pub fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }

    /// Parses a name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.name() == name)
    }
}

/// Parses a lifecycle query; `None` if it has no series.
pub fn parse(raw: &RawLifecycle<'_>) -> CalcResult<Option<LifecycleQuery>> {
    let mut parser = Parser::default();
    if raw.common.series.len() > limits::SERIES {
        let attr = raw.common.series.first().map_or("events", |series| series.attr);
        return Err(limits::too_many(attr, "series", limits::SERIES));
    }
    let common = parse_fields_without_breakdown(&raw.common, &mut parser)?;
    let group_type_index = match raw.group_type.integer()? {
        None => None,
        Some(given) => match u8::try_from(given) {
            Ok(index) if u64::from(index) < limits::GROUP_TYPES => Some(index),
            _ => return Err(limits::invalid_group_type(raw.group_type.attr, &json!(given))),
        },
    };
    let series = raw.common.series.iter().map(|entry| parse_series(entry, &mut parser));
    let series = series.collect::<CalcResult<Vec<_>>>()?;
    if series.is_empty() {
        return Ok(None);
    }
    Ok(Some(LifecycleQuery { series, common, group_type_index }))
}
