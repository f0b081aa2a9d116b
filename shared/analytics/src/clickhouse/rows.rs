//! The rows of a statement, as a server returns them in the format `JSONCompact`.
//!
//! Must stay true: rows that are incomplete or of another statement are an error, never other numbers.

use std::fmt;

use pennon_filters::CalcError;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

/// The format that a server has to return.
pub const FORMAT: &str = "JSONCompact";

/// The rows of a statement.
#[derive(Debug)]
pub struct SqlRows<'a> {
    columns: Vec<String>,
    rows: Vec<&'a RawValue>,
}

/// Why rows are no result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RowsError {
    /// They are not the rows of the statement; the text has what is wrong.
    Invalid(String),
    /// The result could not be built: it is too large, or the time was up.
    Calculation(CalcError),
}

/// A response in [`FORMAT`], as far as it is read.
#[derive(Deserialize)]
struct Response<'a> {
    meta: Vec<Column>,
    #[serde(borrow)]
    data: Vec<&'a RawValue>,
    rows: usize,
}

#[derive(Deserialize)]
struct Column {
    name: String,
}

/// A row.
pub(crate) struct SqlRow<'a> {
    columns: &'a [String],
    values: Vec<Value>,
}

impl RowsError {
    pub(crate) fn invalid(what: impl fmt::Display) -> Self {
        Self::Invalid(what.to_string())
    }
}

impl fmt::Display for RowsError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid(what) => write!(formatter, "the response is no result of the statement: {what}"),
            Self::Calculation(error) => formatter.write_str(&error.detail),
        }
    }
}

impl From<CalcError> for RowsError {
    fn from(error: CalcError) -> Self {
        Self::Calculation(error)
    }
}

impl<'a> SqlRows<'a> {
    /// Parses a response.
    pub fn parse(body: &'a [u8]) -> Result<Self, RowsError> {
        let response: Response<'a> = serde_json::from_slice(body)
            .map_err(|error| RowsError::invalid(format!("not {FORMAT}: {error}")))?;
        if response.rows != response.data.len() {
            let (rows, listed) = (response.data.len(), response.rows);
            return Err(RowsError::invalid(format!("{rows} rows instead of {listed}")));
        }
        let columns = response.meta.into_iter().map(|column| column.name).collect();
        Ok(Self { columns, rows: response.data })
    }

    /// An error unless there are these columns, for statements that may have no rows.
    pub(crate) fn require_columns(&self, names: &[&str]) -> Result<(), RowsError> {
        match names.iter().find(|name| !self.columns.iter().any(|column| column == *name)) {
            None => Ok(()),
            Some(name) => Err(RowsError::invalid(format!("there is no column {name}"))),
        }
    }

    /// The rows, one after the other.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Result<SqlRow<'_>, RowsError>> {
        self.rows.iter().map(|row| {
            let values: Vec<Value> = serde_json::from_str(row.get())
                .map_err(|error| RowsError::invalid(format!("a row is no list: {error}")))?;
            if values.len() != self.columns.len() {
                return Err(RowsError::invalid("a row has another number of values than there are columns"));
            }
            Ok(SqlRow { columns: &self.columns, values })
        })
    }
}

