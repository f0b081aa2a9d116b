//! Sessions, made from their events: when they began and ended, where, and how many events of a kind they had.
//!
//! Must stay true: a session is all events that carry its id, of whatever time, event and person; so its fields do not
//! depend on what a question filters. Its entry is the earliest event that has a URL, and the earliest of all where none
//! has; its end likewise the latest.

use std::collections::{BTreeSet, HashMap};

use serde_json::{Map, Value, json};

use crate::cohort::EVER;
use crate::compiler::Compiler;
use crate::dates::zone::{from_micros, utc_text};
use crate::error::{CalcError, CalcResult};
use crate::facts::{Properties, session_column};
use crate::facts::{ROWS_BETWEEN, asked};
use crate::filter::Operator;
use crate::scan::{ColumnKey, EventSelection, MISSING, Micros, Partition, RowKey, Run, ScanRequest, Seq};
use crate::text::{number_of, text_of};

/// The last instant at which an event may happen: the end of the year 9999.
const EVER_AFTER: Micros = 253_402_300_799_999_999;

/// The length of a session in whole seconds.
pub(crate) const DURATION: &str = "$session_duration";

/// What a field of a session is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Field {
    /// Whole seconds from the first event to the last.
    Duration,
    Start,
    End,
    /// How many events of this name.
    Count(&'static str),
    /// A property of the entry.
    OfEntry(&'static str),
    /// The path of the URL of the entry, or its host.
    EntryPath,
    EntryHost,
    /// The URL of the end, its path, its host.
    EndUrl,
    EndPath,
    EndHost,
}

const URL: &str = "$current_url";

/// Every field by its name.
const FIELDS: [(&str, Field); 26] = [
    (DURATION, Field::Duration),
    ("$start_timestamp", Field::Start),
    ("$end_timestamp", Field::End),
    ("$pageview_count", Field::Count("$pageview")),
    ("$autocapture_count", Field::Count("$autocapture")),
    ("$screen_count", Field::Count("$screen")),
    ("$entry_current_url", Field::OfEntry(URL)),
    ("$entry_pathname", Field::EntryPath),
    ("$entry_hostname", Field::EntryHost),
    ("$end_current_url", Field::EndUrl),
    ("$exit_current_url", Field::EndUrl),
    ("$end_pathname", Field::EndPath),
    ("$exit_pathname", Field::EndPath),
    ("$end_hostname", Field::EndHost),
    ("$exit_hostname", Field::EndHost),
    ("$entry_utm_source", Field::OfEntry("utm_source")),
    ("$entry_utm_medium", Field::OfEntry("utm_medium")),
    ("$entry_utm_campaign", Field::OfEntry("utm_campaign")),
    ("$entry_utm_term", Field::OfEntry("utm_term")),
    ("$entry_utm_content", Field::OfEntry("utm_content")),
    ("$entry_referring_domain", Field::OfEntry("$referring_domain")),
    ("$entry_referrer", Field::OfEntry("$referrer")),
    ("$entry_gclid", Field::OfEntry("gclid")),
    ("$entry_fbclid", Field::OfEntry("fbclid")),
    ("$entry_msclkid", Field::OfEntry("msclkid")),
    ("$entry_gad_source", Field::OfEntry("gad_source")),
];

fn field(name: &str) -> Option<Field> {
    FIELDS.iter().find(|(known, _)| *known == name).map(|(_, field)| *field)
}

/// Whether a field is an instant.
pub(crate) fn is_instant(name: &str) -> bool {
    matches!(field(name), Some(Field::Start | Field::End))
}

/// Refuses filters on what no session has, and on the duration what is no comparison of numbers.
pub(crate) fn check(name: &str, operator: Operator, value: &Value, attr: &str) -> CalcResult<()> {
    known(name, attr)?;
    if name != DURATION {
        return Ok(());
    }
    let compares = matches!(
        operator,
        Operator::Exact
            | Operator::IsNot
            | Operator::In
            | Operator::NotIn
            | Operator::Gt
            | Operator::Gte
            | Operator::Lt
            | Operator::Lte
            | Operator::Min
            | Operator::Max
            | Operator::Between
            | Operator::NotBetween
    );
    if !compares {
        let detail = format!("{} does not compare numbers, as {DURATION} needs it.", operator.name());
        return Err(CalcError::invalid(attr, detail));
    }
    let values = match value {
        Value::Array(list) => list.as_slice(),
        one => std::slice::from_ref(one),
    };
    match values.iter().find(|value| number_of(value).is_none()) {
        Some(other) => {
            Err(CalcError::invalid(attr, format!("{DURATION} is a number of seconds, not {other}.")))
        }
        None => Ok(()),
    }
}

fn known(name: &str, attr: &str) -> CalcResult<Field> {
    field(name).ok_or_else(|| CalcError::invalid(attr, format!("Sessions have no field {name}.")))
}

/// Asks for a field of the session of every row.
pub(crate) fn ask(name: &str, compiler: &mut Compiler<'_>, attr: &str) -> CalcResult<()> {
    let field = known(name, attr)?;
    compiler.read(&RowKey::Event(session_column()), attr)?;
    compiler.needs.session_fields.insert(name.to_owned());
    let scan = compiler.needs.sessions.get_or_insert_with(|| ScanRequest {
        events: EventSelection::All,
        from: EVER,
        to: EVER_AFTER,
        columns: BTreeSet::from([session_column()]),
        // A session may be of several persons.
        arrivals: true,
    });
    let column = |key: &str| ColumnKey::Property(key.to_owned());
    match field {
        Field::Duration | Field::Start | Field::End | Field::Count(_) => {}
        Field::OfEntry(key) => scan.columns.extend([column(URL), column(key)]),
        Field::EntryPath | Field::EntryHost | Field::EndUrl | Field::EndPath | Field::EndHost => {
            scan.columns.insert(column(URL));
        }
    }
    Ok(())
}

/// An event by its order and by where it stands.
type At<'a> = (Micros, Seq, &'a Run, usize);

