//! The summary row of a flag, which lists, dependency checks and look-ups use instead of full records.
//!
//! Must stay true: a row is a function of its flag and is written together with it; it contains everything that a list
//! filters, orders or searches by.

use std::cmp::Ordering;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::Flag;
use super::status::{self, FlagUsage, Status, StatusReason};
use crate::calls::{CallTimes, CalledFlag};
use crate::conditions::filter_view as view;
use crate::conditions::record_ids;
use crate::relations::FlagReference;

/// The summary of a flag. One list reads thousands of rows, so the stored form has short names and omits default
/// values.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FlagRow {
    /// As in the flag.
    #[serde(rename = "i")]
    pub id: i64,
    /// Item version of the record that this row summarizes. The store keeps it outside of the row's JSON.
    #[serde(skip)]
    pub item_version: u64,
    /// As in the flag.
    #[serde(rename = "k")]
    pub key: String,
    /// As in the flag.
    #[serde(rename = "n", default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// As in the flag; lists leave out deleted flags.
    #[serde(rename = "d", default, skip_serializing_if = "is_false")]
    pub deleted: bool,
    /// As in the flag.
    #[serde(rename = "a", default = "default_true", skip_serializing_if = "is_true")]
    pub active: bool,
    /// As in the flag.
    #[serde(rename = "c", with = "micros")]
    pub created_at: DateTime<Utc>,
    /// As in the flag.
    #[serde(rename = "u", with = "micros")]
    pub updated_at: DateTime<Utc>,
    /// As in the flag.
    #[serde(rename = "v", default = "default_version", skip_serializing_if = "is_one")]
    pub version: i64,
    /// User id of its creator.
    #[serde(rename = "b", default, skip_serializing_if = "Option::is_none")]
    pub created_by_id: Option<i64>,
    /// As in the flag.
    #[serde(rename = "t", default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// As in the flag.
    #[serde(rename = "r", default = "default_runtime", skip_serializing_if = "is_runtime")]
    pub evaluation_runtime: Option<String>,
    /// As in the flag; null is stored as false.
    #[serde(rename = "g", default, skip_serializing_if = "is_false")]
    pub is_remote_configuration: bool,
    /// The number of its variants.
    #[serde(rename = "m", default, skip_serializing_if = "is_zero")]
    pub variants: usize,
    /// As in the flag.
    #[serde(rename = "l", default, with = "micros::nullable", skip_serializing_if = "Option::is_none")]
    pub last_called_at: Option<DateTime<Utc>>,
    /// Whether all persons get the same value.
    #[serde(rename = "f", default, skip_serializing_if = "is_false")]
    pub fully_rolled_out: bool,
    /// Whether its filters are only an empty list of conditions; the list of stale flags leaves such flags out.
    #[serde(rename = "e", default, skip_serializing_if = "is_false")]
    pub only_empty_groups: bool,
    /// The ids of the flags that it depends on.
    #[serde(rename = "p", default, skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<i64>,
    /// The ids of the cohorts that it names.
    #[serde(rename = "h", default, skip_serializing_if = "Vec::is_empty")]
    pub cohort_ids: Vec<i64>,
    /// Size of the record's text in KiB, so that a list knows how much it would read.
    #[serde(rename = "z", default, skip_serializing_if = "is_zero")]
    pub kib: usize,
}

impl From<&Flag> for FlagRow {
    fn from(flag: &Flag) -> Self {
        let only_groups = flag.filters.len() == 1 && flag.filters.get("groups").is_some();
        Self {
            id: flag.id,
            item_version: 0,
            key: flag.key.clone(),
            name: flag.name.clone(),
            deleted: flag.deleted,
            active: flag.active,
            created_at: flag.created_at,
            updated_at: flag.updated_at,
            version: flag.version,
            created_by_id: flag.created_by.as_ref().map(|user| user.id),
            tags: flag.tags.clone(),
            evaluation_runtime: flag.evaluation_runtime.clone(),
            is_remote_configuration: flag.is_remote_configuration.unwrap_or(false),
            variants: view::variants(&flag.filters).len(),
            last_called_at: flag.last_called_at,
            fully_rolled_out: status::full_rollout(&flag.filters).is_some(),
            only_empty_groups: only_groups && view::groups(&flag.filters).is_empty(),
            depends_on: record_ids::flag_ids(&flag.filters),
            cohort_ids: flag.cohort_ids(),
            kib: 0,
        }
    }
}

impl FlagRow {
    /// Sets the item version of the record.
    #[must_use]
    pub fn with_version(mut self, item_version: u64) -> Self {
        self.item_version = item_version;
        self
    }

    /// Sets the size of the record's text in bytes.
    #[must_use]
    pub fn with_size(mut self, bytes: usize) -> Self {
        self.kib = bytes / 1024;
        self
    }

    /// The row's contribution to the checksum that verifies the rows of a version.
    pub fn checksum(&self) -> i64 {
        stamp(self.id, self.item_version)
    }

    /// The fields that are needed to find the flags that depend on another one.
    #[must_use]
    pub fn to_dependency_row(&self) -> Self {
        Self { name: String::new(), tags: Vec::new(), cohort_ids: Vec::new(), ..self.clone() }
    }

    /// The time of the last call, from its record and `calls`.
    pub fn latest_call(&self, calls: &CallTimes) -> Option<DateTime<Utc>> {
        let (deleted, recorded) = (self.deleted, self.last_called_at);
        calls.last_called_at(CalledFlag { id: self.id, key: &self.key, deleted, recorded })
    }

