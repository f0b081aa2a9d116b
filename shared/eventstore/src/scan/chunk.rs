//! The wanted rows of one source, with the wanted columns: a row group of a segment, or the blocks.
//!
//! Must stay true: a chunk has exactly the rows that the request names, each under its final person.

use std::collections::HashMap;

use arrow::array::RecordBatch;
use pennon_engine::scan::{ColumnKey, EventSelection, MISSING, Micros, ScanRequest, Seq};
use serde_json::{Map, Value};
use uuid::Uuid;

use crate::error::EventStoreError;
use crate::event::Row;
use crate::resolution::Resolution;
use crate::segment::read::{ids, seqs, texts, times};
use crate::segment::values::Coded;
use crate::segment::{Footer, values};

/// The property that holds the groups of an event, by the names of their types.
pub(crate) const GROUPS: &str = "$groups";
/// Start of the names under which groups are asked for, followed by the index of their type.
const GROUP_PREFIX: &str = "$group_";
/// What every scan reads of a segment.
const ALWAYS: [&str; 5] = ["event", "person", "timestamp", "seq_high", "seq_low"];

/// A request, made ready to be put to each source.
#[derive(Debug)]
pub(crate) struct Wanted {
    pub request: ScanRequest,
    pub columns: Vec<(ColumnKey, Source)>,
}

/// Where the values of a column come from.
#[derive(Debug)]
pub(crate) enum Source {
    DistinctId,
    AllProperties,
    Property(String),
    /// The group of a type; an event whose groups do not name the type may have it as a property of its own.
    Group {
        type_name: String,
        own: String,
    },
}

impl Wanted {
    /// The request of a project whose group types have these names, by index.
    pub(crate) fn new(request: &ScanRequest, group_types: &[String]) -> Wanted {
        let source = |key: &ColumnKey| match key {
            ColumnKey::DistinctId => Source::DistinctId,
            ColumnKey::AllProperties => Source::AllProperties,
            ColumnKey::Property(key) => match group_type(key, group_types) {
                Some(type_name) => Source::Group { type_name: type_name.clone(), own: key.clone() },
                None => Source::Property(key.clone()),
            },
        };
        let columns = request.columns.iter().map(|key| (key.clone(), source(key))).collect();
        Wanted { request: request.clone(), columns }
    }

    pub(crate) fn has(&self, event: &str, time: Micros) -> bool {
        self.in_time(time) && self.is_named(event)
    }

    fn in_time(&self, time: Micros) -> bool {
        self.request.from <= time && time <= self.request.to
    }

    fn is_named(&self, event: &str) -> bool {
        match &self.request.events {
            EventSelection::All => true,
            EventSelection::Named(names) => names.contains(event),
        }
    }

    /// The columns of a segment that the request needs.
    pub(crate) fn projection(&self, footer: &Footer) -> Vec<String> {
        let mut columns = ALWAYS.map(str::to_owned).to_vec();
        for (_, source) in &self.columns {
            match source {
                Source::DistinctId => columns.push("distinct_id".to_owned()),
                Source::AllProperties => columns.extend(values::all_places(footer)),
                Source::Property(key) => columns.extend(values::places(footer, key)),
                Source::Group { own, .. } => {
                    columns.extend(values::places(footer, GROUPS));
                    columns.extend(values::places(footer, own));
                }
            }
        }
        columns
    }
}

fn group_type<'a>(key: &str, group_types: &'a [String]) -> Option<&'a String> {
    group_types.get(key.strip_prefix(GROUP_PREFIX)?.parse::<usize>().ok()?)
}

/// Wanted rows of one source; all vectors but `names` have one entry a row.
#[derive(Debug, Default)]
pub(crate) struct Chunk {
    pub names: Vec<String>,
    /// Index into `names`.
    pub events: Vec<u32>,
    pub persons: Vec<Uuid>,
    pub times: Vec<Micros>,
    pub seqs: Vec<Seq>,
    /// In the order of [`Wanted::columns`].
    pub columns: Vec<Coded>,
}

