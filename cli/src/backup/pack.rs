//! A backup as one file: a tar archive of its directory, the contents first.
//!
//! Must stay true: nothing is unpacked but plain files at paths that a backup has.

use std::fs::File;
use std::io::{BufReader, BufWriter, Write};
use std::path::Path;

use tar::{Archive, Builder, EntryType, Header};

use super::contents::{Contents, is_ours};
use super::objects::make_parent;
use super::{CONTENTS, Progress, at};

/// Packs the files of `contents` in `directory` into a new file at `to`, which lies on the disk then.
pub(super) fn pack(
    contents: &Contents,
    directory: &Path,
    to: &Path,
    progress: Progress<'_>,
) -> Result<(), String> {
    let failed = at(to, "written");
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
        let mut file = File::open(&from).map_err(at(&from, "read"))?;
        let size = file.metadata().map_err(at(&from, "read"))?.len();
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

/// Unpacks the file at `from` into `directory`.
pub(super) fn unpack(from: &Path, directory: &Path) -> Result<(), String> {
    let damaged = |e: std::io::Error| format!("it is no backup, or damaged: {e}");
    let file = File::open(from).map_err(at(from, "read"))?;
    let mut archive = Archive::new(BufReader::with_capacity(1 << 20, file));
    for entry in archive.entries().map_err(damaged)? {
        let mut entry = entry.map_err(damaged)?;
        let path = entry.path().map_err(damaged)?.to_string_lossy().into_owned();
        if entry.header().entry_type() != EntryType::Regular || !is_ours(&path) {
            return Err(format!("{path:?} does not belong into a backup"));
        }
        let to = directory.join(&path);
        make_parent(&to).map_err(at(&to, "made"))?;
        let mut file = File::create_new(&to).map_err(at(&to, "made"))?;
        let expected = entry.size();
        let copied = std::io::copy(&mut entry, &mut file).map_err(damaged)?;
        if copied != expected {
            return Err(format!("it is cut: {path} has {copied} bytes of {expected}"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn files_come_back_and_what_leads_elsewhere_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        for name in ["in", "out", "cut"] {
            std::fs::create_dir(path(name)).unwrap();
        }
        let files = ["dynamodb.sqlite", "events/project=1/events/a.sums"];
        let listed = files.map(|file| {
            make_parent(&path("in").join(file)).unwrap();
            std::fs::write(path("in").join(file), file.repeat(1000)).unwrap();
            let (sha256, bytes) = super::super::digest(&path("in").join(file)).unwrap();
            super::super::Listed { path: file.to_owned(), bytes, sha256 }
        });
        let contents = Contents::of(chrono::DateTime::UNIX_EPOCH, listed.to_vec());
        contents.write(&path("in")).unwrap();
        pack(&contents, &path("in"), &path("a.tar"), &mut |_, _, _| {}).unwrap();
        unpack(&path("a.tar"), &path("out")).unwrap();
        assert_eq!(Contents::read(&path("out")).unwrap(), contents);
        contents.compare(&path("out"), &mut |_| {}).unwrap();

        let whole = std::fs::read(path("a.tar")).unwrap();
        std::fs::write(path("cut.tar"), &whole[..whole.len() / 2]).unwrap();
        let unpacked = unpack(&path("cut.tar"), &path("cut"));
        assert!(unpacked.is_err() || contents.compare(&path("cut"), &mut |_| {}).is_err());

        let mut archive = Builder::new(File::create(path("evil.tar")).unwrap());
        let mut header = Header::new_gnu();
        header.set_size(1);
        header.as_gnu_mut().unwrap().name[..11].copy_from_slice(b"events/../x");
        header.set_cksum();
        archive.append(&header, &b"1"[..]).unwrap();
        archive.finish().unwrap();
        let refused = unpack(&path("evil.tar"), &path("out")).unwrap_err();
        assert!(refused.contains("does not belong"), "{refused}");
        assert!(!path("x").exists() && !path("out").join("x").exists());
    }
}
