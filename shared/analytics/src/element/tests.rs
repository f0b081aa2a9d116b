#![allow(clippy::unwrap_used)]

use serde_json::{Value, json};

use super::chain::{parse_chain, parse_list};
use super::*;
use pennon_filters::ComparisonBudget;

const CHAIN: &str = r#"button.btn.md:flex:text="Pay \"now\""nth-child="2"nth-of-type="1"attr__data-attr="pay";a.link:href="/cart"attr_id="go"attr__href="/cart"nth-child="1";div#x;body.dark"#;

fn finds(selector: &str, chain: &str) -> bool {
    Selector::parse(selector).unwrap().matches(&parse_chain(&json!(chain)))
}

#[test]
fn a_chain_is_parsed() {
    let elements = parse_chain(&json!(CHAIN));
    let tags: Vec<&str> = elements.iter().map(|element| element.tag.as_str()).collect();
    assert_eq!(tags, ["button", "a", "div#x", "body"]);
    assert_eq!(elements[0].classes, ["btn", "md:flex"]);
    assert_eq!(elements[0].text.as_deref(), Some("Pay \"now\""));
    assert_eq!(elements[0].attribute("data-attr"), Some("pay"));
    assert_eq!(elements[1].href.as_deref(), Some("/cart"));
    assert_eq!(elements[1].attribute("id"), Some("go"));
}

#[test]
fn a_list_is_parsed_to_the_same_elements() {
    let list = json!([
        {"tag_name": "button", "$el_text": "Pay", "attr__class": "btn big", "nth_child": 2},
        {"tag_name": "a", "attr__href": "/cart", "attr__id": "go", "attr_class": ["link"]},
    ]);
    let chain = r#"button.btn.big:text="Pay"nth-child="2";a.link:href="/cart"attr__id="go""#;
    assert_eq!(parse_list(&list), parse_chain(&json!(chain)));
    assert_eq!(parse_list(&json!(list.to_string())), parse_list(&list));
}

#[test]
fn selectors_find_elements_anywhere_in_the_chain() {
    for (selector, found) in [
        ("button", true),
        ("input", false),
        ("*", true),
        (".btn", true),
        (".md\\:flex", true),
        ("button.btn.link", false),
        ("#go", true),
        ("a#go.link", true),
        ("[data-attr=\"pay\"]", true),
        ("[data-attr='sell']", false),
        ("button[data-attr=pay]:nth-child(2)", true),
        ("button:nth-child(1)", false),
        ("button:nth-of-type(1)", true),
        ("a > button", true),
        ("body > button", false),
        ("body button", true),
        ("body a > button", true),
        ("body > a > button", false),
        ("button a", false),
        ("a[href=\"/cart\"]", true),
        ("a[href^=\"/c\"]", true),
        ("a[href$=\"/c\"]", false),
        ("a[href*=ar]", true),
        ("input, a", true),
        ("input, b", false),
        ("[class~=btn]", true),
    ] {
        assert_eq!(finds(selector, CHAIN), found, "{selector}");
    }
}

#[test]
fn nested_elements_of_one_tag_are_distinguished() {
    // The child of the section is the outer div, the parent of the button is the inner one.
    let chain = "button;div.inner;div.outer;section";
    assert!(finds("section > div button", chain));
    assert!(finds("section > .outer > .inner > button", chain));
    assert!(!finds("section > .inner button", chain));
}

#[test]
fn invalid_selectors_are_rejected() {
    for text in [
        "",
        ">",
        "a >",
        "a,,b",
        "a:hover",
        "a[",
        "a[x",
        "a[x=\"y]",
        ".",
        "#",
        "a b:nth-child(n)",
        "a + b",
        "a{b}",
    ] {
        assert_eq!(Selector::parse(text), None, "{text}");
    }
    assert_eq!(Selector::parse(&vec!["a"; 65].join(" ")), None);
    assert!(Selector::parse(&vec!["a"; 64].join(" ")).is_some());
}

#[test]
fn parsing_never_fails() {
    for text in
        [";;;", ":", "a:b", "a:b=", "a:b=\"", "a:b=\"c", "a:b=\"\\", "::::=\"\"", "ü:ä=\"ö\";", "\"\"\""]
    {
        parse_chain(&json!(text));
    }
    for value in [json!(5), json!({}), json!([5, "a", null]), Value::Null] {
        parse_list(&value);
        parse_chain(&value);
    }
}

#[test]
fn each_test_of_each_distinct_chain_counts_as_a_comparison() {
    let tags = ElementTest::Tag { names: ["a".to_owned(), "b".to_owned()].into(), negated: false };
    let selectors = ElementTest::selectors(["a", "b", "c"].into_iter(), false, "properties").unwrap();
    let mut run =
        EventRun { event: "$autocapture".to_owned(), actors: vec![0; 2].into(), ..EventRun::default() };
    run.columns.insert(chain_column(), Column::new(vec![0, 1], vec![json!("a"), json!("div")]));
    // A set of tags is looked up once, and each selector is compared.
    for (test, comparisons) in [(tags, 2), (selectors, 6)] {
        let rows =
            |most: u64| ComparisonBudget::of(most).pass(&|| false, |work| test.rows(&run, work).map(drop));
        assert_eq!((rows(comparisons), rows(comparisons - 1)), (Ok(()), Err(limits::too_many_evaluations())));
    }
}
