#![allow(clippy::unwrap_used)]

use super::*;

fn at(second: i64) -> DateTime<Utc> {
    DateTime::from_timestamp(1_700_000_000 + second, 0).unwrap()
}

fn generation(number: u128) -> Uuid {
    Uuid::from_u128(number)
}

fn wish(id: &str, second: i64, anew: bool, forced: bool) -> Wish {
    let asker = Asker { id: id.to_owned(), insight_id: None, dashboard_id: None };
    Wish { start: Start { anew, forced }, asker, owed: false, now: at(second) }
}

fn new(stored: Option<&State>, wish: &Wish, number: u128) -> State {
    match State::planned(stored, wish, generation(number), "key") {
        Planned::New(state) => state,
        other => panic!("{other:?}"),
    }
}

fn joined(stored: &State, wish: &Wish) -> State {
    match State::planned(Some(stored), wish, generation(99), "key") {
        Planned::Joined(state) => state,
        other => panic!("{other:?}"),
    }
}

fn begun(state: &State, second: i64) -> State {
    state.claimed(generation(1000), at(second), at(second))
}

fn ended(state: &State, second: i64, message: Option<&str>) -> State {
    let failure = message.map(|message| Failure { message: Some(message.to_owned()) });
    state.ended(End { at: at(second), failure, erasures: 0 }, at(second))
}

fn waits(stored: &State, wish: &Wish, number: u128) -> (State, String) {
    match State::planned(Some(stored), wish, generation(number), "key") {
        Planned::Waits(state, id) => (state, id),
        other => panic!("{other:?}"),
    }
}

fn ids(state: &State) -> Vec<&str> {
    state.askers.iter().map(|asker| asker.id.as_str()).collect()
}

#[test]
fn what_is_under_way_is_joined_and_told_of_once() {
    let one = new(None, &wish("a", 0, false, false), 1);
    assert_eq!(
        State::planned(Some(&one), &wish("a", 1, false, false), generation(2), "key"),
        Planned::Known(one.clone())
    );
    let two = joined(&begun(&one, 1), &wish("b", 2, false, false));
    assert_eq!((two.generation, ids(&two)), (generation(1), vec!["a", "b"]));
    // One that does not end is as good as none.
    assert!(begun(&one, 1).runs(at(3599)) && !begun(&one, 1).runs(at(3600)));
    assert_eq!(new(Some(&begun(&one, 1)), &wish("b", 3600, false, false), 2).generation, generation(2));
}

#[test]
fn anew_is_anew_once_somebody_has_begun() {
    let one = new(None, &wish("a", 0, false, false), 1);
    let waiting = joined(&one, &wish("b", 1, true, true));
    assert_eq!(
        (waiting.generation, waiting.forced),
        (generation(1), true),
        "it sees all that came before it begins"
    );
    // What was begun is brought to its end, however often it is wanted anew; one more follows.
    let (two, b) = waits(&begun(&one, 1), &wish("b", 2, true, true), 2);
    let (two, c) = waits(&two, &wish("c", 3, true, true), 3);
    assert_eq!((two.generation, ids(&two), b.as_str(), c.as_str()), (generation(1), vec!["a"], "b", "c"));
    assert_eq!(waits(&two, &wish("b", 4, true, true), 4).0, two, "who waits already");
    assert_eq!(two.seen_as(generation(2), at(4)).unwrap().start_time, at(2));
    assert_eq!(joined(&two, &wish("d", 4, false, false)).next, two.next);
    let second = ended(&two, 5, None);
    assert_eq!((second.generation, ids(&second), &second.end), (generation(2), vec!["b", "c"], &None));
    assert_eq!((second.forced, second.attempts, second.pickup_time, &second.next), (true, 0, None, &None));
    assert_eq!(second.seen_as(generation(1), at(6)).unwrap().end.unwrap().at, at(5));
    let done = ended(&begun(&second, 6), 7, None);
    assert_eq!(done.seen_as(generation(2), at(8)).unwrap().end.unwrap().at, at(7));
    assert_eq!(done.seen_as(generation(7), at(8)), None);
    // Where that does not end, those who waited for it do not wait longer than it is waited for.
    let third = new(Some(&two), &wish("d", 3600, false, false), 9);
    assert_eq!((third.generation, ids(&third), third.forced), (generation(2), vec!["b", "c", "d"], true));
}

#[test]
fn who_has_no_name_waits_for_the_next_one_by_its_number() {
    let one = begun(&new(None, &wish("key", 0, false, false), 1), 1);
    let (two, id) = waits(&one, &wish("key", 2, true, true), 2);
    assert_eq!(id, generation(2).to_string());
    let (three, again) = waits(&two, &wish("key", 3, true, true), 3);
    assert_eq!((three, again), (two, id));
}

#[test]
fn a_promise_is_kept_whatever_was_started_since() {
    let promised = Wish { owed: true, ..wish("a", 0, true, true) };
    let one = new(None, &promised, 1);
    assert_eq!(one.owing().count(), 0, "it goes on");
    let (two, _) = waits(&begun(&one, 1), &wish("b", 2, true, true), 2);
    let second = ended(&two, 3, None);
    let owing: Vec<_> = second.owing().map(|(begun, end)| (begun, end.at)).collect();
    assert_eq!((owing, second.owed), (vec![(Some(at(1)), at(3))], false));
    assert_eq!(second.with_promises_kept().owing().count(), 0);
    assert!(one.with_promises_kept().owed, "nothing has come yet");
}

