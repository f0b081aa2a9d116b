//! Which rows of a run pass a filter.
//!
//! Must stay true: [`Mask::Rows`] has one entry per row of its run.

/// The rows of a run that pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Mask {
    /// All rows.
    Every,
    /// No row.
    Nothing,
    /// Rows with `true`; one entry per row.
    Rows(Vec<bool>),
}

impl Mask {
    /// Every row, or none.
    pub(crate) fn constant(passes: bool) -> Self {
        if passes { Self::Every } else { Self::Nothing }
    }

    /// From one entry per row.
    pub(crate) fn of(rows: Vec<bool>) -> Self {
        match rows.first() {
            Some(first) if rows.iter().all(|row| row == first) => Self::constant(*first),
            _ => Self::Rows(rows),
        }
    }

    /// Whether a row passes.
    pub(crate) fn has(&self, row: usize) -> bool {
        match self {
            Self::Every => true,
            Self::Nothing => false,
            Self::Rows(rows) => rows.get(row).is_some_and(|passes| *passes),
        }
    }

    /// The rows that pass both masks.
    #[must_use]
    pub(crate) fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Nothing, _) | (_, Self::Nothing) => Self::Nothing,
            (Self::Every, mask) | (mask, Self::Every) => mask,
            (Self::Rows(mut left), Self::Rows(right)) => {
                left.iter_mut().zip(&right).for_each(|(left, right)| *left &= right);
                Self::Rows(left)
            }
        }
    }

    /// The rows that pass either mask.
    #[must_use]
    pub(crate) fn or(self, other: Self) -> Self {
        match (self, other) {
            (Self::Every, _) | (_, Self::Every) => Self::Every,
            (Self::Nothing, mask) | (mask, Self::Nothing) => mask,
            (Self::Rows(mut left), Self::Rows(right)) => {
                left.iter_mut().zip(&right).for_each(|(left, right)| *left |= right);
                Self::Rows(left)
            }
        }
    }
}
