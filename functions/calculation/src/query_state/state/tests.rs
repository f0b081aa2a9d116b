#![allow(clippy::unwrap_used)]

use super::*;

fn at(second: i64) -> DateTime<Utc> {
    DateTime::from_timestamp(1_700_000_000 + second, 0).unwrap()
}

fn generation(number: u128) -> Uuid {
    Uuid::from_u128(number)
}

fn start_request(id: &str, second: i64, anew: bool, forced: bool) -> StartRequest {
    let waiter = Waiter { id: id.to_owned(), insight_id: None, dashboard_id: None };
    StartRequest { start: BackgroundStart { anew, forced }, waiter, result_pending: false, now: at(second) }
}

fn new(stored: Option<&QueryState>, start_request: &StartRequest, number: u128) -> QueryState {
    match QueryState::transition(stored, start_request, generation(number), "key") {
        Transition::Started(state) => state,
        other => panic!("{other:?}"),
    }
}

fn joined(stored: &QueryState, start_request: &StartRequest) -> QueryState {
    match QueryState::transition(Some(stored), start_request, generation(99), "key") {
        Transition::Joined(state) => state,
        other => panic!("{other:?}"),
    }
}

fn begun(state: &QueryState, second: i64) -> QueryState {
    state.with_claim(generation(1000), at(second), at(second))
}

fn ended(state: &QueryState, second: i64, message: Option<&str>) -> QueryState {
    let failure = message.map(|message| Failure { message: Some(message.to_owned()) });
    state.with_end(RunEnd { at: at(second), failure, erasures: 0 }, at(second))
}

fn queued(stored: &QueryState, start_request: &StartRequest, number: u128) -> (QueryState, String) {
    match QueryState::transition(Some(stored), start_request, generation(number), "key") {
        Transition::Queued(state, id) => (state, id),
        other => panic!("{other:?}"),
    }
}

fn ids(state: &QueryState) -> Vec<&str> {
    state.waiters.iter().map(|waiter| waiter.id.as_str()).collect()
}

#[test]
fn a_running_calculation_is_joined_once_per_waiter() {
    let one = new(None, &start_request("a", 0, false, false), 1);
    assert_eq!(
        QueryState::transition(Some(&one), &start_request("a", 1, false, false), generation(2), "key"),
        Transition::Unchanged(one.clone())
    );
    let two = joined(&begun(&one, 1), &start_request("b", 2, false, false));
    assert_eq!((two.generation, ids(&two)), (generation(1), vec!["a", "b"]));
    // An abandoned calculation is replaced.
    assert!(begun(&one, 1).is_running(at(3599)) && !begun(&one, 1).is_running(at(3600)));
    assert_eq!(
        new(Some(&begun(&one, 1)), &start_request("b", 3600, false, false), 2).generation,
        generation(2)
    );
}

#[test]
fn a_new_calculation_is_queued_once_a_worker_has_begun() {
    let one = new(None, &start_request("a", 0, false, false), 1);
    let waiting = joined(&one, &start_request("b", 1, true, true));
    assert_eq!(
        (waiting.generation, waiting.forced),
        (generation(1), true),
        "it sees all that came before it begins"
    );
    // The running calculation is finished, however many requests need a new one; one more follows.
    let (two, b) = queued(&begun(&one, 1), &start_request("b", 2, true, true), 2);
    let (two, c) = queued(&two, &start_request("c", 3, true, true), 3);
    assert_eq!((two.generation, ids(&two), b.as_str(), c.as_str()), (generation(1), vec!["a"], "b", "c"));
    assert_eq!(queued(&two, &start_request("b", 4, true, true), 4).0, two, "it waits already");
    assert_eq!(two.get_run(generation(2), at(4)).unwrap().start_time, at(2));
    assert_eq!(joined(&two, &start_request("d", 4, false, false)).next, two.next);
    let second = ended(&two, 5, None);
    assert_eq!((second.generation, ids(&second), &second.end), (generation(2), vec!["b", "c"], &None));
    assert_eq!((second.forced, second.attempts, second.pickup_time, &second.next), (true, 0, None, &None));
    assert_eq!(second.get_run(generation(1), at(6)).unwrap().end.unwrap().at, at(5));
    let done = ended(&begun(&second, 6), 7, None);
    assert_eq!(done.get_run(generation(2), at(8)).unwrap().end.unwrap().at, at(7));
    assert_eq!(done.get_run(generation(7), at(8)), None);
    // An abandoned calculation is replaced by the queued one.
    let third = new(Some(&two), &start_request("d", 3600, false, false), 9);
    assert_eq!((third.generation, ids(&third), third.forced), (generation(2), vec!["b", "c", "d"], true));
}

#[test]
fn a_waiter_without_an_id_gets_the_generation_of_the_queued_run() {
    let one = begun(&new(None, &start_request("key", 0, false, false), 1), 1);
    let (two, id) = queued(&one, &start_request("key", 2, true, true), 2);
    assert_eq!(id, generation(2).to_string());
    let (three, again) = queued(&two, &start_request("key", 3, true, true), 3);
    assert_eq!((three, again), (two, id));
}

#[test]
fn a_pending_result_is_kept_when_another_calculation_starts() {
    let with_pending = StartRequest { result_pending: true, ..start_request("a", 0, true, true) };
    let one = new(None, &with_pending, 1);
    assert_eq!(one.pending_results().count(), 0, "it is still running");
    let (two, _) = queued(&begun(&one, 1), &start_request("b", 2, true, true), 2);
    let second = ended(&two, 3, None);
    let pending_results: Vec<_> = second.pending_results().map(|(begun, end)| (begun, end.at)).collect();
    assert_eq!((pending_results, second.result_pending), (vec![(Some(at(1)), at(3))], false));
    assert_eq!(second.with_results_fetched().pending_results().count(), 0);
    assert!(one.with_results_fetched().result_pending, "nothing has come yet");
}

