//! The partial result of paths: how often each step follows another, and how long that takes.
//!
//! Must stay true: names are held once, passages refer to them by code; partial results merge in any order, within the limit
//! on distinct passages.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use ahash::RandomState;
use pennon_filters::error::CalcResult;
use serde::{Deserialize, Serialize};

use super::session_steps::Step;
use crate::kinds::paths::limits;

/// The passages of one or more partitions.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "StoredPassages")]
pub struct PassageCounts {
    /// The distinct items, by code.
    names: Vec<Arc<str>>,
    #[serde(skip)]
    codes: HashMap<Arc<str>, u32, RandomState>,
    passages: PassageTable,
    /// The limit on distinct passages was exceeded and the passages dropped.
    over_limit: bool,
}

/// The serialised fields of [`PassageCounts`]: each name is written once.
#[derive(Deserialize)]
struct StoredPassages {
    names: Vec<Arc<str>>,
    passages: PassageTable,
    over_limit: bool,
}

impl From<StoredPassages> for PassageCounts {
    fn from(StoredPassages { names, passages, over_limit }: StoredPassages) -> Self {
        let codes = names.iter().cloned().zip(0..).collect();
        Self { names, codes, passages, over_limit }
    }
}

/// Passages by key, with items as codes of one partition or partial result.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct PassageTable(HashMap<PassageKey, PassageSum, RandomState>);

/// The two steps of a passage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct PassageKey {
    /// The number of the first step, from 1 on.
    pub(super) number: u32,
    /// The item of the first step.
    pub(super) source: u32,
    /// The item of the second step.
    pub(super) target: u32,
}

/// The number of passages and their total time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PassageSum {
    pub(super) count: u64,
    /// Windows of a hundred years of many passages exceed 64 bits.
    pub(super) micros: i128,
}

impl PassageTable {
    /// Adds to a passage. An error if there are too many distinct ones.
    fn add(&mut self, key: PassageKey, more: PassageSum) -> CalcResult<()> {
        let sum = self.0.entry(key).or_default();
        sum.count += more.count;
        sum.micros += more.micros;
        if self.0.len() > limits::PASSAGES { Err(limits::too_many_passages()) } else { Ok(()) }
    }

    /// Adds the passages of a session.
    pub(super) fn add_session(&mut self, steps: &[Step]) -> CalcResult<()> {
        for (number, pair) in (1..).zip(steps.windows(2)) {
            let key = PassageKey { number, source: pair[0].item, target: pair[1].item };
            self.add(key, PassageSum { count: 1, micros: (pair[1].time - pair[0].time).into() })?;
        }
        Ok(())
    }
}

