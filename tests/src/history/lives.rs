//! The life of each flag: its successive states, and the call that made each of them.

use std::collections::{BTreeMap, BTreeSet};

use super::model::{
    Call, Entry, Fields, History, Outcome, Request, changed, changes, created, id, is_deleted, key, kind,
    version,
};

/// One state of a flag, and the call that made it.
#[derive(Debug, Clone)]
pub(super) struct State<'a> {
    pub fields: Fields,
    pub call: &'a Call,
}

/// The states of a flag; the first has version 1.
#[derive(Debug, Clone, Default)]
pub(super) struct Life<'a> {
    pub states: Vec<State<'a>>,
}

impl Life<'_> {
    /// The state of that version.
    pub fn at(&self, version: u64) -> Option<&Fields> {
        let index = usize::try_from(version.checked_sub(1)?).ok()?;
        self.states.get(index).map(|state| &state.fields)
    }

    /// The states that a call from `began` to `ended` may have met.
    pub fn met(&self, began: u64, ended: u64) -> impl Iterator<Item = &State<'_>> {
        let replaced = move |index: usize| self.replaced(index).1 < began;
        self.states
            .iter()
            .enumerate()
            .filter(move |(index, state)| !replaced(*index) && state.call.began < ended)
            .map(|(_, state)| state)
    }

    /// Beginning and end of the call that replaced state `index`.
    pub fn replaced(&self, index: usize) -> (u64, u64) {
        self.states.get(index + 1).map_or((u64::MAX, u64::MAX), |next| (next.call.began, next.call.ended))
    }
}

/// A key that a flag held while it was not deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Hold {
    pub flag: u64,
    pub key: String,
    /// The time in which the flag certainly held the key.
    pub certain: (u64, u64),
    /// The time in which the flag may have held the key.
    pub possible: (u64, u64),
}

impl Life<'_> {
    /// The keys that the flag held, in order.
    pub fn holds(&self) -> Vec<Hold> {
        let mut holds: Vec<Hold> = Vec::new();
        for (index, State { fields, call }) in self.states.iter().enumerate() {
            if is_deleted(fields) {
                continue;
            }
            let (from, until) = self.replaced(index);
            let has_more_work = index > 0 && !is_deleted(&self.states[index - 1].fields);
            match holds.last_mut() {
                Some(last) if has_more_work && last.key == key(fields) => {
                    (last.certain.1, last.possible.1) = (from, until);
                }
                _ => holds.push(Hold {
                    flag: id(fields),
                    key: key(fields).to_owned(),
                    certain: (call.ended, from),
                    possible: (call.began, until),
                }),
            }
        }
        holds
    }

    /// Whether the flag was there and not deleted all the time from `began` to `ended`.
    pub fn was_live(&self, began: u64, ended: u64) -> bool {
        let mut since = None;
        self.states.iter().enumerate().any(|(index, State { fields, call })| {
            if is_deleted(fields) {
                since = None;
                return false;
            }
            *since.get_or_insert(call.ended) < began && {
                let next_lives = self.states.get(index + 1).is_some_and(|next| !is_deleted(&next.fields));
                !next_lives && self.replaced(index).0 > ended
            }
        })
    }
}

/// Reconstructs the history of each flag. Contradictions are added to `findings`.
pub(super) fn lives<'a>(history: &'a History, findings: &mut Vec<String>) -> BTreeMap<u64, Life<'a>> {
    let mut log: BTreeMap<u64, BTreeMap<u64, Vec<&Entry>>> = BTreeMap::new();
    for entry in &history.stored.entries {
        match entry.version() {
            Some(version) => log.entry(entry.flag).or_default().entry(version).or_default().push(entry),
            None => findings.push(format!("an entry of flag {} without a version: {entry:?}", entry.flag)),
        }
    }
    let mut writers = writers(history, findings);
    let flags: BTreeSet<u64> = log
        .keys()
        .chain(writers.outcome.keys().map(|(flag, _)| flag))
        .chain(history.stored.flags.keys())
        .copied()
        .collect();
    let mut lives = BTreeMap::new();
    let witnesses = witnesses(history);
    for flag in flags {
        let entries = log.remove(&flag).unwrap_or_default();
        let seen = witnesses.get(&flag).map_or(&[][..], Vec::as_slice);
        lives.insert(flag, most_likely(flag, &entries, seen, &mut writers, findings));
    }
    for ((flag, version), call) in writers.outcome {
        findings
            .push(format!("an acknowledged write has no entry: version {version} of flag {flag}: {call:?}"));
    }
    lives
}

/// The responses about each flag.
fn witnesses(history: &History) -> BTreeMap<u64, Vec<&Fields>> {
    let mut seen: BTreeMap<u64, Vec<&Fields>> = BTreeMap::new();
    for call in &history.calls {
        let outcome = match &call.outcome {
            Outcome::Flag(fields) => std::slice::from_ref(fields),
            Outcome::Flags(flags) => flags,
            _ => &[],
        };
        outcome.iter().for_each(|fields| seen.entry(id(fields)).or_default().push(fields));
    }
    history.stored.flags.iter().for_each(|(flag, fields)| seen.entry(*flag).or_default().push(fields));
    seen
}

