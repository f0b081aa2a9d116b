//! Functions for fuzzing: each parses any bytes and asserts what must stay true. `tests/src/fuzz.rs` lists them.

use chrono::DateTime;
use chrono_tz::Tz;
use pennon_core::http::Fields;
use pennon_core::store::Key;

use crate::actions::input::ActionInput;
use crate::cohorts::csv;
use crate::cohorts::input::CohortInput;
use crate::dashboards::input::DashboardInput;
use crate::declarations::declaration;
use crate::insight::InsightInput;
use crate::lists::query::InsightListQuery;
use crate::sharing::record::SharingInput;

/// Members of a cohort as CSV. Ids are trimmed and not empty, and the file has all of them.
pub fn cohort_csv(bytes: &[u8]) {
    let Ok((_, ids)) = csv::parse(bytes) else { return };
    assert!(!ids.is_empty() && ids.iter().all(|id| !id.is_empty() && id.trim() == id));
    assert!(ids.iter().map(String::len).sum::<usize>() <= bytes.len());
}

/// Bodies of insights, dashboards, cohorts, actions and sharing settings.
pub fn record_bodies(bytes: &[u8]) {
    let Ok(body) = serde_json::from_slice::<Fields>(bytes) else { return };
    let _ = (InsightInput::parse(&body), ActionInput::parse(&body), SharingInput::parse(&body));
    for flag in [false, true] {
        let _ = (DashboardInput::parse(&body, flag), CohortInput::parse(&body, Some(flag)));
    }
    let _ = CohortInput::parse(&body, None);
    let parameters: Vec<(String, String)> = body
        .iter()
        .map(|(name, value)| (name.clone(), value.as_str().map_or_else(|| value.to_string(), str::to_owned)))
        .collect();
    let _ = InsightListQuery::parse(&parameters, DateTime::UNIX_EPOCH.with_timezone(&Tz::UTC));
}

/// Keys of declared records: two lines with the partition key and the sort key.
pub fn declared_keys(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let (pk, sk) = text.split_once('\n').unwrap_or((text, ""));
    let key = Key::new(pk, sk);
    if let Ok(Some(declared)) = declaration(&key, None) {
        let own = pennon_core::store::keys::record(declared.project, declared.kind, declared.id);
        assert_eq!(own, key);
    }
}
