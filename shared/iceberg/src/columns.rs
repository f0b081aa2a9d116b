//! The columns of the events table, and by which names files without field ids have them.
//!
//! A property key with one type is a column `p_KEY_TYPE`; a key that has several types in the live files has several columns.
//! Names are in lower case and consist of letters, digits and underscores, because some engines fold case and some allow
//! nothing else; the key is the column's comment. Must stay true: a column keeps its field id, whatever its name; a column
//! is in the table only if its values are right in every live file; a name belongs to one field id as long as
//! that column is in the table.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use pennon_eventstore::{SegmentColumns, TableColumn, TableColumnType, base_columns};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Most property columns of a table; those with the most rows are in it.
pub(crate) const COLUMNS_MAX: usize = 1000;

/// A column of a table, as in its schema.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Field {
    pub id: i32,
    pub name: String,
    pub required: bool,
    #[serde(rename = "type")]
    pub field_type: String,
    /// The property key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub doc: Option<String>,
}

impl Field {
    pub(crate) fn new(id: i32, name: &str, required: bool, field_type: &str) -> Field {
        Field { id, name: name.to_owned(), required, field_type: field_type.to_owned(), doc: None }
    }
}

/// The schema of a table, and its name mapping if a file needs one.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TableSchema {
    pub fields: Vec<Field>,
    pub name_mapping: Option<Value>,
}

/// The columns of the events table before those of properties.
fn base_fields() -> Vec<Field> {
    vec![
        Field::new(1, "event", true, "string"),
        Field::new(2, "person", true, "fixed[16]"),
        Field::new(3, "distinct_id", true, "string"),
        Field::new(4, "timestamp", true, "timestamptz"),
        Field::new(5, "uuid", false, "fixed[16]"),
        Field::new(6, "properties", false, "string"),
    ]
}

/// The schema of the events table over segments with these numbers of rows and columns. Columns of the version before, `former`,
/// keep their names; those that no segment has stay if there is room, so that saved statements stay valid. Unless `keeps_former`,
/// they stay only if a segment has their key, with another type.
pub(crate) fn events_schema(
    segments: &[(u64, Arc<SegmentColumns>)],
    former: &[Field],
    keeps_former: bool,
) -> TableSchema {
    let mut rows: BTreeMap<&TableColumn, u64> = BTreeMap::new();
    for (segment_rows, segment) in segments {
        segment.columns.iter().for_each(|column| *rows.entry(column).or_default() += segment_rows);
    }
    let excluded = excluded_ids(segments, rows.keys().copied());
    let mut columns =
        rows.into_iter().filter(|(column, _)| !excluded.contains(&column.id())).collect::<Vec<_>>();
    columns.sort_by(|(a, left), (b, right)| right.cmp(left).then(a.cmp(b)));
    columns.truncate(COLUMNS_MAX);
    let columns = columns.into_iter().map(|(column, _)| column).collect::<Vec<_>>();
    let ids = columns.iter().map(|column| column.id()).collect::<HashSet<_>>();
    let former = former.iter().filter(|field| field.doc.is_some() && !excluded.contains(&field.id));
    let (present, absent): (Vec<&Field>, Vec<&Field>) = former.partition(|field| ids.contains(&field.id));
    let live = segments.iter().flat_map(|(_, segment)| &segment.columns).map(|column| column.key.as_str());
    let live = live.collect::<HashSet<_>>();
    let stays = |field: &&Field| keeps_former || field.doc.as_deref().is_some_and(|key| live.contains(key));
    let room = if segments.is_empty() { 0 } else { COLUMNS_MAX - columns.len() };
    let mut fields = absent.into_iter().filter(stays).take(room).cloned().collect::<Vec<_>>();
    fields.extend(named(&columns, &present, &fields));
    fields.sort_by(|a, b| a.name.cmp(&b.name));
    let fields = base_fields().into_iter().chain(fields).collect();
    TableSchema { fields, name_mapping: name_mapping(segments) }
}

