//! The data of the simulation, from units.json: what was measured, what others publish, what is assumed, and constants of the
//! product. docs/performance.md has the source of each.

use serde::Deserialize;

use crate::args::QueryKind;

/// Everything that the simulation of a query in parts multiplies.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LargeQueryUnits {
    /// From docs/performance.md, and from the files of its events.
    pub measured: MeasuredQueries,
    /// By AWS, or by measurements of others.
    pub published: PublishedLimits,
    /// Without a source.
    pub assumed: PartAssumptions,
    /// Constants of the code.
    pub product: PartConstants,
}

/// The measured queries over one segment.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MeasuredQueries {
    /// Events of the segment, of all names.
    pub events: f64,
    /// Most rows of a person range, about.
    pub range_rows: f64,
    /// CPU time of the start of a process.
    pub start_cpu_ms: f64,
    /// Bytes that are read to open the segment: its checksums and its end.
    pub opened_mb: f64,
    /// Requests to open it.
    pub opened_gets: f64,
    /// Requests of a query besides those for person ranges.
    pub other_gets: f64,
    /// Bytes of the manifest row of the segment, and about of its entry in the task of a part.
    pub entry_bytes: f64,
    /// What a query takes besides opening, reading and calculating: the remainder that fits all six queries.
    pub beside_ms: f64,
    funnel: MeasuredQuery,
    funnel_by_browser: MeasuredQuery,
    trend: MeasuredQuery,
    uniques: MeasuredQuery,
    by_url: MeasuredQuery,
    sum: MeasuredQuery,
}

/// A query over the events of [`MeasuredQueries`].
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MeasuredQuery {
    /// Rows with the names of its events.
    pub rows: f64,
    /// CPU time of the first query of a process.
    pub cpu_ms: f64,
    /// CPU time with all columns in memory.
    pub cached_cpu_ms: f64,
    /// Bytes that the first query reads.
    pub mb: f64,
    /// Its requests.
    pub gets: f64,
    /// Bytes of a partial result, however many events it has.
    pub result_mb: f64,
    /// Bytes of partial results for these events: the times between steps.
    pub more_result_mb: f64,
}

/// Speeds and limits of AWS.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublishedLimits {
    /// S3: a connection.
    pub connection_mb_s: f64,
    /// S3: the wait for a first byte.
    pub first_byte_ms: f64,
    /// Lambda: the network of a function.
    pub function_mb_s: f64,
    /// Lambda: the billed start of a small Rust function.
    pub init_ms: f64,
    /// S3: reads a second of a prefix.
    pub gets_a_second: f64,
    /// Lambda: most processors of a function.
    pub vcpus_max: f64,
}

/// Assumptions.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PartAssumptions {
    /// The part of a cold start that is not billed.
    pub environment_ms: f64,
    /// An invocation from the request to its first instruction, and back.
    pub invoke_ms: f64,
    /// CPU time of opening a segment.
    pub opening_cpu_ms: f64,
    /// Standard deviation of the logarithm of the time of a part.
    pub spread: f64,
    /// Speed of encoding tasks.
    pub pack_mb_s: f64,
    /// Speed of decoding and merging partial results.
    pub merge_mb_s: f64,
    /// A call of DynamoDB.
    pub trip_ms: f64,
    /// Bytes that are sent for a byte of a task or result, compressed and in base64.
    pub packed: f64,
}

/// Constants of the product.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PartConstants {
    /// Person ranges that are read at once.
    pub ranges_at_once: f64,
    /// Segments that are opened at once.
    pub opened_at_once: f64,
    /// Open segments that a process caches.
    pub files_cached: f64,
    /// Parts that take less are not late.
    pub late_ms: f64,
    /// One in so many parts may be late, and one more.
    pub late_share: usize,
    /// Rows that fit into a function of one processor.
    pub rows_that_fit: f64,
    /// How long a request waits.
    pub response_ms: f64,
    /// How often a lease is renewed and watched.
    pub beat_ms: f64,
    /// How long attempts run at most after their query.
    pub lease_ms: f64,
}

impl MeasuredQueries {
    /// The measured query of a kind.
    pub fn of(&self, kind: QueryKind) -> MeasuredQuery {
        match kind {
            QueryKind::Funnel => self.funnel,
            QueryKind::FunnelByBrowser => self.funnel_by_browser,
            QueryKind::Trend => self.trend,
            QueryKind::Uniques => self.uniques,
            QueryKind::ByUrl => self.by_url,
            QueryKind::Sum => self.sum,
        }
    }
}
