//! The traits that a kind of insight implements.
//!
//! Must stay true: a calculation crosses these traits once for each partition, never for each row.

use std::fmt::Debug;

use chrono::DateTime;
use chrono_tz::Tz;
use pennon_filters::CalcResult;
use pennon_filters::dates::Interval;
use pennon_filters::dates::range::{DateRange, Rounding};
use pennon_filters::work_budget::WorkBudget;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::saved_query::SavedNodeRules;
use super::table::TableRows;
use super::{ParsedQuery, Query, QueryOutput};
use crate::clickhouse::{EventSelect, RowsError, SqlRows, StatementWriter};
use crate::compiler::Compiler;
use crate::definitions::DefinitionIds;
use crate::people::MatchedActor;
use crate::project::ProjectContext;
use crate::query::{CommonFields, Series};
use crate::scan::ActorKind;
use crate::scan::Partition;

/// A parsed query of one kind.
pub trait InsightQuery: Debug {
    /// Filters, date range, interval and breakdown.
    fn common(&self) -> &CommonFields;

    /// The series or steps; empty for kinds without any.
    fn series(&self) -> &[Series] {
        &[]
    }

    /// How the date range is rounded: by the interval, unless the kind does it otherwise.
    fn rounding(&self) -> Rounding {
        Rounding { interval: self.common().interval, exact: false, cut_minutes: false }
    }

    /// Resolves the date range at `now`.
    fn resolve_range(&self, project: &ProjectContext, now: DateTime<Tz>) -> CalcResult<DateRange> {
        self.common().dates.resolve(self.rounding(), now, project.earliest_event)
    }

    /// The interval that decides how long a result stays fresh.
    fn refresh_interval(&self) -> Interval {
        self.common().interval
    }

    /// Whether resolving dates needs the time of the project's earliest event.
    fn needs_earliest_event(&self) -> bool {
        self.common().dates.needs_earliest()
    }

    /// Whether the result depends on the project's test account filters.
    fn uses_test_account_filters(&self) -> bool {
        self.common().filter_test_accounts
    }

    /// Whether the result depends on the project's path cleaning filters.
    fn uses_path_cleaning_filters(&self) -> bool {
        false
    }

    /// The ids of the actions and cohorts that the query references directly.
    fn direct_references(&self) -> DefinitionIds {
        self.common().direct_references(self.series())
    }

    /// The query node with defaults filled in, for cache keys. Fields that do not affect the result are left out.
    fn canonical_node(&self) -> Value;

    /// The query as insight filters, dates as they were sent. Parsing them gives the same query again.
    fn to_insight_filters(&self) -> Map<String, Value>;

    /// Readable SQL-like text for people.
    fn describe(&self) -> String;

    /// A result as a table; the first row has the headings.
    fn table(&self, result: &Value) -> TableRows;

    /// The select from `events` for ClickHouse, or an error that names what cannot be translated.
    fn select_sql(&self, writer: &mut StatementWriter<'_>, range: &DateRange) -> CalcResult<EventSelect>;
}

/// What the registration needs of a kind, beside its queries.
pub trait RegisteredKind: InsightQuery + Clone + PartialEq + Into<Query> {
    /// The compiled query.
    type Compiled: CompiledInsight<Query = Self>;

    /// Names, endpoints and parsers.
    const DESCRIPTION: KindDescription;

    /// How older requests name the kind, beside its `insight` name and its own endpoint.
    const LEGACY_REQUESTS: LegacyRequests = LegacyRequests::NONE;

    /// Whether results have an endpoint of their own, `insights/<path>`.
    const HAS_RESULT_ENDPOINT: bool = true;

    /// The groups that a data point counts, where the query alone decides that.
    fn counted_groups(&self, _point: &DataPointOf<Self>) -> Option<ActorKind> {
        None
    }
}

/// A compiled query of one kind: resolved dates, compiled filters.
pub trait CompiledInsight: Debug + Clone {
    /// The parsed query.
    type Query;
    /// The result of one partition. The default is the result for no actors. A change of its fields increments
    /// [`crate::part_format::VERSION`].
    type Partial: Debug + Clone + Default + PartialEq + Serialize + DeserializeOwned;
    /// A number of a result.
    type DataPoint: Debug + Clone + PartialEq + Eq + Serialize + DeserializeOwned;

    /// Resolves names, compiles filters and registers the data that the calculation reads.
    fn compile(
        query: &Self::Query,
        project: &ProjectContext,
        range: DateRange,
        compiler: &mut Compiler<'_>,
    ) -> CalcResult<Self>;

    /// Parses the parameters of a link to the actors of a data point.
    fn parse_data_point(query: &Self::Query, request: &Map<String, Value>) -> CalcResult<Self::DataPoint>;

    /// The actor kind that a data point counts; `None` for the only one of the plan.
    fn actor_kind(&self, _point: &Self::DataPoint) -> Option<ActorKind> {
        None
    }

