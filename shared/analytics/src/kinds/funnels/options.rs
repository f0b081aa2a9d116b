//! The options of a funnel and of its steps, with the names that requests use.

/// Options of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StepOptions {
    /// Actors may skip the step.
    pub optional: bool,
    /// Only the actor's first event ever matches the step.
    pub first: Option<FirstTime>,
}

/// Among which events the first one is searched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FirstTime {
    /// Among all events of the step's name or action; the first one must also pass the step's filters.
    Ever,
    /// Among the events that pass the step's filters.
    Matching,
}

/// The order in which steps must happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum StepOrder {
    /// One after the other; other events may occur in between.
    #[default]
    Ordered,
    /// One after the other, with no other event in between.
    Strict,
    /// Any order.
    Unordered,
}

/// What the result of a funnel contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FunnelVizType {
    /// Number of actors that reached each step.
    #[default]
    Steps,
    /// Conversion rate by the period in which actors entered.
    Trends,
    /// Distribution of conversion times.
    TimeToConvert,
}

/// Selects the breakdown values that an actor is attributed to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Attribution {
    /// The value of the actor's first event.
    #[default]
    FirstTouch,
    /// The value of the actor's last event.
    LastTouch,
    /// Every value; each is evaluated on only the events that have it.
    AllEvents,
    /// Every value that an event of this step has; only an event with the value can match the step.
    Step(usize),
}

impl StepOrder {
    pub(super) const NAMES: [(&'static str, Self); 3] =
        [("ordered", Self::Ordered), ("strict", Self::Strict), ("unordered", Self::Unordered)];

    /// The names that requests use.
    pub fn names() -> [&'static str; 3] {
        Self::NAMES.map(|(name, _)| name)
    }

    /// The name that requests use.
    pub fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, order)| *order == self).map_or("ordered", |(name, _)| *name)
    }
}

impl FunnelVizType {
    pub(super) const NAMES: [(&'static str, Self); 3] =
        [("steps", Self::Steps), ("trends", Self::Trends), ("time_to_convert", Self::TimeToConvert)];

    /// The names that requests use.
    pub fn names() -> [&'static str; 3] {
        Self::NAMES.map(|(name, _)| name)
    }

    /// The name that requests use.
    pub fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, viz)| *viz == self).map_or("steps", |(name, _)| *name)
    }
}

impl FirstTime {
    /// The name that requests use.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ever => "first_time_for_user",
            Self::Matching => "first_time_for_user_with_filters",
        }
    }
}

impl Attribution {
    /// The names that requests use.
    pub const NAMES: [&str; 4] = ["first_touch", "last_touch", "all_events", "step"];

    /// The name that requests use.
    pub fn name(self) -> &'static str {
        match self {
            Self::FirstTouch => "first_touch",
            Self::LastTouch => "last_touch",
            Self::AllEvents => "all_events",
            Self::Step(_) => "step",
        }
    }

    /// The step of [`Attribution::Step`].
    pub fn step(self) -> Option<usize> {
        match self {
            Self::Step(step) => Some(step),
            _ => None,
        }
    }
}
