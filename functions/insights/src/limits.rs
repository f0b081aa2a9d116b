//! Every cap on what one insight, dashboard, cohort or action may hold, in one place.

use std::time::Duration;

/// Characters of a name, a derived name and a description.
pub const TEXT_CHARS: usize = 400;
/// Bytes of `filters`, and of `query`, as compact JSON text.
pub const QUESTION_BYTES: usize = 256 * 1024;
/// Levels of lists and objects inside `filters` and `query`, also where they come as JSON text.
pub const NESTING: usize = 64;
/// Dashboards that one insight may be on. A pointer for each is written and removed with the insight, so that even a write
/// which takes it off all of them and puts it on as many others stays one transaction of a hundred items at most.
pub const DASHBOARDS: usize = 40;
/// Tiles of an insight, removed ones included.
pub const TILES: usize = 500;
/// Characters of a search text in a list.
pub const SEARCH_CHARS: usize = 400;
/// Entries of a list inside a query parameter, such as `tags`.
pub const PARAMETER_ENTRIES: usize = 500;
/// Insights that one request may note as viewed.
pub const VIEWS: usize = 100;
/// Bytes of what a client measured.
pub const TIMING_BYTES: usize = 32 * 1024;
/// KiB of records that one page reads: more could not be answered.
pub const PAGE_KIB: usize = 48 * 1024;
/// Bytes of large stored results, as JSON, that are read for one page or dashboard.
pub const PAGE_RESULT_BYTES: usize = 24 << 20;
/// How often a write that others overtook is judged again.
pub const WRITE_TRIES: u32 = 20;
/// Letters and digits of a short id.
pub const SHORT_ID_CHARS: usize = 8;
/// Seconds after which a change that was overtaken too often may be tried again.
pub const RETRY_AFTER_SECONDS: u32 = 1;
/// Characters of the description of a dashboard, a cohort or an action.
pub const DESCRIPTION_CHARS: usize = 4000;
/// Characters of the message that an action has for others.
pub const MESSAGE_CHARS: usize = 1200;
/// Tiles of a dashboard. A change may move all of them, and is one transaction.
pub const DASHBOARD_TILES: usize = 90;
/// Bytes of a tile's layouts, as compact JSON text.
pub const LAYOUTS_BYTES: usize = 4 * 1024;
/// Cohorts and actions that a cohort may refer to, directly and through others: a write names the version of each.
pub const COHORT_REFERENCES: usize = 80;
/// Persons who are put onto a list by their ids at once.
pub const PERSONS_AT_ONCE: usize = 1000;
/// Bytes of a distinct id on a list.
pub const DISTINCT_ID_BYTES: usize = 1000;
/// Time in which the members of a cohort are counted when its rules are written; without it they are not.
pub const COUNTING_TIME: Duration = Duration::from_secs(5);
