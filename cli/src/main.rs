//! The `pennon` command.
#![expect(clippy::print_stdout, reason = "this is the command's output")]

use std::process::ExitCode;

use clap::Parser;
use pennon::args::{Apply, Arguments, Command, Data, Keys, KeysCommand, Routes, Serve};
use pennon::data::{DataDirectory, OpenStore};
use pennon::keys;
use pennon::serve::{groups, serve};
use pennon::workspace::{self, Options, Workspace};
use tracing_subscriber::EnvFilter;

#[tokio::main]
async fn main() -> ExitCode {
    let filter = std::env::var("PENNON_LOG").unwrap_or_else(|_| "warn".to_owned());
    tracing_subscriber::fmt().with_env_filter(EnvFilter::new(filter)).with_writer(std::io::stderr).init();
    let command = Arguments::parse().command.unwrap_or(Command::Serve(Serve::default()));
    let outcome = match command {
        Command::Serve(options) => serve(&options, stop_signal()).await,
        Command::Apply(options) => apply(&options).await,
        Command::Import(_) => Err("".to_owned()),
        Command::Keys(options) => manage_keys(options).await,
        Command::Routes(options) => routes(&options),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("pennon: {message}");
            ExitCode::FAILURE
        }
    }
}

/// Resolves on Ctrl-C, and on the signal by which a service manager asks a process to end.
async fn stop_signal() {
    let interrupt = tokio::signal::ctrl_c();
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        if let Ok(mut terminate) = signal(SignalKind::terminate()) {
            tokio::select! {
                _ = interrupt => {}
                _ = terminate.recv() => {}
            }
            return;
        }
    }
    // Without a handler for it there is nothing to wait for but the process's end.
    let _ = interrupt.await;
}

async fn open(data: &Data) -> Result<OpenStore, String> {
    DataDirectory::at(&data.data)?.open().await
}

async fn apply(options: &Apply) -> Result<(), String> {
    let file = Workspace::read(&options.file)?;
    let opened = open(&options.data).await?;
    let how = Options { prune: options.prune, dry_run: options.dry_run };
    let applied = workspace::apply(&opened.store.records, &file, how, chrono::Utc::now())
        .await
        .map_err(|e| format!("{}: {e}", options.file.display()))?;
    for line in &applied.plan {
        println!("{line}");
    }
    match (applied.plan.len(), options.dry_run) {
        (0, _) => println!("nothing to change"),
        (n, true) => println!("{n} to change; run again without --dry-run to do it"),
        (n, false) => println!("{n} changed"),
    }
    for key in &applied.new_keys {
        println!("new key \"{}\" of {} (shown this once): {}", key.label, key.user, key.secret);
    }
    Ok(())
}

async fn manage_keys(options: Keys) -> Result<(), String> {
    match options.command {
        KeysCommand::Create(wanted) => {
            let opened = open(&wanted.data).await?;
            let key = keys::create(&opened.store.records, &wanted, chrono::Utc::now()).await?;
            println!("{}", key.secret);
            eprintln!("This is the key \"{}\" of {}. It is shown this once.", key.label, key.user);
        }
        KeysCommand::List(data) => {
            let opened = open(&data).await?;
            for line in keys::list(&opened.store.records).await? {
                println!("{line}");
            }
        }
        KeysCommand::Revoke(wanted) => {
            let opened = open(&wanted.data).await?;
            let label = keys::revoke(&opened.store.records, &wanted.key).await?;
            println!("revoked \"{label}\"; a running server stops taking it within five seconds");
        }
    }
    Ok(())
}

fn routes(options: &Routes) -> Result<(), String> {
    if options.json {
        println!("{}", serde_json::to_string_pretty(&groups()).map_err(|e| e.to_string())?);
        return Ok(());
    }
    for route in groups() {
        println!("{:<12} {:<7} {}", route.group, route.method, route.path);
    }
    Ok(())
}
