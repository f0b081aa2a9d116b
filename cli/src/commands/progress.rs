//! Progress of the commands: a bar on a terminal, lines of text elsewhere.

use std::sync::Arc;

use indicatif::{ProgressBar, ProgressStyle};
use pennon::import::{ImportPhase, ImportProgress};

pub(crate) fn progress_bar() -> ProgressBar {
    let bar = ProgressBar::new(1);
    let style =
        ProgressStyle::with_template("{msg:9} [{bar:40}] {percent:>3} %  {elapsed} gone, {eta} to go");
    // The template is a constant; if it were invalid, the default bar would do.
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
}

/// The progress callback of an export.
pub(crate) fn export_progress(bar: &ProgressBar) -> pennon::export::ReportProgress {
    let bar = bar.clone();
    Arc::new(move |progress: pennon::export::ExportProgress| {
        bar.set_message(progress.what);
        bar.set_length(progress.total);
        bar.set_position(progress.done);
        let is_end = progress.done == progress.total;
        if bar.is_hidden() && (is_end || progress.done.is_multiple_of(1_000_000)) {
            eprintln!("{}: {} of {}", progress.what, progress.done, progress.total);
        }
    })
}

/// Shows the progress of an import on `bar`.
pub(crate) fn show_import(bar: &ProgressBar, progress: ImportProgress) {
    bar.set_message(match progress.phase {
        ImportPhase::Checking => "checking",
        ImportPhase::Skipping => "skipping",
        ImportPhase::StoringPeople => "persons",
        ImportPhase::Storing => "storing",
    });
    bar.set_length(progress.total);
    bar.set_position(progress.done);
}

/// The progress callback of a backup or a restore.
pub(crate) fn backup_progress(bar: &ProgressBar) -> impl FnMut(&'static str, u64, u64) + Send {
    |what, done, of| {
        bar.set_message(what);
        bar.set_length(of);
        bar.set_position(done);
    }
}