/// Ids of columns that would be read wrongly: of different columns with one id, and of keys that have several types in files
/// without field ids, where only the name identifies a column.
fn excluded_ids<'a>(
    segments: &[(u64, Arc<SegmentColumns>)],
    columns: impl Iterator<Item = &'a TableColumn>,
) -> HashSet<i32> {
    let mut excluded = HashSet::new();
    let mut known: HashMap<i32, &TableColumn> = HashMap::new();
    for column in columns {
        if known.insert(column.id(), column).is_some() {
            tracing::warn!(?column, "two property columns have the same field id; the table has neither");
            excluded.insert(column.id());
        }
    }
    let mut types: BTreeMap<&str, BTreeSet<TableColumnType>> = BTreeMap::new();
    for column in segments.iter().filter(|(_, of)| !of.has_field_ids).flat_map(|(_, of)| &of.columns) {
        types.entry(&column.key).or_default().insert(column.column_type);
    }
    let ambiguous = types.iter().filter(|(_, types)| types.len() > 1).map(|(key, _)| *key);
    excluded.extend(
        ambiguous.flat_map(|key| {
            ALL_TYPES.map(|column_type| TableColumn { key: key.to_owned(), column_type }.id())
        }),
    );
    excluded
}

const ALL_TYPES: [TableColumnType; 5] = [
    TableColumnType::Text,
    TableColumnType::Integer,
    TableColumnType::Float,
    TableColumnType::Boolean,
    TableColumnType::Json,
];

/// The fields of these columns. Those that are `present` in the version before keep their names. Another one has its id in its
/// name too, if a field of the version before has the name, or if several have it and its key is not part of it as it is.
fn named(columns: &[&TableColumn], present: &[&Field], kept: &[Field]) -> Vec<Field> {
    let former = present.iter().map(|field| (field.id, field.name.as_str())).collect::<HashMap<_, _>>();
    let taken = present.iter().copied().chain(kept).map(|field| field.name.as_str()).collect::<HashSet<_>>();
    let mut names: BTreeMap<String, usize> = BTreeMap::new();
    columns.iter().for_each(|column| *names.entry(name_of(column)).or_default() += 1);
    let name = |column: &TableColumn| {
        if let Some(name) = former.get(&column.id()) {
            return (*name).to_owned();
        }
        let name = name_of(column);
        let is_shared = names.get(&name).is_some_and(|count| *count > 1) && plain(&column.key) != column.key;
        if is_shared || taken.contains(name.as_str()) { format!("{name}_{:x}", column.id()) } else { name }
    };
    let field = |column: &&TableColumn| {
        let field_type = match column.column_type {
            TableColumnType::Json => "string",
            other => other.name(),
        };
        Field { doc: Some(column.key.clone()), ..Field::new(column.id(), &name(column), false, field_type) }
    };
    columns.iter().map(field).collect()
}

fn name_of(column: &TableColumn) -> String {
    format!("p_{}_{}", plain(&column.key), column.column_type.name())
}

/// The key in lower case, with underscores in place of everything but letters and digits.
fn plain(key: &str) -> String {
    let lower = key.chars().map(|letter| letter.to_ascii_lowercase());
    lower.map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '_' }).collect()
}

