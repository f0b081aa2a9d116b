//! The `pennon` command.

use std::io::{ErrorKind, Write};
use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};
use pennon::allocator::{Use, keep_little};
use pennon::args::{
    Apply, Arguments, Backup, Check, Command, Compact, Cost, Delete, Export, Import, Keys, KeysCommand,
    Openapi, Query, Restore, Routes, Serve, Target,
};
use pennon::data::{DataDirectory, OpenStore};
use pennon::export::Exporting;
use pennon::import::{ImportOptions, Phase, Progress, import_file};
use pennon::keys;
use pennon::query;
use pennon::serve::{Services, groups, serve};
use pennon::workspace::{self, Options, Workspace};
use pennon::{backup, compact, cost::cost, delete};
use pennon_core::app::App;
use pennon_core::clock::Clock;
use pennon_core::config::{Config, payload_keys};
use pennon_core::store::Store;
use pennon_eventstore::{CheckProgress, EventStore};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

fn main() -> ExitCode {
    let command = Arguments::parse().command.unwrap_or(Command::Serve(Serve::default()));
    keep_little(match command {
        Command::Import(_) | Command::Export(_) | Command::Compact(_) | Command::Delete(_) => Use::Bulk,
        _ => Use::Requests,
    });
    run(command)
}

#[tokio::main]
async fn run(command: Command) -> ExitCode {
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    tracing_subscriber::registry()
        .with(pennon_core::config::logged("warn,dynoxide=error"))
        .with(lines)
        .init();
    let outcome = match command {
        Command::Serve(options) => match stop_signal() {
            Ok(stop) => serve(&options, stop).await,
            Err(message) => Err(message),
        },
        Command::Apply(options) => apply(&options).await,
        Command::Import(options) => import(&options).await,
        Command::Export(options) => export(&options).await,
        Command::Check(options) => check(&options).await,
        Command::Compact(options) => compact(&options).await,
        Command::Delete(options) => delete(&options).await,
        Command::Backup(options) => take_backup(options).await,
        Command::Restore(options) => restore(&options).await,
        Command::Query(options) => query(&options).await,
        Command::Keys(options) => manage_keys(options).await,
        Command::Routes(options) => routes(&options),
        Command::Openapi(options) => openapi(&options),
        Command::Cost(options) => tell_cost(&options),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("pennon: {message}");
            ExitCode::FAILURE
        }
    }
}

/// Prints the output of a command. Whoever reads it may have seen enough: a closed pipe is its end and no error.
fn say(text: std::fmt::Arguments<'_>) -> Result<(), String> {
    let mut output = std::io::stdout().lock();
    match output.write_fmt(text).and_then(|()| output.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(format!("nothing can be printed: {error}"))
        }
        _ => Ok(()),
    }
}

/// Prints a line of the output of a command.
macro_rules! say {
    ($($text:tt)*) => { say(format_args!("{}\n", format_args!($($text)*))) };
}

/// Listens from now on for Ctrl-C, and for the signal by which a service manager asks a process to end; resolves then.
#[cfg(unix)]
fn stop_signal() -> Result<impl Future<Output = ()>, String> {
    use tokio::signal::unix::{SignalKind, signal};
    let failed = |e: std::io::Error| format!("signals cannot be received: {e}");
    let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    })
}

/// Resolves on Ctrl-C.
#[cfg(not(unix))]
fn stop_signal() -> Result<impl Future<Output = ()>, String> {
    Ok(async {
        // Without a handler for it there is nothing to wait for but the process's end.
        let _ = tokio::signal::ctrl_c().await;
    })
}

/// What a command works on: the tables, and where the events lie.
struct Opened {
    store: Store,
    events_url: String,
    /// Of a local one.
    directory: Option<DataDirectory>,
    /// Keeps a local database to ourselves.
    _local: Option<OpenStore>,
}

impl Opened {
    /// What answers requests over it, in this process.
    fn services(&self) -> Result<Services, String> {
        let payload_keys = match &self.directory {
            Some(directory) => directory.payload_keys()?,
            None => payload_keys("")?,
        };
        let app = App::new(self.store.clone(), Clock::Running).with_payload_keys(payload_keys);
        Services::open(app, &self.events_url)
    }
}

