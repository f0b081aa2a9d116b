//! The numbers of insights: from what is stored of an insight to the question, to a stored or calculated result.
//!
//! Must stay true: a list calculates each question once and survives those that fail; a single insight answers a
//! failing calculation with its error; what cannot be calculated at all is shown without numbers, and in calculating
//! modes says so.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use futures::StreamExt;
use pennon_calculation::calculator::{Asked as Wanted, Purpose, Question};
use pennon_calculation::{Calculated, Refresh, refusal};
use pennon_core::error::{ApiError, ApiResult};
use pennon_core::http::Call;
use pennon_core::model::Project;
use pennon_engine::{CalcError, CalcResult, Parsed, Query};

use crate::Insights;
use crate::limits;
use crate::record::Insight;

/// The question that an insight is.
pub(crate) fn question(insight: &Insight) -> CalcResult<Parsed> {
    match &insight.query {
        Some(node) => Query::from_node(node),
        None => Query::from_filters(&insight.filters),
    }
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
        match question(insight) {
            Ok(Parsed::Query(query)) => {
                let asked = Wanted::new(query, Purpose::Saved, None);
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
    /// Why there is none although it was asked for.
    pub failure: Option<Failure>,
}

/// Why a calculation gave no result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// What may be shown of the cause.
    pub message: Option<String>,
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
}

/// What a request says about stored results; modes that need a calculation in the background are refused.
pub fn wanted(call: &Call) -> ApiResult<(Refresh, bool)> {
    let said = Refresh::read(call.query_value("refresh"), None);
    said.mode.require_synchronous()?;
    Ok((said.mode, said.explicit))
}

impl Insights {
    /// The numbers of one insight; a calculation that fails is the error.
    pub async fn numbers(&self, insight: &Insight, wish: Wish<'_>) -> ApiResult<Numbers> {
        let deadline = self.calculator.deadline();
        let asked = Asked::by(insight, wish.refresh);
        let key = asked.key().cloned();
        let (calculated, failure) = match &asked {
            Asked::Query(asked) => {
                let read = self.calculator.read(wish.project, &[asked]).await?;
                let question = Question {
                    project: wish.project,
                    asked,
                    stored: read.stored.first().and_then(Option::as_ref),
                    known: &read.known,
                    now: wish.now,
                    deadline,
                };
                (Box::pin(self.calculator.answer(&question, wish.refresh)).await?, None)
            }
            Asked::Refused(error) if calculates(wish.refresh) => return Err(refusal(error.clone())),
            other => (None, other.failure(wish.refresh)),
        };
        Ok(Numbers { calculated, key, failure })
    }

    /// The numbers of the insights of a page, in their order. All of them share the time of one request.
    pub async fn numbers_of_page(&self, insights: &[Insight], wish: Wish<'_>) -> ApiResult<Vec<Numbers>> {
        let deadline = self.calculator.deadline();
        let asked: Vec<Asked> = insights.iter().map(|insight| Asked::by(insight, wish.refresh)).collect();
        let mut questions = BTreeMap::new();
        for one in &asked {
            if let Asked::Query(asked) = one {
                questions.insert(&asked.key, &**asked);
            }
        }
        let questions: Vec<&Wanted> = questions.into_values().collect();
        let read = Box::pin(self.calculator.read(wish.project, &questions)).await?;
        let known = &read.known;
        let questions: Vec<_> = questions.into_iter().cloned().zip(read.stored).collect();
        let answers = questions.into_iter().map(|(asked, stored)| async move {
            let question = Question {
                project: wish.project,
                asked: &asked,
                stored: stored.as_ref(),
                known,
                now: wish.now,
                deadline,
            };
            let answer = Box::pin(self.calculator.answer(&question, wish.refresh)).await;
            (asked.key, answer)
        });
        let answers: BTreeMap<String, ApiResult<Option<Calculated>>> =
            futures::stream::iter(answers).buffered(limits::ROWS_AT_ONCE).collect().await;
        let numbers = asked.iter().map(|one| {
            let key = one.key().cloned();
            match key.as_ref().and_then(|key| answers.get(key)) {
                Some(Ok(calculated)) => Numbers { calculated: calculated.clone(), key, failure: None },
                Some(Err(error)) => Numbers { calculated: None, key, failure: Some(Failure::of(error)) },
                None => Numbers { calculated: None, key, failure: one.failure(wish.refresh) },
            }
        });
        Ok(numbers.collect())
    }
}

fn calculates(refresh: Refresh) -> bool {
    refresh != Refresh::ForceCache
}

impl Asked {
    /// Why a calculating mode shows nothing.
    fn failure(&self, refresh: Refresh) -> Option<Failure> {
        let message = match self {
            Asked::OtherKind(kind) => format!("Not supported yet: {kind}."),
            Asked::Refused(error) => error.detail.clone(),
            Asked::Nothing | Asked::Query(..) => return None,
        };
        calculates(refresh).then_some(Failure { message: Some(message) })
    }
}

impl Failure {
    fn of(error: &ApiError) -> Failure {
        let may_be_shown = !error.status().is_server_error() || error.status().as_u16() == 503;
        Failure { message: may_be_shown.then(|| error.detail().to_owned()) }
    }
}