    /// The order by the latest call. A flag that was never called sorts last, as nulls do in the original product's
    /// database.
    pub fn compare_latest_calls(&self, other: &Self, calls: &CallTimes) -> Ordering {
        let [left, right] = [self, other].map(|row| row.latest_call(calls));
        (left.is_none(), left).cmp(&(right.is_none(), right))
    }

    /// The status of the flag at an instant, given the known calls.
    pub fn status(&self, now: DateTime<Utc>, calls: &CallTimes) -> Status {
        let usage = FlagUsage {
            deleted: self.deleted,
            active: self.active,
            created_at: self.created_at,
            last_called_at: self.latest_call(calls),
            fully_rolled_out: self.fully_rolled_out,
        };
        StatusReason::of(usage, now).status()
    }

    /// Whether the list of stale flags contains the flag.
    pub fn is_listed_as_stale(&self, now: DateTime<Utc>, calls: &CallTimes) -> bool {
        self.status(now, calls) == Status::Stale && !self.only_empty_groups
    }
}

impl From<&FlagRow> for FlagReference {
    fn from(row: &FlagRow) -> Self {
        Self { key: row.key.clone(), active: row.active, depends_on: row.depends_on.clone() }
    }
}

/// A 44-bit checksum of a flag and the version of its record: sums of half a million of them stay below 2^63, and two
/// different sets of rows have the same sum only by chance.
pub fn stamp(id: i64, item_version: u64) -> i64 {
    let mixed = mix(mix(id.unsigned_abs()).wrapping_add(item_version));
    i64::try_from(mixed >> 20).unwrap_or(0)
}

/// The finalizer of SplitMix64, which spreads every input bit over all output bits.
fn mix(seed: u64) -> u64 {
    let mut bits = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

fn default_true() -> bool {
    true
}

fn default_version() -> i64 {
    1
}

#[expect(clippy::unnecessary_wraps, reason = "the default of an optional field")]
fn default_runtime() -> Option<String> {
    Some("all".to_owned())
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "called by derived code")]
fn is_false(value: &bool) -> bool {
    !value
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "called by derived code")]
fn is_true(value: &bool) -> bool {
    *value
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "called by derived code")]
fn is_one(value: &i64) -> bool {
    *value == 1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "called by derived code")]
fn is_zero(value: &usize) -> bool {
    *value == 0
}

#[expect(clippy::ref_option, reason = "called by derived code")]
fn is_runtime(value: &Option<String>) -> bool {
    value.as_deref() == Some("all")
}

/// Instants as microseconds since the epoch.
mod micros {
    use chrono::{DateTime, Utc};
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub fn serialize<S: Serializer>(at: &DateTime<Utc>, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_i64(at.timestamp_micros())
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<DateTime<Utc>, D::Error> {
        let micros = i64::deserialize(deserializer)?;
        DateTime::from_timestamp_micros(micros).ok_or_else(|| D::Error::custom("an instant out of range"))
    }

    /// The same for optional instants.
    pub mod nullable {
        use super::{DateTime, Deserialize, Deserializer, Serializer, Utc};

        #[expect(clippy::ref_option, reason = "called by derived code")]
        pub fn serialize<S: Serializer>(
            at: &Option<DateTime<Utc>>,
            serializer: S,
        ) -> Result<S::Ok, S::Error> {
            match at {
                Some(at) => super::serialize(at, serializer),
                None => serializer.serialize_none(),
            }
        }

        pub fn deserialize<'de, D: Deserializer<'de>>(
            deserializer: D,
        ) -> Result<Option<DateTime<Utc>>, D::Error> {
            let micros = Option::<i64>::deserialize(deserializer)?;
            Ok(micros.and_then(DateTime::from_timestamp_micros))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing;

    #[test]
    fn a_row_of_defaults_is_short_and_round_trips() {
        let flag = testing::flag();
        let row = FlagRow::from(&flag);
        let text = serde_json::to_string(&row).unwrap_or_default();
        assert!(text.len() < 120, "{text}");
        assert_eq!(serde_json::from_str::<FlagRow>(&text).ok(), Some(row));
    }

    #[test]
    fn every_field_of_a_row_round_trips() {
        let mut flag = testing::flag();
        flag.name = "a name".to_owned();
        flag.active = false;
        flag.version = 7;
        flag.tags = vec!["x".to_owned()];
        flag.evaluation_runtime = None;
        flag.is_remote_configuration = Some(true);
        flag.last_called_at = timestamp_of("2026-01-01T00:00:00.000001Z");
        flag.filters = testing::object(json!({
            "groups": [{"rollout_percentage": 100, "properties": [{"type": "flag", "key": "3"}, {"type": "cohort", "value": 4}]}],
            "multivariate": {"variants": [{"key": "v", "rollout_percentage": 100}]},
        }));
        let row = FlagRow::from(&flag);
        let text = serde_json::to_string(&row).unwrap_or_default();
        assert_eq!(serde_json::from_str::<FlagRow>(&text).ok(), Some(row.clone()));
        assert_eq!((row.depends_on, row.cohort_ids, row.variants), (vec![3], vec![4], 1));
    }

    fn timestamp_of(text: &str) -> Option<DateTime<Utc>> {
        pennon_filters::body::timestamp::parse(text)
    }

    #[test]
    fn checksums_differ_by_flag_and_version_and_half_a_million_do_not_overflow() {
        let stamps: std::collections::BTreeSet<i64> =
            (1..=100).flat_map(|id| (1..=100).map(move |version| stamp(id, version))).collect();
        assert_eq!(stamps.len(), 10_000);
        assert!(stamps.iter().all(|stamp| (0..1 << 44).contains(stamp)));
        assert!((1_i64 << 44).checked_mul(500_000).is_some());
    }
}