/// A session as far as its events were read.
struct Session<'a> {
    first: At<'a>,
    last: At<'a>,
    /// The first and the last of those with a URL.
    pages: Option<(At<'a>, At<'a>)>,
    /// How many events by name; only names that a field counts.
    counts: HashMap<&'a str, u64>,
}

/// The fields of all sessions whose events these are. `stop` is asked from time to time.
pub(crate) fn gather(
    fields: &BTreeSet<String>,
    partitions: &[Partition],
    stop: &dyn Fn() -> bool,
) -> CalcResult<Properties<String>> {
    let mut sessions: HashMap<String, Session<'_>> = HashMap::new();
    for run in partitions.iter().flat_map(|partition| &partition.runs) {
        asked(stop)?;
        let Some(ids) = run.columns.get(&session_column()) else { continue };
        let names: Vec<Option<String>> =
            ids.values.iter().map(|id| text_of(id).filter(|id| !id.is_empty()).map(Into::into)).collect();
        let urls = run.columns.get(&ColumnKey::Property(URL.to_owned()));
        for (row, code) in ids.codes.iter().enumerate() {
            if row % ROWS_BETWEEN == 0 {
                asked(stop)?;
            }
            let name =
                usize::try_from(*code).ok().filter(|_| *code != MISSING).and_then(|code| names.get(code));
            let Some(Some(name)) = name else { continue };
            let at = (run.times[row], run.order.at(row), run, row);
            let has_url = urls.and_then(|urls| urls.value(row)).is_some_and(says_something);
            match sessions.get_mut(name) {
                Some(session) => session.add(at, has_url),
                None => {
                    let pages = has_url.then_some((at, at));
                    let counts = HashMap::from([(run.event.as_str(), 1)]);
                    sessions.insert(name.clone(), Session { first: at, last: at, pages, counts });
                }
            }
        }
    }
    let mut known = Properties::new(fields);
    for (done, (id, session)) in sessions.into_iter().enumerate() {
        if done % ROWS_BETWEEN == 0 {
            asked(stop)?;
        }
        let values = fields.iter().filter_map(|name| Some((name.clone(), session.value(field(name)?)?)));
        known.add(id, &values.collect::<Map<_, _>>());
    }
    Ok(known)
}

impl<'a> Session<'a> {
    fn add(&mut self, at: At<'a>, has_url: bool) {
        let order = |at: &At<'a>| (at.0, at.1);
        let stretch = |first: &mut At<'a>, last: &mut At<'a>| {
            if order(&at) < order(first) {
                *first = at;
            }
            if order(&at) > order(last) {
                *last = at;
            }
        };
        stretch(&mut self.first, &mut self.last);
        if has_url {
            match &mut self.pages {
                Some((first, last)) => stretch(first, last),
                None => self.pages = Some((at, at)),
            }
        }
        *self.counts.entry(at.2.event.as_str()).or_default() += 1;
    }

    fn value(&self, field: Field) -> Option<Value> {
        let entry = self.pages.map_or(self.first, |pages| pages.0);
        let end = self.pages.map_or(self.last, |pages| pages.1);
        let property = |at: At<'a>, key: &str| {
            let value = at.2.columns.get(&ColumnKey::Property(key.to_owned()))?.value(at.3);
            value.filter(|value| says_something(value)).cloned()
        };
        let url = |at: At<'a>| property(at, URL).and_then(|url| text_of(&url).map(String::from));
        let instant = |at: At<'a>| json!(utc_text(&from_micros(at.0, chrono_tz::UTC)));
        match field {
            Field::Duration => Some(json!((self.last.0 - self.first.0) / 1_000_000)),
            Field::Start => Some(instant(self.first)),
            Field::End => Some(instant(self.last)),
            Field::Count(event) => Some(json!(self.counts.get(event).copied().unwrap_or(0))),
            Field::OfEntry(key) => property(entry, key),
            Field::EntryPath => url(entry).map(|url| json!(path(&url))),
            Field::EntryHost => url(entry).and_then(|url| host(&url).map(|host| json!(host))),
            Field::EndUrl => property(end, URL),
            Field::EndPath => url(end).map(|url| json!(path(&url))),
            Field::EndHost => url(end).and_then(|url| host(&url).map(|host| json!(host))),
        }
    }
}

fn says_something(value: &Value) -> bool {
    !value.is_null() && value.as_str() != Some("")
}

/// What follows scheme and host, without query and fragment.
fn path(url: &str) -> &str {
    let rest = match url.split_once("://") {
        Some((_, rest)) => rest.find(['/', '?', '#']).map_or("", |start| &rest[start..]),
        None => url,
    };
    rest.split(['?', '#']).next().unwrap_or_default()
}

/// The host without user and port; none for what has no scheme.
fn host(url: &str) -> Option<&str> {
    let (_, rest) = url.split_once("://")?;
    let authority = rest.split(['/', '?', '#']).next()?;
    let host = authority.rsplit('@').next()?;
    Some(match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_have_paths_and_hosts() {
        for (url, want_path, want_host) in [
            ("https://example.com/a/b?c=d#e", "/a/b", Some("example.com")),
            ("https://example.com", "", Some("example.com")),
            ("https://user@example.com:8080/?x", "/", Some("example.com")),
            ("https://[::1]:80/x", "/x", Some("[::1]")),
            ("https://example.com?x=/y", "", Some("example.com")),
            ("/a?b", "/a", None),
        ] {
            assert_eq!((path(url), host(url)), (want_path, want_host), "{url}");
        }
    }
}
