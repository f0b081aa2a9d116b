//! Breakdown values: for each part of a breakdown, the text of every row of a run.
//!
//! Must stay true: trends and funnels both take breakdown values from here, so they agree; missing, null and empty are all
//! [`MISSING`], which trends and funnels display differently. Work is done once per distinct value.

use std::borrow::Cow;
use std::collections::HashMap;

use ahash::RandomState;
use arrow_buffer::ScalarBuffer;
use pennon_filters::dates::zone;
use pennon_filters::error::{CalcError, CalcResult};
use pennon_filters::text::{text_length, text_of};
use pennon_filters::work_budget::WorkBudget;
use serde_json::Value;

use crate::compiler::Compiler;
use crate::query::{BreakdownDimension, DimensionSource};
use crate::scan::{Column, ColumnKey, ColumnRef, EventRun, JoinedColumnKey, MISSING};
use crate::sql::{CompiledExpression, Expression};

/// A compiled breakdown: the source of each of its parts.
#[derive(Debug, Clone, Default)]
pub(crate) struct BreakdownReader {
    parts: Vec<ReadPart>,
    /// A missing URL counts as the empty URL.
    missing_url_is_root: bool,
}

#[derive(Debug, Clone)]
struct ReadPart {
    source: Source,
    normalize_url: bool,
    /// The source is a property that may be missing.
    may_miss: bool,
}

#[derive(Debug, Clone)]
enum Source {
    Column(ColumnRef),
    EventName,
    Time,
    Expression(Box<CompiledExpression>),
}

/// A dictionary-encoded column of texts; [`TextColumn::of`] gives the index of a row's text.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TextColumn {
    /// One code per row, taken from the source column.
    pub(crate) codes: ScalarBuffer<u32>,
    /// By code: the index of its text in `values`, or [`MISSING`].
    pub(crate) table: Vec<u32>,
    /// The index for codes outside of `table`.
    pub(crate) missing: u32,
    /// Distinct texts, none empty.
    pub(crate) values: Vec<String>,
}

impl BreakdownReader {
    /// Compiles the parts and registers the columns that they read.
    pub(crate) fn new(
        parts: &[BreakdownDimension],
        compiler: &mut Compiler<'_>,
        attr: &str,
    ) -> CalcResult<Self> {
        let parts = parts
            .iter()
            .map(|part| {
                let source = source(&part.source, compiler, attr)?;
                if let Source::Column(key) = &source {
                    compiler.require_value(key, attr)?;
                }
                let may_miss = matches!(
                    part.source,
                    DimensionSource::Event(_) | DimensionSource::Person(_) | DimensionSource::Session(_)
                );
                Ok(ReadPart { source, normalize_url: part.normalize_url, may_miss })
            })
            .collect::<CalcResult<Vec<_>>>()?;
        Ok(Self { parts, missing_url_is_root: false })
    }

    /// Makes missing URLs count as the empty URL, which normalizes to `/`.
    #[must_use]
    pub(crate) fn with_missing_urls(self) -> Self {
        Self { missing_url_is_root: true, ..self }
    }

    /// The texts of each part.
    pub(crate) fn texts(&self, run: &EventRun, work: &WorkBudget<'_>) -> CalcResult<Vec<TextColumn>> {
        let texts = |part: &ReadPart| {
            let texts = part.source.texts(run, part.normalize_url, work)?;
            let has_root = self.missing_url_is_root && part.normalize_url && part.may_miss;
            Ok(if has_root { texts.with_root() } else { texts })
        };
        self.parts.iter().map(texts).collect()
    }
}

impl TextColumn {
    /// The index of the text of a row, [`MISSING`] for none.
    #[inline]
    pub(crate) fn of(&self, row: usize) -> u32 {
        let index = self.codes.get(row).and_then(|code| self.table.get(*code as usize));
        index.copied().unwrap_or(self.missing)
    }

