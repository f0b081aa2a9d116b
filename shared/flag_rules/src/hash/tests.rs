//! Published vectors and bulk digests. SHA-256 is here because only these tests need it.

use sha1::{Digest, Sha1};

use super::*;

/// Flag key, id, first 15 hexadecimal digits, rollout hash; variant hash, variant of 50/50, variant of 33/33/34.
type Vector =
    (&'static str, &'static str, &'static str, f64, Option<(f64, &'static str, Option<&'static str>)>);

const VECTORS: [Vector; 15] = [
    (
        "simple-flag",
        "user-1",
        "bcb4b30a13e1f13",
        0.737132253609,
        Some((0.421187537059, "control", Some("b"))),
    ),
    (
        "simple-flag",
        "user-2",
        "323f559d7b9fed8",
        0.196278906773,
        Some((0.056799881219, "control", Some("a"))),
    ),
    ("simple-flag", "user-3", "e91eacdac793d16", 0.910624316609, Some((0.568853236119, "test", Some("b")))),
    (
        "simple-flag",
        "alice@example.com",
        "8c5c3d8d1d3dc7d",
        0.548282477333,
        Some((0.866585568555, "test", Some("c"))),
    ),
    (
        "simple-flag",
        "Ünïcode-id",
        "398827a6bd5b06b",
        0.224733808716,
        Some((0.455139266147, "control", Some("b"))),
    ),
    ("simple-flag", "", "7d826afaf3bcb69", 0.490271269100, None),
    (
        "beta-feature",
        "user-1",
        "b9fb54b4bcd0054",
        0.726491254926,
        Some((0.145782183343, "control", Some("a"))),
    ),
    ("beta-feature", "user-2", "b25058ba25aee72", 0.696538491675, Some((0.602274324464, "test", Some("b")))),
    (
        "beta-feature",
        "user-3",
        "ba108a04a6259e1",
        0.726814867148,
        Some((0.231246079179, "control", Some("a"))),
    ),
    ("beta-feature", "org:1", "cba60ff786889b2", 0.795502660686, None),
    ("beta-feature", "org:3", "24645db7069687e", 0.142156464752, None),
    (
        "new-checkout",
        "user-1",
        "eab587dd962e0da",
        0.916832439040,
        Some((0.254021246931, "control", Some("a"))),
    ),
    ("new-checkout", "user-2", "c936a0c71780ea8", 0.785989807707, Some((0.828287731362, "test", Some("c")))),
    (
        "new-checkout",
        "user-3",
        "1af02d942c018e1",
        0.105227326083,
        Some((0.163360313937, "control", Some("a"))),
    ),
    (
        "new-checkout",
        "alice@example.com",
        "4c71c65f19c3c82",
        0.298611067026,
        Some((0.544068093004, "test", Some("b"))),
    ),
];

fn close(left: f64, right: f64) -> bool {
    (left - right).abs() < 1e-12
}

#[test]
fn vectors() {
    for (key, id, digits, rollout, variants) in VECTORS {
        let prefix = flag_prefix(key);
        let digest = Sha1::digest(format!("{prefix}{id}"));
        let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(&hex[..15], digits, "{key} {id}");
        assert!(close(hash(&prefix, id, ""), rollout), "{key} {id}");
        let Some((hashed, half, third)) = variants else { continue };
        assert!(close(hash(&prefix, id, VARIANT_SALT), hashed), "{key} {id}");
        assert_eq!(variant(key, id, [("control", 50.0), ("test", 50.0)]), Some(half), "{key} {id}");
        assert_eq!(variant(key, id, [("a", 33.0), ("b", 33.0), ("c", 34.0)]), third, "{key} {id}");
    }
}

#[test]
fn holdout_vectors() {
    assert!(close(hash(HOLDOUT_PREFIX, "user-1", ""), 0.178055992066));
    assert!(close(hash(HOLDOUT_PREFIX, "user-2", ""), 0.928387330790));
    assert!(in_holdout("user-1", 18.0) && !in_holdout("user-1", 17.0));
}

#[test]
fn thousand_ids_of_a_rollout() {
    let bits: String = (0..1000)
        .map(|n| if in_rollout("simple-flag", &format!("distinct_id_{n}"), Some(45.0)) { '1' } else { '0' })
        .collect();
    assert_eq!(bits.matches('1').count(), 446);
    assert!(bits.starts_with("01101001010110100011"));
    assert_eq!(sha256(bits.as_bytes()), "e8d170e18078f6c80b2cfb3cdf1bb69b7ec76d68481106c9b5147a6816e17d2e");

    let count = |percentage| {
        (0..1000).filter(|n| in_rollout("simple-flag", &format!("user-{n}"), Some(percentage))).count()
    };
    assert_eq!((count(25.0), count(50.0)), (235, 486));
}

#[test]
fn thousand_ids_of_a_multivariate_flag() {
    const KEY: &str = "multivariate-flag";
    let variants = [
        ("first-variant", 50.0),
        ("second-variant", 20.0),
        ("third-variant", 20.0),
        ("fourth-variant", 5.0),
        ("fifth-variant", 5.0),
    ];
    let values: Vec<&str> = (0..1000)
        .map(|n| {
            let id = format!("distinct_id_{n}");
            if in_rollout(KEY, &id, Some(55.0)) {
                variant(KEY, &id, variants).unwrap_or("true")
            } else {
                "false"
            }
        })
        .collect();
    let count = |name| values.iter().filter(|value| **value == name).count();
    let counts: Vec<usize> = variants.iter().map(|(name, _)| count(*name)).collect();
    assert_eq!(count("false"), 444);
    assert_eq!(counts, [290, 110, 111, 24, 21]);
    let joined = values.join(",");
    assert_eq!(sha256(joined.as_bytes()), "d396e8531b0375389fadee36caaaf9376c93151b31d2328c5d01c388bf7bd42a");
}

#[test]
fn bounds_of_a_rollout() {
    assert!(in_rollout("k", "id", None) && in_rollout("k", "id", Some(100.0)));
    assert!(!in_rollout("simple-flag", "user-1", Some(0.0)));
    assert_eq!(variant("simple-flag", "user-1", []), None);
}

#[test]
fn the_digest_of_these_tests_is_sha256() {
    assert_eq!(sha256(b"abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

/// The first `count` primes' roots give SHA-256 its constants: 32 bits of the fraction.
fn root_bits(count: usize, root: fn(f64) -> f64) -> Vec<u32> {
    let is_prime = |n: &u32| (2..*n).all(|divisor| !n.is_multiple_of(divisor));
    (2..)
        .filter(is_prime)
        .take(count)
        .map(|prime| (root(f64::from(prime)).fract() * 4_294_967_296.0) as u32)
        .collect()
}

pub fn sha256(message: &[u8]) -> String {
    let constants = root_bits(64, f64::cbrt);
    let mut state = root_bits(8, f64::sqrt);
    let mut padded = message.to_vec();
    padded.push(0x80);
    while padded.len() % 64 != 56 {
        padded.push(0);
    }
    padded.extend((message.len() as u64 * 8).to_be_bytes());
    for block in padded.chunks(64) {
        let mut words: Vec<u32> = block
            .chunks(4)
            .map(|four| four.iter().fold(0, |word, byte| word << 8 | u32::from(*byte)))
            .collect();
        for i in 16..64 {
            let (a, b) = (words[i - 15], words[i - 2]);
            let s0 = a.rotate_right(7) ^ a.rotate_right(18) ^ (a >> 3);
            let s1 = b.rotate_right(17) ^ b.rotate_right(19) ^ (b >> 10);
            words.push(words[i - 16].wrapping_add(s0).wrapping_add(words[i - 7]).wrapping_add(s1));
        }
        let mut v = state.clone();
        for i in 0..64 {
            let s1 = v[4].rotate_right(6) ^ v[4].rotate_right(11) ^ v[4].rotate_right(25);
            let choice = (v[4] & v[5]) ^ (!v[4] & v[6]);
            let first =
                v[7].wrapping_add(s1).wrapping_add(choice).wrapping_add(constants[i]).wrapping_add(words[i]);
            let s0 = v[0].rotate_right(2) ^ v[0].rotate_right(13) ^ v[0].rotate_right(22);
            let majority = (v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]);
            v.rotate_right(1);
            v[4] = v[4].wrapping_add(first);
            v[0] = first.wrapping_add(s0).wrapping_add(majority);
        }
        for (word, change) in state.iter_mut().zip(v) {
            *word = word.wrapping_add(change);
        }
    }
    state.iter().map(|word| format!("{word:08x}")).collect()
}

#[test]
fn hashes_of_texts_of_any_length_are_those_of_sha1() {
    // Every way in which a block can be full: at the end of a part, within one, and with no room for the length.
    let text = "0123456789abcdefghijklmnopqrstuvwxyzäöü".repeat(6);
    let at =
        |length: usize| (length..).find(|end| text.is_char_boundary(*end)).map_or("", |end| &text[..end]);
    for prefix in [0, 1, 31, 54, 55, 56, 63, 64, 65, 128] {
        for id in 0..140 {
            for salt in ["", VARIANT_SALT] {
                let (prefix, id) = (at(prefix), at(id));
                let digest = Sha1::digest(format!("{prefix}{id}{salt}"));
                let start = sha1_start([prefix, id, salt]).to_be_bytes();
                assert_eq!(start[..], digest[..8], "{prefix} {id} {salt}");
            }
        }
    }
}
