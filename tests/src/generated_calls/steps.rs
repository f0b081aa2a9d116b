//! The calls: creates, changes, deletions and restorations of every kind, with valid and invalid bodies.

use std::time::Duration;

use chrono::{DateTime, Utc};
use pennon_insights::run_scheduled_tasks;
use serde_json::{Value, json};

use super::Session;
use super::records::Kind;
use crate::{NOW, as_worker};

/// The roles of the workspace that clients give access to flags.
pub const ROLES: [&str; 2] = ["01900000-0000-7000-8000-0000000000f1", "01900000-0000-7000-8000-0000000000f2"];

/// When workers run: the tasks of all calls are due.
pub fn worker_time() -> DateTime<Utc> {
    let now: DateTime<Utc> = NOW.parse().expect("an instant");
    now + chrono::Duration::days(31)
}

impl Session {
    /// Makes the next call.
    pub(super) async fn make_call(&mut self) {
        let Some(index) = self.pick_known(|_| true) else {
            return self.create_any().await;
        };
        match self.random.below(100) {
            0..24 => self.create_any().await,
            24..32 => self.create_invalid().await,
            32..58 => self.update_valid(index).await,
            58..64 => {
                let body = json!({"name": {"no": "text"}, "description": [1]});
                self.update(index, "PATCH", body, Some(false)).await;
            }
            64..76 => self.delete_or_restore(index).await,
            76..82 => self.change_access().await,
            82..87 => self.share(index).await,
            87..91 => self.change_api_key().await,
            91..94 => self.use_flag_dashboard().await,
            94..97 => self.view(index).await,
            _ => self.run_worker().await,
        }
    }

    /// The index of a known record that `is_usable`.
    fn pick_known(&mut self, is_usable: impl Fn(&super::Known) -> bool) -> Option<usize> {
        let usable: Vec<usize> =
            (0..self.known.len()).filter(|index| is_usable(&self.known[*index])).collect();
        if usable.is_empty() { None } else { Some(*self.random.pick(&usable)) }
    }

    fn pick_live(&mut self, kind: Kind) -> Option<u64> {
        let index = self.pick_known(|known| known.kind == kind && known.is_live())?;
        Some(self.known[index].id)
    }

    async fn create_any(&mut self) {
        let (kind, name) = (*self.random.pick(&Kind::ALL), self.name());
        let mut body = json!({ "name": name });
        let mut is_valid = Some(true);
        match kind {
            Kind::Flag => {
                body = json!({"key": name, "name": "a flag", "active": self.random.below(4) > 0});
                if let Some(flag) = self.pick_live(Kind::Flag).filter(|_| self.random.below(3) == 0) {
                    let condition = json!({"type": "flag", "key": flag.to_string(), "operator": "flag_evaluates_to", "value": true});
                    body["filters"] = json!({"groups": [{"properties": [condition]}]});
                    // The other flag may be disabled.
                    is_valid = None;
                }
            }
            Kind::Insight => {
                if let Some(dashboard) = self.pick_live(Kind::Dashboard) {
                    body["dashboards"] = json!([dashboard]);
                }
            }
            Kind::Dashboard => body["pinned"] = json!(self.random.below(2) == 0),
            Kind::Cohort => match self.random.below(2) {
                0 => {
                    body["is_static"] = json!(true);
                    body["distinct_ids"] = json!(["a", "b"]);
                }
                _ => {
                    let rule = json!({"type": "person", "key": "plan", "value": "pro", "operator": "exact"});
                    let group = json!({"type": "AND", "values": [rule]});
                    body["filters"] = json!({"properties": {"type": "OR", "values": [group]}});
                }
            },
            Kind::Action => body["steps"] = json!([{"event": "purchase"}]),
        }
        self.create(kind, body, is_valid).await;
    }

    async fn create_invalid(&mut self) {
        let (kind, name) = (*self.random.pick(&Kind::ALL), self.name());
        let body = match kind {
            Kind::Flag => json!({"key": name, "name": {"no": "text"}}),
            Kind::Insight if self.random.below(2) == 0 => json!({"name": name, "dashboards": [999_999_999]}),
            _ => json!({"name": name, "description": [1]}),
        };
        self.create(kind, body, Some(false)).await;
    }

    async fn update_valid(&mut self, index: usize) {
        let (kind, name) = (self.known[index].kind, self.name());
        let is_on = self.random.below(2) == 0;
        let fields: &[Value] = match kind {
            Kind::Flag => &[
                json!({"name": name}),
                json!({"key": name}),
                json!({"active": is_on}),
                json!({"tags": [name]}),
            ],
            Kind::Insight => &[
                json!({"name": name}),
                json!({"description": name}),
                json!({"favorited": is_on}),
                json!({"tags": [name]}),
                json!({"dashboards": self.pick_live(Kind::Dashboard).into_iter().collect::<Vec<_>>()}),
            ],
            Kind::Dashboard => &[
                json!({"name": name}),
                json!({"description": name}),
                json!({"pinned": is_on}),
                json!({"restriction_level": if is_on { 21 } else { 37 }}),
            ],
            Kind::Cohort => &[json!({"name": name}), json!({"description": name})],
            Kind::Action => &[json!({"name": name}), json!({"description": name}), json!({"tags": [name]})],
        };
        let body = self.random.pick(fields).clone();
        let is_surely_live =
            self.known[index].is_live() && !(kind == Kind::Insight && self.may_delete_insights);
        // A flag that others depend on is not disabled, and one that depends on a disabled one is not enabled.
        let is_valid = (is_surely_live && body.get("active").is_none()).then_some(true);
        self.update(index, "PATCH", body, is_valid).await;
    }

