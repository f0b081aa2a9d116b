//! The cases of `tests/cases/insights.json`, each on an installation of its own.

use futures::StreamExt;
use pennon_tests::cases::{Case, Verdict};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_case_passes() {
    let cases = Case::read(include_str!("../../cases/insights.json"));
    let runs = cases.into_iter().map(|case| async move {
        let verdict = case.run(&[]).await;
        (case.name().to_owned(), verdict)
    });
    let verdicts: Vec<(String, Verdict)> = futures::stream::iter(runs).buffered(4).collect().await;
    let failed = verdicts.iter().filter(|(_, verdict)| *verdict != Verdict::Passed);
    let failed: Vec<String> = failed.map(|(name, verdict)| format!("{name}: {verdict:?}")).collect();
    assert!(failed.is_empty(), "{} of {} cases failed\n{}", failed.len(), verdicts.len(), failed.join("\n"));
}
