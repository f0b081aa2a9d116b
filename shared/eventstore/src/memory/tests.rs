#![allow(clippy::unwrap_used)]
use super::*;
use proptest::prelude::*;
use std::panic::{AssertUnwindSafe, catch_unwind};

thread_local! {
    /// The allocated bytes that this thread reports; each test runs on its own thread.
    static ALLOCATED: Cell<i64> = const { Cell::new(0) };
}

/// An empty cache.
#[derive(Debug)]
struct NoCache;

impl EvictableCache for NoCache {
    fn set_limit(&self, _: u64) {}
}

fn allocate(bytes: i64) {
    heap::set_allocation_counter(|| ALLOCATED.get());
    ALLOCATED.set(ALLOCATED.get() + bytes);
}

fn budget(limit: u64) -> MemoryBudget {
    MemoryBudget::new(limit, 0, Arc::new(NoCache))
}

fn is_too_large(done: &Result<(), EventStoreError>) -> bool {
    matches!(done, Err(EventStoreError::TooLarge(why)) if why.contains("PENNON_EVENTS_MEMORY_MB"))
}

#[test]
fn a_request_that_does_not_fit_is_rejected_and_reserves_nothing() {
    let budget = budget(1000);
    let query = budget.start_query(100);
    assert!(query.take(60).is_ok());
    let mut lease = query.lease(Purpose::Scan);
    assert!(is_too_large(&lease.add(41)));
    assert!(lease.add(40).is_ok());
    assert_eq!((lease.bytes(), query.left()), (40, 0));
    assert!(is_too_large(&lease.set(41)));
    assert!(lease.set(10).is_ok());
    assert_eq!((lease.bytes(), query.left(), budget.reserved()), (10, 30, 70));
    drop(lease);
    assert_eq!((query.left(), budget.reserved()), (40, 60));
    assert!(is_too_large(&query.take(u64::MAX)));
    // Memory outside of scans is limited only by the budget.
    let mut known = query.lease(Purpose::Known);
    assert!(is_too_large(&known.add(941)));
    assert!(known.add(940).is_ok());
    assert_eq!((query.left(), budget.reserved()), (40, 1000));
}

#[test]
fn a_query_that_would_fit_alone_gets_the_error_memory_in_use() {
    let budget = budget(100);
    let (one, other) = (budget.start_query(100), budget.start_query(100));
    one.take(60).unwrap();
    assert!(matches!(other.take(41), Err(EventStoreError::MemoryInUse)));
    assert!(is_too_large(&other.take(101)));
    assert!(other.take(40).is_ok());
    let clone = one.clone();
    drop(one);
    assert!(matches!(other.take(1), Err(EventStoreError::MemoryInUse)), "the last clone releases");
    drop(clone);
    assert!(other.take(60).is_ok());
}

#[test]
fn memory_is_released_after_a_panic_an_error_and_a_cancellation() {
    let budget = budget(100);
    let query = budget.start_query(100);
    let inner = query.clone();
    let panicked = catch_unwind(AssertUnwindSafe(move || {
        let mut lease = inner.lease(Purpose::Known);
        lease.add(30).unwrap();
        inner.take(20).unwrap();
        panic!("while both are held");
    }));
    assert!(panicked.is_err());
    assert_eq!(budget.reserved(), 20, "the lease is released, the scan with its query");
    drop(query);
    assert_eq!(budget.reserved(), 0);

    let query = budget.start_query(100);
    let failing = || -> Result<(), EventStoreError> {
        let mut lease = query.lease(Purpose::Scan);
        lease.add(80)?;
        query.take(21)
    };
    assert!(failing().is_err());
    assert_eq!(budget.reserved(), 0);

    let mut waiting = Box::pin(async {
        let mut lease = query.lease(Purpose::Scan);
        lease.add(80).unwrap();
        std::future::pending::<()>().await;
    });
    assert!(futures::FutureExt::now_or_never(&mut waiting).is_none());
    assert_eq!(budget.reserved(), 80);
    drop(waiting);
    assert_eq!(budget.reserved(), 0);
}

