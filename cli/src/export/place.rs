//! Where an export is written: beside its place, until it is whole.

use std::path::{Path, PathBuf};

use super::files::{failed, sync_directory};

/// A directory that is being filled. It is removed unless it is finished.
pub(super) struct Unfinished {
    path: PathBuf,
    out: PathBuf,
    is_done: bool,
}

impl Unfinished {
    /// Begins what is to be at `out`.
    pub(super) fn begin(out: &Path) -> Result<Unfinished, String> {
        let is_empty = |path: &Path| std::fs::read_dir(path).is_ok_and(|mut found| found.next().is_none());
        if out.exists() && !is_empty(out) {
            return Err(format!("{} is there already; name a directory that is not", out.display()));
        }
        let name = out.file_name().ok_or_else(|| format!("{} is no name of a directory", out.display()))?;
        let path = out.with_file_name(format!("{}.unfinished", name.to_string_lossy()));
        if path.exists() {
            return Err(format!(
                "{} is what another export is writing, or left behind; remove it if none runs",
                path.display()
            ));
        }
        std::fs::create_dir_all(&path).map_err(|e| failed(&path, &e))?;
        Ok(Unfinished { path, out: out.to_owned(), is_done: false })
    }

    /// Where to write.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Puts it in its place.
    pub(super) fn finish(mut self) -> Result<(), String> {
        sync_directory(&self.path).map_err(|e| failed(&self.path, &e))?;
        std::fs::rename(&self.path, &self.out).map_err(|e| failed(&self.out, &e))?;
        self.is_done = true;
        let parent = self.out.parent().filter(|parent| !parent.as_os_str().is_empty());
        let parent = parent.unwrap_or(Path::new("."));
        sync_directory(parent).map_err(|e| failed(parent, &e))
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if !self.is_done {
            // Whoever exports there next is told of what is left.
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}
