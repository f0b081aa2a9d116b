//! docs/limits.md, which is written from the constants that the product enforces.
//!
//! Must stay true: the page is the output of [`page`]; every public constant of the files of limits is a row, or is named in
//! [`NO_LIMITS`]. After a change, `PENNON_WRITE_LIMITS=1 cargo test --workspace --test http limits_page::` writes the page.
//! `tests/template/test_named_tests.py` checks that every named test exists.
#![allow(clippy::unnecessary_cast, reason = "the macro casts constants of every type of numbers")]

/// A row: the constant, the unit of its number, what is limited, what happens one past it, and what tests it.
macro_rules! row {
    ($constant:path, $unit:literal, $what:literal, $past:expr, $tested:expr) => {
        Row {
            constant: stringify!($constant),
            value: || $constant as f64,
            unit: $unit,
            what: $what,
            past: $past,
            tested: $tested,
        }
    };
}

/// A row of a duration or of another expression.
macro_rules! computed {
    ($name:literal, $value:expr, $unit:literal, $what:literal, $past:expr, $tested:expr) => {
        Row {
            constant: $name,
            value: || $value as f64,
            unit: $unit,
            what: $what,
            past: $past,
            tested: $tested,
        }
    };
}

mod flags;
mod queries;
mod records;
mod requests;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// How a limit is tested. Each text is `path::name` of a test.
enum Tested {
    /// At the limit and one past it.
    Both(&'static str),
    /// The rule is tested on both sides of a smaller limit of its own.
    Rule(&'static str),
    /// Only beyond the limit, or only its effect.
    Past(&'static str),
    /// By no test.
    No,
}

impl Tested {
    fn text(&self) -> String {
        match self {
            Tested::Both(test) => format!("`{test}`"),
            Tested::Rule(test) => format!("the rule, with another number: `{test}`"),
            Tested::Past(test) => format!("past it only: `{test}`"),
            Tested::No => "no".to_owned(),
        }
    }
}

/// One limit.
struct Row {
    /// The constant, by the name of its module in this folder; a name without a path for a computed value.
    constant: &'static str,
    value: fn() -> f64,
    unit: &'static str,
    what: &'static str,
    past: &'static str,
    tested: Tested,
}

impl Row {
    fn line(&self) -> String {
        let Row { unit, what, past, .. } = self;
        let value = (self.value)();
        let binary = if *unit == "bytes" { binary_bytes(value) } else { String::new() };
        format!("| {what} | {} {unit}{binary} | {past} | {} |\n", digits(value), self.tested.text())
    }
}

/// Part of the page.
struct Section {
    title: &'static str,
    text: &'static str,
    rows: &'static [Row],
}

/// A number with commas between groups of three digits; a fraction as it is.
fn digits(number: f64) -> String {
    if number.fract() != 0.0 {
        return number.to_string();
    }
    let digits = format!("{number:.0}");
    let mut grouped = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// The number in KiB, MiB or GiB, if it is a whole one.
fn binary_bytes(bytes: f64) -> String {
    let units = [("GiB", 30), ("MiB", 20), ("KiB", 10)];
    let mut whole = units.iter().map(|(unit, power)| (unit, bytes / f64::from(1 << power)));
    let found = whole.find(|(_, count)| *count >= 1.0 && count.fract() == 0.0);
    found.map_or(String::new(), |(unit, count)| format!(" ({count} {unit})"))
}

const INTRODUCTION: &str = "\
# Limits

Every limit of requests, stored records, queries and event files, with its number, what happens one past it, and the test that checks both
sides. A test writes this page from the constants that the product enforces (`tests/tests/http/limits_page`), so no number here is a copy.
A refused request changes nothing. \"400\" without a code is a `validation_error` with the code `invalid_input`, and `attr` names the field, if the limit is that of one field.

";

fn page() -> String {
    let mut page = INTRODUCTION.to_owned();
    for section in sections() {
        page += &format!("## {}\n\n", section.title);
        if !section.text.is_empty() {
            page += &format!("{}\n\n", section.text);
        }
        page += "| limit | number | one past it | tested at the limit and one past it |\n|---|---|---|---|\n";
        section.rows.iter().for_each(|row| page += &row.line());
        page.push('\n');
    }
    page.truncate(page.trim_end().len());
    page + "\n"
}

fn sections() -> Vec<&'static Section> {
    [requests::SECTIONS, flags::SECTIONS, records::SECTIONS, queries::SECTIONS]
        .into_iter()
        .flatten()
        .collect()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

#[test]
fn the_page_has_the_numbers_of_the_constants() {
    let (path, expected) = (root().join("docs/limits.md"), page());
    if std::env::var_os("PENNON_WRITE_LIMITS").is_some() {
        fs::write(&path, &expected).unwrap();
    }
    let text = fs::read_to_string(&path).unwrap_or_default();
    let written: BTreeSet<&str> = text.lines().collect();
    let missing: Vec<&str> = expected.lines().filter(|line| !written.contains(line)).collect();
    assert_eq!(text, expected, "docs/limits.md lacks\n{}", missing.join("\n"));
}

/// Files of limits, and the module of their constants in the rows.
const FILES: [(&str, &str); 16] = [
    ("shared/core/src/limits/api_keys.rs", "api_keys"),
    ("shared/core/src/limits/calculation.rs", "calculation"),
    ("shared/core/src/limits/capture.rs", "capture"),
    ("shared/core/src/limits/evaluation.rs", "evaluation"),
    ("shared/core/src/limits/insights.rs", "insights"),
    ("shared/flag_rules/src/limits.rs", "flags"),
    ("shared/filters/src/limits.rs", "limits"),
    ("shared/analytics/src/limits.rs", "limits"),
    ("shared/analytics/src/kinds/correlation/limits.rs", "correlation"),
    ("shared/analytics/src/kinds/flag_impact/limits.rs", "flag_impact"),
    ("shared/analytics/src/kinds/funnels/limits.rs", "funnels"),
    ("shared/analytics/src/kinds/lifecycle/limits.rs", "lifecycle"),
    ("shared/analytics/src/kinds/paths/limits.rs", "paths"),
    ("shared/analytics/src/kinds/retention/limits.rs", "retention"),
    ("shared/analytics/src/kinds/stickiness/limits.rs", "stickiness"),
    ("shared/analytics/src/kinds/trends/limits.rs", "trends"),
];

/// Constants of these files that are no limits: defaults, least values, names, and weights of a limit.
const NO_LIMITS: [&str; 10] = [
    "calculation::EVENTS_DEFAULT",
    "calculation::VALUES_DEFAULT",
    "calculation::STALE_DAYS",
    "insights::SHARING_SWITCHES",
    "insights::SHORT_ID_CHARS",
    "limits::EVALUATION_BYTES",
    "limits::MIN_EVENT_TIME",
    "limits::MAX_EVENT_TIME",
    "flag_impact::MINIMUM_SAMPLE_DEFAULT",
    "flag_impact::CONFIDENCE_LEVEL_DEFAULT",
];

#[test]
fn every_constant_of_the_files_of_limits_is_on_the_page() {
    let sections = sections();
    let rows: BTreeSet<&str> =
        sections.iter().flat_map(|section| section.rows).map(|row| row.constant).collect();
    let mut missing = Vec::new();
    for (file, module) in FILES {
        let text = fs::read_to_string(root().join(file)).unwrap();
        for line in text.lines() {
            let name = line.strip_prefix("pub const ").or_else(|| line.strip_prefix("pub(crate) const "));
            let Some((name, _)) = name.and_then(|rest| rest.split_once(':')) else { continue };
            let constant = format!("{module}::{name}");
            if !rows.contains(constant.as_str()) && !NO_LIMITS.contains(&constant.as_str()) {
                missing.push(format!("{file}: {name}"));
            }
        }
    }
    assert!(missing.is_empty(), "the page has no row for\n{}", missing.join("\n"));
}

#[test]
fn numbers_are_written_with_their_units() {
    assert_eq!([7.0, 1e3, 6e6, 0.5].map(digits), ["7", "1,000", "6,000,000", "0.5"]);
    assert_eq!([262_144.0, 16_777_216.0, 6e6].map(binary_bytes), [" (256 KiB)", " (16 MiB)", ""]);
}
