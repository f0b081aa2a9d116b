//! The workspace file of an export: what `pennon apply` takes, as the installation is now.
//!
//! What is deleted is left out. Must stay true: no key is in it, only what a key is found by; payloads that are secret are
//! masked unless they were asked for; of records that HTTP and files both write everything is said that either can set.

use std::collections::BTreeSet;
use std::path::Path;

use pennon_core::store::keys::{self, Kind, ProjectId};
use pennon_core::store::{Item, Query, StoreError};
use pennon_engine::flag::Flag;
use pennon_engine::flag::payloads::mask;
use pennon_insights::{CohortRecord, Insight};
use pennon_role_access::payloads::{has_sealed, revealed};
use serde::de::DeserializeOwned;
use serde_json::Value;
use uuid::Uuid;

use super::{Exporting, RecordCounts, files};
use crate::args::Export;
use crate::workspace::{ActionSpec, CohortSpec, DashboardSpec, State, Workspace, of_flag, of_insight};

/// Most members of a cohort that the file lists; longer lists lie beside it.
const LISTED_MAX: usize = 10_000;
/// Persons that are looked up at once.
const PERSONS_AT_ONCE: usize = 10_000;

/// Writes the file, and lists of members that are too long for it. Returns how many records of each kind the file declares,
/// and a sentence for each thing that is not in it.
pub(super) async fn write(
    exporting: &Exporting<'_>,
    options: &Export,
    directory: &Path,
) -> Result<(RecordCounts, Vec<String>), String> {
    let failed = |error: StoreError| error.to_string();
    let mut file = declared(exporting.state, options.project);
    let mut lines = Vec::new();
    let projects: Vec<ProjectId> = file.projects.iter().map(|project| project.id).collect();
    for project in projects {
        let of = OfProject { exporting, project };
        file.actions.extend(of.actions().await.map_err(failed)?);
        let dashboards = of.dashboards().await.map_err(failed)?;
        of.cohorts(&mut file, directory, &mut lines).await?;
        let live: BTreeSet<u64> = dashboards.iter().map(|dashboard| dashboard.id).collect();
        file.dashboards.extend(dashboards);
        of.flags(&mut file, &live, options.with_secrets, &mut lines).await?;
        of.insights(&mut file, &live).await.map_err(failed)?;
    }
    let text = serde_json::to_string_pretty(&file).map_err(|e| e.to_string())?;
    files::write_text(&directory.join("workspace.json"), &format!("{text}\n"))?;
    let records = RecordCounts {
        flags: file.flags.len(),
        insights: file.insights.len(),
        dashboards: file.dashboards.len(),
        cohorts: file.cohorts.len(),
        actions: file.actions.len(),
    };
    Ok((records, lines))
}

/// What is declared of the installation itself, and of its projects or the one that is wanted.
fn declared(state: &State, project: Option<ProjectId>) -> Workspace {
    let mut file = state.workspace();
    file.projects.retain(|it| project.is_none_or(|project| it.id == project));
    let kept: BTreeSet<ProjectId> = file.projects.iter().map(|project| project.id).collect();
    file.keys = state
        .keys
        .iter()
        .map(|(hash, key)| {
            let mut spec = key.spec.clone();
            (spec.hash, spec.mask) = (Some(hash.clone()), Some(key.mask.clone()));
            spec
        })
        .collect();
    // A key that was limited to other projects would be limited to none.
    file.keys.retain(|key| key.projects.is_empty() || key.projects.iter().any(|id| kept.contains(id)));
    file.keys.iter_mut().for_each(|key| key.projects.retain(|id| kept.contains(id)));
    Workspace { actions: Vec::new(), cohorts: Vec::new(), dashboards: Vec::new(), ..file }
}

/// What is read of one project.
struct OfProject<'a> {
    exporting: &'a Exporting<'a>,
    project: ProjectId,
}

