//! Columnar buffer for new events on their way into a segment: no object per event.
//!
//! Names, distinct ids and texts are interned; each property key is a column of numbers. At the end, rows are
//! sorted by a permutation and passed to the segment writer, one person range after the other
//! ([`segment_encoder`]). Must stay true: every value is preserved exactly; which keys get a column is decided
//! by [`crate::segments::property_columns`]; memory is about [`EventColumns::memory`]. The public interface is
//! [`EventColumns`].

mod chunked_vec;
mod flag_calls;
pub(crate) mod from_blocks;
mod import;
mod interner;
mod property_column;
mod segment_encoder;

use pennon_analytics::scan::{Micros, Seq};
use uuid::Uuid;

pub(crate) use from_blocks::InflatedBlocks;
pub(crate) use import::EventImporter;

use crate::event::{Event, seq_of_line};
use crate::property_value::{Properties, PropertyValue};
use chunked_vec::ChunkedVec;
use interner::Interner;
use property_column::{PropertyValues, StoredValue};

/// Keys beyond these get no column, however frequent they become; their values are stored one by one.
const KEYS_MAX: usize = 20_000;
/// Approximate bytes of an event without texts and properties.
const FIXED_BYTES: usize = 48;
/// Most bytes of texts in one segment: Arrow offsets have 31 bits.
pub const TEXT_BYTES_MAX: usize = 1 << 30;

/// New events in columns, in order of arrival.
pub struct EventColumns {
    /// When the import began.
    now: Micros,
    names: Interner,
    distinct_ids: Interner,
    texts: Interner,
    keys: Interner,
    /// By row.
    events: ChunkedVec<u32>,
    distinct_id_codes: ChunkedVec<u32>,
    times: ChunkedVec<Micros>,
    seqs: ChunkedVec<Seq>,
    uuids: ChunkedVec<Uuid>,
    /// By key index, for the first [`KEYS_MAX`] keys.
    columns: Vec<PropertyValues>,
    /// Row, key and value of the other keys.
    rest: Vec<(u32, u32, StoredValue)>,
    /// The previous key of the current event.
    last_key: Option<u32>,
    text_bytes: usize,
    taken_bytes: usize,
}

impl std::fmt::Debug for EventColumns {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("EventColumns").field("events", &self.len()).finish_non_exhaustive()
    }
}

impl EventColumns {
    /// An empty buffer of an import that began at `now`.
    pub fn new(now: Micros) -> EventColumns {
        EventColumns {
            now,
            names: Interner::default(),
            distinct_ids: Interner::default(),
            texts: Interner::default(),
            keys: Interner::default(),
            events: ChunkedVec::default(),
            distinct_id_codes: ChunkedVec::default(),
            times: ChunkedVec::default(),
            seqs: ChunkedVec::default(),
            uuids: ChunkedVec::default(),
            columns: Vec::new(),
            rest: Vec::new(),
            last_key: None,
            text_bytes: 0,
            taken_bytes: 0,
        }
    }

    /// Adds the event of a line without properties, which follow through [`Properties::property`].
    pub fn event(&mut self, line: u64, uuid: Uuid, event: &str, distinct_id: &str, timestamp: Micros) {
        self.begin(seq_of_line(self.now, line), uuid, event, distinct_id, timestamp);
    }

    /// Adds an event of a line with its properties.
    pub fn push(&mut self, line: u64, event: &Event) {
        self.take(seq_of_line(self.now, line), event);
    }

    fn take(&mut self, seq: Seq, event: &Event) {
        self.begin(seq, event.uuid, &event.event, &event.distinct_id, event.timestamp);
        for (key, value) in &event.properties {
            self.property(key, PropertyValue::of(value));
        }
    }

    fn begin(&mut self, seq: Seq, uuid: Uuid, event: &str, distinct_id: &str, timestamp: Micros) {
        self.events.push(self.names.number(event));
        self.distinct_id_codes.push(self.distinct_ids.number(distinct_id));
        self.times.push(timestamp);
        self.seqs.push(seq);
        self.uuids.push(uuid);
        self.taken_bytes += event.len() + distinct_id.len() + FIXED_BYTES;
        self.last_key = None;
    }

    /// Number of events.
    pub fn len(&self) -> usize {
        self.events.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Approximate bytes of memory, including capacity for growth.
    pub fn memory(&self) -> usize {
        let interned = [&self.names, &self.distinct_ids, &self.texts, &self.keys];
        interned.iter().map(|texts| texts.memory()).sum::<usize>()
            + self.events.memory()
            + self.distinct_id_codes.memory()
            + self.times.memory()
            + self.seqs.memory()
            + self.uuids.memory()
            + self.columns.iter().map(PropertyValues::memory).sum::<usize>()
            + self.rest.capacity() * size_of::<(u32, u32, StoredValue)>()
    }

    /// Bytes of their texts without interning.
    pub fn text_bytes(&self) -> usize {
        self.text_bytes
    }

    /// Approximate input bytes: memory is at most a few times this.
    pub fn taken_bytes(&self) -> usize {
        self.taken_bytes
    }

    /// The index of a key. Events mostly list keys in the same order, so the key that followed last time is
    /// tried first.
    fn key(&mut self, key: &str) -> u32 {
        let guess = match self.last_key {
            None => Some(0),
            Some(last) => self.columns.get(last as usize).map(|column| column.next),
        };
        let guess = guess.filter(|guess| (*guess as usize) < self.keys.len());
        let number = match guess {
            Some(guess) if self.keys.text(guess) == key => guess,
            _ => self.keys.number(key),
        };
        if let Some(column) = self.last_key.and_then(|last| self.columns.get_mut(last as usize)) {
            column.next = number;
        }
        self.last_key = Some(number);
        number
    }
}

impl Properties for EventColumns {
    /// Adds a property to the last event.
    fn property(&mut self, key: &str, cell: PropertyValue<'_>) {
        let Some(row) = self.len().checked_sub(1) else { return };
        let number = self.key(key);
        self.taken_bytes += key.len() + size_of::<StoredValue>();
        if let PropertyValue::Text(text) | PropertyValue::Json(text) = &cell {
            self.text_bytes += text.len();
            self.taken_bytes += text.len();
        }
        let value = StoredValue::of(&cell, &mut self.texts);
        if number as usize >= KEYS_MAX {
            self.text_bytes += key.len();
            self.rest.push((row as u32, number, value));
            return;
        }
        if number as usize == self.columns.len() {
            self.columns.push(PropertyValues::new());
        }
        self.columns[number as usize].push(row as u32, value);
    }
}

#[cfg(test)]
mod tests;
