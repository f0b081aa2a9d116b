//! Translates a query to SQL for ClickHouse over the segment files.
//!
//! Must stay true: SQL is printed only if the files have all events of the project.

use chrono::{DateTime, Utc};
use pennon_analytics::clickhouse::{FileLocation, MAX_PERSON_MERGES, SegmentFiles};
use pennon_calculation::Calculator;
use pennon_calculation::calculator::DefinitionLookup;
use pennon_eventstore::EventStore;

use super::{ResolvedQuery, error_text};

/// The SQL statement of a query.
pub(super) async fn to_sql(
    resolved: &ResolvedQuery,
    calculator: &Calculator,
    events: &EventStore,
    known: &DefinitionLookup,
    place: FileLocation,
    now: DateTime<Utc>,
) -> Result<String, String> {
    let (project, query) = (&resolved.project, &resolved.keyed.query);
    let live = events.live_files(project.id).await.map_err(|e| e.to_string())?;
    if live.waiting > 0 {
        return Err(format!(
            "{} events of project {} are in no file yet; run `pennon compact` (or wait until the server or the worker \
             has done it), and print the SQL then",
            live.waiting, project.id
        ));
    }
    if live.merged.len() > MAX_PERSON_MERGES {
        return Err(format!(
            "{} persons in the files were merged into others since, and a statement can list at most \
             {MAX_PERSON_MERGES}; `pennon compact` rewrites the files with the merged persons",
            live.merged.len()
        ));
    }
    let context = calculator.context(project, query, known).await.map_err(|e| error_text(&e))?;
    let files = SegmentFiles { place, segments: live.segments, merged: live.merged };
    let sql = query.clickhouse(&context, now, &files).map_err(|e| e.detail)?;
    Ok(format!("{sql};\n"))
}

/// The location of the files for ClickHouse: that of `--files`, or `events_url`. An error for characters that ClickHouse reads
/// as a glob pattern.
pub fn parse_file_location(option: Option<&str>, events_url: &str) -> Result<FileLocation, String> {
    let url = option.unwrap_or(events_url);
    let place = if url.starts_with("https://") || url.starts_with("http://") {
        FileLocation::Bucket(url.to_owned())
    } else if let Some(bucket) = url.strip_prefix("s3://") {
        let (bucket, prefix) = bucket.split_once('/').unwrap_or((bucket, ""));
        FileLocation::Bucket(format!("https://{bucket}.s3.amazonaws.com/{prefix}"))
    } else {
        FileLocation::Directory(url.strip_prefix("file://").unwrap_or(url).to_owned())
    };
    let (FileLocation::Directory(base) | FileLocation::Bucket(base)) = &place;
    match base.chars().find(|letter| "*?{}[]".contains(*letter)) {
        None => Ok(place),
        Some(letter) => Err(format!(
            "{base} has a '{letter}', which ClickHouse takes for a pattern of names; name a path without it by --files"
        )),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_location_is_a_directory_or_a_bucket() {
        let directory = |path: &str| FileLocation::Directory(path.to_owned());
        assert_eq!(parse_file_location(None, "file:///data/events").unwrap(), directory("/data/events"));
        assert_eq!(parse_file_location(Some("events"), "file:///data/events").unwrap(), directory("events"));
        let bucket = FileLocation::Bucket("https://b.s3.amazonaws.com/events".to_owned());
        assert_eq!(parse_file_location(None, "s3://b/events").unwrap(), bucket);
        let minio = "http://127.0.0.1:9000/b/events";
        assert_eq!(
            parse_file_location(Some(minio), "s3://b/events").unwrap(),
            FileLocation::Bucket(minio.to_owned())
        );
        assert!(parse_file_location(None, "file:///a*b").unwrap_err().contains("--files"));
    }
}
