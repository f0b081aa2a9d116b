//! The rows of a project's flags: summary rows, dependencies, keys, checksums, and the roles that may edit them.
//!
//! Must stay true: pure; [`FlagTable`] has the rows as they were read.

use std::collections::BTreeMap;

use pennon_core::store::keys::{self, ProjectId, RecordKind};
use pennon_core::store::summary_rows::RowsVersion;
use pennon_core::store::{Item, Key};
use pennon_flag_rules::{Flag, FlagRow};
use pennon_role_access::RoleAccess;
use uuid::Uuid;

use super::finding::{ExpectedRow, Findings, RowKind, Rule, compare_rows, row_name};

const SUMMARY: RowKind = RowKind { rule: Rule::SummaryRow, name: "summary row" };
const DEPENDENCY: RowKind = RowKind { rule: Rule::SummaryRow, name: "dependency row" };
const CLAIM: RowKind = RowKind { rule: Rule::UniqueRow, name: "row of the key" };
const ROLE: RowKind = RowKind { rule: Rule::UniqueRow, name: "role marker" };

/// What the check keeps of a flag's record.
#[derive(Debug, Clone)]
pub struct FlagFacts {
    /// Whether it is deleted.
    pub is_deleted: bool,
    /// Its key.
    pub key: String,
    /// Its version in responses: 1 after the create, one more after each update.
    pub version: i64,
    /// The version of its item.
    pub item_version: u64,
    /// Its summary row, computed from the record.
    pub row: FlagRow,
}

/// The rows of the flags of a project.
#[derive(Debug, Default)]
pub struct FlagTable {
    /// By id.
    pub records: BTreeMap<u64, FlagFacts>,
    /// The summary rows.
    pub rows: BTreeMap<Key, FlagRow>,
    /// The dependency rows.
    pub dependencies: BTreeMap<Key, FlagRow>,
    /// The ids in the rows of keys.
    pub claims: BTreeMap<Key, i64>,
    /// The project's version, before and after the rows were read.
    pub versions: [RowsVersion; 2],
    /// The role accesses, with the flags of their partitions.
    pub accesses: BTreeMap<Key, (u64, RoleAccess)>,
    /// The ids in the markers of roles, with the flags of their partitions.
    pub role_markers: BTreeMap<Key, (u64, u64)>,
}

/// The key of a flag's record.
pub fn record_key(project: ProjectId, id: u64) -> Key {
    keys::record(project, RecordKind::Flag, id)
}

/// Decodes the record of a flag.
pub fn decode_record(project: ProjectId, item: &Item) -> Result<(u64, FlagFacts), String> {
    let flag: Flag = item.body().map_err(|e| e.to_string())?;
    let id = flag.id.unsigned_abs();
    if record_key(project, id) != item.key {
        return Err(format!("its id is {id}"));
    }
    let row = FlagRow::from(&flag).with_version(item.version).with_size(item.text.len());
    let FlagRow { key, version, .. } = row.clone();
    Ok((id, FlagFacts { is_deleted: flag.deleted, key, version, item_version: item.version, row }))
}

/// Decodes a summary row or a dependency row.
pub fn decode_row(item: &Item) -> Result<FlagRow, String> {
    item.body::<FlagRow>().map(|row| row.with_version(item.version)).map_err(|e| e.to_string())
}

/// Checks the rows of the flags.
pub fn check(project: ProjectId, table: &FlagTable, findings: &mut Findings) {
    let live = || table.records.iter().filter(|(_, flag)| !flag.is_deleted);
    let exists = |key: &Key| key.sk.parse().is_ok_and(|id: u64| table.records.contains_key(&id));
    let record_of = |row: &FlagRow| record_key(project, row.id.unsigned_abs());
    let expected = |id: u64, content| ExpectedRow { record: record_key(project, id), content };

    let rows = live().map(|(id, flag)| (keys::flag_row(project, *id), expected(*id, flag.row.clone())));
    compare_rows(findings, SUMMARY, &rows.collect(), &table.rows, |_, row| record_of(row), exists);

    let dependent = live().filter(|(_, flag)| !flag.row.depends_on.is_empty());
    let rows = dependent
        .map(|(id, flag)| (keys::dependent(project, *id), expected(*id, flag.row.to_dependency_row())));
    compare_rows(findings, DEPENDENCY, &rows.collect(), &table.dependencies, |_, row| record_of(row), exists);

    check_claims(project, table, findings);
    check_checksums(project, table, findings);
    check_role_accesses(project, table, findings);
}

