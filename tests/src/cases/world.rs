//! The data of a case: a workspace, and the records imported into it.

use std::collections::BTreeMap;
use std::io::Write as _;

use pennon::import::{ImportOptions, import_file};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::variables::Variables;
use crate::TestApp;

/// Number of the project `main`; others follow.
const FIRST_PROJECT: u64 = 1001;

/// What exists before the first request.
pub(super) struct World {
    pub workspace: Value,
    pub variables: Variables,
    organizations: BTreeMap<String, Uuid>,
    projects: BTreeMap<String, u64>,
    emails: BTreeMap<String, String>,
    user_keys: BTreeMap<String, String>,
    lines: Vec<Value>,
    group_types: BTreeMap<u64, Vec<String>>,
    made: u64,
}

/// The entries of an object by name; none where there is no object.
fn entries(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flatten()
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn text(value: &Value, default: &str) -> String {
    value.as_str().unwrap_or(default).to_owned()
}

impl World {
    /// The world of a case's `setup`.
    pub fn build(setup: &Value) -> World {
        let mut world = World {
            workspace: json!({"organizations": [], "users": [], "projects": [], "keys": [], "roles": [],
                              "cohorts": [], "dashboards": [], "actions": []}),
            variables: Variables::new(),
            organizations: BTreeMap::new(),
            projects: BTreeMap::new(),
            emails: BTreeMap::new(),
            user_keys: BTreeMap::new(),
            lines: Vec::new(),
            group_types: BTreeMap::new(),
            made: 0,
        };
        world.add_tenants(setup);
        world.add_keys_and_roles(setup);
        world.add_records(setup);
        world.add_history(setup);
        world
    }

    fn next(&mut self) -> u64 {
        self.made += 1;
        self.made
    }

    fn uuid(&mut self) -> Uuid {
        Uuid::from_u128(0x0190_0000_0000_7000_8000_0000_0000_0000 + u128::from(self.next()))
    }

    fn declare(&mut self, section: &str, entry: Value) {
        self.workspace[section].as_array_mut().expect("a section").push(entry);
    }

    fn organization(&self, fields: &Value) -> Uuid {
        self.organizations[&text(&fields["organization"], "org")]
    }

    fn project(&self, fields: &Value) -> u64 {
        self.projects[&text(&fields["project"], "main")]
    }

    fn add_tenants(&mut self, setup: &Value) {
        let mut organizations = json!({"org": {}});
        entries(&setup["organizations"]).for_each(|(name, fields)| organizations[name] = fields.clone());
        for (name, fields) in entries(&organizations) {
            let id = self.uuid();
            let mut entry = fields.clone();
            (entry["id"], entry["name"]) = (json!(id), json!(name));
            self.declare("organizations", entry);
            self.variables.set(format!("organizations.{name}"), id.to_string());
            self.organizations.insert(name.clone(), id);
        }
        let mut projects = json!({"main": {}});
        entries(&setup["projects"]).for_each(|(name, fields)| projects[name] = fields.clone());
        for ((name, fields), id) in entries(&projects).zip(FIRST_PROJECT..) {
            let types = if name == "main" { group_types(&setup["group_types"]) } else { Vec::new() };
            let variable = if name == "main" { "project_id".to_owned() } else { format!("projects.{name}") };
            let entry = json!({"id": id.to_string(), "organization": self.organization(fields), "timezone": "UTC",
                               "name": text(&fields["name"], name), "token": format!("phc_case_{id}"), "group_types": types});
            let mut entry = entry;
            if name == "main" {
                entries(&setup["settings"]).for_each(|(name, value)| entry[name] = value.clone());
                self.variables.set("token", entry["token"].clone());
            }
            self.variables.set(format!("tokens.{name}"), entry["token"].clone());
            self.declare("projects", entry);
            self.variables.set(variable, id);
            self.projects.insert(name.clone(), id);
            self.group_types.insert(id, types);
        }
        // The owner who creates the flags of a case need not be declared.
        let mut users =
            json!({"owner": {"email": "owner@example.com", "first_name": "Olive", "level": "owner"}});
        entries(&setup["users"]).for_each(|(name, fields)| users[name] = fields.clone());
        for (name, fields) in entries(&users) {
            let id = self.next();
            let membership =
                json!({"organization": self.organization(fields), "level": text(&fields["level"], "member")});
            let entry = json!({"id": id, "email": fields["email"], "first_name": text(&fields["first_name"], ""),
                               "distinct_id": text(&fields["distinct_id"], &format!("user-{id}")),
                               "memberships": [membership]});
            self.declare("users", entry);
            self.emails.insert(name.clone(), text(&fields["email"], ""));
        }
    }

    fn add_keys_and_roles(&mut self, setup: &Value) {
        for name in self.emails.keys().cloned().collect::<Vec<_>>() {
            let key = self.add_key(&name, &json!({"scopes": ["*"]}));
            if name == "owner" {
                self.variables.set("keys.owner", key.clone());
            }
            self.user_keys.insert(name, key);
        }
        for (name, fields) in entries(&setup["keys"]) {
            let key = self.add_key(fields["user"].as_str().expect("a user"), fields);
            self.variables.set(format!("keys.{name}"), key);
        }
        for (name, fields) in entries(&setup["roles"]) {
            let id = self.uuid();
            let members: Vec<&String> = list(&fields["members"])
                .map(|member| &self.emails[member.as_str().expect("a user")])
                .collect();
            let entry = json!({"id": id, "organization": self.organization(fields), "name": name, "members": members,
                               "feature_flags_access_level": fields["feature_flags_access_level"]});
            self.declare("roles", entry);
            self.variables.set(format!("roles.{name}"), id.to_string());
        }
    }

    fn add_key(&mut self, user: &str, fields: &Value) -> String {
        let number = self.next();
        let value = format!("phx_case{number:039}");
        let name_of = |value: &Value| value.as_str().expect("a name").to_owned();
        let projects: Vec<String> =
            list(&fields["scoped_teams"]).map(|name| self.projects[&name_of(name)].to_string()).collect();
        let organizations: Vec<Uuid> =
            list(&fields["scoped_organizations"]).map(|name| self.organizations[&name_of(name)]).collect();
        let entry = json!({"label": format!("key {number}"), "user": self.emails[user], "scopes": fields["scopes"],
                           "projects": projects, "organizations": organizations, "value": value});
        self.declare("keys", entry);
        value
    }

    fn add_records(&mut self, setup: &Value) {
        for (section, variable) in
            [("cohorts", "cohorts"), ("dashboards", "dashboards"), ("actions", "actions")]
        {
            for (name, fields) in entries(&setup[section]) {
                let id = self.next();
                let mut entry = json!({"project": self.project(fields).to_string(), "id": id,
                                       "name": text(&fields["name"], name)});
                if fields["is_static"] == true {
                    entry["is_static"] = json!(true);
                    entry["distinct_ids"] = json!(list(&fields["members"]).collect::<Vec<_>>());
                } else if let Some(filters) = fields.get("filters") {
                    entry["filters"] = self.variables.fill(filters).expect("known variables");
                }
                let plain = ["deleted", "restriction_level", "steps"];
                for field in plain.into_iter().filter(|field| fields.get(*field).is_some()) {
                    entry[field] = fields[field].clone();
                }
                if let Some(creator) = fields["created_by"].as_str() {
                    entry["created_by"] = json!(self.emails[creator]);
                }
                self.declare(section, entry);
                self.variables.set(format!("{variable}.{name}"), id);
            }
        }
    }

    fn add_history(&mut self, setup: &Value) {
        for group in list(&setup["groups"]) {
            let project = self.project(group);
            let index =
                group["type"].as_u64().or_else(|| group["type"].as_str()?.parse().ok()).expect("a type");
            let name = &self.group_types[&project][usize::try_from(index).expect("a small number")];
            let line =
                json!({"type": name, "index": index, "key": group["key"], "properties": group["properties"]});
            self.lines.push(json!({"project": project.to_string(), "group": line}));
        }
        for event in list(&setup["events"]) {
            let mut line = event.clone();
            line["project"] = json!(self.project(event).to_string());
            self.lines.push(line);
        }
        for person in list(&setup["persons"]) {
            let project = self.project(person).to_string();
            let line = json!({"distinct_ids": person["distinct_ids"], "properties": person["properties"]});
            self.lines.push(json!({"project": project, "person": line}));
        }
    }

    /// Imports persons and groups, as `pennon import` does.
    pub async fn import(&self, app: &TestApp) -> Result<(), String> {
        if self.lines.is_empty() {
            return Ok(());
        }
        let mut file = tempfile::NamedTempFile::new().map_err(|error| error.to_string())?;
        for line in &self.lines {
            let line = self.variables.fill(line)?;
            writeln!(file, "{line}").map_err(|error| error.to_string())?;
        }
        let options = ImportOptions { group_types: self.group_types.clone(), ..ImportOptions::default() };
        let now = app.services.app.clock.now(None).timestamp_micros();
        let done = import_file(&app.services.events, file.path(), options, now, &mut |_| {}).await;
        done.map(|_| ()).map_err(|error| error.to_string())
    }

    /// Makes the flags of the setup over HTTP.
    pub async fn make_flags(&mut self, app: &TestApp, flags: &Value) -> Result<(), String> {
        for (name, fields) in entries(flags) {
            let skipped = ["created_by", "project", "then"];
            let mut body: Map<String, Value> = entries(fields)
                .filter(|(field, _)| !skipped.contains(&field.as_str()))
                .map(|(field, value)| (field.clone(), value.clone()))
                .collect();
            body.entry("key").or_insert_with(|| name.as_str().into());
            let body = self.variables.fill(&Value::Object(body))?;
            let key = &self.user_keys[fields["created_by"].as_str().unwrap_or("owner")];
            let path = format!("/api/projects/{}/feature_flags/", self.project(fields));
            let made = app.call(key, "POST", &path, body).await;
            if made.status != 201 {
                return Err(format!("flag {name} of the setup: {} {}", made.status, made.text));
            }
            let id = made.json()["id"].clone();
            if let Some(then) = fields.get("then") {
                let changed =
                    app.call(key, "PATCH", &format!("{path}{id}/"), self.variables.fill(then)?).await;
                if changed.status != 200 {
                    return Err(format!(
                        "flag {name} of the setup, then: {} {}",
                        changed.status, changed.text
                    ));
                }
            }
            self.variables.set(format!("flags.{name}"), id);
        }
        Ok(())
    }
}

/// Names by index; gaps get names that nothing uses.
fn group_types(types: &Value) -> Vec<String> {
    let named: BTreeMap<usize, &str> =
        entries(types).filter_map(|(index, name)| Some((index.parse().ok()?, name.as_str()?))).collect();
    let count = named.keys().last().map_or(0, |last| last + 1);
    let name =
        |index: usize| named.get(&index).map_or_else(|| format!("unused_{index}"), |name| (*name).to_owned());
    (0..count).map(name).collect()
}
