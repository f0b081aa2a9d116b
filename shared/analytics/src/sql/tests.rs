#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::limits;
use crate::scan::{ColumnKey, JoinedColumnKey};
use pennon_filters::ComparisonBudget;

const ZONE: Tz = chrono_tz::America::New_York;

/// 2020-01-02T03:04:05.678Z, the evening before in New York.
const AT: i64 = 1_577_934_245_678_000;

fn text_column(values: Vec<Json>) -> Column {
    let codes =
        (0..).zip(&values).map(|(code, value)| if value.is_null() { MISSING } else { code }).collect();
    Column::new(codes, values)
}

/// A run of rows whose properties are these objects, all of them of the person `{"plan": "free"}`.
fn run(rows: &[Json]) -> EventRun {
    let count = rows.len();
    let mut run = EventRun {
        event: "sign up".to_owned(),
        actors: vec![0; count].into(),
        times: (0..).map(|row| AT + row * 1_000_000).take(count).collect(),
        order: (0..).take(count).collect(),
        ..EventRun::default()
    };
    for key in ["a", "b", "$c", "odd name", "order"] {
        let values = rows.iter().map(|row| row.get(key).cloned().unwrap_or(Json::Null)).collect();
        run.columns.insert(ColumnKey::Property(key.to_owned()), text_column(values));
    }
    let all = |value: &str| text_column(vec![json!(value); count]);
    run.columns.insert(ColumnKey::DistinctId, all("u1"));
    run.joined_columns.insert(JoinedColumnKey::PersonId, all("p1"));
    run.joined_columns.insert(JoinedColumnKey::Person("plan".to_owned()), all("free"));
    run.joined_columns
        .insert(JoinedColumnKey::Group(1, "size".to_owned()), text_column(vec![json!(40); count]));
    run.joined_columns.insert(
        JoinedColumnKey::Session("$session_duration".to_owned()),
        text_column(vec![json!(90); count]),
    );
    run
}

fn program(text: &str) -> CompiledExpression {
    Expression::parse(text, "sql").unwrap().compile(ZONE, &mut CompileBudget::default(), "sql").unwrap()
}

/// The value of an expression for one event; null for what is missing.
fn value(text: &str, properties: Json) -> Json {
    let run = run(&[properties]);
    program(text).column(&run, &WorkBudget::new(&|| false)).unwrap().value(0).cloned().unwrap_or(Json::Null)
}

fn refusal(text: &str) -> String {
    let error = Expression::parse(text, "sql").unwrap_err();
    assert_eq!(error.attr.as_deref(), Some("sql"), "{text}");
    error.detail
}

fn check(cases: &[(&str, Json, Json)]) {
    for (text, properties, expected) in cases {
        assert_eq!(value(text, properties.clone()), *expected, "{text} of {properties}");
    }
}

#[test]
fn every_documented_field_is_read() {
    check(&[
        ("event", json!({}), json!("sign up")),
        ("timestamp", json!({}), json!("2020-01-01 22:04:05.678000")),
        ("distinct_id", json!({}), json!("u1")),
        ("person_id", json!({}), json!("p1")),
        ("properties.a", json!({"a": "x"}), json!("x")),
        ("properties.$c", json!({"$c": 1.5}), json!(1.5)),
        ("properties.`odd name`", json!({"odd name": true}), json!("true")),
        ("properties.\"odd name\"", json!({"odd name": [1, "x"]}), json!("[1,\"x\"]")),
        ("properties.order", json!({"order": 7}), json!(7)),
        ("person.properties.plan", json!({}), json!("free")),
        ("group_1.properties.size", json!({}), json!(40)),
        ("session.$session_duration", json!({}), json!(90)),
        ("properties.a", json!({}), Json::Null),
        // Too large for a float to hold exactly.
        ("properties.a", json!({"a": 9_007_199_254_740_993_u64}), json!("9007199254740993")),
    ]);
}

#[test]
fn each_column_is_required_once() {
    let program =
        program("concat(properties.a, properties.a, person.properties.plan, group_1.properties.size)");
    let mut keys = Vec::new();
    program.for_each_column(&mut |key| keys.push(key.clone()));
    let person = ColumnRef::Joined(JoinedColumnKey::Person("plan".to_owned()));
    let group = ColumnRef::Joined(JoinedColumnKey::Group(1, "size".to_owned()));
    assert_eq!(keys, [ColumnRef::Event(ColumnKey::Property("a".to_owned())), person, group]);
}

