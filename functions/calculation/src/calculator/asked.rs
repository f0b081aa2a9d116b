//! Questions before their project is known, and what is read for them.

use std::collections::BTreeSet;

use pennon_core::error::ApiResult;
use pennon_core::model::Project;
use pennon_core::store::keys::{self, ProjectId};
use pennon_core::store::{Item, Key};
use pennon_engine::Query;

use super::Calculator;
use super::cache::{Purpose, Stored, cache_key, result_key};
use super::definitions::{Known, Name, named_by};
use crate::jobs::Tracked;
use crate::source::Source;

/// Most actions and cohorts of a question that are read before it is known whether its key opens the project.
const BESIDE_THE_KEY: usize = 20;

/// A question and the name of its result.
#[derive(Debug, Clone)]
pub struct Asked {
    /// The question.
    pub query: Query,
    /// Where its result is kept.
    pub key: String,
    /// Who shares its result.
    pub purpose: Purpose,
    /// What tells it from equal questions.
    pub invalidation: Option<String>,
    /// The question as it was sent; without it, it is calculated at once or not at all.
    pub source: Option<Source>,
    /// A stored result would not be shown.
    pub passes_over_stored: bool,
}

/// What was read for some questions.
#[derive(Debug, Clone, Default)]
pub struct Read {
    /// What is stored of each, in their order.
    pub stored: Vec<Option<Stored>>,
    /// What is known of the calculation of each in the background.
    pub tracked: Vec<Option<Tracked>>,
    /// What the ids in them mean, and what was erased.
    pub known: Known,
}

impl Asked {
    /// A question whose result is kept for `purpose`. `invalidation` tells equal questions apart.
    pub fn new(query: Query, purpose: Purpose, invalidation: Option<&str>) -> Asked {
        let key = cache_key(purpose, &query, invalidation);
        let invalidation = invalidation.map(str::to_owned);
        Asked { query, key, purpose, invalidation, source: None, passes_over_stored: false }
    }

    /// The same, which can be calculated in the background: `source` is the question as it was sent.
    #[must_use]
    pub fn sent_as(self, source: Source) -> Asked {
        Asked { source: Some(source), ..self }
    }

    /// What can be read of it in the round trip that finds the project; hand the items to [`Calculator::read_after`].
    pub fn keys(&self, project: ProjectId) -> Vec<Key> {
        let definitions = self.first_names().into_iter().map(|name| name.key(project));
        let own =
            [result_key(project, &self.key), keys::query_state(project, &self.key), keys::erasures(project)];
        own.into_iter().chain(definitions).collect()
    }

    fn first_names(&self) -> Vec<Name> {
        named_by(&self.query, None).into_iter().take(BESIDE_THE_KEY).collect()
    }

    fn stored(&self, item: Option<&Item>) -> Option<Stored> {
        Stored::read(item).filter(|_| !self.passes_over_stored)
    }
}

impl Calculator {
    /// What has to be read for `asked`: results, and what ids mean.
    pub async fn read(&self, project: &Project, asked: &[&Asked]) -> ApiResult<Read> {
        if asked.is_empty() {
            return Ok(Read { stored: Vec::new(), tracked: Vec::new(), known: Known::after(None) });
        }
        let roots = roots(project, asked);
        let results = asked.iter().map(|asked| result_key(project.id, &asked.key));
        let names: Vec<Name> = roots.iter().copied().take(super::definitions::DEFINITIONS_MAX).collect();
        let definitions = names.iter().map(|name| name.key(project.id));
        let states = asked.iter().map(|asked| keys::query_state(project.id, &asked.key));
        let keys: Vec<Key> =
            results.chain(states).chain([keys::erasures(project.id)]).chain(definitions).collect();
        let mut items = self.records.batch_get(&keys).await?.into_iter();
        let stored = asked.iter().map(|asked| asked.stored(items.next().flatten().as_ref())).collect();
        let tracked = asked.iter().map(|_| Tracked::read(items.next().flatten().as_ref())).collect();
        let mut known = Known::after(items.next().flatten().as_ref());
        for (name, item) in names.into_iter().zip(items) {
            known.take(project.id, name, item)?;
        }
        known.complete(&self.records, project.id, &roots).await?;
        Ok(Read { stored, tracked, known })
    }

    /// The same for one question, of which `items` were found at [`Asked::keys`].
    pub async fn read_after(
        &self,
        project: &Project,
        asked: &Asked,
        items: Vec<Option<Item>>,
    ) -> ApiResult<Read> {
        let mut items = items.into_iter();
        let stored = vec![asked.stored(items.next().flatten().as_ref())];
        let tracked = vec![Tracked::read(items.next().flatten().as_ref())];
        let mut known = Known::after(items.next().flatten().as_ref());
        for (name, item) in asked.first_names().into_iter().zip(items) {
            known.take(project.id, name, item)?;
        }
        known.complete(&self.records, project.id, &roots(project, &[asked])).await?;
        Ok(Read { stored, tracked, known })
    }
}

fn roots(project: &Project, asked: &[&Asked]) -> BTreeSet<Name> {
    asked.iter().flat_map(|asked| named_by(&asked.query, Some(project))).collect()
}
