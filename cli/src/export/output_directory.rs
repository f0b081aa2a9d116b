//! The output directory of an export, which is written under a temporary name next to it until it is complete.

use std::path::{Path, PathBuf};

use super::files::{sync_directory, write_error};

/// An unfinished output directory. Dropping it without [`OutputDirectory::finish`] removes it.
pub(super) struct OutputDirectory {
    path: PathBuf,
    out: PathBuf,
    is_done: bool,
}

impl OutputDirectory {
    /// Creates the temporary directory for `out`, which must be empty or not exist.
    pub(super) fn create(out: &Path) -> Result<OutputDirectory, String> {
        let is_empty =
            |path: &Path| std::fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none());
        if out.exists() && !is_empty(out) {
            return Err(format!("{} is there already; name a directory that is not", out.display()));
        }
        let name =
            out.file_name().ok_or_else(|| format!("{} is not a valid directory name", out.display()))?;
        let path = out.with_file_name(format!("{}.unfinished", name.to_string_lossy()));
        if path.exists() {
            return Err(format!(
                "{} is what another export is writing, or left behind; remove it if none runs",
                path.display()
            ));
        }
        std::fs::create_dir_all(&path).map_err(|e| write_error(&path, &e))?;
        Ok(OutputDirectory { path, out: out.to_owned(), is_done: false })
    }

    /// The temporary path.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Syncs the directory and renames it to its final path.
    pub(super) fn finish(mut self) -> Result<(), String> {
        sync_directory(&self.path).map_err(|e| write_error(&self.path, &e))?;
        std::fs::rename(&self.path, &self.out).map_err(|e| write_error(&self.out, &e))?;
        self.is_done = true;
        let parent = self.out.parent().filter(|parent| !parent.as_os_str().is_empty());
        let parent = parent.unwrap_or(Path::new("."));
        sync_directory(parent).map_err(|e| write_error(parent, &e))
    }
}

impl Drop for OutputDirectory {
    fn drop(&mut self) {
        if !self.is_done {
            // On an error the next export to the same path reports the leftover.
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}
