//! The number of partitions over which the blocks of a project are spread, a setting of the project.
//!
//! The setting is a row of the project's manifest. Writers of blocks may know it a minute late, because each block names in
//! its id the number that its writer knew. Readers read blocks first and the manifest after them, and read the blocks again if
//! the manifest has more partitions than they read: a block in a new partition was written after the row, so no reader that
//! starts later misses it. Must stay true: the number of a project only grows.

/// The number of partitions of projects without the setting.
const COUNT_MIN: u8 = 4;
/// The highest power of two that multiplies [`COUNT_MIN`].
const EXPONENT_MAX: u8 = 4;

/// A number of partitions for blocks: 4, 8, 16, 32 or 64.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlockPartitions(u8);

impl BlockPartitions {
    /// The partitions of projects without the setting.
    pub const DEFAULT: BlockPartitions = BlockPartitions(0);

    /// The partitions of `count`; `None` for a count that is not supported.
    pub fn new(count: u8) -> Option<BlockPartitions> {
        (0..=EXPONENT_MAX).map(BlockPartitions).find(|partitions| partitions.count() == count)
    }

    /// Their number.
    pub fn count(self) -> u8 {
        COUNT_MIN << self.0
    }

    /// The power of two that multiplies the default.
    pub(crate) fn exponent(self) -> u8 {
        self.0
    }

    /// The inverse of [`BlockPartitions::exponent`].
    pub(crate) fn of_exponent(exponent: u8) -> Option<BlockPartitions> {
        (exponent <= EXPONENT_MAX).then_some(BlockPartitions(exponent))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn powers_of_two_from_4_to_64_are_numbers_of_partitions() {
        let supported = (0..=u8::MAX).filter(|count| BlockPartitions::new(*count).is_some());
        assert_eq!(supported.collect::<Vec<_>>(), [4, 8, 16, 32, 64]);
        assert_eq!(BlockPartitions::DEFAULT.count(), 4);
        for partitions in [4, 8, 16, 32, 64].into_iter().filter_map(BlockPartitions::new) {
            assert_eq!(BlockPartitions::of_exponent(partitions.exponent()), Some(partitions));
        }
        assert_eq!(BlockPartitions::of_exponent(5), None);
    }
}
