//! Random funnels, and the events of a history that they read.

use std::collections::BTreeMap;

use chrono::Timelike;
use serde_json::{Map, Value, json};

use super::calendar::local;
use super::dice::Dice;
use super::history::{DAY, Event, Filter, HOUR, History, SECOND, Source, event, iso, people};
use super::trend_dates::{DateText, Range, RangeSpec};

#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// None is every event.
    pub name: Option<&'static str>,
    pub filter: Option<Filter>,
    pub optional: bool,
    pub first: Option<First>,
}

/// Only the first event of a person.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum First {
    /// Of that name; it must pass the step's filter.
    Named,
    /// Of those that pass the step's filter.
    Filtered,
}

impl Step {
    fn matches(&self, history: &History, event: &Event) -> bool {
        let named = |event: &Event| self.name.is_none_or(|name| name == event.name);
        let passes =
            |event: &Event| named(event) && self.filter.as_ref().is_none_or(|filter| filter.passes(event));
        let person = history.actor(&event.id);
        let is_first = |of: &dyn Fn(&Event) -> bool| {
            let mut others = history.events.iter().filter(|other| history.actor(&other.id) == person);
            others.all(|other| !of(other) || event.time <= other.time)
        };
        passes(event)
            && match self.first {
                None => true,
                Some(First::Named) => is_first(&named),
                Some(First::Filtered) => is_first(&passes),
            }
    }

