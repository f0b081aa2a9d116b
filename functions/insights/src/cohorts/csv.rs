//! Members from an uploaded table.
//!
//! Must stay true: one column is a list of distinct ids, unless its heading says otherwise; of several the one whose
//! heading names ids counts; a table without ids is refused, and so is one that is not read to its end.

use pennon_core::error::{ApiError, ApiResult};

/// What a column names persons by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// Their ids.
    PersonId,
    /// One of their distinct ids each.
    DistinctId,
    /// The property `email`.
    Email,
}

/// Headings, in the order in which they are looked for.
const HEADINGS: [(&str, By); 7] = [
    ("person_id", By::PersonId),
    ("person-id", By::PersonId),
    ("person .id", By::PersonId),
    ("distinct_id", By::DistinctId),
    ("distinct-id", By::DistinctId),
    ("email", By::Email),
    ("e-mail", By::Email),
];

/// The ids of a table, and what they are.
pub fn read(bytes: &[u8]) -> ApiResult<(By, Vec<String>)> {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    if std::str::from_utf8(bytes).is_err() {
        return Err(refused("The file is not UTF-8."));
    }
    let mut reader = csv::ReaderBuilder::new().has_headers(false).flexible(true).from_reader(bytes);
    let mut rows = reader.records();
    let first = rows.next().transpose().map_err(broken)?;
    let first = first.ok_or_else(|| refused("The file is empty."))?;
    let filled = first.iter().filter(|cell| !cell.trim().is_empty()).count();
    let (column, by, is_heading) = match heading(first.iter()) {
        // One column may be called by its distinct ids, or begin with the first of them.
        Some((column, by)) => (column, by, true),
        None if filled <= 1 => (0, By::DistinctId, false),
        None => {
            let found =
                first.iter().map(str::trim).filter(|cell| !cell.is_empty()).collect::<Vec<_>>().join(", ");
            return Err(refused(&format!(
                "A file of several columns needs one called person_id, distinct_id or email. Its columns are {found}."
            )));
        }
    };
    let mut ids = Vec::new();
    let mut take = |cell: Option<&str>| {
        ids.extend(cell.map(str::trim).filter(|id| !id.is_empty()).map(str::to_owned));
    };
    if !is_heading {
        take(first.get(column));
    }
    for row in rows {
        take(row.map_err(broken)?.get(column));
    }
    if ids.is_empty() { Err(refused("The file names nobody.")) } else { Ok((by, ids)) }
}

/// The column that names ids, where any heading does.
fn heading<'a>(cells: impl Iterator<Item = &'a str>) -> Option<(usize, By)> {
    let cells: Vec<String> = cells.map(|cell| cell.trim().to_lowercase()).collect();
    HEADINGS.iter().find_map(|(name, by)| Some((cells.iter().position(|cell| cell == name)?, *by)))
}

fn broken(error: csv::Error) -> ApiError {
    refused(&format!("The file cannot be read as comma-separated values: {error}."))
}

/// A refusal of the file.
pub fn refused(detail: &str) -> ApiError {
    ApiError::invalid("invalid_input", detail, Some("csv"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_column_with_ids_is_found() {
        for (text, by, ids) in [
            ("ann\nbob\r\n\n cat ", By::DistinctId, &["ann", "bob", "cat"][..]),
            ("\u{feff}ann\nbob", By::DistinctId, &["ann", "bob"]),
            ("distinct_id\nann", By::DistinctId, &["ann"]),
            ("Person_ID\nx", By::PersonId, &["x"]),
            ("E-mail\na@b.c\n\"x, y\"", By::Email, &["a@b.c", "x, y"]),
            ("name,distinct_id,email\nA,ann,a@b.c\nB\nC,,\n", By::DistinctId, &["ann"]),
            ("email,Person .id\na@b.c,7", By::PersonId, &["7"]),
            ("ann,,\nbob,1,2", By::DistinctId, &["ann", "bob"]),
        ] {
            let (found, read) = read(text.as_bytes()).unwrap();
            assert_eq!(
                (found, read.iter().map(String::as_str).collect::<Vec<_>>()),
                (by, ids.to_vec()),
                "{text}"
            );
        }
    }

    #[test]
    fn a_file_that_names_nobody_is_refused() {
        for bytes in [&b""[..], b"\n\n", b"distinct_id\n\n", b"a,b\n1,2", b"\xff\xfe"] {
            let error = read(bytes).unwrap_err().body();
            assert_eq!(
                (&error["code"], &error["attr"]),
                (&"invalid_input".into(), &"csv".into()),
                "{bytes:?}"
            );
        }
    }
}
