//! Partial results as one process merges them, beside their serialised forms as another one does.

use pennon_analytics::part_format::{decode, encode};
use pennon_analytics::people::MatchedActor;
use pennon_analytics::{PartitionResult, Plan, QueryOutput};
use pennon_filters::CalcError;

#[derive(Default)]
pub struct MergedPartials {
    plain: PartitionResult,
    decoded: PartitionResult,
}

impl MergedPartials {
    /// Merges a partial result and what its bytes decode to. They must be equal, as must be what they were merged to.
    pub fn add(&mut self, partial: PartitionResult) {
        let decoded = decoded(&partial);
        self.plain = std::mem::take(&mut self.plain).merge(partial);
        self.decoded = std::mem::take(&mut self.decoded).merge(decoded);
    }

    /// The final result, which must be the same for the decoded ones, and once more for the bytes of their sum.
    pub fn finish(self, plan: &Plan) -> Result<QueryOutput, CalcError> {
        let again = plan.finish(decoded(&self.decoded), &|| false);
        let merged = plan.finish(self.decoded, &|| false);
        let plain = plan.finish(self.plain, &|| false);
        assert_eq!(merged, plain, "decoded partial results have another final result");
        assert_eq!(again, plain, "the decoded sum has another final result");
        plain
    }
}

/// The partial result that the bytes of another one decode to.
pub fn decoded(partial: &PartitionResult) -> PartitionResult {
    let decoded = PartitionResult::from_bytes(&partial.to_bytes().unwrap()).unwrap();
    assert_eq!(&decoded, partial);
    decoded
}

/// The actors that the bytes of a list decode to.
pub fn decoded_people(people: &Vec<MatchedActor>) -> Vec<MatchedActor> {
    let decoded = decode(&encode(people).unwrap()).unwrap();
    assert_eq!(&decoded, people);
    decoded
}
