//! DOM elements of an autocapture event: the clicked element first, then its ancestors.
//!
//! Must stay true: both formats of events, the string `$elements_chain` and the list `$elements`, parse to the same
//! elements; if an event has both, the string is used. Parsing never fails.

mod chain;
mod selector;
#[cfg(test)]
mod tests;

use std::collections::HashSet;

use pennon_filters::error::{CalcError, CalcResult};
use pennon_filters::operator::ValueTest;
use pennon_filters::text::{text_length, text_of};
use pennon_filters::work_budget::WorkBudget;
use serde_json::{Map, Value};

use crate::limits;
use crate::scan::{Column, ColumnKey, EventRun};
pub(crate) use selector::Selector;

/// One element.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Element {
    tag: String,
    classes: Vec<String>,
    text: Option<String>,
    href: Option<String>,
    /// Other attributes, without the prefix `attr__`.
    attributes: Vec<(String, String)>,
}

/// A condition on the elements of an event.
#[derive(Debug, Clone)]
pub(crate) enum ElementTest {
    /// An element has one of these tags; `negated`: none has.
    Tag { names: HashSet<String>, negated: bool },
    /// One of the selectors matches an element; `negated`: none does.
    Selector { selectors: Vec<Selector>, negated: bool },
    /// The href of the innermost link passes.
    Href(ValueTest),
    /// A text passes; with `all`, every text has to. Without any text, a missing value is tested.
    Text { test: ValueTest, all: bool },
}

/// Keys of property filters of type `element` that take every operator.
pub const TEXT_KEYS: [&str; 2] = ["text", "href"];
/// Keys of property filters of type `element` that take `exact` and `is_not`.
pub const EXACT_KEYS: [&str; 2] = ["tag_name", "selector"];
/// All keys of property filters of type `element`.
pub(crate) const KEYS: [&str; 4] = [EXACT_KEYS[0], TEXT_KEYS[0], TEXT_KEYS[1], EXACT_KEYS[1]];

impl ElementTest {
    /// Parses CSS selectors, one of which has to match.
    pub(crate) fn selectors<'a>(
        texts: impl Iterator<Item = &'a str>,
        negated: bool,
        attr: &str,
    ) -> CalcResult<Self> {
        let read = |text: &str| {
            if text.len() > limits::NAME_BYTES {
                return Err(limits::too_long(attr, "selector", limits::NAME_BYTES));
            }
            let wrong =
                || CalcError::invalid(attr, format!("\"{text}\" is not a selector that is known here."));
            Selector::parse(text).ok_or_else(wrong)
        };
        Ok(Self::Selector { selectors: texts.map(read).collect::<CalcResult<_>>()?, negated })
    }

    /// Whether the elements of an event pass. Other events have no elements.
    pub(crate) fn holds(&self, elements: &[Element]) -> bool {
        match self {
            Self::Tag { names, negated } => {
                elements.iter().any(|element| names.contains(&element.tag)) != *negated
            }
            Self::Selector { selectors, negated } => {
                selectors.iter().any(|selector| selector.matches(elements)) != *negated
            }
            Self::Href(test) => {
                let href = elements.iter().find_map(|element| element.href.clone());
                test.holds(href.map(Value::String).as_ref())
            }
            Self::Text { test, all } => {
                let mut texts = elements.iter().filter_map(|element| element.text.clone()).peekable();
                if texts.peek().is_none() {
                    return test.holds(None);
                }
                let passes = |text| test.holds(Some(&Value::String(text)));
                if *all { texts.all(passes) } else { texts.any(passes) }
            }
        }
    }

    /// Whether each row passes. Each distinct chain and list is parsed once.
    pub(crate) fn rows(&self, run: &EventRun, work: &WorkBudget<'_>) -> CalcResult<Vec<bool>> {
        work.consume(run.actors.len())?;
        let test_column = |key: &ColumnKey, read: fn(&Value) -> Vec<Element>| {
            let Some(column) = run.columns.get(key) else { return Ok(None) };
            let test_value = |value: &Value| {
                self.consume_budget(text_length(value), work)?;
                Ok(has_content(value).then(|| self.holds(&read(value))))
            };
            Ok(Some((column, column.values.iter().map(test_value).collect::<CalcResult<Vec<_>>>()?)))
        };
        let columns = [
            test_column(&chain_column(), chain::parse_chain)?,
            test_column(&list_column(), chain::parse_list)?,
        ];
        let none = self.holds(&[]);
        let passes = |row: usize| {
            columns.iter().flatten().find_map(|(column, passes)| *passes.get(code(column, row)?)?)
        };
        Ok((0..run.actors.len()).map(|row| passes(row).unwrap_or(none)).collect())
    }

    /// Consumes the work of testing the elements of an event, of `bytes` bytes.
    fn consume_budget(&self, bytes: usize, work: &WorkBudget<'_>) -> CalcResult<()> {
        match self {
            Self::Tag { .. } => work.consume_comparisons(1, bytes),
            Self::Selector { selectors, .. } => work.consume_comparisons(selectors.len(), bytes),
            Self::Href(test) | Self::Text { test, .. } => test.consume_budget(bytes, work),
        }
    }
}

/// The column of the string format.
pub(crate) fn chain_column() -> ColumnKey {
    ColumnKey::Property("$elements_chain".to_owned())
}

/// The column of the list format.
pub(crate) fn list_column() -> ColumnKey {
    ColumnKey::Property("$elements".to_owned())
}

/// The elements of an event in the string format; none if it has no elements.
pub(crate) fn chain_text(properties: &Map<String, Value>) -> Option<String> {
    let of = |key: &str| properties.get(key).filter(|value| has_content(value));
    match of("$elements_chain") {
        Some(chain) => text_of(chain).map(Into::into),
        None => {
            let elements = chain::parse_list(of("$elements")?);
            (!elements.is_empty()).then(|| chain::encode_chain(&elements))
        }
    }
}

/// The elements of a chain as JSON objects.
pub(crate) fn elements_json(chain: &str) -> Vec<Value> {
    let elements = chain::parse_chain(&Value::from(chain));
    elements.iter().enumerate().map(|(order, element)| element.json(order)).collect()
}

/// Whether a value is neither null nor empty.
fn has_content(value: &Value) -> bool {
    !matches!(value, Value::Null) && value.as_str() != Some("")
}

fn code(column: &Column, row: usize) -> Option<usize> {
    usize::try_from(*column.codes.get(row)?).ok()
}
