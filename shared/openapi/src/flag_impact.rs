//! The impact of flags: its requests and its results.

use pennon_analytics::kinds::flag_impact::limits::{
    CONFIDENCE_LEVEL_DEFAULT, CONFIDENCE_LEVEL_MAX, CONFIDENCE_LEVEL_MIN, MINIMUM_SAMPLE_DEFAULT,
    MINIMUM_SAMPLE_MAX, MINIMUM_SAMPLE_MIN, VARIANT_BYTES,
};
use pennon_analytics::kinds::flag_impact::{Exposure, InferenceMethod};
use serde_json::{Value, json};

use crate::calculation::set_response_description;
use crate::calculation_input::{InputField, fields_body, optional_text, with_fields};
use crate::limits::{QUERY_ID_MAX, query_id_text};
use crate::operation::{Operation, Security};
use crate::persons::with_people_response;
use crate::query_nodes::{date_range, with_query_options};
use crate::result_schemas::query_response;
use crate::schema::{
    any, any_object, any_of, boolean, constant, enum_of, input, instant, list, nullable, number, object,
    object_with_optional, schema_ref, text, text_max, with_description,
};

const READ_FLAGS: Security = Security::Scope("feature_flag:read");
const READ_PERSONS: Security = Security::Scope("person:read");

/// The schemas.
pub fn components() -> Vec<(&'static str, Value)> {
    vec![
        ("FlagImpactRequest", request()),
        ("FlagImpactResult", result()),
        ("FlagImpactPeopleRequest", fields_body(people_fields())),
    ]
}

/// The operations.
pub fn operations() -> Vec<Operation> {
    const PATH: &str = "/api/projects/{project_id}/feature_flags/{id}/impact/";
    const PEOPLE: &str = "/api/projects/{project_id}/persons/flag_impact/";
    const SUMMARY: &str = "List the persons behind a number of a flag's impact";
    let impact = Operation::new(
        "getFeatureFlagImpact",
        "POST",
        PATH,
        "Feature flags",
        "Compare a metric between the variants of a flag",
        READ_FLAGS,
    )
    .with_description(
        "Calculates, for the persons that saw each variant, how many of them completed a funnel or the mean of a number, with \
         the difference to the control and its uncertainty. The scope `query:read` is required too. The result is cached, \
         and a long calculation continues in the background, as those of `query/`. `format=csv` returns a table.",
    );
    let mut impact = with_query_options(impact).json_body(schema_ref("FlagImpactRequest")).response(
        200,
        "The result, or the state of the calculation.",
        query_response(schema_ref("FlagImpactResult")),
    );
    set_response_description(
        &mut impact,
        404,
        "There is no such flag, or it is deleted, or there is no such project or response format.",
    );
    let get = Operation::new("getFlagImpactPeople", "GET", PEOPLE, "Persons", SUMMARY, READ_PERSONS)
        .with_description("The links in results have this target. The scope `insight:read` is accepted too.");
    let post = Operation::new("listFlagImpactPeople", "POST", PEOPLE, "Persons", SUMMARY, READ_PERSONS)
        .with_description(
            "Fields are accepted in the query string too, as the links in results have them. The scope `insight:read` is \
             accepted too.",
        );
    vec![
        impact.with_csv(),
        with_people_response(with_fields(get, people_fields()), None),
        with_people_response(post, Some("FlagImpactPeopleRequest")),
    ]
}

