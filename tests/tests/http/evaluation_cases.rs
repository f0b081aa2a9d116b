//! The cases of `tests/cases/evaluation.json`, each on an installation of its own.

use futures::StreamExt;
use pennon_tests::cases::{Case, Verdict};

/// How many cases the file has.
const CASES: usize = 71;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_case_passes() {
    let cases = Case::read(include_str!("../../cases/evaluation.json"));
    assert_eq!(cases.len(), CASES);
    let runs = cases.into_iter().map(|case| async move {
        let verdict = case.run(&[]).await;
        (case.name().to_owned(), verdict)
    });
    let verdicts: Vec<(String, Verdict)> = futures::stream::iter(runs).buffered(4).collect().await;
    let failed: Vec<String> = verdicts
        .iter()
        .filter(|(_, verdict)| *verdict != Verdict::Passed)
        .map(|(name, verdict)| format!("{name}: {verdict:?}"))
        .collect();
    assert!(failed.is_empty(), "{} of {} cases failed\n{}", failed.len(), CASES, failed.join("\n"));
}
