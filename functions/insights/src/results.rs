//! The numbers of insights: from what is stored of an insight to the question, to a stored or calculated result.
//!
//! Must stay true: a list calculates each question once and survives those that fail; a single insight answers a
//! failing calculation with its error; what cannot be calculated at all is shown without numbers, and in calculating
//! modes says so.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use pennon_calculation::calculator::{Asked as Wanted, AskedBy, Purpose, Question, Shown};
use pennon_calculation::jobs::{Failure, Status};
use pennon_calculation::{Calculated, QUERY_ID, Refresh, Said, Source, Stored, query_id, refusal};
use pennon_core::error::{ApiError, ApiResult};
use pennon_core::http::Call;
use pennon_core::model::Project;
use pennon_engine::{CalcError, CalcResult, Parsed};
use serde_json::Value;

use crate::record::Insight;
use crate::{Insights, limits};

/// The question that an insight is, as it was sent.
fn source(insight: &Insight) -> Source {
    match &insight.query {
        Some(node) => Source::Node(node.clone()),
        None => Source::Filters(insight.filters.clone()),
    }
}

/// The question that an insight is.
pub(crate) fn question(insight: &Insight) -> CalcResult<Parsed> {
    source(insight).parse()
}

/// What an insight asks.
#[derive(Debug)]
enum Asked {
    /// Nothing that has numbers.
    Nothing,
    /// A question.
    Query(Box<Wanted>),
    /// A kind of question that is not calculated.
    OtherKind(String),
    /// A question that the engine refuses.
    Refused(CalcError),
}

impl Asked {
    fn by(insight: &Insight, refresh: Refresh) -> Asked {
        let source = source(insight);
        match source.parse() {
            Ok(Parsed::Query(query)) => {
                let asked = Wanted::new(query, Purpose::Saved, None).sent_as(source);
                Asked::Query(Box::new(Wanted { passes_over_stored: refresh.is_forced(), ..asked }))
            }
            Ok(Parsed::Empty) => Asked::Nothing,
            Ok(Parsed::OtherKind(kind)) => Asked::OtherKind(kind),
            Err(error) => Asked::Refused(error),
        }
    }

    fn key(&self) -> Option<&String> {
        match self {
            Asked::Query(asked) => Some(&asked.key),
            _ => None,
        }
    }
}

/// What an answer shows of an insight's numbers.
#[derive(Debug, Clone, Default)]
pub struct Numbers {
    /// The result, if there is one to show.
    pub calculated: Option<Calculated>,
    /// The name of the result.
    pub key: Option<String>,
    /// What is told of a calculation in the background, or of why there is no result although it was asked for.
    pub status: Option<Status>,
}

/// How a request wants numbers.
#[derive(Debug, Clone, Copy)]
pub struct Wish<'a> {
    /// Whose events.
    pub project: &'a Project,
    /// When to calculate.
    pub refresh: Refresh,
    /// The instant of the request.
    pub now: DateTime<Utc>,
    /// The caller's own name for the calculation.
    pub query_id: Option<&'a str>,
    /// The dashboard that the insights are shown on.
    pub dashboard_id: Option<u64>,
}

impl<'a> Wish<'a> {
    /// What the request `call` wants, whose mode is `refresh`.
    pub fn of(call: &'a Call, project: &'a Project, refresh: Refresh) -> Wish<'a> {
        let query_id = call.query_value(QUERY_ID).filter(|id| !id.is_empty());
        Wish { project, refresh, now: call.now, query_id, dashboard_id: None }
    }

    fn by(&self, insight: &Insight) -> AskedBy<'a> {
        AskedBy {
            query_id: self.query_id,
            // An insight that is being made has no number yet.
            insight_id: Some(insight.id).filter(|id| *id > 0),
            dashboard_id: self.dashboard_id,
            comes_again: false,
        }
    }

    fn failed(&self, insight: &Insight, key: Option<&String>, failure: Failure) -> Status {
        let id = self.query_id.map(str::to_owned).or_else(|| key.cloned());
        let id = id.unwrap_or_else(|| format!("insight_{}", insight.id));
        Status::failed(id, failure, self.now)
    }
}

/// What a request says about stored results.
pub fn wanted(call: &Call) -> ApiResult<(Refresh, bool)> {
    query_id(call, None)?;
    let said = Said::read(call.query_value("refresh"), None);
    Ok((said.mode, said.explicit))
}

impl Insights {
    /// The numbers of one insight; a calculation that fails is the error.
    pub async fn numbers(&self, insight: &Insight, wish: Wish<'_>) -> ApiResult<Numbers> {
        let deadline = self.calculator.deadline();
        let asked = Asked::by(insight, wish.refresh);
        let key = asked.key().cloned();
        let shown = match &asked {
            Asked::Query(asked) => {
                let read = self.calculator.read(wish.project, &[asked]).await?;
                let question = Question {
                    project: wish.project,
                    asked,
                    stored: read.stored.first().and_then(Option::as_ref),
                    tracked: read.tracked.first().and_then(Option::as_ref),
                    known: &read.known,
                    now: wish.now,
                    deadline,
                    by: wish.by(insight),
                };
                Box::pin(self.calculator.answer(&question, wish.refresh)).await?
            }
            Asked::Refused(error) if wish.refresh.waits() => return Err(refusal(error.clone())),
            other => {
                let failure = other.failure(wish.refresh);
                let status = failure.map(|failure| wish.failed(insight, key.as_ref(), failure));
                Shown { calculated: None, status }
            }
        };
        Ok(Numbers { calculated: shown.calculated, key, status: shown.status })
    }

