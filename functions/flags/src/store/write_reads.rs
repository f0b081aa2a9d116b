//! The reads that a write of a flag depends on, planned from the path and the body.
//!
//! Must stay true: the first attempt uses what was prefetched in parallel with the authorization, in the same round trip; an
//! attempt after a version conflict reads everything again. What is read may be older than what another process has
//! written since; the conditions of the write detect that.

use pennon_core::auth::Access;
use pennon_core::error::ApiResult;
use pennon_core::http::{Call, Fields};
use pennon_core::store::keys::{self, ProjectId};
use pennon_core::store::{Item, Key, QueryPage, StoreError, Table};
use pennon_flag_rules::flag::body_references::{self, BodyReferences};
use pennon_flag_rules::is_possible_key;

use super::referenced_records::{ReferenceIds, ResolvedReferences};
use super::{ProjectVersion, StoredFlag, flag_record_key, prefetch_dependents};
use crate::Flags;

/// The reads of one write.
#[derive(Debug)]
pub struct WriteReads {
    /// The flag that is changed; `None` on create.
    id: Option<u64>,
    /// The key whose claim is read.
    key: Option<String>,
    reference_ids: ReferenceIds,
    needs_version: bool,
    /// Whether to read the flags that depend on others, because the body may delete or disable the flag.
    needs_dependents: bool,
}

/// The items of the planned reads.
#[derive(Debug)]
pub struct ReadItems {
    items: Vec<Option<Item>>,
    dependents: Option<QueryPage>,
}

/// The decoded result of the reads.
#[derive(Debug)]
pub struct WriteInputs {
    /// The stored flag; `None` on create, or when it does not exist.
    pub before: Option<StoredFlag>,
    /// What its validation depends on.
    pub linked: LinkedInputs,
}

/// The records around a flag, as far as they were planned.
#[derive(Debug)]
pub struct LinkedInputs {
    /// The project's version; 0 when the validation does not depend on it.
    pub version: ProjectVersion,
    /// Id of the live flag that holds the key.
    pub key_holder: Option<i64>,
    /// The records that the body names directly.
    pub references: ResolvedReferences,
    /// The first page of the flags that depend on others.
    pub dependents: Option<QueryPage>,
}

impl WriteReads {
    /// The reads of a create.
    pub fn of_create(body: Option<&Fields>) -> WriteReads {
        let references =
            body.map_or_else(BodyReferences::default, |body| body_references::collect(body, None));
        let reference_ids = ReferenceIds::of(&references);
        WriteReads {
            id: None,
            key: references.key.filter(|key| is_possible_key(key)),
            needs_version: reference_ids.has_flags(),
            needs_dependents: false,
            reference_ids,
        }
    }

    /// The reads of an update of the flag `id`.
    pub fn of_update(id: u64, body: Option<&Fields>) -> WriteReads {
        let changes_state =
            body.is_some_and(|body| body.contains_key("active") || body.contains_key("deleted"));
        let reads = WriteReads::of_create(body);
        WriteReads {
            id: Some(id),
            needs_version: reads.needs_version || changes_state,
            needs_dependents: body.is_some_and(may_disable),
            ..reads
        }
    }

    /// Authorizes the request and runs the reads, in one round trip when the path has the numeric project id.
    pub async fn authorize_and_prefetch(&self, state: &Flags, call: &Call) -> ApiResult<(Access, ReadItems)> {
        let path_project = call.id("project_id").filter(|_| call.credential().is_some());
        let page = async {
            match path_project.filter(|_| self.needs_dependents) {
                Some(project) => Some(prefetch_dependents(&state.app.store.records, project).await),
                None => None,
            }
        };
        let access = state.app.authorize_project_with(call, crate::WRITE_SCOPE, |project| self.keys(project));
        let (access, page) = tokio::join!(access, page);
        let (access, items) = access?;
        let dependents = page.filter(|_| path_project == Some(access.project.id)).transpose()?;
        Ok((access, ReadItems { items, dependents }))
    }

    /// Decodes `prefetched`, or reads everything when there is none.
    pub async fn load(
        &mut self,
        records: &Table,
        project: ProjectId,
        prefetched: Option<ReadItems>,
    ) -> ApiResult<WriteInputs> {
        let read = match prefetched {
            Some(prefetched) => prefetched,
            None => self.fetch(records, project).await?,
        };
        let inputs = self.decode(read)?;
        if let (None, Some(before)) = (&self.key, &inputs.before) {
            // After a version conflict: another flag may have claimed the key that a restored flag needs.
            self.key = Some(before.flag.key.clone());
        }
        Ok(inputs)
    }

    fn keys(&self, project: ProjectId) -> Vec<Key> {
        let record = self.id.map(|id| flag_record_key(project, id));
        let version = self.needs_version.then(|| keys::project_version(project));
        let key_claim = self.key.as_ref().map(|key| keys::flag_key_live(project, key));
        let references = self.reference_ids.keys(project);
        record.into_iter().chain(version).chain(key_claim).chain(references).collect()
    }

    async fn fetch(&self, records: &Table, project: ProjectId) -> Result<ReadItems, StoreError> {
        let keys = self.keys(project);
        let items = async { if keys.is_empty() { Ok(Vec::new()) } else { records.batch_get(&keys).await } };
        let dependents = async {
            match self.needs_dependents {
                true => prefetch_dependents(records, project).await.map(Some),
                false => Ok(None),
            }
        };
        let (items, dependents) = tokio::try_join!(items, dependents)?;
        Ok(ReadItems { items, dependents })
    }

    /// Decodes the items that were read for [`WriteReads::keys`].
    fn decode(&self, read: ReadItems) -> ApiResult<WriteInputs> {
        let mut items = read.items.iter();
        let mut next =
            |is_planned: bool| if is_planned { items.next().and_then(Option::as_ref) } else { None };
        let before = next(self.id.is_some()).map(StoredFlag::from_item).transpose()?;
        let version = ProjectVersion::from_item(next(self.needs_version));
        let key_holder = next(self.key.is_some()).map(|key_claim| key_claim.count);
        let references = ResolvedReferences::from_items(&self.reference_ids, items.as_slice())?;
        let linked = LinkedInputs { version, key_holder, references, dependents: read.dependents };
        Ok(WriteInputs { before, linked })
    }
}

/// Whether the body may delete or disable a flag. Values are validated later, so only the plain opposite counts as no.
pub fn may_disable(body: &Fields) -> bool {
    body.get("deleted").is_some_and(|sent| *sent != false)
        || body.get("active").is_some_and(|sent| *sent != true)
}
