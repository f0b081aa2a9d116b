//! Query nodes: queries in the form of newer clients, bare or wrapped. The nodes of paths are in `path_input`.

use pennon_analytics::kinds::WRAPPERS;
use pennon_analytics::kinds::funnels::{Attribution, FunnelVizType, StepOrder, WindowUnit};
use serde_json::{Value, json};

use crate::calculation_input::{
    ANY, ANY_TEXT, SMOOTHING, any_case, breakdown_key, breakdown_part, breakdown_types, group_type,
    no_breakdown, optional_text, series, switch, whole,
};
use crate::conditions::null_or_blank;
use crate::funnel_input::{FROM, TO, WINDOW, whole_of};
use crate::limits::{
    BREAKDOWN_COHORTS, BREAKDOWN_LIMIT, BREAKDOWNS, EXCLUSIONS, NAME_MAX, QUERY_ID_MAX, SERIES, STEPS,
    bins_text, group_type_text, intervals, patterns, query_id_text,
};
use crate::schema::{
    any, any_object, any_of, constant, enum_of, id, input, list, list_max, nullable, schema_ref, text,
    text_max, with_description,
};

const EVENTS: [&str; 2] = ["EventsNode", "FunnelExclusionEventsNode"];
const ACTIONS: [&str; 2] = ["ActionsNode", "FunnelExclusionActionsNode"];

/// The schemas.
pub fn components() -> Vec<(&'static str, Value)> {
    vec![
        ("QueryRequest", request()),
        ("QueryNode", node()),
        ("TrendsQuery", trends(SERIES)),
        ("FunnelsQuery", funnels(STEPS)),
        ("EmptyTrendsQuery", trends(0)),
        ("EmptyFunnelsQuery", funnels(0)),
        ("BreakdownFilter", breakdown()),
        ("SeriesNode", any_of([event_node(), action_node()])),
    ]
}

fn request() -> Value {
    let refresh = "`force_cache`, `blocking` (default), `force_blocking` or true, `async`, `lazy_async`, \
        `force_async`, `async_except_on_cache_miss`; other values mean `blocking`. The value in the query \
        string takes precedence.";
    let own_name = json!({"maxLength": QUERY_ID_MAX});
    input(
        &["query"],
        [
            ("query", schema_ref("QueryNode")),
            ("refresh", with_description(any(), refresh)),
            ("client_query_id", with_description(own_name, query_id_text())),
        ],
    )
}

/// A query node, in at most three wrappers. A query without series has no results.
fn node() -> Value {
    let wrapper =
        input(&["kind", "source"], [("kind", enum_of(&WRAPPERS)), ("source", schema_ref("QueryNode"))]);
    any_of([
        schema_ref("TrendsQuery"),
        schema_ref("FunnelsQuery"),
        schema_ref("PathsQuery"),
        schema_ref("StickinessQuery"),
        schema_ref("LifecycleQuery"),
        schema_ref("EmptyTrendsQuery"),
        schema_ref("EmptyFunnelsQuery"),
        schema_ref("RetentionQuery"),
        wrapper,
    ])
}

/// An object of these fields and others.
pub(crate) fn open_object<const N: usize>(fields: [(&str, Value); N]) -> Value {
    input(&[], fields)
}

/// A range of dates.
pub(crate) fn date_range() -> Value {
    nullable(open_object([
        ("date_from", optional_text()),
        ("date_to", optional_text()),
        ("explicitDate", switch()),
    ]))
}

/// The common fields of all kinds with series, at most `series` of them. Without series, some fields are not validated.
pub(crate) fn common_node<const N: usize>(kind: &str, series: usize, own: [(&str, Value); N]) -> Value {
    let mut list = list_max(series, schema_ref("SeriesNode"));
    list["minItems"] = json!(series.min(1));
    let mut node = input(
        &["kind", "series"],
        [
            ("kind", constant(json!(kind))),
            ("series", list),
            ("properties", schema_ref("EventConditions")),
            ("filterTestAccounts", switch()),
            ("dateRange", date_range()),
            ("interval", nullable(any_case(&intervals(), ""))),
            ("breakdownFilter", schema_ref("BreakdownFilter")),
        ],
    );
    for (name, schema) in own {
        node["properties"][name] = schema;
    }
    node
}

/// A trend of so many series at most.
fn trends(series: usize) -> Value {
    let display =
        json!({"type": ["string", "null"], "maxLength": NAME_MAX, "not": {"const": "CalendarHeatmap"}});
    let formula = json!({"type": ["string", "object", "null"], "maxLength": NAME_MAX});
    let formula = with_description(
        if series == 0 { any() } else { formula },
        "Arithmetic over the series a, b, c and so on.",
    );
    let back = || {
        with_description(
            any(),
            "Offset of the other period, such as `-1w`. Default: the period directly before.",
        )
    };
    let filter = open_object([
        ("display", display),
        ("formula", formula),
        (
            "formulas",
            with_description(any(), "A list, of which the first formula is used if there is no `formula`."),
        ),
        (
            "formulaNodes",
            with_description(
                any(),
                "A list of objects with `formula`, of which the first is used if there is no other formula.",
            ),
        ),
        ("smoothingIntervals", whole(SMOOTHING, patterns::SMOOTHING)),
        ("compare", with_description(any(), "As in `compareFilter`, which takes precedence.")),
        ("compare_to", back()),
    ]);
    let compare = if series == 0 { any() } else { switch() };
    let compare = open_object([("compare", compare), ("compare_to", back())]);
    let goal = any_of([null_or_blank(), json!({"enum": [false, [], {}]})]);
    common_node(
        "TrendsQuery",
        series,
        [
            ("trendsFilter", nullable(filter)),
            ("compareFilter", nullable(compare)),
            ("conversionGoal", with_description(goal, "This value is not supported.")),
        ],
    )
}

