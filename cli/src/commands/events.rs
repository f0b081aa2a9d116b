//! The commands that read and write events: `import`, `export`, `check`, `compact` and `delete`.

use chrono::Utc;
use indicatif::ProgressBar;
use pennon::args::{Check, Compact, Delete, Export, Import};
use pennon::data::holds_installation;
use pennon::export::ExportContext;
use pennon::import::{ImportOptions, Summary, Vendor, dry_run_file, import_file};
use pennon::installation::{open, open_existing, open_for_reading};
use pennon::output::print_json;
use pennon::tables::{EventChange, publish_tables};
use pennon::{compact, delete, print_line, workspace};
use pennon_core::store::keys;
use pennon_eventstore::{CheckProgress, CompactionReport, EventStore, VersionReport};
use serde_json::{Value, json};

use super::progress::{export_progress, progress_bar, show_import};
use super::signals::stop_signal;

pub(super) async fn import(options: &Import) -> Result<(), String> {
    if !options.map.is_empty() && options.from.is_some_and(|vendor| vendor != Vendor::Pennon) {
        return Err(
            "--map names fields of an event, and --from names a vendor whose fields are known; leave one out"
                .to_owned(),
        );
    }
    let bar = progress_bar();
    let mut progress = |progress| show_import(&bar, progress);
    let mut import_options = ImportOptions {
        default_project: options.project,
        from: options.from,
        map: options.map.clone(),
        extra: options.extra,
        group_type: options.group_type.clone(),
        ..ImportOptions::default()
    };
    // A dry run creates no installation.
    let exists = options.target.cloud || holds_installation(&options.target.data.data);
    if options.dry_run && !exists {
        let done = dry_run_file(&options.file, import_options, &mut progress).await;
        bar.finish_and_clear();
        return print_import(options, &done.map_err(|e| e.to_string())?, &[]);
    }
    let opened = match options.dry_run {
        true => open_for_reading(&options.target).await?,
        false => open(&options.target).await?,
    };
    let state = workspace::Declarations::load(&opened.store.records).await.map_err(|e| e.to_string())?;
    let events = match options.dry_run {
        true => opened.events.clone(),
        false => opened.claim_events().await?,
    };
    import_options.group_types = state.group_types();
    import_options.checkpoints = Some(opened.store.records.clone());
    let now = Utc::now().timestamp_micros();
    let stopped = stop_signal()?;
    let import = async {
        match options.dry_run {
            true => dry_run_file(&options.file, import_options, &mut progress).await,
            false => import_file(&events, &options.file, import_options, now, &mut progress).await,
        }
    };
    let done = tokio::select! {
        done = import => Some(done),
        () = stopped => None,
    };
    bar.finish_and_clear();
    let done = done.ok_or_else(|| {
        let file = options.file.display();
        format!(
            "stopped. What has been stored stays, whole parts of the file; import {file} again to add the rest: \
             nothing is counted twice"
        )
    })?;
    if !options.dry_run {
        let projects = match &done {
            Ok(done) => done.projects.iter().copied().collect(),
            // Parts of the file may be stored.
            Err(_) => events.projects().await.unwrap_or_default(),
        };
        publish_tables(&events, &projects, EventChange::Written).await;
    }
    let done = done.map_err(|e| e.to_string())?;
    let undeclared: Vec<u64> = done.projects.iter().copied().filter(|id| !state.has_project(*id)).collect();
    print_import(options, &done, &undeclared)
}

fn print_import(options: &Import, done: &Summary, undeclared: &[u64]) -> Result<(), String> {
    if options.output.json {
        let mut summary = done.to_json();
        summary["undeclared_projects"] = undeclared.into();
        return print_json(&summary);
    }
    for line in done.text_lines() {
        print_line!("{line}")?;
    }
    if !undeclared.is_empty() {
        print_line!("no workspace has declared these projects yet: {undeclared:?}; `pennon apply` does")?;
    }
    Ok(())
}

