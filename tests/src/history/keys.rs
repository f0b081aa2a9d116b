//! Keys: one live flag has one at a time, and a deleted flag stays when a new one takes its key.

use std::collections::BTreeMap;

use super::lives::{Hold, Life};
use super::model::{Call, Fields, History, Outcome, Request, key};

pub(super) fn check(history: &History, lives: &BTreeMap<u64, Life<'_>>, findings: &mut Vec<String>) {
    let holds: Vec<Hold> = lives.values().flat_map(Life::holds).collect();
    shared(&holds, findings);
    for call in &history.calls {
        match (&call.request, &call.outcome) {
            (request, Outcome::KeyExists) if !was_taken(&holds, lives, request, call) => {
                findings.push(format!("no flag had the key: {call:?}"));
            }
            (Request::Change { .. } | Request::Read(_), Outcome::Missing) => {
                findings.push(format!("a flag was missing: {call:?}"));
            }
            _ => {}
        }
    }
    for flag in lives.keys() {
        if !history.stored.flags.contains_key(flag) {
            findings.push(format!("flag {flag} is not stored any more"));
        }
    }
}

/// No two flags held a key at one moment.
fn shared(holds: &[Hold], findings: &mut Vec<String>) {
    let mut by_key: BTreeMap<&str, Vec<&Hold>> = BTreeMap::new();
    for hold in holds {
        by_key.entry(&hold.key).or_default().push(hold);
    }
    for same in by_key.values_mut() {
        same.sort_by_key(|hold| hold.certain);
        for pair in same.windows(2) {
            if let [one, other] = pair
                && one.certain.1 > other.certain.0.max(one.certain.0)
                && other.certain.0 < other.certain.1
            {
                findings.push(format!("two flags had one key: {one:?} {other:?}"));
            }
        }
    }
}

/// Whether another flag may have held the requested key.
fn was_taken(holds: &[Hold], lives: &BTreeMap<u64, Life<'_>>, request: &Request, call: &Call) -> bool {
    let sent = |fields: &Fields| fields.get("key").and_then(|key| key.as_str()).map(str::to_owned);
    let (own, expected): (u64, Vec<String>) = match request {
        Request::Create(fields) => (0, sent(fields).into_iter().collect()),
        Request::Change { flag, fields, .. } => {
            let met = lives.get(flag).into_iter().flat_map(|life| life.met(call.began, call.ended));
            let had = met.map(|state| key(&state.fields).to_owned());
            (*flag, sent(fields).map_or_else(|| had.collect(), |key| vec![key]))
        }
        _ => return false,
    };
    holds.iter().any(|hold| {
        hold.flag != own
            && expected.contains(&hold.key)
            && hold.possible.0 < call.ended
            && hold.possible.1 > call.began
    })
}
