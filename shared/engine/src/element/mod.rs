//! Elements of a page that an autocapture event tells of: the one acted on first, then what it lies in.
//!
//! Must stay true: both forms in which events carry them, the text `$elements_chain` and the list `$elements`, give the
//! same elements; where both are there the text counts. A text or a list of any shape reads as some elements.

mod chain;
mod selector;
#[cfg(test)]
mod tests;

use std::collections::HashSet;

use serde_json::{Map, Value};

use crate::error::{CalcError, CalcResult};
use crate::filter::ValueTest;
use crate::limits;
use crate::scan::{Column, ColumnKey, Run};
use crate::text::{text_length, text_of};
use crate::work::WorkBudget;
pub(crate) use selector::Selector;

/// One element.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Element {
    tag: String,
    classes: Vec<String>,
    text: Option<String>,
    href: Option<String>,
    /// The rest, without the prefix `attr__`.
    attributes: Vec<(String, String)>,
}

/// What is asked of the elements of an event.
#[derive(Debug, Clone)]
pub(crate) enum ElementTest {
    /// One has one of these tags, or none has.
    Tag { names: HashSet<String>, negated: bool },
    /// One of these finds an element, or none does.
    Selector { selectors: Vec<Selector>, negated: bool },
    /// The target of the innermost link passes.
    Href(ValueTest),
    /// A text passes; with `all` every text has to. An event without any text has a missing one.
    Text { test: ValueTest, all: bool },
}

/// Keys that property filters of type `element` know.
pub(crate) const KEYS: [&str; 4] = ["tag_name", "text", "href", "selector"];

impl ElementTest {
    /// One of these selectors finds an element.
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

    /// Whether the elements of an event pass; an event of another kind has none.
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

    /// One answer a row. Each distinct chain and each distinct list is looked at once.
    pub(crate) fn rows(&self, run: &Run, work: &WorkBudget<'_>) -> CalcResult<Vec<bool>> {
        work.consume(run.actors.len())?;
        let answers = |key: &ColumnKey, read: fn(&Value) -> Vec<Element>| {
            let Some(column) = run.columns.get(key) else { return Ok(None) };
            let answer = |value: &Value| {
                self.consume_budget(text_length(value), work)?;
                Ok(has_content(value).then(|| self.holds(&read(value))))
            };
            Ok(Some((column, column.values.iter().map(answer).collect::<CalcResult<Vec<_>>>()?)))
        };
        let columns =
            [answers(&chain_column(), chain::parse_chain)?, answers(&list_column(), chain::parse_list)?];
        let none = self.holds(&[]);
        let answer = |row: usize| {
            columns.iter().flatten().find_map(|(column, answers)| *answers.get(code(column, row)?)?)
        };
        Ok((0..run.actors.len()).map(|row| answer(row).unwrap_or(none)).collect())
    }

    /// Pays for the elements of an event, of so many bytes.
    fn consume_budget(&self, bytes: usize, work: &WorkBudget<'_>) -> CalcResult<()> {
        match self {
            Self::Tag { .. } => work.consume_comparisons(1, bytes),
            Self::Selector { selectors, .. } => work.consume_comparisons(selectors.len(), bytes),
            Self::Href(test) | Self::Text { test, .. } => test.consume_budget(bytes, work),
        }
    }
}

/// The column of the text form.
pub(crate) fn chain_column() -> ColumnKey {
    ColumnKey::Property("$elements_chain".to_owned())
}

/// The column of the list form.
pub(crate) fn list_column() -> ColumnKey {
    ColumnKey::Property("$elements".to_owned())
}

/// The chain of an event with these properties; none where it tells of no element.
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

/// The elements of a chain as objects.
pub(crate) fn elements_json(chain: &str) -> Vec<Value> {
    let elements = chain::parse_chain(&Value::from(chain));
    elements.iter().enumerate().map(|(order, element)| element.json(order)).collect()
}

/// Whether a value says anything about elements.
fn has_content(value: &Value) -> bool {
    !matches!(value, Value::Null) && value.as_str() != Some("")
}

fn code(column: &Column, row: usize) -> Option<usize> {
    usize::try_from(*column.codes.get(row)?).ok()
}
