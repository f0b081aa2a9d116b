#![allow(clippy::unwrap_used)]

use super::place::Unfinished;
use super::sorter::{Place, Sorter};

/// Numbers that look like chance, the same each time.
fn mixed(n: u64) -> u64 {
    let n = (n ^ (n >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    (n ^ (n >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53) ^ (n >> 29)
}

#[test]
fn lines_come_in_order_whatever_the_number_of_parts() {
    for (lines, part_bytes) in [(0_u64, 100), (1, 100), (50, 1 << 20), (9000, 200), (9000, 1)] {
        let directory = tempfile::tempdir().unwrap();
        let mut sorter = Sorter::with_parts(directory.path().to_owned(), part_bytes);
        let mut wanted: Vec<(Place, Vec<u8>)> = (0..lines)
            .map(|n| {
                let time = i64::try_from(mixed(n) % 100).unwrap() - 50;
                ((time, u128::from(mixed(n + 7)) << 64), format!("line {n}").into_bytes())
            })
            .collect();
        wanted.iter().for_each(|(place, line)| sorter.add(*place, line).unwrap());
        wanted.sort();
        let mut sorted = sorter.sorted().unwrap();
        assert_eq!(sorted.count(), lines);
        let mut found = Vec::new();
        while let Some(line) = sorted.next().unwrap() {
            found.push(line);
        }
        assert_eq!(found, wanted, "{lines} lines in parts of {part_bytes} bytes");
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "parts are left behind");
    }
}

#[test]
fn a_directory_appears_whole_or_not_at_all() {
    let place = tempfile::tempdir().unwrap();
    let out = place.path().join("out");
    let began = Unfinished::begin(&out).unwrap();
    std::fs::write(began.path().join("a"), "a").unwrap();
    assert!(!out.exists());
    assert!(Unfinished::begin(&out).err().unwrap().contains("another export"));
    drop(began);
    assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0);
    let began = Unfinished::begin(&out).unwrap();
    std::fs::write(began.path().join("a"), "a").unwrap();
    began.finish().unwrap();
    assert!(out.join("a").exists());
    assert!(Unfinished::begin(&out).err().unwrap().contains("is there already"));
}
