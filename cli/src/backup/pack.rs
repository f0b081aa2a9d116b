//! A backup as one file: a tar archive of its directory, with `backup.json` first.
//!
//! Must stay true: only the regular files that `backup.json` lists are unpacked, each once and with the listed size.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Write};
use std::path::Path;

use tar::{Archive, Builder, Entry, EntryType, Header};

use super::contents::{Contents, is_backup_path};
use super::objects::create_parent;
use super::{CONTENTS, ProgressCallback, path_error};

/// Packs the files of `contents` in `directory` into a new file at `to`, and syncs it.
pub(super) fn pack(
    contents: &Contents,
    directory: &Path,
    to: &Path,
    progress: ProgressCallback<'_>,
) -> Result<(), String> {
    let failed = path_error(to, "written");
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let file = options.open(to).map_err(&failed)?;
    let mut archive = Builder::new(BufWriter::with_capacity(1 << 20, file));
    let paths = std::iter::once(CONTENTS).chain(contents.files.iter().map(|file| file.path.as_str()));
    let (mut done, total) = (0, contents.bytes());
    for path in paths {
        let from = directory.join(path);
        let mut file = File::open(&from).map_err(path_error(&from, "read"))?;
        let size = file.metadata().map_err(path_error(&from, "read"))?.len();
        let mut header = Header::new_gnu();
        header.set_entry_type(EntryType::Regular);
        header.set_size(size);
        header.set_mode(0o600);
        header.set_mtime(u64::try_from(contents.taken_at.timestamp()).unwrap_or(0));
        archive.append_data(&mut header, path, &mut file).map_err(&failed)?;
        done += size;
        progress("packing", done.min(total), total);
    }
    let mut file = archive.into_inner().map_err(&failed)?;
    file.flush().map_err(&failed)?;
    file.get_ref().sync_all().map_err(&failed)
}

/// Unpacks the file at `from` into `directory`. Returns its contents; the archive had exactly the files that they list.
pub(super) fn unpack(from: &Path, directory: &Path) -> Result<Contents, String> {
    let file = File::open(from).map_err(path_error(from, "read"))?;
    let mut archive = Archive::new(BufReader::with_capacity(1 << 20, file));
    let mut entries = archive.entries().map_err(|e| damaged(&e))?;
    let first = entries.next().ok_or_else(|| damaged(&"it is empty"))?;
    let mut first = first.map_err(|e| damaged(&e))?;
    let path = entry_path(&first)?;
    if path != CONTENTS {
        return Err(damaged(&format!("it begins with {path:?} instead of {CONTENTS}")));
    }
    unpack_entry(&mut first, &path, directory)?;
    let contents = Contents::read(directory)?;
    let mut remaining: HashMap<&str, u64> =
        contents.files.iter().map(|file| (file.path.as_str(), file.bytes)).collect();
    for entry in entries {
        let mut entry = entry.map_err(|e| damaged(&e))?;
        let path = entry_path(&entry)?;
        let Some(bytes) = remaining.remove(path.as_str()) else {
            return Err(match contents.files.iter().any(|file| file.path == path) || path == CONTENTS {
                true => format!("{path:?} is in it twice"),
                false => format!("{path:?} does not belong into it: its {CONTENTS} does not list it"),
            });
        };
        if entry.size() != bytes {
            return Err(format!("{path} has {} bytes and had {bytes}", entry.size()));
        }
        unpack_entry(&mut entry, &path, directory)?;
    }
    match remaining.keys().min() {
        Some(path) => Err(format!("{path} is missing")),
        None => Ok(contents),
    }
}

fn damaged(problem: &dyn std::fmt::Display) -> String {
    format!("it is not a backup, or a damaged one: {problem}")
}

/// The path of an entry. An error unless it is a regular file at a path that a backup may have.
fn entry_path(entry: &Entry<'_, impl Read>) -> Result<String, String> {
    let path = entry.path().map_err(|e| damaged(&e))?.to_string_lossy().into_owned();
    match entry.header().entry_type() == EntryType::Regular && is_backup_path(&path) {
        true => Ok(path),
        false => Err(format!("{path:?} does not belong into a backup")),
    }
}