impl SqlRow<'_> {
    fn value(&self, column: &str) -> Result<&Value, RowsError> {
        let at = self.columns.iter().position(|name| name == column);
        at.and_then(|at| self.values.get(at))
            .ok_or_else(|| RowsError::invalid(format!("there is no column {column}")))
    }

    /// A whole number; servers write those of 64 bits as a number or as a text.
    pub(crate) fn integer(&self, column: &str) -> Result<u64, RowsError> {
        let value = self.value(column)?;
        let number = match value {
            Value::String(text) => text.parse().ok(),
            other => other.as_u64(),
        };
        number.ok_or_else(|| RowsError::invalid(format!("{column} is no whole number")))
    }

    /// A whole number that is an index or a length.
    pub(crate) fn index(&self, column: &str) -> Result<usize, RowsError> {
        let number = self.integer(column)?;
        usize::try_from(number).map_err(|_| RowsError::invalid(format!("{column} is too large")))
    }

    /// A finite number.
    pub(crate) fn number(&self, column: &str) -> Result<f64, RowsError> {
        self.optional_number(column)?.ok_or_else(|| RowsError::invalid(format!("{column} is null")))
    }

    /// A finite number, or null.
    pub(crate) fn optional_number(&self, column: &str) -> Result<Option<f64>, RowsError> {
        let number = match self.value(column)? {
            Value::Null => return Ok(None),
            Value::String(text) => text.parse().ok(),
            other => other.as_f64(),
        };
        match number.filter(|number: &f64| number.is_finite()) {
            Some(number) => Ok(Some(number)),
            None => Err(RowsError::invalid(format!("{column} is no number"))),
        }
    }

    /// A text, as a list with one text, or a list of texts.
    pub(crate) fn texts(&self, column: &str) -> Result<Vec<String>, RowsError> {
        let wrong = || RowsError::invalid(format!("{column} is neither a text nor a list of texts"));
        match self.value(column)? {
            Value::String(text) => Ok(vec![text.clone()]),
            Value::Array(texts) => {
                texts.iter().map(|text| text.as_str().map(str::to_owned).ok_or_else(wrong)).collect()
            }
            _ => Err(wrong()),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn body(data: &str, rows: usize) -> String {
        format!(
            r#"{{"meta": [{{"name": "n", "type": "UInt64"}}, {{"name": "x", "type": "Float64"}},
                {{"name": "v", "type": "Array(String)"}}], "data": {data}, "rows": {rows}, "statistics": {{}}}}"#
        )
    }

    fn first<T>(data: &str, read: impl Fn(&SqlRow<'_>) -> Result<T, RowsError>) -> Result<T, RowsError> {
        let body = body(data, 1);
        let rows = SqlRows::parse(body.as_bytes())?;
        let row = rows.iter().next().unwrap()?;
        read(&row)
    }

    #[test]
    fn values_have_the_types_of_their_columns() {
        let data = r#"[["18446744073709551615", 0.1, ["a", "ü\n"]]]"#;
        assert_eq!(first(data, |row| row.integer("n")).unwrap(), u64::MAX);
        assert_eq!(first(data, |row| row.number("x")).unwrap(), 0.1);
        assert_eq!(first(data, |row| row.texts("v")).unwrap(), ["a", "ü\n"]);
        let data = r#"[[7, null, "a"]]"#;
        assert_eq!(first(data, |row| row.index("n")).unwrap(), 7);
        assert_eq!(first(data, |row| row.optional_number("x")).unwrap(), None);
        assert_eq!(first(data, |row| row.texts("v")).unwrap(), ["a"]);
    }

    #[test]
    fn other_values_are_errors() {
        for data in [r#"[[-1, "nan", 5]]"#, r#"[[0.5, {}, [1]]]"#, r#"[["x", "inf", null]]"#] {
            assert!(first(data, |row| row.integer("n")).is_err(), "{data}");
            assert!(first(data, |row| row.optional_number("x")).is_err(), "{data}");
            assert!(first(data, |row| row.texts("v")).is_err(), "{data}");
        }
        assert!(first(r#"[[1, null, ""]]"#, |row| row.number("x")).is_err());
        let missing = first(r#"[[1, 2, ""]]"#, |row| row.integer("other")).unwrap_err();
        assert!(missing.to_string().contains("no column other"), "{missing}");
        assert!(first("[[1, 2]]", |row| row.integer("n")).is_err());
        assert!(first(r#"[{"n": 1}]"#, |row| row.integer("n")).is_err());
    }

    #[test]
    fn incomplete_responses_are_errors() {
        let whole = body("[[1, 2, \"\"]]", 1);
        assert!(SqlRows::parse(whole.as_bytes()).is_ok());
        assert!(SqlRows::parse(&whole.as_bytes()[..whole.len() - 1]).is_err());
        assert!(SqlRows::parse(format!("{whole}Code: 241. DB::Exception: Memory limit").as_bytes()).is_err());
        assert!(SqlRows::parse(body("[]", 1).as_bytes()).is_err());
        for garbage in ["", "Ok.\n", "[]", "{}", "<html>"] {
            assert!(SqlRows::parse(garbage.as_bytes()).is_err(), "{garbage}");
        }
    }
}
