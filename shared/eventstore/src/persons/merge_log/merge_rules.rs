//! Which requested merges are applied: the rule, as a pure function.
//!
//! `$identify` and `$create_alias` merge a person only if it has not been identified, so two users of one
//! device stay two persons. `$merge_dangerously` always merges. The person that is merged into is identified
//! from then on, even if the merge is refused; a merged person is part of an identified one; a person imported
//! with several ids is identified. So it suffices to know for each distinct id whether it was ever named: any
//! other id of an unidentified person would have been named.
//!
//! Must stay true: deciding again applies nothing twice; persons that are already one do not change.

use std::collections::BTreeSet;

use uuid::Uuid;

use super::PersonMerge;
use crate::person_ids::{MergeRequest, PersonLink};

/// A requested merge with its event time.
pub(super) type TimedMergeRequest = (MergeRequest, pennon_analytics::scan::Micros);

/// Facts about the persons that requests name.
#[derive(Debug, Clone, Default)]
pub(super) struct MergeFacts {
    pub identified: BTreeSet<Uuid>,
    /// Forced merges that were applied before.
    pub forced: BTreeSet<(Uuid, Uuid)>,
}

impl MergeFacts {
    /// Adds the outcome of a decision.
    pub(super) fn take(&mut self, decision: MergeDecision) {
        self.identified.extend(decision.identified.into_iter().map(|(person, _)| person));
        self.forced.extend(decision.forced.iter().map(|link| (link.from, link.to)));
    }
}

/// The merges to apply, with their side effects.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct MergeDecision {
    pub merges: Vec<PersonMerge>,
    /// Newly identified persons. True if the merge requires that no other writer identifies the person
    /// meanwhile.
    pub identified: Vec<(Uuid, bool)>,
    /// Newly applied forced merges.
    pub forced: Vec<PersonLink>,
}

/// Decides which of `requests` are applied, in order.
pub(super) fn decide_merges(requests: &[TimedMergeRequest], mut known: MergeFacts) -> MergeDecision {
    let mut decision = MergeDecision::default();
    for (MergeRequest { link, forced }, time) in requests.iter().copied() {
        let happens = if forced {
            known.forced.insert((link.from, link.to))
        } else {
            !known.identified.contains(&link.from)
        };
        if happens {
            decision.merges.push(PersonMerge { link, time });
            if forced {
                decision.forced.push(link);
            }
        }
        // A forced merge has its own marker: it may apply to an identified person.
        if happens && known.identified.insert(link.from) {
            decision.identified.push((link.from, !forced));
        }
        if known.identified.insert(link.to) {
            decision.identified.push((link.to, false));
        }
    }
    decision
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Persons as groups of ids, each identified or not; merged one request after the other.
    struct Model(Vec<(BTreeSet<u8>, bool)>);

    impl Model {
        fn of(&self, id: u8) -> usize {
            self.0.iter().position(|(ids, _)| ids.contains(&id)).unwrap_or(usize::MAX)
        }

        fn take(&mut self, from: u8, to: u8, forced: bool) {
            let (other, stays) = (self.of(from), self.of(to));
            self.0[stays].1 = true;
            if other != stays && (forced || !self.0[other].1) {
                let ids = std::mem::take(&mut self.0[other].0);
                self.0[stays].0.extend(ids);
            }
        }

        fn groups(&self) -> BTreeSet<BTreeSet<u8>> {
            self.0.iter().map(|(ids, _)| ids.clone()).filter(|ids| !ids.is_empty()).collect()
        }
    }

    fn person(n: u8) -> Uuid {
        Uuid::from_u128(u128::from(n))
    }

    proptest! {
        #[test]
        fn merged_persons_equal_those_of_the_model(
            requests in prop::collection::vec((0..8_u8, 0..8_u8, prop::bool::weighted(0.2)), 0..25),
            cuts in prop::collection::vec(1..6_usize, 25),
        ) {
            let requests = requests.into_iter().filter(|(from, to, _)| from != to).collect::<Vec<_>>();
            let mut model = Model((0..8).map(|n| (BTreeSet::from([n]), false)).collect());
            let (mut known, mut links, mut rest) = (MergeFacts::default(), Vec::new(), requests.as_slice());
            for cut in cuts {
                let (now, later) = rest.split_at(cut.min(rest.len()));
                rest = later;
                for (from, to, forced) in now {
                    model.take(*from, *to, *forced);
                }
                let request = |(from, to, forced): &(u8, u8, bool)| {
                    (MergeRequest { link: PersonLink { from: person(*from), to: person(*to) }, forced: *forced }, 0)
                };
                let now = now.iter().map(request).collect::<Vec<_>>();
                let decision = decide_merges(&now, known.clone());
                links.extend(decision.merges.iter().map(|merged| merged.link));
                known.take(decision);
                prop_assert_eq!(decide_merges(&now, known.clone()), MergeDecision::default(), "a second time");
            }
            let resolved = crate::persons::person_merges::PersonMerges::of(links);
            let mut groups = std::collections::BTreeMap::<Uuid, BTreeSet<u8>>::new();
            for id in 0..8 {
                groups.entry(resolved.person(person(id))).or_default().insert(id);
            }
            prop_assert_eq!(groups.into_values().collect::<BTreeSet<_>>(), model.groups());
        }
    }
}
