//! Dates of queries: parsing, ranges, buckets and their labels.
//!
//! Must stay true: the current instant and the project's time zone are arguments; arithmetic on days and longer units is
//! wall-clock arithmetic in that zone; hour and minute buckets are steps of absolute time.

pub mod bucket_search;
pub mod buckets;
pub mod compare;
pub mod grammar;
pub mod instants;
pub mod range;
#[cfg(test)]
mod tests;
pub mod zone;

use serde::{Deserialize, Serialize};

/// An instant: microseconds since the Unix epoch, UTC.
pub type Micros = i64;

/// First day of the week of a project.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WeekStart {
    /// Sunday, `week_start_day` 0.
    #[default]
    Sunday,
    /// Monday, `week_start_day` 1.
    Monday,
}

impl WeekStart {
    /// From a project's `week_start_day`: 1 is Monday, all others are Sunday.
    pub fn from_day(day: i64) -> Self {
        if day == 1 { Self::Monday } else { Self::Sunday }
    }
}

/// Width of a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Interval {
    /// One minute.
    Minute,
    /// One hour.
    Hour,
    /// One calendar day of the project's zone.
    #[default]
    Day,
    /// Seven calendar days from the project's first day of the week.
    Week,
    /// One calendar month.
    Month,
}

impl Interval {
    /// All intervals, shortest first.
    pub const ALL: [Self; 5] = [Self::Minute, Self::Hour, Self::Day, Self::Week, Self::Month];

    /// The name in requests and responses.
    pub fn name(self) -> &'static str {
        match self {
            Self::Minute => "minute",
            Self::Hour => "hour",
            Self::Day => "day",
            Self::Week => "week",
            Self::Month => "month",
        }
    }

    /// Parses a name, case-insensitive.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|interval| interval.name().eq_ignore_ascii_case(name))
    }

    /// True for hours and minutes, whose buckets are labelled with date and time.
    pub fn is_clock(self) -> bool {
        matches!(self, Self::Minute | Self::Hour)
    }
}