#[test]
fn a_failure_is_told_again_to_those_who_have_seen_it_for_its_lifetime() {
    let failed = ended(&begun(&new(None, &wish("a", 0, false, false), 1), 1), 2, Some("no"));
    assert_eq!(
        State::planned(Some(&failed), &wish("a", 3, false, false), generation(2), "key"),
        Planned::Known(failed.clone())
    );
    assert_eq!(new(Some(&failed), &wish("b", 3, false, false), 2).generation, generation(2));
    assert_eq!(new(Some(&failed), &wish("a", 3, true, true), 2).generation, generation(2));
    assert_eq!(new(Some(&failed), &wish("a", 602, false, false), 2).generation, generation(2));
    assert!(failed.has_failed(at(601)) && !failed.has_failed(at(602)));
}

#[test]
fn what_is_told_beside_a_result_is_what_it_does_not_answer() {
    let running = new(None, &wish("a", 0, false, false), 1);
    assert!(running.told_beside(None, at(1)).is_some() && running.told_beside(Some(at(1)), at(1)).is_some());
    let failed = ended(&begun(&running, 1), 10, Some("no"));
    assert!(failed.told_beside(None, at(11)).is_some() && failed.told_beside(Some(at(9)), at(11)).is_some());
    assert_eq!(failed.told_beside(Some(at(10)), at(11)), None, "a newer result says that all is well again");
    assert_eq!(failed.told_beside(None, at(610)), None);
    let done = ended(&begun(&running, 1), 10, None);
    assert_eq!(done.told_beside(None, at(11)), None);
}

#[test]
fn an_end_is_told_for_ten_minutes_whatever_is_started_after_it() {
    let mut state = ended(&begun(&new(None, &wish("a", 0, false, false), 1), 1), 2, Some("first"));
    for number in 2..40 {
        let second = i64::try_from(number).unwrap();
        state =
            ended(&begun(&new(Some(&state), &wish("b", second, true, true), number), second), second, None);
    }
    assert!(state.seen_as(generation(39), at(50)).is_some());
    assert!(state.seen_as(generation(20), at(50)).unwrap().end.unwrap().failure.is_none());
    assert_eq!(state.past.len(), PAST_MAX);
    assert_eq!(state.seen_as(generation(20), at(620)), None, "20 ended ten minutes before");
    let later = new(Some(&state), &wish("b", 630, true, true), 50);
    assert_eq!(later.past.len(), 9, "31 to 39 are younger than ten minutes");
}

#[test]
fn a_calculation_goes_on_until_the_last_asker_has_cancelled() {
    let one = ended(&begun(&new(None, &wish("a", 0, false, false), 1), 1), 2, None);
    let two = joined(&new(Some(&one), &wish("b", 3, true, true), 2), &wish("c", 4, false, false));
    let gone = at(9);
    let without = two.without("b", gone).unwrap();
    assert_eq!((without.generation, ids(&without)), (generation(2), vec!["c"]));
    let left = without.without("c", gone).unwrap();
    assert_eq!((left.generation, &left.end), (generation(1), &one.end), "what was told before is told again");
    assert_eq!(new(None, &wish("a", 0, false, false), 1).without("a", gone), None);
    // Who waits for the next one goes on waiting, at once for that if nobody wants this one; and may cancel too.
    let (both, _) = waits(&begun(&two, 5), &wish("d", 6, true, true), 3);
    assert_eq!(both.without("d", gone).unwrap(), begun(&two, 5));
    let next = both.without("b", gone).unwrap().without("c", gone).unwrap();
    assert_eq!((next.generation, ids(&next), next.pickup_time), (generation(3), vec!["d"], None));
    assert_eq!(next.without("d", gone).unwrap().end, one.end);
}

#[test]
fn somebody_is_told_of_a_calculation_by_a_name_that_it_has() {
    let state = new(None, &wish("mine", 0, false, false), 1);
    assert_eq!(state.id_for("mine", "key"), "mine");
    assert_eq!(state.id_for("key", "key"), "mine", "the one who asked last");
    let both = joined(&state, &wish("key", 1, false, false));
    assert_eq!(
        (both.id_for("yours", "key"), both.id_for("mine", "key")),
        ("key".to_owned(), "mine".to_owned())
    );
}

#[test]
fn so_many_askers_are_waited_for() {
    let mut state = new(None, &wish("0", 0, false, false), 1);
    for number in 1..=ASKERS_MAX {
        state = joined(&state, &wish(&number.to_string(), 1, false, false));
    }
    assert_eq!((state.askers.len(), ids(&state)[0]), (ASKERS_MAX, "1"));
}

#[test]
fn who_is_silent_is_not_alive() {
    let waiting = new(None, &wish("a", 0, false, false), 1);
    assert!(waiting.is_alive(at(14), at(9999)) && !waiting.is_alive(at(15), at(9999)), "not picked up");
    let working = begun(&waiting, 100);
    assert!(working.is_alive(at(9999), at(114)) && !working.is_alive(at(9999), at(115)));
    assert!(!working.is_alive(at(9999), at(85)), "a clock that was set back does not keep a worker alive");
    assert!(!ended(&working, 101, None).is_alive(at(101), at(101)));
}
