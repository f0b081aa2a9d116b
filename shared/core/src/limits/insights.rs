//! The limits of insights, dashboards, cohorts and actions.

use std::time::Duration;

/// Characters of a name, a derived name and a description.
pub const TEXT_CHARS: usize = 400;
/// Bytes of `filters`, and of `query`, as compact JSON text.
pub const QUERY_BYTES: usize = 256 * 1024;
/// Levels of lists and objects inside `filters` and `query`, also where they come as JSON text.
pub const NESTING: usize = 64;
/// Dashboards that one insight may be on. A pointer for each is written with the insight, so that even a write that moves it
/// from all of them to as many others is one transaction of at most 100 items.
pub const DASHBOARDS: usize = 40;
/// Tiles of an insight, removed ones included.
pub const TILES: usize = 500;
/// Characters of a search text in a list.
pub const SEARCH_CHARS: usize = 400;
/// Entries of a list inside a query parameter, such as `tags`.
pub const PARAMETER_ENTRIES: usize = 500;
/// Insights that one request may record as viewed.
pub const VIEWS: usize = 100;
/// Bytes of the timings of a client.
pub const TIMING_BYTES: usize = 32 * 1024;
/// KiB of records that one page reads: a response could not hold more.
pub const PAGE_KIB: usize = 48 * 1024;
/// Bytes of large cached results, as JSON, that are read for one page or dashboard.
pub const PAGE_RESULT_BYTES: usize = 24 << 20;
/// Most attempts at a write with version conflicts.
pub const WRITE_ATTEMPTS: u32 = 20;
/// Letters and digits of a short id.
pub const SHORT_ID_CHARS: usize = 8;
/// Characters of the description of a dashboard, a cohort or an action.
pub const DESCRIPTION_CHARS: usize = 4000;
/// Characters of the Slack message format of an action.
pub const MESSAGE_CHARS: usize = 1200;
/// Tiles of a dashboard. An update may change all of them in one transaction.
pub const DASHBOARD_TILES: usize = 90;
/// Bytes of a tile's layouts, as compact JSON text.
pub const LAYOUTS_BYTES: usize = 4 * 1024;
/// Cohorts and actions that a cohort may refer to, directly and transitively: a write checks the version of each.
pub const COHORT_REFERENCES: usize = 80;
/// Persons that one request may add to a static cohort by their ids.
pub const PERSONS_AT_ONCE: usize = 1000;
/// Bytes of a distinct id of a static cohort.
pub const DISTINCT_ID_BYTES: usize = 1000;
/// Timeout for counting the members of a cohort when its rules are written.
pub const COUNTING_TIME: Duration = Duration::from_secs(5);
/// Bytes of a shared page. As escaped text in Lambda's JSON, which at most doubles them, it is within the gateway's limit.
pub const SHARED_PAGE_BYTES: usize = 2_500_000;
/// Settings of a shared record that are on or off.
pub const SHARING_SWITCHES: [&str; 6] =
    ["whitelabel", "noHeader", "showInspector", "legend", "detailed", "hideExtraDetails"];
/// Characters of the theme of a shared record.
pub const THEME_CHARS: usize = 50;
