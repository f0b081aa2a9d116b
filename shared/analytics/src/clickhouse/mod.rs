//! Translates queries to ClickHouse SQL over the segment files of a project.
//!
//! The query is compiled by the same code as for a local calculation, and the compiled form is written as SQL. No I/O: the
//! caller lists the files and runs the statement; [`crate::Plan::finish_rows`] makes a result of its rows.
//!
//! Must stay true: the statement returns the numbers that the plan computes for the events of these files, or the
//! translation is an error that names the unsupported part; all texts of a query are quoted.
//!
//! Known differences: sums of fractions are rounded differently, non-ASCII letters may have other lower-case forms, and
//! numbers above 10^16 or below 10^-5 are formatted differently as text.

mod condition;
mod location;
pub(crate) mod quote;
mod rows;
mod source;
mod values;

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use chrono_tz::Tz;
use pennon_filters::error::{CalcError, CalcResult};
use uuid::Uuid;

use crate::compiler::matcher::Matcher;
use crate::compiler::{Compiler, common_filter};
use crate::project::ProjectContext;
use crate::query::{BreakdownDimension, CommonFields, DimensionSource, Series};
use crate::scan::{ColumnKey, Micros};
use condition::SelectedColumns;
pub use location::FileLocation;
pub(crate) use rows::SqlRow;
pub use rows::{FORMAT, RowsError, SqlRows};

/// The segment files of a project.
#[derive(Debug, Clone, PartialEq)]
pub struct SegmentFiles {
    /// Their location.
    pub place: FileLocation,
    /// The files to read.
    pub segments: Vec<SqlSegment>,
    /// Merged person ids in the files and their canonical ids: at most [`MAX_PERSON_MERGES`].
    pub merged: Vec<(Uuid, Uuid)>,
}

/// A segment file.
#[derive(Debug, Clone, PartialEq)]
pub struct SqlSegment {
    /// Its path relative to the location.
    pub object: String,
    /// Its property columns, by key.
    pub columns: BTreeMap<String, SqlColumn>,
    /// Further keys in its JSON column; none if not known.
    pub rest: Option<Vec<String>>,
    /// First and last time of its events.
    pub times: (Micros, Micros),
    /// Names of its events; none if not known.
    pub events: Option<Vec<String>>,
}

/// A property column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SqlColumn {
    /// Its type.
    pub kind: ColumnType,
    /// Some values of the key are in the JSON column, because they do not fit the type.
    pub exceptions: bool,
}

/// The type of a property column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ColumnType {
    /// Strings.
    Text,
    /// 64-bit integers.
    Integer,
    /// 64-bit floats.
    Float,
    /// true and false.
    Boolean,
    /// JSON text.
    Json,
}

/// Maximum merged persons in a statement.
pub const MAX_PERSON_MERGES: usize = 2_000;

/// A select from `events`, and the range of their times.
pub struct EventSelect {
    /// The statement.
    pub(crate) sql: String,
    /// First instant.
    pub(crate) from: DateTime<Tz>,
    /// Last instant.
    pub(crate) to: DateTime<Tz>,
}

/// Builds one statement.
pub struct StatementWriter<'a> {
    pub(crate) project: &'a ProjectContext,
    files: &'a SegmentFiles,
    pub(crate) compiler: Compiler<'a>,
    /// The values of events that the statement reads.
    pub(crate) fields: SelectedColumns,
}

impl<'a> StatementWriter<'a> {
    pub(crate) fn new(project: &'a ProjectContext, now: DateTime<Utc>, files: &'a SegmentFiles) -> Self {
        let compiler = Compiler::new(project, now);
        Self { project, files, compiler, fields: SelectedColumns::default() }
    }

    /// Combines the definition of `events` and the select from it.
    pub(crate) fn statement(&self, select: &EventSelect) -> CalcResult<String> {
        let times = (select.from.timestamp_micros(), select.to.timestamp_micros());
        let (events, select) = (source::events(self, times)?, &select.sql);
        Ok(format!("WITH events AS (\n{events}\n)\n{select}\nSETTINGS precise_float_parsing = 1"))
    }

    /// The condition on all events of the query.
    pub(crate) fn common_condition(&mut self, common: &CommonFields) -> CalcResult<String> {
        let filter = common_filter(common, self.project)?;
        let predicate = self.compiler.compile_filter(&filter, "properties")?;
        self.fields.condition(&predicate)
    }

    /// The condition on the events of a series or step.
    pub(crate) fn series_condition(&mut self, series: &Series) -> CalcResult<String> {
        let matcher =
            Matcher::new(&series.event_or_action, &series.properties, &mut self.compiler, "properties")?;
        let Some(matcher) = matcher else {
            return Err(CalcError::invalid(
                "actions",
                format!("Action ID {} does not exist!", series.event_or_action.id()),
            ));
        };
        let (alternatives, filters) = matcher.alternatives_and_filters();
        let mut any = Vec::with_capacity(alternatives.len());
        for step in alternatives {
            let name = step.event.as_ref().map(|name| format!("name = {}", quote::text(name)));
            let rest = self.fields.condition(&step.predicate)?;
            any.push(quote::all(name.into_iter().chain([rest])));
        }
        let filters = self.fields.condition(filters)?;
        Ok(quote::all([quote::any(any), filters].into_iter()))
    }

    /// The texts of the parts of a breakdown; null if missing.
    pub(crate) fn breakdown_parts(&mut self, parts: &[BreakdownDimension]) -> CalcResult<Vec<String>> {
        parts.iter().map(|part| self.breakdown_part(part)).collect()
    }

    fn breakdown_part(&mut self, part: &BreakdownDimension) -> CalcResult<String> {
        if part.bins.is_some() {
            return Err(unsupported("a breakdown by ranges of numbers"));
        }
        let text = match &part.source {
            DimensionSource::Event(key) => self.fields.text(&ColumnKey::Property(key.clone()))?,
            DimensionSource::Metadata(key) if key == "event" => "name".to_owned(),
            DimensionSource::Metadata(key) if key == "distinct_id" => {
                self.fields.text(&ColumnKey::DistinctId)?
            }
            DimensionSource::Metadata(key) => return Err(unsupported(&format!("a breakdown by {key}"))),
            other => return Err(unsupported(&format!("a breakdown by {} values", other.kind()))),
        };
        if part.normalize_url {
            // An empty text normalizes to `/`; a missing one stays null.
            let cut = format!("replaceRegexpOne({text}, '[/?#]+$', '')");
            Ok(format!("if({cut} = '', '/', {cut})"))
        } else {
            Ok(format!("nullIf({text}, '')"))
        }
    }
}

/// The error for a query that has no translation.
pub(crate) fn unsupported(what: &str) -> CalcError {
    CalcError::invalid("engine", format!("This cannot be written as SQL for ClickHouse: {what}."))
}

#[cfg(test)]
mod tests;