#[test]
fn arithmetic_takes_numbers_and_numeric_texts_and_is_missing_where_one_is() {
    check(&[
        ("properties.a + 1", json!({"a": 2}), json!(3)),
        ("properties.a + 1", json!({"a": "2"}), json!(3)),
        ("properties.a + 1", json!({"a": "x"}), Json::Null),
        ("properties.a + 1", json!({}), Json::Null),
        ("properties.a + 1", json!({"a": true}), Json::Null),
        ("1 + 2 * 3 - 4 / 2", json!({}), json!(5)),
        ("(1 + 2) * 3", json!({}), json!(9)),
        ("-properties.a % 3", json!({"a": 7}), json!(-1)),
        ("7 / 2", json!({}), json!(3.5)),
        ("7 / 0", json!({}), Json::Null),
        ("7 % 0", json!({}), Json::Null),
        ("1 - -1", json!({}), json!(2)),
    ]);
}

#[test]
fn comparisons_are_true_or_false_for_missing_values() {
    check(&[
        ("properties.a = 5", json!({"a": "5"}), json!(true)),
        ("properties.a = '5'", json!({"a": 5}), json!(true)),
        ("properties.a == 'x'", json!({"a": "x"}), json!(true)),
        ("properties.a != 'x'", json!({"a": "y"}), json!(true)),
        ("properties.a <> 'x'", json!({"a": "x"}), json!(false)),
        ("properties.a = 'x'", json!({}), json!(false)),
        ("properties.a != 'x'", json!({}), json!(true)),
        ("properties.a = null", json!({}), json!(true)),
        ("properties.a = properties.b", json!({}), json!(true)),
        ("properties.a != properties.b", json!({}), json!(false)),
        ("properties.a > 10", json!({"a": "9"}), json!(false)),
        ("properties.a > 8", json!({"a": "9"}), json!(true)),
        ("properties.a < 'b'", json!({"a": "a"}), json!(true)),
        ("properties.a < 10", json!({}), json!(false)),
        ("properties.a >= 10", json!({"a": 10}), json!(true)),
        ("properties.a <= 10", json!({"a": "ten"}), json!(false)),
        ("properties.a = true", json!({"a": true}), json!(true)),
        ("properties.a = false", json!({"a": true}), json!(false)),
        ("properties.a = 'true'", json!({"a": true}), json!(true)),
        ("not (properties.a = 'x')", json!({}), json!(true)),
        ("properties.a is null", json!({}), json!(true)),
        ("properties.a is not null", json!({"a": ""}), json!(true)),
        ("properties.a in ('x', 5)", json!({"a": "5"}), json!(true)),
        ("properties.a in ('x', 5)", json!({}), json!(false)),
        ("properties.a not in ('x')", json!({}), json!(true)),
        ("properties.a not in ('x')", json!({"a": "x"}), json!(false)),
        ("1 = 1 and 2 = 2 or 1 = 2", json!({}), json!(true)),
        ("1 = 2 and (2 = 2 or 1 = 1)", json!({}), json!(false)),
        ("not 1 = 2 and 1 = 1", json!({}), json!(true)),
    ]);
}

#[test]
fn like_supports_two_wildcards_and_is_case_sensitive() {
    check(&[
        ("properties.a like 'x%'", json!({"a": "xyz"}), json!(true)),
        ("properties.a like 'X%'", json!({"a": "xyz"}), json!(false)),
        ("properties.a ilike 'X%'", json!({"a": "xyz"}), json!(true)),
        ("properties.a like '%y%'", json!({"a": "xyz"}), json!(true)),
        ("properties.a like 'x_z'", json!({"a": "xyz"}), json!(true)),
        ("properties.a like 'x_'", json!({"a": "xyz"}), json!(false)),
        ("properties.a like '%a%b%c'", json!({"a": "1a2ab3bc"}), json!(true)),
        ("properties.a like '100\\\\%'", json!({"a": "100%"}), json!(true)),
        ("properties.a like '100\\\\%'", json!({"a": "1000"}), json!(false)),
        ("properties.a not like 'x%'", json!({"a": "xyz"}), json!(false)),
        ("properties.a not like 'x%'", json!({}), json!(true)),
        ("properties.a like '%'", json!({}), json!(false)),
        ("properties.a not ilike '%Q%'", json!({"a": "q"}), json!(false)),
    ]);
}

