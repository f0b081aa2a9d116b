//! `pennon keys`.

use pennon::args::{Keys, KeysCommand};
use pennon::installation::{open_existing, open_to_read};
use pennon::output::print_json;
use pennon::{keys, print_line};
use serde_json::json;

pub(super) async fn manage(options: Keys) -> Result<(), String> {
    match options.command {
        KeysCommand::Create(wanted) => {
            let opened = open_existing(&wanted.target).await?;
            let key = keys::create(&opened.store.records, &wanted, chrono::Utc::now()).await?;
            if wanted.output.json {
                return print_json(&key);
            }
            print_line!("{}", key.secret)?;
            eprintln!("This is the key \"{}\" of {}. It is shown this once.", key.label, key.user);
            Ok(())
        }
        KeysCommand::List(wanted) => {
            let opened = open_to_read(&wanted.target).await?;
            let listed = keys::list(&opened.store.records).await?;
            if wanted.output.json {
                return print_json(&listed);
            }
            listed.iter().try_for_each(|key| print_line!("{}", key.line()))
        }
        KeysCommand::Revoke(wanted) => {
            let opened = open_existing(&wanted.target).await?;
            let label = keys::revoke(&opened.store.records, &wanted.key).await?;
            if wanted.output.json {
                return print_json(&json!({"revoked": label}));
            }
            print_line!("revoked \"{label}\"; a running server accepts it for at most five more seconds")
        }
    }
}
