//! Publishes the events and persons of a project as two Iceberg tables over the live files.
//!
//! Any engine that reads Iceberg then reads a table and not a folder: the live segments, with one type for each column, and the
//! current person of every distinct id. Data files of the events table are the segments themselves; nothing is copied.
//!
//! [`TablePublisher`] is the public interface: it is called after compaction and after other changes of the live files, never
//! before, and a failure only means that the table is older than the events until the next call. [`columns`] decides about the
//! schema, [`persons`] writes the persons, [`version_log`] commits, [`removal`] deletes, [`metadata`], [`manifest_files`] and [`avro`] know the
//! format. Must stay true: a published version never names fewer or more events than some manifest of the project listed, and no
//! version is made from an earlier manifest than the version before it.

mod avro;
mod columns;
mod manifest_files;
mod metadata;
mod persons;
mod publication;
mod publisher;
mod removal;
mod version_log;

pub use publication::{Clock, Publication, PublicationMode};
pub use publisher::TablePublisher;
