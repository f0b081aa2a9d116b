//! Flag calls among new events.

use pennon_flag_rules::calls::{CALL_EVENT, CALLED_KEY, CallsByKey};
use pennon_flag_rules::is_possible_key;

use super::EventColumns;
use super::property_column::Tag;

impl EventColumns {
    /// The latest call of each flag key among these events.
    pub(crate) fn flag_calls(&self) -> CallsByKey {
        let mut calls = CallsByKey::default();
        let Some(name) = self.names.known(CALL_EVENT) else { return calls };
        let Some(key) = self.keys.known(CALLED_KEY) else { return calls };
        let mut add = |row: usize, tag: Tag, text: u64| {
            if tag == Tag::Text && self.events[row] == name {
                let key = self.texts.text(text as u32);
                if is_possible_key(key) {
                    calls.add(key, self.times[row]);
                }
            }
        };
        match self.columns.get(key as usize) {
            Some(column) => {
                (0..column.len()).for_each(|place| {
                    let value = column.at(place);
                    add(column.row(place) as usize, value.tag, value.bits);
                });
            }
            // Overflow key, whose values are stored separately.
            None => {
                let values = self.rest.iter().filter(|(_, number, _)| *number == key);
                values.for_each(|(row, _, value)| add(*row as usize, value.tag, value.bits));
            }
        }
        calls
    }
}
