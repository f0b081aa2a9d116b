//! Formats correlation queries as readable SQL-like text. Nothing parses this text.

use std::collections::BTreeSet;

use super::{CorrelationQuery, Factor};
use crate::kinds::insight::InsightQuery;
use crate::query::describe::quoted;

/// Formats the query.
pub(super) fn describe(query: &CorrelationQuery) -> String {
    let list =
        |names: &BTreeSet<String>| names.iter().map(|name| quoted(name)).collect::<Vec<_>>().join(", ");
    let except = |names: &BTreeSet<String>| {
        if names.is_empty() { String::new() } else { format!(" EXCEPT ({})", list(names)) }
    };
    let factor = match &query.factor {
        Factor::Events { excluded } => format!("event{}", except(excluded)),
        Factor::Properties { names: None, excluded } => {
            format!("properties of the actor{}", except(excluded))
        }
        Factor::Properties { names: Some(names), excluded } => {
            format!("properties ({}) of the actor{}", list(names), except(excluded))
        }
        Factor::EventProperties { events, excluded } => {
            format!("properties of events ({}){}", list(events), except(excluded))
        }
    };
    let population =
        if query.step == 1 { String::new() } else { format!(" of those at step {}", query.step) };
    format!("SELECT {factor}, oddsRatio(success, failure){population}\nFROM ({})", query.funnel.describe())
}
