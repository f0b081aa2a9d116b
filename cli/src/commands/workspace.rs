//! `pennon init` and `pennon apply`.

use chrono::Utc;
use pennon::args::{Apply, Init};
use pennon::installation::{open, open_for_preview};
use pennon::output::print_json;
use pennon::workspace::{self, ApplyOptions, ApplyResult, Workspace};
use pennon::{init, print_line};
use pennon_core::ids;
use serde_json::{Value, json};

pub(super) fn init(options: &Init) -> Result<(), String> {
    let file = &options.file;
    init::write_workspace(file, ids::new_uuid(), &ids::new_project_token())?;
    if options.output.json {
        return print_json(&json!({"file": file}));
    }
    let shown = file.display();
    print_line!("wrote {shown}: an organization, a user, a project and an API key")?;
    print_line!("change it, then run `pennon serve --workspace {shown}` or `pennon apply {shown}`")
}

pub(super) async fn apply(options: &Apply) -> Result<(), String> {
    let file = Workspace::read(&options.file)?;
    let opened = match options.dry_run {
        true => open_for_preview(&options.target).await?,
        false => open(&options.target).await?,
    };
    let services = opened.services()?;
    let apply_options = ApplyOptions { prune: options.prune, dry_run: options.dry_run };
    let applied = workspace::apply_all(&services, &file, apply_options, Utc::now())
        .await
        .map_err(|e| format!("{}: {e}", options.file.display()))?;
    if options.output.json {
        return print_json(&summary(&applied, options.dry_run));
    }
    for line in &applied.plan {
        print_line!("{line}")?;
    }
    match (applied.plan.len(), options.dry_run) {
        (0, _) => print_line!("nothing to change")?,
        (n, true) => print_line!("{n} to change; run again without --dry-run to do it")?,
        (n, false) => print_line!("{n} changed")?,
    }
    for key in &applied.new_keys {
        print_line!("new key \"{}\" of {} (shown this once): {}", key.label, key.user, key.secret)?;
    }
    Ok(())
}

fn summary(applied: &ApplyResult, dry_run: bool) -> Value {
    let changes = applied.plan.iter().map(|line| {
        let (sign, record) = line.split_once(' ').unwrap_or(("", line));
        let action = match sign {
            "+" => "create",
            "-" => "delete",
            _ => "change",
        };
        json!({"action": action, "record": record})
    });
    json!({"dry_run": dry_run, "changes": changes.collect::<Vec<_>>(), "new_keys": applied.new_keys})
}