    /// Gives rows without a text the text of the empty URL.
    fn with_root(mut self) -> Self {
        if (0..self.codes.len()).any(|row| self.of(row) == MISSING) {
            let known = self.values.iter().position(|text| text == ROOT);
            let at = known.unwrap_or(self.values.len());
            if known.is_none() {
                self.values.push(ROOT.to_owned());
            }
            let root = u32::try_from(at).unwrap_or(MISSING);
            let indexes = self.table.iter_mut().chain([&mut self.missing]);
            indexes.filter(|index| **index == MISSING).for_each(|index| *index = root);
        }
        self
    }
}

fn source(part: &DimensionSource, compiler: &mut Compiler<'_>, attr: &str) -> CalcResult<Source> {
    let event = |key| Source::Column(ColumnRef::Event(key));
    let joined = |key| Source::Column(ColumnRef::Joined(key));
    Ok(match part {
        DimensionSource::Event(key) => event(ColumnKey::Property(key.clone())),
        DimensionSource::Person(key) => joined(JoinedColumnKey::Person(key.clone())),
        DimensionSource::Group(index, key) => joined(JoinedColumnKey::Group(*index, key.clone())),
        DimensionSource::Session(key) => joined(JoinedColumnKey::Session(key.clone())),
        DimensionSource::Expression(text) => {
            let program = compiler.compile_expression(&Expression::parse(text, attr)?, attr)?;
            Source::Expression(Box::new(program))
        }
        DimensionSource::Metadata(key) => match key.as_str() {
            "distinct_id" => event(ColumnKey::DistinctId),
            "person_id" => joined(JoinedColumnKey::PersonId),
            "event" => Source::EventName,
            "timestamp" => Source::Time,
            "$group_0" | "$group_1" | "$group_2" | "$group_3" | "$group_4" => {
                event(ColumnKey::Property(key.clone()))
            }
            other => {
                return Err(CalcError::invalid(attr, format!("Events have no column \"{other}\".")));
            }
        },
    })
}

impl Source {
    fn texts(&self, run: &EventRun, normalize_url: bool, work: &WorkBudget<'_>) -> CalcResult<TextColumn> {
        match self {
            Self::Column(key) => run
                .column(key)
                .map_or_else(|| Ok(all_missing(run)), |column| texts(column, normalize_url, work)),
            Self::EventName => texts(&constant(run, Value::String(run.event.clone())), normalize_url, work),
            Self::Time => times(run, work),
            Self::Expression(program) => texts(&program.column(run, work)?, normalize_url, work),
        }
    }
}

fn all_missing(run: &EventRun) -> TextColumn {
    let codes = vec![MISSING; run.actors.len()].into();
    TextColumn { codes, table: Vec::new(), missing: MISSING, values: Vec::new() }
}

fn constant(run: &EventRun, value: Value) -> Column {
    Column::new(vec![0; run.actors.len()], vec![value])
}

/// The time of each event as text, in UTC.
fn times(run: &EventRun, work: &WorkBudget<'_>) -> CalcResult<TextColumn> {
    let text = |time: &i64| zone::utc_text(&zone::from_micros(*time, chrono_tz::UTC));
    let value = |time: &i64| {
        work.consume(WORK_PER_TEXT)?;
        Ok(Value::String(text(time)))
    };
    let values = run.times.iter().map(value).collect::<CalcResult<_>>()?;
    texts(&Column::new((0..).take(run.times.len()).collect(), values), false, work)
}

