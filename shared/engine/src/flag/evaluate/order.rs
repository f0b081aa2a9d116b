//! The order in which things that depend on each other are evaluated.
//!
//! Must stay true: nothing here recurses, so a chain of any length is walked; time and memory grow with the number of
//! dependencies.

/// Nodes with what they depend on before them, and which of them lie on a circle. Nodes on circles are in the order too.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Order {
    /// Every node once.
    pub nodes: Vec<usize>,
    /// By node: whether its dependencies lead back to it.
    pub circular: Vec<bool>,
}

/// What is known of a node while components are searched for.
#[derive(Clone, Copy)]
struct Seen {
    /// When the node was found.
    found: usize,
    /// The earliest node on the stack that it leads to.
    earliest: usize,
    on_stack: bool,
}

/// Orders the nodes `0..edges.len()`; `edges[n]` are the nodes that `n` depends on. Searches for strongly connected
/// components (Tarjan), which come out with dependencies first.
pub fn order(edges: &[Vec<usize>]) -> Order {
    let mut seen: Vec<Option<Seen>> = vec![None; edges.len()];
    let mut result = Order { nodes: Vec::with_capacity(edges.len()), circular: vec![false; edges.len()] };
    let (mut stack, mut count) = (Vec::new(), 0);
    // A node with the number of its edges that were followed.
    let mut path: Vec<(usize, usize)> = Vec::new();
    for start in 0..edges.len() {
        if seen[start].is_none() {
            path.push((start, 0));
        }
        while let Some((node, followed)) = path.last_mut() {
            let node = *node;
            if *followed == 0 && seen[node].is_none() {
                seen[node] = Some(Seen { found: count, earliest: count, on_stack: true });
                stack.push(node);
                count += 1;
            }
            let next = edges[node].get(*followed).copied();
            *followed += 1;
            match next.map(|next| (next, seen.get(next).copied().flatten())) {
                Some((next, None)) if next < edges.len() => path.push((next, 0)),
                Some((_, Some(other))) if other.on_stack => lower(&mut seen, node, other.found),
                Some(_) => {}
                None => {
                    path.pop();
                    let own = seen[node].map_or(0, |seen| seen.earliest);
                    if let Some((parent, _)) = path.last() {
                        lower(&mut seen, *parent, own);
                    }
                    if seen[node].is_some_and(|seen| seen.found == seen.earliest) {
                        close(node, &mut stack, &mut seen, edges, &mut result);
                    }
                }
            }
        }
    }
    result
}

fn lower(seen: &mut [Option<Seen>], node: usize, earliest: usize) {
    if let Some(seen) = &mut seen[node] {
        seen.earliest = seen.earliest.min(earliest);
    }
}

/// Takes a whole component, whose first node is `root`, off the stack.
fn close(
    root: usize,
    stack: &mut Vec<usize>,
    seen: &mut [Option<Seen>],
    edges: &[Vec<usize>],
    into: &mut Order,
) {
    let first = into.nodes.len();
    while let Some(node) = stack.pop() {
        if let Some(seen) = &mut seen[node] {
            seen.on_stack = false;
        }
        into.nodes.push(node);
        if node == root {
            break;
        }
    }
    let component = &into.nodes[first..];
    if component.len() > 1 || edges[root].contains(&root) {
        component.iter().for_each(|node| into.circular[*node] = true);
    }
}

/// The nodes given and all that they depend on at any depth, ascending.
pub fn reachable<'a>(
    from: impl IntoIterator<Item = usize>,
    edges: impl Fn(usize) -> &'a [usize],
) -> Vec<usize> {
    let mut seen = std::collections::BTreeSet::new();
    let mut pending: Vec<usize> = from.into_iter().collect();
    while let Some(node) = pending.pop() {
        if seen.insert(node) {
            pending.extend_from_slice(edges(node));
        }
    }
    seen.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependencies_come_first() {
        let result = order(&[vec![2, 1], vec![3], vec![3], vec![], vec![0]]);
        let place = |node| result.nodes.iter().position(|other| *other == node);
        assert_eq!(result.nodes.len(), 5);
        for (node, on) in [(0, 2), (0, 1), (1, 3), (2, 3), (4, 0)] {
            assert!(place(on) < place(node), "{node} depends on {on}: {:?}", result.nodes);
        }
        assert_eq!(result.circular, [false; 5]);
    }

    #[test]
    fn circles_are_marked_and_nothing_else() {
        // 0 leads into the circle 1 → 2 → 3 → 1, which leads to 4; 5 depends on itself.
        let result = order(&[vec![1], vec![2], vec![3], vec![1, 4], vec![], vec![5]]);
        assert_eq!(result.circular, [false, true, true, true, false, true]);
        let place = |node| result.nodes.iter().position(|other| *other == node);
        assert!(place(4) < place(1) && place(1) < place(0));
    }

    #[test]
    fn long_chains_need_no_stack() {
        let count = 200_000;
        let edges: Vec<Vec<usize>> =
            (0..count).map(|node| if node + 1 < count { vec![node + 1] } else { vec![] }).collect();
        let result = order(&edges);
        assert_eq!(result.nodes.first(), Some(&(count - 1)));
        assert_eq!(result.nodes.last(), Some(&0));
        assert_eq!(reachable([count - 3], |node| &edges[node]), [count - 3, count - 2, count - 1]);
    }
}
