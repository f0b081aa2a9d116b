//! `pennon check --records`: for each invariant, a row that is removed or changed by hand is exactly that finding.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use pennon::record_check::{Finding, Rule, check_records};
use pennon_core::activity::Entry;
use pennon_core::model::UserRecord;
use pennon_core::store::keys::{self, Counter, RecordKind};
use pennon_core::store::{Item, Key, RowChecksums, VersionBump, Write, WriteCondition};
use pennon_eventstore::cohort_lists::PartitionedList;
use pennon_tests::{Keys, NOW, TestApp};
use serde_json::{Value, json};

const ORG: &str = "01900000-0000-7000-8000-000000000001";
const ROLE: &str = "01900000-0000-7000-8000-0000000000f1";
const P: &str = "/api/projects/1";

/// An installation with records of every kind, and their ids.
struct World {
    app: TestApp,
    base: u64,
    dependent: u64,
    insight: u64,
    dashboard: u64,
    cohort: u64,
    action: u64,
}

async fn created(app: &TestApp, path: &str, body: Value) -> u64 {
    app.post(&format!("{P}/{path}/"), body).await.expect(201)["id"].as_u64().unwrap()
}

async fn world() -> World {
    let role = json!({"id": ROLE, "organization": ORG, "name": "Editors", "feature_flags_access_level": 37, "members": []});
    // In a file, which is read without the SDK and so faster.
    let app = TestApp::in_file_with(json!({"roles": [role]})).await;
    let base = app.flag("base").await;
    let on_base =
        json!({"type": "flag", "key": base.to_string(), "operator": "flag_evaluates_to", "value": true});
    let filters = json!({"groups": [{"properties": [on_base]}]});
    let dependent = created(&app, "feature_flags", json!({"key": "dependent", "filters": filters})).await;
    created(&app, &format!("feature_flags/{base}/role_access"), json!({"role_id": ROLE})).await;
    let dashboard = created(&app, "dashboards", json!({"name": "D"})).await;
    let insight = created(&app, "insights", json!({"name": "I", "dashboards": [dashboard]})).await;
    let members: Vec<String> = (0..1001).map(|number| format!("person {number}")).collect();
    let list = json!({"name": "C", "is_static": true, "distinct_ids": members});
    let cohort = created(&app, "cohorts", list).await;
    let action = created(&app, "actions", json!({"name": "A", "steps": [{"event": "e"}]})).await;
    for kind in ["insights", "dashboards"] {
        let id = if kind == "insights" { insight } else { dashboard };
        app.patch(&format!("{P}/{kind}/{id}/sharing/"), json!({"enabled": true})).await.expect(200);
    }
    app.post(&format!("{P}/insights/{insight}/viewed/"), Value::Null).await.expect(200);
    for kind in ["dashboards", "cohorts", "actions"] {
        app.get(&format!("{P}/{kind}/")).await.expect(200);
    }
    // Ids that were assigned and are not in use.
    app.services.app.store.records.increment(&keys::counter(Counter::Flag), 1000).await.unwrap();
    World { app, base, dependent, insight, dashboard, cohort, action }
}

impl World {
    async fn findings(&self) -> Vec<Finding> {
        check_records(&self.app.services.app.store.records, None, NOW.parse().unwrap())
            .await
            .unwrap()
            .findings
    }

    async fn get(&self, key: &Key) -> Item {
        self.app.services.app.store.records.get(key).await.unwrap().expect("a row")
    }

    async fn write(&self, writes: Vec<Write>) {
        self.app.services.app.store.records.transact(writes).await.unwrap();
    }

    /// Checks that a change of the rows at `keys` is exactly one finding, then puts them back.
    async fn expect(&self, changes: Vec<Write>, rule: Rule, row: &Key, detail: &str) {
        let records = &self.app.services.app.store.records;
        let changed = changes.iter().filter_map(|change| match change {
            Write::Put(item, _) => Some(item.key.clone()),
            Write::Delete(key, _) => Some(key.clone()),
            _ => None,
        });
        let changed: Vec<Key> = changed.collect();
        let before = records.batch_get(&changed).await.unwrap();
        self.write(changes).await;
        let findings = self.findings().await;
        let [finding] = findings.as_slice() else { panic!("{row:?}: {findings:#?}") };
        assert_eq!((finding.rule, &finding.row), (rule, row), "{findings:#?}");
        assert!(finding.detail.contains(detail), "{detail:?} is not in {:?}", finding.detail);
        let restored = changed.into_iter().zip(before).map(|(key, item)| match item {
            Some(item) => Write::Put(item, WriteCondition::None),
            None => Write::Delete(key, WriteCondition::None),
        });
        let restored: Vec<Write> = restored.collect();
        if !restored.is_empty() {
            self.write(restored).await;
        }
    }

