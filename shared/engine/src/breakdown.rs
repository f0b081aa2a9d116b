//! The values that rows are split by: for each part of a breakdown, the text of every row of a run.
//!
//! Must stay true: trends and funnels take a row's value from here, so that both mean the same text; missing, null and
//! empty are one, [`MISSING`], which each of them writes in its own way. Work is done once a distinct value.

use std::collections::HashMap;

use serde_json::Value;

use crate::dates::zone;
use crate::error::{CalcError, CalcResult};
use crate::plan::Compiler;
use crate::query::{Part, PartSource};
use crate::scan::{Column, ColumnKey, FactKey, MISSING, RowKey, Run};
use crate::sql::{Expression, Program};
use crate::text::text_of;

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

/// The texts of the rows of a run: row `i` has `values[codes[i]]`, or nothing when its code is [`MISSING`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Texts {
    /// One code a row.
    pub(crate) codes: Vec<u32>,
    /// Distinct, none empty.
    pub(crate) values: Vec<String>,
}

impl Reader {
    /// Asks for what the parts read.
    pub(crate) fn new(parts: &[Part], compiler: &mut Compiler<'_>, attr: &str) -> CalcResult<Self> {
        let parts = parts
            .iter()
            .map(|part| {
                let source = source(&part.source, compiler, attr)?;
                if let Source::Column(key) = &source {
                    compiler.read(key, attr)?;
                }
                let may_miss = matches!(
                    part.source,
                    PartSource::Event(_) | PartSource::Person(_) | PartSource::Session(_)
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

    /// The texts of each part, in their order.
    pub(crate) fn texts(&self, run: &Run) -> Vec<Texts> {
        let texts = |part: &ReadPart| {
            let texts = part.source.texts(run, part.normalize_url);
            if self.urls_never_miss && part.normalize_url && part.may_miss {
                texts.with_root()
            } else {
                texts
            }
        };
        self.parts.iter().map(texts).collect()
    }
}

impl Texts {
    /// Rows without a text have that of the empty URL.
    fn with_root(mut self) -> Self {
        if self.codes.contains(&MISSING) {
            let known = self.values.iter().position(|text| text == ROOT);
            let at = known.unwrap_or(self.values.len());
            if known.is_none() {
                self.values.push(ROOT.to_owned());
            }
            let root = u32::try_from(at).unwrap_or(MISSING);
            self.codes.iter_mut().filter(|code| **code == MISSING).for_each(|code| *code = root);
        }
        self
    }
}

fn source(part: &PartSource, compiler: &mut Compiler<'_>, attr: &str) -> CalcResult<Source> {
    let event = |key| Source::Column(RowKey::Event(key));
    let fact = |key| Source::Column(RowKey::Fact(key));
    Ok(match part {
        PartSource::Event(key) => event(ColumnKey::Property(key.clone())),
        PartSource::Person(key) => fact(FactKey::Person(key.clone())),
        PartSource::Group(index, key) => fact(FactKey::Group(*index, key.clone())),
        PartSource::Session(key) => fact(FactKey::Session(key.clone())),
        PartSource::Expression(text) => {
            let program = compiler.expression(&Expression::parse(text, attr)?, attr)?;
            Source::Expression(Box::new(program))
        }
        PartSource::Metadata(key) => match key.as_str() {
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
    fn texts(&self, run: &Run, normalize_url: bool) -> Texts {
        match self {
            Self::Column(key) => {
                run.column(key).map_or_else(|| nothing(run), |column| texts(column, normalize_url))
            }
            Self::EventName => texts(&constant(run, Value::String(run.event.clone())), normalize_url),
            Self::Time => times(run),
            Self::Expression(program) => texts(&program.column(run), normalize_url),
        }
    }
}

fn nothing(run: &Run) -> Texts {
    Texts { codes: vec![MISSING; run.actors.len()], values: Vec::new() }
}

fn constant(run: &Run, value: Value) -> Column {
    Column::new(vec![0; run.actors.len()], vec![value])
}

/// When each event happened, UTC.
fn times(run: &Run) -> Texts {
    let text = |time: &i64| zone::utc_text(&zone::from_micros(*time, chrono_tz::UTC));
    let values = run.times.iter().map(|time| Value::String(text(time))).collect();
    texts(&Column::new((0..).take(run.times.len()).collect(), values), false)
}

/// The texts of a column, each once.
fn texts(column: &Column, normalize_url: bool) -> Texts {
    let mut known: HashMap<String, u32> = HashMap::new();
    let mut values: Vec<String> = Vec::new();
    let mut code_of = |value: &Value| {
        let Some(text) = text_of(value).filter(|text| !text.is_empty()) else { return MISSING };
        let text = if normalize_url { normalized(&text) } else { &text };
        if let Some(code) = known.get(text) {
            return *code;
        }
        let code = u32::try_from(values.len()).unwrap_or(MISSING);
        known.insert(text.to_owned(), code);
        values.push(text.to_owned());
        code
    };
    let translated: Vec<u32> = column.values.iter().map(&mut code_of).collect();
    // A code outside of the dictionary is a row without a value.
    let code = |code: &u32| usize::try_from(*code).ok().and_then(|code| translated.get(code)).copied();
    Texts { codes: column.codes.iter().map(|of| code(of).unwrap_or(MISSING)).collect(), values }
}

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
    use serde_json::json;

    use super::*;

    #[test]
    fn values_are_texts_and_nothing_is_one_value() {
        let values = vec![json!("a"), json!(""), json!(null), json!(5), json!("5"), json!(5.0), json!(true)];
        let column = Column::new(vec![0, 1, 2, 3, 4, 5, 6, MISSING], values);
        let texts = texts(&column, false);
        assert_eq!(texts.values, ["a", "5", "true"]);
        assert_eq!(texts.codes, [0, MISSING, MISSING, 1, 1, 1, 2, MISSING]);
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
        assert_eq!(texts(&column, true).codes, [0, 0, MISSING]);
        let rooted = texts(&column, true).with_root();
        assert_eq!((rooted.codes, rooted.values), (vec![0, 0, 1], vec!["u".to_owned(), "/".to_owned()]));
        let column = Column::new(vec![1, 0, MISSING], vec![json!("/?"), json!(null)]);
        let rooted = texts(&column, true).with_root();
        assert_eq!((rooted.codes, rooted.values), (vec![0, 0, 0], vec!["/".to_owned()]));
    }
}
