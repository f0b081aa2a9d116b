//! One function for each command: it opens the installation, calls the library, and prints the result.
//!
//! Must stay true: results go to stdout, as text or with `--json` as JSON; progress goes to stderr.

mod copies;
mod events;
mod flags;
mod keys;
mod operations;
mod progress;
mod query;
mod reference;
mod signals;
mod workspace;

use pennon::args::Command;
use pennon::part_server::serve_parts;
use pennon::serve::serve;

/// Runs `command`.
pub(crate) async fn run(command: Command) -> Result<(), String> {
    match command {
        Command::Serve(options) => serve(&options, signals::stop_signal()?).await,
        Command::RunParts => serve_parts().await,
        Command::Init(options) => workspace::init(&options),
        Command::Apply(options) => workspace::apply(&options).await,
        Command::Import(options) => events::import(&options).await,
        Command::Export(options) => events::export(&options).await,
        Command::Check(options) => events::check(&options).await,
        Command::Compact(options) => events::compact(&options).await,
        Command::Delete(options) => events::delete(&options).await,
        Command::Backup(options) => copies::backup(options).await,
        Command::Restore(options) => copies::restore(&options).await,
        Command::Adopt(options) => copies::adopt(&options).await,
        Command::Query(options) => query::query(&options).await,
        Command::Impact(options) => query::impact(&options).await,
        Command::Flags(options) => flags::manage(options).await,
        Command::Tail(options) => operations::tail(&options).await,
        Command::Doctor(options) => operations::doctor(&options).await,
        Command::Health(options) => operations::health(&options).await,
        Command::Keys(options) => keys::manage(options).await,
        Command::Routes(options) => reference::routes(&options),
        Command::Openapi(options) => reference::openapi(&options),
        Command::Cost(options) => reference::cost(&options),
        Command::Env(options) => reference::env(&options),
        Command::Completions(options) => reference::completions(&options),
        Command::Man(options) => reference::man(&options),
    }
}
