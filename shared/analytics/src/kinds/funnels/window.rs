//! The conversion window of a funnel.

/// A conversion window: the time allowed from the first step to the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConversionWindow {
    /// Number of units; at least 1.
    pub count: i64,
    /// The unit.
    pub unit: WindowUnit,
}

/// Unit of a conversion window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are self-explanatory")]
pub enum WindowUnit {
    Second,
    Minute,
    Hour,
    Day,
    Week,
    /// 31 days.
    Month,
}

impl ConversionWindow {
    /// Duration in microseconds.
    pub fn micros(self) -> i64 {
        self.count.saturating_mul(self.unit.seconds()).saturating_mul(1_000_000)
    }
}

impl WindowUnit {
    const NAMES: [(&'static str, Self, i64); 6] = [
        ("second", Self::Second, 1),
        ("minute", Self::Minute, 60),
        ("hour", Self::Hour, 3_600),
        ("day", Self::Day, 86_400),
        ("week", Self::Week, 604_800),
        ("month", Self::Month, 31 * 86_400),
    ];

    /// The names that requests use.
    pub fn names() -> [&'static str; 6] {
        Self::NAMES.map(|(name, ..)| name)
    }

    /// Parses a unit name; case-insensitive, with or without a plural `s`.
    pub fn from_name(name: &str) -> Option<Self> {
        let name = name.to_ascii_lowercase();
        let singular = name.strip_suffix('s').unwrap_or(&name);
        Self::NAMES.iter().find(|(known, ..)| *known == singular).map(|(_, unit, _)| *unit)
    }

    /// The name that requests use.
    pub fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, unit, _)| *unit == self).map_or("day", |(name, ..)| *name)
    }

    /// Duration in seconds.
    pub fn seconds(self) -> i64 {
        Self::NAMES.iter().find(|(_, unit, _)| *unit == self).map_or(86_400, |(.., seconds)| *seconds)
    }
}
