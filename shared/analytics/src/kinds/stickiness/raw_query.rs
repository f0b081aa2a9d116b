//! The fields of a stickiness query in a request, not parsed yet. Both dialects are read to them.

use serde_json::{Map, Value};

use crate::query::{Field, RawCommon};

/// The unparsed fields of a stickiness query.
#[derive(Debug, Clone)]
pub struct RawStickiness<'a> {
    pub common: RawCommon<'a>,
    pub interval_count: Field<'a>,
    pub computed_as: Field<'a>,
    pub criterion: Option<&'a Map<String, Value>>,
    pub compare: Field<'a>,
    pub compare_to: Field<'a>,
}