#[test]
fn choices_are_made_by_condition() {
    check(&[
        ("properties.a ? 'yes' : 'no'", json!({"a": true}), json!("yes")),
        ("properties.a ? 'yes' : 'no'", json!({}), json!("no")),
        ("properties.a > 1 ?1:2", json!({"a": 2}), json!(1)),
        ("properties.a = 1 ? 'x' : properties.a = 2 ? 'y' : 'z'", json!({"a": 2}), json!("y")),
        ("properties.a = 1 ? 'x' : properties.a = 2 ? 'y' : 'z'", json!({"a": 3}), json!("z")),
        ("properties.a ? properties.b : properties.$c", json!({"a": 0, "$c": "c"}), json!("c")),
        ("if(properties.a > 1, 'big', 'small')", json!({"a": 5}), json!("big")),
        ("ifNull(properties.a, 'none')", json!({}), json!("none")),
        ("coalesce(properties.a, properties.b, 3)", json!({"b": "b"}), json!("b")),
        ("nullIf(properties.a, 'x')", json!({"a": "x"}), Json::Null),
        ("nullIf(properties.a, 'x')", json!({"a": "y"}), json!("y")),
        ("multiIf(properties.a = 1, 'x', properties.a = 2, 'y', 'z')", json!({"a": 2}), json!("y")),
        ("multiIf(properties.a = 1, 'x', properties.a = 2, 'y', 'z')", json!({}), json!("z")),
    ]);
}

#[test]
fn functions_of_texts_and_numbers() {
    check(&[
        ("concat(person.properties.plan, ' : ', properties.a)", json!({"a": 5.0}), json!("free : 5")),
        ("concat(properties.a, '-', properties.b)", json!({"b": "b"}), json!("-b")),
        ("toString(properties.a)", json!({"a": 5}), json!("5")),
        ("toFloat(properties.a)", json!({"a": "5.5"}), json!(5.5)),
        ("toInt(properties.a)", json!({"a": "-5.7"}), json!(-5)),
        ("toInt(properties.a)", json!({"a": "x"}), Json::Null),
        ("lower(properties.a)", json!({"a": "ÄB"}), json!("äb")),
        ("UPPER(properties.a)", json!({"a": "äb"}), json!("ÄB")),
        ("trim(properties.a)", json!({"a": "  x y "}), json!("x y")),
        ("length(properties.a)", json!({"a": "abc"}), json!(3)),
        ("length(splitByChar('/', properties.a))", json!({"a": "a/b/c"}), json!(3)),
        ("splitByChar('/', properties.a)", json!({"a": "a/b"}), json!("[\"a\",\"b\"]")),
        ("round(properties.a)", json!({"a": 2.6}), json!(3)),
        ("round(properties.a, 1)", json!({"a": 2.64}), json!(2.6)),
        ("floor(properties.a)", json!({"a": -2.5}), json!(-3)),
        ("ceil(properties.a)", json!({"a": 2.1}), json!(3)),
        ("abs(properties.a)", json!({"a": "-3"}), json!(3)),
        ("floor(properties.a)", json!({"a": "x"}), Json::Null),
        ("replaceAll(properties.a, 'a', 'bb')", json!({"a": "banana"}), json!("bbbnbbnbb")),
        ("replaceAll(properties.a, '', 'x')", json!({"a": "ab"}), json!("ab")),
        ("extract(properties.a, 'v([0-9]+)')", json!({"a": "app v12"}), json!("12")),
        ("extract(properties.a, '[0-9]+')", json!({"a": "app v12"}), json!("12")),
        ("extract(properties.a, '[0-9]+')", json!({"a": "app"}), json!("")),
        ("match(properties.a, '^a.*z$')", json!({"a": "abcz"}), json!(true)),
        ("match(properties.a, '^a')", json!({}), Json::Null),
        ("'it''s'", json!({}), json!("it's")),
    ]);
}

#[test]
fn dates_are_those_of_the_zone() {
    check(&[
        ("toDate(timestamp)", json!({}), json!("2020-01-01")),
        ("toStartOfDay(timestamp)", json!({}), json!("2020-01-01 00:00:00")),
        ("toStartOfHour(timestamp)", json!({}), json!("2020-01-01 22:00:00")),
        ("toString(toDate(timestamp))", json!({}), json!("2020-01-01")),
        ("toDate(properties.a)", json!({"a": "2020-01-02T03:00:00Z"}), json!("2020-01-01")),
        ("toDate(properties.a)", json!({"a": "soon"}), Json::Null),
        ("timestamp >= '2020-01-01 22:04:05'", json!({}), json!(true)),
        ("timestamp < '2020-01-01 22:04:05.7'", json!({}), json!(true)),
        ("timestamp < '2020-01-02T03:04:05Z'", json!({}), json!(false)),
        ("toDate(timestamp) = '2020-01-01'", json!({}), json!(true)),
        ("toDate(timestamp) = toDate('2020-01-02')", json!({}), json!(false)),
        ("timestamp > toStartOfDay(timestamp)", json!({}), json!(true)),
        ("toInt(timestamp)", json!({}), json!(1_577_934_245)),
    ]);
}