async fn open(target: &Target) -> Result<Opened, String> {
    if !target.cloud {
        let directory = DataDirectory::at(&target.data.data)?;
        let local = directory.open().await?;
        return Ok(Opened {
            store: local.store.clone(),
            events_url: directory.events_url(),
            directory: Some(directory),
            _local: Some(local),
        });
    }
    let config = Config::from_env();
    let events_url = config.events_url.ok_or(
        "--cloud needs PENNON_EVENTS_URL, and the names of the tables in PENNON_RECORDS_TABLE and PENNON_BLOCKS_TABLE; \
         the outputs of the stack say what they are",
    )?;
    Ok(Opened { store: Store::from_env(&config.store).await, events_url, directory: None, _local: None })
}

async fn apply(options: &Apply) -> Result<(), String> {
    let file = Workspace::read(&options.file)?;
    let opened = open(&options.target).await?;
    let services = opened.services()?;
    let how = Options { prune: options.prune, dry_run: options.dry_run };
    let applied = workspace::apply_all(&services, &file, how, chrono::Utc::now())
        .await
        .map_err(|e| format!("{}: {e}", options.file.display()))?;
    for line in &applied.plan {
        say!("{line}")?;
    }
    match (applied.plan.len(), options.dry_run) {
        (0, _) => say!("nothing to change")?,
        (n, true) => say!("{n} to change; run again without --dry-run to do it")?,
        (n, false) => say!("{n} changed")?,
    }
    for key in &applied.new_keys {
        say!("new key \"{}\" of {} (shown this once): {}", key.label, key.user, key.secret)?;
    }
    Ok(())
}

