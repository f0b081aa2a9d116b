//! `pennon tail`, `pennon doctor` and `pennon health`.

use pennon::args::{Doctor, Health, Tail};
use pennon::output::{print, print_json};
use pennon::{doctor, print_line, tail as events};
use serde_json::json;

use super::signals;

pub(super) async fn tail(options: &Tail) -> Result<(), String> {
    events::tail(options, signals::stop_signal()?).await
}

pub(super) async fn doctor(options: &Doctor) -> Result<(), String> {
    let report = doctor::examine(options).await;
    if options.output.json {
        print_json(&report.to_json())?;
    } else {
        print(format_args!("{}", report.to_text()))?;
    }
    match report.failures() {
        0 => Ok(()),
        1 => Err("1 check failed".to_owned()),
        count => Err(format!("{count} checks failed")),
    }
}

pub(super) async fn health(options: &Health) -> Result<(), String> {
    let url = doctor::health_url(options)?;
    let problems = doctor::check_health(&url, options.timeout).await;
    if options.output.json {
        print_json(&json!({"url": url, "healthy": problems.is_empty(), "problems": problems}))?;
    } else if problems.is_empty() {
        print_line!("ok")?;
    }
    if problems.is_empty() { Ok(()) } else { Err(format!("{url} is not healthy: {}", problems.join("; "))) }
}
