//! Checks of a history.

use std::collections::{BTreeMap, BTreeSet};

use super::keys;
use super::lives::{Life, lives};
use super::model::{Call, Fields, History, Outcome, Request, id, is_deleted, key, overlaps, version};

/// The unexplained observations, one text each; empty if the history is consistent.
pub fn check(history: &History) -> Vec<String> {
    let mut findings = Vec::new();
    let lives = lives(history, &mut findings);
    if !findings.is_empty() {
        // Without consistent histories, all other checks would only repeat their problems.
        return findings;
    }
    order(&lives, &mut findings);
    for call in &history.calls {
        outcome(&lives, call, &mut findings);
    }
    keys::check(history, &lives, &mut findings);
    stored(history, &lives, &mut findings);
    findings
}

/// A write that ended before another began comes before it.
fn order(lives: &BTreeMap<u64, Life<'_>>, findings: &mut Vec<String>) {
    for (flag, life) in lives {
        let mut latest_began = 0;
        for state in &life.states {
            if state.call.ended < latest_began {
                findings.push(format!("flag {flag}: written before what it followed: {:?}", state.call));
            }
            latest_began = latest_began.max(state.call.began);
        }
    }
}

/// Every response is explained by a state that the call may have read.
fn outcome(lives: &BTreeMap<u64, Life<'_>>, call: &Call, findings: &mut Vec<String>) {
    let explained = match (&call.request, &call.outcome) {
        (Request::Create(_), Outcome::Flag(_) | Outcome::Busy | Outcome::KeyExists) => true,
        (Request::Change { .. }, Outcome::Busy | Outcome::KeyExists) => true,
        (Request::Change { fields, edited: Some(original), .. }, Outcome::Flag(outcome)) => lives
            .get(&id(outcome))
            .and_then(|life| life.at(version(outcome) - 1))
            .is_some_and(|before| !overlaps(original, fields, before)),
        (Request::Change { .. }, Outcome::Flag(_)) => true,
        (Request::Change { flag, fields, edited: Some(original) }, Outcome::Conflict) => {
            lives.get(flag).is_some_and(|life| {
                life.met(call.began, call.ended).any(|state| overlaps(original, fields, &state.fields))
            })
        }
        (Request::Read(_) | Request::List, Outcome::Busy) => true,
        (Request::Read(flag), Outcome::Flag(outcome)) => was(lives, call, *flag, outcome),
        // A missing flag is a finding of the check of keys.
        (Request::Change { .. } | Request::Read(_), Outcome::Missing) => true,
        (Request::List, Outcome::Flags(flags)) => {
            list(lives, call, flags, findings);
            true
        }
        _ => false,
    };
    if !explained {
        findings.push(format!("nothing explains a response: {call:?}"));
    }
}

/// Whether the flag was like that at some moment of the call.
fn was(lives: &BTreeMap<u64, Life<'_>>, call: &Call, flag: u64, outcome: &Fields) -> bool {
    lives
        .get(&flag)
        .is_some_and(|life| life.met(call.began, call.ended).any(|state| state.fields == *outcome))
}

/// A list has each flag once, no deleted one, and all that were there from its beginning to its end.
fn list(lives: &BTreeMap<u64, Life<'_>>, call: &Call, flags: &[Fields], findings: &mut Vec<String>) {
    let listed: BTreeSet<u64> = flags.iter().map(id).collect();
    let keys: BTreeSet<&str> = flags.iter().map(key).collect();
    if listed.len() != flags.len() || keys.len() != flags.len() {
        findings.push(format!("a list has a flag or a key twice: {flags:?}"));
    }
    for outcome in flags {
        if is_deleted(outcome) || !was(lives, call, id(outcome), outcome) {
            findings.push(format!(
                "a list from {} to {} shows what was not: {outcome:?}",
                call.began, call.ended
            ));
        }
    }
    for (flag, life) in lives {
        if life.was_live(call.began, call.ended) && !listed.contains(flag) {
            findings.push(format!("a list from {} to {} lacks flag {flag}", call.began, call.ended));
        }
    }
}

/// The final stored state is the last state of each record, in every place where it is stored.
fn stored(history: &History, lives: &BTreeMap<u64, Life<'_>>, findings: &mut Vec<String>) {
    let stored = &history.stored;
    for (flag, life) in lives {
        let last = life.states.last().map(|state| &state.fields);
        if let Some(found) = stored.flags.get(flag)
            && last != Some(found)
        {
            findings.push(format!("flag {flag} ends as {found:?}\n  must be {last:?}"));
        }
        let pointers = stored.pointers.get(flag).copied().unwrap_or_default();
        if pointers != life.states.len() {
            findings.push(format!(
                "flag {flag}: its own log has {pointers} entries, must be {}",
                life.states.len()
            ));
        }
    }
    let live = |fields: &&Fields| !is_deleted(fields);
    let expected: Vec<u64> = stored.flags.values().filter(live).map(id).collect();
    for (what, found) in [("the list", &stored.listed), ("the summary rows", &stored.rows)] {
        let mut found = found.clone();
        found.sort_unstable();
        if found != expected {
            findings.push(format!("{what} have {found:?}, must be {expected:?}"));
        }
    }
    let mut expected: Vec<(String, u64)> =
        stored.flags.values().filter(live).map(|fields| (key(fields).to_owned(), id(fields))).collect();
    let mut claims = stored.claims.clone();
    expected.sort();
    claims.sort();
    if claims != expected {
        findings.push(format!("keys are held by {claims:?}, must be {expected:?}"));
    }
}
