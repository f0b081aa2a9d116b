//! Twice as many distinct values are about twice the work.
//!
//! The rule: work is measured with three sizes, each twice the one before. The mean growth per doubling (the geometric mean of
//! both) may be at most [`MOST`]. Workloads that seem steeper are measured again with four times as many values, where neither of
//! the two doublings may be steeper. So work that begins to grow faster only at the largest size is not found there, as long as
//! the mean stays below the limit.

use std::cell::OnceCell;
use std::collections::BTreeMap;

use pennon_analytics::InsightKind;
use serde_json::json;

use crate::persons::{self, PersonWork};
use crate::support::World;
use crate::thread_time;
use crate::workloads::{Spread, Workload, all, world};

/// More than this, for twice the values, is more than linear work on top of sorting.
const MOST: f64 = 2.6;
/// Measurements of each size; the smallest counts, because others on the machine only make them longer.
const ROUNDS: usize = 12;

fn measure(workload: &Workload, world: &World) -> i64 {
    let prepared = workload.prepare(world);
    let before = thread_time();
    workload.calculate(prepared, &|| false).unwrap_or_else(|error| panic!("{}: {error}", workload.name));
    thread_time() - before
}

fn measure_person_work(work: &PersonWork) -> i64 {
    let prepared = (work.prepare)();
    let before = thread_time();
    prepared(&|| false).unwrap_or_else(|error| panic!("{}: {error}", work.name));
    thread_time() - before
}

/// How the work of each of so many sizes grows at each doubling, as one number by `of_all`; done as soon as it is little enough.
fn growth(sizes: usize, measure: impl Fn(usize) -> i64, of_all: fn(&[f64]) -> f64) -> f64 {
    let mut least = vec![i64::MAX; sizes];
    let mut growth = f64::INFINITY;
    for _ in 0..ROUNDS {
        for (size, least) in least.iter_mut().enumerate() {
            *least = (*least).min(measure(size));
        }
        #[expect(clippy::cast_precision_loss, reason = "nanoseconds of seconds")]
        let doublings: Vec<f64> =
            least.windows(2).map(|pair| pair[1] as f64 / pair[0].max(1) as f64).collect();
        growth = of_all(&doublings);
        if growth <= MOST {
            break;
        }
    }
    growth
}

fn mean(doublings: &[f64]) -> f64 {
    doublings.iter().product::<f64>().powf(1.0 / doublings.len() as f64)
}

fn steepest(doublings: &[f64]) -> f64 {
    doublings.iter().copied().fold(0.0, f64::max)
}

/// What seems too steep is measured once more with four times as many values: work that is not linear grows as much there, while
/// what a busy machine adds (memory that is touched first, caches that others use) does not.
fn assert_linear(spread: Spread, sizes: [usize; 3], is_meant: impl Fn(&str) -> bool) {
    let worlds = sizes.map(|values| world(values, spread));
    let larger = OnceCell::new();
    let mut too_steep = BTreeMap::new();
    let workloads: Vec<Workload> = all().into_iter().filter(|workload| is_meant(&workload.name)).collect();
    assert!(workloads.len() > 5, "{} workloads", workloads.len());
    for workload in workloads {
        if growth(sizes.len(), |size| measure(&workload, &worlds[size]), mean) <= MOST {
            continue;
        }
        let larger = larger.get_or_init(|| sizes.map(|values| world(4 * values, spread)));
        let growth = growth(sizes.len(), |size| measure(&workload, &larger[size]), steepest);
        if growth > MOST {
            too_steep.insert(workload.name, growth);
        }
    }
    assert!(too_steep.is_empty(), "work per doubling: {too_steep:#?}");
}

fn assert_person_work_is_linear(sizes: [Vec<PersonWork>; 3]) {
    let mut too_steep = BTreeMap::new();
    for (index, work) in sizes[0].iter().enumerate() {
        let growth = growth(sizes.len(), |size| measure_person_work(&sizes[size][index]), mean);
        if growth > MOST {
            too_steep.insert(&work.name, growth);
        }
    }
    assert!(too_steep.is_empty(), "work per doubling: {too_steep:#?}");
}

#[test]
fn work_grows_with_the_distinct_values_of_many_persons() {
    assert_linear(Spread::Persons, [750, 1_500, 3_000], |_| true);
}

#[test]
fn work_grows_with_the_distinct_values_of_one_person() {
    assert_linear(Spread::One, [500, 1_000, 2_000], |_| true);
}

/// Workloads that read events of every name.
fn reads_all_names(name: &str) -> bool {
    name.contains("strict") || name.starts_with("correlation of") || name.starts_with("paths")
}

#[test]
fn work_grows_with_the_distinct_names_of_events() {
    assert_linear(Spread::Names, [750, 1_500, 3_000], reads_all_names);
    assert_linear(Spread::NamesOfOne, [500, 1_000, 2_000], reads_all_names);
}

#[test]
fn work_grows_with_the_number_of_persons() {
    assert_person_work_is_linear([1_000, 2_000, 4_000].map(|count| persons::all(count, 50)));
}

#[test]
fn work_grows_with_the_values_of_a_filter() {
    assert_person_work_is_linear([250, 500, 1_000].map(|values| persons::all(200, values)));
}

#[test]
fn work_grows_with_the_persons_of_a_cohort() {
    assert_person_work_is_linear(
        [4_000, 8_000, 16_000].map(|values| persons::cohorts(values, Spread::Persons)),
    );
    assert_person_work_is_linear([1_000, 2_000, 4_000].map(|values| persons::cohorts(values, Spread::One)));
}

#[test]
fn too_many_step_values_that_each_need_a_scan_are_rejected() {
    let request = json!({"insight": "FUNNELS", "date_from": "2024-01-01", "date_to": "2024-03-01",
        "events": [{"id": "a", "order": 0}, {"id": "b", "order": 1}], "funnel_order_type": "unordered",
        "breakdown": "u", "breakdown_type": "event",
        "breakdown_attribution_type": "step", "breakdown_attribution_value": 0});
    // Each of the events of a and b has a value of its own.
    let refused = world(5_001, Spread::One)
        .calculate_parsed(InsightKind::Funnels.parse_request(request.as_object().unwrap()));
    let refused = refused.unwrap_err();
    assert_eq!(refused.attr.as_deref(), Some("breakdown_attribution_type"));
    assert!(refused.detail.contains("at most 100000000"), "{refused}");
    let request = request.as_object().unwrap();
    assert!(world(200, Spread::One).calculate_parsed(InsightKind::Funnels.parse_request(request)).is_ok());
}