    /// Relates the partitions of several actor kinds to each other, after they were joined and before anything is computed.
    fn relate_partitions(
        &self,
        partitions: Vec<Partition>,
        _work: &WorkBudget<'_>,
    ) -> CalcResult<Vec<Partition>> {
        Ok(partitions)
    }

    /// Computes the result of one joined partition.
    fn partial(&self, partition: &Partition, work: &WorkBudget<'_>) -> CalcResult<Self::Partial>;

    /// Merges the results of two partitions, in any order.
    fn merge(left: Self::Partial, right: Self::Partial) -> Self::Partial;

    /// Builds the final result from the merged results.
    fn finish(&self, merged: Self::Partial, work: &WorkBudget<'_>) -> CalcResult<QueryOutput>;

    /// Builds the final result from the rows of the statement of [`InsightQuery::select_sql`].
    fn finish_rows(&self, _rows: &SqlRows<'_>, _work: &WorkBudget<'_>) -> Result<QueryOutput, RowsError> {
        Err(RowsError::invalid("the kind has no statement"))
    }

    /// Lists the actors of one joined partition that count towards a data point, ordered by id.
    fn people(
        &self,
        partition: &Partition,
        point: &Self::DataPoint,
        work: &WorkBudget<'_>,
    ) -> CalcResult<Vec<MatchedActor>>;
}

/// The partial result of a kind.
pub type PartialOf<Q> = <<Q as RegisteredKind>::Compiled as CompiledInsight>::Partial;

/// The data point of a kind.
pub type DataPointOf<Q> = <<Q as RegisteredKind>::Compiled as CompiledInsight>::DataPoint;

/// Names, endpoints and parsers of a kind.
#[derive(Debug)]
pub struct KindDescription {
    /// Its query nodes; `None` if it has none.
    pub node: Option<NodeDescription>,
    /// The values of `insight` in insight filters; the first one is written.
    pub insight_names: &'static [&'static str],
    /// Its own endpoints.
    pub endpoint: Endpoint,
    /// Parses insight filters, or the merged query string and body of a request to its endpoint.
    pub(crate) parse_filters: fn(&Map<String, Value>) -> CalcResult<ParsedQuery>,
}

/// How older requests name a kind, beside its `insight` name and its own endpoint.
#[derive(Debug)]
pub struct LegacyRequests {
    /// The path of another kind's endpoint that also serves requests of this kind.
    pub shared_path: Option<&'static str>,
    /// Whether insight filters are of this kind, whatever `insight` they have.
    pub are_marked: fn(&Map<String, Value>) -> bool,
}

impl LegacyRequests {
    /// There is no other way.
    pub const NONE: Self = Self { shared_path: None, are_marked: |_| false };
}

/// The query nodes of a kind.
#[derive(Debug)]
pub struct NodeDescription {
    /// The value of `kind`.
    pub kind: &'static str,
    /// The rules for nodes that insights store.
    pub saved: SavedNodeRules,
    /// Parses a node.
    pub(crate) parse: fn(&Map<String, Value>) -> CalcResult<ParsedQuery>,
}

/// Makes the rows of a CSV file, header first, of the `result` of a response.
pub type CsvRows = fn(&Value) -> Vec<Vec<Value>>;

/// The endpoints of a kind: `insights/<path>/` for a result, `persons/<persons_path>/` for the actors behind a number.
#[derive(Debug)]
pub struct Endpoint {
    /// Path of results, below `insights/`.
    pub path: &'static str,
    /// Path of actors, below `persons/`.
    pub persons_path: &'static str,
    /// The name of such requests in stored background jobs, and of the kind in serialised partial results.
    pub job_form: &'static str,
    /// Whether a POST without series is an error; else its result is `empty_result`.
    pub requires_series: bool,
    /// The result of a request without series.
    pub empty_result: fn() -> Value,
    /// Adapts a result to what the client of this request expects.
    pub adapt_result: fn(&Map<String, Value>, &mut Value),
    /// Whether responses have the field `timezone`.
    pub has_timezone: bool,
    /// Whether responses have the link `next`.
    pub is_paged: bool,
    /// The rows of a CSV export, with a file name; `None` exports the leaves of the response.
    pub csv_rows: Option<CsvRows>,
    /// The form of a page of actors.
    pub people_page: PeoplePage,
}

impl Endpoint {
    /// Endpoints with one name for all of their paths. A request does not need series; without any its result is an empty
    /// list. Results are sent as they are, with their time zone, in one page.
    pub(crate) const fn new(path: &'static str) -> Self {
        Self {
            path,
            persons_path: path,
            job_form: path,
            requires_series: false,
            empty_result: || Value::Array(Vec::new()),
            adapt_result: |_, _| {},
            has_timezone: true,
            is_paged: false,
            csv_rows: None,
            people_page: PeoplePage::People,
        }
    }
}

/// The form of a page of the actors behind a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeoplePage {
    /// `{"results": [{"people": [actor, ...], "count"}], ...}`
    People,
    /// `{"result": [{"person": actor, "appearance_count", "appearances"}, ...], ...}`
    Appearances,
}