impl OfProject<'_> {
    /// The records of a kind.
    async fn items(&self, kind: Kind) -> Result<Vec<Item>, StoreError> {
        let records = &self.exporting.services.app.store.records;
        records.query(Query::partition(keys::records_pk(self.project, kind))).await
    }

    /// Those that are not deleted.
    async fn live<T: DeserializeOwned>(&self, kind: Kind) -> Result<Vec<T>, StoreError> {
        let mut live = Vec::new();
        for item in self.items(kind).await? {
            if item.body::<Value>()?["deleted"] != true {
                live.push(item.body()?);
            }
        }
        Ok(live)
    }

    /// The mail address of whoever made something, if the file declares that user.
    fn creator(&self, email: Option<&str>) -> Option<String> {
        let mut users = self.exporting.state.users.values();
        let found = users.find(|user| Some(user.spec.email.as_str()) == email)?;
        Some(found.spec.email.clone())
    }

    fn creator_of(&self, record: &Value) -> Option<String> {
        self.creator(record["created_by"]["email"].as_str())
    }

    async fn actions(&self) -> Result<Vec<ActionSpec>, StoreError> {
        let records = self.live::<Value>(Kind::Action).await?;
        let spec = |record: Value| {
            Ok(ActionSpec {
                project: self.project,
                id: read(&record, "id")?,
                name: read::<Option<String>>(&record, "name")?.unwrap_or_default(),
                steps: read::<Option<_>>(&record, "steps")?.unwrap_or_default(),
                description: read(&record, "description")?,
                tags: read(&record, "tags")?,
                pinned_at: read(&record, "pinned_at")?,
                post_to_slack: read(&record, "post_to_slack")?,
                slack_message_format: read(&record, "slack_message_format")?,
                created_at: read(&record, "created_at")?,
                created_by: self.creator_of(&record),
            })
        };
        records.into_iter().map(spec).collect()
    }

    async fn dashboards(&self) -> Result<Vec<DashboardSpec>, StoreError> {
        let records = self.live::<Value>(Kind::Dashboard).await?;
        let spec = |record: Value| {
            Ok(DashboardSpec {
                project: self.project,
                id: read(&record, "id")?,
                name: read::<Option<String>>(&record, "name")?.unwrap_or_default(),
                filters: read(&record, "filters")?,
                restriction_level: read::<Option<u8>>(&record, "restriction_level")?.unwrap_or(21),
                created_by: self.creator_of(&record),
                deleted: false,
                description: read(&record, "description")?,
                pinned: read(&record, "pinned")?,
                tags: read(&record, "tags")?,
                creation_mode: read(&record, "creation_mode")?,
                generated: read(&record, "generated")?,
                created_at: read(&record, "created_at")?,
            })
        };
        records.into_iter().map(spec).collect()
    }

    async fn cohorts(
        &self,
        file: &mut Workspace,
        directory: &Path,
        lines: &mut Vec<String>,
    ) -> Result<(), String> {
        for record in self.live::<CohortRecord>(Kind::Cohort).await.map_err(|e| e.to_string())? {
            let mut spec = CohortSpec {
                project: self.project,
                id: record.id,
                name: record.name.clone().unwrap_or_default(),
                filters: Some(record.filters.clone()).filter(|it| !it.is_null()),
                groups: Some(record.groups.clone()).filter(|it| !it.is_null()),
                is_static: record.is_static,
                distinct_ids: record.distinct_ids.clone(),
                person_ids: record.person_ids.clone(),
                description: Some(record.description.clone()),
                created_at: Some(record.created_at),
                created_by: self.creator(record.created_by.as_ref().map(|user| user.email.as_str())),
            };
            if record.members.is_some() {
                let members = self.members(&record).await?;
                if members.len() <= LISTED_MAX {
                    spec.person_ids = members;
                } else {
                    let (name, count) = self.write_members(record.id, members, directory).await?;
                    lines.push(format!(
                        "cohort {}/{}: {count} members are in {name}, and not in the workspace file",
                        self.project, record.id
                    ));
                }
            }
            file.cohorts.push(spec);
        }
        Ok(())
    }

    /// Everybody on the list of a static cohort.
    async fn members(&self, record: &CohortRecord) -> Result<Vec<Uuid>, String> {
        let records = &self.exporting.services.app.store.records;
        let roster = record.roster(self.project);
        let members = roster.members(records, self.project, record.id).await.map_err(|e| e.to_string())?;
        let mut members: Vec<Uuid> = members.into_iter().collect();
        members.sort_unstable();
        Ok(members)
    }

    /// Writes a long list as a table of distinct ids, which `PATCH cohorts/{id}/` takes. Returns the name of the file, and
    /// how many members it has; of others nothing is known but that they are on the list.
    async fn write_members(
        &self,
        cohort: u64,
        members: Vec<Uuid>,
        directory: &Path,
    ) -> Result<(String, usize), String> {
        let (project, events) = (self.project, self.exporting.events());
        let failed = |e: pennon_eventstore::EventStoreError| e.to_string();
        let finals = events.final_persons(project).await.map_err(failed)?;
        let persons: BTreeSet<Uuid> = members.iter().map(|member| finals.of(*member)).collect();
        let persons: Vec<Uuid> = persons.into_iter().collect();
        let mut table = csv::Writer::from_writer(Vec::new());
        table.write_record(["distinct_id"]).map_err(|e| e.to_string())?;
        let mut count = 0;
        for some in persons.chunks(PERSONS_AT_ONCE) {
            for person in events.persons(project, some).await.map_err(failed)? {
                if let Some(id) = person.distinct_ids.first() {
                    table.write_record([id]).map_err(|e| e.to_string())?;
                    count += 1;
                }
            }
        }
        let text = table.into_inner().map_err(|e| e.to_string())?;
        let text = String::from_utf8(text).map_err(|e| e.to_string())?;
        let name = format!("project-{project}/cohort-{cohort}.csv");
        let path = directory.join(&name);
        let folder = path.parent().unwrap_or(directory);
        std::fs::create_dir_all(folder).map_err(|e| files::failed(folder, &e))?;
        files::write_text(&path, &text)?;
        Ok((name, count))
    }

    async fn flags(
        &self,
        file: &mut Workspace,
        dashboards: &BTreeSet<u64>,
        with_secrets: bool,
        lines: &mut Vec<String>,
    ) -> Result<(), String> {
        let failed = |error: StoreError| error.to_string();
        let is_there = |id: i64| u64::try_from(id).is_ok_and(|id| dashboards.contains(&id));
        for flag in self.live::<Flag>(Kind::Flag).await.map_err(failed)? {
            let roles = self.roles_of(&flag).await.map_err(failed)?;
            let creator = self.creator(flag.created_by.as_ref().map(|user| user.email.as_str()));
            let mut said = flag;
            if said.is_encrypted() {
                let clear = revealed(&self.exporting.services.app.payload_keys, self.project, &said);
                let mut clear = clear.into_owned();
                if !with_secrets {
                    mask(&mut clear.filters);
                    lines.push(format!(
                        "flag {}/{} \"{}\": its secret payloads are left out; --with-secrets writes them in clear",
                        self.project, clear.id, clear.key
                    ));
                } else if has_sealed(&clear) {
                    return Err(format!(
                        "the secret payloads of flag {}/{} \"{}\" cannot be opened with the keys at hand",
                        self.project, clear.id, clear.key
                    ));
                }
                said = clear;
            }
            said.analytics_dashboards.retain(|id| is_there(*id));
            said.usage_dashboard = said.usage_dashboard.filter(|id| is_there(*id));
            file.flags.push(of_flag(self.project, &said, roles, creator).map_err(|e| e.to_string())?);
        }
        Ok(())
    }

    /// The roles that may edit a flag.
    async fn roles_of(&self, flag: &Flag) -> Result<Vec<Uuid>, StoreError> {
        let records = &self.exporting.services.app.store.records;
        let pk = keys::flag_children_pk(self.project, flag.id.unsigned_abs());
        let rows = records.query(Query::partition(pk).prefix(keys::FLAG_ROLES)).await?;
        let ids = rows.iter().filter_map(|row| row.key.sk.strip_prefix(keys::FLAG_ROLES));
        let declared = &self.exporting.state.roles;
        Ok(ids.filter(|id| declared.contains_key(*id)).filter_map(|id| id.parse().ok()).collect())
    }

    async fn insights(&self, file: &mut Workspace, dashboards: &BTreeSet<u64>) -> Result<(), StoreError> {
        for insight in self.live::<Insight>(Kind::Insight).await? {
            let creator = self.creator(Some(&insight.created_by.email));
            let is_there = |id| dashboards.contains(&id);
            let spec = of_insight(self.project, &insight, is_there, creator);
            file.insights.push(spec.map_err(|e| StoreError::Corrupt(e.to_string()))?);
        }
        Ok(())
    }
}

/// A field of a stored record, as far as it is there.
fn read<T: DeserializeOwned>(record: &Value, field: &str) -> Result<T, StoreError> {
    let value = record.get(field).cloned().unwrap_or(Value::Null);
    serde_json::from_value(value).map_err(|e| StoreError::Corrupt(format!("{field}: {e}")))
}
