//! The kinds of insight that are calculated: one folder each, and one line each in the registration below.
//!
//! A kind implements three traits of `insight`: `InsightQuery` for its parsed query, `RegisteredKind` for its names and
//! parsers, and `CompiledInsight` for its compiler and its calculation. The registration makes [`Query`], [`DataPoint`] and [`PartitionResult`] of them.
//!
//! Must stay true: nothing outside of a kind's folder distinguishes kinds.

pub mod correlation;
pub mod flag_impact;
pub mod funnels;
mod insight;
pub mod lifecycle;
mod other_kinds;
mod parse;
mod parsed_query;
pub mod paths;
mod plan;
#[macro_use]
mod registration;
pub mod retention;
mod saved_query;
pub mod stickiness;
mod table;
pub mod trends;

use serde_json::Value;

use crate::part_format::{self, PartFormatError};
pub use crate::query::node::{SAVED_INSIGHT, WRAPPERS};
pub use insight::{Endpoint, KindDescription, LegacyRequests, NodeDescription, PeoplePage};
pub use other_kinds::unsupported_kind;
pub use parse::stored_kinds;
pub use parsed_query::ParsedQuery;
pub use plan::Plan;
pub use saved_query::{
    ACTION_SERIES, CONDITION_TYPES, FLAG_OPERATOR, FieldType, SERIES_FIELDS, SERIES_KINDS, SavedNodeRules,
    decode_and_validate_query, validate_node,
};
pub use table::TableRows;

register_kinds! {
    /// A count or statistic for each time bucket, or one over the whole range.
    Trends(trends::TrendsQuery),
    /// How many actors reach each step of a sequence.
    Funnels(funnels::FunnelsQuery),
    /// Which events and properties correlate with converting in a funnel.
    Correlation(correlation::CorrelationQuery),
    /// How many actors return in the periods after they started.
    Retention(retention::RetentionQuery),
    /// What people do one after the other within a session.
    Paths(paths::PathsQuery),
    /// How many actors are active in how many intervals.
    Stickiness(stickiness::StickinessQuery),
    /// How many active actors of each period are new, returning or resurrecting, and how many became dormant.
    Lifecycle(lifecycle::LifecycleQuery),
    /// How a metric differs between the variants of a flag.
    FlagImpact(flag_impact::FlagImpactQuery),
}

/// The `insight` of insight filters that name none.
pub const DEFAULT_INSIGHT_NAME: &str = trends::INSIGHT_NAME;

impl InsightKind {
    /// The query nodes of all kinds that have nodes.
    pub fn nodes() -> impl Iterator<Item = &'static NodeDescription> {
        Self::ALL.iter().filter_map(|kind| kind.description().node.as_ref())
    }

    /// The kind with this name in stored background jobs and serialised partial results.
    pub fn from_job_form(form: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| kind.description().endpoint.job_form == form)
    }

    /// The query nodes with this `kind`; `None` if they are not calculated.
    fn find_node(kind: &str) -> Option<&'static NodeDescription> {
        Self::nodes().find(|node| node.kind == kind)
    }
}

impl PartitionResult {
    /// The serialised form, which [`PartitionResult::from_bytes`] reads; see [`crate::part_format`]. A structure with a
    /// partial result among its fields is encoded as a whole instead.
    pub fn to_bytes(&self) -> Result<Vec<u8>, PartFormatError> {
        part_format::encode(self)
    }

    /// Reads what [`PartitionResult::to_bytes`] wrote. An error for bytes of another version of the format or of an
    /// unknown kind, and for damaged ones.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, PartFormatError> {
        part_format::decode(bytes)
    }
}

/// The final result of a query.
#[derive(Debug, Clone, PartialEq)]
pub struct QueryOutput {
    /// The `result` field of the response.
    pub result: Value,
    /// Whether breakdown values were cut off by the limit. `None` for kinds without such a limit.
    pub has_more: Option<bool>,
}

impl From<Value> for QueryOutput {
    /// The output of a kind without a limit on breakdown values.
    fn from(result: Value) -> Self {
        Self { result, has_more: None }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::collections::BTreeSet;

    use super::*;

    /// The names of the folders of kinds.
    fn folders() -> BTreeSet<String> {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/kinds");
        let entries = std::fs::read_dir(folder).unwrap().map(Result::unwrap);
        let folders = entries.filter(|entry| entry.file_type().unwrap().is_dir());
        folders.map(|entry| entry.file_name().into_string().unwrap()).collect()
    }

    #[test]
    fn every_folder_is_registered() {
        let folder_of = |kind: &InsightKind| format!("{kind:?}").to_lowercase();
        let mut registered: BTreeSet<String> = InsightKind::ALL.iter().map(folder_of).collect();
        for folder in folders() {
            let is_registered = registered.remove(&folder.replace('_', ""));
            assert!(is_registered, "kinds/{folder} has no line of register_kinds!");
        }
        assert!(registered.is_empty(), "registered kinds without a folder of their name: {registered:?}");
    }

    #[test]
    fn names_are_unique() {
        let mut names = BTreeSet::new();
        let mut require_unique = |role: &'static str, name: &'static str| {
            assert!(names.insert((role, name)), "two kinds have the {role} {name}");
        };
        for kind in InsightKind::ALL {
            let KindDescription { node, insight_names, endpoint, .. } = kind.description();
            if let Some(node) = node {
                require_unique("node kind", node.kind);
            }
            for name in *insight_names {
                require_unique("insight name", name);
            }
            require_unique("path", endpoint.path);
            require_unique("persons path", endpoint.persons_path);
            require_unique("job form", endpoint.job_form);
        }
        for kind in InsightKind::ALL {
            if let Some(path) = kind.legacy_requests().shared_path {
                assert!(names.contains(&("path", path)), "no kind has the path {path} that {kind:?} shares");
            }
        }
    }
}
