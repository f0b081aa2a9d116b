//! Records the calls of each function to DynamoDB and the object store, for the list that policies are compared with
//! (`tests/template/calls.json`).
//!
//! Where `PENNON_CALLS_FILE` names a file, each kind of call that a process has not made before becomes a line of it:
//! function, place, action and kind of key. Must stay true: work of no function, such as what a test looks up by itself, is
//! not recorded; a request that one of several functions may handle is recorded for each.

mod connector;
mod keys;
mod objects;

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Write;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use object_store::ObjectStore;
use pennon::api::{FunctionRoute, function_routes};
use pennon_core::function_name::{function_name, with_function_name};
use pennon_core::store::Store;
use pennon_eventstore::{EventStore, Settings};

pub use connector::Noting;

use crate::Meter;

/// Names the file.
const SETTING: &str = "PENNON_CALLS_FILE";

static NOTES: LazyLock<Option<Notes>> = LazyLock::new(Notes::open);
static ROUTES: LazyLock<Vec<FunctionRoute>> = LazyLock::new(function_routes);

/// Runs work of the worker.
pub async fn as_worker<F: Future>(work: F) -> F::Output {
    // Futures of whole runs are large, and a debug build keeps several copies of one on the stack.
    with_function_name("worker", Box::pin(work)).await
}

/// Runs the work of a request for `path`.
pub async fn record_calls<F: Future>(path: &str, work: F) -> F::Output {
    match &*NOTES {
        Some(_) => {
            with_function_name(&functions_of(path).into_iter().collect::<Vec<_>>().join(","), Box::pin(work))
                .await
        }
        None => work.await,
    }
}

/// The event store, with recorded and metered calls if enabled.
pub fn noting_objects(events: EventStore, url: &str, store: &Store, meter: &Meter) -> EventStore {
    let is_watched = NOTES.is_some() || meter.is_on();
    let Some(directory) = url.strip_prefix("file://").filter(|_| is_watched) else { return events };
    let local = object_store::local::LocalFileSystem::new_with_prefix(directory).expect("a directory");
    let objects: Arc<dyn ObjectStore> = Arc::new(objects::NotingObjects(local, meter.clone()));
    EventStore::with_object_store(
        store.clone(),
        objects,
        std::time::Duration::from_secs(5),
        Settings::default(),
    )
}

/// The functions whose routes fit `path` best.
fn functions_of(path: &str) -> BTreeSet<&'static str> {
    let path = path.split('?').next().unwrap_or_default().trim_end_matches('/');
    // Like routers: a literal before a parameter before a wildcard, from left to right.
    let fits = |pattern: &str| -> Option<Vec<u8>> {
        let (mut requested, mut fit) = (path.split('/'), Vec::new());
        for part in pattern.split('/') {
            if part.starts_with("{*") {
                fit.push(2);
                return Some(fit);
            }
            let is_name = part.starts_with('{');
            let there = requested.next()?;
            if !is_name && there != part {
                return None;
            }
            fit.push(u8::from(is_name));
        }
        requested.next().is_none().then_some(fit)
    };
    let fitting = ROUTES.iter().filter_map(|route| Some((fits(&route.path)?, route.group)));
    let fitting = fitting.collect::<Vec<_>>();
    let best = fitting.iter().map(|(fit, _)| fit).min();
    fitting.iter().filter(|(fit, _)| Some(fit) == best).map(|(_, group)| *group).collect()
}

/// The file and its content.
struct Notes(Mutex<(File, BTreeSet<String>)>);

impl Notes {
    fn open() -> Option<Notes> {
        let name = std::env::var_os(SETTING)?;
        let file = File::options().create(true).append(true).open(name).expect("a file to note calls in");
        Some(Notes(Mutex::new((file, BTreeSet::new()))))
    }
}

/// Records a call of the current function.
fn note(place: &str, action: &str, keys: impl FnOnce() -> String) {
    let (Some(notes), Some(functions)) = (&*NOTES, function_name()) else { return };
    let keys = keys();
    for function in functions.split(',').filter(|name| !name.is_empty()) {
        let line = format!("{function}\t{place}\t{action}\t{keys}\n");
        let mut notes = notes.0.lock().unwrap_or_else(PoisonError::into_inner);
        if notes.1.insert(line.clone()) {
            // One write per line, so that lines of several processes do not mix.
            notes.0.write_all(line.as_bytes()).expect("a noted call");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_belongs_to_the_function_that_the_routers_choose() {
        let of = |path: &str| functions_of(path).into_iter().collect::<Vec<_>>();
        assert_eq!(of("/api/projects/1/feature_flags/?limit=2"), ["flags"]);
        assert_eq!(of("/api/environments/1/feature_flags/7/"), ["flags"]);
        assert_eq!(of("/api/projects/1/feature_flags/7/role_access"), ["flags", "role_access"]);
        assert_eq!(of("/api/projects/1/insights/funnel/"), ["calculation", "insights"]);
        assert_eq!(of("/api/projects/1/insights/7"), ["insights"]);
        assert_eq!(of("/batch/"), ["capture"]);
        assert_eq!(of("/nowhere"), Vec::<&str>::new());
    }
}
