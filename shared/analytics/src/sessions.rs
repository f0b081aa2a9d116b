//! Computes session fields from events: start, end, entry and exit page, event counts.
//!
//! Must stay true: a session is all events with its session id, regardless of time, event name and person, so its fields
//! do not depend on the filters of a query. The entry event is the earliest event with a URL, or the earliest event if none
//! has a URL; the end event is the latest one likewise.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};

use pennon_filters::dates::zone::{from_micros, utc_text};
use pennon_filters::error::{CalcError, CalcResult};
use pennon_filters::operator::Operator;
use pennon_filters::text::{number_of, text_of};
use pennon_filters::work_budget::WorkBudget;
use serde_json::{Map, Value, json};

use crate::join::{PropertyTable, session_column};
use crate::limits;
use crate::scan::{ColumnKey, EventRun, EventSelection, MISSING, Micros, Partition, ScanRequest, Seq};

/// The length of a session in whole seconds.
pub const DURATION: &str = "$session_duration";

/// The operators of a filter on the length of a session: those that compare numbers.
pub const DURATION_OPERATORS: [Operator; 12] = [
    Operator::Exact,
    Operator::IsNot,
    Operator::In,
    Operator::NotIn,
    Operator::Gt,
    Operator::Gte,
    Operator::Lt,
    Operator::Lte,
    Operator::Min,
    Operator::Max,
    Operator::Between,
    Operator::NotBetween,
];

/// How a session field is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SessionField {
    /// Whole seconds from the first event to the last.
    Duration,
    Start,
    End,
    /// The count of events with this name.
    Count(&'static str),
    /// A property of the entry event.
    EntryProperty(&'static str),
    /// The URL path or host of the entry event.
    EntryPath,
    EntryHost,
    /// The URL of the end event, its path, its host.
    EndUrl,
    EndPath,
    EndHost,
}

const URL: &str = "$current_url";

/// All session fields by name.
const FIELDS: [(&str, SessionField); 26] = [
    (DURATION, SessionField::Duration),
    ("$start_timestamp", SessionField::Start),
    ("$end_timestamp", SessionField::End),
    ("$pageview_count", SessionField::Count("$pageview")),
    ("$autocapture_count", SessionField::Count("$autocapture")),
    ("$screen_count", SessionField::Count("$screen")),
    ("$entry_current_url", SessionField::EntryProperty(URL)),
    ("$entry_pathname", SessionField::EntryPath),
    ("$entry_hostname", SessionField::EntryHost),
    ("$end_current_url", SessionField::EndUrl),
    ("$exit_current_url", SessionField::EndUrl),
    ("$end_pathname", SessionField::EndPath),
    ("$exit_pathname", SessionField::EndPath),
    ("$end_hostname", SessionField::EndHost),
    ("$exit_hostname", SessionField::EndHost),
    ("$entry_utm_source", SessionField::EntryProperty("utm_source")),
    ("$entry_utm_medium", SessionField::EntryProperty("utm_medium")),
    ("$entry_utm_campaign", SessionField::EntryProperty("utm_campaign")),
    ("$entry_utm_term", SessionField::EntryProperty("utm_term")),
    ("$entry_utm_content", SessionField::EntryProperty("utm_content")),
    ("$entry_referring_domain", SessionField::EntryProperty("$referring_domain")),
    ("$entry_referrer", SessionField::EntryProperty("$referrer")),
    ("$entry_gclid", SessionField::EntryProperty("gclid")),
    ("$entry_fbclid", SessionField::EntryProperty("fbclid")),
    ("$entry_msclkid", SessionField::EntryProperty("msclkid")),
    ("$entry_gad_source", SessionField::EntryProperty("gad_source")),
];

/// The type of a session field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionFieldType {
    /// A text.
    Text,
    /// A number.
    Number,
    /// An instant.
    Instant,
}

/// The session fields and their types.
pub fn session_fields() -> impl Iterator<Item = (&'static str, SessionFieldType)> {
    FIELDS.iter().map(|(name, field)| {
        let value = match field {
            SessionField::Duration | SessionField::Count(_) => SessionFieldType::Number,
            SessionField::Start | SessionField::End => SessionFieldType::Instant,
            _ => SessionFieldType::Text,
        };
        (*name, value)
    })
}

fn field(name: &str) -> Option<SessionField> {
    FIELDS.iter().find(|(known, _)| *known == name).map(|(_, field)| *field)
}

/// Whether the values of a field are instants.
pub(crate) fn is_instant(name: &str) -> bool {
    matches!(field(name), Some(SessionField::Start | SessionField::End))
}

