//! The partial result: actors by the variant that they saw.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::actor_values::ActorValue;
use super::exposures::{Exposures, Seen};
use crate::inference::moments::Moments;
use crate::inference::proportions::Proportion;
use crate::kinds::flag_impact::limits;

/// The actors of some partitions.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct FlagImpactCounts {
    pub(super) variants: BTreeMap<String, VariantCounts>,
    /// Actors that saw several variants.
    pub(super) several: u64,
}

/// The actors that saw one variant.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct VariantCounts {
    pub(super) exposed: u64,
    pub(super) converted: u64,
    /// Their numbers.
    pub(super) numbers: Moments,
}

impl VariantCounts {
    pub(super) fn proportion(&self) -> Proportion {
        Proportion { persons: self.exposed, converted: self.converted }
    }
}

impl FlagImpactCounts {
    pub(super) fn new(exposures: &Exposures, values: &[ActorValue]) -> Self {
        let mut variants = vec![VariantCounts::default(); exposures.names.len()];
        let mut several = 0;
        for (actor, value) in values.iter().enumerate() {
            match exposures.seen(actor) {
                Some(Seen::Variant(variant)) => {
                    if let Some(counts) = variants.get_mut(variant) {
                        counts.exposed += 1;
                        counts.converted += u64::from(value.converted);
                        counts.numbers.add(value.number);
                    }
                }
                Some(Seen::Several) => several += 1,
                None => {}
            }
        }
        // A variant that only actors with several have seen has no row.
        let seen = exposures.names.iter().cloned().zip(variants).filter(|(_, counts)| counts.exposed > 0);
        Self { variants: seen.collect(), several }
    }

    /// Merges two partial results. At most one variant more than the limit is kept.
    #[must_use]
    pub(crate) fn merge(mut self, other: Self) -> Self {
        self.several += other.several;
        for (name, counts) in other.variants {
            if self.has_too_many_variants() {
                break;
            }
            let sum = self.variants.entry(name).or_default();
            sum.exposed += counts.exposed;
            sum.converted += counts.converted;
            sum.numbers.merge(counts.numbers);
        }
        self
    }

    /// Whether the limit on variants is exceeded. Merging further results does not change that.
    pub(super) fn has_too_many_variants(&self) -> bool {
        self.variants.len() > limits::SEEN_VARIANTS
    }
}
