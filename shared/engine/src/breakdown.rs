//! The values that rows are split by: for each part of a breakdown, the text of every row of a run.
//!
//! Must stay true: trends and funnels take a row's value from here, so that both mean the same text; missing, null and
//! empty are one, [`MISSING`], which each of them writes in its own way. Work is done once a distinct value.

use std::borrow::Cow;
use std::collections::HashMap;

use arrow_buffer::ScalarBuffer;
use serde_json::Value;

use crate::dates::zone;
use crate::error::{CalcError, CalcResult};
use crate::plan::Compiler;
use crate::query::{BreakdownDimension, DimensionSource};
use crate::scan::{Column, ColumnKey, FactKey, MISSING, RowKey, Run};
use crate::sql::{Expression, Program};
use crate::text::{text_length, text_of};
use crate::work::WorkBudget;

/// A breakdown made ready: what each of its parts reads.
#[derive(Debug, Clone, Default)]
pub(crate) struct Reader {
    parts: Vec<ReadPart>,
    /// A missing URL is the empty one.
    urls_never_miss: bool,
}

#[derive(Debug, Clone)]
struct ReadPart {
    source: Source,
    normalize_url: bool,
    /// It reads a property that may be missing.
    may_miss: bool,
}

#[derive(Debug, Clone)]
enum Source {
    Column(RowKey),
    EventName,
    Time,
    Expression(Box<Program>),
}

/// The texts of the rows of a run, each value once; [`Texts::of`] says which one a row has.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Texts {
    /// One code a row, as its column has them.
    pub(crate) codes: ScalarBuffer<u32>,
    /// By code the index of its text, [`MISSING`] for none.
    pub(crate) table: Vec<u32>,
    /// What codes outside of the table stand for.
    pub(crate) missing: u32,
    /// Distinct, none empty.
    pub(crate) values: Vec<String>,
}

impl Reader {
    /// Asks for what the parts read.
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
                    compiler.read(key, attr)?;
                }
                let may_miss = matches!(
                    part.source,
                    DimensionSource::Event(_) | DimensionSource::Person(_) | DimensionSource::Session(_)
                );
                Ok(ReadPart { source, normalize_url: part.normalize_url, may_miss })
            })
            .collect::<CalcResult<Vec<_>>>()?;
        Ok(Self { parts, urls_never_miss: false })
    }

    /// The same, where a URL that is missing is the empty one and is cut like it, to `/`.
    #[must_use]
    pub(crate) fn with_missing_urls(self) -> Self {
        Self { urls_never_miss: true, ..self }
    }

    /// The column whose texts are the values; none where values are made of more than that.
    pub(crate) fn plain_column(&self) -> Option<&RowKey> {
        match self.parts.as_slice() {
            [ReadPart { source: Source::Column(key), normalize_url: false, .. }] => Some(key),
            _ => None,
        }
    }

    /// The texts of each part, in their order.
    pub(crate) fn texts(&self, run: &Run, work: &WorkBudget<'_>) -> CalcResult<Vec<Texts>> {
        let texts = |part: &ReadPart| {
            let texts = part.source.texts(run, part.normalize_url, work)?;
            let has_root = self.urls_never_miss && part.normalize_url && part.may_miss;
            Ok(if has_root { texts.with_root() } else { texts })
        };
        self.parts.iter().map(texts).collect()
    }
}

impl Texts {
    /// The index of the text of a row, [`MISSING`] for none.
    #[inline]
    pub(crate) fn of(&self, row: usize) -> u32 {
        let index = self.codes.get(row).and_then(|code| self.table.get(*code as usize));
        index.copied().unwrap_or(self.missing)
    }

