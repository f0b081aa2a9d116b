#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use super::*;

fn value(text: &str, series: &[f64]) -> f64 {
    Formula::parse(text, series.len(), "formula").unwrap().evaluate(|index| series[index])
}

fn parse_error(text: &str) -> String {
    let error = Formula::parse(text, 2, "formula").unwrap_err();
    assert_eq!(error.attr.as_deref(), Some("formula"), "{text}");
    error.detail
}

/// Each expectation is what Python prints for the text with a = 12 and b = 5.
#[test]
fn arithmetic_matches_python() {
    let cases = [
        ("A + B", 17.0),
        ("a+2*b", 22.0),
        ("(A + B) * 2", 34.0),
        ("A - B - 1", 6.0),
        ("A / B", 2.4),
        ("A / B / 2", 1.2),
        ("A % B", 2.0),
        ("-A % B", 3.0),
        ("A % -B", -3.0),
        ("-A % -B", -2.0),
        ("2 ** 3 ** 2", 512.0),
        ("-2 ** 2", -4.0),
        ("(-2) ** 2", 4.0),
        ("2 ** -1", 0.5),
        ("2 * -3", -6.0),
        ("1 - -1", 2.0),
        ("+-+A", -12.0),
        ("A/B*100", 240.0),
        ("1.5e1 + .5 + 2.", 17.5),
        ("A*B**2", 300.0),
        ("7 % 4 * 2", 6.0),
        ("5.5 % 2", 1.5),
    ];
    for (text, expected) in cases {
        let got = value(text, &[12.0, 5.0]);
        assert!((got - expected).abs() < 1e-12, "{text}: {got} instead of {expected}");
    }
}

#[test]
fn undefined_results_are_zero() {
    for text in ["A / B", "A % B", "A / (B * 7)", "B ** -1", "(-A) ** 0.5", "A ** 10000", "-B"] {
        let got = value(text, &[12.0, 0.0]);
        assert_eq!(got.to_bits(), 0_f64.to_bits(), "{text}: {got}");
    }
    // Only the division is 0, not all that it stands in.
    assert_eq!(value("A / B + 1", &[12.0, 0.0]), 1.0);
}

#[test]
fn letters_are_case_insensitive_and_other_characters_are_skipped() {
    assert_eq!(value("B", &[1.0, 2.0]), 2.0);
    assert_eq!(value("  $a \u{a0}+ B; ", &[1.0, 2.0]), 3.0);
    let letters: Vec<f64> = (0..26).map(f64::from).collect();
    assert_eq!(value("z + Y", &letters), 49.0);
}

#[test]
fn invalid_formulas_are_rejected_with_the_cause() {
    assert_eq!(parse_error("A + C"), "The formula names C, which is no series.");
    assert_eq!(parse_error("A + total"), "The formula names TOTAL, which is no series.");
    assert_eq!(parse_error("sqrt(A)"), "A formula knows arithmetic between series only, no function SQRT().");
    assert!(parse_error("A ^ 2").contains('^'));
    // Nothing is made one word that was two.
    assert_eq!(parse_error("1,000 * A"), "\",\" has no meaning in a formula.");
    for text in
        ["", " ", "A +", "* A", "(A", "A)", "A B", "A // B", "()", "2A", "1..2", ".", "A ** ** B", "\u{e9}"]
    {
        let _ = parse_error(text);
    }
}

#[test]
fn length_and_depth_are_limited() {
    let nested = |depth: usize| format!("{}A{}", "(".repeat(depth), ")".repeat(depth));
    assert_eq!(value(&nested(limits::FORMULA_DEPTH), &[3.0]), 3.0);
    assert!(parse_error(&nested(limits::FORMULA_DEPTH + 1)).starts_with("Too many levels in a formula"));
    let long = |bytes: usize| format!("A{}", " ".repeat(bytes - 1));
    assert_eq!(value(&long(limits::FORMULA_BYTES), &[3.0]), 3.0);
    assert!(parse_error(&long(limits::FORMULA_BYTES + 1)).starts_with("The formula is too long"));
    let chain = format!("A{}", "+A".repeat(limits::FORMULA_BYTES / 2 - 1));
    assert_eq!(value(&chain, &[1.0]), 2048.0);
    assert_eq!(value(&format!("{}A", "-".repeat(1000)), &[1.0]), 1.0);
}

/// A formula as a tree: written out with all its parentheses, and calculated, without the code above.
#[derive(Debug, Clone)]
enum Tree {
    Number(u32),
    Letter(usize),
    Minus(Box<Tree>),
    Pair(Box<Tree>, &'static str, Box<Tree>),
}

impl Tree {
    fn text(&self) -> String {
        match self {
            Self::Number(number) => number.to_string(),
            Self::Letter(index) => ["a", "B", "c"][*index].to_owned(),
            Self::Minus(inner) => format!("(-{})", inner.text()),
            Self::Pair(left, sign, right) => format!("({} {sign} {})", left.text(), right.text()),
        }
    }

    fn value(&self, series: &[f64; 3]) -> f64 {
        match self {
            Self::Number(number) => f64::from(*number),
            Self::Letter(index) => series[*index],
            Self::Minus(inner) => -inner.value(series),
            Self::Pair(left, sign, right) => {
                let (left, right) = (left.value(series), right.value(series));
                match *sign {
                    "+" => left + right,
                    "-" => left - right,
                    "*" => left * right,
                    "/" if right == 0.0 => 0.0,
                    "/" => left / right,
                    _ if right == 0.0 => 0.0,
                    _ => left - right * (left / right).floor(),
                }
            }
        }
    }
}

fn trees() -> impl Strategy<Value = Tree> {
    let leaf = prop_oneof![(0_u32..20).prop_map(Tree::Number), (0_usize..3).prop_map(Tree::Letter)];
    leaf.prop_recursive(5, 40, 2, |inner| {
        let signs = prop::sample::select(vec!["+", "-", "*", "/", "%"]);
        prop_oneof![
            inner.clone().prop_map(|inner| Tree::Minus(Box::new(inner))),
            (inner.clone(), signs, inner).prop_map(|(left, sign, right)| Tree::Pair(
                Box::new(left),
                sign,
                Box::new(right)
            )),
        ]
    })
}

proptest! {
    #[test]
    fn formulas_evaluate_like_their_expression_tree(tree in trees(), series in [-50_i32..50, -50_i32..50, -50_i32..50]) {
        let series = series.map(f64::from);
        let (got, want) = (value(&tree.text(), &series), tree.value(&series));
        // Fractions near a multiple of the divisor may fall on either side of it.
        let fractions = tree.text().contains('/') && tree.text().contains('%');
        prop_assume!(!fractions);
        prop_assert!((got - want).abs() <= 1e-9 * want.abs().max(1.0), "{}: {got} instead of {want}", tree.text());
    }

    #[test]
    fn no_text_panics_and_every_result_is_finite(text in "[-a-c0-9.*/+%^() eé,]{0,40}", a in -1e9_f64..1e9) {
        if let Ok(formula) = Formula::parse(&text, 3, "formula") {
            prop_assert!(formula.evaluate(|_| a).is_finite());
        }
    }
}
