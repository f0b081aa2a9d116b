//! Random flags over random histories, by the definition: for each actor what it saw first, whether it saw anything else, and
//! what it did from then on.

use std::collections::BTreeMap;

use pennon_analytics::InsightKind;
use pennon_filters::CalcError;
use serde_json::{Value, json};

use super::Differences;
use super::dice::Dice;
use super::history::{DAY, Event, Filter, HOUR, History, SECOND, event, iso, people, text};
use crate::support::instant;

const CALLED: &str = "$feature_flag_called";
const KEY: &str = "f";

#[derive(Clone, Copy, Debug, PartialEq)]
enum Order {
    Ordered,
    Strict,
    Unordered,
}

#[derive(Clone, Debug)]
enum Metric {
    /// Names of steps, order, window in hours.
    Funnel(Vec<&'static str>, Order, i64),
    /// Math.
    Trend(&'static str),
}

#[derive(Clone, Debug)]
pub struct ImpactSpec {
    metric: Metric,
    /// None reads calls; else the property of events of a name, or of every event.
    property: Option<Option<&'static str>>,
    filter: Option<Filter>,
    series_filter: Option<Filter>,
    group: Option<u8>,
    from: i64,
    to: i64,
}

impl ImpactSpec {
    pub fn body(&self) -> Value {
        let filters: Vec<Value> = self.series_filter.iter().map(Filter::body).collect();
        let mut query = match &self.metric {
            Metric::Funnel(steps, order, hours) => {
                let step = |name: &&str| json!({"kind": "EventsNode", "event": name, "properties": filters});
                let order = match order {
                    Order::Ordered => "ordered",
                    Order::Strict => "strict",
                    Order::Unordered => "unordered",
                };
                json!({"kind": "FunnelsQuery", "series": steps.iter().map(step).collect::<Vec<_>>(),
                    "funnelsFilter": {"funnelOrderType": order, "funnelWindowInterval": hours,
                        "funnelWindowIntervalUnit": "hour"}})
            }
            Metric::Trend(math) => {
                let math = if *math == "dau" && self.group.is_some() { "unique_group" } else { math };
                json!({"kind": "TrendsQuery", "series": [{"kind": "EventsNode", "event": "a", "math": math,
                    "math_property": "n", "math_group_type_index": self.group, "properties": filters}]})
            }
        };
        query["properties"] = self.filter.iter().map(Filter::body).collect();
        let mut impact = json!({
            "flag": {"key": KEY, "group_type_index": self.group,
                "variants": [{"key": "control", "share": 50}, {"key": "test", "share": 50}]},
            "query": query,
            "dateRange": {"date_from": iso(self.from), "date_to": iso(self.to), "explicitDate": true},
            "method": "frequentist",
        });
        if let Some(event) = self.property {
            impact["exposure"] = json!("property");
            impact["exposure_event"] = json!(event);
        }
        json!({"impact": impact})
    }

    fn actor(&self, history: &History, event: &Event) -> Option<String> {
        match self.group {
            None => Some(history.actor(&event.id)),
            Some(index) => {
                text(event.properties.get(&format!("$group_{index}"))).filter(|key| !key.is_empty())
            }
        }
    }

    fn variant(&self, event: &Event) -> Option<String> {
        let value = match self.property {
            None => {
                let is_call = event.name == CALLED
                    && text(event.properties.get("$feature_flag")).as_deref() == Some(KEY);
                event.properties.get("$feature_flag_response").filter(|_| is_call)
            }
            Some(name) => {
                let is_read = name.is_none_or(|name| name == event.name);
                event.properties.get(&format!("$feature/{KEY}")).filter(|_| is_read)
            }
        };
        text(value).filter(|text| !text.is_empty())
    }

    fn matches(&self, event: &Event, name: &str) -> bool {
        event.name == name && self.filter.iter().chain(&self.series_filter).all(|filter| filter.passes(event))
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
struct Count {
    exposed: u64,
    converted: u64,
    sum: f64,
}

/// Whether the steps can be found in the events, which are sorted, each with another one.
fn has_path(spec: &ImpactSpec, events: &[&Event], steps: &[&str], order: Order) -> bool {
    match order {
        Order::Strict => events
            .windows(steps.len())
            .any(|run| run.iter().zip(steps).all(|(event, step)| spec.matches(event, step))),
        Order::Unordered => steps.iter().all(|step| events.iter().any(|event| spec.matches(event, step))),
        Order::Ordered => has_ordered_path(spec, events, steps, &mut Vec::new()),
    }
}

/// Events of equal time may follow each other in any order.
fn has_ordered_path(spec: &ImpactSpec, events: &[&Event], steps: &[&str], used: &mut Vec<usize>) -> bool {
    let Some((step, rest)) = steps.split_first() else { return true };
    let after = used.last().map_or(i64::MIN, |last| events[*last].time);
    for (index, event) in events.iter().enumerate() {
        if event.time >= after && !used.contains(&index) && spec.matches(event, step) {
            used.push(index);
            if has_ordered_path(spec, events, rest, used) {
                return true;
            }
            used.pop();
        }
    }
    false
}

fn value(spec: &ImpactSpec, events: &[&Event], start: i64) -> (bool, f64) {
    match &spec.metric {
        Metric::Funnel(steps, order, hours) => {
            let end = start + hours * HOUR;
            let counted: Vec<&Event> =
                events.iter().copied().filter(|event| start <= event.time && event.time <= end).collect();
            (has_path(spec, &counted, steps, *order), 0.0)
        }
        Metric::Trend(math) => {
            let counted: Vec<&&Event> =
                events.iter().filter(|event| start <= event.time && spec.matches(event, "a")).collect();
            let number = |event: &&&Event| match event.properties.get("n") {
                Some(Value::Number(number)) => number.as_f64().unwrap(),
                Some(Value::String(text)) => text.parse().unwrap_or(0.0),
                _ => 0.0,
            };
            let sum = match *math {
                "sum" => counted.iter().map(number).sum(),
                _ => counted.len() as f64,
            };
            (!counted.is_empty(), sum)
        }
    }
}

/// By variant, and how many saw several.
fn count(history: &History, spec: &ImpactSpec) -> (BTreeMap<String, Count>, u64) {
    let mut actors: BTreeMap<String, Vec<&Event>> = BTreeMap::new();
    for event in &history.events {
        if spec.from <= event.time
            && event.time <= spec.to
            && let Some(actor) = spec.actor(history, event)
        {
            actors.entry(actor).or_default().push(event);
        }
    }
    let (mut counts, mut several) = (BTreeMap::new(), 0);
    for mut events in actors.into_values() {
        // Events of equal time stay in the order of arrival.
        events.sort_by_key(|event| event.time);
        let passes = |event: &Event| spec.filter.iter().all(|filter| filter.passes(event));
        let mut seen = events
            .iter()
            .filter(|event| passes(event))
            .filter_map(|event| Some((event.time, spec.variant(event)?)));
        let Some((start, first)) = seen.next() else { continue };
        if seen.any(|(_, variant)| variant != first) {
            several += 1;
            continue;
        }
        let (converted, sum) = value(spec, &events, start);
        let count: &mut Count = counts.entry(first).or_default();
        count.exposed += 1;
        count.converted += u64::from(converted);
        count.sum += sum;
    }
    (counts, several)
}

/// Differences of the result from the count by definition.
pub fn check(history: &History, spec: &ImpactSpec) -> Result<Differences, CalcError> {
    let body = spec.body();
    let got =
        history.world().calculate_parsed(InsightKind::FlagImpact.parse_request(body.as_object().unwrap()))?;
    let (expected, several) = count(history, spec);
    let mut wrong = Vec::new();
    let mut expect = |what: &str, want: &Value, got: &Value| {
        if want.as_f64().zip(got.as_f64()).map_or(want != got, |(want, got)| (want - got).abs() > 1e-9) {
            wrong.push(format!("{what}: {got} instead of {want}"));
        }
    };
    expect("several", &json!(several), &got["several_variants"]["exposed"]);
    expect("exposed", &json!(expected.values().map(|count| count.exposed).sum::<u64>()), &got["exposed"]);
    let rows = got["variants"].as_array().unwrap();
    let seen: Vec<&Value> = rows.iter().filter(|row| row["exposed"] != 0).collect();
    expect("variants", &json!(expected.len()), &json!(seen.len()));
    for (variant, count) in &expected {
        let Some(row) = seen.iter().find(|row| row["variant"] == variant.as_str()) else {
            expect("variants", &json!(variant), &Value::Null);
            continue;
        };
        expect("exposed", &json!(count.exposed), &row["exposed"]);
        expect("converted", &json!(count.converted), &row["converted"]);
        let exposed = count.exposed as f64;
        match spec.metric {
            Metric::Trend("total" | "sum") => {
                expect("sum", &json!(count.sum), &row["sum"]);
                expect("mean", &json!(count.sum / exposed), &row["mean"]);
            }
            _ => expect("rate", &json!(count.converted as f64 / exposed), &row["rate"]),
        }
    }
    Ok(Some(wrong))
}

/// A history and a flag in it.
pub fn generate(dice: &mut Dice) -> (History, ImpactSpec) {
    let now = instant("2024-03-12T18:00:00Z").timestamp_micros();
    let mut history = people(dice, "Europe/Berlin".parse().unwrap(), now);
    let metric = if dice.percent(60) {
        let order = dice.pick(&[Order::Ordered, Order::Ordered, Order::Strict, Order::Unordered]);
        let steps = match order {
            Order::Unordered => vec![vec!["a", "b"], vec!["b"]],
            _ => vec![vec!["a"], vec!["a", "b"], vec!["a", "a"], vec!["a", "b", "a"]],
        };
        Metric::Funnel(dice.pick(&steps), order, dice.pick(&[1, 12, 48]))
    } else {
        Metric::Trend(dice.pick(&["total", "dau", "sum"]))
    };
    let is_strict = matches!(metric, Metric::Funnel(_, Order::Strict, _));
    // Which of several events at the same time takes a repeated step is a rule of funnels, which their own tests cover.
    let has_repeated_step = matches!(&metric, Metric::Funnel(steps, ..) if steps.iter().any(|step| steps.iter().filter(|other| *other == step).count() > 1));
    let from = now - dice.within(1, 5) * DAY;
    let spec = ImpactSpec {
        metric,
        property: dice.percent(35).then(|| dice.pick(&[None, None, Some("a")])),
        filter: (!is_strict && dice.percent(20)).then(|| Filter::any(dice)),
        series_filter: dice.percent(20).then(|| Filter::any(dice)),
        group: dice.percent(20).then(|| dice.pick(&[0, 1])),
        from,
        to: from + dice.within(1, 4) * DAY,
    };
    let mut last = 0;
    for _ in 0..dice.count(0, 24) {
        // Events at the same time have no order in which strict steps could follow each other.
        let repeats = !is_strict && !has_repeated_step && dice.percent(15);
        let unique = dice.within(0, 5 * 24 * 60) * 60 * SECOND + history.events.len() as i64 * SECOND;
        let time = if repeats { last } else { spec.from - DAY / 2 + unique };
        let mut one = event(dice, &history, &["a", "a", "b", "z", CALLED, CALLED], time);
        let variants = [json!("control"), json!("test"), json!("test"), json!(false), json!(true), json!("")];
        if one.name == CALLED {
            one.properties.insert("$feature_flag".to_owned(), json!(dice.pick(&[KEY, KEY, KEY, "g"])));
            if dice.percent(90) {
                one.properties.insert("$feature_flag_response".to_owned(), dice.pick(&variants));
            }
        }
        if dice.percent(40) {
            one.properties.insert(format!("$feature/{KEY}"), dice.pick(&variants));
        }
        last = time;
        history.events.push(one);
    }
    (history, spec)
}