    /// Rows without a text have that of the empty URL.
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
    let event = |key| Source::Column(RowKey::Event(key));
    let fact = |key| Source::Column(RowKey::Fact(key));
    Ok(match part {
        DimensionSource::Event(key) => event(ColumnKey::Property(key.clone())),
        DimensionSource::Person(key) => fact(FactKey::Person(key.clone())),
        DimensionSource::Group(index, key) => fact(FactKey::Group(*index, key.clone())),
        DimensionSource::Session(key) => fact(FactKey::Session(key.clone())),
        DimensionSource::Expression(text) => {
            let program = compiler.expression(&Expression::parse(text, attr)?, attr)?;
            Source::Expression(Box::new(program))
        }
        DimensionSource::Metadata(key) => match key.as_str() {
            "distinct_id" => event(ColumnKey::DistinctId),
            "person_id" => fact(FactKey::PersonId),
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
    fn texts(&self, run: &Run, normalize_url: bool, work: &WorkBudget<'_>) -> CalcResult<Texts> {
        match self {
            Self::Column(key) => {
                run.column(key).map_or_else(|| Ok(nothing(run)), |column| texts(column, normalize_url, work))
            }
            Self::EventName => texts(&constant(run, Value::String(run.event.clone())), normalize_url, work),
            Self::Time => times(run, work),
            Self::Expression(program) => texts(&program.column(run, work)?, normalize_url, work),
        }
    }
}

fn nothing(run: &Run) -> Texts {
    let codes = vec![MISSING; run.actors.len()].into();
    Texts { codes, table: Vec::new(), missing: MISSING, values: Vec::new() }
}

fn constant(run: &Run, value: Value) -> Column {
    Column::new(vec![0; run.actors.len()], vec![value])
}

/// When each event happened, UTC.
fn times(run: &Run, work: &WorkBudget<'_>) -> CalcResult<Texts> {
    let text = |time: &i64| zone::utc_text(&zone::from_micros(*time, chrono_tz::UTC));
    let value = |time: &i64| {
        work.consume(PER_TEXT)?;
        Ok(Value::String(text(time)))
    };
    let values = run.times.iter().map(value).collect::<CalcResult<_>>()?;
    texts(&Column::new((0..).take(run.times.len()).collect(), values), false, work)
}

/// The texts of a column, each once. Of a long dictionary only those are looked at that rows have.
fn texts(column: &Column, normalize_url: bool, work: &WorkBudget<'_>) -> CalcResult<Texts> {
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
    let mut known: HashMap<Cow<'_, str>, u32> = HashMap::new();
    let mut values: Vec<String> = Vec::new();
    let mut table = Vec::with_capacity(length);
    for (value, has_row) in column.values.iter().zip(has_row) {
        if has_row {
            work.consume(PER_TEXT + text_length(value))?;
        }
        // The empty text is no value, but as a URL it is the root.
        let is_value = |text: &Cow<'_, str>| normalize_url || !text.is_empty();
        let text = if has_row { text_of(value).filter(is_value) } else { None };
        let text = match text {
            Some(Cow::Borrowed(text)) if normalize_url => Some(Cow::Borrowed(normalized(text))),
            Some(Cow::Owned(text)) if normalize_url => Some(Cow::Owned(normalized(&text).to_owned())),
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
    Ok(Texts { codes: column.codes.clone(), table, missing: MISSING, values })
}

/// Values of a dictionary that need not be proven to be those of rows: far fewer than a breakdown may have.
const SHORT_DICTIONARY: usize = 1 << 14;

/// Work that a text costs beside its bytes.
const PER_TEXT: usize = 16;

/// What is left of a URL of which nothing is left.
const ROOT: &str = "/";

/// A URL without the slashes, question marks and hashes at its end; `/` when nothing is left.
fn normalized(url: &str) -> &str {
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

    fn rows(texts: &Texts) -> Vec<u32> {
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
    fn ends_of_urls_do_not_count_when_asked_so() {
        for (url, want) in [
            ("http://a/", "http://a"),
            ("http://a/?#", "http://a"),
            ("http://a/b?x=1", "http://a/b?x=1"),
            ("/", "/"),
            ("#?", "/"),
        ] {
            assert_eq!(normalized(url), want);
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
