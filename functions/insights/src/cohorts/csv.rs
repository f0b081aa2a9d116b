//! Members from an uploaded CSV file.
//!
//! Must stay true: a single column holds distinct ids, unless its header names another content; of several columns, the one with a
//! known header is used; a file without ids, or that cannot be parsed completely, is rejected.

use pennon_core::error::{ApiError, ApiResult};

/// The kind of ids in a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IdKind {
    /// Ids of persons.
    PersonId,
    /// Distinct ids.
    DistinctId,
    /// The property `email`.
    Email,
}

/// Known headers, in the order of precedence.
const HEADERS: [(&str, IdKind); 7] = [
    ("person_id", IdKind::PersonId),
    ("person-id", IdKind::PersonId),
    ("person .id", IdKind::PersonId),
    ("distinct_id", IdKind::DistinctId),
    ("distinct-id", IdKind::DistinctId),
    ("email", IdKind::Email),
    ("e-mail", IdKind::Email),
];

/// The ids of a CSV file, and their kind.
pub fn parse(bytes: &[u8]) -> ApiResult<(IdKind, Vec<String>)> {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    if std::str::from_utf8(bytes).is_err() {
        return Err(invalid_csv("The file is not UTF-8."));
    }
    let mut reader = csv::ReaderBuilder::new().has_headers(false).flexible(true).from_reader(bytes);
    let mut rows = reader.records();
    let first = rows.next().transpose().map_err(malformed)?;
    let first = first.ok_or_else(|| invalid_csv("The file is empty."))?;
    let filled = first.iter().filter(|cell| !cell.trim().is_empty()).count();
    let (column, by, has_header) = match find_id_column(first.iter()) {
        // A header, or without one the first row of a single column of distinct ids.
        Some((column, by)) => (column, by, true),
        None if filled <= 1 => (0, IdKind::DistinctId, false),
        None => {
            let found =
                first.iter().map(str::trim).filter(|cell| !cell.is_empty()).collect::<Vec<_>>().join(", ");
            return Err(invalid_csv(&format!(
                "A file of several columns needs one called person_id, distinct_id or email. Its columns are {found}."
            )));
        }
    };
    let mut ids = Vec::new();
    let mut add = |cell: Option<&str>| {
        ids.extend(cell.map(str::trim).filter(|id| !id.is_empty()).map(str::to_owned));
    };
    if !has_header {
        add(first.get(column));
    }
    for row in rows {
        add(row.map_err(malformed)?.get(column));
    }
    if ids.is_empty() { Err(invalid_csv("The file contains no ids.")) } else { Ok((by, ids)) }
}

/// The column with a known header.
fn find_id_column<'a>(cells: impl Iterator<Item = &'a str>) -> Option<(usize, IdKind)> {
    let cells: Vec<String> = cells.map(|cell| cell.trim().to_lowercase()).collect();
    HEADERS.iter().find_map(|(name, by)| Some((cells.iter().position(|cell| cell == name)?, *by)))
}

fn malformed(error: csv::Error) -> ApiError {
    invalid_csv(&format!("The file cannot be read as comma-separated values: {error}."))
}

/// The 400 for a file.
pub fn invalid_csv(detail: &str) -> ApiError {
    ApiError::invalid("invalid_input", detail, Some("csv"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_column_with_ids_is_found() {
        for (text, by, ids) in [
            ("ann\nbob\r\n\n cat ", IdKind::DistinctId, &["ann", "bob", "cat"][..]),
            ("\u{feff}ann\nbob", IdKind::DistinctId, &["ann", "bob"]),
            ("distinct_id\nann", IdKind::DistinctId, &["ann"]),
            ("Person_ID\nx", IdKind::PersonId, &["x"]),
            ("E-mail\na@b.c\n\"x, y\"", IdKind::Email, &["a@b.c", "x, y"]),
            ("name,distinct_id,email\nA,ann,a@b.c\nB\nC,,\n", IdKind::DistinctId, &["ann"]),
            ("email,Person .id\na@b.c,7", IdKind::PersonId, &["7"]),
            ("ann,,\nbob,1,2", IdKind::DistinctId, &["ann", "bob"]),
        ] {
            let (found, parsed) = parse(text.as_bytes()).unwrap();
            assert_eq!(
                (found, parsed.iter().map(String::as_str).collect::<Vec<_>>()),
                (by, ids.to_vec()),
                "{text}"
            );
        }
    }

    #[test]
    fn a_file_without_persons_is_invalid_csv() {
        for bytes in [&b""[..], b"\n\n", b"distinct_id\n\n", b"a,b\n1,2", b"\xff\xfe"] {
            let error = parse(bytes).unwrap_err().body();
            assert_eq!(
                (&error["code"], &error["attr"]),
                (&"invalid_input".into(), &"csv".into()),
                "{bytes:?}"
            );
        }
    }
}
