//! Random trends over random histories.

use chrono::{Duration, NaiveDate};
use serde_json::{Value, json};

use super::calendar::local;
use super::dice::Dice;
use super::history::{DAY, Event, Filter, HOUR, History, SECOND, Source, event, people};
use super::trend_count::{Math, Statistic};
use super::trend_dates::{DateText, Range, RangeSpec};
use crate::support::instant;

#[derive(Clone, Debug)]
pub struct Series {
    /// None is every event.
    pub name: Option<&'static str>,
    pub filter: Option<Filter>,
    pub math: Math,
}

/// The text of a formula and its function.
#[derive(Clone, Copy)]
pub struct Formula {
    pub text: &'static str,
    pub of: fn(&[f64]) -> f64,
}

#[derive(Clone)]
pub struct TrendSpec {
    pub series: Vec<Series>,
    pub filter: Option<Filter>,
    pub range_spec: RangeSpec,
    pub display: &'static str,
    pub source: Option<Source>,
    /// The breakdown is in `breakdowns`.
    pub several: bool,
    pub limit: Option<usize>,
    pub hide_other: bool,
    pub bins: Option<u32>,
    pub compare: bool,
    pub compare_to: Option<DateText>,
    pub formula: Option<Formula>,
    pub smoothing: usize,
}

const NAMES: [&str; 3] = ["a", "b", "z"];
const TOTALS: [&str; 4] = ["ActionsTable", "ActionsPie", "ActionsBarValue", "BoldNumber"];

fn by(left: f64, right: f64) -> f64 {
    if right == 0.0 { 0.0 } else { left / right }
}

const ONE: [Formula; 3] = [
    Formula { text: "A * 2 + 1", of: |v| v[0] * 2.0 + 1.0 },
    Formula { text: "-(a - 10) / A", of: |v| by(-(v[0] - 10.0), v[0]) },
    Formula { text: "A ** 2 / 4", of: |v| v[0] * v[0] / 4.0 },
];
const TWO: [Formula; 4] = [
    Formula { text: "A + B", of: |v| v[0] + v[1] },
    Formula { text: "A / B * 100", of: |v| by(v[0], v[1]) * 100.0 },
    Formula { text: "(b - A) * 1.5", of: |v| (v[1] - v[0]) * 1.5 },
    Formula { text: "A - B / (A + B)", of: |v| v[0] - by(v[1], v[0] + v[1]) },
];

impl Math {
    fn any(dice: &mut Dice) -> Self {
        let statistic = dice.pick(&Statistic::ALL);
        match dice.within(0, 19) {
            0..=5 => Self::Total,
            6..=8 => Self::Dau,
            9 => Self::GroupDau(dice.pick(&[0, 1])),
            10..=11 => Self::Rolling(dice.pick(&[7, 7, 30])),
            12 => Self::UniqueGroup(dice.pick(&[None, Some(0), Some(1)])),
            13 => Self::UniqueSession,
            14..=15 => Self::FirstTime,
            16 if statistic != Statistic::Sum => Self::PerActor(statistic),
            17 => Self::SessionDuration(statistic),
            _ => Self::Property(statistic),
        }
    }

    fn name(self) -> String {
        match self {
            Self::Total => "total".to_owned(),
            Self::Dau | Self::GroupDau(_) => "dau".to_owned(),
            Self::Rolling(7) => "weekly_active".to_owned(),
            Self::Rolling(_) => "monthly_active".to_owned(),
            Self::UniqueGroup(_) => "unique_group".to_owned(),
            Self::UniqueSession => "unique_session".to_owned(),
            Self::FirstTime => "first_time_for_user".to_owned(),
            Self::PerActor(statistic) => format!("{}_count_per_actor", statistic.name()),
            Self::Property(statistic) | Self::SessionDuration(statistic) => statistic.name(),
        }
    }
}

impl Series {
    fn any(dice: &mut Dice) -> Self {
        let name = if dice.percent(15) { None } else { Some(dice.pick(&["a", "a", "b"])) };
        Self { name, filter: dice.percent(25).then(|| Filter::any(dice)), math: Math::any(dice) }
    }