pub(super) async fn export(options: &Export) -> Result<(), String> {
    let opened = open_for_reading(&options.target).await?;
    let services = opened.services()?;
    let state = workspace::Declarations::load(&opened.store.records).await.map_err(|e| e.to_string())?;
    let bar = progress_bar();
    let context =
        ExportContext { state: &state, services: &services, report: export_progress(&bar), now: Utc::now() };
    let stopped = stop_signal()?;
    let written = tokio::select! {
        written = pennon::export::export(&context, options) => Some(written),
        () = stopped => None,
    };
    bar.finish_and_clear();
    let exported = written.ok_or("stopped; nothing was exported")??;
    if options.output.json {
        return print_json(&exported);
    }
    exported.text_lines().iter().try_for_each(|line| print_line!("{line}"))
}

pub(super) async fn check(options: &Check) -> Result<(), String> {
    if options.records {
        return check_records(options).await;
    }
    let opened = match options.lift || options.drop.is_some() {
        true => open_existing(&options.target).await?,
        false => open_for_reading(&options.target).await?,
    };
    let events = opened.events.clone();
    if let (Some(_), Some(project)) = (&options.drop, options.project) {
        // An interrupted import must not skip what is dropped, nor may a running calculation store its result.
        opened.store.records.increment(&keys::erasures(project), 1).await.map_err(|e| e.to_string())?;
    }
    let bar = progress_bar();
    bar.set_message("checking");
    let mut show = |progress: CheckProgress| {
        bar.set_length(progress.of as u64);
        bar.set_position(progress.objects as u64);
    };
    let report = pennon::check::check(&events, options, Utc::now(), &mut show).await;
    bar.finish_and_clear();
    if let (Some(_), Some(project)) = (&options.drop, options.project) {
        publish_tables(&events, &[project], EventChange::Erased).await;
    }
    let report = report?;
    if options.output.json {
        print_json(&report.to_json())?;
    } else {
        report.lines().iter().try_for_each(|line| print_line!("{line}"))?;
    }
    match report.damaged() {
        0 => Ok(()),
        1 => Err("one segment or block is damaged".to_owned()),
        n => Err(format!("{n} segments or blocks are damaged")),
    }
}

async fn check_records(options: &Check) -> Result<(), String> {
    let opened = open_for_reading(&options.target).await?;
    let bar = progress_bar();
    bar.set_message("comparing records");
    let report =
        pennon::record_check::check_records(&opened.store.records, options.project, Utc::now()).await;
    bar.finish_and_clear();
    let report = report?;
    if options.output.json {
        print_json(&report.to_json())?;
    } else {
        report.lines().iter().try_for_each(|line| print_line!("{line}"))?;
    }
    match report.findings.len() {
        0 => Ok(()),
        1 => Err("one row violates an invariant".to_owned()),
        n => Err(format!("{n} rows violate an invariant")),
    }
}

pub(super) async fn compact(options: &Compact) -> Result<(), String> {
    let opened = open_existing(&options.target).await?;
    let events = opened.claim_events().await?;
    let projects = events.projects().await.map_err(|e| e.to_string())?;
    let projects = match options.project {
        None => projects,
        Some(id) if projects.contains(&id) => vec![id],
        Some(id) => return Err(format!("project {id} has no events")),
    };
    let (mut summaries, mut failed_merges, mut damaged_blocks) = (Vec::new(), 0, 0);
    for project in projects {
        let bar = ProgressBar::new_spinner();
        let mut step = |done: &CompactionReport| {
            bar.set_message(format!("{} events, {} rows of segments", done.events, done.merged_rows));
            bar.tick();
        };
        let done = compact::compact_fully(&events, project, &mut step).await;
        publish_tables(&events, &[project], EventChange::Written).await;
        bar.finish_and_clear();
        let done = done.map_err(|e| e.to_string())?;
        let CompactionReport { blocks, events, copies, merged_segments, merged_rows, .. } = done.all;
        if options.output.json {
            summaries.push(compacted_json(project, &done));
        } else {
            print_line!(
                "project {project}: {blocks} blocks with {events} events and {copies} copies; {merged_segments} \
                 segments with {merged_rows} rows merged; {} removed",
                done.removed
            )?;
        }
        failed_merges += done.all.failed_merges;
        damaged_blocks += done.all.damaged_blocks;
    }
    if options.output.json {
        print_json(&json!({"projects": summaries}))?;
    }
    if damaged_blocks > 0 {
        return Err(format!(
            "{damaged_blocks} blocks of captured events are damaged and stay where they are; all others were compacted. \
             `pennon check` lists them, and what can be done"
        ));
    }
    match failed_merges {
        0 => Ok(()),
        n => Err(format!(
            "{n} merges of segments failed, because data in them cannot be read; all other work was done. \
             `pennon check` lists the damaged objects"
        )),
    }
}

