//! Funnels over time, by the rules and examples of the contract.

use pennon_filters::dates::buckets::Buckets;
use pennon_filters::dates::range::DateRange;
use pennon_filters::dates::zone::from_micros;
use pennon_filters::dates::{Interval, WeekStart};
use pennon_filters::error::ErrorKind;
use pennon_filters::work_budget::WorkBudget;

use super::super::periods::{ConversionDepths, PeriodEntry, PeriodScanner, UnorderedPeriodScanner};
use super::super::scan::FunnelRules;
use super::parse_events;
use crate::scan::Micros;

const HOUR: Micros = 3_600_000_000;

/// Periods of an hour; event texts have times in minutes.
fn buckets() -> Buckets {
    let at = |hour| from_micros(hour * HOUR, chrono_tz::UTC);
    let range = DateRange { from: at(0), first: at(0), to: at(10) };
    Buckets::new(&range, Interval::Hour, WeekStart::Sunday).unwrap()
}

/// `0+ 2-`: the period from hour 0 converted, that from hour 2 did not.
fn format_entries(entries: &[PeriodEntry]) -> String {
    let mut entries = entries.to_vec();
    entries.sort_by_key(|entry| entry.period);
    let sign = |entry: &PeriodEntry| if entry.converted { '+' } else { '-' };
    entries.iter().map(|entry| format!("{}{}", entry.period, sign(entry))).collect::<Vec<_>>().join(" ")
}

struct PeriodCase {
    funnel: &'static str,
    minutes: i64,
    strict: bool,
    from: usize,
    to: usize,
}

fn period_case(funnel: &'static str, minutes: i64) -> PeriodCase {
    PeriodCase { funnel, minutes, strict: false, from: 1, to: funnel.len() }
}

impl PeriodCase {
    fn rules(&self) -> (FunnelRules, ConversionDepths) {
        let window = self.minutes * HOUR / 60;
        let rules = FunnelRules { steps: self.funnel.len(), window, strict: self.strict, optional: 0 };
        (rules, ConversionDepths { from: self.from, to: self.to })
    }

    fn events(&self, text: &str) -> Vec<super::StepEvent> {
        let mut events = parse_events(self.funnel, text);
        events.iter_mut().for_each(|event| event.time *= HOUR / 60);
        events
    }

    fn ordered(&self, text: &str) -> String {
        let (rules, goal) = self.rules();
        let mut scanner = PeriodScanner::new(rules, goal);
        let result = format_entries(
            scanner.run(None, &buckets(), &self.events(text), &WorkBudget::new(&|| false)).unwrap(),
        );
        // The working memory is cleared.
        assert_eq!(
            format_entries(
                scanner.run(None, &buckets(), &self.events(text), &WorkBudget::new(&|| false)).unwrap()
            ),
            result
        );
        result
    }

    fn unordered(&self, text: &str) -> String {
        let (rules, goal) = self.rules();
        let mut scanner = UnorderedPeriodScanner::new(rules, goal);
        format_entries(
            scanner.run(None, &buckets(), &self.events(text), &WorkBudget::new(&|| false)).unwrap(),
        )
    }
}

#[test]
fn each_period_with_an_entry_converts_or_does_not() {
    let ab = period_case("ab", 30);
    assert_eq!(ab.ordered("a0 b10"), "0+");
    assert_eq!(ab.ordered("a0 b31"), "0-");
    assert_eq!(ab.ordered("a50 b70"), "0+", "the period is that of the entrance");
    assert_eq!(ab.ordered("a0 a130 b140"), "0- 2+");
    assert_eq!(ab.ordered("a0 b1 a10"), "0+", "a period that converted is closed");
    assert_eq!(ab.ordered("a0 a50 b60 a61"), "0+ 1-");
    assert_eq!(ab.ordered("b0 y1"), "");
    assert_eq!(period_case("a", 30).ordered("a0 a61"), "0+ 1+", "of one step the entrance is all");
}

#[test]
fn one_event_converts_every_open_period() {
    assert_eq!(period_case("ab", 180).ordered("a0 a70 a130 b150"), "0+ 1+ 2+");
    assert_eq!(
        period_case("ab", 60).ordered("a0 a70 a130 b150"),
        "0- 1- 2+",
        "those whose window has passed do not"
    );
}

