//! `pennon backup`, `pennon restore` and `pennon adopt`.

use std::path::Path;

use pennon::args::{Adopt, Backup, Restore};
use pennon::backup::{self, Contents};
use pennon::installation::connect_cloud;
use pennon::output::print_json;
use pennon::{adopt, print_line};
use serde_json::{Value, json};

use super::progress::{backup_progress, progress_bar};

pub(super) async fn backup(options: Backup) -> Result<(), String> {
    if options.target.cloud {
        return Err("AWS keeps the tables and the bucket of a deployment as they were at every moment of the last days; \
                    docs/exit.md has the commands that restore them to one"
            .to_owned());
    }
    let Backup { target, out, link, with_payload_key, output } = options;
    let options = backup::BackupOptions { data: target.data.data, out, link, payload_key: with_payload_key };
    let bar = progress_bar();
    let created = backup::create(&options, &mut backup_progress(&bar)).await;
    bar.finish_and_clear();
    let backup::CompletedBackup { place, contents } = created?;
    if output.json {
        return print_json(&summary(&place, &contents));
    }
    let (at, objects, bytes) = (contents.taken_at.to_rfc3339(), contents.objects(), contents.bytes());
    print_line!("{}: as of {at}, {objects} files of events, {bytes} bytes", place.display())?;
    if !contents.payload_key {
        print_line!(
            "the key of secret payloads is not in it: keep a copy of payload.key elsewhere, or add --with-payload-key"
        )?;
    }
    Ok(())
}

pub(super) async fn restore(options: &Restore) -> Result<(), String> {
    let bar = progress_bar();
    let restored = backup::restore(&options.from, &options.data, &mut backup_progress(&bar)).await;
    bar.finish_and_clear();
    let backup::RestoredBackup { place, contents } = restored?;
    if options.output.json {
        return print_json(&summary(&place, &contents));
    }
    let (at, bytes) = (contents.taken_at.to_rfc3339(), contents.bytes());
    print_line!("{}: as of {at}, {bytes} bytes, all of them compared", place.display())?;
    if !contents.payload_key {
        print_line!(
            "the key of secret payloads was not in the backup: put it into {} before the first start, or into \
             PENNON_PAYLOAD_KEY; without it encrypted payloads cannot be read",
            place.join("payload.key").display()
        )?;
    }
    print_line!(
        "keys that were revoked since, and persons who were erased since, are back: revoke and erase them again"
    )
}

fn summary(place: &Path, contents: &Contents) -> Value {
    json!({
        "path": place, "taken_at": contents.taken_at.to_rfc3339(), "event_files": contents.objects(),
        "bytes": contents.bytes(), "has_payload_key": contents.payload_key,
    })
}

pub(super) async fn adopt(options: &Adopt) -> Result<(), String> {
    let adopted = match options.target.cloud {
        true => adopt::adopt_tables(connect_cloud().await?).await?,
        false => adopt::adopt_local(&options.target.data.data).await?,
    };
    if options.output.json {
        return print_json(&json!({
            "installation": adopted.id, "kept_files": adopted.kept, "folder": adopted.folder,
            "missing_files": adopted.missing,
        }));
    }
    adopt::report_lines(&adopted).iter().try_for_each(|line| print_line!("{line}"))
}
