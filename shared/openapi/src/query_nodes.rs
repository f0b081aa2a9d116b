//! Query nodes: trends and funnels as newer clients ask them, bare or wrapped.

use serde_json::{Value, json};

use crate::calculation_input::{
    ANY, ANY_TEXT, BREAKDOWN_TYPES, INTERVALS, NAME_MAX, any_case, group_type, optional_text, switch, whole,
};
use crate::funnel_input::{ATTRIBUTIONS, FROM, ORDERS, TO, UNITS, VIZ_TYPES, WINDOW, whole_of};
use crate::schema::{any, any_of, constant, id, input, list_to, named, nullable, one_of, said, text_to};

/// The schemas.
pub fn components() -> Vec<(&'static str, Value)> {
    vec![
        ("QueryRequest", request()),
        ("QueryNode", node()),
        ("TrendsQuery", trends()),
        ("FunnelsQuery", funnels()),
        ("SeriesNode", any_of([event_node(), action_node()])),
    ]
}

fn request() -> Value {
    let refresh = "`force_cache`, `blocking` (when left out), `force_blocking` or true, `async`, `lazy_async`, \
        `force_async`, `async_except_on_cache_miss`; others mean `blocking`. A query string's wins.";
    let own_name = json!({"maxLength": 250});
    input(
        &["query"],
        [
            ("query", named("QueryNode")),
            ("refresh", said(any(), refresh)),
            (
                "client_query_id",
                said(own_name, "The caller's own name for the calculation: 1000 bytes at most."),
            ),
        ],
    )
}

/// A question, in at most three wrappers.
fn node() -> Value {
    let kinds = ["InsightVizNode", "DataTableNode", "DataVisualizationNode", "SavedInsightNode"];
    let wrapper = input(&["kind", "source"], [("kind", one_of(&kinds)), ("source", named("QueryNode"))]);
    any_of([named("TrendsQuery"), named("FunnelsQuery"), wrapper])
}

/// An object, null or nothing.
fn part<const N: usize>(fields: [(&str, Value); N]) -> Value {
    nullable(input(&[], fields))
}

/// What both kinds have.
fn common<const N: usize>(kind: &str, series: usize, keys: usize, own: [(&str, Value); N]) -> Value {
    let dates =
        part([("date_from", optional_text()), ("date_to", optional_text()), ("explicitDate", switch())]);
    let mut node = input(
        &["kind", "series"],
        [
            ("kind", constant(json!(kind))),
            ("series", list_to(series, named("SeriesNode"))),
            ("properties", named("EventConditions")),
            ("filterTestAccounts", switch()),
            ("dateRange", dates),
            ("interval", nullable(any_case(&INTERVALS, ""))),
            ("breakdownFilter", breakdown(keys)),
        ],
    );
    for (name, schema) in own {
        node["properties"][name] = schema;
    }
    node
}

fn trends() -> Value {
    let display =
        json!({"type": ["string", "null"], "maxLength": NAME_MAX, "not": {"const": "CalendarHeatmap"}});
    let compare = || [("compare", switch()), ("compare_to", optional_text())];
    let [first, second] = compare();
    let filter = part([
        ("display", display),
        ("formula", optional_text()),
        ("formulas", said(any(), "A list of which the first counts, where there is no `formula`.")),
        (
            "formulaNodes",
            said(any(), "A list of objects with `formula`, of which the first counts likewise."),
        ),
        ("smoothingIntervals", whole((1, 12_000), "0*([1-9][0-9]{0,3}|1[01][0-9]{3}|12000)")),
        first,
        second,
    ]);
    let goal = json!({"enum": [null, false, "", [], {}]});
    common(
        "TrendsQuery",
        26,
        1,
        [
            ("trendsFilter", filter),
            ("compareFilter", part(compare())),
            ("conversionGoal", said(goal, "Is not calculated.")),
        ],
    )
}

