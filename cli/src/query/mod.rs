//! `pennon query`: a saved insight or a query of a file, calculated over an installation, or written as SQL.
//!
//! Must stay true: the numbers come from the same calculator as those of the API; a question as of another instant leaves
//! nothing that the API would show; what cannot be done says what to do instead.

mod sql;
mod table;

use std::io::Read;
use std::path::Path;

use chrono::{DateTime, Utc};
use pennon_calculation::calculator::{
    Asked, CalculationMetrics, DefinitionLookup, Purpose, QueryOrigin, Question,
};
use pennon_calculation::{Calculator, QueryResult, RefreshMode};
use pennon_core::app::App;
use pennon_core::clock::{Clock, timestamp};
use pennon_core::error::ApiError;
use pennon_core::model::Project;
use pennon_core::store::{Store, keys};
use pennon_engine::{CalcResult, ParsedQuery, Query as Node};
use pennon_eventstore::EventStore;
use pennon_insights::saved;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::args::{Engine, Query};
use crate::workspace::State;

pub use sql::place_of;

/// Largest query that is read from a file.
const QUERY_BYTES_MAX: u64 = 1 << 20;

/// What is asked of which project.
struct Wanted {
    project: Project,
    asked: Asked,
}

/// Answers `options` over the tables of `store` and the `events`, which lie at `events_url`, as the text to be printed. The
/// result is kept for the API where `keeps`.
pub async fn run(
    options: &Query,
    store: Store,
    (events, events_url): (EventStore, &str),
    keeps: bool,
) -> Result<String, String> {
    if options.engine == Engine::Clickhouse && !options.print {
        return Err(
            "--engine clickhouse writes the SQL and runs nothing; add --print, and give what it prints to \
                    clickhouse-client"
                .to_owned(),
        );
    }
    if options.engine == Engine::Pennon && options.print {
        return Err("--print prints SQL for another engine; add --engine clickhouse".to_owned());
    }
    let now = options.now.unwrap_or_else(Utc::now);
    let wanted = wanted(options, &store).await?;
    let app = App::new(store, Clock::Frozen(now));
    let calculator = Calculator::new(&app, events.clone());
    let calculator =
        if options.now.is_some() || !keeps { calculator.without_cache_writes() } else { calculator };
    let (calculator, measured) = calculator.measured();
    let read = calculator.read(&wanted.project, &[&wanted.asked]).await.map_err(|e| said(&e))?;
    if options.engine == Engine::Clickhouse {
        let place = place_of(options.files.as_deref(), events_url)?;
        return sql::write(&wanted, &calculator, &events, &read.known, place, now).await;
    }
    answer(options, &wanted, (&calculator, &measured), &read.known, now).await
}

async fn answer(
    options: &Query,
    wanted: &Wanted,
    (calculator, measured): (&Calculator, &CalculationMetrics),
    known: &DefinitionLookup,
    now: DateTime<Utc>,
) -> Result<String, String> {
    let begin = Instant::now();
    let deadline = calculator.deadline();
    let question = Question {
        project: &wanted.project,
        asked: &wanted.asked,
        stored: None,
        tracked: None,
        known,
        now,
        deadline,
        by: QueryOrigin::default(),
    };
    let answered = calculator.answer(&question, RefreshMode::ForceBlocking).await.map_err(|e| said(&e))?;
    let answered = answered.calculated.ok_or("the calculation gave no result")?;
    let rows = || table::rows(&wanted.asked.query, &answered.result);
    // PENNON_JSON may be set for all commands, so --csv comes first.
    let mut text = if options.csv {
        table::csv(&rows())?
    } else if options.json {
        json_of(&answered)
    } else {
        table::aligned(&rows())
    };
    if options.stats {
        // Beside the result, so that a pipe gets that alone.
        eprintln!("{}", stats(measured, begin));
    }
    if !text.ends_with('\n') {
        text.push('\n');
    }
    Ok(text)
}