async fn import(options: &Import) -> Result<(), String> {
    let opened = open(&options.target).await?;
    let state = workspace::State::load(&opened.store.records).await.map_err(|e| e.to_string())?;
    let events = EventStore::open(opened.store.clone(), &opened.events_url).map_err(|e| e.to_string())?;
    let how = ImportOptions { default_project: options.project, group_types: state.group_types() };
    let bar = progress_bar();
    let now = chrono::Utc::now().timestamp_micros();
    let mut shown = Shown::default();
    let mut progress = |progress| show(&bar, &mut shown, progress);
    let stopped = stop_signal()?;
    let done = tokio::select! {
        done = import_file(&events, &options.file, how, now, &mut progress) => Some(done),
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
    let done = done.map_err(|e| e.to_string())?;
    say!(
        "{} lines: {} events, {} of them were there already; {} persons, {} groups",
        done.lines,
        done.events + done.copies,
        done.copies,
        done.persons,
        done.groups
    )?;
    let undeclared: Vec<_> = done.projects.iter().filter(|id| !state.has_project(**id)).collect();
    if !undeclared.is_empty() {
        say!("no workspace has declared these projects yet: {undeclared:?}; `pennon apply` does")?;
    }
    Ok(())
}

async fn export(options: &Export) -> Result<(), String> {
    let opened = open(&options.target).await?;
    let services = opened.services()?;
    let state = workspace::State::load(&opened.store.records).await.map_err(|e| e.to_string())?;
    let bar = progress_bar();
    let exporting =
        Exporting { state: &state, services: &services, tell: told_by(&bar), now: chrono::Utc::now() };
    let stopped = stop_signal()?;
    let written = tokio::select! {
        written = pennon::export::export(&exporting, options) => Some(written),
        () = stopped => None,
    };
    bar.finish_and_clear();
    for line in written.ok_or("stopped; nothing was exported")?? {
        say!("{line}")?;
    }
    say!("exported to {}", options.out.display())
}

/// Shows the progress of an export.
fn told_by(bar: &ProgressBar) -> pennon::export::Tell {
    let bar = bar.clone();
    Arc::new(move |progress: pennon::export::Progress| {
        bar.set_message(progress.what);
        bar.set_length(progress.total);
        bar.set_position(progress.done);
        let is_end = progress.done == progress.total;
        if bar.is_hidden() && (is_end || progress.done.is_multiple_of(1_000_000)) {
            eprintln!("{}: {} of {}", progress.what, progress.done, progress.total);
        }
    })
}

async fn check(options: &Check) -> Result<(), String> {
    let opened = open(&options.target).await?;
    let events = EventStore::open(opened.store.clone(), &opened.events_url).map_err(|e| e.to_string())?;
    let bar = progress_bar();
    bar.set_message("checking");
    let mut show = |progress: CheckProgress| {
        bar.set_length(progress.of as u64);
        bar.set_position(progress.objects as u64);
    };
    let report = pennon::check::check(&events, options, chrono::Utc::now(), &mut show).await;
    bar.finish_and_clear();
    let report = report?;
    for line in &report.lines {
        say!("{line}")?;
    }
    match report.damaged {
        0 => Ok(()),
        1 => Err("one segment is damaged".to_owned()),
        n => Err(format!("{n} segments are damaged")),
    }
}

async fn query(options: &Query) -> Result<(), String> {
    let opened = open(&options.target).await?;
    say(format_args!("{}", query::run(options, opened.store.clone(), &opened.events_url).await?))?;
    Ok(())
}

fn progress_bar() -> ProgressBar {
    let bar = ProgressBar::new(1);
    let style =
        ProgressStyle::with_template("{msg:9} [{bar:40}] {percent:>3} %  {elapsed} gone, {eta} to go");
    // The template is a constant; were it wrong, the plain bar would do.
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
}

/// What was said of an import where no bar can be shown: the phase, and how many tenths of it.
#[derive(Default)]
struct Shown(Option<(Phase, u64)>);

fn show(bar: &ProgressBar, shown: &mut Shown, progress: Progress) {
    let phase = match progress.phase {
        Phase::Checking => "checking",
        Phase::Storing => "storing",
    };
    bar.set_message(phase);
    bar.set_length(progress.total);
    bar.set_position(progress.done);
    let tenths = progress.done * 10 / progress.total.max(1);
    if bar.is_hidden() && shown.0 != Some((progress.phase, tenths)) {
        shown.0 = Some((progress.phase, tenths));
        eprintln!("{phase}: {} %, {} lines", tenths * 10, progress.lines);
    }
}

async fn compact(options: &Compact) -> Result<(), String> {
    let opened = open(&options.target).await?;
    let events = EventStore::open(opened.store.clone(), &opened.events_url).map_err(|e| e.to_string())?;
    let projects = events.projects().await.map_err(|e| e.to_string())?;
    let projects = match options.project {
        None => projects,
        Some(id) if projects.contains(&id) => vec![id],
        Some(id) => return Err(format!("project {id} has no events")),
    };
    let mut failed_merges = 0;
    for project in projects {
        let bar = ProgressBar::new_spinner();
        let mut step = |done: &pennon_eventstore::Compacted| {
            bar.set_message(format!("{} events, {} rows of segments", done.events, done.merged_rows));
            bar.tick();
        };
        let done = compact::finish(&events, project, &mut step).await.map_err(|e| e.to_string())?;
        bar.finish_and_clear();
        let pennon_eventstore::Compacted { blocks, events, copies, merged_segments, merged_rows, .. } =
            done.all;
        say!(
            "project {project}: {blocks} blocks with {events} events and {copies} copies; {merged_segments} segments \
             with {merged_rows} rows merged; {} removed",
            done.removed
        )?;
        failed_merges += done.all.failed_merges;
    }
    match failed_merges {
        0 => Ok(()),
        n => Err(format!(
            "{n} merges of segments failed, because something of them cannot be read; all else was done. `pennon check` says \
             what is damaged"
        )),
    }
}

async fn delete(options: &Delete) -> Result<(), String> {
    let opened = open(&options.target).await?;
    let events = EventStore::open(opened.store.clone(), &opened.events_url).map_err(|e| e.to_string())?;
    let wanted = delete::Wanted::of(&events, options).await?;
    let found = wanted.count(&events).await?;
    say!("{}", wanted.says(&found))?;
    if options.dry_run {
        return Ok(());
    }
    if !options.yes && !delete::is_confirmed(&wanted)? {
        return Err("nothing was erased".to_owned());
    }
    let now = || chrono::Utc::now().timestamp_micros();
    let erased = wanted.erase(&opened.store, &events, &now).await?;
    let least = if erased.uncounted { "at least " } else { "" };
    say!("erased {least}{} events; {} segments were written anew", erased.events, erased.segments)?;
    if erased.segments > 0 {
        let minutes = pennon_eventstore::GRACE_MICROS / 60_000_000;
        say!(
            "nobody is answered from them any more; their old files go at the first compaction in {minutes} minutes"
        )?;
    }
    Ok(())
}

async fn take_backup(options: Backup) -> Result<(), String> {
    if options.target.cloud {
        return Err("the tables and the bucket of a deployment are kept by AWS, at any moment of the last days; docs/exit.md \
                    has the commands that bring them back to one"
            .to_owned());
    }
    let Backup { target, out, link, with_payload_key } = options;
    let how = backup::How { data: target.data.data, out, link, payload_key: with_payload_key };
    let bar = progress_bar();
    let taken = backup::take(&how, &mut step(&bar)).await;
    bar.finish_and_clear();
    let backup::Taken { place, contents } = taken?;
    let (at, objects, bytes) = (contents.taken_at.to_rfc3339(), contents.objects(), contents.bytes());
    say!("{}: as of {at}, {objects} files of events, {bytes} bytes", place.display())?;
    if !contents.payload_key {
        say!(
            "the key of secret payloads is not in it: keep a copy of payload.key elsewhere, or add --with-payload-key"
        )?;
    }
    Ok(())
}

async fn restore(options: &Restore) -> Result<(), String> {
    let bar = progress_bar();
    let restored = backup::restore(&options.from, &options.data, &mut step(&bar)).await;
    bar.finish_and_clear();
    let backup::Restored { place, contents } = restored?;
    let (at, bytes) = (contents.taken_at.to_rfc3339(), contents.bytes());
    say!("{}: as of {at}, {bytes} bytes, all of them compared", place.display())?;
    if !contents.payload_key {
        say!(
            "the key of secret payloads was not in the backup: put it into {} before the first start, or into \
             PENNON_PAYLOAD_KEY; without it encrypted payloads cannot be read",
            place.join("payload.key").display()
        )?;
    }
    say!(
        "keys that were revoked since, and persons who were erased since, are back: revoke and erase them again"
    )
}

/// Shows how far a backup or a restore is.
fn step(bar: &ProgressBar) -> impl FnMut(&'static str, u64, u64) + Send {
    |what, done, of| {
        bar.set_message(what);
        bar.set_length(of);
        bar.set_position(done);
    }
}

async fn manage_keys(options: Keys) -> Result<(), String> {
    match options.command {
        KeysCommand::Create(wanted) => {
            let opened = open(&wanted.target).await?;
            let key = keys::create(&opened.store.records, &wanted, chrono::Utc::now()).await?;
            say!("{}", key.secret)?;
            eprintln!("This is the key \"{}\" of {}. It is shown this once.", key.label, key.user);
        }
        KeysCommand::List(target) => {
            let opened = open(&target).await?;
            for line in keys::list(&opened.store.records).await? {
                say!("{line}")?;
            }
        }
        KeysCommand::Revoke(wanted) => {
            let opened = open(&wanted.target).await?;
            let label = keys::revoke(&opened.store.records, &wanted.key).await?;
            say!("revoked \"{label}\"; a running server stops taking it within five seconds")?;
        }
    }
    Ok(())
}

fn tell_cost(asked: &Cost) -> Result<(), String> {
    say!("{}", cost(asked)?.trim_end())
}

fn routes(options: &Routes) -> Result<(), String> {
    if options.json {
        say!("{}", serde_json::to_string_pretty(&groups()).map_err(|e| e.to_string())?)?;
        return Ok(());
    }
    for route in groups() {
        say!("{:<12} {:<7} {}", route.group, route.method, route.path)?;
    }
    Ok(())
}

fn openapi(options: &Openapi) -> Result<(), String> {
    let text = if options.yaml { pennon_reference::yaml().to_owned() } else { pennon_reference::json() };
    say!("{}", text.trim_end())
}
