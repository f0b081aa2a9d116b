//! Each operator against the table of the contract.
#![allow(clippy::unwrap_used)]

use chrono_tz::Tz;
use pennon_filters::body::timestamp;
use pennon_filters::operator::FilterSide;
use serde_json::json;

use super::*;

fn compiler(zone: Tz) -> FlagCompiler {
    FlagCompiler::new(zone)
}

fn now() -> DateTime<Utc> {
    timestamp::parse("2022-05-01T00:00:00Z").unwrap()
}

fn holds_in(compiler: &FlagCompiler, operator: &str, value: &Value, given: Option<&Value>) -> bool {
    let operator = Operator::parse(operator, FilterSide::Flags);
    let predicate = operator.and_then(|operator| PropertyPredicate::new(operator, Some(value), compiler));
    predicate
        .and_then(|predicate| predicate.holds(given.map(ComparableValue::from), now(), SlowSearches::Allowed))
        == Some(true)
}

fn holds(operator: &str, value: &Value, given: Option<&Value>) -> bool {
    holds_in(&compiler(Tz::UTC), operator, value, given)
}

/// The operator matches exactly the values in `yes`; an absent property matches if `absent` is true.
#[track_caller]
fn passes(operator: &str, value: Value, yes: &[Value], no: &[Value], absent: bool) {
    for (given, expected) in
        yes.iter().map(|given| (given, true)).chain(no.iter().map(|given| (given, false)))
    {
        assert_eq!(holds(operator, &value, Some(given)), expected, "{given} {operator} {value}");
    }
    assert_eq!(holds(operator, &value, None), absent, "nothing {operator} {value}");
}

/// The same for an operator and its negation, which passes the others and what is absent.
#[track_caller]
fn passes_negated(operator: &str, negation: &str, value: Value, yes: &[Value], no: &[Value]) {
    passes(operator, value.clone(), yes, no, false);
    passes(negation, value, no, yes, true);
}

#[test]
fn exact_compares_lower_cased_texts() {
    let exact = |value, yes: &[Value], no: &[Value]| passes_negated("exact", "is_not", value, yes, no);
    exact(json!("Pro"), &[json!("pro"), json!("PRO")], &[json!("pr"), json!(""), json!(null), json!(1)]);
    exact(json!("Ünï"), &[json!("ÜNÏ"), json!("ünï")], &[json!("uni")]);
    exact(json!(25), &[json!("25"), json!(25)], &[json!(25.0), json!("25.0"), json!("025"), json!([25])]);
    exact(json!("25.0"), &[json!(25.0)], &[json!(25)]);
    exact(json!(["pro", "Team"]), &[json!("TEAM"), json!("pro")], &[json!("free"), json!(["pro", "Team"])]);
    exact(json!([1, "2"]), &[json!("1"), json!(2)], &[json!(3), json!(true)]);
    exact(json!({"a": "B"}), &[json!({"a": "b"}), json!("{\"A\":\"b\"}")], &[json!({"a": "c"})]);
    exact(json!(null), &[json!(null), json!("NULL")], &[json!("")]);
    exact(json!([]), &[], &[json!(""), json!([]), json!(true), json!(false)]);
}

#[test]
fn exact_compares_booleans_by_truth() {
    let truths = [json!(true), json!("true"), json!("TRUE")];
    let others = [json!(false), json!("false"), json!("yes"), json!(1), json!(null), json!([true])];
    for value in [json!(true), json!("True"), json!(["true"]), json!([true, "TRUE"])] {
        passes_negated("exact", "is_not", value, &truths, &others);
    }
    // A list is true when all of it is.
    for value in [json!(false), json!("FALSE"), json!(["false"]), json!([true, "false"])] {
        passes_negated("exact", "is_not", value, &others, &truths);
    }
    // One that is not of booleans only is compared as texts.
    passes_negated("exact", "is_not", json!(["true", "yes"]), &[json!(true), json!("YES")], &[json!(false)]);
    passes_negated("exact", "is_not", json!([[true]]), &[json!("[true]"), json!([true])], &[json!(true)]);
}