fn json_of(answered: &QueryResult) -> String {
    let body = json!({
        "result": answered.result, "timezone": answered.timezone, "hasMore": answered.has_more,
        "last_refresh": timestamp(answered.last_refresh),
    });
    format!("{body:#}")
}

/// What the scans took together.
fn stats(measured: &CalculationMetrics, begin: Instant) -> String {
    let scans = measured.scans();
    let sum = |of: fn(&pennon_eventstore::ScanStats) -> u64| scans.iter().map(of).sum::<u64>();
    format!(
        "{} ms; {} scans of {} segments: {} events, {} of them from blocks; {} rows decoded, {} bytes read",
        begin.elapsed().as_millis(),
        scans.len(),
        sum(|it| it.segments),
        sum(|it| it.rows),
        sum(|it| it.hot_rows),
        sum(|it| it.rows_decoded),
        sum(|it| it.bytes_read),
    )
}

/// The project and the question that `options` name.
async fn wanted(options: &Query, store: &Store) -> Result<Wanted, String> {
    let id = project_of(options.project, store).await?;
    let item = store.records.get(&keys::project(id)).await.map_err(|e| e.to_string())?;
    let project: Project = match item {
        Some(item) => item.body().map_err(|e| e.to_string())?,
        None => return Err(format!("there is no project {id}; `pennon apply` declares projects")),
    };
    let name = options.question.as_str();
    let parsed = match read(name)? {
        Some(text) => parse(&text).map_err(|e| format!("{name}: {e}"))?.map_err(|e| e.to_string())?,
        None => {
            let found = saved::find(&store.records, id, name).await.map_err(|e| said(&e))?;
            let found = found.ok_or_else(|| {
                format!(
                    "project {id} has no insight \"{name}\", and there is no such file; an insight is named by its id \
                     or its short id, as GET /api/projects/{id}/insights/ lists them"
                )
            })?;
            found.question.map_err(|e| e.to_string())?
        }
    };
    match parsed {
        ParsedQuery::Query(query) => Ok(Wanted { project, asked: Asked::new(query, Purpose::Saved, None) }),
        ParsedQuery::Empty => Err(format!("{name} asks for nothing: it names no events and no actions")),
        ParsedQuery::OtherKind(kind) => Err(format!("{name} is a {kind}, which is not calculated")),
    }
}

/// The project that is meant: the one that is named, or the only one.
async fn project_of(named: Option<u64>, store: &Store) -> Result<u64, String> {
    if let Some(id) = named {
        return Ok(id);
    }
    let state = State::load(&store.records).await.map_err(|e| e.to_string())?;
    let ids: Vec<u64> = state.projects.values().map(|project| project.spec.id).collect();
    match ids.as_slice() {
        [only] => Ok(*only),
        [] => Err(
            "nothing is declared here; `pennon apply` declares projects, a first `pennon serve` makes a demo"
                .to_owned(),
        ),
        several => Err(format!("there are several projects: name one of {several:?} with --project")),
    }
}

/// The text of a file or of standard input; none where the name is no file's.
fn read(name: &str) -> Result<Option<String>, String> {
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

/// A query node, or the filters of a request for a trend or a funnel.
fn parse(text: &str) -> Result<CalcResult<ParsedQuery>, String> {
    let value: Value = serde_json::from_str(text).map_err(|e| format!("not JSON: {e}"))?;
    match value.as_object() {
        None => Err("a query is a JSON object".to_owned()),
        Some(object) if object.contains_key("kind") => Ok(Node::from_query_node(&value)),
        Some(object) => Ok(Node::from_insight_filters(object)),
    }
}

/// An error of the API, for people.
fn said(error: &ApiError) -> String {
    match error.status().as_u16() {
        503 => "the question could not be answered in its time, or the store is busy; try again, narrow the dates, or \
                name fewer events"
            .to_owned(),
        _ => error.detail().to_owned(),
    }
}
