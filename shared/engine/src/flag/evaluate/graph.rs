//! Which flag depends on which, and in what order they are evaluated.
//!
//! Must stay true: a flag that cannot be resolved (it needs, at any depth, a flag that does not exist or that leads back
//! to itself) is known as such, whatever the order in which flags are given.

use std::collections::{BTreeMap, BTreeSet};

use super::order;
use crate::flag::{Flag, references};

/// The flags of a project, numbered so that a flag comes after those that it depends on.
#[derive(Debug, Default)]
pub struct Graph<'a> {
    /// By number.
    pub nodes: Vec<Node<'a>>,
    numbers: BTreeMap<i64, usize>,
}

/// A flag among its dependencies.
#[derive(Debug)]
pub struct Node<'a> {
    /// The flag.
    pub flag: &'a Flag,
    /// The numbers of the flags that it depends on, in order of appearance, each once.
    pub needs: Vec<usize>,
    /// A flag that it needs is missing, or leads back to itself.
    pub unresolvable: bool,
}

impl<'a> Graph<'a> {
    /// Numbers the flags that are not deleted.
    pub fn new(flags: impl IntoIterator<Item = &'a Flag>) -> Self {
        let flags: BTreeMap<i64, &Flag> =
            flags.into_iter().filter(|flag| !flag.deleted).map(|flag| (flag.id, flag)).collect();
        let places: BTreeMap<i64, usize> = flags.keys().enumerate().map(|(place, id)| (*id, place)).collect();
        let flags: Vec<&Flag> = flags.into_values().collect();
        let needed: Vec<Vec<Option<usize>>> = flags
            .iter()
            .map(|flag| {
                let ids = references::needed_flags(&flag.filters).into_iter();
                ids.map(|id| places.get(&id?).copied()).collect()
            })
            .collect();
        let edges: Vec<Vec<usize>> =
            needed.iter().map(|needed| needed.iter().copied().flatten().collect()).collect();
        let order = order::order(&edges);

        let mut numbers = vec![0; flags.len()];
        for (number, place) in order.nodes.iter().enumerate() {
            numbers[*place] = number;
        }
        let mut nodes: Vec<Node<'_>> = Vec::with_capacity(flags.len());
        for place in order.nodes {
            let needs: Vec<usize> = edges[place].iter().map(|other| numbers[*other]).collect();
            let lost = |number: &usize| nodes.get(*number).is_none_or(|node| node.unresolvable);
            let unresolvable =
                order.circular[place] || needed[place].iter().any(Option::is_none) || needs.iter().any(lost);
            nodes.push(Node { flag: flags[place], needs, unresolvable });
        }
        let numbers = nodes.iter().enumerate().map(|(number, node)| (node.flag.id, number)).collect();
        Self { nodes, numbers }
    }

    /// The number of a flag.
    pub fn number(&self, id: i64) -> Option<usize> {
        self.numbers.get(&id).copied()
    }

    /// Numbers by the ids of flags.
    pub fn numbers(&self) -> &BTreeMap<i64, usize> {
        &self.numbers
    }

    /// The flags to evaluate for one, itself last; each after those that it depends on. Empty when it is unresolvable.
    pub fn chain(&self, number: usize) -> Vec<usize> {
        let mut chain = Vec::new();
        if self.nodes[number].unresolvable {
            return chain;
        }
        let mut seen = BTreeSet::from([number]);
        // A flag with the number of its dependencies that were followed.
        let mut path = vec![(number, 0)];
        while let Some((number, followed)) = path.last_mut() {
            match self.nodes[*number].needs.get(*followed) {
                Some(next) => {
                    *followed += 1;
                    if seen.insert(*next) {
                        path.push((*next, 0));
                    }
                }
                None => {
                    chain.push(*number);
                    path.pop();
                }
            }
        }
        chain
    }
}