#[test]
fn equality_by_text() {
    let compiler = FlagCompiler::by_text(Tz::UTC);
    let equal = |value: Value, given: Value| holds_in(&compiler, "exact", &value, Some(&given));
    assert!(equal(json!([25]), json!(25)) && equal(json!([25]), json!("25")));
    assert!(equal(json!("pro"), json!("pro")) && !equal(json!("pro"), json!("Pro")));
    assert!(equal(json!(["true"]), json!(true)) && !equal(json!(false), json!("yes")));
}

#[test]
fn presence() {
    for value in [json!("is_set"), json!(null), json!([])] {
        passes_negated(
            "is_set",
            "is_not_set",
            value,
            &[json!(null), json!(""), json!(false), json!([])],
            &[],
        );
    }
    let predicate = PropertyPredicate::new(Operator::IsNotSet, None, &compiler(Tz::UTC)).unwrap();
    assert_eq!(predicate.holds(None, now(), SlowSearches::Allowed), Some(true));
    assert!(
        PropertyPredicate::new(Operator::Exact, None, &compiler(Tz::UTC)).is_none(),
        "a filter without a value"
    );
}

#[test]
fn parts_of_texts() {
    let contains =
        |value, yes: &[Value], no: &[Value]| passes_negated("icontains", "not_icontains", value, yes, no);
    contains(json!("@POSTHOG"), &[json!("Ann@PostHog.com")], &[json!("posthog"), json!("")]);
    contains(json!(3), &[json!("3"), json!(323), json!([1, 3])], &[json!("three"), json!(12)]);
    // Case is ignored for ASCII letters only.
    contains(json!("ü"), &[json!("für")], &[json!("FÜR")]);
    contains(json!("ul"), &[json!(null)], &[json!(true)]);
    contains(json!(""), &[json!(""), json!("a")], &[]);
    let multi = |value, yes: &[Value], no: &[Value]| {
        passes_negated("icontains_multi", "not_icontains_multi", value, yes, no);
    };
    multi(json!(["gmail", "HOTMAIL"]), &[json!("a@Hotmail.com"), json!("x@gmail.com")], &[json!("a@b.c")]);
    multi(json!("one"), &[json!("None")], &[json!("two")]);
    multi(json!([]), &[], &[json!("a"), json!("")]);
    let starts = |value, yes: &[Value], no: &[Value]| {
        passes_negated("starts_with", "not_starts_with", value, yes, no);
    };
    starts(json!("Ab"), &[json!("abc"), json!("ABC")], &[json!("xab"), json!("a")]);
    starts(json!(12), &[json!(123)], &[json!(312)]);
    let ends =
        |value, yes: &[Value], no: &[Value]| passes_negated("ends_with", "not_ends_with", value, yes, no);
    ends(json!(".COM"), &[json!("a.com")], &[json!("a.com/")]);
}

#[test]
fn patterns() {
    let regex = |value, yes: &[Value], no: &[Value]| passes_negated("regex", "not_regex", value, yes, no);
    regex(json!(r"^1\.[0-9]+$"), &[json!("1.12"), json!(1.5)], &[json!("11.1"), json!("1.x")]);
    regex(json!("b"), &[json!("abc")], &[json!("ABC"), json!(null)]);
    regex(json!(4), &[json!(4), json!("141")], &[json!("5")]);
    // One that does not compile matches nothing, negated or not.
    for operator in ["regex", "not_regex"] {
        for value in [json!("("), json!("(?=a)"), json!(["a", "("])] {
            passes(operator, value, &[], &[json!("a"), json!("("), json!("")], false);
        }
    }
}