    fn body(&self) -> Map<String, Value> {
        let filters: Vec<_> = self.filter.iter().map(Filter::body).collect();
        let body = json!({"id": self.name, "type": "events", "properties": filters});
        let mut body = body.as_object().unwrap().clone();
        if let Some(first) = self.first {
            let math = ["first_time_for_user", "first_time_for_user_with_filters"][first as usize];
            body.insert("math".to_owned(), json!(math));
        }
        if self.optional {
            body.insert("optionalInFunnel".to_owned(), json!(true));
        }
        body
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Order {
    Ordered,
    Strict,
    Unordered,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Attribution {
    FirstTouch,
    LastTouch,
    AllEvents,
    Step(usize),
}

#[derive(Clone, Debug)]
pub enum Shape {
    Steps,
    Trends(&'static str),
    TimeToConvert(Option<i64>),
}

#[derive(Clone, Debug)]
pub struct FunnelSpec {
    pub steps: Vec<Step>,
    pub order: Order,
    pub window: i64,
    pub unit: (&'static str, i64),
    pub exclusions: Vec<(Step, usize, usize)>,
    pub filter: Option<Filter>,
    pub from: i64,
    pub to: i64,
    /// The same range as relative dates.
    pub dates: Option<RangeSpec>,
    pub group: Option<u8>,
    pub shape: Shape,
    /// The steps between which trends and times are measured, if given.
    pub between: Option<(usize, usize)>,
    pub breakdown: Option<(Source, Attribution)>,
    pub limit: usize,
    /// The request has `insight: FUNNELS`.
    pub named: bool,
    /// The breakdown is in `breakdowns`.
    pub listed: bool,
}

/// An event as the scans read it.
#[derive(Clone, Debug)]
pub struct Candidate {
    pub seq: usize,
    pub time: i64,
    /// Matching steps from 1, ascending; then `-k` for each exclusion before step k.
    pub steps: Vec<i64>,
    pub values: Vec<String>,
    /// Every value is missing, null or empty.
    pub empty: bool,
    pub id: String,
}

const NAMES: [&str; 4] = ["a", "b", "c", "d"];

impl FunnelSpec {
    pub fn window_micros(&self) -> i64 {
        self.window * self.unit.1 * SECOND
    }

    pub fn between(&self) -> (usize, usize) {
        self.between.unwrap_or((0, self.steps.len() - 1))
    }

    /// Numbers of the steps that may be skipped.
    pub fn optional(&self) -> Vec<usize> {
        let numbered = (1..).zip(&self.steps);
        numbered.filter(|(_, step)| step.optional).map(|(number, _)| number).collect()
    }

    pub fn body(&self) -> Value {
        let entries = self.steps.iter().enumerate().map(|(order, step)| {
            let mut entry = step.body();
            entry.insert("order".to_owned(), json!(order));
            entry
        });
        let exclusions = self.exclusions.iter().map(|(step, from, to)| {
            let mut entry = step.body();
            entry.insert("funnel_from_step".to_owned(), json!(from));
            entry.insert("funnel_to_step".to_owned(), json!(to));
            entry
        });
        let order = ["ordered", "strict", "unordered"][self.order as usize];
        let filters: Vec<_> = self.filter.iter().map(Filter::body).collect();
        let mut body = json!({
            "events": entries.collect::<Vec<_>>(), "exclusions": exclusions.collect::<Vec<_>>(),
            "funnel_order_type": order, "funnel_window_interval": self.window,
            "funnel_window_interval_unit": self.unit.0, "properties": filters,
            "breakdown_limit": self.limit,
        });
        let fields = body.as_object_mut().unwrap();
        let mut put = |key: &str, value: Value| fields.insert(key.to_owned(), value);
        match &self.dates {
            None => {
                put("date_from", json!(iso(self.from)));
                put("date_to", json!(iso(self.to)));
                put("explicit_date", json!(true));
            }
            Some(range_spec) => {
                put("date_from", json!(range_spec.from.as_ref().map(DateText::text)));
                put("date_to", json!(range_spec.to.as_ref().map(DateText::text)));
                put("interval", json!(range_spec.interval));
            }
        }
        if self.named {
            put("insight", json!("FUNNELS"));
        }
        if let Some(group) = self.group {
            put("aggregation_group_type_index", json!(group));
        }
        if let Some((from, to)) = self.between {
            put("funnel_from_step", json!(from));
            put("funnel_to_step", json!(to));
        }
        match &self.shape {
            Shape::Steps => {}
            Shape::Trends(interval) => {
                put("funnel_viz_type", json!("trends"));
                put("interval", json!(interval));
            }
            Shape::TimeToConvert(bins) => {
                put("funnel_viz_type", json!("time_to_convert"));
                put("bin_count", json!(bins));
            }
        }
        if let Some((source, attribution)) = &self.breakdown {
            self.put_breakdown(fields, source, *attribution);
        }
        body
    }

    fn put_breakdown(&self, fields: &mut Map<String, Value>, source: &Source, attribution: Attribution) {
        let mut put = |key: &str, value: Value| fields.insert(key.to_owned(), value);
        let (kind, breakdown) = match source {
            Source::Event(keys) if keys.len() == 1 => ("event", json!(keys[0])),
            Source::Event(keys) => ("event", json!(keys)),
            Source::Person(key) => ("person", json!(key)),
            Source::Group(index, key) => {
                put("breakdown_group_type_index", json!(index));
                ("group", json!(key))
            }
            Source::Cohorts(ids) => {
                let ids = ids.iter().map(|id| if *id == 0 { json!("all") } else { json!(id) });
                ("cohort", ids.collect())
            }
        };
        if self.listed {
            put("breakdowns", json!([{"property": breakdown, "type": kind}]));
        } else {
            put("breakdown_type", json!(kind));
            put("breakdown", breakdown);
        }
        let kind = match attribution {
            Attribution::FirstTouch => "first_touch",
            Attribution::LastTouch => "last_touch",
            Attribution::AllEvents => "all_events",
            Attribution::Step(step) => {
                put("breakdown_attribution_value", json!(step));
                "step"
            }
        };
        put("breakdown_attribution_type", json!(kind));
    }

    /// Events of each actor, by time and arrival.
    pub fn candidates(&self, history: &History) -> BTreeMap<String, Vec<Candidate>> {
        let mut actors: BTreeMap<String, Vec<Candidate>> = BTreeMap::new();
        for (seq, event) in history.events.iter().enumerate() {
            let passes = self.filter.as_ref().is_none_or(|filter| filter.passes(event));
            if event.time < self.from || self.to < event.time || !passes {
                continue;
            }
            let steps = self.numbers(history, event);
            if steps.is_empty() && self.order != Order::Strict {
                continue;
            }
            let person = history.actor(&event.id);
            let actor = match self.group {
                None => Some(person),
                Some(index) => event
                    .properties
                    .get(&format!("$group_{index}"))
                    .and_then(Value::as_str)
                    .map(str::to_owned),
            };
            let Some(actor) = actor.filter(|actor| !actor.is_empty()) else { continue };
            let values = self.breakdown.as_ref().map(|(source, _)| source.values(history, event));
            let values: Vec<String> =
                values.unwrap_or_default().into_iter().map(Option::unwrap_or_default).collect();
            let empty = values.iter().all(String::is_empty);
            let candidate = Candidate { seq, time: event.time, steps, values, empty, id: event.id.clone() };
            actors.entry(actor).or_default().push(candidate);
        }
        for events in actors.values_mut() {
            events.sort_by_key(|event| (event.time, event.seq));
        }
        actors
    }

    fn numbers(&self, history: &History, event: &Event) -> Vec<i64> {
        let mut numbers = Vec::new();
        for (number, step) in (1..).zip(&self.steps) {
            if step.matches(history, event) {
                numbers.push(number);
            }
        }
        for (number, _) in (1..).zip(&self.steps) {
            let excludes = |(step, from, to): &(Step, usize, usize)| {
                let gap = usize::try_from(number).unwrap();
                from + 1 < gap && gap <= to + 1 && step.matches(history, event)
            };
            if self.exclusions.iter().any(excludes) {
                numbers.push(-number);
            }
        }
        numbers
    }
}

fn steps(dice: &mut Dice) -> Vec<Step> {
    let repeated = dice.percent(40);
    let mut steps: Vec<Step> = Vec::new();
    for own in &NAMES[..dice.count(2, 4)] {
        let name = if repeated { dice.pick(&["a", "b"]) } else { own };
        let filter = dice.percent(8).then(|| Filter::any(dice));
        let name = if dice.percent(2) { None } else { Some(name) };
        steps.push(Step { name, filter, optional: false, first: None });
    }
    steps
}

/// Any but the first, and none whose next required step is the same.
fn make_optional(dice: &mut Dice, steps: &mut [Step]) {
    for index in 1..steps.len() {
        let unlike = steps[index + 1..].iter().all(|other| other.name != steps[index].name);
        steps[index].optional = unlike && steps[index].name.is_some() && dice.percent(50);
    }
}

fn exclusions(dice: &mut Dice, steps: usize, order: Order) -> Vec<(Step, usize, usize)> {
    let count = if dice.percent(40) { dice.count(1, 2) } else { 0 };
    let one = |dice: &mut Dice| {
        let from = dice.count(0, steps - 2);
        let to = dice.count(from + 1, steps - 1);
        let filter = dice.percent(20).then(|| Filter::any(dice));
        let step = Step { name: Some("x"), filter, optional: false, first: None };
        if order == Order::Unordered { (step, 0, steps - 1) } else { (step, from, to) }
    };
    (0..count).map(|_| one(dice)).collect()
}

fn breakdown(dice: &mut Dice, steps: usize, order: Order) -> (Source, Attribution) {
    let source = Source::any(dice);
    let attribution = match dice.within(0, 4) {
        0 => Attribution::LastTouch,
        1 => Attribution::AllEvents,
        2 if order == Order::Unordered => Attribution::Step(0),
        2 => Attribution::Step(dice.count(0, steps - 1)),
        _ => Attribution::FirstTouch,
    };
    (source, attribution)
}

/// Adds events; where they are apart, no two at one instant.
fn happen(
    dice: &mut Dice,
    history: &mut History,
    names: &[&str],
    some: usize,
    time: impl Fn(&mut Dice) -> i64,
    apart: bool,
) {
    for _ in 0..some {
        let fraction = if dice.percent(5) { SECOND / 2 } else { 0 };
        let time = time(dice) + fraction;
        if apart && history.events.iter().any(|event| event.time == time) {
            continue;
        }
        let event = event(dice, history, names, time);
        history.events.push(event);
    }
}

/// Sets dates whose meaning depends on the interval, the zone and the time of the query.
fn set_relative_range(dice: &mut Dice, history: &History, spec: &mut FunnelSpec) {
    let interval = match spec.shape {
        Shape::Trends(interval) => interval,
        _ => dice.pick(&["hour", "day", "day", "week"]),
    };
    let shown = |time| local(history.zone, time).naive_local().with_nanosecond(0).unwrap();
    let relative = |count: i64, unit| {
        let count = Some(u32::try_from(count).unwrap());
        DateText::Relative { count, unit, edge: "" }
    };
    let back = history.now - spec.from;
    let from = match dice.within(0, 4) {
        0 => Some(DateText::Day(shown(spec.from).date())),
        1 => Some(DateText::Clock(shown(spec.from))),
        2 => Some(relative(back / HOUR, 'h')),
        3 => Some(relative(back / DAY, 'd')),
        _ => None,
    };
    let to = match dice.within(0, 3) {
        0 => Some(DateText::Day(shown(spec.to).date())),
        1 => Some(DateText::Clock(shown(spec.to))),
        2 => Some(relative((history.now - spec.to) / HOUR, 'h')),
        _ => None,
    };
    let range_spec = RangeSpec { from, to, explicit: false, interval, total: false, bold: false };
    let range = Range::current(&range_spec, history.zone, history.week_start, history.now, spec.from);
    if range.is_clear() && range.from < range.to {
        (spec.from, spec.to) = (range.start_instant(), range.end_instant());
        spec.dates = Some(range_spec);
    }
}

/// A history and a funnel over it.
pub fn generate(dice: &mut Dice) -> (History, FunnelSpec) {
    let order = dice.pick(&[Order::Ordered, Order::Ordered, Order::Strict, Order::Unordered]);
    let shape = match dice.within(0, 9) {
        0..=6 => Shape::Steps,
        7..=8 => Shape::Trends(dice.pick(&["hour", "day", "day", "week", "month"])),
        _ => Shape::TimeToConvert(dice.percent(50).then(|| dice.within(0, 100))),
    };
    let mut steps = steps(dice);
    let exclusions = if steps.iter().any(|step| step.name.is_none()) {
        Vec::new()
    } else {
        exclusions(dice, steps.len(), order)
    };
    if matches!(shape, Shape::Steps) && order != Order::Unordered && exclusions.is_empty() && dice.percent(10)
    {
        make_optional(dice, &mut steps);
    }
    // One unit of the times below; the windows are in the same unit.
    let (unit, scale) = match shape {
        Shape::Trends("hour") => (("minutes", 60), 600 * SECOND),
        Shape::Trends("day") => (("hour", 3_600), 6 * HOUR),
        Shape::Trends(_) => (("day", 86_400), 3 * DAY),
        _ => (("SECOND", 1), SECOND),
    };
    let zones = ["UTC", "America/New_York", "Asia/Kolkata", "Australia/Sydney", "Europe/Berlin"];
    let zone = dice.pick(&zones).parse().unwrap();
    // Clocks change in some of these zones soon after.
    let base = crate::support::instant("2024-03-09T12:00:00Z").timestamp_micros() + dice.within(0, 20) * HOUR;
    let apart = dice.percent(40);
    let reach = if apart { 30 } else { dice.pick(&[5, 12, 40]) };
    let mut history = people(dice, zone, base + 2 * reach * scale);
    let mut names = vec!["a", "a", "b", "b", "z"];
    names.extend(if steps.len() > 2 { vec!["c", "c", "d"] } else { Vec::new() });
    names.extend(if exclusions.is_empty() { Vec::new() } else { vec!["x", "x"] });
    // Exclusions have an effect with many events.
    let fewest = if exclusions.is_empty() { 0 } else { 10 };
    let some = dice.count(fewest, 20);
    happen(dice, &mut history, &names, some, |dice| base + dice.within(0, reach) * scale, apart);
    if apart && !history.by_distinct_id && dice.percent(15) {
        let index = dice.count(0, steps.len() - 1);
        steps[index].first = Some(dice.pick(&[First::Named, First::Filtered]));
    }
    let firsts = steps.iter().any(|step| step.first.is_some());
    let cut = dice.percent(20);
    let (from, to) =
        if cut { (dice.within(0, reach / 2), dice.within(reach / 2, reach)) } else { (0, reach) };
    let longest = dice.pick(&[reach / 3, reach + 3]);
    let window = dice.within(1 + reach / 6, longest) * scale / (unit.1 * SECOND);
    let breakdown = dice.percent(35).then(|| breakdown(dice, steps.len(), order));
    let of_cohorts = matches!(breakdown, Some((Source::Cohorts(_), _)));
    let between = (!matches!(shape, Shape::Steps) && dice.percent(50)).then(|| {
        let from = dice.count(0, steps.len() - 2);
        (from, dice.count(from + 1, steps.len() - 1))
    });
    let single = matches!(&breakdown, Some((Source::Event(keys), _)) if keys.len() == 1);
    let named = dice.percent(50);
    let mut spec = FunnelSpec {
        order,
        window,
        unit,
        exclusions,
        filter: dice.percent(10).then(|| Filter::any(dice)),
        from: base + from * scale,
        to: base + to * scale + if dice.percent(50) { SECOND / 2 } else { 0 },
        // A group is in no cohort.
        group: (dice.percent(10) && !of_cohorts && !firsts).then_some(1),
        between,
        breakdown,
        limit: if dice.percent(20) { dice.count(1, 3) } else { 25 },
        named,
        listed: single && !named && dice.percent(30),
        dates: None,
        shape,
        steps,
    };
    if dice.percent(25) {
        set_relative_range(dice, &history, &mut spec);
    }
    (history, spec)
}
