//! Parses requests, stored filters and query nodes of any kind, and what all queries can do.
//!
//! Must stay true: a kind that is not registered is reported by its name, never as an error.

use std::borrow::Cow;

use chrono::{DateTime, Utc};
use pennon_filters::dates::Interval;
use pennon_filters::dates::range::DateRange;
use pennon_filters::{CalcError, CalcResult};
use serde_json::{Map, Value};

use super::{DEFAULT_INSIGHT_NAME, InsightKind, NodeDescription, ParsedQuery, Query, TableRows};
use crate::clickhouse::{SegmentFiles, StatementWriter};
use crate::definitions::DefinitionIds;
use crate::project::ProjectContext;
use crate::query::node::{WRAPPERS, get_kind};
use crate::query::{CommonFields, Series, canonical};

/// Maximum number of nested wrappers.
const MAX_WRAPPERS: usize = 4;

/// The kinds that insights can store and that have nodes: the value of `insight` in insight filters, and the kind of query nodes.
pub fn stored_kinds() -> impl Iterator<Item = (&'static str, &'static str)> {
    InsightKind::ALL.iter().filter_map(|kind| {
        let description = kind.description();
        Some((*description.insight_names.first()?, description.node.as_ref()?.kind))
    })
}

impl InsightKind {
    /// The kind of insight filters; none if `insight` is not the name of a kind. Without it they are of kind
    /// [`DEFAULT_INSIGHT_NAME`].
    fn of_filters(filters: &Map<String, Value>) -> Option<Self> {
        let name = insight_name(filters);
        let find = |is_meant: &dyn Fn(&Self) -> bool| Self::ALL.iter().find(|kind| is_meant(kind)).copied();
        find(&|kind| (kind.legacy_requests().are_marked)(filters))
            .or_else(|| find(&|kind| kind.description().insight_names.contains(&name)))
    }

    /// The kind that a request to this kind's endpoint is of: this one, or one that shares the path and that the request names.
    pub fn of_request(self, request: &Map<String, Value>) -> Self {
        let path = Some(self.description().endpoint.path);
        Self::of_filters(request).filter(|kind| kind.legacy_requests().shared_path == path).unwrap_or(self)
    }

    /// Parses a request to the kind's endpoint: query string and body already merged into one object.
    pub fn parse_request(self, request: &Map<String, Value>) -> CalcResult<ParsedQuery> {
        (self.of_request(request).description().parse_filters)(request)
    }

    /// Parses a request for the actors behind a number. Its query is the node in `query`, which may be JSON text, else the
    /// fields of a request to the kind's endpoint.
    pub fn parse_people_request(self, request: &Map<String, Value>) -> CalcResult<ParsedQuery> {
        let node =
            self.description().node.as_ref().map(|node| parse_query_field(request, node.kind)).transpose()?;
        node.flatten().map_or_else(|| self.parse_request(request), Ok)
    }
}

/// Parses the node in the field `query`, which may be JSON text; `None` without one. It must be of kind `kind`, bare or inside
/// wrapper nodes.
pub(super) fn parse_query_field(request: &Map<String, Value>, kind: &str) -> CalcResult<Option<ParsedQuery>> {
    let is_sent = |node: &&Value| !node.is_null() && node.as_str().is_none_or(|text| !text.trim().is_empty());
    let Some(node) = request.get("query").filter(is_sent) else { return Ok(None) };
    let node = match node {
        Value::String(text) => Cow::Owned(
            serde_json::from_str(text)
                .map_err(|_| CalcError::invalid("query", "The query is a text that is not valid JSON."))?,
        ),
        other => Cow::Borrowed(other),
    };
    match unwrap_node(&node)? {
        InnermostNode::Calculated(description, fields) if description.kind == kind => {
            (description.parse)(fields).map(Some)
        }
        _ => Err(CalcError::invalid("query", format!("The query must be a {kind}."))),
    }
}

/// The node inside of all wrapper nodes.
enum InnermostNode<'a> {
    /// One of a registered kind.
    Calculated(&'static NodeDescription, &'a Map<String, Value>),
    /// One of another kind.
    OtherKind(String),
}

