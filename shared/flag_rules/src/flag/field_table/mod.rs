//! The table of all fields of a flag, in the order of responses. It drives the parsing of bodies, the conflict check, the
//! activity log, responses, the sort orders of the list, the definitions for SDKs, workspace files and the API document.
//!
//! Must stay true: every field of [`Flag`] has a row. Of several invalid fields of a body, the first one in the table is
//! reported.

mod rows;
mod value;

use std::cmp::Ordering;
use std::sync::LazyLock;

use pennon_filters::body::FieldError;
use pennon_filters::body::fields::TextRule;
use serde_json::Value;

pub use self::rows::FLAG_FIELDS;
pub use self::value::FieldValue;
use super::input::SentField;
use super::{Flag, FlagInput, FlagRow};
use crate::calls::CallTimes;

/// A field of a flag in the API.
#[derive(Debug, Clone, Copy)]
pub struct FlagField {
    /// Its name in bodies, responses and stored records.
    pub name: &'static str,
    /// The type of its values. It determines the schemas in the API document; `write` validates against the same
    /// constants.
    pub kind: FieldKind,
    /// Whether it may be null.
    pub nullable: bool,
    /// Its value in a record; null if it is not stored.
    pub stored: fn(&Flag) -> FieldValue<'_>,
    /// What a write does with it.
    pub write: FieldWrite,
    /// Its value in responses.
    pub response: ResponseValue,
    /// Whether changes of it are in the activity log.
    pub log: LogRule,
    /// Whether the list can be sorted by it.
    pub sort: Sortable,
    /// Its place in a flag in minimal form, as definitions for SDKs contain it.
    pub definitions: DefinitionRule,
    /// Its place in a workspace file.
    pub workspace: WorkspaceRule,
}

/// The type of a field's values.
#[derive(Debug, Clone, Copy)]
#[expect(missing_docs, reason = "the variants are named after the types")]
pub enum FieldKind {
    Boolean,
    Integer,
    /// The id of a record.
    Id,
    Percentage,
    Text(TextRule),
    /// The key of a flag.
    Key,
    /// One of these texts.
    OneOf(&'static [&'static str]),
    Instant,
    /// The instant of a call; a body may have it in any form that can be parsed.
    CallTime,
    AnyJson,
    User,
    Filters,
    Tags,
    /// Ids of dashboards.
    Dashboards,
    /// Always an empty list: this product has no such records.
    EmptyList,
}

/// Validates the value in a body and puts it into the input. Returns false if the write must not change the field.
pub type ParseField = fn(&SentField<'_>, &mut FlagInput) -> Result<bool, FieldError>;

/// What a write does with a field.
#[derive(Debug, Clone, Copy)]
pub enum FieldWrite {
    /// It is accepted and ignored.
    Ignored,
    /// It is accepted and only read by the conflict check.
    ConflictCheckOnly,
    /// It is validated and not stored: a rule about the whole write reads it.
    Rule(ParseField),
    /// It is validated, compared with concurrent changes, and stored.
    Stored {
        /// Validates it.
        parse: ParseField,
        /// Changes the first flag to the value in the second one.
        apply: fn(&mut Flag, &Flag),
    },
}

impl FieldWrite {
    /// The validation of the field; `None` if it has none.
    pub fn parse(self) -> Option<ParseField> {
        match self {
            FieldWrite::Rule(parse) | FieldWrite::Stored { parse, .. } => Some(parse),
            FieldWrite::Ignored | FieldWrite::ConflictCheckOnly => None,
        }
    }
}

/// The value of a field in responses.
#[derive(Debug, Clone, Copy)]
pub enum ResponseValue {
    /// It is not in responses.
    Absent,
    /// The stored value.
    Stored,
    /// The filters, with the names of cohorts.
    Filters,
    /// Computed from the record.
    Computed(fn(&Flag) -> Value),
    /// It depends on the caller or the time, so it is inserted for each request.
    PerRequest(RequestValue),
}

/// A value that depends on the caller or the time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the variants are named after the fields")]
pub enum RequestValue {
    CanEdit,
    UserAccessLevel,
    Status,
    LastCalledAt,
}

/// Whether changes of a field are in the activity log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogRule {
    /// They are not.
    No,
    /// At this position.
    At(u8),
    /// At this position, as a list of linked records: always "changed", even from or to an empty list.
    ListAt(u8),
}