/// The distinct texts of a column. Of a long dictionary, only values that rows have are converted.
fn texts(column: &Column, normalize_url: bool, work: &WorkBudget<'_>) -> CalcResult<TextColumn> {
    work.consume(column.codes.len())?;
    let length = column.values.len();
    let mut has_row = vec![length < SHORT_DICTIONARY && column.codes.len() / 4 > length; length];
    if has_row.first() == Some(&false) {
        for code in &column.codes {
            if let Some(has_row) = has_row.get_mut(*code as usize) {
                *has_row = true;
            }
        }
    }
    let distinct = length.min(column.codes.len());
    let mut known: HashMap<Cow<'_, str>, u32, RandomState> =
        HashMap::with_capacity_and_hasher(distinct, RandomState::new());
    let mut values: Vec<String> = Vec::with_capacity(distinct);
    let mut table = Vec::with_capacity(length);
    for (value, has_row) in column.values.iter().zip(has_row) {
        if has_row {
            work.consume(WORK_PER_TEXT + text_length(value))?;
        }
        // The empty text counts as missing, but as a URL it is the root.
        let is_value = |text: &Cow<'_, str>| normalize_url || !text.is_empty();
        let text = if has_row { text_of(value).filter(is_value) } else { None };
        let text = match text {
            Some(Cow::Borrowed(text)) if normalize_url => Some(Cow::Borrowed(trim_url_end(text))),
            Some(Cow::Owned(text)) if normalize_url => Some(Cow::Owned(trim_url_end(&text).to_owned())),
            text => text,
        };
        let next = u32::try_from(values.len()).unwrap_or(MISSING);
        let index = text.map_or(MISSING, |text| {
            *known.entry(text).or_insert_with_key(|text| {
                values.push(text.clone().into_owned());
                next
            })
        });
        table.push(index);
    }
    Ok(TextColumn { codes: column.codes.clone(), table, missing: MISSING, values })
}

/// Up to this length, all dictionary values are converted without checking that a row has them. It is far below the
/// limit of breakdown values.
const SHORT_DICTIONARY: usize = 1 << 14;

/// Units of work per text, beside its bytes.
const WORK_PER_TEXT: usize = 16;

/// The normalized form of a URL of which nothing else is left.
const ROOT: &str = "/";

/// A URL without the slashes, question marks and hashes at its end; `/` when nothing is left.
fn trim_url_end(url: &str) -> &str {
    match url.trim_end_matches(['/', '?', '#']) {
        "" => ROOT,
        rest => rest,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;

    fn rows(texts: &TextColumn) -> Vec<u32> {
        (0..texts.codes.len()).map(|row| texts.of(row)).collect()
    }

    #[test]
    fn values_are_texts_and_nothing_is_one_value() {
        let values = vec![json!("a"), json!(""), json!(null), json!(5), json!("5"), json!(5.0), json!(true)];
        let column = Column::new(vec![0, 1, 2, 3, 4, 5, 6, MISSING], values);
        let texts = texts(&column, false, &WorkBudget::new(&|| false)).unwrap();
        assert_eq!(texts.values, ["a", "5", "true"]);
        assert_eq!(rows(&texts), [0, MISSING, MISSING, 1, 1, 1, 2, MISSING]);
    }

    #[test]
    fn urls_are_trimmed_if_requested() {
        for (url, want) in [
            ("http://a/", "http://a"),
            ("http://a/?#", "http://a"),
            ("http://a/b?x=1", "http://a/b?x=1"),
            ("/", "/"),
            ("#?", "/"),
        ] {
            assert_eq!(trim_url_end(url), want);
        }
        let column = Column::new(vec![0, 1, 2], vec![json!("u/"), json!("u"), json!("")]);
        assert_eq!(rows(&texts(&column, true, &WorkBudget::new(&|| false)).unwrap()), [0, 0, 1]);
        let rooted = texts(&column, true, &WorkBudget::new(&|| false)).unwrap().with_root();
        assert_eq!((rows(&rooted), rooted.values), (vec![0, 0, 1], vec!["u".to_owned(), "/".to_owned()]));
        let column = Column::new(vec![1, 0, MISSING], vec![json!("/?"), json!(null)]);
        let rooted = texts(&column, true, &WorkBudget::new(&|| false)).unwrap().with_root();
        assert_eq!((rows(&rooted), rooted.values), (vec![0, 0, 0], vec!["/".to_owned()]));
    }
}