fn request() -> Value {
    let one_of = |names: &[&str]| {
        let names: Vec<&str> = names.iter().copied().chain([""]).collect();
        nullable(enum_of(&names))
    };
    let methods = InferenceMethod::NAMES.map(|(name, _)| name);
    let level = json!({"type": "number", "minimum": CONFIDENCE_LEVEL_MIN, "maximum": CONFIDENCE_LEVEL_MAX});
    let sample = json!({"type": "integer", "minimum": MINIMUM_SAMPLE_MIN, "maximum": MINIMUM_SAMPLE_MAX});
    let metric = with_description(
        schema_ref("QueryNode"),
        "The metric: a funnel, or a trend whose first series is the metric, with math `total`, `dau`, `unique_group` or `sum`.",
    );
    let fields = [
        ("query", metric),
        ("dateRange", with_description(date_range(), "Replaces the range of the metric.")),
        (
            "exposure",
            with_description(
                one_of(&Exposure::NAMES),
                "`feature_flag_called` (default): the event `$feature_flag_called`; `property`: the property `$feature/<key>`.",
            ),
        ),
        (
            "exposure_event",
            with_description(
                optional_text(),
                "With the exposure `property`: only events of this name. Default: all events.",
            ),
        ),
        ("method", with_description(one_of(&methods), "Default: `bayesian`.")),
        (
            "confidence_level",
            with_description(
                nullable(level),
                format!("Level of intervals. Default: {CONFIDENCE_LEVEL_DEFAULT}."),
            ),
        ),
        (
            "minimum_sample",
            with_description(
                nullable(sample),
                format!(
                    "Exposures that a variant and the control need for a verdict. Default: {MINIMUM_SAMPLE_DEFAULT}."
                ),
            ),
        ),
        (
            "control",
            with_description(
                nullable(text_max(VARIANT_BYTES)),
                "The variant that the others are compared with. Default: `control`, `false`, or the flag's first variant.",
            ),
        ),
        ("refresh", with_description(any(), "As for `query/`.")),
        ("client_query_id", with_description(json!({"maxLength": QUERY_ID_MAX}), query_id_text())),
    ];
    input(&["query"], fields)
}

fn people_fields() -> Vec<InputField> {
    let outcomes = ["exposed", "converted", "not_converted", "several_variants"];
    vec![
        InputField::json("impact", any_object(), "The query, as the links in results have it. Required."),
        InputField::text("variant", "The variant. Required, except for the outcome `several_variants`."),
        InputField::choice("outcome", &outcomes, "What the persons did. Default: `exposed`."),
    ]
}

fn count() -> Value {
    json!({"type": "integer", "minimum": 0})
}

fn interval() -> Value {
    nullable(json!({"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 2}))
}

fn result() -> Value {
    let link = || nullable(text());
    object([
        ("flag_key", text()),
        ("metric", enum_of(&["funnel", "trend"])),
        ("measure", enum_of(&["rate", "mean"])),
        ("actors", enum_of(&["persons", "groups"])),
        ("exposure", enum_of(&Exposure::NAMES)),
        ("exposure_event", nullable(text())),
        ("method", enum_of(&InferenceMethod::NAMES.map(|(name, _)| name))),
        ("confidence_level", number()),
        ("minimum_sample", count()),
        ("date_from", instant()),
        ("date_to", instant()),
        ("control", text()),
        ("exposed", count()),
        ("several_variants", object([("exposed", count()), ("persons_url", link())])),
        ("sample_ratio", sample_ratio()),
        ("variants", list(variant())),
    ])
}

fn sample_ratio() -> Value {
    let of_variant = object([("variant", text()), ("exposed", count()), ("expected", number())]);
    any_of([
        object([("is_checked", constant(json!(false))), ("reason", text())]),
        object([
            ("is_checked", constant(json!(true))),
            ("is_mismatch", boolean()),
            ("p_value", number()),
            ("chi_square", number()),
            ("degrees_of_freedom", count()),
            ("variants", list(of_variant)),
        ]),
    ])
}

/// A variant, with its comparison with the control; null for the control.
fn variant() -> Value {
    let maybe = || nullable(number());
    let verdicts = ["higher", "lower", "no_difference_shown", "too_few_exposed", "sample_ratio_mismatch"];
    let comparison = object([
        ("difference", number()),
        ("difference_interval", interval()),
        ("relative_difference", maybe()),
        ("relative_interval", interval()),
        ("p_value", maybe()),
        ("chance_to_win", maybe()),
        ("always_valid_p_value", maybe()),
        ("always_valid_interval", interval()),
    ]);
    object_with_optional(
        [
            ("variant", text()),
            ("is_control", boolean()),
            ("exposed", count()),
            ("converted", count()),
            ("interval", interval()),
            ("chance_to_be_best", maybe()),
            ("comparison", nullable(comparison)),
            ("verdict", nullable(enum_of(&verdicts))),
            ("sentence", nullable(text())),
            ("exposed_persons_url", nullable(text())),
            ("converted_persons_url", nullable(text())),
        ],
        [("rate", maybe()), ("mean", maybe()), ("sum", number()), ("standard_deviation", number())],
    )
}
