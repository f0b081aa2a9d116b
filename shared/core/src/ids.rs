//! Random numbers, secrets and UUIDs. The only module that reads randomness.

use uuid::Uuid;

const BASE62: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// A random number below `bound` (0 for a bound of 0).
pub fn random_below(bound: u64) -> u64 {
    if bound == 0 { 0 } else { random_u64() % bound }
}

/// A random string of `length` letters and digits.
pub fn random_text(length: usize) -> String {
    // 248 is the largest multiple of 62 in a byte: larger bytes are skipped, or some characters would be more likely.
    let mut text = String::with_capacity(length);
    while text.len() < length {
        let bytes = random_u64().to_le_bytes();
        let fair = bytes.iter().filter(|byte| **byte < 248).take(length - text.len());
        text.extend(fair.map(|byte| char::from(BASE62[usize::from(byte % 62)])));
    }
    text
}

/// `N` random bytes.
pub fn random_bytes<const N: usize>() -> [u8; N] {
    std::array::from_fn(|_| random_u64().to_le_bytes()[0])
}

/// A new personal API key: `phx_` and 47 letters and digits, 280 random bits.
pub fn new_api_key() -> String {
    format!("phx_{}", random_text(47))
}

/// A new project token: `phc_` and 43 letters and digits.
pub fn new_project_token() -> String {
    format!("phc_{}", random_text(43))
}

/// A new UUID. UUIDs of one process ascend, so that log entries with the same instant keep their order, also with a frozen
/// clock.
pub fn new_uuid() -> Uuid {
    Uuid::now_v7()
}

/// A new UUID that says nothing of its time: 122 random bits.
pub fn new_random_uuid() -> Uuid {
    let (high, low) = (random_u64(), random_u64());
    uuid::Builder::from_random_bytes(((u128::from(high) << 64) | u128::from(low)).to_be_bytes()).into_uuid()
}

fn random_u64() -> u64 {
    #[cfg(feature = "simulation")]
    if let Some(number) = seeded::next() {
        return number;
    }
    let (high, low) = Uuid::new_v4().as_u64_pair();
    // A version 4 UUID has six fixed bits, four in the upper half and two in the lower: mix them with random ones.
    high.rotate_left(32) ^ low.rotate_left(4)
}

/// Random numbers of this thread from a seed, so that a simulation can be repeated.
#[cfg(feature = "simulation")]
#[doc(hidden)]
pub mod seeded {
    use std::cell::Cell;

    thread_local! {
        static STATE: Cell<Option<u64>> = const { Cell::new(None) };
    }

    /// From now on this thread has the random numbers of `seed`; real ones with `None`.
    pub fn set(seed: Option<u64>) {
        STATE.set(seed);
    }

    /// The next number (splitmix64); none without a seed.
    pub(super) fn next() -> Option<u64> {
        let state = STATE.get()?.wrapping_add(0x9e37_79b9_7f4a_7c15);
        STATE.set(Some(state));
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        Some(mixed ^ (mixed >> 31))
    }
}
