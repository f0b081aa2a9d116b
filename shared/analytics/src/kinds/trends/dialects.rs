//! The forms of a trends query in requests: query node, insight filters, canonical node.
//!
//! Must stay true: parsing what [`to_insight_filters`] writes gives the same query again.

use pennon_filters::CalcResult;
use pennon_filters::dates::compare::Comparison;
use serde_json::{Map, Value, json};

use super::raw_query::RawTrends;
use super::{INSIGHT_NAME, TrendsQuery, formulas, query};
use crate::kinds::ParsedQuery;
use crate::kinds::saved_query::{FieldType, REQUIRED_SERIES, SavedField, SavedNodeRules};
use crate::query::insight_filters::parse::common_fields as common_filters;
use crate::query::insight_filters::serialize;
use crate::query::node::{common_fields as common_node_fields, get_object};
use crate::query::{Field, canonical};

type Object = Map<String, Value>;

/// Displays that insights can store, including one that only other implementations calculate.
pub const DISPLAYS: &[&str] = &[
    "ActionsLineGraph",
    "ActionsBar",
    "ActionsUnstackedBar",
    "ActionsStackedBar",
    "ActionsAreaGraph",
    "ActionsLineGraphCumulative",
    "BoldNumber",
    "ActionsPie",
    "ActionsBarValue",
    "ActionsTable",
    "WorldMap",
    "CalendarHeatmap",
];

/// The rules for nodes that insights store.
pub(super) const SAVED_NODE: SavedNodeRules =
    SavedNodeRules { required: REQUIRED_SERIES, fields: SAVED_FIELDS, shares_fields: true };

const SAVED_FIELDS: &[SavedField] = &[
    ("", "trendsFilter", FieldType::Object),
    ("trendsFilter", "display", FieldType::OneOf(DISPLAYS)),
    ("trendsFilter", "formula", FieldType::String),
    ("trendsFilter", "formulas", FieldType::List),
    ("trendsFilter", "formulaNodes", FieldType::List),
    ("trendsFilter", "smoothingIntervals", FieldType::Integer),
    ("trendsFilter", "showLegend", FieldType::Boolean),
    ("trendsFilter", "yAxisScaleType", FieldType::OneOf(&["linear", "log10"])),
];

/// Parses a query node.
pub(super) fn parse_node(node: &Object) -> CalcResult<ParsedQuery> {
    let filter = get_object(node, "trendsFilter")?;
    let compare = get_object(node, "compareFilter")?;
    query::parse(&RawTrends {
        common: common_node_fields(node)?,
        display: Field::inside(filter, "display", "trendsFilter__display"),
        compare: Field::inside(compare, "compare", "compareFilter__compare").or(Field::inside(
            filter,
            "compare",
            "trendsFilter__compare",
        )),
        compare_to: Field::inside(compare, "compare_to", "compareFilter__compare_to").or(Field::inside(
            filter,
            "compare_to",
            "trendsFilter__compare_to",
        )),
        formula: Field::inside(filter, "formula", "trendsFilter__formula"),
        formulas: Field::inside(filter, "formulas", "trendsFilter__formulas"),
        formula_nodes: Field::inside(filter, "formulaNodes", "trendsFilter__formulaNodes"),
        smoothing_intervals: Field::inside(filter, "smoothingIntervals", "trendsFilter__smoothingIntervals"),
        conversion_goal: Field::of(node, "conversionGoal", "conversionGoal"),
    })
}

/// Parses insight filters.
pub(super) fn parse_filters(request: &Object) -> CalcResult<ParsedQuery> {
    let raw = RawTrends {
        common: common_filters(request)?,
        display: Field::of(request, "display", "display"),
        compare: Field::of(request, "compare", "compare"),
        compare_to: Field::of(request, "compare_to", "compare_to"),
        formula: Field::of(request, "formula", "formula"),
        formulas: Field::of(request, "formulas", "formulas"),
        formula_nodes: Field::of(request, "formulaNodes", "formulaNodes"),
        smoothing_intervals: Field::of(request, "smoothing_intervals", "smoothing_intervals"),
        conversion_goal: Field { attr: "conversion_goal", value: None },
    };
    query::parse(&raw)
}

/// The query node with defaults filled in.
pub(super) fn canonical_node(trends: &TrendsQuery) -> Value {
    let series = trends.series.iter().map(|series| {
        let mut json = canonical::series_json(series);
        json["math"] = json!(series.requested_math);
        json["optionalInFunnel"] = json!(false);
        json["math_arguments"] = json!(series.math_arguments.json());
        json
    });
    let mut node = canonical::common_node("TrendsQuery", &trends.common, series.collect());
    node["compareFilter"] = json!({
        "compare": trends.comparison.is_some(),
        "compare_to": match &trends.comparison {
            Some(Comparison::Back(text)) => Some(text),
            _ => None,
        },
    });
    node["trendsFilter"] = json!({
        "display": trends.is_display_explicit.then(|| trends.display.name()),
        "smoothingIntervals": trends.smoothing,
        "formula": null,
    });
    for (key, formulas) in formulas::to_fields(&trends.formulas) {
        node["trendsFilter"][key] = formulas;
    }
    node
}

/// The query as insight filters: the fields that the request set, plus the defaults of `math` and `properties`.
pub(super) fn to_insight_filters(trends: &TrendsQuery) -> Object {
    let mut filters =
        serialize::common_filters(INSIGHT_NAME, &trends.common, &trends.series, |_, series, entity| {
            entity["math"] = json!(series.requested_math.as_deref().unwrap_or("total"));
            for (key, value) in series.math_arguments.json() {
                entity[key] = value;
            }
        });
    let mut put = |key: &str, value: Value| serialize::put(&mut filters, key, value);
    if trends.is_display_explicit {
        put("display", json!(trends.display.name()));
    }
    if let Some(comparison) = &trends.comparison {
        put("compare", json!(true));
        if let Comparison::Back(text) = comparison {
            put("compare_to", json!(text));
        }
    }
    for (key, formulas) in formulas::to_fields(&trends.formulas) {
        put(key, formulas);
    }
    if trends.smoothing > 1 {
        put("smoothing_intervals", json!(trends.smoothing));
    }
    filters
}