    async fn delete_or_restore(&mut self, index: usize) {
        let kind = self.known[index].kind;
        let deletes =
            if self.known[index].is_live() { self.random.below(5) > 0 } else { self.random.below(3) == 0 };
        let mut body = json!({ "deleted": deletes });
        if kind == Kind::Dashboard && deletes && self.random.below(2) == 0 {
            body["delete_insights"] = json!(true);
            self.may_delete_insights = true;
        }
        self.update(index, "PATCH", body, None).await;
    }

    async fn change_access(&mut self) {
        let Some(flag) = self.pick_live(Kind::Flag) else { return self.create_any().await };
        let path = self.path(&format!("feature_flags/{flag}/role_access"));
        if !self.accesses.is_empty() && self.random.below(3) == 0 {
            let at = usize::try_from(self.random.below(self.accesses.len() as u64)).unwrap_or(0);
            let (flag, id, ..) = self.accesses[at];
            let path = self.path(&format!("feature_flags/{flag}/role_access/{id}"));
            let status = self.send("DELETE", &path, Value::Null, None).await.status.as_u16();
            let (_, _, may_exist, may_be_absent) = &mut self.accesses[at];
            match status {
                204 => (*may_exist, *may_be_absent) = (false, true),
                503 => *may_be_absent = true,
                status => assert!(*may_be_absent, "{path}: {status}"),
            }
            return;
        }
        let role = if self.random.below(4) == 0 {
            "01900000-0000-7000-8000-0000000000ee"
        } else {
            *self.random.pick(&ROLES)
        };
        let response = self.send("POST", &path, json!({"role_id": role}), None).await;
        if response.status.as_u16() == 201 {
            let id = response.json()["id"].as_u64().expect("an id");
            self.accesses.push((flag, id, true, false));
        }
    }

    async fn share(&mut self, index: usize) {
        let (kind, id) = (self.known[index].kind, self.known[index].id);
        if !kind.hides_deleted() {
            return self.update_valid(index).await;
        }
        let path = self.path(&format!("{}/{id}/sharing", kind.path()));
        match self.random.below(3) {
            0 => drop(self.send("POST", &format!("{path}refresh/"), Value::Null, None).await),
            _ => {
                let body = json!({"enabled": self.random.below(3) > 0});
                self.send("PATCH", &path, body, None).await;
            }
        }
    }

    async fn change_api_key(&mut self) {
        let label = self.name();
        let path = "/api/personal_api_keys/";
        let Some(at) = self.api_keys.len().checked_sub(1) else {
            let body = json!({"label": label, "scopes": ["insight:read"]});
            let response = self.send("POST", path, body, None).await;
            if response.status.as_u16() == 201 {
                let id = response.json()["id"].as_str().expect("an id").to_owned();
                self.api_keys.push((id, [Some(label)].into()));
            }
            return;
        };
        let path = format!("{path}{}/", self.api_keys[at].0);
        let deletes = self.random.below(2) == 0;
        let (status, value) = match deletes {
            true => (self.send("DELETE", &path, Value::Null, None).await.status.as_u16(), None),
            false => {
                (self.send("PATCH", &path, json!({"label": label}), None).await.status.as_u16(), Some(label))
            }
        };
        let labels = &mut self.api_keys[at].1;
        match status {
            200 | 204 => *labels = [value].into(),
            503 => drop(labels.insert(value)),
            status => assert!(labels.contains(&None), "{path}: {status}"),
        }
    }

    async fn use_flag_dashboard(&mut self) {
        let Some(flag) = self.pick_live(Kind::Flag) else { return self.create_any().await };
        let call = if self.random.below(2) == 0 { "dashboard" } else { "enrich_usage_dashboard" };
        let path = self.path(&format!("feature_flags/{flag}/{call}"));
        self.send("POST", &path, Value::Null, None).await;
    }

    async fn view(&mut self, index: usize) {
        let Some(insight) = self.pick_live(Kind::Insight) else { return self.update_valid(index).await };
        match self.random.below(2) {
            0 => {
                let path = self.path(&format!("insights/{insight}/viewed"));
                self.send("POST", &path, Value::Null, None).await;
            }
            _ => {
                let body = json!({"insight_ids": [insight, 999_999_999]});
                let path = self.path("insights/viewed");
                self.send("POST", &path, body, None).await;
            }
        }
    }

    /// Runs the tasks that are due in a month, delivered twice at the same time. A task that fails is run again by the next
    /// delivery.
    async fn run_worker(&mut self) {
        let later = worker_time();
        let records = &self.app.services.app.store.records;
        let run = || as_worker(run_scheduled_tasks(records, later, Duration::from_secs(20)));
        let (first, second) = tokio::join!(run(), run());
        self.log.push(format!("{}: worker {:?} {:?}", self.step, first.is_ok(), second.is_ok()));
    }
}
