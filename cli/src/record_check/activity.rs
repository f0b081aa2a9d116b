//! The activity logs of a project.
//!
//! Each entry has a pointer in the log of its item and is counted in the row of its day. A flag has one entry for each of its
//! versions, since every write of a flag is logged and increments its version by one, except for the creation of a usage dashboard,
//! which does neither. Other records have at most one entry for each write of the record or of its sharing configuration: a write
//! that changes no logged field has none, nor has a workspace file. Must stay true: pure; [`ScopeLog`] has the rows as they were
//! read.

use std::collections::{BTreeMap, BTreeSet};

use pennon_core::store::keys::{self, MONTH_CHARS, ProjectId};
use pennon_core::store::{Item, Key};
use serde::Deserialize;

use super::finding::{Findings, Rule, row_name};

/// The scopes that the product logs: flags, insights, dashboards, cohorts, actions.
pub const SCOPES: [&str; 5] = ["FeatureFlag", "Insight", "Dashboard", "Cohort", "Action"];
/// The scope of flags.
pub const FLAGS: &str = SCOPES[0];

/// Characters of a day such as `2026-01-05`.
const DAY_CHARS: usize = 10;

/// The log of a scope.
#[derive(Debug, Default)]
pub struct ScopeLog {
    /// The item of each entry, by the sort key.
    pub entries: BTreeMap<String, u64>,
    /// The items of pointers, by the sort key.
    pub pointers: BTreeMap<String, BTreeSet<u64>>,
    /// The number of entries of each day.
    pub days: BTreeMap<String, i64>,
}

/// How many entries a record may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryCount {
    /// Exactly this number.
    Exactly(u64),
    /// At most this number.
    AtMost(u64),
}

/// The fields of an entry that are checked.
#[derive(Debug, Deserialize)]
struct EntryFields {
    id: uuid::Uuid,
    scope: String,
    item_id: String,
}

impl ScopeLog {
    /// The months that have entries, by the counts of days and the pointers.
    pub fn months(&self) -> BTreeSet<String> {
        let month = |text: &String| text.get(..MONTH_CHARS).unwrap_or(text).to_owned();
        self.days.keys().chain(self.pointers.keys()).map(month).collect()
    }
}

/// Decodes an entry; returns its item.
pub fn decode_entry(scope: &str, item: &Item) -> Result<u64, String> {
    let entry: EntryFields = item.body().map_err(|e| e.to_string())?;
    let uuid = item.key.sk.rsplit('#').next().unwrap_or_default();
    if entry.scope != scope || entry.id.to_string() != uuid {
        return Err(format!("it is the entry {} of the scope {}", entry.id, entry.scope));
    }
    entry.item_id.parse().map_err(|_| format!("its item is {:?}", entry.item_id))
}

/// Checks the log of a scope. `expected` has the records of the kind; `must_exist` says whether records of the kind are never
/// removed.
pub fn check(
    project: ProjectId,
    scope: &str,
    log: &ScopeLog,
    expected: &BTreeMap<Key, EntryCount>,
    record_key: &dyn Fn(u64) -> Key,
    must_exist: bool,
    findings: &mut Findings,
) {
    let entry_key = |sk: &str| Key::new(keys::activity_month_pk(project, scope, sk), sk);
    let mut counts: BTreeMap<u64, u64> = BTreeMap::new();
    let mut days: BTreeMap<&str, i64> = BTreeMap::new();
    for (sk, item) in &log.entries {
        *counts.entry(*item).or_default() += 1;
        *days.entry(day_of(sk)).or_default() += 1;
        if !log.pointers.get(sk).is_some_and(|items| items.contains(item)) {
            let pointer = Key::new(keys::activity_of_item_pk(project, scope, *item), sk.as_str());
            let detail = format!("is missing: the pointer to {}", row_name(&entry_key(sk)));
            findings.add(Rule::Activity, &pointer, detail);
        }
    }
    // An entry that is missing or damaged is counted by its pointer, so that it is one finding.
    for (sk, items) in &log.pointers {
        for item in items.iter().filter(|item| log.entries.get(sk) != Some(*item)) {
            *counts.entry(*item).or_default() += 1;
            if !log.entries.contains_key(sk) {
                *days.entry(day_of(sk)).or_default() += 1;
            }
            let pointer = Key::new(keys::activity_of_item_pk(project, scope, *item), sk.as_str());
            let detail = format!("is missing: the entry of the pointer {}", row_name(&pointer));
            findings.add(Rule::Activity, &entry_key(sk), detail);
        }
    }
    check_days(project, scope, log, &days, findings);
    for (item, count) in counts {
        let record = record_key(item);
        let wrong = match expected.get(&record) {
            None if must_exist => {
                findings.add_missing(&record, "activity entry");
                continue;
            }
            Some(EntryCount::Exactly(exact)) if *exact != count => format!("has {exact} versions"),
            Some(EntryCount::AtMost(most)) if count > *most => format!("was written {most} times"),
            _ => continue,
        };
        findings.add(Rule::Activity, &record, format!("{wrong}, and has {count} activity entries"));
    }
    let logged: BTreeSet<Key> =
        log.entries.values().chain(log.pointers.values().flatten()).map(|id| record_key(*id)).collect();
    for (record, count) in expected.iter().filter(|(record, _)| !logged.contains(*record)) {
        if let EntryCount::Exactly(exact) = count
            && *exact > 0
        {
            findings.add(
                Rule::Activity,
                record,
                format!("has {exact} versions, and has no activity entries"),
            );
        }
    }
}

fn check_days(
    project: ProjectId,
    scope: &str,
    log: &ScopeLog,
    counted: &BTreeMap<&str, i64>,
    findings: &mut Findings,
) {
    let known: BTreeSet<&str> = log.days.keys().map(String::as_str).chain(counted.keys().copied()).collect();
    for day in known {
        let stored = log.days.get(day).copied().unwrap_or(0);
        let count = counted.get(day).copied().unwrap_or(0);
        if stored != count {
            let key = Key::new(keys::activity_days_pk(project, scope), day);
            findings.add(
                Rule::Activity,
                &key,
                format!("counts {stored} entries of the day, which are {count}"),
            );
        }
    }
}

fn day_of(sk: &str) -> &str {
    sk.get(..DAY_CHARS).unwrap_or(sk)
}