/// The field ids of files that have none in them, by the names of their columns; every column has one, because readers refuse
/// names that are missing here.
fn name_mapping(segments: &[(u64, Arc<SegmentColumns>)]) -> Option<Value> {
    let old = segments.iter().filter(|(_, segment)| !segment.has_field_ids).map(|(_, segment)| segment);
    let mut ids: BTreeMap<String, i32> = BTreeMap::new();
    old.flat_map(|segment| &segment.columns).for_each(|column| {
        ids.insert(column.name_in_file(), column.id());
    });
    if segments.iter().all(|(_, segment)| segment.has_field_ids) {
        return None;
    }
    ids.extend(base_columns().map(|(name, id)| (name.to_owned(), id)));
    Some(ids.iter().map(|(name, id)| json!({"field-id": id, "names": [name]})).collect())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn column(key: &str, column_type: TableColumnType) -> TableColumn {
        TableColumn { key: key.to_owned(), column_type }
    }

    fn segment(has_field_ids: bool, columns: &[(&str, TableColumnType)]) -> (u64, Arc<SegmentColumns>) {
        let columns = columns.iter().map(|(key, column_type)| column(key, *column_type)).collect();
        (10, Arc::new(SegmentColumns { columns, has_field_ids, event_names: None }))
    }

    fn properties(schema: &TableSchema) -> Vec<(&str, &str)> {
        let properties = schema.fields.iter().filter(|field| field.doc.is_some());
        properties.map(|field| (field.name.as_str(), field.field_type.as_str())).collect()
    }

    use TableColumnType::{Float, Integer, Json, Text};

    #[test]
    fn a_key_has_a_column_for_each_type() {
        let segments = [
            segment(true, &[("plan", Text), ("n", Integer)]),
            segment(true, &[("plan", Json), ("n", Float)]),
        ];
        let schema = events_schema(&segments, &[], true);
        let expected = [
            ("p_n_double", "double"),
            ("p_n_long", "long"),
            ("p_plan_json", "string"),
            ("p_plan_string", "string"),
        ];
        assert_eq!(properties(&schema), expected);
        assert_eq!(schema.name_mapping, None);
        assert_eq!(schema.fields[0].name, "event");
    }

    #[test]
    fn a_key_with_several_types_in_files_without_field_ids_has_no_column() {
        let old = [
            segment(false, &[("plan", Text), ("n", Float)]),
            segment(false, &[("plan", Json), ("n", Float)]),
        ];
        let new = segment(true, &[("plan", Text), ("n", Integer)]);
        let schema = events_schema(&[old[0].clone(), old[1].clone(), new.clone()], &[], true);
        assert_eq!(properties(&schema), [("p_n_double", "double"), ("p_n_long", "long")]);
        let mapped = schema.name_mapping.unwrap();
        let names = mapped.as_array().unwrap().iter().map(|entry| entry["names"][0].as_str().unwrap());
        assert_eq!(names.filter(|name| name.starts_with("p.")).collect::<Vec<_>>(), ["p.n", "p.plan"]);
        assert_eq!(mapped.as_array().unwrap().len(), 13);
        let of_one = events_schema(&[old[0].clone(), new], &[], true);
        assert!(properties(&of_one).contains(&("p_plan_string", "string")));
    }

    #[test]
    fn names_that_engines_fold_get_different_names() {
        let segments = [segment(true, &[("plan", Text), ("Plan", Text), ("$plan", Text), ("été", Text)])];
        let schema = events_schema(&segments, &[], true);
        let names = properties(&schema).into_iter().map(|(name, _)| name).collect::<Vec<_>>();
        let upper = format!("p_plan_string_{:x}", column("Plan", Text).id());
        assert_eq!(names, ["p__plan_string", "p__t__string", "p_plan_string", upper.as_str()]);
    }

    #[test]
    fn former_columns_stay_until_there_are_no_events() {
        let before = events_schema(&[segment(true, &[("plan", Text)])], &[], true);
        let after = events_schema(&[segment(true, &[("n", Integer)])], &before.fields, true);
        assert_eq!(properties(&after), [("p_n_long", "long"), ("p_plan_string", "string")]);
        assert_eq!(properties(&events_schema(&[], &after.fields, true)), []);
        // Such a file makes the name of the column ambiguous.
        let old = [segment(false, &[("plan", Integer)]), segment(false, &[("plan", Float)])];
        assert_eq!(properties(&events_schema(&old, &after.fields, true)), [("p_n_long", "long")]);
    }

    #[test]
    fn a_column_keeps_its_name_as_long_as_it_is_in_the_table() {
        let first = events_schema(&[segment(true, &[("$browser", Text)])], &[], true);
        assert_eq!(properties(&first), [("p__browser_string", "string")]);
        let with_other = segment(true, &[("$browser", Text), ("_browser", Text)]);
        let second = events_schema(std::slice::from_ref(&with_other), &first.fields, true);
        let other = format!("p__browser_string_{:x}", column("_browser", Text).id());
        let named =
            second.fields.iter().filter_map(|field| Some((field.doc.as_deref()?, field.name.as_str())));
        assert_eq!(
            named.collect::<Vec<_>>(),
            [("$browser", "p__browser_string"), ("_browser", other.as_str())]
        );
        // The same when no file has the former column any more.
        let third = events_schema(&[segment(true, &[("_browser", Text)])], &second.fields, true);
        assert_eq!(third.fields, second.fields);
        let erased = events_schema(&[segment(true, &[("_browser", Text)])], &third.fields, false);
        assert_eq!(properties(&erased), [(other.as_str(), "string")], "nothing of erased events stays");
        let integers = events_schema(&[segment(true, &[("n", Integer)])], &[], true);
        let erased = events_schema(&[segment(true, &[("n", Float)])], &integers.fields, false);
        assert_eq!(properties(&erased), [("p_n_double", "double"), ("p_n_long", "long")]);
    }

    #[test]
    fn the_columns_with_the_most_rows_are_in_the_table() {
        let keys = (0..COLUMNS_MAX).map(|number| format!("k{number}")).collect::<Vec<_>>();
        let rare = keys.iter().map(|key| (key.as_str(), Text)).collect::<Vec<_>>();
        let (_, often) = segment(true, &[("often", Text)]);
        let schema = events_schema(&[segment(true, &rare), (1_000_000, often)], &[], true);
        assert_eq!(properties(&schema).len(), COLUMNS_MAX);
        assert!(properties(&schema).contains(&("p_often_string", "string")));
    }
}
