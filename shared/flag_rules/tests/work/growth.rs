//! Twice as many persons or values are about twice the work.

use std::collections::BTreeMap;

use crate::persons::{self, PersonWork};
use crate::thread_time;

/// More than this, for twice the values, is more than linear work on top of sorting.
const MOST: f64 = 2.6;
/// Measurements of each size; the smallest counts, because others on the machine only make them longer.
const ROUNDS: usize = 12;

fn measure(work: &PersonWork) -> i64 {
    let prepared = (work.prepare)();
    let before = thread_time();
    prepared();
    thread_time() - before
}

/// How the work of each of so many sizes grows from the first to the last, per doubling; done as soon as it is little
/// enough.
fn growth(sizes: usize, measure: impl Fn(usize) -> i64) -> f64 {
    let mut least = vec![i64::MAX; sizes];
    let mut growth = f64::INFINITY;
    for _ in 0..ROUNDS {
        for (size, least) in least.iter_mut().enumerate() {
            *least = (*least).min(measure(size));
        }
        let (first, last) = (least[0].max(1), least[sizes - 1]);
        #[expect(clippy::cast_precision_loss, reason = "nanoseconds of seconds")]
        let ratio = last as f64 / first as f64;
        growth = ratio.powf(1.0 / (sizes - 1) as f64);
        if growth <= MOST {
            break;
        }
    }
    growth
}

fn assert_person_work_is_linear(sizes: [Vec<PersonWork>; 3]) {
    let mut too_steep = BTreeMap::new();
    for (index, work) in sizes[0].iter().enumerate() {
        let growth = growth(sizes.len(), |size| measure(&sizes[size][index]));
        if growth > MOST {
            too_steep.insert(&work.name, growth);
        }
    }
    assert!(too_steep.is_empty(), "work per doubling: {too_steep:#?}");
}

#[test]
fn work_grows_with_the_number_of_persons() {
    assert_person_work_is_linear([1_000, 2_000, 4_000].map(|count| persons::all(count, 50)));
}

#[test]
fn work_grows_with_the_values_of_a_filter() {
    assert_person_work_is_linear([250, 500, 1_000].map(|values| persons::all(200, values)));
}
