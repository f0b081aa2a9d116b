//! The log of a test program, read while it is written.
//!
//! Must stay true: no line of any test holds a secret; one that does ends the whole program at once, whatever its test
//! would have logged.

use std::collections::{HashMap, HashSet};
use std::io::{self, Write};
use std::sync::{LazyLock, Mutex, Once, PoisonError};

use regex::bytes::Regex;
use serde_json::Value;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// Ids of requests whose lines are kept begin with this.
pub const KEPT: &str = "kept-";

/// Texts that look like a complete key of a user or a project, or the encryption key of payloads.
static SECRET: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"ph[xsr]_[A-Za-z0-9_-]{8}|[A-Za-z0-9+/]{43}=").unwrap());
/// Secrets without a recognisable format, which responses have returned.
static RETURNED_SECRETS: LazyLock<Mutex<HashSet<String>>> = LazyLock::new(Mutex::default);
static LINES: LazyLock<Mutex<HashMap<String, Vec<Value>>>> = LazyLock::new(Mutex::default);

/// Starts to read the log, once per program.
pub(crate) fn watch() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let lines = tracing_subscriber::fmt::layer().json().flatten_event(true).with_writer(Reader);
        let own = filter_fn(|metadata| metadata.target().starts_with("pennon"));
        tracing_subscriber::registry().with(own).with(lines).init();
    });
}

/// Adds the sharing tokens of a response to the secrets.
pub(crate) fn learn(response: &str) {
    let mut rest = response;
    while let Some((_, after)) = rest.split_once("\"access_token\":\"") {
        let (token, after) = after.split_once('"').unwrap_or((after, ""));
        if token.len() >= 8 {
            RETURNED_SECRETS.lock().unwrap_or_else(PoisonError::into_inner).insert(token.to_owned());
        }
        rest = after;
    }
}

/// The lines of the request with this id, which begins with [`KEPT`].
pub fn lines_of(id: &str) -> Vec<Value> {
    LINES.lock().unwrap_or_else(PoisonError::into_inner).get(id).cloned().unwrap_or_default()
}

/// Whether a line may be written.
fn is_clean(line: &[u8]) -> bool {
    let text = String::from_utf8_lossy(line);
    let reported = RETURNED_SECRETS.lock().unwrap_or_else(PoisonError::into_inner);
    !SECRET.is_match(line) && !reported.iter().any(|secret| text.contains(secret.as_str()))
}

struct Reader;

impl<'a> MakeWriter<'a> for Reader {
    type Writer = Reader;

    fn make_writer(&'a self) -> Reader {
        Reader
    }
}

impl Write for Reader {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if !is_clean(line) {
            eprintln!("a secret is in the log: {}", String::from_utf8_lossy(line));
            std::process::abort();
        }
        if let Ok(reported) = serde_json::from_slice::<Value>(line)
            && let Some(id) = reported["request_id"].as_str().or(reported["span"]["request_id"].as_str())
            && id.starts_with(KEPT)
        {
            let mut lines = LINES.lock().unwrap_or_else(PoisonError::into_inner);
            lines.entry(id.to_owned()).or_default().push(reported.clone());
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Keys;

    #[test]
    fn secrets_are_found_and_names_for_them_are_not() {
        for secret in [Keys::OWNER, Keys::STRANGER, crate::app::PAYLOAD_KEY] {
            assert!(!is_clean(format!("{{\"a\": \"x {secret}\"}}").as_bytes()), "{secret}");
        }
        learn(r#"{"enabled":true,"access_token":"Zm9vYmFyYmF6"}"#);
        assert!(!is_clean(b"GET /?sharing_access_token=Zm9vYmFyYmF6"));
        assert!(is_clean(
            b"{\"key\": \"ba7816bf8f01\", \"mask\": \"phx_...6789\", \"token\": \"phc_project_1\"}"
        ));
    }
}