    pub fn label(&self) -> &'static str {
        self.name.unwrap_or("All events")
    }

    pub fn is_named(&self, event: &Event) -> bool {
        self.name.is_none_or(|name| name == event.name)
    }

    fn body(&self, order: usize) -> Value {
        let filters: Vec<_> = self.filter.iter().map(Filter::body).collect();
        let mut body =
            json!({"id": self.name, "order": order, "math": self.math.name(), "properties": filters});
        let fields = body.as_object_mut().unwrap();
        match self.math {
            Math::GroupDau(index) | Math::UniqueGroup(Some(index)) => {
                fields.insert("math_group_type_index".to_owned(), json!(index));
            }
            Math::Property(_) => {
                fields.insert("math_property".to_owned(), json!("n"));
            }
            Math::SessionDuration(_) => {
                fields.insert("math_property".to_owned(), json!("$session_duration"));
            }
            _ => {}
        }
        body
    }
}

impl TrendSpec {
    pub fn is_cumulative(&self) -> bool {
        self.display == "ActionsLineGraphCumulative"
    }

    pub fn body(&self) -> Value {
        let series: Vec<_> =
            self.series.iter().enumerate().map(|(order, series)| series.body(order)).collect();
        let filters: Vec<_> = self.filter.iter().map(Filter::body).collect();
        let mut body = json!({"events": series, "properties": filters, "interval": self.range_spec.interval,
            "display": self.display});
        let fields = body.as_object_mut().unwrap();
        let mut put = |key: &str, value: Value| fields.insert(key.to_owned(), value);
        for (key, date) in [("date_from", &self.range_spec.from), ("date_to", &self.range_spec.to)] {
            if let Some(date) = date {
                put(key, json!(date.text()));
            }
        }
        if self.range_spec.explicit {
            put("explicit_date", json!(true));
        }
        if let Some(source) = &self.source {
            let (kind, key, group) = match source {
                Source::Event(keys) => ("event", json!(keys[0]), None),
                Source::Person(key) => ("person", json!(key), None),
                Source::Group(index, key) => ("group", json!(key), Some(*index)),
                Source::Cohorts(ids) => {
                    let ids = ids.iter().map(|id| if *id == 0 { json!("all") } else { json!(id) });
                    ("cohort", ids.collect(), None)
                }
            };
            if let (true, Source::Event(keys)) = (self.several, source) {
                let parts = keys.iter().map(|key| json!({"property": key, "type": "event"}));
                put("breakdowns", parts.collect());
            } else {
                put("breakdown", key);
                put("breakdown_type", json!(kind));
                put("breakdown_group_type_index", json!(group));
                if let Some(bins) = self.bins {
                    put("breakdown_histogram_bin_count", json!(bins));
                }
            }
        }
        if let Some(limit) = self.limit {
            put("breakdown_limit", json!(limit));
        }
        if self.hide_other {
            put("breakdown_hide_other_aggregation", json!(true));
        }
        if self.compare {
            put("compare", json!(true));
        }
        if let Some(back) = &self.compare_to {
            put("compare_to", json!(back.text()));
        }
        if let Some(formula) = &self.formula {
            put("formula", json!(formula.text));
        }
        if self.smoothing > 1 {
            put("smoothing_intervals", json!(self.smoothing));
        }
        body
    }
}

pub fn relative(count: u32, unit: char) -> DateText {
    DateText::Relative { count: Some(count), unit, edge: "" }
}

fn edge(count: Option<u32>, unit: char, edge: &'static str) -> DateText {
    DateText::Relative { count, unit, edge }
}

