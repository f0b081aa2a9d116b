//! The serialised form of each kind, written by hand from its types and the wire format of postcard: integers have seven bits
//! to a byte, the lowest first, and signed ones alternate (0, -1, 1, -2); lists, maps and texts begin with their length,
//! variants with their number.
//!
//! If one of these tests fails after a change of a type, increment `part_format::VERSION`.

use pennon_analytics::part_format::{VERSION, decode, encode};
use pennon_analytics::people::MatchedActor;
use pennon_analytics::{InsightKind, ParsedQuery, PartitionResult, Query};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::support::World;

/// One person, who did three things within two seconds and saw the variant `t` of a flag before.
fn world() -> World {
    let event = |name: &str, second: u32, properties: Value| {
        let timestamp = format!("2024-01-01T10:00:0{second}Z");
        json!({"event": name, "distinct_id": "d", "timestamp": timestamp, "properties": properties})
    };
    let called = json!({"$feature_flag": "f", "$feature_flag_response": "t"});
    World::of_case(&json!({
        "project": {}, "groups": [], "actions": [], "cohorts": [], "now": "2024-01-02T12:00:00Z",
        "persons": [{"distinct_ids": ["d"], "properties": {}, "created_at": "2024-01-01T10:00:00Z"}],
        "events": [
            event("$feature_flag_called", 0, called), event("in", 1, json!({"n": 2.5})), event("x", 2, json!({})),
            event("out", 3, json!({})),
        ],
    }))
}

/// The partial result of a query over all events.
fn partial(world: &World, query: &Query) -> PartitionResult {
    let plan = query.plan(&world.project, world.now).unwrap();
    let partitions = plan.join(world.partitions(plan.scan(), 1), world.facts(&plan), &|| false).unwrap();
    let partials = partitions.iter().map(|partition| plan.partial(partition, &|| false).unwrap());
    partials.fold(PartitionResult::default(), PartitionResult::merge)
}

fn parsed(parsed: Result<ParsedQuery, pennon_filters::CalcError>) -> Query {
    match parsed.unwrap() {
        ParsedQuery::Query(query) => query,
        other => panic!("{other:?}"),
    }
}

fn node(mut node: Value, events: &[&str]) -> Query {
    if !events.is_empty() {
        let series = events.iter().map(|event| json!({"kind": "EventsNode", "event": event}));
        node["series"] = series.collect();
    }
    node["dateRange"] = json!({"date_from": "2024-01-01", "date_to": "2024-01-02"});
    parsed(Query::from_query_node(&node))
}

fn request(kind: InsightKind, body: &Value) -> Query {
    parsed(kind.parse_request(body.as_object().unwrap()))
}

/// The form of a partial result, behind the header.
fn check(query: &Query, form: &str, partial_result: &[&[u8]]) {
    let bytes = partial(&world(), query).to_bytes().unwrap();
    let form_length = u8::try_from(form.len()).unwrap();
    let body = [&[form_length], form.as_bytes(), &partial_result.concat()].concat();
    assert_eq!(&bytes[5..], body, "{form}");
    let checksum = crc32fast::hash(&body).to_le_bytes();
    assert_eq!(bytes[..5], [&[VERSION][..], &checksum].concat());
}

#[test]
fn the_form_of_trends() {
    check(
        &node(json!({"kind": "TrendsQuery"}), &["in"]),
        "trend",
        &[
            // One series and period, no breakdown.
            &[1, 0, 0],
            // Counts of two days.
            &[0, 2, 1, 0],
            // 96 bytes and 8 for each count, within the limit.
            &[112, 0],
        ],
    );
}

#[test]
fn the_form_of_funnels() {
    check(
        &node(json!({"kind": "FunnelsQuery"}), &["in", "out"]),
        "funnel",
        &[
            // One row, its key without values.
            &[1, 0],
            // Two steps that one actor reached.
            &[2, 1, 1],
            // No duration of the first step; two seconds of the second one, as 4,000,000.
            &[2, 0, 1, 0x80, 0x92, 0xf4, 0x01],
        ],
    );
}

#[test]
fn the_form_of_correlations() {
    let body = json!({
        "events": [{"id": "in", "order": 0}, {"id": "out", "order": 1}], "date_from": "2024-01-01",
        "funnel_correlation_type": "events",
    });
    check(
        &request(InsightKind::Correlation, &body),
        "correlation",
        &[
            // One success, no failure.
            &[1, 0],
            // One candidate: event, property and value, and its successes and failures.
            &[1, 1, b'x', 0, 0, 1, 0],
            // A byte of text, within the limit.
            &[1, 0],
        ],
    );
}

