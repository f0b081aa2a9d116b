//! How many connections this process can have, and how slowly a body may arrive.

use crate::args::ConnectionLimits;

/// Bytes that an unfinished body has to bring within each `body_timeout`.
pub const BODY_BYTES_MIN: usize = 8 << 10;

/// The number of connections that `limits` allows, but at most half of this process's limit of open files, because the
/// database, the events and requests open files too. Raises that limit as far as the system allows.
pub fn max_connections(limits: &ConnectionLimits) -> usize {
    let requested = usize::try_from(limits.max_connections).unwrap_or(usize::MAX);
    raise_descriptor_limit().map_or(requested, |files| requested.min(files / 2).max(1))
}

/// Raises the soft limit of open files to the hard limit, and returns it; `None` if there is no limit.
#[cfg(unix)]
fn raise_descriptor_limit() -> Option<usize> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum && setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).is_err() {
        return current.and_then(|limit| usize::try_from(limit).ok());
    }
    maximum.and_then(|limit| usize::try_from(limit).ok())
}

/// Other systems have no such limit.
#[cfg(not(unix))]
fn raise_descriptor_limit() -> Option<usize> {
    None
}
