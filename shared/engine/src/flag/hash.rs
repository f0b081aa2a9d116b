//! The hash that decides who is in a rollout and who gets which variant.
//!
//! Must stay true: equal to what every SDK computes for the same key and id, bit for bit; published vectors are tests.

use sha1::{Digest, Sha1};

/// The largest value of 15 hexadecimal digits.
const LONGEST: f64 = 0xFFF_FFFF_FFFF_FFFF_u64 as f64;

/// What hashed ids of holdouts begin with.
pub const HOLDOUT_PREFIX: &str = "holdout-";

/// The salt of the hash that chooses a variant; the hash of a rollout has none.
pub const VARIANT_SALT: &str = "variant";

/// A number from 0 to 1: the first 15 hexadecimal digits of SHA-1 of `prefix + id + salt`, over the largest such value.
pub fn hash(prefix: &str, id: &str, salt: &str) -> f64 {
    let digest = Sha1::new().chain_update(prefix).chain_update(id).chain_update(salt).finalize();
    let mut first = [0; 8];
    first.copy_from_slice(&digest[..8]);
    (u64::from_be_bytes(first) >> 4) as f64 / LONGEST
}

/// The prefix of a flag's hashes.
pub fn flag_prefix(key: &str) -> String {
    format!("{key}.")
}

/// Whether an id is inside the rollout of a condition. No percentage admits everybody.
pub fn in_rollout(key: &str, id: &str, rollout_percentage: Option<f64>) -> bool {
    match rollout_percentage {
        Some(percentage) if percentage < 100.0 => hash(&flag_prefix(key), id, "") <= percentage / 100.0,
        _ => true,
    }
}

/// Whether an id is held out from a flag.
pub fn in_holdout(id: &str, rollout_percentage: f64) -> bool {
    hash(HOLDOUT_PREFIX, id, "") <= rollout_percentage / 100.0
}

/// The variant of an id: half-open ranges in list order, of the widths given (percentages). None when all are passed.
pub fn variant<'a>(
    key: &str,
    id: &str,
    variants: impl IntoIterator<Item = (&'a str, f64)>,
) -> Option<&'a str> {
    let (names, widths): (Vec<&str>, Vec<f64>) = variants.into_iter().unzip();
    range(hash(&flag_prefix(key), id, VARIANT_SALT), widths).and_then(|place| names.get(place).copied())
}

/// The place of the half-open range that a hash falls into; `widths` are percentages, range after range from 0.
pub fn range(hashed: f64, widths: impl IntoIterator<Item = f64>) -> Option<usize> {
    let mut low = 0.0;
    for (place, percentage) in widths.into_iter().enumerate() {
        let high = low + percentage / 100.0;
        if hashed >= low && hashed < high {
            return Some(place);
        }
        low = high;
    }
    None
}

#[cfg(test)]
pub(in crate::flag) mod tests;
