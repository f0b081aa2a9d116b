//! The definitions that clients evaluate flags from: the document, its entity tag, and a flag in its short form.
//!
//! Must stay true: a strict decoder reads the document, so no null stands for a list, an object or a flag; numbers have
//! the form in which they were sent; the document is a function of its arguments, so its tag changes exactly when it
//! does; whoever evaluates it gets what [`super::evaluate`] says.

mod cohorts;
mod etag;
mod filters;
mod flatten;

use std::{borrow::Cow, collections::BTreeMap};

use serde::Serialize;
use serde_json::{Value, json};
use thiserror::Error;

pub use self::etag::{etag, matches};
use super::{Flag, cohort::Cohort, evaluate::graph::Graph, json::Object};

/// What happens to cohorts in conditions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CohortForm {
    /// Conditions name them, and the document has their criteria.
    Sent,
    /// Conditions that a lone cohort makes up are spelled out as conditions on properties.
    Flattened,
}

/// The document would be larger than the caller can send.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the flag definitions are too large")]
pub struct TooLarge;

/// The flags of a project, ready to be shown in their short form.
#[derive(Debug)]
pub struct Definitions<'a> {
    project: u64,
    graph: Graph<'a>,
}

/// A flag in its short form, without the account of who did what when.
#[derive(Debug, Serialize)]
pub struct MinimalFlag<'a> {
    id: i64,
    team_id: u64,
    name: &'a str,
    key: &'a str,
    filters: Cow<'a, Object>,
    deleted: bool,
    active: bool,
    ensure_experience_continuity: Option<bool>,
    has_encrypted_payloads: bool,
    version: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    evaluation_runtime: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bucketing_identifier: Option<&'a str>,
    evaluation_tags: [String; 0],
    evaluation_contexts: [String; 0],
}

impl<'a> Definitions<'a> {
    /// The flags of a project that are not deleted.
    pub fn new(project: u64, flags: impl IntoIterator<Item = &'a Flag>) -> Self {
        Self { project, graph: Graph::new(flags) }
    }

    /// A flag in its short form, its payloads as they are given. Its dependency chains, which may be longer than all that is stored, take from the
    /// bytes that are `left` for the whole answer.
    pub fn minimal<'b>(&self, flag: &'b Flag, left: &mut usize) -> Result<MinimalFlag<'b>, TooLarge> {
        self.with_filters(flag, filters::cleaned(&flag.filters), left)
    }

    fn with_filters<'b>(
        &self,
        flag: &'b Flag,
        mut filters: Cow<'b, Object>,
        left: &mut usize,
    ) -> Result<MinimalFlag<'b>, TooLarge> {
        filters::name_dependencies(&mut filters, &self.graph, left)?;
        Ok(MinimalFlag {
            id: flag.id,
            team_id: self.project,
            name: &flag.name,
            key: &flag.key,
            filters,
            deleted: flag.deleted,
            active: flag.active,
            ensure_experience_continuity: flag.ensure_experience_continuity,
            has_encrypted_payloads: flag.has_encrypted_payloads.unwrap_or(false),
            version: flag.version,
            evaluation_runtime: flag.evaluation_runtime.as_deref(),
            bucketing_identifier: flag.bucketing_identifier.as_deref(),
            evaluation_tags: [],
            evaluation_contexts: [],
        })
    }

    /// The whole document as JSON text of at most `most` bytes. `cohorts` are those of the project, or as many of them
    /// as the flags name at any depth; `group_types` are names in the order of their indexes.
    pub fn document(
        &self,
        cohorts: &BTreeMap<i64, Cohort>,
        group_types: &[String],
        form: CohortForm,
        most: usize,
    ) -> Result<String, TooLarge> {
        let mut flags: Vec<&Flag> = self.graph.nodes.iter().map(|node| node.flag).collect();
        flags.retain(|flag| flag.has_encrypted_payloads != Some(true));
        flags.sort_by(|left, right| (&left.key, left.id).cmp(&(&right.key, right.id)));

        let mut text = b"{\"flags\":[".to_vec();
        for (place, flag) in flags.iter().enumerate() {
            if place > 0 {
                text.push(b',');
            }
            let mut filters = filters::cleaned(&flag.filters);
            if form == CohortForm::Flattened {
                flatten::flatten(&mut filters, cohorts);
            }
            let mut left = most.saturating_sub(text.len());
            push(&mut text, &self.with_filters(flag, filters, &mut left)?);
            if text.len() > most {
                return Err(TooLarge);
            }
        }
        let mapping: Object = group_types
            .iter()
            .enumerate()
            .filter(|(_, name)| !name.is_empty())
            .map(|(index, name)| (index.to_string(), json!(name)))
            .collect();
        let sent = match form {
            CohortForm::Sent => cohorts::used(&flags, cohorts),
            CohortForm::Flattened => Object::new(),
        };
        text.extend_from_slice(b"],\"group_type_mapping\":");
        push(&mut text, &mapping);
        text.extend_from_slice(b",\"cohorts\":");
        push(&mut text, &sent);
        text.push(b'}');
        // JSON is written as UTF-8, so nothing is lost here.
        let text = String::from_utf8(text).unwrap_or_default();
        if text.len() > most { Err(TooLarge) } else { Ok(text) }
    }
}

impl MinimalFlag<'_> {
    /// The flag as JSON.
    pub fn to_json(&self) -> Value {
        // Every part is JSON already, so this cannot fail.
        serde_json::to_value(self).unwrap_or_default()
    }
}

/// Appends JSON text.
fn push(text: &mut Vec<u8>, value: &impl Serialize) {
    // Every part is JSON already, and memory takes what is written, so this cannot fail.
    let _ = serde_json::to_writer(text, value);
}

#[cfg(test)]
mod tests;
