//! The hash that decides rollouts and variants.
//!
//! Must stay true: bit for bit equal to what every SDK computes for the same key and id; published test vectors are
//! checked.

use sha1::digest::generic_array::GenericArray;

/// The largest value of 15 hexadecimal digits.
const LONGEST: f64 = 0xFFF_FFFF_FFFF_FFFF_u64 as f64;

/// Prefix of hashed ids of holdouts.
pub const HOLDOUT_PREFIX: &str = "holdout-";

/// Salt of the hash that chooses a variant; the hash of a rollout has none.
pub const VARIANT_SALT: &str = "variant";

/// SHA-1 block size, and the offset of the length field in the last block.
const BLOCK_BYTES: usize = 64;
const LENGTH_AT: usize = BLOCK_BYTES - size_of::<u64>();
/// The initial state of SHA-1.
const INITIAL_STATE: [u32; 5] = [0x6745_2301, 0xEFCD_AB89, 0x98BA_DCFE, 0x1032_5476, 0xC3D2_E1F0];

/// A number from 0 to 1: the first 15 hexadecimal digits of SHA-1 of `prefix + id + salt`, divided by the largest such
/// value.
pub fn hash(prefix: &str, id: &str, salt: &str) -> f64 {
    (sha1_start([prefix, id, salt]) >> 4) as f64 / LONGEST
}

/// The first 8 bytes of SHA-1 of the concatenated `parts`.
///
/// An evaluation computes one hash per flag, nearly always of a single block. The blocks are filled here, because
/// `Digest` with its buffer takes about as long as the compression of that block itself.
fn sha1_start(parts: [&str; 3]) -> u64 {
    let mut state = INITIAL_STATE;
    let mut block = [0; BLOCK_BYTES];
    let (mut filled, mut length) = (0, 0_u64);
    for part in parts {
        let mut rest = part.as_bytes();
        while rest.len() >= BLOCK_BYTES - filled {
            let (now, later) = rest.split_at(BLOCK_BYTES - filled);
            block[filled..].copy_from_slice(now);
            compress(&mut state, block);
            (filled, rest) = (0, later);
        }
        block[filled..filled + rest.len()].copy_from_slice(rest);
        filled += rest.len();
        length += part.len() as u64;
    }
    block[filled] = 0x80;
    block[filled + 1..].fill(0);
    if filled >= LENGTH_AT {
        compress(&mut state, block);
        block = [0; BLOCK_BYTES];
    }
    block[LENGTH_AT..].copy_from_slice(&(length * 8).to_be_bytes());
    compress(&mut state, block);
    (u64::from(state[0]) << 32) | u64::from(state[1])
}

fn compress(state: &mut [u32; 5], block: [u8; BLOCK_BYTES]) {
    sha1::compress(state, &[GenericArray::from(block)]);
}

/// The prefix of a flag's hashes.
pub fn flag_prefix(key: &str) -> String {
    format!("{key}.")
}

/// Whether an id is inside the rollout of a condition. Without a percentage every id is.
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

/// The variant of an id: half-open ranges in list order, of the given widths (percentages). `None` when the id is
/// beyond all ranges.
pub fn variant<'a>(
    key: &str,
    id: &str,
    variants: impl IntoIterator<Item = (&'a str, f64)>,
) -> Option<&'a str> {
    let (names, widths): (Vec<&str>, Vec<f64>) = variants.into_iter().unzip();
    range(hash(&flag_prefix(key), id, VARIANT_SALT), widths).and_then(|place| names.get(place).copied())
}

/// The index of the half-open range that contains a hash; `widths` are percentages, starting at 0.
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
pub(crate) mod tests;
