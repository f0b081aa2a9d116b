//! Translates a query to SQL for ClickHouse over the segment files, and prints it or runs it on a server.
//!
//! Must stay true: SQL is printed or run only if the files have all events of the project.

use pennon_analytics::clickhouse::{FileLocation, MAX_PERSON_MERGES};
use pennon_calculation::Calculator;
use pennon_calculation::QueryResult;
use pennon_calculation::calculator::{ClickhouseError, QueryRequest};
use pennon_calculation::clickhouse::ClickhouseServer;
use pennon_core::config::ClickhouseSettings;

use super::error_text;
use crate::args::{Engine, Query};

/// Validates the options for ClickHouse.
pub(super) fn validate_options(options: &Query) -> Result<(), String> {
    if options.engine == Engine::Clickhouse {
        return match options.clickhouse_url {
            None if !options.print => Err(
                "--engine clickhouse needs a server: name it by --url, such as http://127.0.0.1:8123; or add --print, and give \
                 what it prints to clickhouse-client"
                    .to_owned(),
            ),
            _ => Ok(()),
        };
    }
    if options.print {
        return Err("--print prints SQL for another engine; add --engine clickhouse".to_owned());
    }
    let set = ClickhouseSettings::at("");
    let from_env = ClickhouseSettings::from_env().map(|settings| settings.url);
    for (option, value, variable) in [
        ("--url", &options.clickhouse_url, &from_env),
        ("--cluster", &options.cluster, &set.cluster),
        ("--files", &options.files, &set.files),
    ] {
        // The variable of a server may be set for all commands.
        if value.is_some() && value != variable {
            return Err(format!("{option} is for ClickHouse; add --engine clickhouse"));
        }
    }
    Ok(())
}

/// The statement of a query, over the files of `--files` or at `events_url`.
pub(super) async fn to_sql(
    options: &Query,
    request: &QueryRequest<'_>,
    calculator: &Calculator,
    events_url: &str,
) -> Result<String, String> {
    let mut location = FileLocation::parse(options.files.as_deref(), events_url)?;
    if let Some(cluster) = &options.cluster {
        location = location.on_cluster(cluster)?;
    }
    let statement = calculator.clickhouse_statement(request, &location).await;
    let statement = statement.map_err(|error| failure_text(&error, request, ""))?;
    Ok(format!("{statement};\n"))
}

/// Calculates a query on the server `url`.
pub(super) async fn calculate(
    options: &Query,
    request: &QueryRequest<'_>,
    calculator: &Calculator,
    (url, events_url): (&str, &str),
) -> Result<QueryResult, String> {
    let (cluster, files) = (options.cluster.clone(), options.files.clone());
    let settings = ClickhouseSettings { cluster, files, ..ClickhouseSettings::at(url) };
    let server = ClickhouseServer::new(&settings, events_url)?;
    let result = calculator.calculate_in_clickhouse(request, &server).await;
    result.map_err(|error| failure_text(&error, request, url))
}

/// The message for an error, with what to do about it.
fn failure_text(error: &ClickhouseError, request: &QueryRequest<'_>, url: &str) -> String {
    let project = request.project.id;
    match error {
        ClickhouseError::EventsWait(events) | ClickhouseError::EventsMayWait(events) => format!(
            "{events} events of the query in project {project} are in no file yet; run `pennon compact` (or wait until the server or the worker \
             has done it), and repeat the command then"
        ),
        ClickhouseError::TooManyMerges(persons) => format!(
            "{persons} persons in the files were merged into others since, and a statement can list at most \
             {MAX_PERSON_MERGES}; `pennon compact` rewrites the files with the merged persons"
        ),
        ClickhouseError::Server(reason) => {
            format!("ClickHouse at {url} did not calculate the query: {reason}")
        }
        ClickhouseError::Unsupported(error) => error.detail.clone(),
        ClickhouseError::Other(error) => error_text(error),
    }
}
