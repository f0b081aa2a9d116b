//! Responses as CSV.
//!
//! Must stay true: no spreadsheet interprets a cell with text of events or users as a formula (CSV injection); the same
//! response gives the same bytes.

use std::collections::{BTreeMap, BTreeSet};

use csv::{QuoteStyle, Terminator, WriterBuilder};
use serde_json::Value;

/// Any JSON: one row for each element of a list, else one row; one column for each leaf, named by its path.
pub(crate) fn flatten_json(value: &Value) -> Vec<u8> {
    let rows = match value {
        Value::Array(rows) => rows.as_slice(),
        one => std::slice::from_ref(one),
    };
    let rows: Vec<BTreeMap<String, String>> = rows
        .iter()
        .map(|row| {
            let mut cells = BTreeMap::new();
            leaves(row, String::new(), &mut cells);
            cells
        })
        .collect();
    let columns: BTreeSet<&String> = rows.iter().flat_map(BTreeMap::keys).collect();
    if columns.is_empty() {
        return Vec::new();
    }
    let head = columns.iter().map(|name| escape_formula(name)).collect();
    let cell = |row: &BTreeMap<String, String>, name: &String| row.get(name).cloned().unwrap_or_default();
    let body = rows.iter().map(|row| columns.iter().map(|name| cell(row, name)).collect());
    write_rows(std::iter::once(head).chain(body))
}

/// The rows of a table.
pub(crate) fn table(rows: &[Vec<Value>]) -> Vec<u8> {
    write_rows(rows.iter().map(|row| row.iter().map(cell).collect()))
}

/// The rows of a table whose cells are text.
pub fn text_table(rows: &[Vec<String>]) -> Vec<u8> {
    write_rows(rows.iter().map(|row| row.iter().map(|cell| escape_cell(cell)).collect()))
}

/// Escapes a cell of text, unless it is a number.
pub fn escape_cell(text: &str) -> String {
    let is_number = serde_json::from_str::<serde_json::Number>(text).is_ok();
    if is_number { text.to_owned() } else { escape_formula(text) }
}

/// A file name from a name that the client sent.
pub fn slug(name: Option<&str>) -> String {
    let lower = name.unwrap_or_default().to_ascii_lowercase();
    let words = lower.split(|letter: char| !letter.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    let slug: String = words.collect::<Vec<_>>().join("-").chars().take(100).collect();
    if slug.is_empty() { "export".to_owned() } else { slug }
}

fn leaves(value: &Value, path: String, cells: &mut BTreeMap<String, String>) {
    let below = |key: &str| if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
    match value {
        Value::Object(object) => object.iter().for_each(|(key, value)| leaves(value, below(key), cells)),
        Value::Array(list) => {
            list.iter()
                .enumerate()
                .for_each(|(index, value)| leaves(value, below(&index.to_string()), cells));
        }
        leaf => drop(cells.insert(path, cell(leaf))),
    }
}

/// The text of a leaf.
fn cell(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::Bool(true) => "True".to_owned(),
        Value::Bool(false) => "False".to_owned(),
        Value::Number(number) => {
            let text = number.to_string();
            text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
        }
        Value::String(text) => escape_formula(text),
        other => escape_formula(&other.to_string()),
    }
}

/// Escapes a cell against CSV injection: text that begins like a formula gets an apostrophe in front.
///
/// The characters are those of OWASP, "CSV Injection" (<https://owasp.org/www-community/attacks/CSV_Injection>): `=`, `+`,
/// `-`, `@`, tab, carriage return, line feed, and the full-width forms of the first four. Spreadsheets drop a byte order
/// mark, spaces and characters that show nothing before they look at the first character, so these are passed over here.
fn escape_formula(text: &str) -> String {
    let is_ignored = |letter: char| letter.is_whitespace() || letter.is_control() || is_invisible(letter);
    let begins_with_control = text
        .chars()
        .take_while(|letter| is_ignored(*letter))
        .any(|letter| matches!(letter, '\t' | '\r' | '\n'));
    let first = text.trim_start_matches(is_ignored).chars().next();
    let is_formula =
        matches!(first, Some('=' | '+' | '-' | '@' | '\u{FF1D}' | '\u{FF0B}' | '\u{FF0D}' | '\u{FF20}'));
    if begins_with_control || is_formula { format!("'{text}") } else { text.to_owned() }
}

/// Whether a character has no width and is ignored where it has no meaning: Unicode's `Default_Ignorable_Code_Point`, and
/// the interlinear annotation characters.
fn is_invisible(letter: char) -> bool {
    matches!(letter,
        '\u{AD}' | '\u{34F}' | '\u{61C}' | '\u{115F}'..='\u{1160}' | '\u{17B4}'..='\u{17B5}'
        | '\u{180B}'..='\u{180F}' | '\u{200B}'..='\u{200F}' | '\u{202A}'..='\u{202E}' | '\u{2060}'..='\u{206F}'
        | '\u{3164}' | '\u{FE00}'..='\u{FE0F}' | '\u{FEFF}' | '\u{FFA0}' | '\u{FFF0}'..='\u{FFFB}'
        | '\u{1BCA0}'..='\u{1BCA3}' | '\u{1D173}'..='\u{1D17A}' | '\u{E0000}'..='\u{E0FFF}')
}