/// A funnel of so many steps at most.
fn funnels(steps: usize) -> Value {
    let choice = |texts: &[&str]| {
        let texts: Vec<&str> = texts.iter().copied().chain([""]).collect();
        nullable(enum_of(&texts))
    };
    let validated = |schema: Value| if steps == 0 { any() } else { schema };
    let exclusions = if steps == 0 { list(any_object()) } else { list_max(EXCLUSIONS, exclusion()) };
    let filter = open_object([
        ("funnelVizType", choice(&FunnelVizType::names())),
        ("funnelOrderType", choice(&StepOrder::names())),
        ("funnelWindowInterval", whole(WINDOW, "[+-]?[0-9]{1,10}")),
        ("funnelWindowIntervalUnit", nullable(any_case(&WindowUnit::names(), "[Ss]?"))),
        ("exclusions", nullable(exclusions)),
        ("funnelFromStep", validated(whole(FROM.0, FROM.1))),
        ("funnelToStep", validated(whole(TO.0, TO.1))),
        ("binCount", validated(whole(ANY, ANY_TEXT))),
        ("breakdownAttributionType", validated(choice(&Attribution::NAMES))),
        (
            "breakdownAttributionValue",
            with_description(any(), "The index of the step, for the attribution `step`."),
        ),
        ("funnelAggregateByHogQL", choice(&["person_id"])),
    ]);
    let group = with_description(group_type(), "Counts groups of this type; 0 is a group type too.");
    common_node(
        "FunnelsQuery",
        steps,
        [("funnelsFilter", nullable(filter)), ("aggregation_group_type_index", group)],
    )
}

/// A breakdown, or none, or several keys with a type each; of a trend one key, unless these are cohorts.
fn breakdown() -> Value {
    let types = breakdown_types();
    let limit = || whole((0, BREAKDOWN_LIMIT as i64), patterns::BREAKDOWN_LIMIT);
    let bins = with_description(any(), bins_text());
    let group = with_description(any(), group_type_text());
    let none = open_object([("breakdown", no_breakdown()), ("breakdowns", no_breakdown())]);
    let key = any_of([breakdown_key(), list_max(BREAKDOWN_COHORTS, breakdown_key())]);
    let one = input(
        &["breakdown"],
        [
            ("breakdown", key),
            ("breakdown_type", nullable(enum_of(&types))),
            ("breakdowns", no_breakdown()),
            ("breakdown_limit", limit()),
            ("breakdown_group_type_index", group),
            (
                "breakdown_normalize_url",
                with_description(any(), "Whether a trailing `/`, `?` or `#` of values is ignored."),
            ),
            ("breakdown_histogram_bin_count", bins),
            ("breakdown_hide_other_aggregation", switch()),
        ],
    );
    let mut parts = list_max(BREAKDOWNS, breakdown_part());
    parts["minItems"] = json!(1);
    let several = input(
        &["breakdowns"],
        [("breakdowns", parts), ("breakdown_limit", limit()), ("breakdown_hide_other_aggregation", switch())],
    );
    any_of([json!({"type": "null"}), none, one, several])
}

/// A series without what it is of.
fn of_kind(required: &[&str], kind: Value) -> Value {
    series(required, [("kind", kind), ("fixedProperties", schema_ref("EventConditions"))])
}

fn event_name() -> Value {
    json!({"type": ["string", "number", "null"], "maxLength": NAME_MAX})
}

fn action_id() -> Value {
    any_of([id(), json!({"type": "string", "pattern": "^[0-9]{1,15}$"})])
}

fn event_node() -> Value {
    let other = json!({"type": ["null", "boolean", "number", "array", "object"]});
    let mut node = of_kind(&[], any_of([enum_of(&EVENTS), other]));
    node["properties"]["event"] = with_description(event_name(), "The event's name; null for all events.");
    node
}

fn action_node() -> Value {
    let mut node = of_kind(&["kind", "id"], enum_of(&ACTIONS));
    node["properties"]["id"] = action_id();
    node
}

/// An exclusion between two steps, counted from 0.
fn exclusion() -> Value {
    let of = |required: &[&str], kinds: &[&str], own: (&str, Value)| {
        input(
            required,
            [
                ("kind", enum_of(kinds)),
                own,
                ("properties", schema_ref("EventConditions")),
                ("funnelFromStep", whole_of(FROM)),
                ("funnelToStep", whole_of(TO)),
            ],
        )
    };
    let steps = ["funnelFromStep", "funnelToStep"];
    any_of([
        of(&steps, &EVENTS, ("event", event_name())),
        of(&[&steps[..], &["kind", "id"]].concat(), &ACTIONS, ("id", action_id())),
    ])
}

/// `refresh` and the caller's own name, as the query string has them.
pub(crate) fn with_query_options(operation: crate::Operation) -> crate::Operation {
    operation.query_param("refresh", text(), "As in the body; takes precedence over it.").query_param(
        "client_query_id",
        text_max(QUERY_ID_MAX),
        "As in the body; takes precedence over it.",
    )
}

#[cfg(test)]
mod tests {
    use pennon_analytics::InsightKind;

    use super::*;

    #[test]
    fn every_kind_that_has_nodes_has_their_schema() {
        let (components, node) = (crate::components(), node());
        for kind in InsightKind::nodes().map(|node| node.kind) {
            assert!(components.iter().any(|(name, _)| *name == kind), "{kind} has no schema");
            let is_listed = node["anyOf"].as_array().is_some_and(|nodes| nodes.contains(&schema_ref(kind)));
            assert!(is_listed, "the schema QueryNode lacks {kind}");
        }
    }
}
