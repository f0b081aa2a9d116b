//! Lists the actors behind a number.
//!
//! Must stay true: the list has as many actors as the number counts.

use pennon_filters::error::{CalcError, CalcResult};
use pennon_filters::work_budget::WorkBudget;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::CompiledFlagImpact;
use super::exposures::Seen;
use crate::people::MatchedActor;
use crate::scan::Partition;

/// The parameter with the variant.
pub(super) const VARIANT: &str = "variant";
/// The parameter with the outcome.
pub(super) const OUTCOME: &str = "outcome";

/// The values of the parameter `outcome`.
pub(super) const EXPOSED: &str = "exposed";
pub(super) const CONVERTED: &str = "converted";
const NOT_CONVERTED: &str = "not_converted";
pub(super) const SEVERAL_VARIANTS: &str = "several_variants";

/// The actors behind a number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ImpactPoint {
    /// Those that saw a variant.
    Variant {
        /// The variant.
        variant: String,
        /// Only those that converted, or did not.
        converted: Option<bool>,
    },
    /// Those that saw several variants.
    SeveralVariants,
}

/// Parses the parameters of a people link.
pub(crate) fn parse_point(request: &Map<String, Value>) -> CalcResult<ImpactPoint> {
    let text = |key: &str| request.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
    let converted = match text(OUTCOME) {
        None | Some(EXPOSED) => None,
        Some(CONVERTED) => Some(true),
        Some(NOT_CONVERTED) => Some(false),
        Some(SEVERAL_VARIANTS) => return Ok(ImpactPoint::SeveralVariants),
        Some(other) => {
            let names = [EXPOSED, CONVERTED, NOT_CONVERTED, SEVERAL_VARIANTS].join(", ");
            let detail = format!("\"{other}\" is not an outcome. It must be one of {names}.");
            return Err(CalcError::invalid(OUTCOME, detail));
        }
    };
    match text(VARIANT) {
        Some(variant) => Ok(ImpactPoint::Variant { variant: variant.to_owned(), converted }),
        None => Err(CalcError::coded("required", Some(VARIANT), "This field is required.")),
    }
}

impl CompiledFlagImpact {
    /// The selected actors of a partition with the times of their first exposure, sorted by id.
    pub(crate) fn list_people(
        &self,
        partition: &Partition,
        point: &ImpactPoint,
        work: &WorkBudget<'_>,
    ) -> CalcResult<Vec<MatchedActor>> {
        let (exposures, values) = self.read_actors(partition, work)?;
        work.consume(values.len())?;
        let is_selected = |actor: usize| match (point, exposures.seen(actor)) {
            (ImpactPoint::SeveralVariants, Some(Seen::Several)) => true,
            (ImpactPoint::Variant { variant, converted }, Some(Seen::Variant(seen))) => {
                exposures.names.get(seen) == Some(variant)
                    && converted.is_none_or(|converted| values[actor].converted == converted)
            }
            _ => false,
        };
        let selected = (0..values.len()).filter(|actor| is_selected(*actor));
        let matched = selected.filter_map(|actor| {
            Some(MatchedActor {
                actor: *partition.actors.get(actor)?,
                key: partition.keys.get(actor).cloned(),
                times: vec![exposures.first(actor)],
                appearances: Vec::new(),
            })
        });
        Ok(matched.collect())
    }
}
