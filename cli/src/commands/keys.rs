//! `pennon keys`.

use pennon::args::{Keys, KeysCommand};
use pennon::installation::{open_existing, open_for_reading};
use pennon::output::print_json;
use pennon::{keys, print_line};
use serde_json::json;

pub(super) async fn manage(keys_options: Keys) -> Result<(), String> {
    match keys_options.command {
        KeysCommand::Create(options) => {
            let opened = open_existing(&options.target).await?;
            let key = keys::create(&opened.store.records, &options, chrono::Utc::now()).await?;
            if options.output.json {
                return print_json(&key);
            }
            print_line!("{}", key.secret)?;
            eprintln!("This is the key \"{}\" of {}. It is shown this once.", key.label, key.user);
            Ok(())
        }
        KeysCommand::List(options) => {
            let opened = open_for_reading(&options.target).await?;
            let listed = keys::list(&opened.store.records).await?;
            if options.output.json {
                return print_json(&listed);
            }
            listed.iter().try_for_each(|key| print_line!("{}", key.line()))
        }
        KeysCommand::Revoke(options) => {
            let opened = open_existing(&options.target).await?;
            let label = keys::revoke(&opened.store.records, &options.key).await?;
            if options.output.json {
                return print_json(&json!({"revoked": label}));
            }
            print_line!("revoked \"{label}\"; a running server accepts it for at most five more seconds")
        }
    }
}
