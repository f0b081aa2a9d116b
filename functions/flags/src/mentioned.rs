//! Looking up what a body mentions: other flags, cohorts, dashboards.
//!
//! Must stay true: a judgement that rests on other flags and on cohorts names the version of each that it saw, and the write
//! demands that they are still these; so rows may be read beside the flag, in any order. Where they are too many to name, they are
//! all taken from proven rows, and the write demands the sum of these.

use std::collections::{BTreeMap, BTreeSet};

use pennon_core::error::ApiResult;
use pennon_core::store::keys::{self, Kind, ProjectId};
use pennon_core::store::{Guard, Item, Key, Precondition, StoreError, Write};
use pennon_engine::flag::cohort::Cohort;
use pennon_engine::flag::mentions::Mentions;
use pennon_engine::flag::{CohortReference, Flag, FlagReference, FlagRow, References};
use serde_json::Value;

use crate::Flags;
use crate::store::{Rests, Room, Rows, Version, number, of_cohorts, proven, read_row, remembered};

/// Most rows of flags, and most cohorts, that a write demands one by one; a transaction takes a hundred writes.
const NAMED_MAX: usize = 30;

/// Records to look up by their numbers. Numbers that are not positive are of no record.
#[derive(Debug, Clone, Default)]
pub struct Sought {
    flags: BTreeSet<i64>,
    cohorts: BTreeSet<i64>,
    dashboards: BTreeSet<i64>,
}

impl Sought {
    /// What `mentions` names directly.
    pub fn of(mentions: &Mentions) -> Sought {
        Sought {
            flags: mentions.flag_ids.clone(),
            cohorts: mentions.cohort_ids.clone(),
            dashboards: mentions.dashboard_ids.clone(),
        }
    }

    /// Whether flags are among it.
    pub fn has_flags(&self) -> bool {
        !self.flags.is_empty()
    }

    /// Where the records lie.
    pub fn keys(&self, project: ProjectId) -> Vec<Key> {
        let flags = positive(&self.flags).map(|id| keys::flag_row(project, id));
        let cohorts = positive(&self.cohorts).map(|id| keys::record(project, Kind::Cohort, id));
        let dashboards = positive(&self.dashboards).map(|id| keys::record(project, Kind::Dashboard, id));
        flags.chain(cohorts).chain(dashboards).collect()
    }
}

fn positive(ids: &BTreeSet<i64>) -> impl Iterator<Item = u64> + '_ {
    ids.iter().filter(|id| **id > 0).map(|id| number(*id))
}

/// The records that a write refers to.
#[derive(Debug, Default)]
pub struct Mentioned {
    /// Flags and cohorts.
    pub references: References,
    /// Those of the mentioned dashboards that are there.
    pub dashboards: BTreeSet<i64>,
    looked_for: BTreeSet<i64>,
    /// The version that each flag's row was seen with; none where there is no row.
    seen: BTreeMap<i64, Option<u64>>,
    /// The sum of the rows that the flags were taken from, where they are too many to name.
    sum: Option<i64>,
    /// The version that each cohort's record was seen with.
    cohorts_seen: BTreeMap<i64, u64>,
    /// How long the records of the cohorts are that have rules.
    cohort_bytes: Vec<usize>,
}

impl Mentioned {
    /// What came back from the keys of `sought`.
    pub fn read(sought: &Sought, items: &[Option<Item>]) -> ApiResult<Mentioned> {
        let mut found = Mentioned::default();
        found.take(sought, items)?;
        Ok(found)
    }

    fn take(&mut self, sought: &Sought, items: &[Option<Item>]) -> ApiResult<()> {
        let mut items = items.iter();
        let mut next = |id: i64| if id > 0 { items.next().and_then(Option::as_ref) } else { None };
        for id in &sought.flags {
            let row = next(*id).map(read_row).transpose()?;
            self.take_flag(*id, row.as_ref());
        }
        for id in &sought.cohorts {
            let item = next(*id);
            self.cohorts_seen.extend(item.map(|item| (*id, item.version)));
            let cohort = item.map(live_cohort).transpose()?.flatten();
            // A static one is a list of members, which no feed has.
            let has_rules = cohort.as_ref().is_some_and(|cohort| !cohort.is_static);
            self.cohort_bytes.extend(item.filter(|_| has_rules).map(|item| item.text.len()));
            self.references.cohorts.insert(*id, cohort.as_ref().map(CohortReference::from));
        }
        for id in &sought.dashboards {
            self.looked_for.insert(*id);
            if let Some(item) = next(*id)
                && item.body::<Value>()?["deleted"] != true
            {
                self.dashboards.insert(*id);
            }
        }
        Ok(())
    }