#[test]
fn allocations_of_a_thread_are_reserved_until_the_query_ends() {
    const STEP: i64 = MEASURED_STEP;
    let budget = budget(STEP as u64 * 10);
    let query = budget.start_query(0);
    let meter = ThreadMeter::start(&query);
    allocate(STEP - 1);
    assert!(!meter.is_over_budget());
    assert_eq!(budget.reserved(), 0, "less than a step");
    allocate(1);
    assert!(!meter.is_over_budget());
    assert_eq!(budget.reserved(), STEP as u64);
    allocate(9 * STEP);
    assert!(!meter.is_over_budget());
    allocate(STEP);
    assert!(meter.is_over_budget() && meter.is_over_budget(), "it stays so");
    allocate(-9 * STEP);
    assert!(is_too_large(&meter.finish()));

    let other = budget.start_query(0);
    let meter = ThreadMeter::start(&other);
    allocate(3);
    assert!(matches!(meter.finish(), Err(EventStoreError::MemoryInUse)));
    drop(query);
    assert_eq!(budget.reserved(), 0);
    // Memory freed by a thread that did not allocate it is not available to others before the query ends.
    other.take(0).unwrap();
    other.measured(|| allocate(-5 * STEP)).unwrap();
    assert_eq!(budget.reserved(), 0);
    other.measured(|| allocate(7 * STEP)).unwrap();
    assert_eq!(budget.reserved(), 2 * STEP as u64);
    drop(other);
    assert_eq!(budget.reserved(), 0);
}

/// A step of one of several queries.
#[derive(Debug, Clone)]
enum Step {
    Take(usize, u64),
    Lease(usize, bool, u64),
    Set(usize, u64),
    Measure(usize, i64),
    EndLease(usize),
    EndQuery(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let bytes = 0..400_u64;
    prop_oneof![
        (0..3_usize, bytes.clone()).prop_map(|(at, bytes)| Step::Take(at, bytes)),
        (0..3_usize, any::<bool>(), bytes.clone()).prop_map(|(at, scan, bytes)| Step::Lease(at, scan, bytes)),
        (0..8_usize, bytes).prop_map(|(at, bytes)| Step::Set(at, bytes)),
        (0..3_usize, -300..400_i64).prop_map(|(at, bytes)| Step::Measure(at, bytes)),
        (0..8_usize).prop_map(Step::EndLease),
        (0..3_usize).prop_map(Step::EndQuery),
    ]
}

proptest! {
    #[test]
    fn never_more_than_the_limit_is_reserved_and_all_of_it_is_released(steps in prop::collection::vec(step(), 1..60)) {
        let budget = budget(1000);
        let query = || budget.start_query(600);
        let mut queries = vec![query(), query(), query()];
        let mut leases: Vec<MemoryLease> = Vec::new();
        for step in steps {
            let before = budget.reserved();
            let refused = match step {
                Step::Take(at, bytes) => queries[at].take(bytes).is_err(),
                Step::Measure(at, bytes) => queries[at].measure(bytes).is_err(),
                Step::Lease(at, scan, bytes) => {
                    let mut lease = queries[at].lease(if scan { Purpose::Scan } else { Purpose::Known });
                    let refused = lease.add(bytes).is_err();
                    leases.push(lease);
                    refused
                }
                Step::Set(at, bytes) => leases.get_mut(at).is_some_and(|lease| lease.set(bytes).is_err()),
                Step::EndLease(at) => {
                    if at < leases.len() {
                        leases.remove(at);
                    }
                    false
                }
                Step::EndQuery(at) => {
                    queries[at] = query();
                    false
                }
            };
            prop_assert!(budget.reserved() <= 1000);
            if refused {
                prop_assert_eq!(budget.reserved(), before);
            }
        }
        drop((queries, leases));
        prop_assert_eq!(budget.reserved(), 0);
    }
}
