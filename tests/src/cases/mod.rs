//! Cases out of a file: a small world, requests, and what their responses must be. `tests/cases/README.md` has the format.

mod encoding;
mod matching;
mod variables;
mod world;

use std::time::{Duration, Instant};

use axum::body::Body;
use axum::http::Request;
use pennon_core::clock::NOW_HEADER;
use serde_json::Value;

use crate::{TestApp, TestResponse};
use matching::{at_path, differences, fits, shortened};
use world::World;

/// One case.
#[derive(Debug, Clone)]
pub struct Case(Value);

/// The outcome of a case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Every response was as it must be.
    Passed,
    /// The product lacks what the case needs.
    Skipped(String),
    /// Where a response was wrong, and how.
    Failed(String),
}

impl Case {
    /// The cases in a file's text.
    pub fn read(text: &str) -> Vec<Case> {
        let mut file: Value = serde_json::from_str(text).expect("cases");
        let cases = if file.is_array() { file } else { file["cases"].take() };
        let Value::Array(cases) = cases else { panic!("a list of cases") };
        cases.into_iter().map(Case).collect()
    }

    /// Its name.
    pub fn name(&self) -> &str {
        self.0["name"].as_str().expect("a name")
    }

    /// Runs the case on an installation of its own. `lacking` is what the product does not have.
    pub async fn run(&self, lacking: &[&str]) -> Verdict {
        let needs = self.0["setup"]["requires"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let missing: Vec<&str> = needs.filter(|need| lacking.contains(need)).collect();
        if !missing.is_empty() {
            return Verdict::Skipped(format!("needs {}", missing.join(", ")));
        }
        match self.attempt().await {
            Ok(()) => Verdict::Passed,
            Err(problem) => Verdict::Failed(problem),
        }
    }

    /// Whether some step names its instant.
    fn sets_the_clock(&self) -> bool {
        self.0["steps"].as_array().into_iter().flatten().any(|step| step["at"].is_string())
    }

    async fn attempt(&self) -> Result<(), String> {
        let mut world = World::build(&self.0["setup"]);
        let app = match self.sets_the_clock() {
            true => TestApp::of(&world.workspace).await,
            false => TestApp::running(&world.workspace).await,
        };
        world.import(&app).await?;
        world.make_flags(&app, &self.0["setup"]["flags"]).await?;
        for (number, step) in self.0["steps"].as_array().into_iter().flatten().enumerate() {
            let place =
                |problem| format!("step {} {} {}: {problem}", number + 1, step["method"], step["path"]);
            run_step(&app, &mut world, step).await.map_err(place)?;
        }
        Ok(())
    }
}

async fn run_step(app: &TestApp, world: &mut World, step: &Value) -> Result<(), String> {
    let mut response = app.send(request(world, step)?).await;
    if let Some(until) = step["poll"].get("until") {
        let patience = Duration::from_secs(step["poll"]["timeout_s"].as_u64().unwrap_or(10));
        let began = Instant::now();
        while !fits(&world.variables.fill(until)?, &response.json()) && began.elapsed() < patience {
            app.work().await;
            response = app.send(request(world, step)?).await;
        }
    }
    let expect = &step["expect"];
    let problems = problems(world, expect, &response)?;
    if !problems.is_empty() {
        return Err(format!("{}\n    response: {}", problems.join("\n    "), shortened(&response.text, 400)));
    }
    for (name, from) in step["save"].as_object().into_iter().flatten() {
        let from = from.as_str().unwrap_or_default();
        let saved = match from.strip_prefix("header:") {
            Some(header) => Some(Value::from(response.header(header))).filter(|value| *value != ""),
            None => at_path(&response.json(), from).cloned(),
        };
        world.variables.set(name, saved.ok_or_else(|| format!("nothing to save at {from}"))?);
    }
    Ok(())
}

fn request(world: &World, step: &Value) -> Result<Request<Body>, String> {
    let mut path = encoded(&world.variables.text(step["path"].as_str().unwrap_or_default())?);
    for (name, value) in step["query"].as_object().into_iter().flatten() {
        let value = match world.variables.fill(value)? {
            Value::String(text) => text,
            other => other.to_string(),
        };
        path.push(if path.contains('?') { '&' } else { '?' });
        path.push_str(&format!("{name}={}", escaped(&value)));
    }
    let key = match step["as"].as_str() {
        Some(name) => world.variables.text(&format!("{{keys.{name}}}"))?,
        None => String::new(),
    };
    let method = step["method"].as_str().unwrap_or_default();
    let mut request = match step["raw_body"].as_str() {
        None => {
            let body = world.variables.fill(&encoding::repeated(&step["body"]))?;
            match step["encoding"].as_str() {
                None => TestApp::request(&key, method, &path, body),
                Some(encoding) => encoding::request(&key, method, &path, &body, encoding)?,
            }
        }
        Some(raw) => {
            let mut request = TestApp::request(&key, method, &path, Value::Null);
            *request.body_mut() = Body::from(world.variables.text(raw)?);
            request
        }
    };
    if let Some(at) = step["at"].as_str() {
        let at = at.parse().map_err(|_| format!("no instant: {at}"))?;
        request.headers_mut().insert(NOW_HEADER, at);
    }
    for (name, value) in step["headers"].as_object().into_iter().flatten() {
        let value = world.variables.text(value.as_str().unwrap_or_default())?;
        let name: axum::http::HeaderName = name.parse().map_err(|_| format!("no header: {name}"))?;
        let value = value.parse().map_err(|_| format!("no header value: {value}"))?;
        request.headers_mut().insert(name, value);
    }
    Ok(request)
}

/// A path as a client sends it: characters that are not allowed are escaped.
fn encoded(path: &str) -> String {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~%/?&=:;@,+$!*'()".contains(&byte);
    let escaped =
        |byte: u8| if allowed(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    path.bytes().map(escaped).collect()
}

/// A value of a query string as a client sends it.
fn escaped(value: &str) -> String {
    let escaped = |byte: u8| match byte {
        byte if byte.is_ascii_alphanumeric() => char::from(byte).to_string(),
        byte => format!("%{byte:02X}"),
    };
    value.bytes().map(escaped).collect()
}

fn problems(world: &World, expect: &Value, response: &TestResponse) -> Result<Vec<String>, String> {
    let mut problems = Vec::new();
    let status = response.status.as_u16();
    let may_be = |want: &Value| {
        *want == status || want.as_array().is_some_and(|any| any.iter().any(|one| *one == status))
    };
    if !may_be(&expect["status"]) {
        problems.push(format!("status: want {} got {}", expect["status"], response.status.as_u16()));
        return Ok(problems);
    }
    let body = serde_json::from_str(&response.text).unwrap_or(Value::Null);
    if let Some(want) = expect.get("body") {
        differences(&world.variables.fill(want)?, Some(&body), "body", &mut problems);
    }
    for (path, want) in expect["paths"].as_object().into_iter().flatten() {
        let got = if path == "$" { Some(&body) } else { at_path(&body, path) };
        differences(&world.variables.fill(want)?, got, path, &mut problems);
    }
    text_problems(world, &expect["text"], &response.text, &mut problems)?;
    for (path, keys) in expect["keys"].as_object().into_iter().flatten() {
        let keys: Vec<Value> = keys.as_array().cloned().unwrap_or_default();
        let want = serde_json::json!({"$keys": world.variables.fill(&Value::Array(keys))?});
        let got = if path == "$" { Some(&body) } else { at_path(&body, path) };
        differences(&want, got, path, &mut problems);
    }
    for hidden in expect["not_contains"].as_array().into_iter().flatten() {
        let hidden = world.variables.fill(hidden)?;
        let hidden = hidden.as_str().unwrap_or_default();
        let in_headers =
            response.headers.values().any(|value| value.to_str().is_ok_and(|text| text.contains(hidden)));
        if response.text.contains(hidden) || in_headers {
            problems.push(format!("want {hidden:?} nowhere"));
        }
    }
    for path in expect["absent"].as_array().into_iter().flatten() {
        let path = world.variables.text(path.as_str().unwrap_or_default())?;
        if let Some(found) = at_path(&body, &path) {
            problems.push(format!("{path}: want nothing got {found}"));
        }
    }
    for (name, want) in expect["headers"].as_object().into_iter().flatten() {
        let got = response.headers.contains_key(name).then(|| Value::from(response.header(name)));
        differences(&world.variables.fill(want)?, got.as_ref(), &format!("header {name}"), &mut problems);
    }
    if expect["body_empty"] == true && !response.text.is_empty() {
        problems.push("body: want an empty one".to_owned());
    }
    Ok(problems)
}

/// The problems of the lines of a text.
fn text_problems(
    world: &World,
    expect: &Value,
    text: &str,
    problems: &mut Vec<String>,
) -> Result<(), String> {
    let lines: Vec<&str> = text.lines().collect();
    for (name, want) in expect.as_object().into_iter().flatten() {
        let want = world.variables.fill(want)?;
        if name == "line_count" {
            differences(&want, Some(&lines.len().into()), name, problems);
        } else if name == "contains" {
            let parts = want.as_array().into_iter().flatten().filter_map(Value::as_str);
            problems.extend(
                parts.filter(|part| !text.contains(part)).map(|part| format!("no {part:?} in the text")),
            );
        } else {
            let line = name.strip_prefix("line").and_then(|number| lines.get(number.parse::<usize>().ok()?));
            differences(&want, line.map(|line| Value::from(*line)).as_ref(), name, problems);
        }
    }
    Ok(())
}