    fn take_flag(&mut self, id: i64, row: Option<&FlagRow>) {
        self.seen.insert(id, row.map(|row| row.item_version));
        self.references.flags.insert(id, row.map(FlagReference::from));
    }

    fn forget_flags(&mut self) {
        self.seen.clear();
        self.references.flags.clear();
    }

    /// What has to be true for a judgement by these records to hold when the flag `own` is written.
    pub fn rests(&self, project: ProjectId, own: i64) -> Rests {
        let when = Precondition { rows: self.sum, ..Precondition::default() };
        let cohort = |(id, version): (&i64, &u64)| {
            let key = keys::record(project, Kind::Cohort, number(*id));
            Write::Check(key, Guard::Version(*version))
        };
        // Of more than these, which hardly any flag refers to, one may be deleted in the moment of the write.
        let cohorts = self.cohorts_seen.iter().take(NAMED_MAX).map(cohort);
        if self.sum.is_some() {
            return Rests { when, conditions: cohorts.collect(), ..Rests::default() };
        }
        let others = self.seen.iter().filter(|(id, _)| **id > 0 && **id != own);
        let guard = |version: Option<u64>| version.map_or(Guard::Absent, Guard::Version);
        let checks =
            others.map(|(id, seen)| Write::Check(keys::flag_row(project, number(*id)), guard(*seen)));
        Rests { when, conditions: checks.chain(cohorts).collect(), ..Rests::default() }
    }

    /// What of the feed's room `flag` takes at most beside its own length: its cohorts, and the keys that it depends on.
    pub fn room(&self, flag: &Flag) -> Room {
        let unknown = flag.cohort_ids().into_iter().filter(|id| !self.references.cohorts.contains_key(id));
        let chain = self.references.flags.values().flatten().map(|flag| flag.key.len() + 3).sum::<usize>();
        Room::Estimated { beside: of_cohorts(self.cohort_bytes.iter().copied(), unknown.count()) + chain }
    }
}

/// Looks up what `mentions` names and what that names in turn, beyond what is in `found`. No round trip when nothing is
/// missing, or only flags whose rows are remembered under `version`; else one for each level.
pub async fn look_up(
    state: &Flags,
    project: ProjectId,
    version: Version,
    mentions: &Mentions,
    mut found: Mentioned,
) -> ApiResult<Mentioned> {
    let mut whole: Option<Rows> = None;
    let (flags, _) = mentions.unresolved(&found.references);
    if !flags.is_empty() {
        whole = remembered(state, project, version);
    }
    if whole.is_some() {
        found.forget_flags();
    }
    loop {
        let (flags, cohorts) = mentions.unresolved(&found.references);
        if whole.is_none() && found.seen.len() + flags.len() > NAMED_MAX {
            whole = Some(proven(state, project, version).await?);
            found.forget_flags();
            continue;
        }
        let dashboards = mentions.dashboard_ids.difference(&found.looked_for).copied().collect();
        let mut sought = Sought { flags, cohorts, dashboards };
        if let Some(rows) = &whole {
            for id in std::mem::take(&mut sought.flags) {
                found.take_flag(id, rows.find(id));
            }
        }
        let keys = sought.keys(project);
        let items =
            if keys.is_empty() { Vec::new() } else { state.app.store.records.batch_get(&keys).await? };
        found.take(&sought, &items)?;
        let (flags, cohorts) = mentions.unresolved(&found.references);
        if flags.is_empty() && cohorts.is_empty() && mentions.dashboard_ids.is_subset(&found.looked_for) {
            break;
        }
    }
    if found.seen.len() > NAMED_MAX {
        found.sum = whole.map(|rows| rows.version.sums.rows);
    }
    Ok(found)
}

fn live_cohort(item: &Item) -> Result<Option<Cohort>, StoreError> {
    Ok(Cohort::read(&item.body()?).filter(|cohort| !cohort.deleted))
}
