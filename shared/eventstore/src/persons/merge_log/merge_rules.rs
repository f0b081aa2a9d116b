//! Which merges happen: the rule, without a store.
//!
//! `$identify` and `$create_alias` merge a person that has not been identified yet; so a device that two people use does
//! not make them one. `$merge_dangerously` always merges. Whoever is merged into is identified from then on, also where
//! the merge is refused, and who was merged is a part of somebody identified; so is whoever was imported with several
//! ids. So it is enough to know of each distinct id whether it was ever named: all ids of an unidentified person but
//! itself would have had to be.
//!
//! Must stay true: judged again, nothing happens twice; persons that are one already stay as they are.

use std::collections::BTreeSet;

use uuid::Uuid;

use super::PersonMerge;
use crate::persons::person_ids::{Link, MergeRequest};

/// A merge that an event asks for, and when.
pub(super) type TimedMergeRequest = (MergeRequest, pennon_engine::scan::Micros);

/// What is known of those whom merges name.
#[derive(Debug, Clone, Default)]
pub(super) struct MergeFacts {
    pub identified: BTreeSet<Uuid>,
    /// Forced merges that happened before.
    pub forced: BTreeSet<(Uuid, Uuid)>,
}

impl MergeFacts {
    /// Knows what has happened by now, too.
    pub(super) fn take(&mut self, decision: MergeDecision) {
        self.identified.extend(decision.identified.into_iter().map(|(person, _)| person));
        self.forced.extend(decision.forced.iter().map(|link| (link.from, link.to)));
    }
}

/// What happens.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct MergeDecision {
    pub merges: Vec<PersonMerge>,
    /// Who was not identified and is now. True where the merge of that person demands that nobody else identifies it
    /// meanwhile.
    pub identified: Vec<(Uuid, bool)>,
    /// Forced merges that had not happened.
    pub forced: Vec<Link>,
}

/// What happens of `requests`, in its order.
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
        // A forced merge is remembered as such: it may happen to somebody identified.
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

    /// Persons as groups of ids, each identified or not; merging as it is told.
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
        fn who_is_one_person_is_as_it_is_told(
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
                let ask = |(from, to, forced): &(u8, u8, bool)| {
                    (MergeRequest { link: Link { from: person(*from), to: person(*to) }, forced: *forced }, 0)
                };
                let now = now.iter().map(ask).collect::<Vec<_>>();
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