impl Chunk {
    /// The wanted rows of a decoded batch of a segment.
    pub(crate) fn of_batch(
        batch: &RecordBatch,
        footer: &Footer,
        wanted: &Wanted,
        resolution: &Resolution,
    ) -> Result<Chunk, EventStoreError> {
        let names = texts(batch, "event")?;
        let named = names.values.iter().map(|name| wanted.is_named(name)).collect::<Vec<_>>();
        let times = times(batch)?;
        let mut keep = Vec::new();
        let mut events = Vec::new();
        for (row, code) in names.codes.iter().enumerate() {
            let code = code.ok_or_else(|| EventStoreError::corrupt("an event without a name"))?;
            if named[code as usize] && wanted.in_time(times[row]) {
                keep.push(row);
                events.push(code);
            }
        }
        let persons = ids(batch, "person")?;
        let seqs = seqs(batch)?;
        let overflow = values::overflow(batch)?;
        let mut columns = Vec::with_capacity(wanted.columns.len());
        for (_, source) in &wanted.columns {
            if let Source::AllProperties = source {
                columns.push(values::objects(batch, footer, &overflow, &keep)?);
                continue;
            }
            let column = of_source(batch, footer, &overflow, source)?;
            columns.push(Coded {
                codes: keep.iter().map(|row| column.codes[*row]).collect(),
                values: column.values,
            });
        }
        Ok(Chunk {
            names: names.values.iter().map(|name| (*name).to_owned()).collect(),
            events,
            persons: keep.iter().map(|row| resolution.person(persons[*row])).collect(),
            times: keep.iter().map(|row| times[*row]).collect(),
            seqs: keep.iter().map(|row| seqs[*row]).collect(),
            columns,
        })
    }

    /// All of `rows`, which the caller has chosen.
    pub(crate) fn of_rows(rows: &[Row], wanted: &Wanted, resolution: &Resolution) -> Chunk {
        let mut chunk = Chunk::default();
        let mut known = HashMap::new();
        for row in rows {
            let name = row.event.event.as_str();
            let code = *known.entry(name).or_insert_with(|| {
                chunk.names.push(name.to_owned());
                (chunk.names.len() - 1) as u32
            });
            chunk.events.push(code);
            chunk.persons.push(resolution.person(row.person));
            chunk.times.push(row.event.timestamp);
            chunk.seqs.push(row.seq);
        }
        chunk.columns = wanted.columns.iter().map(|(_, source)| of_events(rows, source)).collect();
        chunk
    }
}

fn of_source(
    batch: &RecordBatch,
    footer: &Footer,
    overflow: &[Option<Map<String, Value>>],
    source: &Source,
) -> Result<Coded, EventStoreError> {
    match source {
        Source::AllProperties => {
            let rows: Vec<usize> = (0..batch.num_rows()).collect();
            values::objects(batch, footer, overflow, &rows)
        }
        Source::DistinctId => {
            let texts = texts(batch, "distinct_id")?;
            let codes = texts.codes.into_iter().map(|code| code.unwrap_or(MISSING)).collect();
            Ok(Coded { codes, values: texts.values.into_iter().map(Value::from).collect() })
        }
        Source::Property(key) => values::property(batch, footer, overflow, key),
        Source::Group { type_name, own } => {
            let groups = values::property(batch, footer, overflow, GROUPS)?;
            let keys = groups.values.iter().map(|value| group_key(value, type_name)).collect::<Vec<_>>();
            let mut column = values::property(batch, footer, overflow, own)?;
            let shift = column.values.len() as u32;
            for (code, group) in column.codes.iter_mut().zip(&groups.codes) {
                if keys.get(*group as usize).is_some_and(Option::is_some) {
                    *code = shift + group;
                }
            }
            column.values.extend(keys.into_iter().map(Option::unwrap_or_default));
            Ok(column)
        }
    }
}

/// The key of the group of a type, always as text.
fn group_key(groups: &Value, type_name: &str) -> Option<Value> {
    match groups.get(type_name)? {
        Value::Null => None,
        Value::String(key) => Some(Value::from(key.as_str())),
        other => Some(Value::from(other.to_string())),
    }
}

fn of_events(rows: &[Row], source: &Source) -> Coded {
    let mut column = Coded::default();
    let mut known: HashMap<Value, u32> = HashMap::new();
    for row in rows {
        let properties = &row.event.properties;
        let value = match source {
            Source::DistinctId => Some(Value::from(row.event.distinct_id.as_str())),
            Source::AllProperties => Some(Value::Object(properties.clone())),
            Source::Property(key) => properties.get(key).cloned(),
            Source::Group { type_name, own } => properties
                .get(GROUPS)
                .and_then(|groups| group_key(groups, type_name))
                .or_else(|| properties.get(own).cloned()),
        };
        column.codes.push(value.map_or(MISSING, |value| {
            let next = column.values.len() as u32;
            *known.entry(value).or_insert_with_key(|value| {
                column.values.push(value.clone());
                next
            })
        }));
    }
    column
}