/// The history of one flag. Several calls with unknown outcome may have created it, and the log does not identify the right one:
/// the one that is consistent with all responses is used.
fn most_likely<'a>(
    flag: u64,
    entries: &BTreeMap<u64, Vec<&Entry>>,
    seen: &[&Fields],
    writers: &mut Writers<'a>,
    findings: &mut Vec<String>,
) -> Life<'a> {
    if !writers.outcome.contains_key(&(flag, 1)) {
        for first in 0..writers.unacknowledged.len() {
            let (mut trial, mut wrong) = (writers.clone(), Vec::new());
            trial.unacknowledged.swap(0, first);
            let life = live(flag, entries, &mut trial, &mut wrong);
            let agrees = seen.iter().all(|fields| life.at(version(fields)) == Some(*fields));
            if wrong.is_empty() && agrees {
                *writers = trial;
                return life;
            }
        }
    }
    live(flag, entries, writers, findings)
}

/// The writes of a history.
#[derive(Clone)]
struct Writers<'a> {
    /// Acknowledged ones, by the flag and version that they made.
    outcome: BTreeMap<(u64, u64), &'a Call>,
    /// Calls whose outcome is unknown.
    unacknowledged: Vec<&'a Call>,
}

fn writers<'a>(history: &'a History, findings: &mut Vec<String>) -> Writers<'a> {
    let mut writers = Writers { outcome: BTreeMap::new(), unacknowledged: Vec::new() };
    for call in &history.calls {
        if !matches!(call.request, Request::Create(_) | Request::Change { .. }) {
            continue;
        }
        match &call.outcome {
            Outcome::Busy => writers.unacknowledged.push(call),
            Outcome::Flag(fields) => {
                let made = (id(fields), version(fields));
                if let Some(other) = writers.outcome.insert(made, call) {
                    findings.push(format!(
                        "two writes won: both made version {} of flag {}: {call:?} {other:?}",
                        made.1, made.0
                    ));
                }
            }
            _ => {}
        }
    }
    writers
}

/// The history of one flag according to its log.
fn live<'a>(
    flag: u64,
    entries: &BTreeMap<u64, Vec<&Entry>>,
    writers: &mut Writers<'a>,
    findings: &mut Vec<String>,
) -> Life<'a> {
    let mut life = Life::default();
    for (at, (number, same)) in entries.iter().enumerate() {
        if *number != at as u64 + 1 {
            findings.push(format!("flag {flag}: no entry for version {}", at + 1));
            return life;
        }
        let [entry] = same[..] else {
            findings.push(format!("flag {flag}: {} entries for version {number}: {same:?}", same.len()));
            return life;
        };
        let before = life.states.last().map(|state| state.fields.clone());
        let outcome = writers.outcome.remove(&(flag, *number));
        let call = outcome.or_else(|| writers.take_unacknowledged(flag, before.as_ref(), entry));
        let Some(call) = call else {
            findings.push(format!("flag {flag}: no call wrote version {number}: {entry:?}"));
            return life;
        };
        let Some(fields) = after(flag, before.as_ref(), call) else {
            findings.push(format!(
                "flag {flag}: version {number} was made by a call about something else: {call:?}"
            ));
            return life;
        };
        compare(before.as_ref(), &fields, call, entry, findings);
        life.states.push(State { fields, call });
    }
    life
}

impl<'a> Writers<'a> {
    /// The write with unknown outcome that explains `entry`.
    fn take_unacknowledged(&mut self, flag: u64, before: Option<&Fields>, entry: &Entry) -> Option<&'a Call> {
        let explains = |call: &&Call| {
            after(flag, before, call).is_some_and(|fields| {
                let outcome = before.map(|before| changes(before, &fields)).unwrap_or_default();
                outcome == entry.changes && call.by == entry.by && fields["key"] == entry.key.as_str()
            })
        };
        let at = self.unacknowledged.iter().position(explains)?;
        Some(self.unacknowledged.swap_remove(at))
    }
}

/// What `call` makes of `before`; none if it is about something else.
fn after(flag: u64, before: Option<&Fields>, call: &Call) -> Option<Fields> {
    match (&call.request, before) {
        (Request::Create(sent), None) => Some(created(flag, sent, &call.by)),
        (Request::Change { flag: of, fields, .. }, Some(before)) if *of == flag => {
            Some(changed(before, fields, &call.by))
        }
        _ => None,
    }
}

/// Compares a state with the client's response and with the log.
fn compare(before: Option<&Fields>, fields: &Fields, call: &Call, entry: &Entry, findings: &mut Vec<String>) {
    if let Outcome::Flag(outcome) = &call.outcome
        && outcome != fields
    {
        findings.push(format!("a write has the wrong response: {call:?}\n  must be {fields:?}"));
    }
    let (expected, word) = match before {
        None => (BTreeMap::new(), "created"),
        Some(before) => (changes(before, fields), kind(before, fields)),
    };
    let fits = entry.kind == word
        && entry.by == call.by
        && fields["key"] == entry.key.as_str()
        && entry.changes == expected;
    if !fits {
        findings.push(format!(
            "an entry differs from the write: {entry:?}\n  must be {word} {expected:?} by {call:?}"
        ));
    }
}