#[test]
fn numbers() {
    let cases = [
        ("gt", [false, false, true]),
        ("gte", [false, true, true]),
        ("lt", [true, false, false]),
        ("lte", [true, true, false]),
    ];
    for (operator, expected) in cases {
        for value in [json!("30"), json!(30), json!("3e1")] {
            for (given, expected) in [29.5, 30.0, 100.0].into_iter().zip(expected) {
                assert_eq!(holds(operator, &value, Some(&json!(given))), expected, "{given} {operator}");
                let text = json!(given.to_string());
                assert_eq!(holds(operator, &value, Some(&text)), expected, "{text} {operator}");
            }
            passes(operator, value, &[], &[json!("old"), json!(true), json!(null), json!([31])], false);
        }
        for value in [json!("123aloha"), json!("xyz"), json!(""), json!(null), json!([30]), json!(true)] {
            passes(operator, value, &[], &[json!(129), json!(0), json!("xyz"), json!(null)], false);
        }
    }
}

#[test]
fn ranges_of_numbers() {
    let inside = [json!(1), json!("3"), json!(5.0)];
    let outside = [json!(0.9), json!("5.1"), json!(-3)];
    passes("between", json!([1, "5"]), &inside, &outside, false);
    passes("not_between", json!([1, 5]), &outside, &inside, true);
    let neither = [json!("x"), json!(null), json!(true)];
    passes("between", json!([1, 5]), &[], &neither, false);
    passes("not_between", json!([1, 5]), &[], &neither, true);
    for value in [json!([1]), json!([1, 2, 3]), json!([5, 1]), json!([1, "x"]), json!(1), json!("1,5")] {
        passes("between", value.clone(), &[], &inside, false);
        passes("not_between", value, &[], &inside, false);
    }
}

#[test]
fn instants() {
    let dates = |operator, value, yes: &[Value], no: &[Value]| passes(operator, value, yes, no, false);
    dates(
        "is_date_before",
        json!("2022-05-01"),
        &[
            json!("2022-03-01"),
            json!("2022-04-30 23:59:59.999"),
            json!("2022-05-01T00:30:00+02:00"),
            json!(0),
        ],
        &[
            json!("2022-05-30"),
            json!("2022-05-01"),
            json!("2022-05-01T00:00:00Z"),
            json!("random"),
            json!(null),
        ],
    );
    dates(
        "is_date_after",
        json!("2022-05-01 12:30"),
        &[json!("2022-05-01T12:30:00.000001"), json!(1_900_000_000), json!("1900000000.5")],
        &[json!("2022-05-01 12:30"), json!("2022-05-01 14:00+02:00"), json!(true), json!([])],
    );
    dates(
        "is_date_exact",
        json!("2022-05-01T10:00:00Z"),
        &[
            json!("2022-05-01 10:00"),
            json!("2022-05-01T12:00+02:00"),
            json!(1_651_399_200),
            json!("1651399200"),
        ],
        &[json!("2022-05-01"), json!(1_651_399_200.5), json!("2022-05-01T10:00:01Z")],
    );
    for operator in ["is_date_before", "is_date_after", "is_date_exact"] {
        for value in
            [json!("soon"), json!(1_651_399_200), json!("1651399200"), json!(null), json!(["2022-05-01"])]
        {
            dates(operator, value, &[], &[json!("2022-05-01"), json!("2000-01-01"), json!("2050-01-01")]);
        }
        // Neither end of time is an instant.
        dates(
            operator,
            json!("2022-05-01"),
            &[],
            &[json!(1e18), json!(-1e18), json!("1e300"), json!("0000-01-01")],
        );
    }
}

