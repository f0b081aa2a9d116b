//! The select of `events`: name, actor, time and arrival of each event, and the values that the query reads.
//!
//! Must stay true: files with different columns for a value are read by separate selects; files without events of the
//! query are skipped.

use std::collections::BTreeMap;

use pennon_filters::error::CalcResult;
use uuid::Uuid;

use super::{FileLocation, MAX_PERSON_MERGES, SqlSegment, StatementWriter, quote, unsupported, values};
use crate::scan::ActorKind;
use crate::scan::{EventSelection, Micros};

/// The range of ClickHouse's `DateTime64`.
const TIMES: (Micros, Micros) = (-2_208_988_800_000_000, 10_413_791_999_000_000);

/// The events of the query between two instants, both inclusive.
pub(super) fn events(writer: &StatementWriter<'_>, times: (Micros, Micros)) -> CalcResult<String> {
    let names = match &writer.compiler.needs.scan.events {
        EventSelection::All => None,
        EventSelection::Named(names) => Some(names),
    };
    let may_match = |segment: &&SqlSegment| {
        let named = match (names, &segment.events) {
            (Some(names), Some(listed)) => listed.iter().any(|name| names.contains(name)),
            _ => true,
        };
        named && segment.times.0 <= times.1 && segment.times.1 >= times.0
    };
    let actor = actor(writer)?;
    let mut by_columns: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for segment in writer.files.segments.iter().filter(may_match) {
        by_columns.entry(columns(writer, segment)).or_default().push(&segment.object);
    }
    let condition = quote::all(
        names
            .map(|names| match names.is_empty() {
                true => quote::FALSE.to_owned(),
                false => format!("event IN ({})", quote::texts(names.iter().map(String::as_str))),
            })
            .into_iter()
            .chain([time_bound(">=", times.0), time_bound("<=", times.1)]),
    );
    let select = |(columns, objects): (String, Vec<&str>)| {
        let from = table(&writer.files.place, &objects);
        format!("{}{columns}\n    FROM {from}\n    WHERE {condition}", head(&actor))
    };
    let selects: Vec<String> = by_columns.into_iter().map(select).collect();
    if selects.is_empty() {
        return Ok(no_rows(writer));
    }
    Ok(selects.join("\n    UNION ALL\n"))
}

fn head(actor: &str) -> String {
    format!(
        "    SELECT assumeNotNull(event) AS name, {actor} AS actor, \
         toUnixTimestamp64Micro(assumeNotNull(timestamp)) AS t,\n        \
         (assumeNotNull(seq_high), assumeNotNull(seq_low)) AS arrival"
    )
}

/// The columns of the values that the query reads, for one file.
fn columns(writer: &StatementWriter<'_>, segment: &SqlSegment) -> String {
    let mut out = String::new();
    for (at, key, text, number) in writer.fields.columns() {
        if text {
            out.push_str(&format!(
                ",\n        CAST({}, 'Nullable(String)') AS k{at}",
                values::text(segment, key)
            ));
        }
        if number {
            out.push_str(&format!(
                ",\n        CAST({}, 'Nullable(Float64)') AS n{at}",
                values::number(segment, key)
            ));
        }
    }
    out
}

/// The same columns without rows.
fn no_rows(writer: &StatementWriter<'_>) -> String {
    let mut out =
        "    SELECT '' AS name, '' AS actor, toInt64(0) AS t, (toUInt64(0), toUInt64(0)) AS arrival"
            .to_owned();
    for (at, _, text, number) in writer.fields.columns() {
        if text {
            out.push_str(&format!(", CAST(NULL, 'Nullable(String)') AS k{at}"));
        }
        if number {
            out.push_str(&format!(", CAST(NULL, 'Nullable(Float64)') AS n{at}"));
        }
    }
    out.push_str("\n    FROM numbers(0)");
    out
}

/// The column of the counted actor.
fn actor(writer: &StatementWriter<'_>) -> CalcResult<String> {
    match writer.compiler.actors.first().copied().unwrap_or_default() {
        ActorKind::DistinctIds => return Ok("assumeNotNull(distinct_id)".to_owned()),
        ActorKind::Groups(_) => return Err(unsupported("a count of groups")),
        ActorKind::Persons => {}
    }
    let merged = &writer.files.merged;
    if merged.len() > MAX_PERSON_MERGES {
        return Err(unsupported("more merged persons than a statement can name"));
    }
    let person = "assumeNotNull(person)";
    if merged.is_empty() {
        return Ok(person.to_owned());
    }
    let list = |ids: &mut dyn Iterator<Item = &Uuid>| {
        let ids: Vec<String> = ids.map(|id| format!("'{}'", id.simple())).collect();
        format!("arrayMap(id -> toFixedString(unhex(id), 16), [{}])", ids.join(", "))
    };
    let from = list(&mut merged.iter().map(|(from, _)| from));
    let to = list(&mut merged.iter().map(|(_, to)| to));
    Ok(format!("transform({person}, {from}, {to}, {person})"))
}

fn time_bound(sign: &str, micros: Micros) -> String {
    if micros < TIMES.0 || micros > TIMES.1 {
        return format!("toUnixTimestamp64Micro(timestamp) {sign} {micros}");
    }
    let (seconds, rest) = (micros.div_euclid(1_000_000), micros.rem_euclid(1_000_000));
    let at = chrono::DateTime::from_timestamp(seconds, 0).unwrap_or_default().format("%Y-%m-%d %H:%M:%S");
    format!("timestamp {sign} toDateTime64('{at}.{rest:06}', 6, 'UTC')")
}

/// The table function that reads some files.
fn table(place: &FileLocation, objects: &[&str]) -> String {
    let (function, base) = match place {
        FileLocation::Directory(path) => ("file(".to_owned(), path),
        FileLocation::Bucket { url, cluster: None } => ("s3(".to_owned(), url),
        FileLocation::Bucket { url, cluster: Some(name) } => {
            (format!("s3Cluster({}, ", quote::text(name)), url)
        }
    };
    let base = base.trim_end_matches('/');
    let path = match objects {
        [only] => format!("{base}/{only}"),
        several => {
            // The common folder is written before the braces.
            let common = several.iter().fold(several[0], |common, path| common_folder(common, path));
            let rest: Vec<&str> = several.iter().map(|path| &path[common.len()..]).collect();
            format!("{base}/{common}{{{}}}", rest.join(","))
        }
    };
    format!("{function}{}, Parquet)", quote::text(&path))
}

/// The common folders of two paths.
fn common_folder<'a>(left: &'a str, right: &str) -> &'a str {
    let same = left.bytes().zip(right.bytes()).take_while(|(left, right)| left == right).count();
    let folder = left.get(..same).and_then(|start| start.rfind('/')).map_or(0, |at| at + 1);
    &left[..folder]
}
