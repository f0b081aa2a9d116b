//! Queries with their cache keys, before their project is known, and the stored rows that they need.

use std::collections::BTreeSet;

use pennon_analytics::Query;
use pennon_core::error::ApiResult;
use pennon_core::model::Project;
use pennon_core::store::keys::{self, ProjectId};
use pennon_core::store::{Item, Key};

use super::Calculator;
use super::cache::{CacheScope, CachedResult, cache_key, result_key};
use super::definitions::{DEFINITIONS_MAX, DefinitionId, DefinitionLookup, direct_references};
use crate::query_state::VersionedQueryState;
use crate::source::QuerySource;

/// Most actions and cohorts of a query that are fetched before the caller's access to the project is verified.
const PREFETCHED_DEFINITIONS_MAX: usize = 20;

/// A query and its cache key.
#[derive(Debug, Clone)]
pub struct KeyedQuery {
    /// The query.
    pub query: Query,
    /// Cache key of its result.
    pub key: String,
    /// Which queries share its result.
    pub scope: CacheScope,
    /// Part of the cache key: the client's own key to bypass cached results.
    pub invalidation: Option<String>,
    /// The query as it was sent. `None`: it cannot be calculated in the background.
    pub source: Option<QuerySource>,
    /// A cached result is not used.
    pub ignores_cache: bool,
}

/// The stored rows for some queries.
#[derive(Debug, Clone, Default)]
pub struct StoredState {
    /// The cached result of each query, in their order.
    pub stored: Vec<Option<CachedResult>>,
    /// The state of the background calculation of each query, in their order.
    pub tracked: Vec<Option<VersionedQueryState>>,
    /// The definitions that they refer to, and the erasure counter.
    pub known: DefinitionLookup,
}

impl KeyedQuery {
    /// A query whose result is cached in `scope`. `invalidation` is part of the cache key.
    pub fn new(query: Query, scope: CacheScope, invalidation: Option<&str>) -> KeyedQuery {
        let key = cache_key(scope, &query, invalidation);
        let invalidation = invalidation.map(str::to_owned);
        KeyedQuery { query, key, scope, invalidation, source: None, ignores_cache: false }
    }

    /// The same query, which can be calculated in the background: `source` is the query as it was sent.
    #[must_use]
    pub fn with_source(self, source: QuerySource) -> KeyedQuery {
        KeyedQuery { source: Some(source), ..self }
    }

    /// The rows to prefetch in the round trip that finds the project; pass their items to [`Calculator::complete_prefetch`].
    pub fn keys(&self, project: ProjectId) -> Vec<Key> {
        let definitions = self.prefetched_definitions().into_iter().map(|id| id.key(project));
        let own =
            [result_key(project, &self.key), keys::query_state(project, &self.key), keys::erasures(project)];
        own.into_iter().chain(definitions).collect()
    }

    fn prefetched_definitions(&self) -> Vec<DefinitionId> {
        direct_references(&self.query, None).into_iter().take(PREFETCHED_DEFINITIONS_MAX).collect()
    }

    fn cached_result(&self, item: Option<&Item>) -> Option<CachedResult> {
        CachedResult::from_item(item).filter(|_| !self.ignores_cache)
    }
}

impl Calculator {
    /// Fetches the stored rows of some queries: cached results, states, definitions.
    pub async fn read(&self, project: &Project, queries: &[&KeyedQuery]) -> ApiResult<StoredState> {
        if queries.is_empty() {
            return Ok(StoredState {
                stored: Vec::new(),
                tracked: Vec::new(),
                known: DefinitionLookup::with_erasures(None),
            });
        }
        let references = references(project, queries);
        let results = queries.iter().map(|query| result_key(project.id, &query.key));
        let ids: Vec<DefinitionId> = references.iter().copied().take(DEFINITIONS_MAX).collect();
        let definitions = ids.iter().map(|id| id.key(project.id));
        let states = queries.iter().map(|query| keys::query_state(project.id, &query.key));
        let keys: Vec<Key> =
            results.chain(states).chain([keys::erasures(project.id)]).chain(definitions).collect();
        let mut items = self.records.batch_get(&keys).await?.into_iter();
        let stored =
            queries.iter().map(|query| query.cached_result(items.next().flatten().as_ref())).collect();
        let tracked =
            queries.iter().map(|_| VersionedQueryState::from_item(items.next().flatten().as_ref())).collect();
        let mut known = DefinitionLookup::with_erasures(items.next().flatten().as_ref());
        for (id, item) in ids.into_iter().zip(items) {
            known.insert(project.id, id, item)?;
        }
        known.fetch_missing(&self.records, project.id, &references).await?;
        Ok(StoredState { stored, tracked, known })
    }

    /// The same for one query, with the prefetched `items` of [`KeyedQuery::keys`].
    pub async fn complete_prefetch(
        &self,
        project: &Project,
        query: &KeyedQuery,
        items: Vec<Option<Item>>,
    ) -> ApiResult<StoredState> {
        let mut items = items.into_iter();
        let stored = vec![query.cached_result(items.next().flatten().as_ref())];
        let tracked = vec![VersionedQueryState::from_item(items.next().flatten().as_ref())];
        let mut known = DefinitionLookup::with_erasures(items.next().flatten().as_ref());
        for (id, item) in query.prefetched_definitions().into_iter().zip(items) {
            known.insert(project.id, id, item)?;
        }
        known.fetch_missing(&self.records, project.id, &references(project, &[query])).await?;
        Ok(StoredState { stored, tracked, known })
    }
}

fn references(project: &Project, queries: &[&KeyedQuery]) -> BTreeSet<DefinitionId> {
    queries.iter().flat_map(|query| direct_references(&query.query, Some(project))).collect()
}
