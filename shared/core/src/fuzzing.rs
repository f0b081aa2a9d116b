//! Functions for fuzzing: each parses any bytes and asserts what must stay true. `tests/src/fuzz.rs` lists them.

use axum::body::{Body, Bytes};
use axum::extract::FromRequest as _;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Request};
use chrono::DateTime;
use futures::FutureExt as _;

use crate::http::{self, Accepts, BodyRules, COMPRESSIONS, CONTENT_ENCODINGS, Call, SdkBody, nesting};
use crate::idempotency::idempotency_write;
use crate::store::Key;
use crate::store::keys::{self, RecordKind, ScheduledTask};
use crate::traces::TraceContext;

/// The first line of an input, and the rest.
fn first_line(bytes: &[u8]) -> (&[u8], &[u8]) {
    let end = bytes.iter().position(|byte| *byte == b'\n').unwrap_or(bytes.len());
    (&bytes[..end], bytes.get(end + 1..).unwrap_or_default())
}

/// Bodies of SDKs: the first byte selects rules and headers, the rest is the body.
pub fn sdk_bodies(bytes: &[u8]) {
    let Some((choice, body)) = bytes.split_first() else { return };
    let choice = usize::from(*choice);
    let rules = BodyRules {
        inflated_bytes_max: 1 << 20,
        refuses_other_encodings: choice & 1 == 1,
        takes_bare_base64: choice & 2 == 2,
    };
    let types = [None, Some("application/json"), Some("application/x-www-form-urlencoded; charset=utf-8")];
    let sent = SdkBody {
        content_type: types.get((choice >> 2) % 4).copied().flatten(),
        content_encoding: CONTENT_ENCODINGS.get((choice >> 4) % 4).copied(),
        compression: COMPRESSIONS.get((choice >> 6) % 4).copied(),
        body,
    };
    if let Ok(payload) = rules.decode(&sent) {
        assert!(payload.json.len() <= rules.inflated_bytes_max.max(body.len()), "a body outgrows its limit");
    }
    if let Ok(data) = std::str::from_utf8(body) {
        let _ = rules.decode_data(data, sent.compression.unwrap_or_default());
    }
}

/// Bodies of requests: the first line is the content type, the rest the body. Accepted JSON is not nested too deeply.
pub fn request_bodies(bytes: &[u8]) {
    let (content_type, body) = first_line(bytes);
    let Ok(value) = HeaderValue::from_bytes(content_type) else { return };
    let headers = HeaderMap::from_iter([(CONTENT_TYPE, value)]);
    let body = Bytes::copy_from_slice(body);
    if let Ok(fields) = http::fields(&headers, &body, Accepts::Forms) {
        assert!(fields.values().all(|value| nesting(value) < http::NESTING_MAX));
    }
    if let Ok(Some(file)) = http::file(&headers, &body, "csv") {
        assert!(file.len() <= body.len());
    }
}

/// Headers and query strings: lines with the path and query, then the values of these headers; the rest is the body.
pub fn headers(bytes: &[u8]) {
    const NAMES: [&str; 5] = ["traceparent", "idempotency-key", "authorization", "x-forwarded-host", "host"];
    let (target, mut rest) = first_line(bytes);
    let mut request = Request::builder().method("POST").uri(target);
    for name in NAMES {
        let line;
        (line, rest) = first_line(rest);
        let Ok(value) = HeaderValue::from_bytes(line) else { continue };
        request = request.header(HeaderName::from_static(name), value);
        if let Ok(text) = std::str::from_utf8(line) {
            trace_context(text);
        }
    }
    let Ok(request) = request.body(Body::from(rest.to_vec())) else { return };
    // The body is in memory, so nothing has to be awaited.
    let Some(Ok(call)) = Call::from_request(request, &()).now_or_never() else { return };
    call.credential();
    let _ = idempotency_write(&call, 1);
    let _ = (call.fields(), call.json_fields(), call.query_value("a"), http::link(&call, &[]));
}

/// A trace context that was parsed is the same after it was printed.
fn trace_context(text: &str) {
    let Some(parsed) = TraceContext::parse(text) else { return };
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let (trace, span) = (hex(&parsed.trace), hex(&parsed.parent_span.unwrap_or_default()));
    let printed = format!("00-{trace}-{span}-0{}", u8::from(parsed.is_sampled));
    assert_eq!(TraceContext::parse(&printed), Some(parsed), "{text}");
}

/// Items of the tables in DynamoDB's JSON: an accepted item is stored and read back.
pub fn items(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    crate::store::fuzzing::check_item(text);
}

/// Keys of rows: two lines with the partition key and the sort key. What a key names is in another key of the same record.
pub fn row_keys(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let (pk, sk) = text.split_once('\n').unwrap_or((keys::SCHEDULED_TASKS, text));
    let key = Key::new(pk, sk);
    if let Some(project) = keys::project_of_version_bump(&key) {
        let own = [keys::project(project), keys::record(project, RecordKind::Cohort, 1)];
        assert!(own.iter().all(|own| keys::project_of_version_bump(own) == Some(project)), "{pk}");
    }
    let at = DateTime::UNIX_EPOCH;
    keys::is_due(&key, at);
    let Some(task) = keys::parse_scheduled_task(&key) else { return };
    let printed = match task {
        ScheduledTask::RemoveDashboardTiles { project, dashboard } => {
            keys::dashboard_tiles_task(at, project, dashboard)
        }
        ScheduledTask::RemoveDashboardInsights { project, dashboard } => {
            keys::dashboard_insights_task(at, project, dashboard)
        }
        ScheduledTask::RemoveCohortMembers { project, cohort } => {
            keys::cohort_members_task(at, project, cohort, 1)
        }
    };
    assert_eq!(keys::parse_scheduled_task(&printed), Some(task), "{sk}");
}