#[test]
fn relative_dates_count_back_from_now() {
    // Now is midnight of 1 May 2022.
    for (value, before, not_before) in [
        ("-6h", "2022-04-30 17:59:59", "2022-04-30 18:00:00"),
        ("6h", "2022-04-30 17:59:59", "2022-04-30 18:00:00"),
        ("12d", "2022-04-19 01:34:11+02:00", "2022-04-19 02:00:00+02:00"),
        ("-1w", "2022-04-23 23:59:59", "2022-04-24"),
        ("2m", "2022-02-28 23:59:59", "2022-03-01"),
        ("-1y", "2021-04-30 23:59:59", "2021-05-01"),
        ("02w", "2022-04-16 23:59:59", "2022-04-17"),
    ] {
        passes("is_date_before", json!(value), &[json!(before)], &[json!(not_before)], false);
    }
    // Ten thousand of anything, or years before the first, are no dates.
    for value in ["10000d", "9999y", "2023y"] {
        passes("is_date_after", json!(value), &[], &[json!("2022-04-30"), json!("2030-01-01")], false);
    }
}

#[test]
fn months_end_where_the_shorter_one_does() {
    let exact = |now: &str, value: &str, given: &str| {
        let predicate =
            PropertyPredicate::new(Operator::IsDateExact, Some(&json!(value)), &compiler(Tz::UTC)).unwrap();
        let given = json!(given);
        predicate.holds(
            Some(ComparableValue::from(&given)),
            timestamp::parse(now).unwrap(),
            SlowSearches::Allowed,
        ) == Some(true)
    };
    assert!(exact("2022-03-31T10:00:00Z", "1m", "2022-02-28 10:00"));
    assert!(exact("2024-02-29T10:00:00Z", "1y", "2023-02-28 10:00"));
    assert!(exact("2024-03-31T10:00:00Z", "1m", "2024-02-29 10:00"));
}

#[test]
fn naive_dates_are_in_the_zone_of_the_project() {
    let zone = chrono_tz::America::New_York;
    let compiler = compiler(zone);
    let exact =
        |value: &str, given: &str| holds_in(&compiler, "is_date_exact", &json!(value), Some(&json!(given)));
    assert!(exact("2022-05-01", "2022-05-01T04:00:00Z"));
    assert!(exact("2022-05-01T04:00:00Z", "2022-05-01"));
    assert!(exact("2022-01-01 10:00", "2022-01-01T15:00:00Z"));
    assert!(!exact("2022-05-01", "2022-05-01T00:00:00Z"));
    // Now is 30 April, 20:00 in New York: a month before is 30 March there, 31 March in UTC.
    assert!(exact("1m", "2022-03-30 20:00"));
}

#[test]
fn versions() {
    let given = ["1.2.3", "v1.2.3", "1.2.3+build.7", " 1.02.3 "].map(|text| json!(text));
    let below = ["1.2.2", "1.2.3-rc.1", "1.2", "0.9.9", "1"].map(|text| json!(text));
    let above = ["1.2.4", "1.10.0", "2.0.0-alpha", "2", "1.3"].map(|text| json!(text));
    let neither = ["", "v", "1.2.3.4", "1..2", "1.a", "latest", "1.2.3-", "1.2.3-a..b", "-1", "1.2.3-ä"]
        .map(|text| json!(text));
    let some = |lists: &[&[Value]]| lists.concat();
    for (operator, yes, no) in [
        ("semver_eq", some(&[&given]), some(&[&below, &above])),
        ("semver_neq", some(&[&below, &above]), some(&[&given])),
        ("semver_gt", some(&[&above]), some(&[&given, &below])),
        ("semver_gte", some(&[&above, &given]), some(&[&below])),
        ("semver_lt", some(&[&below]), some(&[&given, &above])),
        ("semver_lte", some(&[&below, &given]), some(&[&above])),
    ] {
        for value in ["1.2.3", "v1.2.3", "V01.2.3"] {
            passes(operator, json!(value), &yes, &some(&[&no, &neither]), false);
        }
        for value in &neither {
            passes(operator, value.clone(), &[], &some(&[&given, &below, &above, &neither]), false);
        }
    }
    passes(
        "semver_eq",
        json!(2),
        &[json!("2.0.0"), json!(2), json!(2.0)],
        &[json!("2.0.1"), json!(null)],
        false,
    );
    passes("semver_gt", json!("1.9"), &[json!("1.10")], &[json!("1.09"), json!("1.8.99")], false);
}