    /// The numbers of the insights of a page, in their order. All of them share the time of one request.
    pub async fn numbers_of_page(&self, insights: &[Insight], wish: Wish<'_>) -> ApiResult<Vec<Numbers>> {
        let deadline = self.calculator.deadline();
        let asked: Vec<Asked> = insights.iter().map(|insight| Asked::by(insight, wish.refresh)).collect();
        // Insights with the same question are calculated once, for the first of them.
        let mut questions = BTreeMap::new();
        for (insight, one) in insights.iter().zip(&asked) {
            if let Asked::Query(asked) = one {
                questions.entry(&asked.key).or_insert((insight, &**asked));
            }
        }
        let distinct: Vec<(&Insight, &Wanted)> = questions.into_values().collect();
        let wanted: Vec<&Wanted> = distinct.iter().map(|(_, asked)| *asked).collect();
        let read = Box::pin(self.calculator.read(wish.project, &wanted)).await?;
        let sizes: BTreeMap<&str, usize> = wanted
            .iter()
            .zip(&read.stored)
            .map(|(asked, stored)| (asked.key.as_str(), stored.as_ref().map_or(0, Stored::bytes_elsewhere)))
            .collect();
        require_room(asked.iter().map(|asked| asked.key().and_then(|key| sizes.get(key.as_str())).copied()))?;
        let questions: Vec<Question<'_>> = distinct
            .iter()
            .enumerate()
            .map(|(at, (insight, asked))| Question {
                project: wish.project,
                asked,
                stored: read.stored.get(at).and_then(Option::as_ref),
                tracked: read.tracked.get(at).and_then(Option::as_ref),
                known: &read.known,
                now: wish.now,
                deadline,
                by: wish.by(insight),
            })
            .collect();
        let answers = Box::pin(self.calculator.answers(&questions, wish.refresh)).await;
        let answers: BTreeMap<&str, ApiResult<Shown>> =
            wanted.iter().map(|asked| asked.key.as_str()).zip(answers).collect();
        let numbers = insights.iter().zip(&asked).map(|(insight, one)| {
            let key = one.key().cloned();
            let (calculated, failure) = match key.as_deref().and_then(|key| answers.get(key)) {
                Some(Ok(shown)) => {
                    return Numbers {
                        calculated: shown.calculated.as_ref().map(|it| it.with(without_links(&it.result))),
                        status: shown.status.clone(),
                        key,
                    };
                }
                Some(Err(error)) => (None, Some(failure_of(error))),
                None => (None, one.failure(wish.refresh)),
            };
            let status = failure.map(|failure| wish.failed(insight, key.as_ref(), failure));
            Numbers { calculated, key, status }
        });
        Ok(numbers.collect())
    }
}

/// 400 where the stored results of a page, of the bytes that are known of each row, are more than is read for one answer.
fn require_room(rows: impl Iterator<Item = Option<usize>>) -> ApiResult<()> {
    let mut bytes = 0;
    for (rows, row) in rows.enumerate() {
        bytes += row.unwrap_or(0);
        // One is read however large it is.
        if bytes > limits::PAGE_RESULT_BYTES && rows > 0 {
            let detail = format!("The answer is too large. The largest limit that may fit here is {rows}.");
            return Err(ApiError::invalid("invalid_input", detail, Some("limit")));
        }
    }
    Ok(())
}

/// The result without the links to the people behind each number, which are most of it.
fn without_links(result: &Value) -> Value {
    let field =
        |(name, value): (&String, &Value)| (name != "persons_urls").then(|| (name.clone(), value.clone()));
    let row = |row: &Value| match row {
        Value::Object(fields) => Value::Object(fields.iter().filter_map(field).collect()),
        other => other.clone(),
    };
    match result {
        Value::Array(rows) => Value::Array(rows.iter().map(row).collect()),
        other => other.clone(),
    }
}

impl Asked {
    /// Why a calculating mode shows nothing.
    fn failure(&self, refresh: Refresh) -> Option<Failure> {
        let message = match self {
            Asked::OtherKind(kind) => format!("Not supported yet: {kind}."),
            Asked::Refused(error) => error.detail.clone(),
            Asked::Nothing | Asked::Query(..) => return None,
        };
        refresh.calculates().then_some(Failure { message: Some(message) })
    }
}

fn failure_of(error: &ApiError) -> Failure {
    let may_be_shown = !error.status().is_server_error() || error.status().as_u16() == 503;
    Failure { message: may_be_shown.then(|| error.detail().to_owned()) }
}
