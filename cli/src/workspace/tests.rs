#![allow(clippy::unwrap_used)]

use chrono::{DateTime, Utc};
use pennon_core::auth::{KeyRecord, hash_key};
use pennon_core::model::{AccessLevel, Level, Project};
use pennon_core::store::{Table, keys};
use pennon_eventstore::BlockPartitions;

use super::{ApplyError, ApplyOptions, ApplyResult, Declarations, Workspace, apply};
use crate::embedded::Embedded;

const FILE: &str = r#"
organizations: [{id: 01900000-0000-7000-8000-000000000001, name: Acme, feature_flags_access_level: 21}]
users:
  - {id: 1, email: ada@example.com, first_name: Ada, memberships: [{organization: 01900000-0000-7000-8000-000000000001, level: owner}]}
projects: [{id: "7", organization: 01900000-0000-7000-8000-000000000001, name: Shop, token: phc_shop, group_types: [company]}]
keys: [{label: ci, user: ada@example.com, scopes: ["feature_flag:read"], projects: ["7"], value: phx_test_secret}]
roles: [{id: 01900000-0000-7000-8000-0000000000aa, organization: 01900000-0000-7000-8000-000000000001, name: Eng, feature_flags_access_level: 37, members: [ada@example.com]}]
cohorts: [{project: "7", id: 12, name: Beta, is_static: true, distinct_ids: [a, b]}]
"#;

fn now() -> DateTime<Utc> {
    "2026-01-05T10:00:00Z".parse().unwrap()
}

async fn table() -> Table {
    Embedded::in_memory().await.unwrap().store(None).records
}

async fn run(table: &Table, text: &str, options: ApplyOptions) -> Result<ApplyResult, ApplyError> {
    apply(table, &Workspace::parse(text).unwrap(), options, now()).await
}

async fn key(table: &Table, secret: &str) -> Option<KeyRecord> {
    let item = table.get(&keys::api_key(&hash_key(secret))).await.unwrap();
    item.map(|item| item.body().unwrap())
}

#[tokio::test]
async fn a_file_becomes_records_and_applying_it_again_changes_nothing() {
    let table = table().await;
    let first = run(&table, FILE, ApplyOptions::default()).await.unwrap();
    assert_eq!(first.plan.len(), 6, "{:?}", first.plan);
    let project: Project = table.get(&keys::project(7)).await.unwrap().unwrap().body().unwrap();
    assert_eq!((project.name.as_str(), project.feature_flags_access_level), ("Shop", AccessLevel::View));
    let record = key(&table, "phx_test_secret").await.unwrap();
    assert_eq!((record.mask.as_str(), record.projects.as_slice()), ("phx_...cret", &[7][..]));
    assert_eq!(record.memberships[0].level, Level::Owner);
    assert_eq!(record.roles[0].level, AccessLevel::Edit);
    assert_eq!(table.increment(&keys::counter(keys::Counter::Cohort), 1).await.unwrap(), 13);
    let again = run(&table, FILE, ApplyOptions::default()).await.unwrap();
    assert_eq!(again.plan, Vec::<String>::new());
}

#[tokio::test]
async fn a_changed_user_changes_the_snapshot_in_every_key() {
    let table = table().await;
    run(&table, FILE, ApplyOptions::default()).await.unwrap();
    let changed = FILE.replace("first_name: Ada", "first_name: Augusta, is_active: false");
    let applied = run(&table, &changed, ApplyOptions::default()).await.unwrap();
    assert_eq!(applied.plan, ["~ user 1 \"ada@example.com\""]);
    let record = key(&table, "phx_test_secret").await.unwrap();
    assert_eq!((record.user.first_name.as_str(), record.is_active), ("Augusta", false));
}

#[tokio::test]
async fn nothing_is_removed_without_prune_and_nothing_written_on_a_dry_run() {
    let table = table().await;
    run(&table, FILE, ApplyOptions::default()).await.unwrap();
    let without_key = FILE.lines().filter(|line| !line.starts_with("keys")).collect::<Vec<_>>().join("\n");
    assert!(run(&table, &without_key, ApplyOptions::default()).await.unwrap().plan.is_empty());
    let dry = ApplyOptions { prune: true, dry_run: true };
    assert_eq!(run(&table, &without_key, dry).await.unwrap().plan, ["- key \"ci\" of ada@example.com"]);
    assert!(key(&table, "phx_test_secret").await.is_some());
    run(&table, &without_key, ApplyOptions { prune: true, dry_run: false }).await.unwrap();
    assert!(key(&table, "phx_test_secret").await.is_none());
}

