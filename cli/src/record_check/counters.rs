//! The counters of ids: none assigns an id again that is in use.

use std::collections::BTreeMap;

use pennon_core::store::Key;
use pennon_core::store::keys::{self, Counter};

use super::finding::{Findings, Rule, row_name};

/// The highest id of each counter that is in use, as a value of the counter, and the row that uses it.
#[derive(Debug, Default)]
pub struct IdsInUse(BTreeMap<Key, (u64, Key)>);

impl IdsInUse {
    /// Adds an id, as a value of its counter.
    pub fn add(&mut self, counter: Counter, id: u64, used_by: &Key) {
        let highest = self.0.entry(keys::counter(counter)).or_insert_with(|| (id, used_by.clone()));
        if id > highest.0 {
            *highest = (id, used_by.clone());
        }
    }

    /// The counters that have ids.
    pub fn counters(&self) -> Vec<Key> {
        self.0.keys().cloned().collect()
    }

    /// Checks the counters. They must have been read after the ids, because they only rise.
    pub fn check(&self, counters: &BTreeMap<Key, i64>, findings: &mut Findings) {
        for (counter, (id, used_by)) in &self.0 {
            let value = counters.get(counter).copied().unwrap_or(0);
            if u64::try_from(value).unwrap_or(0) < *id {
                let detail = format!("is {value}, and {} has the id {id}", row_name(used_by));
                findings.add(Rule::Counter, counter, detail);
            }
        }
    }
}