/// Validates a filter on a session field: the field must exist, and the duration can only be compared with numbers.
pub(crate) fn validate_filter(name: &str, operator: Operator, value: &Value, attr: &str) -> CalcResult<()> {
    find_field(name, attr)?;
    if name != DURATION {
        return Ok(());
    }
    if !DURATION_OPERATORS.contains(&operator) {
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

fn find_field(name: &str, attr: &str) -> CalcResult<SessionField> {
    field(name).ok_or_else(|| CalcError::invalid(attr, format!("Sessions have no field {name}.")))
}

/// The event columns that a session field is computed from, besides the session id.
pub(crate) fn event_columns(name: &str, attr: &str) -> CalcResult<Vec<ColumnKey>> {
    let column = |key: &str| ColumnKey::Property(key.to_owned());
    Ok(match find_field(name, attr)? {
        SessionField::Duration | SessionField::Start | SessionField::End | SessionField::Count(_) => {
            Vec::new()
        }
        SessionField::EntryProperty(key) => vec![column(URL), column(key)],
        SessionField::EntryPath
        | SessionField::EntryHost
        | SessionField::EndUrl
        | SessionField::EndPath
        | SessionField::EndHost => vec![column(URL)],
    })
}

/// The scan that sessions are built from: all events, because a session does not end where a query's dates do.
pub(crate) fn scan_request() -> ScanRequest {
    ScanRequest {
        events: EventSelection::All,
        from: limits::MIN_EVENT_TIME,
        to: limits::MAX_EVENT_TIME,
        columns: BTreeSet::from([session_column()]),
        // A session can have events of several persons.
        arrivals: true,
    }
}

/// An event: its sort key, and its run and row.
#[derive(Debug, Clone, Copy)]
struct EventPosition {
    time: Micros,
    seq: Seq,
    run: u32,
    row: u32,
}

/// The event names that some field counts.
const COUNTED_EVENTS: [&str; 3] = ["$pageview", "$autocapture", "$screen"];

/// The state of a session while its events are read.
#[derive(Debug)]
struct Session {
    first: EventPosition,
    last: EventPosition,
    /// The first and the last event with a URL.
    pages: Option<(EventPosition, EventPosition)>,
    /// Event counts in the order of [`COUNTED_EVENTS`].
    counts: [u64; COUNTED_EVENTS.len()],
}

/// Computes the fields of all sessions of these events. An error above [`limits::SESSION_BYTES`].
pub(crate) fn build_sessions(
    fields: &BTreeSet<String>,
    partitions: &[Partition],
    work: &WorkBudget<'_>,
) -> CalcResult<PropertyTable<String>> {
    build_sessions_within(limits::SESSION_BYTES, fields, partitions, work)
}

/// Units of work of computing the fields of a session.
const WORK_PER_SESSION: usize = 64;

/// Approximate memory of a session in bytes: entries in two hash tables that may be half empty, with its id in each.
fn session_bytes(name: &str) -> usize {
    let places = size_of::<(Cow<'_, str>, Session)>() + size_of::<(String, u32)>();
    2 * (places + name.len() + 16)
}

/// As [`build_sessions`], with a memory limit of `most` bytes.
fn build_sessions_within(
    most: usize,
    fields: &BTreeSet<String>,
    partitions: &[Partition],
    work: &WorkBudget<'_>,
) -> CalcResult<PropertyTable<String>> {
    let runs: Vec<&EventRun> = partitions.iter().flat_map(|partition| &partition.runs).collect();
    let mut sessions: HashMap<Cow<'_, str>, Session> = HashMap::new();
    let mut used_bytes = 0;
    for (number, run) in (0..).zip(&runs) {
        work.check()?;
        let Some(ids) = run.columns.get(&session_column()) else { continue };
        let names: Vec<Option<Cow<'_, str>>> =
            ids.values.iter().map(|id| text_of(id).filter(|id| !id.is_empty())).collect();
        let urls = run.columns.get(&ColumnKey::Property(URL.to_owned()));
        let counted = COUNTED_EVENTS.iter().position(|name| *name == run.event);
        for (row, code) in (0..).zip(&ids.codes) {
            let index = row as usize;
            work.consume(1)?;
            let name =
                usize::try_from(*code).ok().filter(|_| *code != MISSING).and_then(|code| names.get(code));
            let Some(Some(name)) = name else { continue };
            let at = EventPosition { time: run.times[index], seq: run.order.at(index), run: number, row };
            let has_url = urls.and_then(|urls| urls.value(index)).is_some_and(has_content);
            if !sessions.contains_key(name) {
                used_bytes += session_bytes(name);
                if used_bytes > most {
                    return Err(limits::too_many_sessions(most));
                }
                let counts = [0; COUNTED_EVENTS.len()];
                sessions.insert(name.clone(), Session { first: at, last: at, pages: None, counts });
            }
            let Some(session) = sessions.get_mut(name) else { continue };
            session.add(at, has_url, counted);
        }
    }
    let mut known = PropertyTable::new(fields);
    for (id, session) in sessions {
        work.consume(WORK_PER_SESSION)?;
        if used_bytes + known.value_bytes() > most {
            return Err(limits::too_many_sessions(most));
        }
        let values =
            fields.iter().filter_map(|name| Some((name.clone(), session.value(field(name)?, &runs)?)));
        known.add(id.into_owned(), &values.collect::<Map<_, _>>());
    }
    if used_bytes + known.value_bytes() > most {
        return Err(limits::too_many_sessions(most));
    }
    Ok(known)
}

impl Session {
    fn add(&mut self, at: EventPosition, has_url: bool, counted: Option<usize>) {
        let order = |at: &EventPosition| (at.time, at.seq);
        let stretch = |first: &mut EventPosition, last: &mut EventPosition| {
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
        if let Some(count) = counted.and_then(|place| self.counts.get_mut(place)) {
            *count += 1;
        }
    }

    fn value(&self, field: SessionField, runs: &[&EventRun]) -> Option<Value> {
        let entry = self.pages.map_or(self.first, |pages| pages.0);
        let end = self.pages.map_or(self.last, |pages| pages.1);
        let property = |at: EventPosition, key: &str| {
            let column = runs.get(at.run as usize)?.columns.get(&ColumnKey::Property(key.to_owned()))?;
            column.value(at.row as usize).filter(|value| has_content(value)).cloned()
        };
        let url = |at: EventPosition| property(at, URL).and_then(|url| text_of(&url).map(String::from));
        let instant = |at: EventPosition| json!(utc_text(&from_micros(at.time, chrono_tz::UTC)));
        match field {
            SessionField::Duration => Some(json!((self.last.time - self.first.time) / 1_000_000)),
            SessionField::Start => Some(instant(self.first)),
            SessionField::End => Some(instant(self.last)),
            SessionField::Count(event) => {
                let place = COUNTED_EVENTS.iter().position(|name| *name == event)?;
                self.counts.get(place).map(|count| json!(count))
            }
            SessionField::EntryProperty(key) => property(entry, key),
            SessionField::EntryPath => url(entry).map(|url| json!(path(&url))),
            SessionField::EntryHost => url(entry).and_then(|url| host(&url).map(|host| json!(host))),
            SessionField::EndUrl => property(end, URL),
            SessionField::EndPath => url(end).map(|url| json!(path(&url))),
            SessionField::EndHost => url(end).and_then(|url| host(&url).map(|host| json!(host))),
        }
    }
}

fn has_content(value: &Value) -> bool {
    !value.is_null() && value.as_str() != Some("")
}

/// The path of a URL, without query and fragment.
fn path(url: &str) -> &str {
    let rest = match url.split_once("://") {
        Some((_, rest)) => rest.find(['/', '?', '#']).map_or("", |start| &rest[start..]),
        None => url,
    };
    rest.split(['?', '#']).next().unwrap_or_default()
}

/// The host of a URL, without user and port; none without a scheme.
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
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::scan::Column;

    #[test]
    fn every_count_field_has_a_counted_event() {
        for (name, field) in FIELDS {
            if let SessionField::Count(event) = field {
                assert!(COUNTED_EVENTS.contains(&event), "{name}");
            }
        }
    }

    /// Sessions a, b and c, whose events are in two runs; c saw two pages.
    fn three() -> [Partition; 1] {
        let run = |event: &str, ids: &[&str]| {
            let column = |values: Vec<Value>| Column::new((0..).take(values.len()).collect(), values);
            let urls = ids.iter().map(|id| json!(format!("https://example.com/{event}/{id}"))).collect();
            let columns = [
                (session_column(), column(ids.iter().map(|id| json!(id)).collect())),
                (ColumnKey::Property(URL.to_owned()), column(urls)),
            ];
            EventRun {
                event: event.to_owned(),
                actors: vec![0; ids.len()].into(),
                times: (0..).take(ids.len()).collect(),
                order: (0..).take(ids.len()).collect(),
                columns: columns.into(),
                ..EventRun::default()
            }
        };
        let runs = vec![run("$pageview", &["a", "b", "c", "c"]), run("x", &["c", "b", "a", ""])];
        [Partition { runs, ..Partition::default() }]
    }

    #[test]
    fn the_memory_limit_is_exact() {
        let partitions = three();
        for (field, want) in [
            ("$pageview_count", [json!(1), json!(1), json!(2)]),
            (
                "$entry_current_url",
                ["$pageview/a", "$pageview/b", "x/c"].map(|at| json!(format!("https://example.com/{at}"))),
            ),
        ] {
            let fields = BTreeSet::from([field.to_owned()]);
            let gathered =
                |most| build_sessions_within(most, &fields, &partitions, &WorkBudget::new(&|| false));
            let known = gathered(1 << 20).unwrap();
            let found = ["a", "b", "c"].map(|id| known.value(id, field).cloned());
            assert_eq!(found, want.map(Some), "{field}");
            let bytes = 3 * session_bytes("a") + known.value_bytes();
            assert!(gathered(bytes).is_ok());
            for less in [1, known.value_bytes(), known.value_bytes() + 1] {
                let refused = limits::too_many_sessions(bytes - less);
                assert_eq!(gathered(bytes - less).map(drop), Err(refused));
            }
        }
    }

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
