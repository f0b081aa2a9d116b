//! `pennon query` and `pennon impact`: calculate an insight of options, a saved insight, a query from a file or the impact of a
//! flag, or print a query as SQL.
//!
//! Must stay true: the numbers come from the same calculator as those of the API; results with `--now` are not stored, so that
//! the API never returns them; their errors name the alternative.

mod event_names;
mod impact;
mod insight;
mod node;
mod render;
mod sql;
mod table;

use std::io::Read;
use std::path::Path;

use chrono::{DateTime, Utc};
use pennon_analytics::kinds::unsupported_kind;
use pennon_analytics::{ParsedQuery, Query as Node};
use pennon_calculation::calculator::{
    CacheScope, CalculationMetrics, DefinitionLookup, KeyedQuery, QueryOrigin, QueryRequest,
};
use pennon_calculation::{Calculator, QueryResult, RefreshMode};
use pennon_core::app::App;
use pennon_core::clock::{Clock, timestamp};
use pennon_core::error::ApiError;
use pennon_core::model::Project;
use pennon_core::store::{Store, keys};
use pennon_eventstore::EventStore;
use pennon_filters::CalcResult;
use pennon_insights::saved;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::args::{Engine, Query};
use crate::workspace::Declarations;

pub use impact::run as impact;
pub use insight::run as insight;

/// Largest query that is read from a file.
const QUERY_BYTES_MAX: u64 = 1 << 20;

/// The query of a command line, with its project.
struct ResolvedQuery {
    project: Project,
    keyed: KeyedQuery,
}

/// How a result is printed.
#[derive(Clone, Copy)]
struct ResultForm {
    json: bool,
    csv: bool,
    stats: bool,
}

/// Runs the query of `options` over the tables of `store` and the `events` at `events_url`. Returns the text to print. With
/// `stores_results` the API can use the result.
pub async fn run(
    options: &Query,
    store: Store,
    (events, events_url): (EventStore, &str),
    stores_results: bool,
) -> Result<String, String> {
    sql::validate_options(options)?;
    let now = options.now.unwrap_or_else(Utc::now);
    let resolved = resolve(options, &store).await?;
    let app = App::new(store, Clock::Frozen(now));
    let calculator = Calculator::new(&app, events);
    let calculator =
        if options.now.is_some() || !stores_results { calculator.without_cache_writes() } else { calculator };
    let (calculator, measured) = calculator.measured();
    let read = calculator.read(&resolved.project, &[&resolved.keyed]).await.map_err(|e| error_text(&e))?;
    let form = ResultForm { json: options.json, csv: options.csv, stats: options.stats };
    if options.engine == Engine::Clickhouse {
        let request = query_request(&resolved, &calculator, &read.known, now);
        return match &options.clickhouse_url {
            Some(url) if !options.print => {
                let started_at = Instant::now();
                let calculated = sql::calculate(options, &request, &calculator, (url, events_url)).await?;
                if form.stats {
                    eprintln!("{} ms", started_at.elapsed().as_millis());
                }
                PrintedResult::of(&calculated).format_plain(form, &resolved.keyed.query)
            }
            _ => sql::to_sql(options, &request, &calculator, events_url).await,
        };
    }
    let printed = calculate(form, &resolved, (&calculator, &measured), &read.known, now).await?;
    printed.format_plain(form, &resolved.keyed.query)
}

/// The request for a query, from which nothing is cached.
fn query_request<'a>(
    resolved: &'a ResolvedQuery,
    calculator: &Calculator,
    known: &'a DefinitionLookup,
    now: DateTime<Utc>,
) -> QueryRequest<'a> {
    QueryRequest {
        project: &resolved.project,
        keyed: &resolved.keyed,
        stored: None,
        tracked: None,
        known,
        now,
        deadline: calculator.deadline(),
        origin: QueryOrigin::default(),
    }
}

async fn calculate(
    form: ResultForm,
    resolved: &ResolvedQuery,
    (calculator, measured): (&Calculator, &CalculationMetrics),
    known: &DefinitionLookup,
    now: DateTime<Utc>,
) -> Result<PrintedResult, String> {
    let started_at = Instant::now();
    let request = query_request(resolved, calculator, known, now);
    let response =
        calculator.respond(&request, RefreshMode::ForceBlocking).await.map_err(|e| error_text(&e))?;
    let calculated = response.calculated.ok_or("the calculation gave no result")?;
    if form.stats {
        // On stderr, so that a pipe gets only the result.
        eprintln!("{}", format_stats(measured, started_at));
    }
    Ok(PrintedResult::of(&calculated))
}

/// A result with what is printed beside it.
struct PrintedResult {
    result: Value,
    timezone: Value,
    has_more: Value,
    last_refresh: Value,
}

impl PrintedResult {
    fn of(calculated: &QueryResult) -> PrintedResult {
        PrintedResult {
            result: calculated.result.clone(),
            timezone: json!(calculated.timezone),
            has_more: json!(calculated.has_more),
            last_refresh: json!(timestamp(calculated.last_refresh)),
        }
    }

