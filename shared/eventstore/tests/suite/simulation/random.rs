//! Random numbers of a seed.

/// A generator (splitmix64), so that a seed gives the same history in every release of every library.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    pub fn one_in(&mut self, bound: u64) -> bool {
        self.below(bound) == 0
    }

    pub fn pick<'a, T>(&mut self, list: &'a [T]) -> &'a T {
        &list[self.below(list.len() as u64) as usize]
    }

    /// An entry of `list`, each as often as its number says.
    pub fn weighted<T: Copy>(&mut self, list: &[(u64, T)]) -> T {
        let mut left = self.below(list.iter().map(|(weight, _)| weight).sum());
        for (weight, entry) in list {
            match left.checked_sub(*weight) {
                Some(rest) => left = rest,
                None => return *entry,
            }
        }
        unreachable!("the weights sum up")
    }
}