#[test]
fn each_node_of_each_distinct_row_counts_as_a_comparison() {
    let run = run(&[json!({"a": "x"}), json!({"a": "y"})]);
    // The operator and both of its operands, for two rows.
    let column = |most: u64| {
        let program = program("properties.a = properties.b");
        ComparisonBudget::of(most).pass(&|| false, |work| program.column(&run, work).map(drop))
    };
    assert_eq!((column(6), column(5)), (Ok(()), Err(limits::too_many_evaluations())));
}

#[test]
fn each_distinct_row_is_calculated_once_and_rows_keep_their_order() {
    let rows = [json!({"a": "x"}), json!({"a": "y"}), json!({"a": "x"}), json!({})];
    let mut run = run(&rows);
    // A dictionary without repetitions, as the store makes it.
    let a = Column::new(vec![0, 1, 0, MISSING], vec![json!("x"), json!("y")]);
    run.columns.insert(ColumnKey::Property("a".to_owned()), a);
    let work = &WorkBudget::new(&|| false);
    let column = program("concat(properties.a, '!')").column(&run, work).unwrap();
    assert_eq!(column.codes, [0, 1, 0, 2]);
    assert_eq!(**column.values, [json!("x!"), json!("y!"), json!("!")]);
    assert_eq!(
        program("properties.a = 'x'").mask(&run, work).unwrap(),
        Mask::Rows(vec![true, false, true, false])
    );
    assert_eq!(program("properties.a = 'z'").mask(&run, work).unwrap(), Mask::Nothing);
    assert_eq!(program("event = 'sign up'").mask(&run, work).unwrap(), Mask::Every);
    assert_eq!(program("1").mask(&run, work).unwrap(), Mask::Every);
    assert_eq!(program("properties.a").mask(&run, work).unwrap(), Mask::Nothing);
    let late = program("timestamp >= '2020-01-02T03:04:07Z'").mask(&run, work).unwrap();
    assert_eq!(late, Mask::Rows(vec![false, false, true, true]));
    let days = program("toDate(timestamp)").column(&run, work).unwrap();
    assert_eq!((&days.codes[..], days.values.len()), (&[0; 4][..], 1));
}

#[test]
fn unsupported_expressions_are_rejected_by_name() {
    for (text, named) in [
        ("", "cannot be read"),
        ("properties.a =", "cannot be read"),
        ("properties.a) or (1", "cannot be read"),
        ("select 1", "cannot be read"),
        ("foo", "the field foo"),
        ("properties", "the field properties"),
        ("properties.a.b", "the field properties.a.b"),
        ("person.name", "the field person.name"),
        ("group_7.properties.a", "the field group_7.properties.a"),
        ("session.other", "the field session.other"),
        ("cityHash64(properties.a)", "the function cityHash64()"),
        ("now()", "the function now()"),
        ("case when 1 then 2 end", "case"),
        ("cast(1 as String)", "cast"),
        ("properties.a between 1 and 2", "between"),
        ("properties.a in (select 1)", "queries"),
        ("properties['a']", "[ ]"),
        ("properties.a || 'x'", "||"),
        ("properties.a ~ 'x'", "~"),
        ("x -> 1", "the operator ->"),
        ("interval '1 day'", "interval"),
        ("timestamp + 1", "arithmetic with dates"),
        ("round(toDate(timestamp))", "arithmetic with dates"),
        ("if(properties.a, timestamp, timestamp) - 1", "arithmetic with dates"),
        ("count()", "count() is of many events"),
        ("sum(properties.a) > 1", "sum() is of many events"),
        ("lower()", "lower() does not take 0 arguments"),
        ("multiIf(1, 2)", "multiIf() does not take 2 arguments"),
        ("multiIf(1, 2, 3, 4)", "multiIf() does not take 4 arguments"),
        ("lower(distinct properties.a)", "distinct in lower()"),
        ("match(properties.a, properties.b)", "pattern of match()"),
        ("lower(*)", "arguments of lower()"),
    ] {
        let detail = refusal(text);
        assert!(detail.contains(named), "{text}: {detail}");
    }
    let expression = Expression::parse("match(properties.a, '(')", "sql").unwrap();
    let error = expression.compile(ZONE, &mut CompileBudget::default(), "sql").unwrap_err();
    assert_eq!(error.detail, "\"(\" is not a valid regular expression.");
    let error = program_budget(limits::REGEXES + 1).unwrap_err();
    assert!(error.detail.starts_with("Too many regular expressions"), "{error}");
    assert!(program_budget(limits::REGEXES).is_ok());
}