#[test]
fn order_before_a_release() {
    // The example of the semantic versioning specification, section 11.
    let order = [
        "1.0.0-alpha",
        "1.0.0-alpha.1",
        "1.0.0-alpha.beta",
        "1.0.0-beta",
        "1.0.0-beta.2",
        "1.0.0-beta.11",
        "1.0.0-rc.1",
        "1.0.0",
    ];
    for (place, low) in order.iter().enumerate() {
        for high in &order[place + 1..] {
            assert!(holds("semver_lt", &json!(high), Some(&json!(low))), "{low} < {high}");
            assert!(!holds("semver_gte", &json!(high), Some(&json!(low))), "{low} >= {high}");
        }
    }
}

#[test]
fn ranges_of_versions() {
    for (operator, value, yes, no) in [
        (
            "tilde",
            "1.2.3",
            &["1.2.3", "1.2.9", "1.2.9-rc.1"][..],
            &["1.2.2", "1.3.0", "1.3.0-rc.1", "2.2.3"][..],
        ),
        ("tilde", "1.2", &["1.2.0", "1.2.99"], &["1.3.0", "1.1.9"]),
        ("tilde", "1", &["1.0.9"], &["1.1.0"]),
        ("caret", "1.2.3", &["1.2.3", "1.9.0"], &["1.2.2", "2.0.0", "2.0.0-rc.1", "0.9.9"]),
        ("caret", "0.2.3", &["0.2.3", "0.2.9"], &["0.3.0", "0.2.2", "1.2.3"]),
        ("caret", "0.0.3", &["0.0.3"], &["0.0.4", "0.0.2", "0.1.0"]),
        ("caret", "0", &["0.0.0"], &["0.0.1", "0.1.0"]),
        ("wildcard", "1.2.*", &["1.2.0", "v1.2.99"], &["1.3.0", "1.1.9", "2.2.0"]),
        ("wildcard", "1.*", &["1.0.0", "1.99"], &["2.0.0", "0.9"]),
        ("wildcard", "1.x.x", &["1.0.0"], &["2.0.0"]),
        ("wildcard", "*", &["0.0.1", "7"], &["x", ""]),
        ("wildcard", "3.08.*", &["3.8.1"], &["3.80.1"]),
        ("wildcard", "1.*.3", &[], &["1.2.3", "1.0.0"]),
        ("wildcard", "1.2.3.*", &[], &["1.2.3"]),
        ("wildcard", "", &[], &["0.0.0", "1.0.0"]),
        ("tilde", "x", &[], &["1.0.0"]),
    ] {
        let json = |texts: &[&str]| texts.iter().map(|text| json!(text)).collect::<Vec<_>>();
        passes(&format!("semver_{operator}"), json!(value), &json(yes), &json(no), false);
    }
}

#[test]
fn unknown_operators_match_nothing() {
    for operator in
        ["in", "not_in", "flag_evaluates_to", "not_gt", "is_not_exact", "semver_", "semver_max", "", "Exact"]
    {
        passes(operator, json!("a"), &[], &[json!("a"), json!("b")], false);
    }
}

#[test]
fn operators_of_flags_on_properties_and_no_others_compile() {
    let values = [json!(1), json!([1, 2]), json!("1.2.3"), json!("2024-01-01")];
    for operator in Operator::ALL {
        let compiler = compiler(Tz::UTC);
        let compiles =
            values.iter().any(|value| PropertyPredicate::new(*operator, Some(value), &compiler).is_some());
        // Conditions on cohorts and on other flags.
        let is_on_property = !matches!(operator, Operator::In | Operator::NotIn | Operator::FlagEvaluatesTo);
        let expected = is_on_property && operator.is_available_to(FilterSide::Flags);
        assert_eq!(compiles, expected, "{operator:?}");
    }
}
