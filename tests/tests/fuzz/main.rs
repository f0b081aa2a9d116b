//! The inputs of `tests/fuzz/corpus`, run with their targets: no input panics, and none takes more than the stated amount of work.
//!
//! Work is the number of bytes requested from the allocator, which is the same on every machine. In a program of its own, because of
//! its allocator.
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up should stop at once")]

use std::alloc::System;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use pennon_allocator::{RequestCounter, thread_requested_bytes};
use pennon_tests::fuzz::TARGETS;

#[global_allocator]
static ALLOCATOR: RequestCounter<System> = RequestCounter(System);

/// Most inputs of a target, most bytes of one, and most bytes of all targets.
const INPUTS_MAX: usize = 60;
const INPUT_BYTES_MAX: u64 = 65_536;
const CORPUS_BYTES_MAX: u64 = 1_500_000;

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz").join(name)
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

/// Runs a target with all of its inputs.
fn replay(name: &str) {
    let target = TARGETS.iter().find(|target| target.name == name).unwrap();
    let inputs = entries(&folder("corpus").join(name));
    assert!((1..=INPUTS_MAX).contains(&inputs.len()), "{} inputs", inputs.len());
    for input in inputs {
        let bytes = std::fs::read(&input).unwrap();
        let before = thread_requested_bytes();
        let outcome = catch_unwind(AssertUnwindSafe(|| (target.run)(&bytes)));
        let megabytes = (thread_requested_bytes() - before) / 1_000_000;
        assert!(outcome.is_ok(), "{} breaks a rule", input.display());
        let most = target.megabytes_max;
        assert!(megabytes <= most, "{} requests {megabytes} MB, at most {most}", input.display());
    }
}

macro_rules! replay {
    ($($name:ident),+ $(,)?) => {
        $(
            #[test]
            fn $name() {
                replay(stringify!($name));
            }
        )+

        const REPLAYED: &[&str] = &[$(stringify!($name)),+];
    };
}

replay! {
    dates,
    timestamps,
    regular_expressions,
    versions,
    operators,
    flag_writes,
    flag_evaluation,
    evaluation_requests,
    query_nodes,
    query_filters,
    stored_queries,
    list_filters,
    formulas,
    sql_expressions,
    partial_results,
    clickhouse_rows,
    part_messages,
    sdk_bodies,
    capture_bodies,
    request_bodies,
    headers,
    record_bodies,
    cohort_csv,
    row_keys,
    items,
    triggers,
    blocks,
    queued_blocks,
    side_files,
    profile_changes,
    profile_files,
    properties,
    object_versions,
    import_detected,
    import_pennon,
    import_posthog,
    import_mixpanel,
    import_amplitude,
    import_segment,
    import_parquet,
    backup_contents,
    backup_archives,
    workspaces,
}

#[test]
fn every_target_is_replayed_and_has_a_program_and_inputs() {
    let names: BTreeSet<&str> = TARGETS.iter().map(|target| target.name).collect();
    assert_eq!(REPLAYED.iter().copied().collect::<BTreeSet<_>>(), names);
    let in_folder = |folder: &Path| -> BTreeSet<String> {
        let stem = |path: &PathBuf| path.file_stem().unwrap().to_str().unwrap().to_owned();
        entries(folder).iter().map(stem).collect()
    };
    let names: BTreeSet<String> = names.into_iter().map(str::to_owned).collect();
    assert_eq!(in_folder(&folder("fuzz_targets")), names);
    assert_eq!(in_folder(&folder("corpus")), names);
}

#[test]
fn the_corpus_is_small() {
    let mut total = 0;
    for target in TARGETS {
        for input in entries(&folder("corpus").join(target.name)) {
            let bytes = std::fs::metadata(&input).unwrap().len();
            assert!(bytes <= INPUT_BYTES_MAX, "{} has {bytes} bytes", input.display());
            total += bytes;
        }
    }
    assert!(total <= CORPUS_BYTES_MAX, "{total} bytes");
}