fn program_budget(patterns: usize) -> CalcResult<CompiledExpression> {
    let text = vec!["match(event, 'a')"; patterns].join(" or ");
    Expression::parse(&text, "sql")?.compile(ZONE, &mut CompileBudget::default(), "sql")
}

#[test]
fn length_depth_and_parts_are_limited() {
    let long = |bytes: usize| format!("1{}", " ".repeat(bytes - 1));
    assert!(Expression::parse(&long(limits::EXPRESSION_BYTES), "sql").is_ok());
    assert!(refusal(&long(limits::EXPRESSION_BYTES + 1)).contains("too long"));
    // Chains of `and` are one level, however long; chains of signs are nested.
    assert_eq!(value(&vec!["1"; limits::EXPRESSION_NODES - 1].join(" or "), json!({})), json!(true));
    assert!(refusal(&vec!["1"; limits::EXPRESSION_NODES].join(" or ")).contains("Too many parts"));
    assert!(refusal(&vec!["1"; 2000].join("+")).contains("Too many levels"));
    assert_eq!(
        value(&vec!["1"; limits::EXPRESSION_DEPTH].join("+"), json!({})),
        json!(limits::EXPRESSION_DEPTH)
    );
    assert!(refusal(&vec!["1"; limits::EXPRESSION_DEPTH + 2].join("+")).contains("Too many levels"));
    // However it is nested, half a thread's stack is enough.
    let nested = || {
        for open in
            ["(", "not ", "-", "lower(", "if(1,", "case ", "1 ? ", "1 in (", "(select ", "x -> ", "1+"]
        {
            let text = open.repeat(4_000 / open.len());
            let _ = refusal(&text);
            let _ = refusal(&format!("{text}1"));
        }
    };
    std::thread::Builder::new().stack_size(1 << 20).spawn(nested).unwrap().join().unwrap();
    assert!(refusal(&format!("{}1{}", "(".repeat(200), ")".repeat(200))).contains("Too many levels"));
}

#[test]
fn texts_do_not_grow_without_bound() {
    let doubled =
        (0..12).fold("properties.a".to_owned(), |text, _| format!("replaceAll({text}, 'a', 'aaaaaaaaaa')"));
    assert_eq!(value(&doubled, json!({"a": "a"})), Json::Null);
}

fn aggregation(text: &str) -> CompiledAggregate {
    Aggregate::parse(text, "math_hogql")
        .unwrap()
        .compile(ZONE, &mut CompileBudget::default(), "math_hogql")
        .unwrap()
}

/// The number for all rows, first with one accumulator, then with two that are merged in either order.
fn number(text: &str, rows: &[Json]) -> f64 {
    let aggregation = aggregation(text);
    let run = run(rows);
    let work = &WorkBudget::new(&|| false);
    let inputs = aggregation.inputs(&run, work).unwrap();
    let tally = |rows: &mut dyn Iterator<Item = usize>| {
        let mut tally = AggregateState::default();
        rows.for_each(|row| aggregation.add(&mut tally, &inputs, row));
        tally
    };
    let whole = aggregation.finish(&tally(&mut (0..rows.len())), work);
    let (mut even, mut odd) =
        (tally(&mut (0..rows.len()).step_by(2)), tally(&mut (1..rows.len()).step_by(2)));
    let (first, second) = (even.clone(), odd.clone());
    even.merge(second);
    odd.merge(first);
    for merged in [even, odd] {
        assert!((aggregation.finish(&merged, work) - whole).abs() < 1e-12, "{text}");
    }
    whole
}

