//! The targets of fuzzing: every parser of bytes that come from outside, or that are stored and read back.
//!
//! A target takes any bytes, and panics if an input breaks a rule: each input is accepted or rejected in bounded time and memory,
//! and what was accepted is the same after it was printed or encoded and read again. The functions are in the module `fuzzing` of
//! each crate, behind its feature of this name, which only this crate turns on. `tests/fuzz` runs them with libFuzzer;
//! `tests/tests/fuzz` runs them with the inputs of `tests/fuzz/corpus`.

/// A target.
#[derive(Debug, Clone, Copy)]
pub struct FuzzTarget {
    /// Its name, which is also that of its program and of the folder of its inputs.
    pub name: &'static str,
    /// Runs it with an input.
    pub run: fn(&[u8]),
    /// Most megabytes that it requests from the allocator for one input of the corpus, freed ones included.
    pub megabytes_max: u64,
}

/// Declares a function for each target, and the list of all.
macro_rules! targets {
    ($($(#[$doc:meta])+ $name:ident, $megabytes:literal: [$($function:expr),+];)+) => {
        $(
            $(#[$doc])+
            pub fn $name(bytes: &[u8]) {
                $(($function)(bytes);)+
            }
        )+

        /// All targets.
        pub const TARGETS: &[FuzzTarget] = &[
            $(FuzzTarget { name: stringify!($name), run: $name, megabytes_max: $megabytes },)+
        ];
    };
}

targets! {
    /// Dates and ranges of queries.
    dates, 64: [pennon_filters::fuzzing::dates];
    /// Times in bodies, properties and events.
    timestamps, 1: [
        pennon_filters::fuzzing::timestamps,
        pennon_eventstore::fuzzing::timestamps,
        pennon_capture::fuzzing::timestamps
    ];
    /// Regular expressions of queries and of flags.
    regular_expressions, 256: [pennon_filters::fuzzing::regular_expressions, pennon_flag_rules::fuzzing::patterns];
    /// Versions and their ranges.
    versions, 1: [pennon_filters::fuzzing::versions];
    /// Operators with the values of a filter and of a property.
    operators, 64: [pennon_filters::fuzzing::operators];
    /// Bodies of flags, from JSON to the evaluated flag.
    flag_writes, 64: [pennon_flag_rules::fuzzing::flag_writes];
    /// Stored flags and cohorts, evaluated for a person.
    flag_evaluation, 64: [pennon_flag_rules::fuzzing::flag_evaluation];
    /// Bodies of evaluation requests.
    evaluation_requests, 8: [pennon_flags::fuzzing::evaluation_requests];
    /// Query nodes of all kinds, from JSON to the plan and the SQL.
    query_nodes, 64: [pennon_analytics::fuzzing::query_nodes];
    /// Requests to the endpoints of all kinds, and filters of insights.
    query_filters, 64: [pennon_analytics::fuzzing::query_filters];
    /// Queries of stored jobs.
    stored_queries, 64: [pennon_calculation::fuzzing::stored_queries];
    /// Filters of lists of events and persons.
    list_filters, 64: [pennon_analytics::fuzzing::list_filters];
    /// Formulas of trends.
    formulas, 1: [pennon_analytics::fuzzing::formulas];
    /// SQL expressions.
    sql_expressions, 64: [pennon_analytics::fuzzing::sql_expressions];
    /// Partial results of other processes.
    partial_results, 8: [pennon_analytics::fuzzing::partial_results];
    /// Responses of ClickHouse.
    clickhouse_rows, 8: [pennon_analytics::fuzzing::clickhouse_rows];
    /// Tasks and outcomes of parts of a query.
    part_messages, 64: [pennon_calculation::fuzzing::part_messages];
    /// Bodies of SDKs in all encodings.
    sdk_bodies, 8: [pennon_core::fuzzing::sdk_bodies];
    /// Bodies of captured events, from bytes to the stored block.
    capture_bodies, 64: [pennon_capture::fuzzing::capture_bodies];
    /// JSON, forms and multipart forms.
    request_bodies, 8: [pennon_core::fuzzing::request_bodies];
    /// Headers and query strings.
    headers, 8: [pennon_core::fuzzing::headers];
    /// Bodies of insights, dashboards, cohorts, actions and sharing settings.
    record_bodies, 64: [pennon_insights::fuzzing::record_bodies];
    /// Members of a cohort as CSV.
    cohort_csv, 8: [pennon_insights::fuzzing::cohort_csv];
    /// Keys of rows, names of objects, cursors of lists.
    row_keys, 1: [
        pennon_core::fuzzing::row_keys,
        pennon_eventstore::fuzzing::names,
        pennon_insights::fuzzing::declared_keys,
        pennon_calculation::fuzzing::cursors
    ];
    /// Items of the tables.
    items, 8: [pennon_core::fuzzing::items];
    /// Events that invoke the worker.
    triggers, 8: [worker_events];
    /// Blocks of captured events.
    blocks, 512: [pennon_eventstore::fuzzing::blocks];
    /// Messages of a capture buffer.
    queued_blocks, 512: [pennon_eventstore::fuzzing::queued_blocks];
    /// Files beside segments, and rows of the merge log.
    side_files, 8: [pennon_eventstore::fuzzing::side_files];
    /// Summaries of changes of persons and groups.
    profile_changes, 8: [pennon_eventstore::fuzzing::profile_changes];
    /// Parquet files of persons and groups.
    profile_files, 64: [pennon_eventstore::fuzzing::profile_files];
    /// Properties as JSON text.
    properties, 8: [pennon_eventstore::fuzzing::properties];
    /// Lists of object versions of a bucket.
    object_versions, 8: [pennon_eventstore::fuzzing::object_versions];
    /// Imports of files whose vendor is detected.
    import_detected, 64: [pennon::fuzzing::import_detected];
    /// Imports of files with this product's own fields.
    import_pennon, 64: [pennon::fuzzing::import_pennon];
    /// Imports of PostHog's exports.
    import_posthog, 64: [pennon::fuzzing::import_posthog];
    /// Imports of Mixpanel's exports.
    import_mixpanel, 64: [pennon::fuzzing::import_mixpanel];
    /// Imports of Amplitude's exports.
    import_amplitude, 64: [pennon::fuzzing::import_amplitude];
    /// Imports of Segment's logs.
    import_segment, 64: [pennon::fuzzing::import_segment];
    /// Imports of Parquet files.
    import_parquet, 64: [pennon::fuzzing::import_parquet];
    /// Lists of the files of backups.
    backup_contents, 8: [pennon::fuzzing::contents];
    /// Backups as one file.
    backup_archives, 64: [pennon::fuzzing::archives];
    /// Workspace files.
    workspaces, 64: [pennon::fuzzing::workspaces];
}

fn worker_events(bytes: &[u8]) {
    if let Ok(event) = serde_json::from_slice(bytes)
        && let pennon_worker::Trigger::Stream(records) = pennon_worker::parse_trigger(&event)
    {
        for record in records {
            record.compaction_task();
        }
    }
}