impl PassageCounts {
    /// The passages of a partition, with the names of their items.
    pub(super) fn new(table: &PassageTable, names: &[Cow<'_, str>]) -> CalcResult<Self> {
        let mut counts = Self::default();
        let mut new_codes: Vec<Option<u32>> = vec![None; names.len()];
        let mut code = |counts: &mut Self, old: u32| {
            let (name, new_code) = (names.get(old as usize)?, new_codes.get_mut(old as usize)?);
            Some(*new_code.get_or_insert_with(|| counts.code(Cow::Borrowed(name))))
        };
        for (key, sum) in &table.0 {
            if let (Some(source), Some(target)) =
                (code(&mut counts, key.source), code(&mut counts, key.target))
            {
                counts.passages.add(PassageKey { source, target, ..*key }, *sum)?;
            }
        }
        Ok(counts)
    }

    /// Merges two partial results.
    #[must_use]
    pub(crate) fn merge(mut self, mut other: Self) -> Self {
        if self.passages.0.len() < other.passages.0.len() {
            std::mem::swap(&mut self, &mut other);
        }
        self.over_limit |= other.over_limit;
        if !self.over_limit {
            let codes: Vec<u32> = other.names.into_iter().map(|name| self.code_of_shared(name)).collect();
            let code = |old: u32| codes.get(old as usize).copied();
            for (key, sum) in other.passages.0 {
                if let (Some(source), Some(target)) = (code(key.source), code(key.target)) {
                    let added = self.passages.add(PassageKey { source, target, ..key }, sum);
                    self.over_limit |= added.is_err();
                }
                if self.over_limit {
                    break;
                }
            }
        }
        if self.over_limit { Self { over_limit: true, ..Self::default() } } else { self }
    }

    /// All passages, or the error for too many.
    pub(super) fn passages(&self) -> CalcResult<impl Iterator<Item = (&PassageKey, &PassageSum)>> {
        if self.over_limit { Err(limits::too_many_passages()) } else { Ok(self.passages.0.iter()) }
    }

    /// The name of an item.
    pub(super) fn name(&self, item: u32) -> &str {
        self.names.get(item as usize).map_or("", |name| name)
    }

    fn code(&mut self, name: Cow<'_, str>) -> u32 {
        match self.codes.get(name.as_ref()) {
            Some(code) => *code,
            None => self.code_of_shared(Arc::from(name)),
        }
    }

    fn code_of_shared(&mut self, name: Arc<str>) -> u32 {
        let next = u32::try_from(self.names.len()).unwrap_or(u32::MAX);
        let code = *self.codes.entry(name.clone()).or_insert(next);
        if code == next {
            self.names.push(name);
        }
        code
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::part_format::decoded;

    /// So many passages from step to step of one session, all distinct.
    fn table(passages: usize) -> CalcResult<PassageTable> {
        let steps: Vec<Step> =
            (0..=passages).map(|at| Step { item: (at % 2) as u32, time: at as i64 }).collect();
        let mut table = PassageTable::default();
        table.add_session(&steps).map(|()| table)
    }

    fn counts(table: &PassageTable, names: &[&str]) -> PassageCounts {
        let names: Vec<Cow<'_, str>> = names.iter().map(|name| Cow::Borrowed(*name)).collect();
        PassageCounts::new(table, &names).unwrap()
    }

    #[test]
    fn distinct_passages_are_limited_in_a_partition_and_in_all() {
        let most = table(limits::PASSAGES).unwrap();
        let error = table(limits::PASSAGES + 1).unwrap_err();
        for word in ["1000000", "pathReplacements", "pathGroupings", "stepLimit"] {
            assert!(error.detail.contains(word), "{error}");
        }
        let (most, same) = (counts(&most, &["a", "b"]), counts(&table(1).unwrap(), &["a", "b"]));
        let merged = same.merge(most.clone());
        assert_eq!(merged.passages().unwrap().count(), limits::PASSAGES);
        let more = counts(&table(1).unwrap(), &["b", "a"]);
        for merged in [most.clone().merge(more.clone()), more.clone().merge(most)] {
            assert_eq!(decoded(&merged), merged);
            assert_eq!(decoded(&merged).passages().err(), Some(error.clone()));
            assert_eq!(merged.merge(more.clone()).passages().err(), Some(error.clone()));
        }
    }

    #[test]
    fn merged_passages_are_the_same_in_any_order() {
        let key = |number, source, target| PassageKey { number, source, target };
        let sum = |count, micros| PassageSum { count, micros };
        let table = |entries: &[(PassageKey, PassageSum)]| PassageTable(entries.iter().copied().collect());
        let left = counts(&table(&[(key(1, 0, 1), sum(2, 30)), (key(2, 1, 2), sum(1, 5))]), &["a", "b", "c"]);
        let right = counts(&table(&[(key(1, 1, 0), sum(1, 7))]), &["b", "a", "unused"]);
        let rows = |counts: PassageCounts| {
            let row = |(key, sum): (&PassageKey, &PassageSum)| {
                (key.number, counts.name(key.source).to_owned(), counts.name(key.target).to_owned(), *sum)
            };
            let mut rows: Vec<_> = counts.passages().unwrap().map(row).collect();
            rows.sort_by_key(|row| row.0);
            assert!(!counts.names.iter().any(|name| name.as_ref() == "unused"), "names without passages");
            rows
        };
        assert_eq!(decoded(&left), left);
        let want = vec![
            (1, "a".to_owned(), "b".to_owned(), sum(3, 37)),
            (2, "b".to_owned(), "c".to_owned(), sum(1, 5)),
        ];
        assert_eq!(rows(left.clone().merge(right.clone())), want);
        assert_eq!(rows(decoded(&left).merge(decoded(&right))), want);
        assert_eq!(rows(right.merge(left)), want);
    }
}
