//! The states that an installation may be in.
//!
//! An operation that ended without a response may have happened or not, and one that waits may have happened already. So the
//! simulation keeps every state that the documentation permits, and each look at the store rules out those that it contradicts. None
//! left is a failure.

use std::collections::BTreeSet;

use uuid::Uuid;

use super::model::{Effect, Model};

/// Numbers of the projects.
pub const PROJECTS: [u64; 2] = [7, 8];

#[derive(Debug, Clone, PartialEq)]
struct World {
    projects: [Model; 2],
    /// How many effects of the operation that waits have happened.
    done: usize,
}

#[derive(Debug)]
pub struct Worlds(Vec<World>);

fn place(project: u64) -> usize {
    PROJECTS.iter().position(|known| *known == project).unwrap()
}

impl World {
    fn apply(&mut self, project: u64, effects: &[Effect], spared: &BTreeSet<Uuid>) {
        effects.iter().for_each(|effect| self.projects[place(project)].apply(effect, spared));
    }
}

impl Worlds {
    pub fn new(counts_duplicates: bool) -> Worlds {
        let projects = PROJECTS.map(|project| Model::new(project, counts_duplicates));
        Worlds(vec![World { projects, done: 0 }])
    }

    /// How many states are possible.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// All of `effects` happened.
    pub fn apply(&mut self, project: u64, effects: &[Effect]) {
        self.0.iter_mut().for_each(|world| world.apply(project, effects, &BTreeSet::new()));
    }

    /// The operation waits or has ended somewhere: any number of its effects have happened.
    pub fn apply_some(&mut self, project: u64, effects: &[Effect]) {
        for world in std::mem::take(&mut self.0) {
            for done in world.done..=effects.len() {
                let mut next = world.clone();
                next.apply(project, &effects[world.done..done], &BTreeSet::new());
                next.done = done;
                self.add(next);
            }
        }
    }

    /// The operation that waited is over, with all of its effects. An erasure may have spared some events.
    pub fn apply_rest(&mut self, project: u64, effects: &[Effect], spared: &BTreeSet<Uuid>) {
        for world in std::mem::take(&mut self.0) {
            for spared in [&BTreeSet::new(), spared] {
                let mut next = world.clone();
                next.apply(project, &effects[world.done..], spared);
                self.add(next);
            }
        }
    }

    /// No operation is open.
    pub fn settle(&mut self) {
        for mut world in std::mem::take(&mut self.0) {
            world.done = 0;
            self.add(world);
        }
    }

    fn add(&mut self, world: World) {
        if !self.0.contains(&world) {
            self.0.push(world);
        }
    }

    /// Keeps the worlds that give `found` for `project`; the expectation of the first one, and what was found, if none is left.
    pub fn keep<T: PartialEq + std::fmt::Debug>(
        &mut self,
        project: u64,
        found: &T,
        expected: impl Fn(&Model) -> T,
    ) -> Result<(), String> {
        let place = place(project);
        let first = expected(&self.0[0].projects[place]);
        let count = self.0.len();
        self.0.retain(|world| expected(&world.projects[place]) == *found);
        if self.0.is_empty() {
            return Err(format!(
                "expected {first:?}\n   found {found:?}\n   (none of {count} possible states)"
            ));
        }
        Ok(())
    }
}