#[test]
fn the_latest_start_of_a_period_replaces_the_earlier() {
    assert_eq!(period_case("ab", 30).ordered("a0 a20 b45"), "0+");
    assert_eq!(period_case("abc", 30).ordered("a0 b10 a20 c40"), "0-", "its b belongs to the earlier start");
}

#[test]
fn periods_count_between_the_requested_steps() {
    let between = PeriodCase { from: 2, to: 3, ..period_case("abcd", 60) };
    assert_eq!(between.ordered("a0 b1 c2"), "0+");
    assert_eq!(between.ordered("a0 b1"), "0-");
    assert_eq!(between.ordered("a0"), "");
}

#[test]
fn exclusions_leave_out_a_period_or_all_that_did_not_convert() {
    let ab = period_case("ab", 30);
    assert_eq!(ab.ordered("a0 x5"), "", "partial: it is left out");
    assert_eq!(ab.ordered("a0 x5 b10"), "");
    assert_eq!(ab.ordered("a0 x5 a10 b15"), "0+", "a fresh start counts");
    assert_eq!(ab.ordered("a0 x31"), "0-", "after the window nothing is excluded");
    assert_eq!(ab.ordered("a0 x5 a70"), "1-", "another period is not touched");
    // The tainted path took the next of three steps: nothing that did not convert counts any more.
    let abc = period_case("abc", 30);
    assert_eq!(abc.ordered("a0 x5 b10 a70"), "");
    assert_eq!(abc.ordered("a0 x5 b10 a70 b75 c80"), "1+");
}

#[test]
fn strict_order_holds_over_time() {
    let strict = PeriodCase { strict: true, ..period_case("ab", 30) };
    assert_eq!(strict.ordered("a0 y1 b2"), "0-");
    assert_eq!(strict.ordered("a0 b2"), "0+");
    assert_eq!(strict.ordered("a0 y1 a61 b62"), "0- 1+");
}

#[test]
fn unordered_the_period_is_that_of_the_oldest_event() {
    let abc = period_case("abc", 60);
    assert_eq!(
        abc.unordered("c50 b70 a80"),
        "0+ 1-",
        "what is left when the oldest leaves counts for itself"
    );
    assert_eq!(abc.unordered("a0 b10"), "0-");
    assert_eq!(abc.unordered("a0 b61"), "0- 1-");
    let between = PeriodCase { from: 2, to: 3, ..period_case("abc", 60) };
    assert_eq!(between.unordered("a0 b10"), "0-");
    assert_eq!(between.unordered("a0"), "");
    assert_eq!(period_case("ab", 60).unordered("a0 x1 b2"), "0-");
    assert_eq!(period_case("ab", 60).unordered("a0 x1"), "");
}

#[test]
fn periods_without_conversion_are_closed() {
    let text: String = (0..9).map(|hour| format!("a{} ", hour * 60)).collect();
    assert_eq!(period_case("ab", 61).ordered(&format!("{text} b590")), "0- 1- 2- 3- 4- 5- 6- 7- 8-");
    assert_eq!(period_case("ab", 130).ordered(&format!("{text} b590")), "0- 1- 2- 3- 4- 5- 6- 7- 8+");
}

#[test]
fn the_scan_of_one_actor_stops_when_cancelled() {
    // A year of hours that all stay open: one actor, who never gets to the third step.
    let hours = 24 * 365;
    let at = |hour| from_micros(hour * HOUR, chrono_tz::UTC);
    let range = DateRange { from: at(0), first: at(0), to: at(hours) };
    let buckets = Buckets::new(&range, Interval::Hour, WeekStart::Sunday).unwrap();
    let events: Vec<_> = (0..hours)
        .flat_map(|hour| [super::event(hour * HOUR, &[0], &[]), super::event(hour * HOUR + 1, &[1], &[])])
        .collect();
    let rules = FunnelRules { steps: 3, window: hours * HOUR, strict: false, optional: 0 };
    let mut scanner = PeriodScanner::new(rules, ConversionDepths { from: 1, to: 3 });
    let looks = std::cell::Cell::new(0);
    let stop = || {
        looks.set(looks.get() + 1);
        looks.get() == 5
    };
    let error = scanner.run(None, &buckets, &events, &WorkBudget::new(&stop)).unwrap_err();
    assert_eq!((error.kind, looks.get()), (ErrorKind::Timeout, 5));
    // The periods that were open do not count for the next actor.
    assert_eq!(scanner.run(None, &buckets, &events[..2], &WorkBudget::new(&|| false)).unwrap().len(), 1);
}
