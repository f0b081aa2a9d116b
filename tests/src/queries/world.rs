//! The installation that holds the events of all cases.

use std::collections::BTreeMap;
use std::io::Write as _;

use pennon::import::{ImportOptions, import_file};
use serde_json::{Map, Value, json};

use super::{EndpointCase, Expect, QueryCase, dates};
use crate::TestApp;

/// Where cases without an instant of their own stand.
const INSTANT: &str = "2024-01-01T12:00:00Z";
/// Number of the first project.
const FIRST: u64 = 1001;
/// The organization of the standard workspace, which every project belongs to.
const ORGANIZATION: &str = "01900000-0000-7000-8000-000000000001";

/// Projects with their events, and the queries about them.
#[derive(Debug, Default)]
pub struct World {
    /// All queries, in the order of the files.
    pub queries: Vec<QueryCase>,
    projects: Vec<Value>,
    actions: Vec<Value>,
    cohorts: Vec<Value>,
    groups: Vec<Value>,
    persons: Vec<Value>,
    events: Vec<Value>,
    group_types: BTreeMap<u64, Vec<String>>,
}

/// The cases of a file of the corpus.
fn cases(file: &str) -> Vec<Value> {
    let path = format!("{}/corpus/{file}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(path).expect("a file of the corpus");
    match serde_json::from_str(&text).expect("JSON") {
        Value::Array(list) => list,
        mut object => serde_json::from_value(object["cases"].take()).expect("a list of cases"),
    }
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// The names of the group types of a case, by index.
fn group_types_of(case: &Value) -> BTreeMap<usize, String> {
    let group_type =
        |group: &Value| Some((usize::try_from(group["type_index"].as_u64()?).ok()?, text(&group["type"])));
    list(&case["groups"]).filter_map(group_type).collect()
}

impl World {
    /// The world of the whole corpus.
    pub fn of_corpus() -> World {
        let mut world = World::default();
        world.add_calculations("funnels.json", 1e-6);
        world.add_calculations("trends.json", 1e-9);
        world.add_dates();
        world.add_operators();
        world
    }

    /// The world of the cases of one file, each with a project of its own. Their requests are sent by the test itself.
    pub fn of_file(file: &str) -> (World, Vec<EndpointCase>) {
        let mut world = World::default();
        let mut endpoint_case = |case: Value| EndpointCase {
            name: text(&case["name"]),
            project: world.add_case(&case),
            now: case["now"].as_str().unwrap_or(INSTANT).to_owned(),
            request: case["request"].clone(),
            expect: case["expect"].clone(),
        };
        let cases = cases(file).into_iter().map(&mut endpoint_case).collect();
        (world, cases)
    }

    /// An installation with everything imported.
    pub async fn install(&self) -> TestApp {
        let more = json!({"projects": self.projects, "actions": self.actions, "cohorts": self.cohorts});
        let app = TestApp::with(more).await;
        let mut file = tempfile::Builder::new().suffix(".jsonl").tempfile().expect("a file");
        for line in self.groups.iter().chain(&self.persons).chain(&self.events) {
            writeln!(file, "{line}").expect("room on the disk");
        }
        let options = ImportOptions { group_types: self.group_types.clone(), ..ImportOptions::default() };
        let now = app.services.app.clock.now(None).timestamp_micros();
        import_file(&app.services.events, file.path(), options, now, &mut |_| {}).await.expect("an import");
        app
    }

    /// A project with settings; `group_types` are names by index.
    fn project(&mut self, settings: &Value, group_types: &BTreeMap<usize, String>) -> u64 {
        let id = FIRST + self.projects.len() as u64;
        let count = group_types.keys().last().map_or(0, |last| last + 1);
        let types: Vec<String> = (0..count)
            .map(|index| group_types.get(&index).cloned().unwrap_or_else(|| format!("unused_{index}")))
            .collect();
        let mut project = json!({"id": id.to_string(), "organization": ORGANIZATION, "name": format!("Case {id}"),
                                 "token": format!("phc_query_{id}"), "timezone": "UTC", "group_types": types});
        for (key, value) in settings.as_object().into_iter().flatten() {
            project[key] = value.clone();
        }
        self.projects.push(project);
        self.group_types.insert(id, types);
        id
    }

    fn event(
        &mut self,
        project: u64,
        event: &str,
        who: &str,
        when: &str,
        mut properties: Value,
        groups: &Value,
    ) {
        if groups.is_object() {
            properties["$groups"] = groups.clone();
        }
        self.events.push(json!({"project": project.to_string(), "event": event, "distinct_id": who,
                                "timestamp": when, "properties": properties}));
    }

    fn add_calculations(&mut self, file: &str, tolerance: f64) {
        for case in cases(file) {
            let project = self.add_case(&case);
            let request = &case["request"];
            let endpoint = ["funnel", "trend", "correlation"]
                .into_iter()
                .find(|name| request["endpoint"] == *name)
                .expect("a known endpoint");
            self.queries.push(QueryCase {
                name: text(&case["name"]),
                project,
                now: case["now"].as_str().unwrap_or(INSTANT).to_owned(),
                endpoint,
                body: request["body"].as_object().cloned().unwrap_or_default(),
                expect: Expect {
                    status: u16::try_from(case["expect"]["status"].as_u64().unwrap_or(200))
                        .expect("a status"),
                    view: Value::clone,
                    want: case["expect"]["result"].clone(),
                    unordered: case["expect"]["result_unordered"] == true,
                    tolerance,
                },
            });
        }
    }

    /// Adds the project of a case with its history.
    fn add_case(&mut self, case: &Value) -> u64 {
        let group_types = group_types_of(case);
        let project = self.project(&case["project"], &group_types);
        self.add_history(project, case, &group_types);
        project
    }

    fn add_history(&mut self, project: u64, case: &Value, types: &BTreeMap<usize, String>) {
        let name = project.to_string();
        for action in list(&case["actions"]) {
            let mut action = action.clone();
            action["project"] = json!(name);
            self.actions.push(action);
        }
        for cohort in list(&case["cohorts"]) {
            let mut fields: Map<String, Value> = cohort.as_object().cloned().unwrap_or_default();
            if let Some(ids) = fields.remove("static_distinct_ids") {
                fields.extend([("is_static".to_owned(), json!(true)), ("distinct_ids".to_owned(), ids)]);
            }
            fields.insert("project".to_owned(), json!(name));
            self.cohorts.push(Value::Object(fields));
        }
        for person in list(&case["persons"]) {
            let mut line =
                json!({"distinct_ids": person["distinct_ids"], "properties": person["properties"]});
            if let Some(time) = person["created_at"].as_str() {
                line["created_at"] = json!(time);
            }
            self.persons.push(json!({"project": name, "person": line}));
        }
        for group in list(&case["groups"]) {
            let index = group["type_index"].as_u64().and_then(|index| usize::try_from(index).ok());
            let type_name = &types[&index.expect("an index")];
            let line = json!({"type": type_name, "index": index, "key": group["key"], "properties": group["properties"]});
            self.groups.push(json!({"project": name, "group": line}));
        }
        for event in list(&case["events"]) {
            let (what, who, when) =
                (text(&event["event"]), text(&event["distinct_id"]), text(&event["timestamp"]));
            let mut properties = event["properties"].clone();
            if properties.is_null() {
                properties = json!({});
            }
            self.event(project, &what, &who, &when, properties, &event["groups"]);
        }
    }

    fn add_operators(&mut self) {
        let project = self.project(&json!({}), &BTreeMap::new());
        for case in cases("operators.json").into_iter().filter(|case| case["context"] == "query") {
            let name = text(&case["name"]);
            let missing = case["property_missing"] == true;
            let properties = if missing { json!({}) } else { json!({"value": case["property_value"]}) };
            let now = case["now"].as_str().unwrap_or(INSTANT).to_owned();
            self.event(project, &name, "person", &now, properties, &Value::Null);
            let filter = json!({"key": "value", "operator": case["operator"], "value": case["filter_value"], "type": "event"});
            let body = json!({"events": [{"id": name, "properties": [filter]}], "date_from": &now[..10], "date_to": &now[..10]});
            let count = u8::from(case["expect"] == true);
            self.queries.push(QueryCase {
                name,
                project,
                now,
                endpoint: "trend",
                body: body.as_object().cloned().unwrap_or_default(),
                expect: Expect {
                    status: 200,
                    view: Value::clone,
                    want: json!([{"count": count, "data": [count]}]),
                    unordered: false,
                    tolerance: 0.0,
                },
            });
        }
    }

    fn add_dates(&mut self) {
        for case in cases("dates.json") {
            let Some(probe) = dates::probe(&case) else { continue };
            let settings = json!({"timezone": case["timezone"], "week_start_day": case["week_start_day"].as_u64().unwrap_or(0)});
            let project = self.project(&settings, &BTreeMap::new());
            for (name, instant) in &probe.events {
                self.event(project, name, name, instant, json!({}), &Value::Null);
            }
            self.queries.push(QueryCase {
                name: text(&case["name"]),
                project,
                now: text(&case["now"]),
                endpoint: "trend",
                body: probe.body,
                expect: Expect {
                    status: 200,
                    view: probe.view,
                    want: probe.want,
                    unordered: false,
                    tolerance: 0.0,
                },
            });
        }
    }
}
