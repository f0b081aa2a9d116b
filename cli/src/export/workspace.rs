//! Writes the workspace file of an export, for `pennon apply`, from the current state of the installation.
//!
//! Deleted records are left out. Must stay true: it has no API key, only hashes of keys; secret payloads are masked unless
//! `--with-secrets` is given; it has all fields that can be set over HTTP or by a workspace file.

use std::collections::BTreeSet;
use std::path::Path;

use pennon_core::store::keys::{self, ProjectId, RecordKind};
use pennon_core::store::{Item, PartitionQuery, StoreError};
use pennon_flag_rules::Flag;
use pennon_flag_rules::conditions::payloads::mask;
use pennon_insights::{CohortRecord, Insight};
use pennon_role_access::payloads::{has_encrypted, revealed};
use serde::de::DeserializeOwned;
use serde_json::Value;
use uuid::Uuid;

use super::{ExportContext, RecordCounts, files};
use crate::args::Export;
use crate::workspace::{
    ActionSpec, CohortSpec, DashboardSpec, Declarations, Workspace, flag_to_spec, insight_to_spec,
};

/// Most members of a static cohort that the file lists; longer lists are written as CSV files.
const LISTED_MEMBERS_MAX: usize = 10_000;
/// Persons that are read at once.
const PERSON_BATCH: usize = 10_000;

/// Writes the file, and CSV files of long lists of cohort members. Returns the numbers of records in the file, and a note for
/// each thing that is not in it.
pub(super) async fn write(
    context: &ExportContext<'_>,
    options: &Export,
    directory: &Path,
) -> Result<(RecordCounts, Vec<String>), String> {
    let failed = |error: StoreError| error.to_string();
    let mut file = base_workspace(context.state, options.project);
    let mut notes = Vec::new();
    let projects: Vec<ProjectId> = file.projects.iter().map(|project| project.id).collect();
    for project in projects {
        let reader = ProjectReader { context, project };
        file.actions.extend(reader.list_actions().await.map_err(failed)?);
        let dashboards = reader.list_dashboards().await.map_err(failed)?;
        reader.add_cohorts(&mut file, directory, &mut notes).await?;
        let live: BTreeSet<u64> = dashboards.iter().map(|dashboard| dashboard.id).collect();
        file.dashboards.extend(dashboards);
        reader.add_flags(&mut file, &live, options.with_secrets, &mut notes).await?;
        reader.add_insights(&mut file, &live).await.map_err(failed)?;
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
    Ok((records, notes))
}

/// The declarations of the installation, and of its projects or only that of `--project`.
fn base_workspace(state: &Declarations, project: Option<ProjectId>) -> Workspace {
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
    // A key that was limited to other projects must be removed: with an empty list it would be unlimited.
    file.keys.retain(|key| key.projects.is_empty() || key.projects.iter().any(|id| kept.contains(id)));
    file.keys.iter_mut().for_each(|key| key.projects.retain(|id| kept.contains(id)));
    Workspace { actions: Vec::new(), cohorts: Vec::new(), dashboards: Vec::new(), ..file }
}

/// Reads the records of one project.
struct ProjectReader<'a> {
    context: &'a ExportContext<'a>,
    project: ProjectId,
}

