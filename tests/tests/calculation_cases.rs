//! Every calculation case of the corpus through the real router, as legacy request and as query node: the same numbers.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::collections::BTreeSet;

use futures::StreamExt;
use pennon_tests::TestApp;
use pennon_tests::questions::{Form, Question, Verdict, World};

/// Every so many questions are put as a query string too.
const GET_EVERY: usize = 4;
/// How many questions of the corpus there are, and in how many forms they are put.
const QUESTIONS: usize = 335;
/// Questions that may be refused as not supported yet.
const NOT_COVERED: usize = 1_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_case_has_the_expected_numbers_in_every_form() {
    let world = World::of_corpus();
    let app = &world.install().await;
    let asked = world.questions.iter().enumerate().flat_map(|(index, question)| {
        let forms = [Form::Post, Form::Node, Form::Get].into_iter();
        forms
            .filter(move |form| *form != Form::Get || index % GET_EVERY == 0)
            .filter(|form| question.has(*form))
            .map(move |form| (question, form))
    });
    let asked: Vec<(&Question, Form)> = asked.collect();
    let verdicts: Vec<(&Question, Form, Verdict)> =
        futures::stream::iter(asked.into_iter().map(|one| verdict(app, one))).buffered(4).collect().await;
    let (mut failed, mut not_covered) = (Vec::new(), BTreeSet::new());
    for (question, form, verdict) in &verdicts {
        match verdict {
            Verdict::Passed => {}
            Verdict::NotCovered(why) => drop(not_covered.insert(format!("{}: {why}", question.name))),
            Verdict::Failed(why) => {
                failed.push(format!("{} {form:?} in {}: {why}", question.name, question.project))
            }
        }
    }
    for line in &not_covered {
        println!("not covered: {line}");
    }
    println!(
        "{} questions in {} requests, {} not covered",
        world.questions.len(),
        verdicts.len(),
        not_covered.len()
    );
    assert!(failed.is_empty(), "{} of {} wrong:\n{}", failed.len(), verdicts.len(), failed.join("\n"));
    assert!(not_covered.len() <= NOT_COVERED, "{} are refused as not supported yet", not_covered.len());
    assert!(world.questions.len() >= QUESTIONS, "only {} questions", world.questions.len());
}

async fn verdict<'a>(app: &TestApp, (question, form): (&'a Question, Form)) -> (&'a Question, Form, Verdict) {
    let answer = question.ask(app, form).await;
    (question, form, question.judge(form, &answer))
}
