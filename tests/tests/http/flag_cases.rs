//! The cases of `tests/cases/flags.json`, each on an installation of its own.

use futures::StreamExt;
use pennon_tests::cases::{Case, Verdict};

/// What cases may need and the product does not have.
const LACKING: [&str; 2] = ["experiments", "early_access_features"];
/// How many of the cases need it.
const SKIPPED: usize = 1;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_case_passes_but_those_that_need_what_the_product_lacks() {
    let cases = Case::read(include_str!("../../cases/flags.json"));
    let runs = cases.into_iter().map(|case| async move {
        let verdict = case.run(&LACKING).await;
        (case.name().to_owned(), verdict)
    });
    let verdicts: Vec<(String, Verdict)> = futures::stream::iter(runs).buffered(4).collect().await;
    let mut failed = Vec::new();
    let mut skipped = Vec::new();
    for (name, verdict) in &verdicts {
        match verdict {
            Verdict::Passed => {}
            Verdict::Skipped(why) => skipped.push(format!("{name}: {why}")),
            Verdict::Failed(problem) => failed.push(format!("{name}: {problem}")),
        }
    }
    assert!(failed.is_empty(), "{} of {} cases failed\n{}", failed.len(), verdicts.len(), failed.join("\n"));
    assert_eq!(skipped.len(), SKIPPED, "{skipped:?}");
}
