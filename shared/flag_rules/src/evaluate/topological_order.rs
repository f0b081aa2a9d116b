//! Topological order of dependencies, and detection of cycles (Tarjan's algorithm, iterative).
//!
//! Must stay true: nothing here recurses, so chains may have any length; time and memory are linear in the number of
//! dependencies.

/// Nodes in topological order (dependencies first), and which of them are on a cycle. Nodes on cycles are included.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct TopologicalOrder {
    /// Every node once.
    pub nodes: Vec<usize>,
    /// By node: whether it is on a cycle.
    pub is_cyclic: Vec<bool>,
}

/// The state of a node in Tarjan's algorithm.
#[derive(Clone, Copy)]
struct NodeState {
    /// The discovery index.
    index: usize,
    /// The smallest discovery index on the stack that is reachable from the node.
    lowlink: usize,
    on_stack: bool,
}

/// Sorts the nodes `0..edges.len()`; `edges[n]` are the nodes that `n` depends on. Tarjan's algorithm yields strongly
/// connected components with dependencies first.
pub fn topological_order(edges: &[Vec<usize>]) -> TopologicalOrder {
    let mut states: Vec<Option<NodeState>> = vec![None; edges.len()];
    let mut result =
        TopologicalOrder { nodes: Vec::with_capacity(edges.len()), is_cyclic: vec![false; edges.len()] };
    let (mut stack, mut count) = (Vec::new(), 0);
    // A node with the number of its edges that were followed.
    let mut path: Vec<(usize, usize)> = Vec::new();
    for start in 0..edges.len() {
        if states[start].is_none() {
            path.push((start, 0));
        }
        while let Some((node, followed)) = path.last_mut() {
            let node = *node;
            if *followed == 0 && states[node].is_none() {
                states[node] = Some(NodeState { index: count, lowlink: count, on_stack: true });
                stack.push(node);
                count += 1;
            }
            let next = edges[node].get(*followed).copied();
            *followed += 1;
            match next.map(|next| (next, states.get(next).copied().flatten())) {
                Some((next, None)) if next < edges.len() => path.push((next, 0)),
                Some((_, Some(other))) if other.on_stack => lower_lowlink(&mut states, node, other.index),
                Some(_) => {}
                None => {
                    path.pop();
                    let own = states[node].map_or(0, |state| state.lowlink);
                    if let Some((parent, _)) = path.last() {
                        lower_lowlink(&mut states, *parent, own);
                    }
                    if states[node].is_some_and(|state| state.index == state.lowlink) {
                        pop_component(node, &mut stack, &mut states, edges, &mut result);
                    }
                }
            }
        }
    }
    result
}

fn lower_lowlink(states: &mut [Option<NodeState>], node: usize, lowlink: usize) {
    if let Some(state) = &mut states[node] {
        state.lowlink = state.lowlink.min(lowlink);
    }
}

/// Pops a strongly connected component, whose root is `root`, off the stack.
fn pop_component(
    root: usize,
    stack: &mut Vec<usize>,
    states: &mut [Option<NodeState>],
    edges: &[Vec<usize>],
    into: &mut TopologicalOrder,
) {
    let first = into.nodes.len();
    while let Some(node) = stack.pop() {
        if let Some(state) = &mut states[node] {
            state.on_stack = false;
        }
        into.nodes.push(node);
        if node == root {
            break;
        }
    }
    let component = &into.nodes[first..];
    if component.len() > 1 || edges[root].contains(&root) {
        component.iter().for_each(|node| into.is_cyclic[*node] = true);
    }
}

/// The given nodes and their transitive dependencies, ascending.
pub fn reachable<'a>(
    from: impl IntoIterator<Item = usize>,
    edges: impl Fn(usize) -> &'a [usize],
) -> Vec<usize> {
    let mut states = std::collections::BTreeSet::new();
    let mut pending: Vec<usize> = from.into_iter().collect();
    while let Some(node) = pending.pop() {
        if states.insert(node) {
            pending.extend_from_slice(edges(node));
        }
    }
    states.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependencies_come_first() {
        let result = topological_order(&[vec![2, 1], vec![3], vec![3], vec![], vec![0]]);
        let place = |node| result.nodes.iter().position(|other| *other == node);
        assert_eq!(result.nodes.len(), 5);
        for (node, on) in [(0, 2), (0, 1), (1, 3), (2, 3), (4, 0)] {
            assert!(place(on) < place(node), "{node} depends on {on}: {:?}", result.nodes);
        }
        assert_eq!(result.is_cyclic, [false; 5]);
    }

    #[test]
    fn cycles_are_marked_and_nothing_else() {
        // 0 leads into the cycle 1 → 2 → 3 → 1, which leads to 4; 5 depends on itself.
        let result = topological_order(&[vec![1], vec![2], vec![3], vec![1, 4], vec![], vec![5]]);
        assert_eq!(result.is_cyclic, [false, true, true, true, false, true]);
        let place = |node| result.nodes.iter().position(|other| *other == node);
        assert!(place(4) < place(1) && place(1) < place(0));
    }

    #[test]
    fn long_chains_need_no_stack() {
        let count = 200_000;
        let edges: Vec<Vec<usize>> =
            (0..count).map(|node| if node + 1 < count { vec![node + 1] } else { vec![] }).collect();
        let result = topological_order(&edges);
        assert_eq!(result.nodes.first(), Some(&(count - 1)));
        assert_eq!(result.nodes.last(), Some(&0));
        assert_eq!(reachable([count - 3], |node| &edges[node]), [count - 3, count - 2, count - 1]);
    }
}
