//! Every calculation case of the corpus through the real router: as legacy request in body and query string and as query
//! node with the same numbers, and the links in the responses followed to the counted number of persons.

use std::collections::BTreeSet;

use futures::StreamExt;
use pennon_tests::TestApp;
use pennon_tests::queries::{Followed, Form, QueryCase, Verdict, World};

/// One of so many queries is also sent as a query string.
const GET_EVERY: usize = 4;
/// The links of one of so many queries are followed, and of all funnels.
const LINKS_EVERY: usize = 3;
/// The number of queries of the corpus.
const QUERIES: usize = 335;
/// The minimum number of followed links.
const LINKS: usize = 700;

/// The outcome of a query.
struct Outcome {
    verdicts: Vec<(Form, Verdict)>,
    followed: Followed,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_case_has_the_expected_numbers_in_every_form_and_the_people_behind_them() {
    let world = World::of_corpus();
    let app = &world.install().await;
    let requested = world.queries.iter().enumerate().map(|(index, query)| outcome(app, index, query));
    let outcomes: Vec<Outcome> = futures::stream::iter(requested).buffered(4).collect().await;
    let (mut failed, mut not_covered) = (Vec::new(), BTreeSet::new());
    let (mut requests, mut links) = (0, 0);
    for (query, outcome) in world.queries.iter().zip(outcomes) {
        for (form, verdict) in outcome.verdicts {
            requests += 1;
            match verdict {
                Verdict::Passed => {}
                Verdict::NotCovered(why) => drop(not_covered.insert(format!("{}: {why}", query.name))),
                Verdict::Failed(why) => {
                    failed.push(format!("{} as {form:?} in {}: {why}", query.name, query.project));
                }
            }
        }
        links += outcome.followed.right;
        not_covered.extend(outcome.followed.not_covered);
        failed.extend(outcome.followed.wrong);
    }
    for line in &not_covered {
        println!("not covered: {line}");
    }
    println!("{} queries in {requests} requests, {links} links", world.queries.len());
    println!("{} not covered, {} wrong", not_covered.len(), failed.len());
    assert!(failed.is_empty(), "{} wrong:\n{}", failed.len(), failed.join("\n"));
    assert!(not_covered.is_empty(), "{} are refused as not supported yet", not_covered.len());
    assert!(world.queries.len() >= QUERIES, "only {} queries", world.queries.len());
    assert!(links >= LINKS, "only {links} links");
}

async fn outcome(app: &TestApp, index: usize, query: &QueryCase) -> Outcome {
    let mut outcome = Outcome { verdicts: Vec::new(), followed: Followed::default() };
    for form in [Form::Post, Form::Node, Form::Get] {
        if !query.has(form) || (form == Form::Get && !index.is_multiple_of(GET_EVERY)) {
            continue;
        }
        let response = query.send_request(app, form).await;
        outcome.verdicts.push((form, query.check(form, &response)));
        let follows = query.endpoint != "trend" || index.is_multiple_of(LINKS_EVERY);
        if form == Form::Post && response.status == 200 && follows {
            outcome.followed = query.follow(app, &response.json()["result"]).await;
        }
    }
    outcome
}