    /// Checks that the removal of a row is exactly one finding, of that row.
    async fn expect_of_removal(&self, key: Key, rule: Rule, detail: &str) {
        self.get(&key).await;
        self.expect(vec![Write::Delete(key.clone(), WriteCondition::None)], rule, &key, detail).await;
    }

    /// The writes of an activity entry of a flag.
    async fn entry_of_flag(&self, item: u64) -> Vec<Write> {
        let user: UserRecord = self.get(&keys::user(1)).await.body().unwrap();
        let at = NOW.parse().unwrap();
        let entry = Entry {
            scope: "FeatureFlag",
            item,
            activity: "updated",
            user: &user.user,
            at,
            detail: json!({}),
        };
        // The count of the day is put, so that it can be put back.
        let mut day = self.get(&keys::activity_day(1, "FeatureFlag", at)).await;
        day.count += 1;
        let writes = entry.writes(1, pennon_core::ids::new_uuid()).unwrap().into_iter();
        let writes = writes.filter(|write| !matches!(write, Write::Add(..)));
        writes.chain([Write::Put(day, WriteCondition::None)]).collect()
    }
}

fn put(item: Item) -> Write {
    Write::Put(item, WriteCondition::None)
}

fn record(kind: RecordKind, id: u64) -> Key {
    keys::record(1, kind, id)
}

