//! Checks of a local installation: directory, permissions, disk, database, and the server or the port for one.

use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::time::Instant;

use super::server;
use super::{Finding, Report};
use crate::args::Doctor;
use crate::data::{ServerInfo, holds_installation};
use crate::installation::open_for_reading;

/// Free disk space below which a check warns and fails. Compaction writes merged copies of segments before it removes them.
const WARN_BELOW_BYTES: u64 = 2 << 30;
const FAIL_BELOW_BYTES: u64 = 64 << 20;

/// Checks the data directory and this machine.
pub(super) async fn examine(options: &Doctor, report: &mut Report) {
    let path = &options.target.data.data;
    let mut server = None;
    if holds_installation(path) {
        report.push(Finding::ok("data directory", path.display().to_string()));
        check_permissions(path, report);
        check_disk(path, report);
        server = check_database(options, report).await;
    } else {
        report.push(Finding::failure(
            "data directory",
            format!("{} holds no Pennon installation", path.display()),
            "create one with `pennon serve` or `pennon apply FILE`, or name another directory with --data",
        ));
    }
    match server {
        Some(info) => server::examine(&info.http, report).await,
        None => check_port(options.port, report),
    }
}

/// Opens the database and the events; returns the server that has them open.
async fn check_database(options: &Doctor, report: &mut Report) -> Option<ServerInfo> {
    let begun = Instant::now();
    match open_for_reading(&options.target).await {
        Ok(installation) => {
            let local = installation.local.as_ref();
            let server = local.and_then(|local| local.server.clone());
            let how = match (&server, local.is_some_and(|local| local.is_copy)) {
                (Some(info), _) => format!("opened through the server (process {})", info.pid),
                (None, true) => "opened as a copy, because the directory cannot be written".to_owned(),
                (None, false) => "opened; no server runs on it".to_owned(),
            };
            let elapsed = begun.elapsed().as_millis();
            report.push(Finding::ok("database", format!("{how}, in {elapsed} ms; it belongs to the events")));
            server
        }
        Err(error) => {
            report.push(Finding::error("database", error));
            None
        }
    }
}

#[cfg(unix)]
fn check_permissions(path: &Path, report: &mut Report) {
    use std::os::unix::fs::PermissionsExt;
    let mode = std::fs::metadata(path).map(|metadata| metadata.permissions().mode() & 0o777);
    match mode {
        Ok(mode) if mode & 0o077 != 0 => report.push(Finding::warning(
            "permissions",
            format!("other users of this machine can read the directory (mode {mode:o})"),
            format!("run chmod -R go= {}", path.display()),
        )),
        Ok(mode) => {
            report.push(Finding::ok("permissions", format!("only its owner has access (mode {mode:o})")))
        }
        Err(error) => {
            report.push(Finding::failure(
                "permissions",
                error.to_string(),
                "make the directory readable for this user",
            ));
        }
    }
    if rustix::fs::access(path, rustix::fs::Access::WRITE_OK).is_err() {
        report.push(Finding::warning(
            "writable",
            "the directory cannot be written by this user: only commands that read work",
            "run commands that write as the owner of the directory",
        ));
    }
}

#[cfg(not(unix))]
fn check_permissions(_path: &Path, _report: &mut Report) {}

#[cfg(unix)]
fn check_disk(path: &Path, report: &mut Report) {
    let free = rustix::fs::statvfs(path).map(|disk| disk.f_bavail.saturating_mul(disk.f_frsize));
    report.push(match free {
        Ok(free) => disk_finding(free),
        Err(error) => Finding::warning("disk", format!("free space is unknown: {error}"), "check the disk"),
    });
}

#[cfg(not(unix))]
fn check_disk(_path: &Path, _report: &mut Report) {}

/// The finding for this many free bytes.
fn disk_finding(free: u64) -> Finding {
    let text = format!("{:.1} GB free", free as f64 / 1e9);
    let next = "free disk space, or move the data directory to a larger disk";
    match free {
        0..FAIL_BELOW_BYTES => Finding::failure("disk", text, next),
        FAIL_BELOW_BYTES..WARN_BELOW_BYTES => Finding::warning("disk", text, next),
        _ => Finding::ok("disk", text),
    }
}

fn check_port(port: u16, report: &mut Report) {
    report.push(match TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
        Ok(_) => Finding::ok("port", format!("{port} is free")),
        Err(error) => Finding::warning(
            "port",
            format!("{port} cannot be used: {error}"),
            "start the server on another one: `pennon serve --port 0` takes any free one",
        ),
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::State;

    #[test]
    fn little_disk_space_is_a_warning_and_almost_none_a_failure() {
        let state = |free: u64| disk_finding(free).state;
        assert_eq!(state(u64::MAX), State::Ok);
        assert_eq!((state(WARN_BELOW_BYTES), state(WARN_BELOW_BYTES - 1)), (State::Ok, State::Warning));
        assert_eq!(
            (state(FAIL_BELOW_BYTES), state(FAIL_BELOW_BYTES - 1), state(0)),
            (State::Warning, State::Failure, State::Failure)
        );
    }
}
