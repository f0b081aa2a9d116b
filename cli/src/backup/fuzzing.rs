//! Functions for fuzzing of backups; [`crate::fuzzing`] lists them.

use std::path::{Component, Path};

use super::contents::{Contents, is_backup_path};
use super::{CONTENTS, pack};

/// The text of a `backup.json`, also with the digest that belongs to its list. Accepted contents are the same after they were
/// written, and no path leads out of the backup.
pub fn contents(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let _ = Contents::parse(text);
    let Ok(mut contents) = serde_json::from_str::<Contents>(text) else { return };
    contents.digest = Contents::new(contents.taken_at, contents.files.clone()).digest;
    let corrected = serde_json::to_string(&contents).unwrap_or_default();
    let Ok(accepted) = Contents::parse(&corrected) else { return };
    assert_eq!(accepted, contents);
    let _ = (accepted.bytes(), accepted.objects());
    for file in &accepted.files {
        let is_inside = Path::new(&file.path).components().all(|part| matches!(part, Component::Normal(_)));
        assert!(is_inside && is_backup_path(&file.path), "{:?}", file.path);
    }
}

/// An archive: what is unpacked is what its contents list.
pub fn archives(bytes: &[u8]) {
    let Ok(directory) = tempfile::tempdir() else { return };
    let (archive, unpacked) = (directory.path().join("backup.tar"), directory.path().join("unpacked"));
    if std::fs::write(&archive, bytes).is_err() || std::fs::create_dir(&unpacked).is_err() {
        return;
    }
    let Ok(contents) = pack::unpack(&archive, &unpacked) else { return };
    assert!(unpacked.join(CONTENTS).is_file());
    for file in &contents.files {
        let size = std::fs::metadata(unpacked.join(&file.path)).map(|metadata| metadata.len());
        assert_eq!(size.ok(), Some(file.bytes), "{:?}", file.path);
    }
    let _ = contents.verify_files(&unpacked, &mut |_| {});
}