/// The order of two flags by one field.
pub type CompareRows = fn(&FlagRow, &FlagRow, &CallTimes) -> Ordering;

/// Whether the list can be sorted by a field.
#[derive(Debug, Clone, Copy)]
pub enum Sortable {
    /// It cannot.
    No,
    /// It can; the position is that in the API document.
    At(u8, CompareRows),
}

/// The place of a field in a flag in minimal form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DefinitionRule {
    /// It is not in it.
    No,
    /// At this position.
    At(u8, DefinitionsValue),
}

/// The value of a field in a flag in minimal form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DefinitionsValue {
    /// The stored value.
    Stored,
    /// The stored value; the field is omitted when it is null.
    OmittedIfNull,
    /// The stored value; false when it is null.
    FalseIfNull,
    /// The stored value, which is false: definitions contain only live flags.
    AlwaysFalse,
    /// The filters, normalized for SDKs.
    Filters,
    /// The id of the project.
    Project,
    /// An empty list.
    EmptyList,
}

/// The place of a field in a workspace file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkspaceRule {
    /// A file does not have it, or not as a field of the API.
    No,
    /// At this position of an export.
    At(u8),
    /// At this position of an export, unless it has its default.
    IfSetAt(u8),
}

/// The logged fields, in the order of the log.
pub fn logged_fields() -> &'static [&'static FlagField] {
    static FIELDS: LazyLock<Vec<&FlagField>> = LazyLock::new(|| {
        ordered(|field| match field.log {
            LogRule::No => None,
            LogRule::At(position) | LogRule::ListAt(position) => Some(position),
        })
    });
    &FIELDS
}

/// The fields of a flag in minimal form, in their order.
pub fn definition_fields() -> &'static [(&'static FlagField, DefinitionsValue)] {
    static FIELDS: LazyLock<Vec<(&FlagField, DefinitionsValue)>> = LazyLock::new(|| {
        let place = |field: &FlagField| match field.definitions {
            DefinitionRule::No => None,
            DefinitionRule::At(position, value) => Some((position, value)),
        };
        let fields = ordered(|field| place(field).map(|(position, _)| position));
        fields.into_iter().filter_map(|field| Some((field, place(field)?.1))).collect()
    });
    &FIELDS
}

/// The fields that the list can be sorted by, in the order of the API document.
pub fn sortable_fields() -> impl Iterator<Item = (&'static str, CompareRows)> {
    static FIELDS: LazyLock<Vec<&FlagField>> = LazyLock::new(|| {
        ordered(|field| match field.sort {
            Sortable::No => None,
            Sortable::At(position, _) => Some(position),
        })
    });
    FIELDS.iter().filter_map(|field| match field.sort {
        Sortable::No => None,
        Sortable::At(_, compare) => Some((field.name, compare)),
    })
}

/// The fields of a workspace file, in the order of an export.
pub fn workspace_fields() -> &'static [&'static FlagField] {
    static FIELDS: LazyLock<Vec<&FlagField>> = LazyLock::new(|| {
        ordered(|field| match field.workspace {
            WorkspaceRule::No => None,
            WorkspaceRule::At(position) | WorkspaceRule::IfSetAt(position) => Some(position),
        })
    });
    &FIELDS
}

/// The fields that have a position, by their positions.
fn ordered(position: impl Fn(&FlagField) -> Option<u8>) -> Vec<&'static FlagField> {
    let mut fields: Vec<(u8, &FlagField)> =
        FLAG_FIELDS.iter().filter_map(|field| Some((position(field)?, field))).collect();
    fields.sort_by_key(|(position, _)| *position);
    fields.into_iter().map(|(_, field)| field).collect()
}

#[cfg(test)]
mod tests;
