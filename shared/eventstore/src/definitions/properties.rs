//! Property names and value types.

use std::collections::{BTreeMap, BTreeSet};

use pennon_core::store::keys::ProjectId;
use serde_json::{Map, Value};

use super::DefinitionLists;
use crate::error::EventStoreError;
use crate::memory::QueryMemory;
use crate::persons::lookup::GroupType;
use crate::property_value::{Properties, PropertyValue};
use crate::segments::property_columns::PropertyColumnKind;

/// The type of the values of a property.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueType {
    /// Texts.
    Text,
    /// Numbers.
    Number,
    /// true and false.
    Boolean,
    /// Lists, objects, or values of several types.
    Mixed,
}

/// Property names with the type of their values, if known. Null has no type.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PropertyNames(pub BTreeMap<String, Option<ValueType>>);

impl PropertyNames {
    fn add(&mut self, name: &str, of: Option<ValueType>) {
        match self.0.get_mut(name) {
            None => drop(self.0.insert(name.to_owned(), of)),
            Some(known) => {
                *known = match (*known, of) {
                    (known, None) => known,
                    (None, of) => of,
                    (Some(known), Some(of)) if known == of => Some(of),
                    _ => Some(ValueType::Mixed),
                }
            }
        }
    }

    fn add_all(&mut self, properties: &Map<String, Value>) {
        for (name, value) in properties {
            self.add(name, type_of(&PropertyValue::of(value)));
        }
    }
}

impl Properties for PropertyNames {
    fn property(&mut self, key: &str, cell: PropertyValue<'_>) {
        self.add(key, type_of(&cell));
    }
}

fn type_of(cell: &PropertyValue<'_>) -> Option<ValueType> {
    match cell {
        PropertyValue::Null => None,
        PropertyValue::Boolean(_) => Some(ValueType::Boolean),
        PropertyValue::Integer(_) | PropertyValue::Float(_) => Some(ValueType::Number),
        PropertyValue::Text(_) => Some(ValueType::Text),
        PropertyValue::Json(_) => Some(ValueType::Mixed),
    }
}

/// The type of most values of a column; a few others may not fit it.
fn type_of_column(kind: PropertyColumnKind) -> ValueType {
    match kind {
        PropertyColumnKind::Text => ValueType::Text,
        PropertyColumnKind::Integer | PropertyColumnKind::Float | PropertyColumnKind::Number => {
            ValueType::Number
        }
        PropertyColumnKind::Boolean => ValueType::Boolean,
        PropertyColumnKind::Json => ValueType::Mixed,
    }
}

impl DefinitionLists {
    /// The property names of events: of each segment its columns, at most 250, and its other keys if there are
    /// at most 2,000, whose type is unknown.
    pub(crate) async fn event_property_names(
        &self,
        project: ProjectId,
        memory: &QueryMemory,
    ) -> Result<PropertyNames, EventStoreError> {
        let (files, waiting) = self.footers_and_blocks(project, memory).await?;
        let mut names = PropertyNames::default();
        for file in files {
            for column in &file.footer.columns {
                names.add(&column.key, Some(type_of_column(column.kind)));
            }
            let others = file.footer.overflow_keys.iter().flatten();
            others.for_each(|key| names.add(key, None));
        }
        let requested = waiting.rows.iter().map(|row| (row.seq, row.event.uuid)).collect::<BTreeSet<_>>();
        let opener = waiting.opener();
        let read = tokio::task::spawn_blocking(move || {
            opener.open_each(&requested, |_, block, index| block.read_properties_into(index, &mut names))?;
            Ok::<_, EventStoreError>(names)
        });
        self.blocks.mark_damage(read.await?).await
    }

    /// The property names of persons.
    ///
    /// [`EventStoreError::TooLarge`] as for [`crate::EventStore::people`].
    pub(crate) async fn person_property_names(
        &self,
        project: ProjectId,
        memory: &QueryMemory,
    ) -> Result<PropertyNames, EventStoreError> {
        let people = self.lookup.load_people_with_all_properties(project, memory).await?;
        let read = tokio::task::spawn_blocking(move || {
            let mut names = PropertyNames::default();
            people.each(|_, _, properties| {
                names.add_all(properties);
                std::ops::ControlFlow::Continue(())
            });
            names
        });
        Ok(read.await?)
    }

    /// The property names of groups of a type.
    ///
    /// [`EventStoreError::TooLarge`] as for [`crate::EventStore::groups_of`].
    pub(crate) async fn group_property_names(
        &self,
        project: ProjectId,
        group_type: &GroupType,
        memory: &QueryMemory,
    ) -> Result<PropertyNames, EventStoreError> {
        let mut names = PropertyNames::default();
        for group in self.lookup.load_groups(project, group_type, None, memory).await? {
            names.add_all(&group.properties);
        }
        Ok(names)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_property_has_the_type_that_all_its_values_have() {
        let mut names = PropertyNames::default();
        for properties in [
            json!({"a": "x", "b": 1, "c": true, "d": null, "e": [1], "f": "x", "g": null}),
            json!({"a": "y", "b": 2.5, "c": false, "d": null, "e": [2], "f": 1, "g": 7}),
        ] {
            names.add_all(properties.as_object().unwrap_or(&Map::new()));
        }
        let types = ["a", "b", "c", "d", "e", "f", "g"].map(|name| names.0.get(name).copied().flatten());
        let (text, number, boolean, mixed) = (
            Some(ValueType::Text),
            Some(ValueType::Number),
            Some(ValueType::Boolean),
            Some(ValueType::Mixed),
        );
        assert_eq!(types, [text, number, boolean, None, mixed, mixed, number]);
        assert!(names.0.contains_key("d"), "a name is known without a type");
    }
}