/// Writes CSV: rows end in CRLF, fields are quoted where necessary.
fn write_rows(rows: impl Iterator<Item = Vec<String>>) -> Vec<u8> {
    let mut writer = WriterBuilder::new()
        .terminator(Terminator::CRLF)
        .quote_style(QuoteStyle::Necessary)
        .flexible(true)
        .from_writer(Vec::new());
    for row in rows {
        // Writing to a vector cannot fail.
        let _ = writer.write_record(&row);
    }
    writer.into_inner().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use pennon_analytics::InsightKind;
    use serde_json::json;

    fn text(bytes: Vec<u8>) -> String {
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn trend_series(result: &Value) -> Vec<u8> {
        let rows = InsightKind::Trends.description().endpoint.csv_rows;
        rows.map(|rows| table(&rows(result))).unwrap_or_default()
    }

    #[test]
    fn series_are_rows_under_the_labels_of_the_first() {
        let result = json!([
            {"label": "a, \"b\"", "labels": ["8-Jan-2012", "9-Jan-2012"], "data": [0, 2.0], "action": {"custom_name": null}},
            {"label": "x", "labels": ["8-Jan-2012", "9-Jan-2012"], "data": [1.5, -1], "action": {"custom_name": "test custom"}},
        ]);
        assert_eq!(
            text(trend_series(&result)),
            "series,8-Jan-2012,9-Jan-2012\r\n\"a, \"\"b\"\"\",0,2\r\ntest custom,1.5,-1\r\n"
        );
        assert_eq!(text(trend_series(&json!([]))), "series\r\n");
        let total = json!([{"label": "x", "aggregated_value": 7.0, "data": [], "action": null}]);
        assert_eq!(text(trend_series(&total)), "series,total count\r\nx,7\r\n");
    }

    #[test]
    fn anything_else_is_one_row_of_leaves_in_the_order_of_their_names() {
        let value =
            json!({"b": [{"c": null, "a": true}, 2.0], "a": {"x": "1\n2"}, "none": [], "nothing": {}});
        assert_eq!(text(flatten_json(&value)), "a.x,b.0.a,b.0.c,b.1\r\n\"1\n2\",True,,2\r\n");
        assert_eq!(text(flatten_json(&json!([{"a": 1}, {"b": 2}]))), "a,b\r\n1,\r\n,2\r\n");
        assert_eq!(text(flatten_json(&json!([]))), "", "nothing has neither columns nor rows");
    }

    #[test]
    fn formulas_are_escaped() {
        for (given, shown) in
            [("=1+1", "'=1+1"), ("+1", "'+1"), ("-1", "'-1"), ("@a", "'@a"), ("\tx", "'\tx")]
        {
            assert_eq!(text(flatten_json(&json!({"a": given}))), format!("a\r\n{shown}\r\n"));
        }
        for given in ["\rx", "\nx", " \n=1", "\u{feff}\r1"] {
            assert_eq!(text(flatten_json(&json!({"a": given}))), format!("a\r\n\"'{given}\"\r\n"));
        }
        let prefixes =
            ["", " ", "\t", "\u{feff}", "\u{200b}", "\u{2060}\u{ad}", "\u{a0}\u{3000}", "\u{e0020}", "\0"];
        for prefix in prefixes {
            for sign in ["=", "+", "-", "@", "\u{ff1d}", "\u{ff0b}", "\u{ff0d}", "\u{ff20}"] {
                let given = format!("{prefix}{sign}SUM(A1)");
                assert_eq!(escape_formula(&given), format!("'{given}"), "{given:?}");
                assert_eq!(escape_formula(&format!("a{given}")), format!("a{given}"));
            }
            if prefix != "\t" {
                assert_eq!(escape_formula(&format!("{prefix}SUM")), format!("{prefix}SUM"));
            }
        }
        assert_eq!(text(flatten_json(&json!({"=a": -1}))), "'=a\r\n-1\r\n");
        let rows = [vec!["-1.5".to_owned(), "=a".to_owned(), "-a".to_owned()]];
        assert_eq!(text(text_table(&rows)), "-1.5,'=a,'-a\r\n");
    }

    #[test]
    fn a_file_is_named_by_letters_and_digits() {
        assert_eq!(slug(Some("My  Trend: 2024!")), "my-trend-2024");
        assert_eq!(slug(Some("\"\r\n;ü")), "export");
        assert_eq!(slug(None), "export");
    }
}
