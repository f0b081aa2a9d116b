//! Local evaluation: the document with the flag definitions that clients evaluate, its ETag, and the minimal form of a
//! flag.
//!
//! Must stay true: strict decoders read the document, so a list, an object or a flag is never null; numbers keep the
//! form in which they were sent; the document is a function of its arguments, so its ETag changes exactly when it does;
//! a client that evaluates it gets the results of [`super::evaluate`].

mod cohorts;
mod etag;
mod filters;
mod flatten;

use std::{borrow::Cow, collections::BTreeMap};

use pennon_filters::body::json::Object;
use serde::{Serialize, Serializer, ser::SerializeMap};
use serde_json::{Value, json};
use thiserror::Error;

pub use self::etag::{etag, matches};
use super::evaluate::dependency_graph::DependencyGraph;
use crate::flag::Flag;
use crate::flag::field_table::{DefinitionsValue, FieldValue, definition_fields};
use crate::relations::cohort::FlagCohort;

/// The representation of cohorts in conditions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CohortForm {
    /// Conditions refer to cohorts, and the document contains their criteria.
    Sent,
    /// A condition that consists of a single cohort is replaced with property conditions.
    Flattened,
}

/// The document exceeds the size limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the flag definitions are too large")]
pub struct TooLarge;

/// The flags of a project, for encoding in minimal form.
#[derive(Debug)]
pub struct FlagDefinitions<'a> {
    project: u64,
    graph: DependencyGraph<'a>,
}

/// A flag in minimal form, without creator, timestamps and other metadata.
#[derive(Debug)]
pub struct MinimalFlag<'a> {
    project: u64,
    flag: &'a Flag,
    filters: Cow<'a, Object>,
}

impl Serialize for MinimalFlag<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_map(None)?;
        for (field, value) in definition_fields() {
            let stored = (field.stored)(self.flag);
            match value {
                DefinitionsValue::OmittedIfNull if stored == FieldValue::Null => {}
                DefinitionsValue::FalseIfNull if stored == FieldValue::Null => {
                    object.serialize_entry(field.name, &false)?;
                }
                DefinitionsValue::Stored
                | DefinitionsValue::AlwaysFalse
                | DefinitionsValue::OmittedIfNull
                | DefinitionsValue::FalseIfNull => object.serialize_entry(field.name, &stored)?,
                DefinitionsValue::Filters => object.serialize_entry(field.name, &self.filters)?,
                DefinitionsValue::Project => object.serialize_entry(field.name, &self.project)?,
                DefinitionsValue::EmptyList => object.serialize_entry(field.name, &[(); 0])?,
            }
        }
        object.end()
    }
}

impl<'a> FlagDefinitions<'a> {
    /// The live flags of a project.
    pub fn new(project: u64, flags: impl IntoIterator<Item = &'a Flag>) -> Self {
        Self { project, graph: DependencyGraph::new(flags) }
    }

    /// A flag in minimal form, with its payloads as given. Dependency chains, which may be larger than all stored data,
    /// reduce `bytes_left`, the remaining size of the whole response.
    pub fn minimal<'b>(&self, flag: &'b Flag, bytes_left: &mut usize) -> Result<MinimalFlag<'b>, TooLarge> {
        self.with_filters(flag, filters::normalized(&flag.filters), bytes_left)
    }

    fn with_filters<'b>(
        &self,
        flag: &'b Flag,
        mut filters: Cow<'b, Object>,
        bytes_left: &mut usize,
    ) -> Result<MinimalFlag<'b>, TooLarge> {
        filters::add_dependency_chains(&mut filters, &self.graph, bytes_left)?;
        Ok(MinimalFlag { project: self.project, flag, filters })
    }

    /// The document as JSON of at most `bytes_max` bytes. `cohorts` are those of the project, or at least the ones that
    /// the flags refer to transitively; `group_types` are names in the order of their indexes.
    pub fn document(
        &self,
        cohorts: &BTreeMap<i64, FlagCohort>,
        group_types: &[String],
        form: CohortForm,
        bytes_max: usize,
    ) -> Result<String, TooLarge> {
        let mut flags: Vec<&Flag> = self.graph.nodes.iter().map(|node| node.flag).collect();
        flags.retain(|flag| flag.has_encrypted_payloads != Some(true));
        flags.sort_by(|left, right| (&left.key, left.id).cmp(&(&right.key, right.id)));

        let mut text = b"{\"flags\":[".to_vec();
        for (index, flag) in flags.iter().enumerate() {
            if index > 0 {
                text.push(b',');
            }
            let mut filters = filters::normalized(&flag.filters);
            if form == CohortForm::Flattened {
                flatten::flatten(&mut filters, cohorts);
            }
            let mut bytes_left = bytes_max.saturating_sub(text.len());
            append_json(&mut text, &self.with_filters(flag, filters, &mut bytes_left)?);
            if text.len() > bytes_max {
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
            CohortForm::Sent => cohorts::referenced(&flags, cohorts),
            CohortForm::Flattened => Object::new(),
        };
        text.extend_from_slice(b"],\"group_type_mapping\":");
        append_json(&mut text, &mapping);
        text.extend_from_slice(b",\"cohorts\":");
        append_json(&mut text, &sent);
        text.push(b'}');
        // JSON is written as UTF-8, so this cannot fail.
        let text = String::from_utf8(text).unwrap_or_default();
        if text.len() > bytes_max { Err(TooLarge) } else { Ok(text) }
    }
}

impl MinimalFlag<'_> {
    /// The flag as JSON.
    pub fn to_json(&self) -> Value {
        // Every part is JSON already, so this cannot fail.
        serde_json::to_value(self).unwrap_or_default()
    }
}

/// Appends JSON.
fn append_json(text: &mut Vec<u8>, value: &impl Serialize) {
    // Every part is JSON already, and writing to memory cannot fail.
    let _ = serde_json::to_writer(text, value);
}

#[cfg(test)]
mod tests;