impl ProjectReader<'_> {
    /// The stored records of a kind.
    async fn query_items(&self, kind: RecordKind) -> Result<Vec<Item>, StoreError> {
        let records = &self.context.services.app.store.records;
        records.query(PartitionQuery::partition(keys::records_pk(self.project, kind))).await
    }

    /// The records of a kind that are not deleted.
    async fn list_live<T: DeserializeOwned>(&self, kind: RecordKind) -> Result<Vec<T>, StoreError> {
        let mut live = Vec::new();
        for item in self.query_items(kind).await? {
            if item.body::<Value>()?["deleted"] != true {
                live.push(item.body()?);
            }
        }
        Ok(live)
    }

    /// The mail address of a creator, if that user is declared.
    fn creator(&self, email: Option<&str>) -> Option<String> {
        let mut users = self.context.state.users.values();
        let creator = users.find(|user| Some(user.spec.email.as_str()) == email)?;
        Some(creator.spec.email.clone())
    }

    fn creator_of(&self, record: &Value) -> Option<String> {
        self.creator(record["created_by"]["email"].as_str())
    }

    async fn list_actions(&self) -> Result<Vec<ActionSpec>, StoreError> {
        let records = self.list_live::<Value>(RecordKind::Action).await?;
        let spec = |record: Value| {
            Ok(ActionSpec {
                project: self.project,
                id: get_field(&record, "id")?,
                name: get_field::<Option<String>>(&record, "name")?.unwrap_or_default(),
                steps: get_field::<Option<_>>(&record, "steps")?.unwrap_or_default(),
                description: get_field(&record, "description")?,
                tags: get_field(&record, "tags")?,
                pinned_at: get_field(&record, "pinned_at")?,
                post_to_slack: get_field(&record, "post_to_slack")?,
                slack_message_format: get_field(&record, "slack_message_format")?,
                created_at: get_field(&record, "created_at")?,
                created_by: self.creator_of(&record),
            })
        };
        records.into_iter().map(spec).collect()
    }

    async fn list_dashboards(&self) -> Result<Vec<DashboardSpec>, StoreError> {
        let records = self.list_live::<Value>(RecordKind::Dashboard).await?;
        let spec = |record: Value| {
            Ok(DashboardSpec {
                project: self.project,
                id: get_field(&record, "id")?,
                name: get_field::<Option<String>>(&record, "name")?.unwrap_or_default(),
                filters: get_field(&record, "filters")?,
                restriction_level: get_field::<Option<u8>>(&record, "restriction_level")?.unwrap_or(21),
                created_by: self.creator_of(&record),
                deleted: false,
                description: get_field(&record, "description")?,
                pinned: get_field(&record, "pinned")?,
                tags: get_field(&record, "tags")?,
                creation_mode: get_field(&record, "creation_mode")?,
                generated: get_field(&record, "generated")?,
                created_at: get_field(&record, "created_at")?,
            })
        };
        records.into_iter().map(spec).collect()
    }

    async fn add_cohorts(
        &self,
        file: &mut Workspace,
        directory: &Path,
        notes: &mut Vec<String>,
    ) -> Result<(), String> {
        for record in self.list_live::<CohortRecord>(RecordKind::Cohort).await.map_err(|e| e.to_string())? {
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
                let members = self.list_members(&record).await?;
                if members.len() <= LISTED_MEMBERS_MAX {
                    spec.person_ids = members;
                } else {
                    let (name, count) = self.write_members(record.id, members, directory).await?;
                    notes.push(format!(
                        "cohort {}/{}: {count} members are in {name}, and not in the workspace file",
                        self.project, record.id
                    ));
                }
            }
            file.cohorts.push(spec);
        }
        Ok(())
    }

    /// All members of a static cohort.
    async fn list_members(&self, record: &CohortRecord) -> Result<Vec<Uuid>, String> {
        let records = &self.context.services.app.store.records;
        let cohort_list = record.cohort_list(self.project);
        let members =
            cohort_list.members(records, self.project, record.id).await.map_err(|e| e.to_string())?;
        let mut members: Vec<Uuid> = members.into_iter().collect();
        members.sort_unstable();
        Ok(members)
    }

    /// Writes the members as a CSV file of distinct ids, for `PATCH cohorts/{id}/`. Returns the name of the file and its number
    /// of members; a member without a known distinct id is left out.
    async fn write_members(
        &self,
        cohort: u64,
        members: Vec<Uuid>,
        directory: &Path,
    ) -> Result<(String, usize), String> {
        let (project, events) = (self.project, self.context.events());
        let failed = |e: pennon_eventstore::EventStoreError| e.to_string();
        let finals = events.canonical_persons(project).await.map_err(failed)?;
        let persons: BTreeSet<Uuid> = members.iter().map(|member| finals.of(*member)).collect();
        let persons: Vec<Uuid> = persons.into_iter().collect();
        let mut table = csv::Writer::from_writer(Vec::new());
        table.write_record(["distinct_id"]).map_err(|e| e.to_string())?;
        let mut count = 0;
        for batch in persons.chunks(PERSON_BATCH) {
            for person in events.persons(project, batch).await.map_err(failed)? {
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
        std::fs::create_dir_all(folder).map_err(|e| files::write_error(folder, &e))?;
        files::write_text(&path, &text)?;
        Ok((name, count))
    }

    async fn add_flags(
        &self,
        file: &mut Workspace,
        dashboards: &BTreeSet<u64>,
        with_secrets: bool,
        notes: &mut Vec<String>,
    ) -> Result<(), String> {
        let failed = |error: StoreError| error.to_string();
        let has_dashboard = |id: i64| u64::try_from(id).is_ok_and(|id| dashboards.contains(&id));
        for flag in self.list_live::<Flag>(RecordKind::Flag).await.map_err(failed)? {
            let roles = self.roles_of(&flag).await.map_err(failed)?;
            let creator = self.creator(flag.created_by.as_ref().map(|user| user.email.as_str()));
            let mut exported = flag;
            if exported.is_encrypted() {
                let clear = revealed(&self.context.services.app.payload_keys, self.project, &exported);
                let mut clear = clear.into_owned();
                if !with_secrets {
                    mask(&mut clear.filters);
                    notes.push(format!(
                        "flag {}/{} \"{}\": its secret payloads are left out; --with-secrets writes them in clear",
                        self.project, clear.id, clear.key
                    ));
                } else if has_encrypted(&clear) {
                    return Err(format!(
                        "the secret payloads of flag {}/{} \"{}\" cannot be opened with the keys at hand",
                        self.project, clear.id, clear.key
                    ));
                }
                exported = clear;
            }
            exported.analytics_dashboards.retain(|id| has_dashboard(*id));
            exported.usage_dashboard = exported.usage_dashboard.filter(|id| has_dashboard(*id));
            file.flags.push(flag_to_spec(self.project, &exported, roles, creator));
        }
        Ok(())
    }

    /// The roles that may edit a flag.
    async fn roles_of(&self, flag: &Flag) -> Result<Vec<Uuid>, StoreError> {
        let records = &self.context.services.app.store.records;
        let pk = keys::flag_children_pk(self.project, flag.id.unsigned_abs());
        let rows = records.query(PartitionQuery::partition(pk).prefix(keys::FLAG_ROLES)).await?;
        let ids = rows.iter().filter_map(|row| row.key.sk.strip_prefix(keys::FLAG_ROLES));
        let declared = &self.context.state.roles;
        Ok(ids.filter(|id| declared.contains_key(*id)).filter_map(|id| id.parse().ok()).collect())
    }

    async fn add_insights(&self, file: &mut Workspace, dashboards: &BTreeSet<u64>) -> Result<(), StoreError> {
        for insight in self.list_live::<Insight>(RecordKind::Insight).await? {
            let creator = self.creator(Some(&insight.created_by.email));
            let has_dashboard = |id| dashboards.contains(&id);
            let spec = insight_to_spec(self.project, &insight, has_dashboard, creator);
            file.insights.push(spec.map_err(|e| StoreError::Corrupt(e.to_string()))?);
        }
        Ok(())
    }
}

/// A field of a stored record; an absent one is read as null.
fn get_field<T: DeserializeOwned>(record: &Value, field: &str) -> Result<T, StoreError> {
    let value = record.get(field).cloned().unwrap_or(Value::Null);
    serde_json::from_value(value).map_err(|e| StoreError::Corrupt(format!("{field}: {e}")))
}
