//! The dependency graph of flags, in topological order.
//!
//! Must stay true: a flag is marked as unresolvable (transitively, a dependency does not exist or is on a cycle)
//! regardless of the order in which flags are given.

use std::collections::{BTreeMap, BTreeSet};

use super::topological_order;
use crate::conditions::record_ids;
use crate::flag::Flag;

/// The flags of a project, numbered in topological order: dependencies come first.
#[derive(Debug, Default)]
pub struct DependencyGraph<'a> {
    /// Indexed by number.
    pub nodes: Vec<DependencyNode<'a>>,
    numbers: BTreeMap<i64, usize>,
}

/// A flag with its dependencies.
#[derive(Debug)]
pub struct DependencyNode<'a> {
    /// The flag.
    pub flag: &'a Flag,
    /// The numbers of its dependencies, in order of appearance, without duplicates.
    pub depends_on: Vec<usize>,
    /// Whether a dependency is missing or on a cycle.
    pub unresolvable: bool,
}

impl<'a> DependencyGraph<'a> {
    /// Builds the graph of the flags that are not deleted.
    pub fn new(flags: impl IntoIterator<Item = &'a Flag>) -> Self {
        let flags: BTreeMap<i64, &Flag> =
            flags.into_iter().filter(|flag| !flag.deleted).map(|flag| (flag.id, flag)).collect();
        let places: BTreeMap<i64, usize> = flags.keys().enumerate().map(|(place, id)| (*id, place)).collect();
        let flags: Vec<&Flag> = flags.into_values().collect();
        let needed: Vec<Vec<Option<usize>>> = flags
            .iter()
            .map(|flag| {
                let ids = record_ids::dependency_ids(&flag.filters).into_iter();
                ids.map(|id| places.get(&id?).copied()).collect()
            })
            .collect();
        let edges: Vec<Vec<usize>> =
            needed.iter().map(|needed| needed.iter().copied().flatten().collect()).collect();
        let order = topological_order::topological_order(&edges);

        let mut numbers = vec![0; flags.len()];
        for (number, place) in order.nodes.iter().enumerate() {
            numbers[*place] = number;
        }
        let mut nodes: Vec<DependencyNode<'_>> = Vec::with_capacity(flags.len());
        for place in order.nodes {
            let depends_on: Vec<usize> = edges[place].iter().map(|other| numbers[*other]).collect();
            let is_unresolvable = |number: &usize| nodes.get(*number).is_none_or(|node| node.unresolvable);
            let unresolvable = order.is_cyclic[place]
                || needed[place].iter().any(Option::is_none)
                || depends_on.iter().any(is_unresolvable);
            nodes.push(DependencyNode { flag: flags[place], depends_on, unresolvable });
        }
        let numbers = nodes.iter().enumerate().map(|(number, node)| (node.flag.id, number)).collect();
        Self { nodes, numbers }
    }

    /// The number of a flag.
    pub fn number(&self, id: i64) -> Option<usize> {
        self.numbers.get(&id).copied()
    }

    /// Numbers by flag id.
    pub fn numbers(&self) -> &BTreeMap<i64, usize> {
        &self.numbers
    }

    /// The evaluation order of a flag and its dependencies; the flag itself is last. Empty when it is unresolvable.
    pub fn chain(&self, number: usize) -> Vec<usize> {
        let mut chain = Vec::new();
        if self.nodes[number].unresolvable {
            return chain;
        }
        let mut seen = BTreeSet::from([number]);
        // A flag with the number of its dependencies that were followed.
        let mut path = vec![(number, 0)];
        while let Some((number, followed)) = path.last_mut() {
            match self.nodes[*number].depends_on.get(*followed) {
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
