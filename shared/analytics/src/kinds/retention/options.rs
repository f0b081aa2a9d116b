//! The options of a retention query.

use crate::query::NumberSource;

/// Which starting events of an actor count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RetentionType {
    /// Those in every period.
    #[default]
    Recurring,
    /// The first one over all time that passes all filters.
    FirstTime,
    /// The first event over all time of the target's name or action, if one at that time passes the target's filters.
    FirstEver,
}

impl RetentionType {
    /// The names that requests use.
    pub const NAMES: [(&'static str, Self); 3] = [
        ("retention_recurring", Self::Recurring),
        ("retention_first_time", Self::FirstTime),
        ("retention_first_ever_occurrence", Self::FirstEver),
    ];
}

/// How the time from a start to a return is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TimeWindowMode {
    /// In periods of the calendar.
    #[default]
    CalendarDates,
    /// In windows from the actor's own start.
    TwentyFourHourWindows,
}

impl TimeWindowMode {
    /// The names that requests use.
    pub const NAMES: [(&'static str, Self); 2] =
        [("strict_calendar_dates", Self::CalendarDates), ("24_hour_windows", Self::TwentyFourHourWindows)];
}

/// What is added up beside the number of actors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Aggregation {
    /// The sum or the average per actor.
    pub statistic: AggregationType,
    /// The number of an event: a property of it or of its person.
    pub number: NumberSource,
}

/// The statistic of an [`Aggregation`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AggregationType {
    /// The sum over all actors of a cell.
    Sum,
    /// The sum divided by the number of actors.
    Average,
}

impl AggregationType {
    /// The names that requests use; `None` counts only.
    pub const NAMES: [(&'static str, Option<Self>); 3] =
        [("count", None), ("sum", Some(Self::Sum)), ("avg", Some(Self::Average))];
}

/// The name of an option.
pub fn name_of<T: PartialEq>(names: &[(&'static str, T)], option: &T) -> &'static str {
    names.iter().find(|(_, known)| known == option).map_or("", |(name, _)| *name)
}