fn compacted_json(project: u64, done: &compact::CompactionTotals) -> Value {
    let all = &done.all;
    json!({
        "project": project, "blocks": all.blocks, "events": all.events, "copies": all.copies,
        "merged_segments": all.merged_segments, "merged_rows": all.merged_rows, "removed": done.removed,
        "failed_merges": all.failed_merges, "damaged_blocks": all.damaged_blocks,
    })
}

pub(super) async fn delete(options: &Delete) -> Result<(), String> {
    let opened = match options.dry_run {
        true => open_for_reading(&options.target).await?,
        false => open_existing(&options.target).await?,
    };
    let events = match options.dry_run {
        true => opened.events.clone(),
        false => opened.claim_events().await?,
    };
    if options.versions {
        return delete_versions(&events, options).await;
    }
    let request = delete::DeleteRequest::from_options(&events, options).await?;
    let counts = request.count(&events).await?;
    let json = options.output.json;
    // With --json the plan goes to stderr, where the user reads it before confirming; stdout has one document.
    match (json, options.dry_run) {
        (true, true) => return print_json(&json!({"dry_run": true, "found": request.to_json(&counts)})),
        (true, false) => eprintln!("{}", request.describe(&counts)),
        (false, _) => print_line!("{}", request.describe(&counts))?,
    }
    if options.dry_run {
        return Ok(());
    }
    if !options.yes && !delete::is_confirmed(&request.project.to_string(), "the number of the project")? {
        return Err("nothing was erased".to_owned());
    }
    let now = || Utc::now().timestamp_micros();
    let erased = request.erase(&opened.store, &events, &now).await;
    publish_tables(&events, &[request.project], EventChange::Erased).await;
    let erased = erased?;
    if json {
        return print_json(&json!({"dry_run": false, "erased": request.to_json(&erased)}));
    }
    let least = if erased.uncounted { "at least " } else { "" };
    print_line!("erased {least}{} events; {} segments were written anew", erased.events, erased.segments)?;
    if erased.segments > 0 {
        let minutes = pennon_eventstore::GRACE_MICROS / 60_000_000;
        print_line!(
            "no query reads the old segments any more; their files are removed by the first compaction after {minutes} minutes"
        )?;
    }
    if options.target.cloud {
        print_line!(
            "the bucket keeps old versions of objects for 30 days; ten minutes from now, `pennon delete --cloud --versions` \
             deletes them"
        )?;
    }
    Ok(())
}

async fn delete_versions(events: &EventStore, options: &Delete) -> Result<(), String> {
    let old = delete::OldVersions { project: options.project };
    let (json, now) = (options.output.json, Utc::now());
    let bar = ProgressBar::new_spinner();
    let progress = |report: VersionReport| bar.set_message(old.describe(&report));
    let found = old.remove(events, false, now, &progress).await;
    bar.finish_and_clear();
    let found = found?;
    match (json, options.dry_run) {
        (true, true) => return print_json(&json!({"dry_run": true, "found": old.to_json(&found, now)})),
        (true, false) => eprintln!("{}", old.describe(&found)),
        (false, _) => print_line!("{}", old.describe(&found))?,
    }
    if options.dry_run {
        return Ok(());
    }
    if !options.yes && !delete::is_confirmed("versions", "the word")? {
        return Err("nothing was deleted".to_owned());
    }
    let bar = ProgressBar::new_spinner();
    let progress = |report: VersionReport| bar.set_message(old.describe(&report));
    let deleted = old.remove(events, true, now, &progress).await;
    bar.finish_and_clear();
    let deleted = deleted?;
    if json {
        return print_json(&json!({"dry_run": false, "deleted": old.to_json(&deleted, now)}));
    }
    print_line!("deleted; {}", old.describe(&deleted))?;
    print_line!(
        "erasures before {} are gone from the bucket; after a later one, repeat this ten minutes after it",
        delete::complete_before(now).format("%H:%M UTC")
    )
}