/// As in a trend: one accumulator per bucket, the matching rows of each run, merged partial results, one number per bucket.
#[test]
fn aggregates_of_events() {
    let rows = [
        json!({"a": 1, "b": "x"}),
        json!({"a": "2.5", "b": "y"}),
        json!({"a": "none", "b": "x"}),
        json!({"b": true}),
        json!({"a": 4}),
    ];
    for (text, expected) in [
        ("count()", 5.0),
        ("count(*)", 5.0),
        ("count(properties.a)", 4.0),
        ("count(distinct properties.b)", 3.0),
        ("uniq(properties.b)", 3.0),
        ("sum(properties.a)", 7.5),
        ("avg(properties.a)", 2.5),
        ("avg(properties.a) + 1000", 1002.5),
        ("min(properties.a)", 1.0),
        ("max(properties.a)", 4.0),
        ("median(properties.a)", 2.5),
        ("quantile(0.9)(properties.a)", 3.7),
        ("any(properties.a)", 1.0),
        ("sumIf(properties.a, properties.b = 'x')", 1.0),
        ("countIf(properties.b = 'x')", 2.0),
        ("avgIf(properties.a, properties.a > 1)", 3.25),
        ("sum(properties.a) / count()", 1.5),
        ("count() >= 5", 1.0),
        ("round(sum(properties.a * 2) % 4)", 3.0),
        ("if(count() > 10, 1, 2)", 2.0),
        // No values were added up, so there is no sum.
        ("sum(properties.$c) + 5", 0.0),
        ("countIf(properties.$c = 1) + 5", 5.0),
        ("ifNull(avg(properties.$c), 7)", 7.0),
        ("sum(properties.b)", 0.0),
    ] {
        let got = number(text, &rows);
        assert!((got - expected).abs() < 1e-12, "{text}: {got} instead of {expected}");
        assert_eq!(number(text, &[]), 0.0, "{text} of no event");
    }
}

/// The levels and results that the contract gives for the numbers 101 to 200.
#[test]
fn quantiles_lie_between_two_numbers_in_proportion() {
    let rows: Vec<Json> = (101..=200).rev().map(|a| json!({"a": a})).collect();
    for (level, expected) in [(0.5, 150.5), (0.75, 175.25), (0.9, 190.1), (0.95, 195.05), (0.99, 199.01)] {
        let got = number(&format!("quantile({level})(properties.a)"), &rows);
        assert!((got - expected).abs() < 1e-9, "{level}: {got} instead of {expected}");
    }
}

#[test]
fn sums_do_not_depend_on_the_order_of_their_parts() {
    let mut rows = vec![json!({"a": 1e16}), json!({"a": -1e16})];
    rows.extend(vec![json!({"a": 0.1}); 10]);
    let got = number("sum(properties.a)", &rows);
    assert!((got - 1.0).abs() < 1e-9, "{got}");
}

#[test]
fn expressions_that_are_not_aggregates_are_rejected() {
    for (text, named) in [
        ("properties.a", "must stand inside of an aggregate"),
        ("1 + 2", "no aggregate"),
        ("sum(properties.a) + properties.b", "properties.b is a value of one event"),
        ("sum(avg(properties.a))", "aggregates inside each other"),
        ("sum()", "sum() does not take 0 arguments"),
        ("sum(properties.a, 1)", "sum() does not take 2 arguments"),
        ("sumIf(properties.a)", "sumIf() does not take 1 arguments"),
        ("count(distinct)", "cannot be read"),
        ("sum(distinct properties.a)", "distinct in sum()"),
        ("quantile(2)(properties.a)", "from 0 to 1"),
        ("quantile(properties.b)(properties.a)", "must stand inside"),
        ("sum(1)(properties.a)", "parameters of sum()"),
        ("sum(timestamp)", "sum() of dates"),
        ("sum(properties.a) over ()", "clauses behind sum()"),
        ("count() filter (where 1 = 1)", "cannot be read"),
        ("stddevPop(properties.a)", "the function stddevPop()"),
    ] {
        let error = Aggregate::parse(text, "math_hogql").unwrap_err();
        assert!(error.detail.contains(named), "{text}: {error}");
        assert_eq!(error.attr.as_deref(), Some("math_hogql"));
    }
}

proptest! {
    #[test]
    fn no_text_panics(text in "(properties\\.a|event|[-+*/%=<>!?:(),'`\"0-9. ]| and | or | not |like|in|is|null|count|sum|if|concat|\\$|é){0,30}") {
        if let Ok(expression) = Expression::parse(&text, "sql")
            && let Ok(program) = expression.compile(ZONE, &mut CompileBudget::default(), "sql")
        {
            let run = run(&[json!({"a": 1}), json!({"a": "x"})]);
            prop_assert_eq!(program.column(&run, &WorkBudget::new(&|| false)).unwrap().codes.len(), 2);
        }
        let _ = Aggregate::parse(&text, "sql");
    }
}