/// Each key has one row, with the id of the only live flag that has it.
fn check_claims(project: ProjectId, table: &FlagTable, findings: &mut Findings) {
    let mut expected: BTreeMap<Key, ExpectedRow<i64>> = BTreeMap::new();
    for (id, flag) in table.records.iter().filter(|(_, flag)| !flag.is_deleted) {
        let claim = keys::flag_key_live(project, &flag.key);
        let row = ExpectedRow { record: record_key(project, *id), content: flag.row.id };
        if let Some(other) = expected.insert(claim.clone(), row) {
            let detail =
                format!("{} has the key of {}", row_name(&record_key(project, *id)), row_name(&other.record));
            findings.add(Rule::UniqueRow, &record_key(project, *id), detail);
        }
    }
    let exists = |key: &Key| key.sk.parse().is_ok_and(|id: u64| table.records.contains_key(&id));
    let record_of = |_: &Key, id: &i64| record_key(project, id.unsigned_abs());
    compare_rows(findings, CLAIM, &expected, &table.claims, record_of, exists);
}

/// The project's version has the sums of the checksums of all flags, and has been incremented by each write of them.
fn check_checksums(project: ProjectId, table: &FlagTable, findings: &mut Findings) {
    let records_pk = keys::records_pk(project, RecordKind::Flag);
    let is_partial = findings.has_unreadable_in(&records_pk) || findings.has_missing_in(&records_pk);
    if is_partial || !is_stable(table.versions) {
        return;
    }
    let live = || table.records.values().filter(|flag| !flag.is_deleted).map(|flag| &flag.row);
    let rows = live().fold(0_i64, |sum, row| sum.wrapping_add(row.checksum()));
    let dependent = live().filter(|row| !row.depends_on.is_empty());
    let edges = dependent.fold(0_i64, |sum, row| sum.wrapping_add(row.checksum()));
    let writes: u64 = table.records.values().map(|flag| flag.item_version).sum();
    let (version, key) = (table.versions[1], keys::project_version(project));
    if version.sums.rows != rows {
        let detail = format!("has the checksum {} of all flags, which is {rows}", version.sums.rows);
        findings.add(Rule::Checksum, &key, detail);
    } else if version.sums.edges != edges {
        let detail = format!("has the checksum {} of all dependencies, which is {edges}", version.sums.edges);
        findings.add(Rule::Checksum, &key, detail);
    } else if i64::try_from(writes).is_ok_and(|writes| version.number < writes) {
        let detail = format!("has the number {}, and the flags were written {writes} times", version.number);
        findings.add(Rule::Checksum, &key, detail);
    }
}

/// Whether no write happened between the two reads of a version.
pub fn is_stable([before, after]: [RowsVersion; 2]) -> bool {
    before.number == after.number
}

/// Each role access has a marker of its role, which has its id.
fn check_role_accesses(project: ProjectId, table: &FlagTable, findings: &mut Findings) {
    let mut expected: BTreeMap<Key, ExpectedRow<(u64, u64)>> = BTreeMap::new();
    let mut accesses: BTreeMap<(u64, u64), Key> = BTreeMap::new();
    for (key, (flag, access)) in &table.accesses {
        let marker = keys::role_access_of_role(project, *flag, access.role);
        let row = ExpectedRow { record: key.clone(), content: (*flag, access.id) };
        if let Some(other) = expected.insert(marker, row) {
            let detail =
                format!("gives the role {} access, as {} does", access.role, row_name(&other.record));
            findings.add(Rule::UniqueRow, key, detail);
        }
        accesses.insert((*flag, access.id), key.clone());
    }
    let record_of = |_: &Key, (flag, id): &(u64, u64)| keys::role_access(project, *flag, *id);
    let exists = |key: &Key| table.accesses.contains_key(key);
    compare_rows(findings, ROLE, &expected, &table.role_markers, record_of, exists);
}

/// Decodes a role access of `flag`.
pub fn decode_access(project: ProjectId, flag: u64, item: &Item) -> Result<RoleAccess, String> {
    let access: RoleAccess = item.body().map_err(|e| e.to_string())?;
    match keys::role_access(project, flag, access.id) == item.key {
        true => Ok(access),
        false => Err(format!("its id is {}", access.id)),
    }
}

/// Decodes the marker of a role, which has the id of its access.
pub fn decode_marker(item: &Item) -> Result<u64, String> {
    let role = item.key.sk.strip_prefix(keys::FLAG_ROLES).and_then(|role| role.parse::<Uuid>().ok());
    role.ok_or("its key has no role")?;
    item.body().map_err(|e| e.to_string())
}
