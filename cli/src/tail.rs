//! `pennon tail`: prints events as they arrive, by polling the list of events.
//!
//! Must stay true: every event is printed once, the oldest first; an event that arrives with a time more than an hour before
//! the newest one is not printed, so that memory and requests stay bounded; a busy or restarting server ends nothing.

use std::collections::BTreeMap;
use std::future::Future;
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use serde_json::Value;
use tokio::time::{Instant, sleep_until};

use crate::args::Tail;
use crate::client::{Access, ApiClient, ApiFailure};
use crate::output::print_to_reader;
use crate::show::text::{output_width, sanitize, truncate, width};

/// Events in one page, and most pages of one poll.
const EVENTS_PER_PAGE: usize = 200;
const PAGES_MAX: usize = 10;
/// Events that arrive later than this after newer ones are not printed.
const LATENESS_MAX: TimeDelta = TimeDelta::hours(1);
/// Longest time between two polls while requests fail.
const RETRY_DELAY_MAX: Duration = Duration::from_secs(60);
/// Columns of the name and the distinct id of an event.
const NAME_WIDTH: usize = 20;

/// Prints events until `stop` resolves, or the reader of the output has gone.
pub async fn tail(options: &Tail, stop: impl Future<Output = ()>) -> Result<(), String> {
    let client = ApiClient::connect(&options.target, Access::Read).await?;
    if !client.is_live() && !options.once {
        return Err(format!(
            "no server runs on {}, so no events arrive; start `pennon serve`, or print the latest events with --once",
            options.target.target.data.data.display()
        ));
    }
    let mut stop = std::pin::pin!(stop);
    let mut window = EventWindow::default();
    let newest = fetch_page(&client, options, None, None).await?;
    let has_more = !newest.1.is_empty();
    let events = window.begin(newest.0, has_more, options.lines as usize);
    if !print_events(&events, options)? || options.once {
        return Ok(());
    }
    let pause = Duration::from_secs(options.interval);
    let mut delay = pause;
    loop {
        let next = Instant::now() + delay;
        tokio::select! {
            () = sleep_until(next) => {}
            () = &mut stop => return Ok(()),
        }
        let polled = tokio::select! {
            polled = poll(&client, options, &mut window) => polled,
            () = &mut stop => return Ok(()),
        };
        match polled {
            Ok(events) => {
                delay = pause;
                if !print_events(&events, options)? {
                    return Ok(());
                }
            }
            Err(failure) if matches!(failure.status, 0 | 429 | 500..) => {
                if delay == pause {
                    eprintln!("pennon: {failure}; trying again");
                }
                delay = (delay * 2).min(RETRY_DELAY_MAX.max(pause));
            }
            Err(failure) => return Err(failure.to_string()),
        }
    }
}

/// The events that arrived since the last poll, the oldest first.
async fn poll(
    client: &ApiClient,
    options: &Tail,
    window: &mut EventWindow,
) -> Result<Vec<Value>, ApiFailure> {
    let mut arrived = Vec::new();
    let mut cursor = String::new();
    for _ in 0..PAGES_MAX {
        let after = window.floor.map(|at| at.to_rfc3339());
        let sent_cursor = Some(cursor.as_str()).filter(|cursor| !cursor.is_empty());
        let (events, next) = fetch_page(client, options, after.as_deref(), sent_cursor).await?;
        let before = arrived.len();
        arrived.extend(window.add_new(events));
        if next.is_empty() || arrived.len() == before {
            window.advance();
            arrived.reverse();
            return Ok(arrived);
        }
        cursor = next;
    }
    eprintln!(
        "pennon: more than {} events arrived at once; some are not printed",
        PAGES_MAX * EVENTS_PER_PAGE
    );
    window.advance();
    arrived.reverse();
    Ok(arrived)
}

/// A page of events, the newest first, and the cursor of the next one; empty if there is none.
async fn fetch_page(
    client: &ApiClient,
    options: &Tail,
    after: Option<&str>,
    cursor: Option<&str>,
) -> Result<(Vec<Value>, String), ApiFailure> {
    let limit = EVENTS_PER_PAGE.max(options.lines as usize).to_string();
    let mut query = vec![("limit", limit.as_str())];
    query.extend(options.event.as_deref().map(|name| ("event", name)));
    query.extend(options.distinct_id.as_deref().map(|id| ("distinct_id", id)));
    query.extend(after.map(|after| ("after", after)));
    query.extend(cursor.map(|cursor| ("cursor", cursor)));
    let mut page = client.get("events/", &query).await?;
    let events = page["results"].as_array_mut().map(std::mem::take).unwrap_or_default();
    let next = page["next"].as_str().and_then(cursor_of).unwrap_or_default();
    Ok((events, next))
}

/// The cursor in the link to the next page.
fn cursor_of(link: &str) -> Option<String> {
    let (_, query) = link.split_once('?')?;
    let cursor = query.split('&').find_map(|pair| pair.strip_prefix("cursor="))?;
    Some(percent_encoding::percent_decode_str(cursor).decode_utf8_lossy().into_owned())
}

/// Which events are known: those since a time that follows the newest one.
#[derive(Debug, Default)]
struct EventWindow {
    known: BTreeMap<String, DateTime<Utc>>,
    newest: Option<DateTime<Utc>>,
    /// Events until this time are ignored.
    floor: Option<DateTime<Utc>>,
}

