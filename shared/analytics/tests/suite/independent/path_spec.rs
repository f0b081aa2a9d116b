//! Random paths queries, and histories in which they find edges.

use chrono_tz::Tz;
use serde_json::{Map, Value, json};

use super::dice::Dice;
use super::history::{DAY, Event, HOUR, History, SECOND, event, iso, people};

pub const MINUTE: i64 = 60 * SECOND;

/// A funnel of two steps that come one after the other.
#[derive(Clone, Debug)]
pub struct Funnel {
    pub path_type: &'static str,
    pub step: i64,
    pub window_minutes: i64,
    pub group: Option<u8>,
}

#[derive(Clone, Debug)]
pub struct PathsSpec {
    pub types: Vec<&'static str>,
    pub expression: bool,
    pub excluded: Vec<&'static str>,
    /// Text that is replaced, and its replacement.
    pub cleaning: Vec<(&'static str, &'static str)>,
    pub groupings: Vec<&'static str>,
    pub start: Option<&'static str>,
    pub end: Option<&'static str>,
    pub steps: Option<usize>,
    pub edges: Option<usize>,
    pub least: Option<u64>,
    pub most: Option<u64>,
    /// Only events with this value of `v`.
    pub filter: Option<&'static str>,
    pub from: &'static str,
    pub to: (&'static str, bool),
    pub funnel: Option<Funnel>,
    pub as_node: bool,
}

const FIELDS: [(&str, &str); 13] = [
    ("include_event_types", "includeEventTypes"),
    ("paths_hogql_expression", "pathsHogQLExpression"),
    ("exclude_events", "excludeEvents"),
    ("local_path_cleaning_filters", "localPathCleaningFilters"),
    ("path_groupings", "pathGroupings"),
    ("start_point", "startPoint"),
    ("end_point", "endPoint"),
    ("step_limit", "stepLimit"),
    ("edge_limit", "edgeLimit"),
    ("min_edge_weight", "minEdgeWeight"),
    ("max_edge_weight", "maxEdgeWeight"),
    ("path_start_key", "pathStartKey"),
    ("path_end_key", "pathEndKey"),
];

impl PathsSpec {
    fn fields(&self) -> Map<String, Value> {
        let cleaning = self.cleaning.iter().map(|(regex, alias)| json!({"regex": regex, "alias": alias}));
        let fields = json!({
            "include_event_types": self.types,
            "paths_hogql_expression": self.expression.then_some("properties.v"),
            "exclude_events": self.excluded,
            "local_path_cleaning_filters": cleaning.collect::<Vec<_>>(),
            "path_groupings": self.groupings,
            "start_point": self.start,
            "end_point": self.end,
            "step_limit": self.steps,
            "edge_limit": self.edges,
            "min_edge_weight": self.least,
            "max_edge_weight": self.most,
        });
        fields.as_object().unwrap().clone()
    }

    fn properties(&self) -> Value {
        self.filter.map_or(json!([]), |value| json!([{"key": "v", "type": "event", "value": value}]))
    }