    /// The text to print: CSV, JSON, or what `to_text` makes of the result.
    fn format(
        &self,
        form: ResultForm,
        query: &Node,
        to_text: impl FnOnce(&Value) -> String,
    ) -> Result<String, String> {
        // PENNON_JSON may be set for all commands, so --csv comes first.
        let mut text = if form.csv {
            table::to_csv(&query.table(&self.result))?
        } else if form.json {
            let body = json!({
                "result": self.result, "timezone": self.timezone, "hasMore": self.has_more,
                "last_refresh": self.last_refresh,
            });
            format!("{body:#}")
        } else {
            to_text(&self.result)
        };
        if !text.ends_with('\n') {
            text.push('\n');
        }
        Ok(text)
    }

    /// The text of a query that was not built from options: a plain table.
    fn format_plain(&self, form: ResultForm, query: &Node) -> Result<String, String> {
        self.format(form, query, |result| table::to_text(&query.table(result)))
    }
}

/// The total statistics of all scans.
fn format_stats(measured: &CalculationMetrics, started_at: Instant) -> String {
    let scans = measured.scans();
    let sum = |field: fn(&pennon_eventstore::ScanStats) -> u64| scans.iter().map(field).sum::<u64>();
    format!(
        "{} ms; {} scans of {} segments: {} events, {} of them from blocks; {} rows decoded, {} bytes read",
        started_at.elapsed().as_millis(),
        scans.len(),
        sum(|it| it.segments),
        sum(|it| it.rows),
        sum(|it| it.waiting_rows),
        sum(|it| it.rows_decoded),
        sum(|it| it.bytes_read),
    )
}

/// Loads the project and the query of `options`.
async fn resolve(options: &Query, store: &Store) -> Result<ResolvedQuery, String> {
    let project = load_project(options.project, store).await?;
    let id = project.id;
    let name = options.query.as_deref().unwrap_or_default();
    let parsed = match read_file(name)? {
        Some(text) => parse(&text).map_err(|e| format!("{name}: {e}"))?.map_err(|e| e.to_string())?,
        None => {
            let insight = saved::find(&store.records, id, name).await.map_err(|e| error_text(&e))?;
            let insight = insight.ok_or_else(|| {
                format!(
                    "project {id} has no insight \"{name}\", and there is no such file; an insight is named by its id \
                     or its short id, as GET /api/projects/{id}/insights/ lists them"
                )
            })?;
            insight.query.map_err(|e| e.to_string())?
        }
    };
    match parsed {
        ParsedQuery::Query(query) => {
            Ok(ResolvedQuery { project, keyed: KeyedQuery::new(query, CacheScope::Saved, None) })
        }
        ParsedQuery::Empty => Err(format!("{name} has no series: it names no events and no actions")),
        ParsedQuery::OtherKind(kind) => {
            Err(format!("{name}: {}", unsupported_kind("query", &kind, &project.id.to_string()).detail))
        }
    }
}

/// Loads the project of `--project`, or the only declared one.
async fn load_project(option: Option<u64>, store: &Store) -> Result<Project, String> {
    let id = resolve_project(option, store).await?;
    let item = store.records.get(&keys::project(id)).await.map_err(|e| e.to_string())?;
    match item {
        Some(item) => item.body().map_err(|e| e.to_string()),
        None => Err(format!("there is no project {id}; `pennon apply` declares projects")),
    }
}

/// The project of `--project`, or the only declared one.
async fn resolve_project(option: Option<u64>, store: &Store) -> Result<u64, String> {
    match option {
        Some(id) => Ok(id),
        None => Declarations::load(&store.records).await.map_err(|e| e.to_string())?.resolve_project(None),
    }
}

/// The text of a file, or of stdin for `-`; `None` if there is no such file.
fn read_file(name: &str) -> Result<Option<String>, String> {
    let mut text = String::new();
    let failed = |e: std::io::Error| format!("{name} cannot be read: {e}");
    if name == "-" {
        std::io::stdin().take(QUERY_BYTES_MAX + 1).read_to_string(&mut text).map_err(failed)?;
    } else if Path::new(name).is_file() {
        let file = std::fs::File::open(name).map_err(failed)?;
        file.take(QUERY_BYTES_MAX + 1).read_to_string(&mut text).map_err(failed)?;
    } else {
        return Ok(None);
    }
    if text.len() as u64 > QUERY_BYTES_MAX {
        return Err(format!("{name} is longer than {QUERY_BYTES_MAX} bytes"));
    }
    Ok(Some(text))
}

/// Parses a query node, or the filters of a trend or a funnel.
fn parse(text: &str) -> Result<CalcResult<ParsedQuery>, String> {
    let value: Value = serde_json::from_str(text).map_err(|e| format!("not JSON: {e}"))?;
    match value.as_object() {
        None => Err("a query is a JSON object".to_owned()),
        Some(object) if object.contains_key("kind") => Ok(Node::from_query_node(&value)),
        Some(object) => Ok(Node::from_insight_filters(object)),
    }
}

/// The message for an error of the API.
fn error_text(error: &ApiError) -> String {
    match error.status().as_u16() {
        503 => "the query took too long, or the store is busy; try again, narrow the dates, or \
                name fewer events"
            .to_owned(),
        _ => error.detail().to_owned(),
    }
}
