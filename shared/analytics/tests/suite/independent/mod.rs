//! All kinds counted a second time, by definition and by brute force, over many small random histories; and
//! what must not change an answer.
//!
//! `PENNON_CHECK_HISTORIES` sets how many histories, `PENNON_CHECK_SEED` the first of their seeds: a failure names the
//! seed of its history, and shows it without the events that do not matter.
#![allow(clippy::print_stdout)]

mod calendar;
mod dice;
mod flag_impact;
mod funnel_answer;
mod funnel_definition;
mod funnel_exclusions;
mod funnel_question;
mod funnel_scan;
mod funnel_trends;
mod history;
mod lifecycle;
mod path_definition;
mod path_question;
mod retention_answer;
mod retention_count;
mod retention_question;
mod stickiness;
mod trend_answer;
mod trend_count;
mod trend_dates;
mod trend_question;
mod trend_rows;
mod unchanged;

use pennon_analytics::InsightKind;
use pennon_analytics::kinds::funnels::unwrap_single_breakdown_values;
use pennon_filters::CalcError;
use serde_json::Value;

use dice::Dice;
use funnel_question::{Question, Shape};
use history::{History, Tally};

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().map_or(default, |text| text.parse().unwrap())
}

/// The seeds of this run.
fn seeds() -> std::ops::Range<u64> {
    let first = number("PENNON_CHECK_SEED", 0);
    first..first + number("PENNON_CHECK_HISTORIES", 500)
}

/// Each is asked a dozen times over, so there are fewer.
fn some_seeds() -> impl Iterator<Item = u64> {
    seeds().step_by(5)
}

fn ask_funnel(history: &History, body: &Value) -> Result<Value, CalcError> {
    let body = body.as_object().unwrap();
    let mut result = history.world().ask(InsightKind::Funnels.parse_request(body))?;
    unwrap_single_breakdown_values(body, &mut result);
    Ok(result)
}

/// What is wrong with an answer; none where the contract leaves it open.
type Judgement = Option<Vec<String>>;

fn judge_funnel(history: &History, question: &Question) -> Result<Judgement, CalcError> {
    Ok(differences_from(&ask_funnel(history, &question.body())?, history, question))
}

fn differences_from(got: &Value, history: &History, question: &Question) -> Judgement {
    match question.shape {
        Shape::Steps => funnel_answer::judge_steps(question, history, got),
        Shape::Trends(_) => funnel_trends::judge_trends(question, history, got),
        Shape::TimeToConvert(_) => Some(funnel_answer::judge_times(question, history, got)),
    }
}

/// Notes a question that was answered rightly; stops at a wrong answer, and at a refusal.
fn settle(
    tally: &mut Tally,
    seed: u64,
    history: History,
    body: &Value,
    judge: &dyn Fn(&History) -> Result<Judgement, CalcError>,
) {
    match judge(&history) {
        Ok(None) => tally.note("left open by the contract"),
        Ok(Some(wrong)) if wrong.is_empty() => tally.note("answered"),
        _ => {
            let is_wrong = |history: &History| {
                !matches!(judge(history), Ok(None)) && judge(history) != Ok(Some(Vec::new()))
            };
            let small = history.shrunk(&is_wrong);
            let wrong = match judge(&small) {
                Ok(wrong) => wrong.unwrap_or_default(),
                Err(error) => vec![format!("refused: {error}")],
            };
            panic!("PENNON_CHECK_SEED={seed}\n{}\n{body:#}\n{}", small.story(), wrong.join("\n"));
        }
    }
}

fn show(what: &str, tally: &Tally) {
    for (line, count) in &tally.0 {
        println!("{what}: {count} {line}");
    }
}

#[test]
fn funnels_are_as_counted_by_hand() {
    let mut tally = Tally::default();
    for seed in seeds() {
        let (history, question) = funnel_question::scene(&mut Dice::new(seed));
        settle(&mut tally, seed, history, &question.body(), &|history| judge_funnel(history, &question));
    }
    show("funnels", &tally);
}

#[test]
fn funnels_with_exclusions_are_as_counted_by_hand() {
    let mut tally = Tally::default();
    for seed in seeds() {
        let (history, question) = funnel_exclusions::scene(&mut Dice::new(seed));
        settle(&mut tally, seed, history, &question.body(), &|history| judge_funnel(history, &question));
    }
    show("funnels with exclusions", &tally);
}

/// The evaluators assert that they agree, whatever the engine calculates.
#[test]
fn the_definition_and_the_published_scan_agree() {
    for seed in seeds() {
        let (history, question) = funnel_question::scene(&mut Dice::new(seed));
        differences_from(&Value::Null, &history, &question);
    }
}

