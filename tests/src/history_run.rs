//! How a run of random calls by many clients is configured, and how its findings are reported.

/// Random calls to make in one test: half of `PENNON_HISTORY_OPERATIONS`.
pub fn operations() -> usize {
    usize::try_from(number("PENNON_HISTORY_OPERATIONS", 1000) / 2).expect("a number of calls")
}

/// `PENNON_HISTORY_SEED`, or another seed in each run.
pub fn seed() -> u64 {
    number("PENNON_HISTORY_SEED", pennon_core::ids::random_below(1 << 40))
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().map_or(default, |text| text.parse().expect("a number"))
}

/// Fails with the first findings, and with the seed that repeats them.
#[track_caller]
pub fn assert_no_findings(findings: &[String], seed: u64) {
    assert!(
        findings.is_empty(),
        "PENNON_HISTORY_SEED={seed}: {} findings, the first of which are\n{}",
        findings.len(),
        findings[..findings.len().min(5)].join("\n"),
    );
}
