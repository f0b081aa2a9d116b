//! Keys of steps in results: `<number>_<item>`.

use std::fmt;

use pennon_filters::error::{CalcError, CalcResult};
use serde::{Deserialize, Serialize};

use crate::query::Field;

/// A step of the result: its number in the session, from 1 on, and its item.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathKey {
    /// The number.
    pub number: u32,
    /// The item, which may have underscores too.
    pub item: String,
}

impl PathKey {
    /// Parses the key that a field holds; `None` if the field is absent.
    pub(super) fn parse_field(field: &Field<'_>) -> CalcResult<Option<Self>> {
        let Some(text) = field.text()? else { return Ok(None) };
        let invalid = || {
            let detail =
                format!("\"{text}\" is not the key of a step, which is a number, \"_\" and the step's name.");
            CalcError::invalid(field.attr, detail)
        };
        let (number, item) = text.split_once('_').ok_or_else(invalid)?;
        let is_number = number.bytes().all(|digit| digit.is_ascii_digit());
        let number = number.parse().ok().filter(|number| *number > 0 && is_number).ok_or_else(invalid)?;
        Ok(Some(Self { number, item: item.to_owned() }))
    }
}

impl fmt::Display for PathKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}_{}", self.number, self.item)
    }
}
