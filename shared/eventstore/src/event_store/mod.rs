//! The facade of the crate: forwards each call to one of the [`components`].
//!
//! Must stay true: no logic here, apart from defaults of arguments.

mod components;
mod events;
mod maintenance;
mod persons;

use std::sync::Arc;
use std::time::Duration;

use object_store::ObjectStore;
use pennon_core::store::Store;

use crate::error::EventStoreError;
use crate::objects::Objects;
use crate::persons::imports::records::read_legacy_ids;
use crate::settings::Settings;
use components::Components;

/// The event store of all projects. Cheap to clone.
#[derive(Debug, Clone)]
pub struct EventStore {
    components: Arc<Components>,
}

impl EventStore {
    /// Opens the event store on the tables of `store` and the objects at `events_url`: `file:///directory`
    /// (created when it is missing) or `s3://bucket/prefix` (credentials and region of the store's access, or else of the
    /// environment).
    pub fn open(store: Store, events_url: &str) -> Result<EventStore, EventStoreError> {
        EventStore::open_with(store, events_url, Settings::default())
    }

    /// As [`EventStore::open`], with the given settings.
    pub fn open_with(
        store: Store,
        events_url: &str,
        settings: Settings,
    ) -> Result<EventStore, EventStoreError> {
        let objects = Objects::open(events_url, store.roots, store.access.as_ref())?;
        Ok(EventStore::of(Components::build(store, objects, settings, Some(read_legacy_ids))))
    }

    /// As [`EventStore::open`], for a process that only appends events, wakes a worker to compact them, and links no Parquet
    /// reader. Events that
    /// merge persons are refused while persons imported by a release before import format 2 wait for their
    /// first compaction.
    pub fn open_to_append(store: Store, events_url: &str) -> Result<EventStore, EventStoreError> {
        let objects = Objects::open(events_url, store.roots, store.access.as_ref())?;
        let settings = Settings { wakes_compaction: true, ..Settings::default() };
        Ok(EventStore::of(Components::build(store, objects, settings, None)))
    }

    /// Opens the event store on the tables of `store` and another object store. Failed calls are retried with
    /// waits no longer than `longest_wait`.
    pub fn with_object_store(
        store: Store,
        objects: Arc<dyn ObjectStore>,
        longest_wait: Duration,
        settings: Settings,
    ) -> EventStore {
        let objects = Objects::new(objects, "").with_longest_wait(longest_wait);
        EventStore::of(Components::build(store, objects, settings, Some(read_legacy_ids)))
    }

    fn of(components: Components) -> EventStore {
        EventStore { components: Arc::new(components) }
    }
}