pub fn random_range(
    dice: &mut Dice,
    interval: &'static str,
    display: &'static str,
    today: NaiveDate,
) -> RangeSpec {
    let total = TOTALS.contains(&display);
    let bold = display == "BoldNumber";
    let some = |dice: &mut Dice, low, high| u32::try_from(dice.within(low, high)).unwrap();
    let ago = |days: i64| today - Duration::days(days);
    let clock = |dice: &mut Dice, days: i64| {
        let (hour, minute) = (some(dice, 4, 22), some(dice, 0, 59));
        DateText::Clock(ago(days).and_hms_opt(hour, minute, dice.pick(&[0, 0, 30])).unwrap())
    };
    let (mut from, mut to) = match interval {
        "minute" => (Some(edge(Some(some(dice, 1, 3)), 'h', dice.pick(&["", "Start"]))), None),
        "hour" => match dice.within(0, 4) {
            0 => (Some(relative(some(dice, 1, 50), 'h')), None),
            1 => (Some(edge(None, 'd', "Start")), None),
            2 => (Some(edge(Some(1), 'd', "Start")), Some(edge(Some(1), 'd', "End"))),
            3 => (Some(clock(dice, 3)), Some(clock(dice, 1))),
            _ => (Some(DateText::Day(ago(2))), Some(DateText::Day(today))),
        },
        "day" => match dice.within(0, 8) {
            0 => (None, None),
            1 => (Some(relative(some(dice, 1, 15), 'd')), None),
            2 => (Some(relative(dice.pick(&[7, 14]), 'd')), None),
            3 => (Some(relative(some(dice, 5, 60), 'h')), None),
            4 => (Some(edge(None, 'm', "Start")), None),
            5 => (Some(edge(Some(1), 'm', "Start")), Some(edge(Some(1), 'm', "End"))),
            6 => (Some(clock(dice, 9)), Some(clock(dice, 2))),
            7 => (Some(relative(some(dice, 8, 20), 'd')), Some(relative(some(dice, 0, 7), 'd'))),
            _ => (Some(DateText::Day(ago(dice.within(3, 12)))), Some(DateText::Day(ago(dice.within(0, 3))))),
        },
        "week" => match dice.within(0, 2) {
            0 => (Some(relative(some(dice, 1, 6), 'w')), None),
            1 => (Some(relative(some(dice, 1, 50), 'd')), Some(relative(some(dice, 0, 1), 'd'))),
            _ => (Some(DateText::Day(ago(dice.within(10, 50)))), Some(DateText::Day(ago(dice.within(0, 9))))),
        },
        _ => match dice.within(0, 3) {
            0 => (Some(relative(some(dice, 1, 7), 'm')), None),
            1 => (Some(edge(None, 'y', "Start")), None),
            2 => (Some(relative(1, dice.pick(&['y', 'q']))), Some(edge(Some(1), 'm', "End"))),
            _ => {
                (Some(DateText::Day(ago(dice.within(40, 200)))), Some(DateText::Day(ago(dice.within(0, 39)))))
            }
        },
    };
    if dice.percent(4) && interval != "minute" {
        (from, to) = (Some(DateText::All), None);
    }
    if bold && from.is_none() {
        from = Some(relative(7, 'd'));
    }
    let absolute = |date: &Option<DateText>| date.as_ref().is_some_and(DateText::is_absolute);
    let explicit = absolute(&from) && absolute(&to) && dice.percent(25);
    RangeSpec { from, to, explicit, interval, total, bold }
}

fn source(dice: &mut Dice) -> (Option<Source>, bool, Option<u32>) {
    match dice.within(0, 19) {
        0..=10 => (None, false, None),
        11 => (Some(Source::Event(vec!["v", "w"])), true, None),
        12 => (Some(Source::Event(vec!["v"])), true, None),
        13 => (Some(Source::Event(vec!["n"])), false, Some(u32::try_from(dice.within(1, 4)).unwrap())),
        14 => (Some(Source::Group(dice.pick(&[0, 1]), "v")), false, None),
        15 => {
            (Some(Source::Cohorts(dice.pick(&[vec![1, 2], vec![0, 1], vec![2], vec![1, 0, 2]]))), false, None)
        }
        16 => (Some(Source::Person("w")), false, None),
        _ => (Some(Source::Event(vec!["v"])), false, None),
    }
}

