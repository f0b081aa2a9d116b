//! Field ids of the columns of a segment, by which readers of Iceberg tables find a column in a file.
//!
//! The same property key may have another type in another segment, under the same name `p.KEY`. A column of a table has one
//! type, so each key with each type is a column of its own, and its id is a checksum of both: writers need no registry, and two
//! that work at once give the same id to the same column. Must stay true: the ids are in stored files, so none of them
//! changes. Two columns may have the same id, with a probability of one in a thousand for 2,000 columns; the publisher
//! of tables leaves both out ([`TableColumn`]).

use super::PROPERTY;
use super::property_columns::PropertyColumnKind;

/// The lowest id of a property column.
const PROPERTY_ID_MIN: u32 = 1_000_000;
/// The end of the ids of property columns; Iceberg reserves the highest 200 of 31 bits.
const PROPERTY_ID_END: u32 = 2_147_483_000;

/// Ids of the columns that every segment has.
const BASE_COLUMNS: [(&str, i32); 11] = [
    ("event", 1),
    ("person", 2),
    ("distinct_id", 3),
    ("timestamp", 4),
    ("uuid", 5),
    ("properties", 6),
    ("person_code", 7),
    ("tie", 8),
    ("seq_high", 9),
    ("seq_low", 10),
    ("uuid_source", 11),
];

/// The type of a property column in a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TableColumnType {
    /// Strings.
    Text,
    /// Signed 64-bit integers.
    Integer,
    /// 64-bit floats.
    Float,
    /// true and false.
    Boolean,
    /// JSON text.
    Json,
}

impl TableColumnType {
    /// The type of a property column of a segment. Both kinds of floats are one type.
    pub(crate) fn of(kind: PropertyColumnKind) -> TableColumnType {
        match kind {
            PropertyColumnKind::Text => TableColumnType::Text,
            PropertyColumnKind::Integer => TableColumnType::Integer,
            PropertyColumnKind::Float | PropertyColumnKind::Number => TableColumnType::Float,
            PropertyColumnKind::Boolean => TableColumnType::Boolean,
            PropertyColumnKind::Json => TableColumnType::Json,
        }
    }

    /// Its name, which the ids are computed from.
    pub fn name(self) -> &'static str {
        match self {
            TableColumnType::Text => "string",
            TableColumnType::Integer => "long",
            TableColumnType::Float => "double",
            TableColumnType::Boolean => "boolean",
            TableColumnType::Json => "json",
        }
    }
}

/// A property column as part of a table.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TableColumn {
    /// The property key.
    pub key: String,
    /// Its type.
    pub column_type: TableColumnType,
}

impl TableColumn {
    /// Its field id.
    pub fn id(&self) -> i32 {
        property_id(&self.key, self.column_type)
    }

    /// Its name in a segment.
    pub fn name_in_file(&self) -> String {
        format!("{PROPERTY}{}", self.key)
    }
}

/// The names and field ids of the columns that every segment has.
pub fn base_columns() -> impl Iterator<Item = (&'static str, i32)> {
    BASE_COLUMNS.into_iter()
}

/// The field id of a column that every segment has.
pub(super) fn base_id(name: &str) -> Option<i32> {
    BASE_COLUMNS.iter().find(|(base, _)| *base == name).map(|(_, id)| *id)
}

/// The field id of a property column.
pub(super) fn property_id(key: &str, column_type: TableColumnType) -> i32 {
    let mut checksum = crc32fast::Hasher::new();
    checksum.update(column_type.name().as_bytes());
    checksum.update(&[0]);
    checksum.update(key.as_bytes());
    let id = PROPERTY_ID_MIN + checksum.finalize() % (PROPERTY_ID_END - PROPERTY_ID_MIN);
    i32::try_from(id).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_stored_files_do_not_change() {
        let id = |key: &str, column_type| TableColumn { key: key.to_owned(), column_type }.id();
        assert_eq!(id("plan", TableColumnType::Text), 1_351_680_780);
        assert_eq!(id("plan", TableColumnType::Json), 1_050_928_808);
        assert_eq!(base_id("uuid_source"), Some(11));
        assert_eq!(base_id("p.plan"), None);
    }

    #[test]
    fn two_kinds_of_floats_are_one_type() {
        let types = [PropertyColumnKind::Float, PropertyColumnKind::Number].map(TableColumnType::of);
        assert_eq!(types, [TableColumnType::Float; 2]);
    }
}
