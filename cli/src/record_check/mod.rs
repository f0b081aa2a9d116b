//! `pennon check --records`: compares the rows of the records table with each other.
//!
//! A write of the product changes a record and the rows that belong to it in one transaction. This module reads the rows of one
//! project after the other, and reports each row for which that does not hold. `flags`, `insights`, `listed`, `sharing`, `activity`,
//! `counters` and `installation` have the rules, each as a pure function from rows to findings; `reader`, `load` and
//! [`InstallationRows::load`] read. Caches are not read: the definitions feed, results, jobs, rate limits and idempotency keys; nor are the
//! rows of events, which `pennon check` verifies.
//!
//! Must stay true: nothing is written; the writes of a running server are no findings: what a first read finds is read again, and
//! reported if each read finds the same. The text of a finding has the values that differ, so that a row which is written again and again
//! is no finding either.

mod activity;
mod counters;
mod finding;
mod flags;
mod insights;
mod installation;
mod listed;
mod load;
mod project_rows;
mod reader;
mod sharing;

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, Utc};
use pennon_core::store::Table;
use pennon_core::store::keys::ProjectId;
use serde_json::{Value, json};

pub use finding::{Finding, Rule};

use counters::IdsInUse;
use finding::Findings;
use installation::InstallationRows;
use load::load_project;
use project_rows::ProjectRows;
use reader::Reader;

/// How often the rows of a project are read while there are findings, or while writes prevent a check of checksums.
const READS_MAX: usize = 3;

/// The result of a check.
#[derive(Debug, Default)]
pub struct RecordReport {
    /// The number of rows of the installation itself.
    installation_rows: usize,
    /// The number of rows of each project, and whether its checksums were compared.
    projects: BTreeMap<ProjectId, (usize, bool)>,
    /// The violated invariants.
    pub findings: Vec<Finding>,
}

impl RecordReport {
    /// The report as lines of text.
    pub fn lines(&self) -> Vec<String> {
        let mut lines: Vec<String> = self.findings.iter().map(Finding::line).collect();
        lines.push(format!("installation: {} rows were compared", self.installation_rows));
        for (project, (rows, is_stable)) in &self.projects {
            lines.push(format!("project {project}: {rows} rows were compared"));
            if !is_stable {
                lines.push(format!(
                    "project {project}: its flags or insights were written during each of {READS_MAX} reads, so that their checksums \
                     were not compared; repeat the check when there are fewer writes"
                ));
            }
        }
        lines
    }

    /// The report as JSON.
    pub fn to_json(&self) -> Value {
        let projects = self.projects.iter().map(|(project, (rows, is_stable))| {
            json!({"project": project, "rows": rows, "checksums_compared": is_stable})
        });
        json!({
            "findings": self.findings.iter().map(Finding::to_json).collect::<Vec<_>>(),
            "installation": {"rows": self.installation_rows},
            "projects": projects.collect::<Vec<_>>(),
        })
    }
}

/// Checks the rows of the installation and of one project, or of all that are declared.
pub async fn check_records(
    records: &Table,
    project: Option<ProjectId>,
    now: DateTime<Utc>,
) -> Result<RecordReport, String> {
    let mut report = RecordReport::default();
    let mut installation = InstallationRows::load(records).await?;
    let mut findings = installation.check();
    for _ in 1..READS_MAX {
        if findings.is_empty() {
            break;
        }
        installation = InstallationRows::load(records).await?;
        findings = confirmed(&findings, installation.check());
    }
    report.installation_rows = installation.count;
    let declared = installation.projects();
    let projects = match project {
        Some(project) if declared.contains(&project) => BTreeSet::from([project]),
        Some(project) => {
            return Err(format!("there is no project {project}; `pennon check --records` checks all"));
        }
        None => declared,
    };
    let mut ids = IdsInUse::default();
    for project in projects {
        let (rows, of_project) = check_project(records, project, &installation, now).await?;
        rows.add_ids(&mut ids);
        report.projects.insert(project, (rows.count, rows.is_stable()));
        findings.extend(of_project);
    }
    findings.extend(check_counters(records, &ids).await?);
    report.findings = findings;
    Ok(report)
}

/// Reads and checks the rows of a project, again as long as there are findings.
async fn check_project(
    records: &Table,
    project: ProjectId,
    installation: &InstallationRows,
    now: DateTime<Utc>,
) -> Result<(ProjectRows, Vec<Finding>), String> {
    let mut rows = load_stable(records, project, installation).await?;
    let mut findings = rows.check(now);
    for _ in 1..READS_MAX {
        if findings.is_empty() {
            break;
        }
        let installation = InstallationRows::load(records).await?;
        rows = load_stable(records, project, &installation).await?;
        findings = confirmed(&findings, rows.check(now));
    }
    Ok((rows, findings))
}

/// Loads the rows of a project, again while writes prevent a check of its checksums.
async fn load_stable(
    records: &Table,
    project: ProjectId,
    installation: &InstallationRows,
) -> Result<ProjectRows, String> {
    let users = installation.users();
    let load = || load_project(records, project, installation.declared(project), &users);
    let mut rows = load().await?;
    for _ in 1..READS_MAX {
        if rows.is_stable() {
            break;
        }
        rows = load().await?;
    }
    Ok(rows)
}

/// The findings of a later read that an earlier one had too.
fn confirmed(earlier: &[Finding], later: Vec<Finding>) -> Vec<Finding> {
    later.into_iter().filter(|finding| earlier.contains(finding)).collect()
}

async fn check_counters(records: &Table, ids: &IdsInUse) -> Result<Vec<Finding>, String> {
    let mut reader = Reader::new(records);
    let counters = reader.get_all(ids.counters()).await?;
    let mut findings = Findings::new(None, &reader.unreadable);
    let counts = counters.into_iter().map(|(key, item)| (key, item.count)).collect();
    ids.check(&counts, &mut findings);
    Ok(findings.into_sorted())
}
