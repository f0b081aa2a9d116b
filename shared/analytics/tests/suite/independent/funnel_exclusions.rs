//! Funnels with exclusions over histories in which exclusions matter: persons who continue, restart and match an exclusion
//! near the end of a window, beside one person who always converts.
//!
//! Must stay true: that person converts in every period, because a conversion rate of 0% does not show how many persons
//! entered.

use serde_json::{Map, json};

use super::dice::Dice;
use super::funnel_spec::{FunnelSpec, Order, Shape, Step};
use super::history::{Event, HOUR, History, Person, SECOND};

const NAMES: [&str; 4] = ["a", "b", "c", "d"];
const PERIODS: i64 = 3;

fn step(name: &'static str) -> Step {
    Step { name: Some(name), filter: None, optional: false, first: None }
}

fn steps(dice: &mut Dice) -> Vec<Step> {
    let repeated = dice.percent(20);
    let names = &NAMES[..dice.count(2, 4)];
    names.iter().map(|own| step(if repeated { dice.pick(&["a", "b"]) } else { own })).collect()
}

/// Most exclusions cover only one gap, so that a path can pass at some places and not at others.
fn exclusions(dice: &mut Dice, last: usize) -> Vec<(Step, usize, usize)> {
    let one = |dice: &mut Dice| {
        let from = dice.count(0, last - 1);
        let to = if dice.percent(70) { from + 1 } else { dice.count(from + 1, last) };
        (step("x"), from, to)
    };
    (0..dice.count(1, 2)).map(|_| one(dice)).collect()
}

/// The events of a person: parts of the funnel, each from its start, from the latest step or from the next one, and many
/// followed by an exclusion.
fn walk(dice: &mut Dice, steps: &[Step], slots: i64) -> Vec<(&'static str, i64)> {
    let mut done = Vec::new();
    let mut next: usize = 0;
    for _ in 0..dice.count(1, 4) {
        let from = match dice.within(0, 9) {
            0..=4 => 0,
            5..=7 => next.saturating_sub(1),
            _ => next % steps.len(),
        };
        next = dice.count(from + 1, steps.len().min(from + 2));
        done.extend(steps[from..next].iter().map(|step| step.name.unwrap()));
        if dice.percent(60) {
            done.push("x");
        }
        if dice.percent(5) {
            done.push("z");
        }
    }
    let mut slot = dice.within(0, slots / 2);
    let mut timed = Vec::new();
    for name in done {
        timed.push((name, slot));
        slot += dice.pick(&[0, 1, 1, 1, 1, 2, 3]);
    }
    timed.retain(|(_, slot)| *slot <= slots);
    timed
}

/// A history and a funnel over it.
pub fn generate(dice: &mut Dice) -> (History, FunnelSpec) {
    let order = if dice.percent(85) { Order::Ordered } else { Order::Strict };
    let shape = if dice.percent(30) { Shape::Steps } else { Shape::Trends(dice.pick(&["hour", "day"])) };
    let steps = steps(dice);
    let last = steps.len() - 1;
    let exclusions = exclusions(dice, last);
    // Times are slots, of which a period has as many as divide it.
    let (unit, slot, each) = match shape {
        Shape::Trends("hour") => (("minute", 60), 600 * SECOND, 6),
        Shape::Trends(_) => (("hour", 3_600), 6 * HOUR, 4),
        _ => (("second", 1), SECOND, 5),
    };
    let base = crate::support::instant("2024-03-04T00:00:00Z").timestamp_micros();
    let slots = PERIODS * each - 1;
    let mut events = Vec::new();
    let mut happen = |id: &str, name: &str, time: i64| {
        events.push(Event { id: id.to_owned(), name: name.to_owned(), time, properties: Map::new() });
    };
    if !matches!(shape, Shape::Steps) {
        for period in 0..PERIODS {
            for (index, step) in (0..).zip(&steps) {
                happen("steady", step.name.unwrap(), base + period * each * slot + index);
            }
        }
    }
    for id in ["one", "two", "three"] {
        for (name, at) in walk(dice, &steps, slots) {
            happen(id, name, base + at * slot);
        }
    }
    let person = |id: &str| Person { ids: vec![id.to_owned()], properties: Map::new() };
    let history = History {
        zone: chrono_tz::UTC,
        week_start: 0,
        now: base + 2 * PERIODS * each * slot,
        by_distinct_id: false,
        persons: ["one", "two", "three", "steady"].map(person).to_vec(),
        groups: Vec::new(),
        cohorts: Vec::new(),
        events,
    };
    let between = (!matches!(shape, Shape::Steps) && dice.percent(30)).then(|| {
        let from = dice.count(0, last - 1);
        (from, dice.count(from + 1, last))
    });
    let spec = FunnelSpec {
        order,
        window: dice.within(1, 6) * slot / (unit.1 * SECOND),
        unit,
        exclusions,
        filter: None,
        from: base,
        to: base + slots * slot,
        dates: None,
        group: None,
        between,
        breakdown: None,
        limit: 25,
        named: false,
        listed: false,
        shape,
        steps,
    };
    (history, spec)
}

/// The histories cover each order and shape, and most have an exclusion.
#[test]
fn most_histories_have_an_exclusion() {
    let cases: Vec<_> = (0..200).map(|seed| generate(&mut Dice::new(seed))).collect();
    let meets = |(history, _): &&(History, FunnelSpec)| history.events.iter().any(|event| event.name == "x");
    assert!(cases.iter().filter(meets).count() > 100);
    assert!(cases.iter().any(|(_, spec)| spec.order == Order::Strict));
    assert!(cases.iter().all(|(_, spec)| spec.body()["exclusions"] != json!([])));
}
