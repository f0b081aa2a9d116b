//! What requests are answered: a stored result, one that is calculated now, or word of a calculation in the background.
//!
//! Must stay true: what is shown and what is started is what [`decide`] says; one that cannot be waited for is started in
//! the background before the request's time is up; one failing question of several fails alone.

use chrono::{DateTime, Utc};
use futures::StreamExt;
use pennon_core::clock::Clock;
use pennon_core::error::{ApiError, ApiResult};
use pennon_core::model::Project;
use pennon_core::store::Write;
use pennon_engine::query::{Decision, Freshness, Refresh, Start, Then, decide};
use tokio::time::Instant;

use super::definitions::{Known, Used};
use super::{Asked, Calculated, Calculator, Stored, cache, class, named_by};
use crate::errors::is_out_of_time;
use crate::jobs::{Asker, End, Status, Tracked, Wanted, Wish};

/// Questions of one request that are calculated side by side.
const AT_ONCE: usize = 4;

/// A question with everything that its answer depends on.
#[derive(Debug, Clone, Copy)]
pub struct Question<'a> {
    /// Whose events.
    pub project: &'a Project,
    /// What is asked.
    pub asked: &'a Asked,
    /// What was found of its result.
    pub stored: Option<&'a Stored>,
    /// What was found of its calculation in the background.
    pub tracked: Option<&'a Tracked>,
    /// What the ids in it mean. Read before any event is.
    pub known: &'a Known,
    /// The instant of the request.
    pub now: DateTime<Utc>,
    /// When its time is up, see [`Calculator::deadline`].
    pub deadline: Instant,
    /// For whom.
    pub by: AskedBy<'a>,
}

/// Who asks a question.
#[derive(Debug, Clone, Copy, Default)]
pub struct AskedBy<'a> {
    /// The caller's own name for the calculation.
    pub query_id: Option<&'a str>,
    /// For which insight.
    pub insight_id: Option<u64>,
    /// On which dashboard.
    pub dashboard_id: Option<u64>,
    /// The caller wants a result, and is told to come again for it where it takes too long; a stored one that is empty
    /// does not do.
    pub comes_again: bool,
}

/// What an answer shows of a question.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Shown {
    /// The result, where there is one to show.
    pub calculated: Option<Calculated>,
    /// What is told of a calculation in the background.
    pub status: Option<Status>,
}

/// A question and what follows from what was found of it.
struct Judged {
    decision: Decision,
    /// The stored result, where it may be shown.
    stored: Option<Calculated>,
    /// What is told of a calculation that is under way.
    told: Option<Status>,
    used: Used,
    settings: String,
}

impl Calculator {
    /// What is shown of one question. A result that is calculated is kept.
    pub async fn answer(&self, question: &Question<'_>, refresh: Refresh) -> ApiResult<Shown> {
        let mut answers = self.answers(std::slice::from_ref(question), refresh).await;
        answers.pop().unwrap_or_else(|| Err(ApiError::internal(&"a question without an answer")))
    }