fn unpack_entry(entry: &mut Entry<'_, impl Read>, path: &str, directory: &Path) -> Result<(), String> {
    let to = directory.join(path);
    create_parent(&to).map_err(path_error(&to, "made"))?;
    let mut file = File::create_new(&to).map_err(path_error(&to, "made"))?;
    let expected = entry.size();
    let copied = std::io::copy(entry, &mut file).map_err(|e| damaged(&e))?;
    if copied != expected {
        return Err(format!("it is cut: {path} has {copied} bytes of {expected}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn files_round_trip_and_a_truncated_archive_is_rejected() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        for name in ["in", "out", "cut"] {
            std::fs::create_dir(path(name)).unwrap();
        }
        let files = ["dynamodb.sqlite", "events/project=1/events/a.sums"];
        let listed = files.map(|file| {
            create_parent(&path("in").join(file)).unwrap();
            std::fs::write(path("in").join(file), file.repeat(1000)).unwrap();
            let (sha256, bytes) = super::super::hash_file(&path("in").join(file)).unwrap();
            super::super::BackupFile { path: file.to_owned(), bytes, sha256 }
        });
        let contents = Contents::new(chrono::DateTime::UNIX_EPOCH, listed.to_vec());
        contents.write(&path("in")).unwrap();
        pack(&contents, &path("in"), &path("a.tar"), &mut |_, _, _| {}).unwrap();
        assert_eq!(unpack(&path("a.tar"), &path("out")).unwrap(), contents);
        contents.verify_files(&path("out"), &mut |_| {}).unwrap();

        let whole = std::fs::read(path("a.tar")).unwrap();
        std::fs::write(path("cut.tar"), &whole[..whole.len() / 2]).unwrap();
        assert!(unpack(&path("cut.tar"), &path("cut")).is_err());
    }

    /// An entry of a forged archive: its unchecked path, type, link target and content.
    type ForgedEntry<'a> = (&'a str, EntryType, &'a str, &'a [u8]);

    fn forged(to: &Path, entries: &[ForgedEntry<'_>]) {
        let mut archive = Builder::new(File::create(to).unwrap());
        for (path, kind, link, content) in entries {
            let mut header = Header::new_gnu();
            header.set_entry_type(*kind);
            header.set_size(content.len() as u64);
            let gnu = header.as_gnu_mut().unwrap();
            gnu.name[..path.len()].copy_from_slice(path.as_bytes());
            gnu.linkname[..link.len()].copy_from_slice(link.as_bytes());
            header.set_cksum();
            archive.append(&header, *content).unwrap();
        }
        archive.finish().unwrap();
    }

    #[test]
    fn an_archive_with_other_than_the_listed_files_is_rejected() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        let listed = ["dynamodb.sqlite", "events/a"].map(|path| super::super::BackupFile {
            path: path.to_owned(),
            bytes: 1,
            sha256: "00".to_owned(),
        });
        let text = serde_json::to_vec(&Contents::new(chrono::DateTime::UNIX_EPOCH, listed.to_vec())).unwrap();
        let file = |path: &'static str| (path, EntryType::Regular, "", &b"1"[..]);
        let (contents, tables, object) =
            ((CONTENTS, EntryType::Regular, "", &text[..]), file("dynamodb.sqlite"), file("events/a"));
        let link = |kind| ("events/a", kind, "/etc/passwd", &b""[..]);
        let absolute = directory.path().join("absolute").display().to_string();
        let absolute = (absolute.as_str(), EntryType::Regular, "", &b"1"[..]);
        let cases: [(&str, &[ForgedEntry<'_>], &str); 18] = [
            ("extra", &[contents, tables, object, file("events/b")], "does not list it"),
            ("key", &[contents, tables, object, file("payload.key")], "does not list it"),
            ("elsewhere", &[contents, tables, object, file("notes")], "does not belong"),
            ("parent", &[contents, tables, object, file("events/../../x")], "does not belong"),
            ("absolute", &[contents, tables, object, absolute], "does not belong"),
            ("symlink", &[contents, tables, link(EntryType::Symlink)], "does not belong"),
            ("hard link", &[contents, tables, link(EntryType::Link)], "does not belong"),
            ("directory", &[contents, tables, link(EntryType::Directory)], "does not belong"),
            ("character device", &[contents, tables, link(EntryType::Char)], "does not belong"),
            ("block device", &[contents, tables, link(EntryType::Block)], "does not belong"),
            ("named pipe", &[contents, tables, link(EntryType::Fifo)], "does not belong"),
            (
                "sparse file",
                &[contents, tables, link(EntryType::GNUSparse)],
                "not a backup, or a damaged one",
            ),
            ("backslash", &[contents, tables, object, file("events/..\\x")], "does not belong"),
            ("twice", &[contents, tables, object, object], "in it twice"),
            ("contents twice", &[contents, tables, object, contents], "in it twice"),
            ("missing", &[contents, tables], "events/a is missing"),
            (
                "longer",
                &[contents, tables, ("events/a", EntryType::Regular, "", b"12")],
                "has 2 bytes and had 1",
            ),
            ("late", &[tables, contents, object], "begins with"),
        ];
        for (name, entries, what) in cases {
            let (archive, out) = (path("forged.tar"), path(name));
            forged(&archive, entries);
            std::fs::create_dir(&out).unwrap();
            let error = unpack(&archive, &out).unwrap_err();
            assert!(error.contains(what), "{name}: {error}");
            std::fs::remove_dir_all(&out).unwrap();
            std::fs::remove_file(&archive).unwrap();
        }
        forged(&path("whole.tar"), &[contents, tables, object]);
        std::fs::create_dir(path("whole")).unwrap();
        unpack(&path("whole.tar"), &path("whole")).unwrap();
        let mut left: Vec<_> =
            std::fs::read_dir(directory.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["whole", "whole.tar"], "nothing was written elsewhere");
    }
}
