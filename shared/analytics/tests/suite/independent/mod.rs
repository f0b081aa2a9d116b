//! A second implementation of all kinds, by definition and by brute force, over many small random histories; and changes
//! of a history that must not change a result.
//!
//! `PENNON_CHECK_HISTORIES` sets the number of histories, `PENNON_CHECK_SEED` the first of their seeds. A failure prints the
//! seed of its history, and the history without the events that do not matter.
#![allow(clippy::print_stdout)]

mod calendar;
mod dice;
mod flag_impact;
mod funnel_definition;
mod funnel_exclusions;
mod funnel_result;
mod funnel_scan;
mod funnel_spec;
mod funnel_trends;
mod history;
mod lifecycle;
mod path_definition;
mod path_spec;
mod retention_count;
mod retention_result;
mod retention_spec;
mod serialised;
mod stickiness;
mod trend_count;
mod trend_dates;
mod trend_result;
mod trend_rows;
mod trend_spec;
mod unchanged;

use pennon_analytics::InsightKind;
use pennon_analytics::kinds::funnels::unwrap_single_breakdown_values;
use pennon_filters::CalcError;
use serde_json::Value;

use dice::Dice;
use funnel_spec::{FunnelSpec, Shape};
use history::{History, OutcomeCounts};

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().map_or(default, |text| text.parse().unwrap())
}

/// The seeds of this run.
fn seeds() -> std::ops::Range<u64> {
    let first = number("PENNON_CHECK_SEED", 0);
    first..first + number("PENNON_CHECK_HISTORIES", 500)
}

/// Fewer seeds, because each query is calculated a dozen times.
fn some_seeds() -> impl Iterator<Item = u64> {
    seeds().step_by(5)
}

fn calculate_funnel(history: &History, body: &Value) -> Result<Value, CalcError> {
    let body = body.as_object().unwrap();
    let mut result = history.world().calculate_parsed(InsightKind::Funnels.parse_request(body))?;
    unwrap_single_breakdown_values(body, &mut result);
    Ok(result)
}

/// Differences of a result from the expected one; `None` if the contract leaves the result open.
type Differences = Option<Vec<String>>;

fn check_funnel(history: &History, spec: &FunnelSpec) -> Result<Differences, CalcError> {
    Ok(differences_from(&calculate_funnel(history, &spec.body())?, history, spec))
}

fn differences_from(got: &Value, history: &History, spec: &FunnelSpec) -> Differences {
    match spec.shape {
        Shape::Steps => funnel_result::check_steps(spec, history, got),
        Shape::Trends(_) => funnel_trends::check_trends(spec, history, got),
        Shape::TimeToConvert(_) => Some(funnel_result::check_times_to_convert(spec, history, got)),
    }
}

/// Counts a query with the right result; panics if the result is wrong or the query is rejected.
fn run_check(
    outcomes: &mut OutcomeCounts,
    seed: u64,
    history: History,
    body: &Value,
    check: &dyn Fn(&History) -> Result<Differences, CalcError>,
) {
    match check(&history) {
        Ok(None) => outcomes.count("left open by the contract"),
        Ok(Some(wrong)) if wrong.is_empty() => outcomes.count("calculated"),
        _ => {
            let is_wrong = |history: &History| {
                !matches!(check(history), Ok(None)) && check(history) != Ok(Some(Vec::new()))
            };
            let small = history.shrunk(&is_wrong);
            let wrong = match check(&small) {
                Ok(wrong) => wrong.unwrap_or_default(),
                Err(error) => vec![format!("refused: {error}")],
            };
            panic!("PENNON_CHECK_SEED={seed}\n{}\n{body:#}\n{}", small.describe(), wrong.join("\n"));
        }
    }
}

fn show(what: &str, outcomes: &OutcomeCounts) {
    for (line, count) in &outcomes.0 {
        println!("{what}: {count} {line}");
    }
}

#[test]
fn funnels_are_as_counted_by_hand() {
    let mut outcomes = OutcomeCounts::default();
    for seed in seeds() {
        let (history, spec) = funnel_spec::generate(&mut Dice::new(seed));
        run_check(&mut outcomes, seed, history, &spec.body(), &|history| check_funnel(history, &spec));
    }
    show("funnels", &outcomes);
}

#[test]
fn funnels_with_exclusions_are_as_counted_by_hand() {
    let mut outcomes = OutcomeCounts::default();
    for seed in seeds() {
        let (history, spec) = funnel_exclusions::generate(&mut Dice::new(seed));
        run_check(&mut outcomes, seed, history, &spec.body(), &|history| check_funnel(history, &spec));
    }
    show("funnels with exclusions", &outcomes);
}

/// The evaluators assert that they agree, whatever the engine calculates.
#[test]
fn the_definition_and_the_published_scan_agree() {
    for seed in seeds() {
        let (history, spec) = funnel_spec::generate(&mut Dice::new(seed));
        differences_from(&Value::Null, &history, &spec);
    }
}

