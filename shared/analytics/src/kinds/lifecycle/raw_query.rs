//! The fields of a lifecycle query in a request, not parsed yet. Both dialects are read to them.

use crate::query::{Field, RawCommon};

/// The unparsed fields of a lifecycle query.
#[derive(Debug, Clone)]
pub struct RawLifecycle<'a> {
    pub common: RawCommon<'a>,
    pub group_type: Field<'a>,
}