#[test]
fn a_failure_is_reported_to_its_waiters_again_for_its_ttl() {
    let failed = ended(&begun(&new(None, &start_request("a", 0, false, false), 1), 1), 2, Some("no"));
    assert_eq!(
        QueryState::transition(Some(&failed), &start_request("a", 3, false, false), generation(2), "key"),
        Transition::Unchanged(failed.clone())
    );
    assert_eq!(new(Some(&failed), &start_request("b", 3, false, false), 2).generation, generation(2));
    assert_eq!(new(Some(&failed), &start_request("a", 3, true, true), 2).generation, generation(2));
    assert_eq!(new(Some(&failed), &start_request("a", 602, false, false), 2).generation, generation(2));
    assert!(failed.has_failed(at(601)) && !failed.has_failed(at(602)));
}

#[test]
fn a_run_beside_a_result_is_running_or_failed_later() {
    let running = new(None, &start_request("a", 0, false, false), 1);
    assert!(
        running.run_beside_result(None, at(1)).is_some()
            && running.run_beside_result(Some(at(1)), at(1)).is_some()
    );
    let failed = ended(&begun(&running, 1), 10, Some("no"));
    assert!(
        failed.run_beside_result(None, at(11)).is_some()
            && failed.run_beside_result(Some(at(9)), at(11)).is_some()
    );
    assert_eq!(failed.run_beside_result(Some(at(10)), at(11)), None, "a newer result supersedes the failure");
    assert_eq!(failed.run_beside_result(None, at(610)), None);
    let done = ended(&begun(&running, 1), 10, None);
    assert_eq!(done.run_beside_result(None, at(11)), None);
}

#[test]
fn an_end_is_reported_for_ten_minutes_whatever_starts_after_it() {
    let mut state = ended(&begun(&new(None, &start_request("a", 0, false, false), 1), 1), 2, Some("first"));
    for number in 2..40 {
        let second = i64::try_from(number).unwrap();
        state = ended(
            &begun(&new(Some(&state), &start_request("b", second, true, true), number), second),
            second,
            None,
        );
    }
    assert!(state.get_run(generation(39), at(50)).is_some());
    assert!(state.get_run(generation(20), at(50)).unwrap().end.unwrap().failure.is_none());
    assert_eq!(state.past.len(), PAST_RUNS_MAX);
    assert_eq!(state.get_run(generation(20), at(620)), None, "20 ended ten minutes before");
    let later = new(Some(&state), &start_request("b", 630, true, true), 50);
    assert_eq!(later.past.len(), 9, "31 to 39 are younger than ten minutes");
}

#[test]
fn a_calculation_runs_until_the_last_waiter_has_cancelled() {
    let one = ended(&begun(&new(None, &start_request("a", 0, false, false), 1), 1), 2, None);
    let two =
        joined(&new(Some(&one), &start_request("b", 3, true, true), 2), &start_request("c", 4, false, false));
    let gone = at(9);
    let without = two.without_waiter("b", gone).unwrap();
    assert_eq!((without.generation, ids(&without)), (generation(2), vec!["c"]));
    let left = without.without_waiter("c", gone).unwrap();
    assert_eq!((left.generation, &left.end), (generation(1), &one.end), "the earlier run is reported again");
    assert_eq!(new(None, &start_request("a", 0, false, false), 1).without_waiter("a", gone), None);
    // A waiter of the queued run keeps waiting; the run starts at once when the running one has no waiters left.
    let (both, _) = queued(&begun(&two, 5), &start_request("d", 6, true, true), 3);
    assert_eq!(both.without_waiter("d", gone).unwrap(), begun(&two, 5));
    let next = both.without_waiter("b", gone).unwrap().without_waiter("c", gone).unwrap();
    assert_eq!((next.generation, ids(&next), next.pickup_time), (generation(3), vec!["d"], None));
    assert_eq!(next.without_waiter("d", gone).unwrap().end, one.end);
}

#[test]
fn a_calculation_is_reported_under_an_id_of_its_waiters() {
    let state = new(None, &start_request("mine", 0, false, false), 1);
    assert_eq!(state.reported_id("mine", "key"), "mine");
    assert_eq!(state.reported_id("key", "key"), "mine", "the latest waiter");
    let both = joined(&state, &start_request("key", 1, false, false));
    assert_eq!(
        (both.reported_id("yours", "key"), both.reported_id("mine", "key")),
        ("key".to_owned(), "mine".to_owned())
    );
}

#[test]
fn the_oldest_waiter_is_dropped_beyond_the_maximum() {
    let mut state = new(None, &start_request("0", 0, false, false), 1);
    for number in 1..=WAITERS_MAX {
        state = joined(&state, &start_request(&number.to_string(), 1, false, false));
    }
    assert_eq!((state.waiters.len(), ids(&state)[0]), (WAITERS_MAX, "1"));
}

#[test]
fn a_worker_without_a_heartbeat_is_not_alive() {
    let waiting = new(None, &start_request("a", 0, false, false), 1);
    assert!(waiting.is_alive(at(14), at(9999)) && !waiting.is_alive(at(15), at(9999)), "not picked up");
    let working = begun(&waiting, 100);
    assert!(working.is_alive(at(9999), at(114)) && !working.is_alive(at(9999), at(115)));
    assert!(!working.is_alive(at(9999), at(85)), "a clock that was set back does not keep a worker alive");
    assert!(!ended(&working, 101, None).is_alive(at(101), at(101)));
}
