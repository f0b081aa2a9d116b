//! Functions for fuzzing: each parses any bytes and asserts what must stay true. `tests/src/fuzz.rs` lists them.

use pennon_core::http::{COMPRESSIONS, CONTENT_ENCODINGS, SdkBody};
use pennon_core::limits::capture::{EVENTS_MAX, INFLATED_BYTES_MAX};
use uuid::Uuid;

use crate::batch_builder::RequestMetadata;
use crate::decode::{decode, decode_data};
use crate::event::CaptureFormat;
use crate::normalize::normalize;
use crate::timestamps::parse_time;

/// The years 1 to 9999, in microseconds since the epoch.
const VALID_TIMES: std::ops::RangeInclusive<i64> = -62_135_596_800_000_000..=253_402_300_799_999_999;

/// Bodies of captured events: the first byte selects the format and the headers. An accepted batch is stored and read back.
pub fn capture_bodies(bytes: &[u8]) {
    let Some((choice, body)) = bytes.split_first() else { return };
    let choice = usize::from(*choice);
    let types =
        [Some("application/json"), Some("application/x-www-form-urlencoded"), Some("text/plain"), None];
    let sent = SdkBody {
        content_type: types.get((choice >> 1) % 4).copied().flatten(),
        content_encoding: CONTENT_ENCODINGS.get((choice >> 3) % 4).copied(),
        compression: COMPRESSIONS.get((choice >> 5) % 4).copied(),
        body,
    };
    let format = if choice & 1 == 1 { CaptureFormat::Analytics } else { CaptureFormat::Batch };
    let payload = match std::str::from_utf8(body) {
        Ok(data) if choice & 128 == 128 => decode_data(data, sent.compression.unwrap_or_default()),
        _ => decode(&sent),
    };
    let Ok(payload) = payload else { return };
    assert!(payload.json.len() <= INFLATED_BYTES_MAX.max(body.len()));
    let metadata = RequestMetadata {
        now: 1_767_608_400_000_000,
        sent_at: (choice & 64 == 64).then_some(1_767_608_000_000_000),
        library: Some(("web".to_owned(), "1.2.3".to_owned())),
    };
    let mut number = 0;
    let mut new_uuid = || {
        number += 1;
        Uuid::from_u128(number)
    };
    let Ok(batch) = normalize(&payload.json, format, &metadata, &mut new_uuid) else { return };
    let stored = batch.outcomes.iter().filter(|(_, reason)| reason.is_none()).count();
    assert!(stored == batch.captured.events.len() && batch.outcomes.len() <= EVENTS_MAX);
    for event in &batch.captured.events {
        assert!(VALID_TIMES.contains(&event.timestamp), "{}", event.timestamp);
        assert!(event.event.chars().count() <= 200 && event.distinct_id.chars().count() <= 200);
    }
    pennon_eventstore::fuzzing::batch(batch.captured);
}

/// Times of captured events.
pub fn timestamps(bytes: &[u8]) {
    if let Ok(text) = std::str::from_utf8(bytes) {
        parse_time(text);
    }
}