fn funnels() -> Value {
    let choice = |texts: &[&str]| {
        let texts: Vec<&str> = texts.iter().copied().chain([""]).collect();
        nullable(one_of(&texts))
    };
    let filter = part([
        ("funnelVizType", choice(&VIZ_TYPES)),
        ("funnelOrderType", choice(&ORDERS)),
        ("funnelWindowInterval", whole(WINDOW, "[+-]?[0-9]{1,9}")),
        ("funnelWindowIntervalUnit", nullable(any_case(&UNITS, "[Ss]?"))),
        ("exclusions", nullable(list_to(32, exclusion()))),
        ("funnelFromStep", whole(FROM.0, FROM.1)),
        ("funnelToStep", whole(TO.0, TO.1)),
        ("binCount", whole(ANY, ANY_TEXT)),
        ("breakdownAttributionType", choice(&ATTRIBUTIONS)),
        ("breakdownAttributionValue", whole(ANY, ANY_TEXT)),
        ("funnelAggregateByHogQL", choice(&["person_id"])),
    ]);
    let group = said(group_type(), "Groups of this type are counted, of type 0 too.");
    common("FunnelsQuery", 32, 10, [("funnelsFilter", filter), ("aggregation_group_type_index", group)])
}

fn breakdown(keys: usize) -> Value {
    let key = || json!({"type": ["string", "number", "boolean"], "minLength": 1, "maxLength": NAME_MAX});
    let one = json!({"type": ["string", "number", "boolean", "null"], "maxLength": NAME_MAX});
    let types: Vec<&str> = BREAKDOWN_TYPES.iter().copied().chain([""]).collect();
    let kind = || nullable(one_of(&types));
    let number = || whole((0, 1_000), "0*(1000|[0-9]{1,3})");
    let entry = input(
        &["property"],
        [
            ("property", key()),
            ("type", kind()),
            ("group_type_index", group_type()),
            ("normalize_url", switch()),
            ("histogram_bin_count", number()),
        ],
    );
    part([
        ("breakdown", any_of([one, list_to(keys, key())])),
        ("breakdown_type", kind()),
        ("breakdowns", nullable(list_to(3, entry))),
        ("breakdown_limit", number()),
        ("breakdown_group_type_index", group_type()),
        ("breakdown_normalize_url", switch()),
        ("breakdown_histogram_bin_count", number()),
        ("breakdown_hide_other_aggregation", switch()),
    ])
}

/// A series without its kind and what it is of.
fn series(required: &[&str], kind: Value) -> Value {
    let math = json!({
        "type": ["string", "null"], "maxLength": NAME_MAX,
        "not": {"enum": ["first_time_for_user_with_filters", "first_matching_event_for_user", "sum_count_per_actor"]},
    });
    input(
        required,
        [
            ("kind", kind),
            ("name", optional_text()),
            ("custom_name", optional_text()),
            (
                "math",
                said(math, "What is counted; what is not known counts events. Of steps only first times."),
            ),
            ("math_property", optional_text()),
            ("math_property_type", optional_text()),
            ("math_hogql", optional_text()),
            ("math_group_type_index", group_type()),
            ("properties", named("EventConditions")),
            ("fixedProperties", named("EventConditions")),
            ("optionalInFunnel", switch()),
        ],
    )
}

fn event_name() -> Value {
    json!({"type": ["string", "number", "null"], "maxLength": NAME_MAX})
}

fn action_id() -> Value {
    any_of([id(), json!({"type": "string", "pattern": "^[0-9]{1,15}$"})])
}

fn event_node() -> Value {
    let mut node = series(&[], constant(json!("EventsNode")));
    node["properties"]["event"] = said(event_name(), "The event's name; null for every event.");
    node
}

fn action_node() -> Value {
    let mut node = series(&["kind", "id"], constant(json!("ActionsNode")));
    node["properties"]["id"] = action_id();
    node
}

/// What voids a path between two steps, counted from 0.
fn exclusion() -> Value {
    let of = |required: &[&str], kinds: &[&str], own: (&str, Value)| {
        input(
            required,
            [
                ("kind", one_of(kinds)),
                own,
                ("properties", named("EventConditions")),
                ("funnelFromStep", whole_of(FROM)),
                ("funnelToStep", whole_of(TO)),
            ],
        )
    };
    let steps = ["funnelFromStep", "funnelToStep"];
    let events = ["EventsNode", "FunnelExclusionEventsNode"];
    let actions = ["ActionsNode", "FunnelExclusionActionsNode"];
    any_of([
        of(&steps, &events, ("event", event_name())),
        of(&[&steps[..], &["kind", "id"]].concat(), &actions, ("id", action_id())),
    ])
}

/// `refresh` and the caller's own name, as the query string has them.
pub(crate) fn by_query(operation: crate::Operation) -> crate::Operation {
    operation.query("refresh", text_to(NAME_MAX), "As in the body, and wins over it.").query(
        "client_query_id",
        text_to(250),
        "As in the body, and wins over it.",
    )
}
