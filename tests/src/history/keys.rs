//! Keys: one live flag has one at a time, and a deleted one gives way for good to a new flag.

use std::collections::BTreeMap;

use super::lives::{Hold, Life};
use super::model::{Call, Fields, History, Request, Told, is_deleted, key};

pub(super) fn check(history: &History, lives: &BTreeMap<u64, Life<'_>>, findings: &mut Vec<String>) {
    let holds: Vec<Hold> = lives.values().flat_map(Life::holds).collect();
    shared(&holds, findings);
    let purges = purges(lives);
    for call in &history.calls {
        match (&call.request, &call.told) {
            (request, Told::Taken) if !was_taken(&holds, lives, request, call) => {
                findings.push(format!("nobody had the key: {call:?}"));
            }
            (Request::Change { flag, .. } | Request::Read(flag), Told::Missing) => {
                gone(history, &purges, *flag, call, findings);
            }
            (Request::Change { flag, .. } | Request::Read(flag), Told::Flag(_))
                if purges.get(flag).is_some_and(|purge| purge.surely < call.began) =>
            {
                findings.push(format!("answered after it was gone for good: {call:?}"));
            }
            _ => {}
        }
    }
    for flag in lives.keys() {
        let purge = purges.get(flag);
        let is_there = history.stored.flags.contains_key(flag);
        if !is_there && purge.is_none() {
            findings.push(format!("flag {flag} is gone, and no new flag took its key"));
        }
        if is_there && purge.is_some_and(|purge| purge.surely < u64::MAX) {
            findings.push(format!("flag {flag} is still there, though a new flag took its key"));
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

/// Whether another flag may have held the key that the call asked for.
fn was_taken(holds: &[Hold], lives: &BTreeMap<u64, Life<'_>>, request: &Request, call: &Call) -> bool {
    let sent = |fields: &Fields| fields.get("key").and_then(|key| key.as_str()).map(str::to_owned);
    let (own, wanted): (u64, Vec<String>) = match request {
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
            && wanted.contains(&hold.key)
            && hold.possible.0 < call.ended
            && hold.possible.1 > call.began
    })
}

/// That a flag may have gone, or has gone, for good, because a new one took its key.
struct Purge {
    /// Before this tick it was there.
    earliest: u64,
    /// From this tick on it was gone.
    surely: u64,
}

fn purges(lives: &BTreeMap<u64, Life<'_>>) -> BTreeMap<u64, Purge> {
    let mut creates: BTreeMap<&str, Vec<&Call>> = BTreeMap::new();
    for state in lives.values().filter_map(|life| life.states.first()) {
        creates.entry(key(&state.fields)).or_default().push(state.call);
    }
    let mut purges = BTreeMap::new();
    for (flag, life) in lives {
        let Some(last) = life.states.last().filter(|last| is_deleted(&last.fields)) else { continue };
        let others = creates.get(key(&last.fields)).into_iter().flatten();
        let after: Vec<&&Call> = others.filter(|create| create.ended > last.call.began).collect();
        let earliest = after.iter().map(|create| create.began).min();
        let surely =
            after.iter().filter(|create| create.began > last.call.ended).map(|create| create.ended).min();
        if let Some(earliest) = earliest {
            purges.insert(*flag, Purge { earliest, surely: surely.unwrap_or(u64::MAX) });
        }
    }
    purges
}

/// A flag that was answered as missing must have been gone, and stay so.
fn gone(
    history: &History,
    purges: &BTreeMap<u64, Purge>,
    flag: u64,
    call: &Call,
    findings: &mut Vec<String>,
) {
    let may_be = purges.get(&flag).is_some_and(|purge| purge.earliest < call.ended);
    if !may_be || history.stored.flags.contains_key(&flag) {
        findings.push(format!("a flag was missing that was not gone: {call:?}"));
    }
}