fn check_trend(history: &History, spec: &trend_spec::TrendSpec) -> Result<Differences, CalcError> {
    let body = spec.body();
    let got =
        history.world().calculate_parsed(InsightKind::Trends.parse_request(body.as_object().unwrap()))?;
    Ok(trend_result::check(spec, history, &got))
}

#[test]
fn trends_are_as_counted_by_hand() {
    let mut outcomes = OutcomeCounts::default();
    for seed in seeds() {
        let (history, spec) = trend_spec::generate(&mut Dice::new(seed));
        run_check(&mut outcomes, seed, history, &spec.body(), &|history| check_trend(history, &spec));
    }
    show("trends", &outcomes);
}

#[test]
fn retention_is_as_counted_by_hand() {
    let mut outcomes = OutcomeCounts::default();
    let (mut cases, mut returning) = (0, 0);
    for seed in seeds() {
        let (history, spec) = retention_spec::generate(&mut Dice::new(seed));
        let (starts, returns) = retention_result::starts_and_returns(&spec, &history);
        outcomes.count(if starts { "with starts" } else { "without starts" });
        (cases, returning) = (cases + 1, returning + usize::from(returns));
        let check = |history: &History| retention_result::check(&spec, history);
        run_check(&mut outcomes, seed, history, &spec.body(), &check);
    }
    show("retention", &outcomes);
    assert!(cases < 100 || returning * 10 > cases, "actors return in only {returning} of {cases} cases");
}

#[test]
fn paths_are_as_counted_by_hand() {
    let mut outcomes = OutcomeCounts::default();
    for seed in seeds() {
        let (history, spec) = path_spec::generate(&mut Dice::new(seed));
        match (path_definition::count_edges(&history, &spec), &spec.funnel) {
            (0, _) => outcomes.count("without edges"),
            (_, None) => outcomes.count("with edges"),
            (_, Some(_)) => outcomes.count("with edges around a funnel"),
        }
        let check = |history: &History| path_definition::check(history, &spec).map(Some);
        run_check(&mut outcomes, seed, history, &spec.body(), &check);
    }
    show("paths", &outcomes);
}

#[test]
fn stickiness_is_as_counted_by_hand() {
    let mut outcomes = OutcomeCounts::default();
    for seed in seeds() {
        let (history, spec) = stickiness::generate(&mut Dice::new(seed));
        run_check(&mut outcomes, seed, history, &spec.node(), &|history| stickiness::check(history, &spec));
    }
    show("stickiness", &outcomes);
}

#[test]
fn lifecycles_are_as_counted_by_hand() {
    let mut outcomes = OutcomeCounts::default();
    for seed in seeds() {
        let (history, spec) = lifecycle::generate(&mut Dice::new(seed));
        run_check(&mut outcomes, seed, history, &spec.node(), &|history| lifecycle::check(history, &spec));
    }
    show("lifecycles", &outcomes);
}

#[test]
fn impacts_of_flags_are_as_counted_by_hand() {
    let mut outcomes = OutcomeCounts::default();
    for seed in seeds() {
        let (history, spec) = flag_impact::generate(&mut Dice::new(seed));
        let check = |history: &History| flag_impact::check(history, &spec);
        run_check(&mut outcomes, seed, history, &spec.body(), &check);
    }
    show("impacts of flags", &outcomes);
}

#[test]
fn funnels_stay_the_same() {
    let mut outcomes = OutcomeCounts::default();
    for seed in some_seeds() {
        let (history, spec) = funnel_spec::generate(&mut Dice::new(seed));
        let every = spec.steps.iter().any(|step| step.name.is_none());
        let checked = unchanged::CheckedQuery {
            body: spec.body(),
            is_funnel: true,
            is_strict: spec.order == funnel_spec::Order::Strict || every,
            doubles: matches!(spec.shape, Shape::Steps) && spec.group.is_none(),
        };
        let check = |history: &History| unchanged::changes(history, &checked).map(Some);
        run_check(&mut outcomes, seed, history, &checked.body, &check);
    }
    show("funnels of rearranged histories", &outcomes);
}

#[test]
fn trends_stay_the_same() {
    use trend_count::Math;
    let mut outcomes = OutcomeCounts::default();
    for seed in some_seeds() {
        let (history, spec) = trend_spec::generate(&mut Dice::new(seed));
        let people = |math| matches!(math, Math::Total | Math::Dau | Math::Rolling(_) | Math::FirstTime);
        let checked = unchanged::CheckedQuery {
            body: spec.body(),
            is_funnel: false,
            is_strict: spec.series.iter().any(|series| series.name.is_none()),
            doubles: spec.formula.is_none()
                && spec.smoothing == 1
                && spec.series.iter().all(|series| people(series.math)),
        };
        let check = |history: &History| unchanged::changes(history, &checked).map(Some);
        run_check(&mut outcomes, seed, history, &checked.body, &check);
    }
    show("trends of rearranged histories", &outcomes);
}
