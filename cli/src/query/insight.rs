//! `pennon query funnel`, `trend` and the other kinds: the query node is built from options and calculated as a node of a file
//! is, or sent to the API at `--url`.

use chrono::Utc;
use pennon_analytics::query::Math;
use pennon_analytics::{ParsedQuery, Query as Node};
use pennon_calculation::Calculator;
use pennon_calculation::calculator::{CacheScope, KeyedQuery};
use pennon_core::app::App;
use pennon_core::clock::Clock;
use serde_json::{Value, json};

use super::{
    PrintedResult, ResolvedQuery, ResultForm, calculate, error_text, event_names, load_project, node, render,
};
use crate::args::{InsightOptions, QueryCommand};
use crate::client::{Access, ApiClient, ApiFailure};
use crate::installation::open_for_reading;
use crate::show::text::output_width;

/// Names of events in one page of the API.
const NAMES_PER_PAGE: usize = 1000;
/// Most pages of names that are read to suggest one.
const NAME_PAGES_MAX: usize = 10;

/// Calculates the insight of `command`. Returns the text to print.
pub async fn run(command: &QueryCommand) -> Result<String, String> {
    let node = node::build(command)?;
    let parsed = Node::from_query_node(&node).map_err(|e| e.to_string())?;
    let ParsedQuery::Query(query) = parsed else { return Err("the query names no events".to_owned()) };
    check_math(command, &query)?;
    let names = node::event_names(command)?;
    let InsightOptions { target, json, csv, .. } = command.common();
    let form = ResultForm { json: *json, csv: *csv, stats: false };
    let printed = match &target.url {
        Some(_) => {
            let client = ApiClient::connect(target, Access::Read).await?;
            match fetch_event_names(&client, &names).await {
                Ok(known) => event_names::check(&names, &known)?,
                // The key may calculate, but not list names.
                Err(failure) if failure.status == 403 => {}
                Err(failure) => return Err(failure.to_string()),
            }
            request_result(&client, &node).await?
        }
        None => calculate_here(command, query.clone(), &names, form).await?,
    };
    printed.format(form, &query, |result| render::to_text(command, &query, result, output_width()))
}

/// Rejects a math that counts events because its name is unknown or its property is missing, as the API defines for both.
fn check_math(command: &QueryCommand, query: &Node) -> Result<(), String> {
    let (QueryCommand::Trend(options), Node::Trends(trend)) = (command, query) else { return Ok(()) };
    let Some(name) = options.math.as_deref().filter(|name| *name != "total") else { return Ok(()) };
    if trend.series.iter().all(|series| series.math != Math::Total) {
        return Ok(());
    }
    Err(match &options.math_property {
        None => format!(
            "--math {name} is unknown, or needs --math-property; `pennon help query` lists what is counted"
        ),
        Some(_) => format!("--math {name} is unknown; `pennon help query` lists what is counted"),
    })
}

/// Calculates over the data directory or the deployment.
async fn calculate_here(
    command: &QueryCommand,
    query: Node,
    names: &[String],
    form: ResultForm,
) -> Result<PrintedResult, String> {
    let target = &command.common().target;
    let opened = open_for_reading(&target.target).await?;
    let project = load_project(target.project, &opened.store).await?;
    let app = App::new(opened.store.clone(), Clock::Running);
    let calculator = Calculator::new(&app, opened.events.clone());
    let is_copy = opened.local.as_ref().is_some_and(|local| local.is_copy);
    let calculator = if is_copy { calculator.without_cache_writes() } else { calculator };
    let (calculator, measured) = calculator.measured();
    let captured = calculator.event_names(&project).await.map_err(|e| error_text(&e))?;
    let captured: Vec<String> = captured.into_iter().map(|event| event.name).collect();
    event_names::check(names, &captured)?;
    let resolved = ResolvedQuery { project, keyed: KeyedQuery::new(query, CacheScope::Saved, None) };
    let read = calculator.read(&resolved.project, &[&resolved.keyed]).await.map_err(|e| error_text(&e))?;
    calculate(form, &resolved, (&calculator, &measured), &read.known, Utc::now()).await
}

/// The names of the project's events: only `names`, if all of them exist, else all, to suggest others.
async fn fetch_event_names(client: &ApiClient, names: &[String]) -> Result<Vec<String>, ApiFailure> {
    let filter: Vec<(&str, &str)> = names.iter().map(|name| ("names", name.as_str())).collect();
    let found = fetch_names(client, &[&filter[..], &[("limit", "1000")]].concat()).await?;
    if names.iter().all(|name| found.contains(name)) {
        return Ok(found);
    }
    let mut all = Vec::new();
    for page in 0..NAME_PAGES_MAX {
        let (limit, offset) = (NAMES_PER_PAGE.to_string(), (page * NAMES_PER_PAGE).to_string());
        let more = fetch_names(client, &[("limit", &limit), ("offset", &offset)]).await?;
        let is_last = more.len() < NAMES_PER_PAGE;
        all.extend(more);
        if is_last {
            break;
        }
    }
    Ok(all)
}

async fn fetch_names(client: &ApiClient, query: &[(&str, &str)]) -> Result<Vec<String>, ApiFailure> {
    let page = client.get("event_definitions/", query).await?;
    let rows = page["results"].as_array().into_iter().flatten();
    Ok(rows.filter_map(|row| row["name"].as_str().map(str::to_owned)).collect())
}

/// The result of the API.
async fn request_result(client: &ApiClient, node: &Value) -> Result<PrintedResult, String> {
    let mut response = client.post("query/", &json!({"query": node, "refresh": "blocking"})).await?;
    if response["results"].is_null() {
        return Err("the calculation takes longer than a request may; try again, narrow the dates, or name fewer events".to_owned());
    }
    Ok(PrintedResult {
        result: response["results"].take(),
        timezone: response["timezone"].take(),
        has_more: response["hasMore"].take(),
        last_refresh: response["last_refresh"].take(),
    })
}
