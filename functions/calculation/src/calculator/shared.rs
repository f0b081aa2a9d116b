//! Calculations of this process that requests wait for, so that equal questions asked at once are calculated once.
//!
//! Must stay true: who wants everything that was captured before it asked never gets a calculation that had begun by
//! then; a calculation goes on while anybody waits for it, and stops with the last.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use chrono::{DateTime, Duration, Utc};
use futures::FutureExt;
use futures::future::{BoxFuture, Shared, WeakShared};
use pennon_core::error::ApiResult;
use pennon_core::store::keys::ProjectId;

use super::{Calculated, Calculator, Question, Used};

/// Requests that were sent less than this after each other may share an answer.
const TOGETHER: Duration = Duration::minutes(1);

/// A calculation that several wait for.
type Work = Shared<BoxFuture<'static, ApiResult<Calculated>>>;

/// A question with everything that its answer depends on, but for the events.
type Name = (ProjectId, String, String);

/// What is being calculated. Clones share it.
#[derive(Debug, Clone, Default)]
pub(super) struct Running(Arc<Mutex<HashMap<Name, Begun>>>);

#[derive(Debug)]
struct Begun {
    /// As of when.
    now: DateTime<Utc>,
    work: WeakShared<BoxFuture<'static, ApiResult<Calculated>>>,
}

impl Running {
    /// The work that is going on under this name, for somebody who asks at `now`; else that of `begin`.
    fn joined(&self, name: Name, now: DateTime<Utc>, joins: bool, begin: impl FnOnce() -> Work) -> Work {
        let mut running = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let fits = |begun: &&Begun| joins && begun.now <= now && now - begun.now < TOGETHER;
        if let Some(work) = running.get(&name).filter(fits).and_then(|begun| begun.work.upgrade()) {
            return work;
        }
        running.retain(|_, begun| begun.work.upgrade().is_some());
        let work = begin();
        if let Some(weak) = work.downgrade() {
            running.insert(name, Begun { now, work: weak });
        }
        work
    }
}

impl Calculator {
    /// Calculates a question and keeps the result, together with whoever asks the same at this time. One that is
    /// `forced` joins nobody, and may be joined.
    pub(super) async fn calculate_together(
        &self,
        question: &Question<'_>,
        used: Used,
        settings: String,
        forced: bool,
    ) -> ApiResult<Calculated> {
        let Question { project, asked, now, deadline, .. } = *question;
        let name = (project.id, asked.key.clone(), settings.clone());
        let begin = || {
            let (this, project, query, key) =
                (self.clone(), project.clone(), asked.query.clone(), asked.key.clone());
            let work = async move {
                let calculated = this.calculate(&project, &query, &used, now, deadline).await?;
                if this.keeps {
                    this.store(&project, settings, &key, &calculated).await;
                }
                Ok(calculated)
            };
            work.boxed().shared()
        };
        let work = self.running.joined(name, now, !forced, begin);
        work.await
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use pennon_core::error::ApiError;
    use tokio::sync::oneshot;

    fn name() -> Name {
        (1, "key".to_owned(), "settings".to_owned())
    }

    fn at(second: i64) -> DateTime<Utc> {
        DateTime::from_timestamp(1_700_000_000 + second, 0).unwrap()
    }

    /// Work that ends with this error code when it is told to, and a way to see whether it still goes on.
    fn work() -> (Work, oneshot::Sender<u32>) {
        let (end, ended) = oneshot::channel();
        let work = async move { Err(ApiError::busy(ended.await.unwrap_or(0))) };
        (work.boxed().shared(), end)
    }

    #[tokio::test]
    async fn who_asks_meanwhile_joins_unless_forced_or_from_another_time() {
        let running = Running::default();
        let (one, end) = work();
        let first = running.joined(name(), at(0), true, || one);
        let second = running.joined(name(), at(59), true, || panic!("calculated twice"));
        for (now, joins) in [(at(0), false), (at(-1), true), (at(60), true)] {
            let running = Running(Arc::new(Mutex::new(HashMap::new())));
            let (one, _end) = work();
            let _first = running.joined(name(), at(0), true, || one);
            let mut begun = false;
            let other = running.joined(name(), now, joins, || {
                begun = true;
                work().0
            });
            drop(other);
            assert!(begun, "{now} {joins}");
        }
        end.send(7).unwrap();
        assert_eq!(first.await, Err(ApiError::busy(7)));
        assert_eq!(second.await, Err(ApiError::busy(7)));
    }

    #[tokio::test]
    async fn work_ends_with_its_last_asker() {
        let running = Running::default();
        let (one, end) = work();
        let first = running.joined(name(), at(0), true, || one);
        let second = running.joined(name(), at(0), true, || panic!("calculated twice"));
        drop(first);
        assert!(!end.is_closed());
        drop(second);
        assert!(end.is_closed());
        let (other, _end) = work();
        let _third = running.joined(name(), at(0), true, || other);
        assert_eq!(running.0.lock().unwrap().len(), 1);
    }

    #[tokio::test]
    async fn a_forced_one_is_joined_by_those_after_it() {
        let running = Running::default();
        let ((old, _old_end), (new, new_end)) = (work(), work());
        let _old = running.joined(name(), at(0), true, || old);
        let forced = running.joined(name(), at(0), false, || new);
        let later = running.joined(name(), at(1), true, || panic!("calculated again"));
        new_end.send(3).unwrap();
        assert_eq!((forced.await, later.await), (Err(ApiError::busy(3)), Err(ApiError::busy(3))));
    }
}
