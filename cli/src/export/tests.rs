#![allow(clippy::unwrap_used)]

use super::output_directory::OutputDirectory;
use super::sorter::{ExternalSorter, SortKey};

/// A deterministic pseudorandom number.
fn mixed(n: u64) -> u64 {
    let n = (n ^ (n >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    (n ^ (n >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53) ^ (n >> 29)
}

#[test]
fn lines_are_sorted_with_any_number_of_runs() {
    for (lines, run_bytes) in [(0_u64, 100), (1, 100), (50, 1 << 20), (9000, 200), (9000, 1)] {
        let directory = tempfile::tempdir().unwrap();
        let mut sorter = ExternalSorter::with_run_bytes(directory.path().to_owned(), run_bytes);
        let mut expected: Vec<(SortKey, Vec<u8>)> = (0..lines)
            .map(|n| {
                let time = i64::try_from(mixed(n) % 100).unwrap() - 50;
                ((time, u128::from(mixed(n + 7)) << 64), format!("line {n}").into_bytes())
            })
            .collect();
        expected.iter().for_each(|(key, line)| sorter.add(*key, line).unwrap());
        expected.sort();
        let mut sorted = sorter.finish().unwrap();
        assert_eq!(sorted.count(), lines);
        let mut lines_read = Vec::new();
        while let Some(line) = sorted.next().unwrap() {
            lines_read.push(line);
        }
        assert_eq!(lines_read, expected, "{lines} lines in parts of {run_bytes} bytes");
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "parts are left behind");
    }
}

#[test]
fn a_directory_appears_complete_or_not_at_all() {
    let place = tempfile::tempdir().unwrap();
    let out = place.path().join("out");
    let output = OutputDirectory::create(&out).unwrap();
    std::fs::write(output.path().join("a"), "a").unwrap();
    assert!(!out.exists());
    assert!(OutputDirectory::create(&out).err().unwrap().contains("another export"));
    drop(output);
    assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0);
    let output = OutputDirectory::create(&out).unwrap();
    std::fs::write(output.path().join("a"), "a").unwrap();
    output.finish().unwrap();
    assert!(out.join("a").exists());
    assert!(OutputDirectory::create(&out).err().unwrap().contains("is there already"));
}