#[tokio::test]
async fn a_key_without_a_value_is_made_once_and_its_secret_is_stored_nowhere() {
    let table = table().await;
    let file = FILE.replace(", value: phx_test_secret", "");
    let made = run(&table, &file, ApplyOptions::default()).await.unwrap().new_keys;
    assert_eq!(made.len(), 1);
    assert!(key(&table, &made[0].secret).await.is_some());
    let stored = Declarations::load(&table).await.unwrap().declaration_rows().unwrap();
    assert!(!format!("{stored:?}").contains(&made[0].secret));
    assert!(run(&table, &file, ApplyOptions::default()).await.unwrap().new_keys.is_empty());
}

#[tokio::test]
async fn a_contradictory_file_is_rejected_and_errors_show_no_key() {
    let other = "{id: 7, organization: 01900000-0000-7000-8000-000000000001, token: phc_other}";
    let twice = FILE.replace("projects: [{", &format!("projects: [{other}, {{"));
    let table = table().await;
    let error = run(&table, &twice, ApplyOptions::default()).await.err().unwrap();
    assert_eq!(error.to_string(), "projects[1]: the id is already taken");
    run(&table, FILE, ApplyOptions::default()).await.unwrap();
    let taken = "users: [{id: 2, email: ada@example.com}]";
    let error = run(&table, taken, ApplyOptions::default()).await.err().unwrap();
    assert!(error.to_string().contains("the email is already taken"), "{error}");
    let misspelt = Workspace::parse(&FILE.replace("scopes", "scops")).unwrap_err();
    assert!(misspelt.contains("scops") && !misspelt.contains("phx_test_secret"), "{misspelt}");
    assert!(!format!("{:?}", Workspace::parse(FILE).unwrap()).contains("phx_test_secret"));
}

#[tokio::test]
async fn errors_name_the_place_in_the_file() {
    let cases = [
        ("user: ada@example.com", "user: bob@example.com", "keys[0].user: bob@example.com is not declared"),
        ("feature_flag:read", "feature_flag", "keys[0].scopes: \"feature_flag\" is not a scope"),
        ("name: Shop", "name: Shop, timezone: Mars/Olympus", "projects[0].timezone: \"Mars/Olympus\""),
        ("group_types: [company]", "group_types: [a, b, c, d, e, f]", "projects[0].group_types: at most 5"),
    ];
    for (old, new, message) in cases {
        let table = table().await;
        let error = run(&table, &FILE.replace(old, new), ApplyOptions::default()).await.err().unwrap();
        assert!(error.to_string().starts_with(message), "{error}");
        assert!(Declarations::load(&table).await.unwrap().is_empty());
    }
    assert!(Workspace::parse("organisations: []").unwrap_err().contains("organisations"));
}

#[tokio::test]
async fn only_changes_that_flags_depend_on_increment_the_projects_version() {
    let table = table().await;
    let version = async || table.get(&keys::project_version(7)).await.unwrap().map_or(0, |item| item.count);
    run(&table, FILE, ApplyOptions::default()).await.unwrap();
    let first = version().await;
    assert!(first > 0);
    run(&table, FILE, ApplyOptions::default()).await.unwrap();
    run(&table, &FILE.replace("first_name: Ada", "first_name: Eve"), ApplyOptions::default()).await.unwrap();
    assert_eq!(version().await, first, "the same file, and another user's name");
    let file = FILE.replace("name: Beta", "name: Gamma");
    run(&table, &file, ApplyOptions::default()).await.unwrap();
    assert_eq!(version().await, first + 1, "a cohort");
    let file = file.replace("group_types: [company]", "group_types: [company, team]");
    run(&table, &file, ApplyOptions::default()).await.unwrap();
    assert_eq!(version().await, first + 2, "group types");
    let (without, _) = file.split_once("cohorts:").unwrap();
    run(&table, without, ApplyOptions { prune: true, ..ApplyOptions::default() }).await.unwrap();
    assert_eq!(version().await, first + 3, "a cohort that is gone");
}

/// More cohorts than fit into one transaction: each transaction with cohorts increments the version.
#[tokio::test]
async fn a_large_file_increments_the_version_with_every_transaction() {
    let table = table().await;
    let cohort =
        |id: usize| format!("{{project: \"7\", id: {id}, name: c{id}, is_static: true, distinct_ids: []}}");
    let many: Vec<String> = (100..400).map(cohort).collect();
    let (file, _) = FILE.split_once("cohorts:").unwrap();
    let file = format!("{file}cohorts: [{}]", many.join(", "));
    run(&table, &file, ApplyOptions::default()).await.unwrap();
    let version = table.get(&keys::project_version(7)).await.unwrap().unwrap();
    assert!(version.count >= 4, "{}", version.count);
    let last = keys::record(7, keys::RecordKind::Cohort, 399);
    assert!(table.get(&last).await.unwrap().is_some());
}