fn unwrap_node(node: &Value) -> CalcResult<InnermostNode<'_>> {
    let mut object = node.as_object().ok_or_else(|| CalcError::parse("A query must be an object."))?;
    for _ in 0..MAX_WRAPPERS {
        let name = get_kind(object)?;
        if let Some(description) = InsightKind::find_node(name) {
            return Ok(InnermostNode::Calculated(description, object));
        }
        match object.get("source") {
            Some(Value::Object(source)) if WRAPPERS.contains(&name) => object = source,
            _ => return Ok(InnermostNode::OtherKind(name.to_owned())),
        }
    }
    Err(CalcError::parse("The query is wrapped too many times."))
}

fn insight_name(filters: &Map<String, Value>) -> &str {
    filters.get("insight").and_then(Value::as_str).unwrap_or(DEFAULT_INSIGHT_NAME)
}

impl Query {
    /// Parses the stored `filters` of an insight. Without an `insight` field they are of kind [`DEFAULT_INSIGHT_NAME`].
    pub fn from_insight_filters(filters: &Map<String, Value>) -> CalcResult<ParsedQuery> {
        match InsightKind::of_filters(filters) {
            Some(kind) => (kind.description().parse_filters)(filters),
            None => Ok(ParsedQuery::OtherKind(insight_name(filters).to_owned())),
        }
    }

    /// Parses a query node, bare or inside wrapper nodes.
    pub fn from_query_node(node: &Value) -> CalcResult<ParsedQuery> {
        match unwrap_node(node)? {
            InnermostNode::Calculated(description, fields) => (description.parse)(fields),
            InnermostNode::OtherKind(name) => Ok(ParsedQuery::OtherKind(name)),
        }
    }

    /// Filters, date range, interval and breakdown.
    pub fn common(&self) -> &CommonFields {
        self.as_insight().common()
    }

    /// The series or steps; empty for kinds without any.
    pub fn series(&self) -> &[Series] {
        self.as_insight().series()
    }

    /// The interval that decides how long a result stays fresh.
    pub(crate) fn refresh_interval(&self) -> Interval {
        self.as_insight().refresh_interval()
    }

    /// Resolves the date range of the query at `now`. Errors name the date field that cannot be parsed.
    pub fn range(&self, project: &ProjectContext, now: DateTime<Utc>) -> CalcResult<DateRange> {
        self.as_insight().resolve_range(project, now.with_timezone(&project.timezone))
    }

    /// The ids of the actions and cohorts that the query references directly. These may reference further ones.
    pub fn direct_references(&self) -> DefinitionIds {
        self.as_insight().direct_references()
    }

    /// Whether resolving the date range needs the time of the project's earliest event.
    pub fn needs_earliest(&self) -> bool {
        self.as_insight().needs_earliest_event()
    }

    /// Whether the result depends on the project's test account filters.
    pub fn uses_test_account_filters(&self) -> bool {
        self.as_insight().uses_test_account_filters()
    }

    /// Whether the result depends on the project's path cleaning filters.
    pub fn uses_path_cleaning_filters(&self) -> bool {
        self.as_insight().uses_path_cleaning_filters()
    }

    /// Canonical JSON of the query, for cache keys: the query node without wrappers, defaults filled in, keys sorted.
    /// Equal queries have equal texts. Fields that do not affect the result are left out.
    pub fn normalised(&self) -> String {
        canonical::sort_keys(self.as_insight().canonical_node()).to_string()
    }

    /// Readable SQL-like text, for the `hogql` field of an insight.
    pub fn describe(&self) -> String {
        self.as_insight().describe()
    }

    /// The query as insight filters, dates as they were sent.
    pub fn to_insight_filters(&self) -> Map<String, Value> {
        self.as_insight().to_insight_filters()
    }

    /// A result as a table; the first row has the headings.
    pub fn table(&self, result: &Value) -> TableRows {
        self.as_insight().table(result)
    }

    /// Translates the query to one SQL statement over `files`. Relative dates are relative to `now`.
    pub fn clickhouse(
        &self,
        project: &ProjectContext,
        now: DateTime<Utc>,
        files: &SegmentFiles,
    ) -> CalcResult<String> {
        let range = self.range(project, now)?;
        let mut writer = StatementWriter::new(project, now, files);
        let select = self.as_insight().select_sql(&mut writer, &range)?;
        writer.statement(&select)
    }
}
