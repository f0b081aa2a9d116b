//! Questions as SQL for ClickHouse, over the segment files of a project.
//!
//! What a question means is compiled by the same code that calculates it; here that is written down for an engine which
//! reads the same files on as many machines as it likes. Must stay true: the statement gives the numbers that the plan
//! gives for the events of these files, or there is none and the refusal names what cannot be said; texts of a question
//! end up in quotes, whatever they hold. No I/O: the caller knows the files and asks ClickHouse.
//!
//! Differences that remain are those of arithmetic: sums of numbers with a fraction are rounded at another place, letters
//! beyond ASCII may have other lower-case forms, and numbers above 10^16 or below 10^-5 are written differently as texts.

mod condition;
mod funnel;
mod quote;
mod source;
mod trend;
mod values;

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use uuid::Uuid;

use crate::error::{CalcError, CalcResult};
use crate::plan::{Compiler, ProjectContext};
use crate::query::{BreakdownDimension, CommonFields, DimensionSource, FunnelsQuery, Query, TrendsQuery};
use crate::scan::{ColumnKey, Micros};
use condition::Fields;

/// The segment files of a project, as a statement names them.
#[derive(Debug, Clone, PartialEq)]
pub struct Files {
    /// Where they lie.
    pub place: Place,
    /// Those that are to be read, and no others.
    pub segments: Vec<Segment>,
    /// Persons in the files that are somebody else by now, and who: at most [`MERGED_MAX`].
    pub merged: Vec<(Uuid, Uuid)>,
}

/// Where files lie.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// In a directory that ClickHouse reads by `file()`; its path.
    Directory(String),
    /// In a bucket that ClickHouse reads by `s3()`; its URL, down to the prefix of all objects.
    Bucket(String),
}

/// A segment file.
#[derive(Debug, Clone, PartialEq)]
pub struct Segment {
    /// Its path below the place.
    pub object: String,
    /// Its columns of properties, by key.
    pub columns: BTreeMap<String, Column>,
    /// The keys in its JSON column beside these; none when they are not known.
    pub rest: Option<Vec<String>>,
    /// The times that its events lie in.
    pub times: (Micros, Micros),
    /// Names of its events; none when they are not known.
    pub events: Option<Vec<String>>,
}

/// A column of a property.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Column {
    /// What it holds.
    pub kind: Kind,
    /// Some values of the key lie in the JSON column.
    pub exceptions: bool,
}

/// What a column of a property holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
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

/// Most persons who are named in a statement because they are somebody else by now.
pub const MERGED_MAX: usize = 2_000;

impl Query {
    /// The question as one SQL statement over `files`. Dates are those of `now`.
    pub fn clickhouse(
        &self,
        project: &ProjectContext,
        now: DateTime<Utc>,
        files: &Files,
    ) -> CalcResult<String> {
        match self {
            Self::Trends(query) => Writer::new(project, now, files).trend(self, query),
            Self::Funnels(query) => Writer::new(project, now, files).funnel(self, query),
            Self::Correlation(_) => Err(refused("a correlation")),
        }
    }
}

/// Writes one statement.
struct Writer<'a> {
    project: &'a ProjectContext,
    now: DateTime<Utc>,
    files: &'a Files,
    compiler: Compiler<'a>,
    /// What the events of the statement have to show.
    fields: Fields,
}

impl<'a> Writer<'a> {
    fn new(project: &'a ProjectContext, now: DateTime<Utc>, files: &'a Files) -> Self {
        let compiler = Compiler::new(project, now);
        Self { project, now, files, compiler, fields: Fields::default() }
    }

    fn trend(mut self, whole: &Query, query: &TrendsQuery) -> CalcResult<String> {
        let range = whole.range(self.project, self.now)?;
        let select = trend::select(&mut self, query, &range)?;
        self.statement(&select, (range.from.min(range.first).timestamp_micros(), range.to.timestamp_micros()))
    }

    fn funnel(mut self, whole: &Query, query: &FunnelsQuery) -> CalcResult<String> {
        let range = whole.range(self.project, self.now)?;
        let select = funnel::select(&mut self, query)?;
        self.statement(&select, (range.from.timestamp_micros(), range.to.timestamp_micros()))
    }

    /// What is selected from `events`, and before it what these are.
    fn statement(&self, select: &str, times: (Micros, Micros)) -> CalcResult<String> {
        let events = source::events(self, times)?;
        Ok(format!("WITH events AS (\n{events}\n)\n{select}\nSETTINGS precise_float_parsing = 1"))
    }

    /// The condition that every event of a question meets.
    fn shared(&mut self, common: &CommonFields) -> CalcResult<String> {
        let filter = crate::plan::shared_filter(common, self.project)?;
        let predicate = self.compiler.predicate(&filter, "properties")?;
        self.fields.condition(&predicate)
    }

    /// The condition that the events of a series or a step meet.
    fn matches(&mut self, series: &crate::query::Series) -> CalcResult<String> {
        use crate::matcher::Matcher;
        let matcher =
            Matcher::new(&series.event_or_action, &series.properties, &mut self.compiler, "properties")?;
        let Some(matcher) = matcher else {
            return Err(CalcError::invalid(
                "actions",
                format!("Action ID {} does not exist!", series.event_or_action.id()),
            ));
        };
        let (alternatives, filters) = matcher.parts();
        let mut any = Vec::with_capacity(alternatives.len());
        for step in alternatives {
            let name = step.event.as_ref().map(|name| format!("name = {}", quote::text(name)));
            let rest = self.fields.condition(&step.predicate)?;
            any.push(quote::all(name.into_iter().chain([rest])));
        }
        let filters = self.fields.condition(filters)?;
        Ok(quote::all([quote::any(any), filters].into_iter()))
    }

    /// The texts of the parts of a breakdown, null where there is none.
    fn parts(&mut self, parts: &[BreakdownDimension]) -> CalcResult<Vec<String>> {
        parts.iter().map(|part| self.part(part)).collect()
    }

    fn part(&mut self, part: &BreakdownDimension) -> CalcResult<String> {
        if part.bins.is_some() {
            return Err(refused("a breakdown by ranges of numbers"));
        }
        let text = match &part.source {
            DimensionSource::Event(key) => self.fields.text(&ColumnKey::Property(key.clone()))?,
            DimensionSource::Metadata(key) if key == "event" => "name".to_owned(),
            DimensionSource::Metadata(key) if key == "distinct_id" => {
                self.fields.text(&ColumnKey::DistinctId)?
            }
            DimensionSource::Metadata(key) => return Err(refused(&format!("a breakdown by {key}"))),
            other => return Err(refused(&format!("a breakdown by {} values", other.kind()))),
        };
        if part.normalize_url {
            // An empty text is a URL whose path is `/`; a missing one stays null.
            let cut = format!("replaceRegexpOne({text}, '[/?#]+$', '')");
            Ok(format!("if({cut} = '', '/', {cut})"))
        } else {
            Ok(format!("nullIf({text}, '')"))
        }
    }
}

/// What a statement cannot say.
fn refused(what: &str) -> CalcError {
    CalcError::invalid("engine", format!("This cannot be written as SQL for ClickHouse: {what}."))
}

#[cfg(test)]
mod tests;
