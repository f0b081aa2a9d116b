//! Cache of flags in a warm process.
//!
//! Must stay true: no entry is used without a version check. Rows are used only for the version that the table has at
//! the time of the request, a record only for the version in a row or item read by the request; so eviction is always
//! safe. The caches are limited in bytes.

use std::collections::BTreeMap;
use std::sync::Arc;

pub use pennon_core::byte_limited_cache::ByteLimitedCache;
use pennon_core::store::keys::ProjectId;
use pennon_core::store::summary_rows::SummaryRowCache;
use pennon_flag_rules::FlagTemplate;

use super::StoredFlag;
use super::rows::FlagRowKind;

/// Approximate bytes of decoded records.
const FLAGS_BYTES_MAX: usize = 96 * 1024 * 1024;
/// Bytes of rendered flags.
const TEMPLATES_BYTES_MAX: usize = 48 * 1024 * 1024;
/// Bytes of cohort names.
const COHORT_NAMES_BYTES_MAX: usize = 4 * 1024 * 1024;

/// The flag cache of one process. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct FlagCache {
    /// Summary rows by project.
    pub(super) rows: SummaryRowCache<FlagRowKind>,
    records: Arc<Caches>,
}

#[derive(Debug)]
struct Caches {
    flags: ByteLimitedCache<(ProjectId, i64), Arc<StoredFlag>>,
    templates: ByteLimitedCache<(ProjectId, i64), (u64, Arc<FlagTemplate>)>,
    /// Cohort names at a version number of the project; `None` for a cohort that does not exist.
    cohort_names: ByteLimitedCache<ProjectId, (i64, CohortNames)>,
}

type CohortNames = BTreeMap<i64, Option<String>>;

impl Default for Caches {
    fn default() -> Caches {
        Caches {
            flags: ByteLimitedCache::new(FLAGS_BYTES_MAX),
            templates: ByteLimitedCache::new(TEMPLATES_BYTES_MAX),
            cohort_names: ByteLimitedCache::new(COHORT_NAMES_BYTES_MAX),
        }
    }
}

impl FlagCache {
    /// The record of flag `id` at this item version.
    pub fn get_flag(&self, project: ProjectId, id: i64, version: u64) -> Option<Arc<StoredFlag>> {
        self.records.flags.get(&(project, id)).filter(|stored| stored.version == version)
    }

    /// Caches a record whose text has `bytes`.
    pub fn put_flag(&self, project: ProjectId, stored: &Arc<StoredFlag>, bytes: usize) {
        // A decoded text takes several times its length.
        self.records.flags.insert((project, stored.flag.id), stored.clone(), bytes * 5 + 500);
    }

    /// The rendered flag `id` at this item version.
    pub fn get_template(&self, project: ProjectId, id: i64, version: u64) -> Option<Arc<FlagTemplate>> {
        let (cached_version, template) = self.records.templates.get(&(project, id))?;
        (cached_version == version).then_some(template)
    }

    /// Whether flag `id` referred to cohorts when it was last rendered.
    pub fn names_cohorts(&self, project: ProjectId, id: i64) -> bool {
        self.records.templates.get(&(project, id)).is_some_and(|(_, template)| template.names_cohorts())
    }

    /// Caches a rendered flag.
    pub fn put_template(&self, project: ProjectId, id: i64, version: u64, template: &Arc<FlagTemplate>) {
        let bytes = template.bytes() + 200;
        self.records.templates.insert((project, id), (version, template.clone()), bytes);
    }

    /// The cohort names that were read at this version number of the project.
    pub fn get_cohort_names(&self, project: ProjectId, number: i64) -> Option<CohortNames> {
        let (cached_version, cohort_names) = self.records.cohort_names.get(&project)?;
        (cached_version == number).then_some(cohort_names)
    }

    /// Caches cohort names that were read at or after this version number.
    pub fn put_cohort_names(&self, project: ProjectId, number: i64, cohort_names: &CohortNames) {
        let bytes = cohort_names.values().flatten().map(String::len).sum::<usize>() + cohort_names.len() * 50;
        self.records.cohort_names.insert(project, (number, cohort_names.clone()), bytes);
    }

    /// Declares the names valid for the number `to` too: between the two versions only a flag was written.
    pub fn carry_cohort_names(&self, project: ProjectId, from: i64, to: i64) {
        self.records.cohort_names.update(&project, |(number, _)| {
            if *number == from {
                *number = to;
            }
        });
    }

    /// Clears the cache, as in a new process.
    pub fn clear(&self) {
        self.rows.clear();
        self.records.flags.clear();
        self.records.templates.clear();
        self.records.cohort_names.clear();
    }
}
