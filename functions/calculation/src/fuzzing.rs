//! Functions for fuzzing: each parses any bytes and asserts what must stay true. `tests/src/fuzz.rs` lists them.

use crate::calculator::parts::{PartOutcome, PartTask, part_message};
use crate::clickhouse::parse_address;
use crate::events::{cursor_text, parse_cursor};
use crate::jobs::JobKey;
use crate::source::QuerySource;

/// Cursors of lists, keys of jobs (two lines) and addresses: what was parsed is printed as it was.
pub fn cursors(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Some(key) = parse_cursor(text) {
        assert_eq!(cursor_text(key), text);
    }
    let (pk, sk) = text.split_once('\n').unwrap_or(("JOB#0", text));
    if let Some(key) = JobKey::parse(pk, sk) {
        assert_eq!((key.row().pk.as_str(), key.row().sk.as_str()), (pk, sk));
    }
    let _ = parse_address(text);
}

/// Tasks and outcomes of parts: bytes as they are, and as the content of a message of this process.
pub fn part_messages(bytes: &[u8]) {
    let content = part_message(bytes);
    for message in [bytes, content.as_slice()] {
        if let Ok(task) = PartTask::decode(message) {
            task.query_text.parse();
            let again = task.encode().map(|message| PartTask::decode(&message).is_ok());
            assert_eq!(again, Ok(true), "a decoded task is encoded");
        }
        if let Ok(outcome) = PartOutcome::decode(message) {
            let again = outcome.encode().map(|message| PartOutcome::decode(&message).is_ok());
            assert_eq!(again, Ok(true), "a decoded outcome is encoded");
        }
    }
}

/// Queries of stored jobs: an accepted one is the same after it was stored again.
pub fn stored_queries(bytes: &[u8]) {
    let Ok(source) = serde_json::from_slice::<QuerySource>(bytes) else { return };
    let text = serde_json::to_string(&source).unwrap_or_default();
    assert_eq!(serde_json::from_str::<QuerySource>(&text).ok().as_ref(), Some(&source));
    let _ = source.parse();
}