    /// The request, as a node or in the older form.
    pub fn body(&self) -> Value {
        let (to, explicit) = self.to;
        if self.as_node {
            let name = |key: &str| FIELDS.iter().find(|(old, _)| *old == key).unwrap().1.to_owned();
            let filter: Map<String, Value> =
                self.fields().into_iter().map(|(key, value)| (name(&key), value)).collect();
            let mut node = json!({
                "kind": "PathsQuery", "pathsFilter": filter, "properties": self.properties(),
                "dateRange": {"date_from": self.from, "date_to": to, "explicitDate": explicit},
            });
            if let Some(funnel) = &self.funnel {
                node["funnelPathsFilter"] = json!({
                    "funnelPathType": funnel.path_type, "funnelStep": funnel.step,
                    "funnelSource": {
                        "kind": "FunnelsQuery", "dateRange": {"date_from": "2024-01-01", "date_to": "2024-01-04"},
                        "series": [{"kind": "EventsNode", "event": "in"}, {"kind": "EventsNode", "event": "out"}],
                        "aggregation_group_type_index": funnel.group,
                        "funnelsFilter": {"funnelWindowInterval": funnel.window_minutes, "funnelWindowIntervalUnit": "minute"},
                    },
                });
            }
            return node;
        }
        let mut body = self.fields();
        body.insert("insight".to_owned(), json!("PATHS"));
        body.insert("properties".to_owned(), self.properties());
        body.insert("date_from".to_owned(), json!(self.from));
        body.insert("date_to".to_owned(), json!(to));
        body.insert("explicit_date".to_owned(), json!(explicit));
        if let Some(funnel) = &self.funnel {
            body.insert("funnel_paths".to_owned(), json!(funnel.path_type));
            body.insert("funnel_filter".to_owned(), json!({
                "events": [{"id": "in", "order": 0}, {"id": "out", "order": 1}], "funnel_step": funnel.step,
                "date_from": "2024-01-01", "date_to": "2024-01-04", "funnel_window_interval": funnel.window_minutes,
                "funnel_window_interval_unit": "minute", "aggregation_group_type_index": funnel.group,
                "aggregation_group_types_from_zero": funnel.group.is_some(),
            }));
        }
        Value::Object(body)
    }
}

const URLS: [&str; 9] = ["/", "/a", "/a/", "/b", "/b//", "/a/b", "/a?x=1", "", "//"];
const NAMES: [&str; 7] = ["$pageview", "$pageview", "$screen", "in", "out", "buy", "$other"];

fn some_of(dice: &mut Dice, of: &[&'static str], chance: i64) -> Vec<&'static str> {
    of.iter().copied().filter(|_| dice.percent(chance)).collect()
}

fn perhaps<T: Clone>(dice: &mut Dice, chance: i64, of: &[T]) -> Option<T> {
    dice.percent(chance).then(|| dice.pick(of))
}

fn named(dice: &mut Dice, event: &mut Event) {
    let key = if event.name == "$screen" { "$screen_name" } else { "$current_url" };
    match dice.within(0, 19) {
        0 => {}
        1 => drop(event.properties.insert(key.to_owned(), Value::Null)),
        2 => drop(event.properties.insert(key.to_owned(), json!(7))),
        _ => drop(event.properties.insert(key.to_owned(), json!(dice.pick(&URLS)))),
    }
}

/// Sessions of steps of some minutes, often just at the length of a gap that splits them.
fn events(dice: &mut Dice, history: &History, has_ties: bool) -> Vec<Event> {
    let mut events: Vec<Event> = Vec::new();
    let start = 1_704_067_200 * SECOND + dice.within(0, 2) * DAY + dice.within(0, 23) * HOUR;
    let mut time = start;
    for _ in 0..dice.count(2, 22) {
        let steps = [MINUTE, 5 * MINUTE, 29 * MINUTE, 30 * MINUTE, 30 * MINUTE - 1, 1_500_000, 12 * HOUR];
        time += dice.pick(&steps);
        if has_ties && dice.percent(25) {
            time -= MINUTE;
        }
        while !has_ties && events.iter().any(|event| event.time == time) {
            time += 1;
        }
        let mut event = event(dice, history, &NAMES, time);
        named(dice, &mut event);
        let place = dice.count(0, events.len());
        // They do not arrive in their order.
        let place = if dice.percent(70) { events.len() } else { place };
        events.insert(place, event);
    }
    events
}

fn funnel(dice: &mut Dice) -> Funnel {
    let path_type =
        dice.pick(&["funnel_path_after_step", "funnel_path_before_step", "funnel_path_between_steps"]);
    let steps: &[i64] = if path_type == "funnel_path_between_steps" { &[2] } else { &[1, 2, -2] };
    Funnel {
        path_type,
        step: dice.pick(steps),
        window_minutes: dice.pick(&[10, 30, 60, 2_000]),
        group: perhaps(dice, 40, &[0, 1]),
    }
}

pub fn generate(dice: &mut Dice) -> (History, PathsSpec) {
    let zone = dice.pick(&[Tz::UTC, Tz::Europe__Berlin, Tz::America__Los_Angeles]);
    let now = 1_704_067_200 * SECOND + 5 * DAY;
    let mut history = people(dice, zone, now);
    let with_funnel = dice.percent(35);
    history.events = events(dice, &history, !with_funnel);
    let to = match dice.within(0, 2) {
        0 => ("2024-01-04", false),
        1 => ("2024-01-05T00:00:00Z", true),
        _ => {
            let time = history.events.last().map_or(now, |event| event.time);
            // Somewhere in the second of an event.
            (Box::leak(iso(time / SECOND * SECOND).into_boxed_str()) as &'static str, true)
        }
    };
    let points = ["/a", "/", "/b", "in", "q", "/a/"];
    let spec = PathsSpec {
        types: if dice.percent(50) {
            some_of(dice, &["$pageview", "$screen", "custom_event", "hogql"], 50)
        } else {
            Vec::new()
        },
        expression: dice.percent(25),
        excluded: some_of(dice, &["/a", "$pageview", "$screen", "hogql", "in", "", "/G*"], 8),
        cleaning: [("a", "c"), ("/b", "/"), ("c", ""), ("in", "/in")]
            .into_iter()
            .filter(|_| dice.percent(8))
            .collect(),
        groupings: some_of(dice, &["/a*", "/*b", "*?x=", "/a?x*1", "", "i*"], 8),
        start: perhaps(dice, 25, &points),
        end: perhaps(dice, 25, &points),
        steps: perhaps(dice, 50, &[1, 2, 3, 4, 20]),
        edges: perhaps(dice, 25, &[1, 2, 3, 5]),
        least: perhaps(dice, 15, &[1, 2]),
        most: perhaps(dice, 15, &[1, 2]),
        filter: perhaps(dice, 15, &["p", "q"]),
        from: dice.pick(&["2024-01-01", "2024-01-02", "2024-01-01T18:30:00Z", "all"]),
        to,
        funnel: with_funnel.then(|| funnel(dice)),
        as_node: dice.percent(50),
    };
    (history, spec)
}