#[test]
fn the_form_of_retention() {
    let entity = |event: &str| json!({"id": event, "type": "events"});
    let filter = json!({"totalIntervals": 2, "period": "Day", "targetEntity": entity("in"),
        "returningEntity": entity("in")});
    check(
        &node(json!({"kind": "RetentionQuery", "retentionFilter": filter}), &[]),
        "retention",
        &[
            // The empty text has code 0.
            &[1, 0, 0],
            // Two columns; the first row of cells for the first period of code 0.
            &[2, 1, 1, 1],
            // Cells: one actor started, none returned. Nothing is added up.
            &[2, 1, 0, 0, 0],
            // 24 bytes for the list, 4 for the period, 8 for the cells, within the limit.
            &[36, 0],
        ],
    );
}

#[test]
fn the_form_of_paths() {
    let filter = json!({"includeEventTypes": ["custom_event"], "excludeEvents": ["x"]});
    check(
        &node(json!({"kind": "PathsQuery", "pathsFilter": filter}), &[]),
        "path",
        &[
            // The names by code.
            &[2, 2, b'i', b'n', 3, b'o', b'u', b't'],
            // One passage: number of the first step, codes of both steps.
            &[1, 1, 0, 1],
            // It occurs once and takes two seconds, as 4,000,000.
            &[1, 0x80, 0x92, 0xf4, 0x01],
            // Within the limit.
            &[0],
        ],
    );
}

#[test]
fn the_form_of_stickiness() {
    check(
        &node(json!({"kind": "StickinessQuery"}), &["in"]),
        "stickiness",
        &[
            // In series 0, no actor is active in no interval, one in one.
            &[1, 0, 2, 0, 1],
            // No values, which take no bytes, within the limit.
            &[0, 0, 0],
        ],
    );
}

#[test]
fn the_form_of_lifecycles() {
    check(
        &node(json!({"kind": "LifecycleQuery"}), &["in"]),
        "lifecycle",
        &[
            // One actor is new on the first day; none returns or resurrects; one is dormant on the second day.
            &[1, 1],
            &[0],
            &[0],
            &[2, 0, 1],
        ],
    );
}

#[test]
fn the_form_of_flag_impacts() {
    let series = json!({"kind": "EventsNode", "event": "in", "math": "sum", "math_property": "n"});
    let variants = json!([{"key": "control", "share": 50}, {"key": "t", "share": 50}]);
    let impact = json!({
        "flag": {"key": "f", "variants": variants}, "query": {"kind": "TrendsQuery", "series": [series]},
        "dateRange": {"date_from": "2024-01-01", "date_to": "2024-01-02"}, "method": "frequentist",
    });
    let fraction = [0x80; 9];
    check(
        &request(InsightKind::FlagImpact, &json!({ "impact": impact })),
        "flag_impact",
        &[
            // One actor saw `t`, and did what is added up.
            &[1, 1, b't', 1, 1],
            // One number, 2.5 as 5 * 2^63, which is 5 * 2^64 as a signed integer; no parts.
            &[1],
            &fraction,
            &[0x0a, 0],
            // Its square, 6.25 as 25 * 2^62, which is 25 * 2^63; no parts.
            &fraction,
            &[0x19, 0],
            // No actor saw several variants.
            &[0],
        ],
    );
}

/// Parts of several kinds in one structure, with fields of other types.
#[test]
fn parts_are_encoded_as_fields() {
    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Part {
        partial: PartitionResult,
        people: Vec<MatchedActor>,
        others: Vec<PartitionResult>,
        seconds: f64,
    }
    let people = vec![MatchedActor {
        actor: Uuid::from_u128(0x0102),
        key: Some("k".to_owned()),
        times: vec![-1, 64],
        appearances: vec![true, false],
    }];
    let of_person = [&[16][..], &[0; 14], &[1, 2], &[1, 1, b'k'], &[2, 1, 0x80, 0x01], &[2, 1, 0]].concat();
    assert_eq!(encode(&people).unwrap()[5..], [&[1][..], &of_person].concat());
    let trend = partial(&world(), &node(json!({"kind": "TrendsQuery"}), &["in"]));
    let funnel = partial(&world(), &node(json!({"kind": "FunnelsQuery"}), &["in", "out"]));
    let others = vec![PartitionResult::default(), funnel];
    let part = Part { partial: trend, people, others, seconds: -0.0 };
    let decoded: Part = decode(&encode(&part).unwrap()).unwrap();
    assert_eq!(decoded, part);
    assert_eq!(decoded.seconds.to_bits(), part.seconds.to_bits());
}

/// Nothing but an empty form: no actors were counted.
#[test]
fn the_form_of_no_actors() {
    let bytes = PartitionResult::default().to_bytes().unwrap();
    // The CRC-32 of one zero is 0xd202ef8d.
    assert_eq!(bytes, [VERSION, 0x8d, 0xef, 0x02, 0xd2, 0]);
    assert_eq!(PartitionResult::from_bytes(&bytes), Ok(PartitionResult::default()));
}