#[tokio::test]
async fn the_number_of_listed_cohort_members_is_limited() {
    let table = table().await;
    let file = |members: usize| {
        let ids = (0..members).map(|n| format!("user-{n}")).collect::<Vec<_>>().join(", ");
        FILE.replace("distinct_ids: [a, b]", &format!("distinct_ids: [{ids}]"))
    };
    let most = super::validate::COHORT_MEMBERS_MAX;
    run(&table, &file(most), ApplyOptions::default()).await.unwrap();
    let result = run(&table, &file(most + 1), ApplyOptions::default()).await;
    assert!(matches!(result, Err(ApplyError::Invalid(problem)) if problem.contains("distinct_ids")));
}

#[tokio::test]
async fn the_number_of_block_partitions_is_raised_and_never_lowered() {
    let table = table().await;
    let with = |count: &str| FILE.replace("name: Shop,", &format!("name: Shop, block_partitions: {count},"));
    let stored = async || {
        let (key, _) = BlockPartitions::DEFAULT.row(7);
        table.get(&key).await.unwrap().map(|row| BlockPartitions::of_row(&row).unwrap().count())
    };
    let refused = |result: Result<ApplyResult, ApplyError>| result.map(|_| ()).unwrap_err().to_string();
    run(&table, FILE, ApplyOptions::default()).await.unwrap();
    assert_eq!(stored().await, None, "the default needs no row");
    let error = refused(run(&table, &with("5"), ApplyOptions::default()).await);
    assert!(error.contains("projects[0].block_partitions: 4, 8, 16, 32 or 64"), "{error}");
    run(&table, &with("16"), ApplyOptions::default()).await.unwrap();
    assert_eq!(stored().await, Some(16));
    // A file without the field keeps it.
    assert_eq!(run(&table, FILE, ApplyOptions::default()).await.unwrap().plan, Vec::<String>::new());
    assert_eq!(stored().await, Some(16));
    let error = refused(run(&table, &with("8"), ApplyOptions::default()).await);
    assert!(error.contains("block_partitions is 16, and can only be raised"), "{error}");
    assert_eq!(stored().await, Some(16));
    run(&table, &with("64"), ApplyOptions::default()).await.unwrap();
    assert_eq!(stored().await, Some(64));
    // Events of a project that is not declared any more may wait in all of them.
    let other = "organizations: [{id: 01900000-0000-7000-8000-000000000001, name: Acme}]";
    let prune = ApplyOptions { prune: true, ..ApplyOptions::default() };
    run(&table, other, prune).await.unwrap();
    assert_eq!(stored().await, Some(64));
    let error = refused(run(&table, &with("4"), ApplyOptions::default()).await);
    assert!(error.contains("block_partitions is 64"), "{error}");
}

/// Aliases of aliases: ten levels of ten would be ten thousand million texts.
#[test]
fn a_file_whose_aliases_would_fill_the_memory_is_rejected() {
    let levels = |count: usize| {
        let mut text = "users: [{id: 1, email: a@example.com, first_name: &l0 x}]\nflags:\n- project: '7'\n  id: 1\n  key: k\n  filters:\n"
            .to_owned();
        for level in 1..=count {
            let aliases = vec![format!("*l{}", level - 1); 10].join(", ");
            text += &format!("    a{level}: &l{level} [{aliases}]\n");
        }
        Workspace::parse(&text)
    };
    let small = levels(2).unwrap();
    let filters = serde_json::to_value(&small.flags[0]).unwrap()["filters"].clone();
    assert_eq!(filters["a2"].as_array().unwrap().len(), 10);
    assert!(levels(10).is_err());
}

/// Deeply nested lists and objects take no stack.
#[test]
fn a_deeply_nested_file_is_rejected() {
    for (open, close) in [("[", "]"), ("{a: ", "}")] {
        let text = format!("flags: {}1{}", open.repeat(100_000), close.repeat(100_000));
        assert!(Workspace::parse(&text).is_err());
    }
    let json = format!("{{\"flags\": {}{}}}", "[".repeat(100_000), "]".repeat(100_000));
    assert!(Workspace::parse(&json).is_err());
}

/// A longer token would be stored, and no SDK could use it.
#[tokio::test]
async fn a_project_token_has_at_most_two_hundred_bytes() {
    let table = table().await;
    let with = |bytes: usize| FILE.replace("phc_shop", &"t".repeat(bytes));
    run(&table, &with(200), ApplyOptions::default()).await.unwrap();
    let result = run(&table, &with(201), ApplyOptions::default()).await.map(|_| ());
    assert!(
        matches!(&result, Err(ApplyError::Invalid(problem)) if problem.contains("projects[0].token")),
        "{result:?}"
    );
}