#[tokio::test]
async fn rows_of_flags() {
    let world = world().await;
    assert_eq!(world.findings().await, []);
    let (base, dependent) = (world.base, world.dependent);
    let row = keys::flag_row(1, base);
    world.expect_of_removal(row.clone(), Rule::SummaryRow, "the summary row of PROJECT#1#FLAG/").await;
    let mut renamed = world.get(&row).await;
    renamed.text = renamed.text.replacen(r#""k":"base""#, r#""k":"best""#, 1);
    world.expect(vec![put(renamed)], Rule::SummaryRow, &row, r#"k is "best", not "base""#).await;
    let mut older = world.get(&row).await;
    older.version += 1;
    world.expect(vec![put(older)], Rule::SummaryRow, &row, "it is of another version").await;
    world.expect_of_removal(keys::dependent(1, dependent), Rule::SummaryRow, "the dependency row").await;

    let claim = keys::flag_key_live(1, "base");
    world.expect_of_removal(claim.clone(), Rule::UniqueRow, "the row of the key of").await;
    let orphan = keys::flag_key_live(1, "orphan");
    let claimed = Item { count: i64::try_from(base).unwrap(), ..Item::empty(orphan.clone()) };
    world.expect(vec![put(claimed)], Rule::UniqueRow, &orphan, "does not have").await;
    let other = Item { count: i64::try_from(dependent).unwrap(), ..Item::empty(claim.clone()) };
    world.expect(vec![put(other)], Rule::UniqueRow, &claim, "it is 2, not 1").await;

    world
        .expect_of_removal(
            record(RecordKind::Flag, base),
            Rule::Record,
            "activity entry, row of the key, summary row",
        )
        .await;
    let mut broken = world.get(&record(RecordKind::Flag, dependent)).await;
    broken.text.pop();
    world
        .expect(vec![put(broken)], Rule::Decoding, &record(RecordKind::Flag, dependent), "cannot be decoded")
        .await;
    let mut exchanged = world.get(&record(RecordKind::Flag, base)).await;
    exchanged.key = record(RecordKind::Flag, dependent);
    world
        .expect(vec![put(exchanged)], Rule::Decoding, &record(RecordKind::Flag, dependent), "its id is")
        .await;

    let marker = keys::role_access_of_role(1, base, ROLE.parse().unwrap());
    world.expect_of_removal(marker.clone(), Rule::UniqueRow, "the role marker of").await;
    let access: u64 = world.get(&marker).await.body().unwrap();
    world.expect_of_removal(keys::role_access(1, base, access), Rule::Record, "named by: role marker").await;
}

#[tokio::test]
async fn checksums_of_versions_and_counters() {
    let world = world().await;
    for (key, by) in [
        (keys::project_version(1), RowChecksums { rows: 1, ..RowChecksums::default() }),
        (keys::project_version(1), RowChecksums { edges: 1, ..RowChecksums::default() }),
        (keys::insights_version(1), RowChecksums { rows: 1, ..RowChecksums::default() }),
    ] {
        let bump = |by| vec![Write::BumpVersion(key.clone(), VersionBump { by, ..VersionBump::default() })];
        world.expect(bump(by), Rule::Checksum, &key, "has the checksum").await;
        world.write(bump(RowChecksums { rows: -by.rows, edges: -by.edges, ..by })).await;
        assert_eq!(world.findings().await, []);
    }
    let version = world.get(&keys::project_version(1)).await;
    let count = |by| vec![Write::Add(version.key.clone(), by)];
    world.expect(count(-version.count), Rule::Checksum, &version.key, "were written 2 times").await;
    world.write(count(version.count)).await;
    for counter in [
        Counter::Flag,
        Counter::RoleAccess,
        Counter::Insight,
        Counter::Action,
        Counter::Cohort,
        Counter::Dashboard,
        Counter::Tile,
    ] {
        world.expect_of_removal(keys::counter(counter), Rule::Counter, "has the id").await;
    }
}

#[tokio::test]
async fn rows_of_insights_and_dashboards() {
    let world = world().await;
    let (insight, dashboard) = (world.insight, world.dashboard);
    world.expect_of_removal(keys::insight_row(1, insight), Rule::SummaryRow, "the summary row of").await;
    let mut row = world.get(&keys::insight_row(1, insight)).await;
    row.text = row.text.replacen(r#""saved":false"#, r#""saved":true"#, 1);
    world.expect(vec![put(row.clone())], Rule::SummaryRow, &row.key, "saved is true, not false").await;
    let stored = world.get(&record(RecordKind::Insight, insight)).await;
    let short_id = stored.body::<Value>().unwrap()["short_id"].as_str().unwrap().to_owned();
    world.expect_of_removal(keys::short_id(1, &short_id), Rule::UniqueRow, "the row of the short id").await;
    let orphan = Item::new(keys::short_id(1, "orphan"), &json!({"id": insight})).unwrap();
    world.expect(vec![put(orphan.clone())], Rule::UniqueRow, &orphan.key, "does not have").await;
    let names = "activity entry, last view, pointer of a dashboard, row of the short id, sharing configuration, summary row";
    world.expect_of_removal(stored.key.clone(), Rule::Record, names).await;

    let pointer = keys::dashboard_tile(1, dashboard, insight);
    world.expect_of_removal(pointer, Rule::Reference, "the pointer to").await;
    let other = created(&world.app, "insights", json!({"name": "other"})).await;
    let stale = Item::empty(keys::dashboard_tile(1, dashboard, other));
    world.expect(vec![put(stale.clone())], Rule::Reference, &stale.key, "has no tile").await;
    let row = record(RecordKind::DashboardRow, dashboard);
    world.expect_of_removal(row, Rule::SummaryRow, "the summary row of PROJECT#1#DASHBOARD/").await;
    let names = "sharing configuration, summary row, tile";
    world.expect_of_removal(record(RecordKind::Dashboard, dashboard), Rule::Record, names).await;
    let viewed = Item { count: 1, ..Item::empty(keys::views(1, 999)) };
    world.expect(vec![put(viewed)], Rule::Record, &record(RecordKind::Insight, 999), "last view").await;

    let configuration = keys::sharing(1, insight);
    let hash = world.get(&configuration).await.body::<Value>().unwrap()["hash"].as_str().unwrap().to_owned();
    world.expect_of_removal(keys::share(&hash), Rule::UniqueRow, "the row of the sharing token").await;
    let foreign = Item::new(keys::share(&hash), &json!({"project": 1, "insight": 999})).unwrap();
    world.expect(vec![put(foreign.clone())], Rule::UniqueRow, &foreign.key, "opens another record").await;
    let mut disabled = world.get(&configuration).await;
    disabled.text = disabled.text.replacen(r#""enabled":true"#, r#""enabled":false"#, 1);
    world.expect(vec![put(disabled)], Rule::UniqueRow, &keys::share(&hash), "does not share").await;
    let unshared = vec![Write::Delete(keys::dashboard_sharing(1, dashboard), WriteCondition::None)];
    world
        .expect(unshared, Rule::Reference, &record(RecordKind::Dashboard, dashboard), "is_shared is true")
        .await;

    world.app.patch(&format!("{P}/dashboards/{dashboard}/"), json!({"deleted": true})).await.expect(200);
    assert_eq!(world.findings().await, []);
    let deleted: Value = world.get(&record(RecordKind::Dashboard, dashboard)).await.body().unwrap();
    let at = deleted["swept_from"].as_str().unwrap().parse().unwrap();
    let task = keys::dashboard_tiles_task(at, 1, dashboard);
    world.expect_of_removal(task, Rule::Task, "the removal of the tiles of").await;
    let unknown = Item::empty(Key::new(keys::SCHEDULED_TASKS, "2026-01-05T10:00:00.000000#OTHER#1#1"));
    world.expect(vec![put(unknown.clone())], Rule::Decoding, &unknown.key, "no known task").await;
}

#[tokio::test]
async fn rows_of_cohorts_and_actions() {
    let world = world().await;
    let name = keys::action_name(1, "A");
    world
        .expect_of_removal(record(RecordKind::ActionRow, world.action), Rule::SummaryRow, "the summary row")
        .await;
    world
        .expect_of_removal(record(RecordKind::CohortRow, world.cohort), Rule::SummaryRow, "the summary row")
        .await;
    world.expect_of_removal(name.clone(), Rule::UniqueRow, "the row of the name of").await;
    let foreign = Item::empty(name.clone()).with_version(999);
    world.expect(vec![put(foreign)], Rule::UniqueRow, &name, "does not have the name").await;
    let cohort = record(RecordKind::Cohort, world.cohort);
    world.expect_of_removal(cohort.clone(), Rule::Record, "named by: summary row").await;
    let members = world.get(&cohort).await.body::<Value>().unwrap()["members"].clone();
    let list: PartitionedList = serde_json::from_value(members).unwrap();
    let part = list.keys(1, world.cohort).remove(0);
    removed_part(&world, part, &cohort).await;
}

async fn removed_part(world: &World, part: Key, cohort: &Key) {
    let removal = vec![Write::Delete(part, WriteCondition::None)];
    world.expect(removal, Rule::Reference, cohort, "its member list is damaged").await;
}

#[tokio::test]
async fn activity_logs() {
    let world = world().await;
    let records = &world.app.services.app.store.records;
    let month = keys::activity_month_pk(1, "FeatureFlag", NOW);
    let query = pennon_core::store::PartitionQuery::partition(month).limit(1);
    let entry = records.query(query).await.unwrap().remove(0);
    let item: u64 = entry.body::<Value>().unwrap()["item_id"].as_str().unwrap().parse().unwrap();
    let pointer = Key::new(keys::activity_of_item_pk(1, "FeatureFlag", item), &entry.key.sk);
    world.expect_of_removal(entry.key.clone(), Rule::Activity, "the entry of the pointer").await;
    world.expect_of_removal(pointer, Rule::Activity, "the pointer to").await;
    let day = keys::activity_day(1, "FeatureFlag", NOW.parse().unwrap());
    world.expect_of_removal(day.clone(), Rule::Activity, "counts 0 entries of the day, which are 2").await;
    let mut wrong = world.get(&day).await;
    wrong.count += 1;
    world.expect(vec![put(wrong)], Rule::Activity, &day, "counts 3 entries").await;
    let mut exchanged = entry.clone();
    exchanged.text = exchanged.text.replacen("FeatureFlag", "Insight", 1);
    world.expect(vec![put(exchanged)], Rule::Decoding, &entry.key, "of the scope Insight").await;
    let twice = world.entry_of_flag(world.base).await;
    let flag = record(RecordKind::Flag, world.base);
    world.expect(twice, Rule::Activity, &flag, "has 1 versions, and has 2 activity entries").await;
    let unknown = world.entry_of_flag(999).await;
    world.expect(unknown, Rule::Record, &record(RecordKind::Flag, 999), "named by: activity entry").await;
}

#[tokio::test]
async fn declared_rows() {
    let world = world().await;
    let hash = pennon_core::auth::hash_key(Keys::MEMBER);
    for key in [
        keys::token("phc_project_1"),
        keys::api_key(&hash),
        keys::user(2),
        keys::project(2),
        keys::role(ORG.parse().unwrap(), ROLE.parse().unwrap()),
        keys::organization_project(ORG.parse().unwrap(), 2),
    ] {
        world.expect_of_removal(key, Rule::Declaration, "is missing, and is declared").await;
    }
    let mut renamed = world.get(&keys::project(2)).await;
    renamed.text = renamed.text.replacen("Blog", "Block", 1);
    world
        .expect(vec![put(renamed.clone())], Rule::Declaration, &renamed.key, r#"name is "Block", not "Blog""#)
        .await;
    let mut wider = world.get(&keys::api_key(&pennon_core::auth::hash_key(Keys::READ_FLAGS))).await;
    wider.text = wider.text.replacen("feature_flag:read", "*", 1);
    world
        .expect(
            vec![put(wider.clone())],
            Rule::Declaration,
            &wider.key,
            r#"scopes is ["*"], not ["feature_flag:read"]"#,
        )
        .await;
    let undeclared = Item::new(keys::organization_project(ORG.parse().unwrap(), 77), &json!({})).unwrap();
    world.expect(vec![put(undeclared.clone())], Rule::Declaration, &undeclared.key, "is not declared").await;
}

/// Keys that are created, changed and revoked over HTTP agree with the list of keys.
#[tokio::test]
async fn keys_of_users_are_as_declared() {
    let world = world().await;
    let made =
        world.app.post("/api/personal_api_keys/", json!({"label": "new", "scopes": ["insight:read"]})).await;
    let id = made.expect(201)["id"].as_str().unwrap().to_owned();
    assert_eq!(world.findings().await, []);
    let path = format!("/api/personal_api_keys/{id}/");
    world.app.patch(&path, json!({"label": "newer", "scopes": ["*"]})).await.expect(200);
    assert_eq!(world.findings().await, []);
    world.app.call(Keys::OWNER, "DELETE", &path, Value::Null).await.expect(204);
    assert_eq!(world.findings().await, []);
}

/// The writes of clients during a check are no findings.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_writes_are_no_findings() {
    let world = Arc::new(world().await);
    let are_checked = Arc::new(AtomicBool::new(false));
    let rounds = Arc::new(AtomicUsize::new(0));
    let writer = |client: u64| {
        let (world, are_checked, rounds) = (world.clone(), are_checked.clone(), rounds.clone());
        tokio::spawn(async move {
            while !are_checked.load(Ordering::Relaxed) {
                let round = rounds.fetch_add(1, Ordering::Relaxed);
                let app = &world.app;
                let name = format!("{client}-{round}");
                let flag = app.flag(&name).await;
                let path = format!("{P}/feature_flags/{flag}/");
                app.patch(&path, json!({"key": format!("renamed-{name}")})).await.expect(200);
                let body = json!({"name": name, "dashboards": [world.dashboard]});
                let insight = created(app, "insights", body).await;
                app.patch(&format!("{P}/insights/{insight}/"), json!({"deleted": true})).await.expect(200);
                let action = created(app, "actions", json!({"name": name})).await;
                app.patch(&format!("{P}/actions/{action}/"), json!({"deleted": true})).await.expect(200);
                app.patch(&path, json!({"deleted": round % 2 == 0})).await.expect(200);
            }
        })
    };
    let writers: Vec<_> = (0..2).map(writer).collect();
    while rounds.load(Ordering::Relaxed) < 12 {
        assert_eq!(world.findings().await, []);
    }
    are_checked.store(true, Ordering::Relaxed);
    for writer in writers {
        writer.await.unwrap();
    }
    assert_eq!(world.findings().await, []);
}