/// A random history and a random trend over it.
pub fn generate(dice: &mut Dice) -> (History, TrendSpec) {
    let zones =
        ["UTC", "America/New_York", "Asia/Kolkata", "Australia/Sydney", "Europe/Berlin", "Asia/Kathmandu"];
    let zone = dice.pick(&zones).parse().unwrap();
    // Around changes of clocks, ends of months and of years.
    let days = [
        "2024-03-12",
        "2024-04-08",
        "2024-10-29",
        "2024-11-05",
        "2024-03-31",
        "2024-02-29",
        "2024-01-03",
        "2023-12-31",
    ];
    let day = instant(&format!("{}T00:00:00Z", dice.pick(&days))).timestamp_micros();
    let now = day + dice.within(0, 24 * 60 - 1) * 60 * SECOND + dice.pick(&[0, 17]) * SECOND;
    let mut history = people(dice, zone, now);
    let interval =
        dice.pick(&["minute", "hour", "hour", "day", "day", "day", "day", "week", "week", "month"]);
    let display = match dice.within(0, 9) {
        0..=1 => dice.pick(&TOTALS),
        2..=3 => "ActionsLineGraphCumulative",
        _ => dice.pick(&["ActionsLineGraph", "ActionsBar", "ActionsAreaGraph"]),
    };
    let range_spec = random_range(dice, interval, display, local(zone, now).date_naive());
    let series: Vec<Series> = (0..dice.count(1, 2)).map(|_| Series::any(dice)).collect();
    let (source, several, bins) = source(dice);
    let two = series.len() == 2;
    let formula = dice.percent(20).then(|| if two { dice.pick(&TWO) } else { dice.pick(&ONE) });
    let compare = dice.percent(20) && (!range_spec.total || interval == "day") && !range_spec.bold;
    let back = [relative(1, 'w'), relative(1, 'm'), relative(3, 'd')];
    let smooth =
        dice.percent(10) && formula.is_none() && display != "ActionsLineGraphCumulative" && !range_spec.total;
    let spec = TrendSpec {
        filter: dice.percent(15).then(|| Filter::any(dice)),
        display,
        several,
        bins,
        limit: (source.is_some() && dice.percent(40)).then(|| dice.count(1, 4)),
        hide_other: source.is_some() && dice.percent(15),
        source,
        compare,
        compare_to: (compare && dice.percent(30)).then(|| dice.pick(&back)),
        formula,
        smoothing: if smooth { dice.count(2, 7) } else { 1 },
        range_spec,
        series,
    };
    events(dice, &mut history, &spec);
    (history, spec)
}

fn events(dice: &mut Dice, history: &mut History, spec: &TrendSpec) {
    let now = history.now;
    let range = Range::current(&spec.range_spec, history.zone, history.week_start, now, now - 9 * DAY);
    if !range.is_clear() || range.from > range.to {
        return;
    }
    let (first, last) = (range.first_instant(), range.last_instant());
    let lead = match spec.series.iter().any(|series| matches!(series.math, Math::Rolling(_))) {
        true => 32 * DAY,
        false => (last - first) / 4 + HOUR,
    };
    let starts = range.periods();
    let durations = spec.series.iter().any(|series| matches!(series.math, Math::SessionDuration(_)));
    for _ in 0..dice.count(0, 24) {
        let time = match dice.within(0, 9) {
            0 => first + dice.within(-1, 1) * SECOND,
            1 => last + dice.within(-1, 1) * SECOND,
            2 if !starts.is_empty() => {
                let start = dice.pick(&starts);
                let edge =
                    if range.calendar.is_short() { start.instant } else { range.midnight(start.local) };
                edge + dice.within(-1, 0) * SECOND
            }
            3 => dice.within((first - lead) / SECOND, first / SECOND) * SECOND,
            4 if spec.compare => dice.within((2 * first - last) / SECOND, first / SECOND) * SECOND,
            _ => dice.within(first / SECOND, last / SECOND) * SECOND,
        };
        let fraction = if dice.percent(5) && !durations { SECOND / 2 } else { 0 };
        let mut event = event(dice, history, &NAMES, time + fraction);
        // Sometimes several events at one instant.
        if let Some(other) = history.events.last().filter(|_| dice.percent(10)) {
            event.time = other.time;
        }
        history.events.push(event);
    }
}