fn judge_trend(history: &History, question: &trend_question::Question) -> Result<Judgement, CalcError> {
    let body = question.body();
    let got = history.world().ask(InsightKind::Trends.parse_request(body.as_object().unwrap()))?;
    Ok(trend_answer::judge(question, history, &got))
}

#[test]
fn trends_are_as_counted_by_hand() {
    let mut tally = Tally::default();
    for seed in seeds() {
        let (history, question) = trend_question::scene(&mut Dice::new(seed));
        settle(&mut tally, seed, history, &question.body(), &|history| judge_trend(history, &question));
    }
    show("trends", &tally);
}

#[test]
fn retention_is_as_counted_by_hand() {
    let mut tally = Tally::default();
    let (mut scenes, mut returning) = (0, 0);
    for seed in seeds() {
        let (history, question) = retention_question::scene(&mut Dice::new(seed));
        let (starts, returns) = retention_answer::starts_and_returns(&question, &history);
        tally.note(if starts { "with starts" } else { "without starts" });
        (scenes, returning) = (scenes + 1, returning + usize::from(returns));
        let judge = |history: &History| retention_answer::judge(&question, history);
        settle(&mut tally, seed, history, &question.body(), &judge);
    }
    show("retention", &tally);
    assert!(scenes < 100 || returning * 10 > scenes, "actors return in only {returning} of {scenes} scenes");
}

#[test]
fn paths_are_as_counted_by_hand() {
    let mut tally = Tally::default();
    for seed in seeds() {
        let (history, question) = path_question::scene(&mut Dice::new(seed));
        match (path_definition::count_edges(&history, &question), &question.funnel) {
            (0, _) => tally.note("without edges"),
            (_, None) => tally.note("with edges"),
            (_, Some(_)) => tally.note("with edges around a funnel"),
        }
        let judge = |history: &History| path_definition::judge(history, &question).map(Some);
        settle(&mut tally, seed, history, &question.body(), &judge);
    }
    show("paths", &tally);
}

#[test]
fn stickiness_is_as_counted_by_hand() {
    let mut tally = Tally::default();
    for seed in seeds() {
        let (history, question) = stickiness::scene(&mut Dice::new(seed));
        settle(&mut tally, seed, history, &question.node(), &|history| stickiness::judge(history, &question));
    }
    show("stickiness", &tally);
}

#[test]
fn lifecycles_are_as_counted_by_hand() {
    let mut tally = Tally::default();
    for seed in seeds() {
        let (history, question) = lifecycle::scene(&mut Dice::new(seed));
        settle(&mut tally, seed, history, &question.node(), &|history| lifecycle::judge(history, &question));
    }
    show("lifecycles", &tally);
}

#[test]
fn impacts_of_flags_are_as_counted_by_hand() {
    let mut tally = Tally::default();
    for seed in seeds() {
        let (history, question) = flag_impact::scene(&mut Dice::new(seed));
        let judge = |history: &History| flag_impact::judge(history, &question);
        settle(&mut tally, seed, history, &question.body(), &judge);
    }
    show("impacts of flags", &tally);
}

#[test]
fn funnels_stay_the_same() {
    let mut tally = Tally::default();
    for seed in some_seeds() {
        let (history, question) = funnel_question::scene(&mut Dice::new(seed));
        let every = question.steps.iter().any(|step| step.name.is_none());
        let asked = unchanged::Asked {
            body: question.body(),
            is_funnel: true,
            is_strict: question.order == funnel_question::Order::Strict || every,
            doubles: matches!(question.shape, Shape::Steps) && question.group.is_none(),
        };
        let judge = |history: &History| unchanged::changes(history, &asked).map(Some);
        settle(&mut tally, seed, history, &asked.body, &judge);
    }
    show("funnels told otherwise", &tally);
}

#[test]
fn trends_stay_the_same() {
    use trend_count::Math;
    let mut tally = Tally::default();
    for seed in some_seeds() {
        let (history, question) = trend_question::scene(&mut Dice::new(seed));
        let people = |math| matches!(math, Math::Total | Math::Dau | Math::Rolling(_) | Math::FirstTime);
        let asked = unchanged::Asked {
            body: question.body(),
            is_funnel: false,
            is_strict: question.series.iter().any(|series| series.name.is_none()),
            doubles: question.formula.is_none()
                && question.smoothing == 1
                && question.series.iter().all(|series| people(series.math)),
        };
        let judge = |history: &History| unchanged::changes(history, &asked).map(Some);
        settle(&mut tally, seed, history, &asked.body, &judge);
    }
    show("trends told otherwise", &tally);
}