    /// What is shown of the questions of one request, in their order.
    pub async fn answers(&self, questions: &[Question<'_>], refresh: Refresh) -> Vec<ApiResult<Shown>> {
        let work = questions.iter().map(|question| self.decided(question, refresh)).collect::<Vec<_>>();
        let done: Vec<ApiResult<Done>> = futures::stream::iter(work).buffered(AT_ONCE).collect().await;
        self.start_rest(questions, done).await
    }

    /// What comes of a question, but for the start of what is to be calculated in the background.
    async fn decided(&self, question: &Question<'_>, refresh: Refresh) -> ApiResult<Done> {
        let judged = self.judge(question, refresh).await?;
        self.carry_out(question, judged, refresh).await
    }

    /// What follows from what was found.
    async fn judge(&self, question: &Question<'_>, refresh: Refresh) -> ApiResult<Judged> {
        let Question { project, asked, stored, tracked, known, now, .. } = *question;
        let query = &asked.query;
        let used = match known.of(project.id, &named_by(query, Some(project))) {
            Ok(used) => used,
            Err(_) if !refresh.calculates() => Used::default(),
            Err(error) => return Err(error),
        };
        let settings = cache::settings(project, query, &used.digest, known.erasures());
        let whole = match stored.filter(|stored| stored.is_of(&settings, now)) {
            Some(stored) => self.whole(project.id, &asked.key, stored).await,
            None => None,
        };
        let found = whole.and_then(|stored| stored.of(&settings, query, now));
        let passed_over =
            refresh.is_forced() || question.by.comes_again && stored.is_some_and(Stored::is_empty);
        let usable = found.as_ref().filter(|_| !passed_over);
        let class = match usable {
            Some(_) if !refresh.calculates() => Some(Freshness::Fresh),
            Some(found) => Some(class(project, query, found.last_refresh, now)?),
            None => None,
        };
        let mut decision = decide(refresh, class);
        let mut shows = usable.is_some();
        if decision.then == Then::Calculate
            && let Some(promised) = question.promised(found.as_ref(), refresh.is_forced())
        {
            (decision, shows) = (promised, promised.shows_stored);
        }
        let stored = found.filter(|_| shows);
        let last_refresh = stored.as_ref().map(|stored| stored.last_refresh);
        let told = tracked.filter(|it| it.state.told_beside(last_refresh, now).is_some());
        let told = question.status_of(told);
        Ok(Judged { decision, stored, told, used, settings })
    }

    /// Calculates where that is decided.
    async fn carry_out(&self, question: &Question<'_>, judged: Judged, refresh: Refresh) -> ApiResult<Done> {
        let Judged { decision, stored, told, used, settings } = judged;
        let shows = decision.shows_stored;
        match decision.then {
            Then::Nothing => {
                let shown = stored.filter(|_| shows);
                if question.by.comes_again && shown.is_some() {
                    self.keep_promise(question).await;
                }
                Ok(Done::Shown(Shown { calculated: shown, status: told }))
            }
            Then::Background(start) => Ok(Done::ToStart(stored.filter(|_| shows), start)),
            Then::Calculate => {
                let forced = refresh.is_forced();
                let work = Box::pin(self.calculate_together(question, used, settings, forced));
                match work.await {
                    Ok(calculated) => Ok(Done::Shown(Shown { calculated: Some(calculated), status: None })),
                    Err(error) if is_out_of_time(&error) && self.may_go_on(question) => {
                        tracing::info!(
                            project = question.project.id,
                            "a calculation goes on in the background"
                        );
                        let class = stored.as_ref().map(|_| Freshness::Stale);
                        let decision = decide(refresh.in_background(), class);
                        let Then::Background(start) = decision.then else { return Err(error) };
                        // Repeated requests must not each begin anew what none of them can wait for; only who is told
                        // how it goes on can have everything that was captured before it asked.
                        let failed = question.tracked.is_some_and(|it| it.state.has_failed(question.now));
                        let anew = refresh.is_forced() && (failed || !question.by.comes_again);
                        let start = Start { anew, ..start };
                        Ok(Done::ToStart(stored.filter(|_| decision.shows_stored), start))
                    }
                    Err(error) => Err(error),
                }
            }
        }
    }

    fn may_go_on(&self, question: &Question<'_>) -> bool {
        self.keeps && question.asked.source.is_some()
    }

    /// Starts what is to be calculated in the background, all of it together.
    async fn start_rest(
        &self,
        questions: &[Question<'_>],
        done: Vec<ApiResult<Done>>,
    ) -> Vec<ApiResult<Shown>> {
        let wanted: Vec<Wanted<'_>> = questions
            .iter()
            .zip(&done)
            .filter_map(|(question, done)| match done {
                Ok(Done::ToStart(_, start)) => Some(question.wanted(*start)),
                _ => None,
            })
            .collect();
        let started = match (questions.first(), wanted.is_empty()) {
            (Some(first), false) => self.start_all(first.project.id, &wanted).await,
            _ => Ok(Vec::new()),
        };
        let mut started = started.map(Vec::into_iter);
        done.into_iter()
            .map(|done| match done? {
                Done::Shown(shown) => Ok(shown),
                Done::ToStart(calculated, _) => match &mut started {
                    Ok(started) => Ok(Shown { calculated, status: started.next() }),
                    Err(error) => Err(error.clone()),
                },
            })
            .collect()
    }

    /// Notes that the result of a promised calculation was fetched: whoever forces the next one gets a new one.
    async fn keep_promise(&self, question: &Question<'_>) {
        let Some(tracked) = question.tracked.filter(|it| it.state.owing().next().is_some()) else {
            return;
        };
        let row = tracked.with_promise_kept(question.project.id, &question.asked.key);
        let written = match row {
            Ok((row, guard)) => self.records.transact(vec![Write::Put(row, guard)]).await,
            Err(error) => Err(error),
        };
        if let Err(error) = written {
            tracing::debug!(%error, "that a result was fetched is not noted");
        }
    }
}

/// A question that was judged, as far as this process answers it.
enum Done {
    Shown(Shown),
    /// What is shown beside the status of what is to be started.
    ToStart(Option<Calculated>, Start),
}

impl Question<'_> {
    fn asker(&self) -> Asker {
        Asker {
            id: self.by.query_id.unwrap_or(&self.asked.key).to_owned(),
            insight_id: self.by.insight_id,
            dashboard_id: self.by.dashboard_id,
        }
    }

    fn wanted(&self, start: Start) -> Wanted<'_> {
        let wish = Wish { start, asker: self.asker(), owed: self.by.comes_again, now: self.now };
        Wanted { asked: self.asked, tracked: self.tracked, wish }
    }

    /// What is told of a calculation in the background.
    fn status_of(&self, tracked: Option<&Tracked>) -> Option<Status> {
        let state = &tracked?.state;
        let own = self.by.query_id.unwrap_or(&self.asked.key);
        Some(Status::of(state.id_for(own, &self.asked.key), state.seen()))
    }

    /// What is done instead of calculating where the caller, or somebody else who asked the same, was told to come again for the result: it is
    /// shown if it is there, forced or not, not calculated twice while it is under way, and why there is none is told until somebody forces it.
    fn promised(&self, stored: Option<&Calculated>, forced: bool) -> Option<Decision> {
        let state = &self.tracked.filter(|_| self.by.comes_again)?.state;
        let is_stored = |(begun, end): (Option<DateTime<Utc>>, &End)| {
            end.failure.is_none() && stored.zip(begun).is_some_and(|(it, begun)| it.last_refresh >= begun)
        };
        let is_there = state.owing().any(is_stored);
        let goes_on = state.owed && state.is_alive(self.now, Clock::Running.now(None));
        let is_told = state.owed && state.has_failed(self.now) && !forced;
        (is_there || goes_on || is_told).then_some(Decision { shows_stored: is_there, then: Then::Nothing })
    }
}