impl EventWindow {
    /// Takes the first page, the newest event first; `has_more` says that there are older ones. Returns the `lines` newest
    /// events, the oldest first.
    fn begin(&mut self, events: Vec<Value>, has_more: bool, lines: usize) -> Vec<Value> {
        if has_more {
            self.floor = events.last().and_then(event_time);
        }
        let mut shown: Vec<Value> = self.add_new(events).into_iter().take(lines).collect();
        self.advance();
        shown.reverse();
        shown
    }

    /// The events of a page that were not known.
    fn add_new(&mut self, events: Vec<Value>) -> Vec<Value> {
        let mut arrived = Vec::new();
        for event in events {
            let (Some(id), Some(at)) = (event["id"].as_str(), event_time(&event)) else { continue };
            if self.floor.is_some_and(|floor| at < floor) || self.known.contains_key(id) {
                continue;
            }
            self.known.insert(id.to_owned(), at);
            self.newest = self.newest.max(Some(at));
            arrived.push(event);
        }
        arrived
    }

    /// Forgets events that are too old to be printed.
    fn advance(&mut self) {
        // Times in the future, of clients with a wrong clock, hide nothing that arrives in time.
        let newest = self.newest.map(|newest| newest.min(Utc::now()));
        self.floor = self.floor.max(newest.map(|newest| newest - LATENESS_MAX));
        if let Some(floor) = self.floor {
            self.known.retain(|_, at| *at >= floor);
        }
    }
}

fn event_time(event: &Value) -> Option<DateTime<Utc>> {
    event["timestamp"].as_str()?.parse().ok()
}

/// Prints events; returns whether the reader may read more.
fn print_events(events: &[Value], options: &Tail) -> Result<bool, String> {
    let columns = output_width();
    for event in events {
        let line = if options.output.json { event.to_string() } else { event_line(event, columns) };
        if !print_to_reader(format_args!("{line}\n"))? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// An event in one line: time, name, distinct id, properties.
fn event_line(event: &Value, columns: usize) -> String {
    let cell = |field: &str| {
        let text = truncate(&sanitize(event[field].as_str().unwrap_or_default()), NAME_WIDTH);
        let padding = " ".repeat(NAME_WIDTH.saturating_sub(width(&text)));
        format!("{text}{padding}")
    };
    let time = event_time(event).map(|at| at.format("%Y-%m-%d %H:%M:%S").to_string()).unwrap_or_default();
    let line = format!("{time}  {}  {}  {}", cell("event"), cell("distinct_id"), event["properties"]);
    truncate(&sanitize(&line), columns).trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn event(id: &str, time: &str) -> Value {
        json!({"id": id, "event": "purchase", "distinct_id": "eva", "timestamp": time, "properties": {"price": 12.5}})
    }

    fn ids(events: &[Value]) -> Vec<&str> {
        events.iter().filter_map(|event| event["id"].as_str()).collect()
    }

    #[test]
    fn every_event_is_new_once_and_the_oldest_comes_first() {
        let mut window = EventWindow::default();
        let page = vec![
            event("c", "2024-01-05T10:02:00Z"),
            event("b", "2024-01-05T10:01:00Z"),
            event("a", "2024-01-05T10:00:00Z"),
        ];
        assert_eq!(ids(&window.begin(page, true, 2)), ["b", "c"]);
        let page = vec![
            event("d", "2024-01-05T10:03:00Z"),
            event("c", "2024-01-05T10:02:00Z"),
            event("late", "2024-01-05T10:00:30Z"),
        ];
        assert_eq!(ids(&window.add_new(page)), ["d", "late"]);
        let older = vec![event("old", "2024-01-05T09:59:59Z")];
        assert!(window.add_new(older).is_empty(), "an event before the first page has not arrived now");
    }

    #[test]
    fn known_events_are_forgotten_an_hour_after_they_happened() {
        let mut window = EventWindow::default();
        window.begin(vec![event("a", "2024-01-05T10:00:00Z")], false, 10);
        window.add_new(vec![event("b", "2024-01-05T11:00:01Z")]);
        window.advance();
        assert_eq!(window.known.keys().collect::<Vec<_>>(), ["b"]);
        assert!(window.add_new(vec![event("a", "2024-01-05T10:00:00Z")]).is_empty());
        assert_eq!(ids(&window.add_new(vec![event("c", "2024-01-05T10:00:02Z")])), ["c"]);
        // Ten years in the future.
        window.add_new(vec![event("wrong clock", "2124-01-05T10:00:00Z")]);
        window.advance();
        let now = Utc::now().to_rfc3339();
        assert_eq!(ids(&window.add_new(vec![event("now", &now)])), ["now"]);
    }

    #[test]
    fn a_line_fits_the_terminal_and_does_not_control_it() {
        let mut odd = event("a", "2024-01-05T10:00:00.123Z");
        odd["event"] = json!("東京\u{1b}[2J");
        let line = event_line(&odd, 80);
        assert_eq!(
            line,
            format!(
                "2024-01-05 10:00:00  東京 [2J{}  eva{}  {{\"price\":12.5}}",
                " ".repeat(12),
                " ".repeat(17)
            )
        );
        odd["properties"] = json!({"text": "x".repeat(500)});
        assert_eq!(width(&event_line(&odd, 80)), 80);
        assert_eq!(width(&event_line(&odd, 40)), 40);
    }

    #[test]
    fn the_cursor_is_taken_from_the_link() {
        let link = "http://localhost/api/projects/1/events/?limit=5&cursor=1_a%2Bb&event=x";
        assert_eq!(cursor_of(link).as_deref(), Some("1_a+b"));
        assert_eq!(cursor_of("http://localhost/"), None);
    }
}
