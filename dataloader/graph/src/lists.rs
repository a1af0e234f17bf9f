//! Neighbour lists as they are published.

use crate::Graph;

/// What is done about an entry whose counterpart is missing: `j` in the list of `i`, but not `i` as often in that of `j`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Asymmetry {
    /// It is an error.
    #[default]
    Refuse,
    /// The counterpart is added, at the end of its list.
    Mend,
}

/// A list that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadList {
    /// The node whose list it is.
    pub node: u32,
    /// What is wrong.
    pub why: String,
}

impl Graph {
    /// A graph of neighbour lists, one a node; order and repeats are kept, and repeats count as weight.
    ///
    /// # Errors
    ///
    /// A list that names a node that is not there, or with [`Asymmetry::Refuse`] an entry without its counterpart.
    pub fn from_lists(mut lists: Vec<Vec<u32>>, asymmetry: Asymmetry) -> Result<Graph, BadList> {
        let nodes = lists.len();
        for (node, list) in lists.iter().enumerate() {
            if let Some(other) = list.iter().find(|other| **other as usize >= nodes) {
                let why = format!("neighbour {other} in a graph with {nodes} nodes");
                return Err(BadList { node: node as u32, why });
            }
        }
        let missing = missing_entries(&lists);
        if let (Asymmetry::Refuse, Some((node, other))) = (asymmetry, missing.first()) {
            return Err(BadList { node: *node, why: unanswered(&lists, *node, *other) });
        }
        for (node, other) in missing {
            lists[other as usize].push(node);
        }
        let mut offsets = Vec::with_capacity(nodes + 1);
        offsets.push(0u64);
        offsets.extend(lists.iter().scan(0u64, |sum, list| {
            *sum += list.len() as u64;
            Some(*sum)
        }));
        Ok(Graph { offsets: offsets.into(), neighbours: lists.concat().into(), weights: None })
    }
}

/// Why the entry `other` in the list of `node` is refused, with a hint. A number beyond the last list may be no node's at all: what is
/// missing would make it one.
fn unanswered(lists: &[Vec<u32>], node: u32, other: u32) -> String {
    let theirs = &lists[other as usize];
    let last = lists.iter().rposition(|list| !list.is_empty()).unwrap_or_default();
    if theirs.is_empty() && other as usize > last {
        return format!(
            "node {node} lists {other}, which lists no node; the highest that does is {last}\n\
             hint: correct the number, give node {other} a list, or let `segue data graph --symmetrise` write lists with what is missing"
        );
    }
    let why = match theirs.contains(&node) {
        true => format!("node {node} lists {other} more often than {other} lists {node}"),
        false if theirs.is_empty() => format!("node {node} lists {other}, which lists no node"),
        false => format!("node {node} lists {other}, which does not list {node}"),
    };
    format!(
        "{why}\nhint: correct it, or let `segue data graph --symmetrise` write lists with what is missing"
    )
}

/// Entries `(i, j)`, `j` in the list of `i`, without a counterpart, in the order of `i`, then of `j`.
fn missing_entries(lists: &[Vec<u32>]) -> Vec<(u32, u32)> {
    let mut forward: Vec<(u32, u32)> = lists
        .iter()
        .enumerate()
        .flat_map(|(node, list)| list.iter().map(move |other| (node as u32, *other)))
        .collect();
    let mut backward: Vec<(u32, u32)> = forward.iter().map(|(from, to)| (*to, *from)).collect();
    forward.sort_unstable();
    backward.sort_unstable();
    let mut theirs = backward.into_iter().peekable();
    let mut missing = Vec::new();
    for entry in forward {
        while theirs.next_if(|other| *other < entry).is_some() {}
        if theirs.next_if_eq(&entry).is_none() {
            missing.push(entry);
        }
    }
    missing
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_and_repeats_are_kept() {
        let graph =
            Graph::from_lists(vec![vec![2, 1, 1, 0], vec![0, 0], vec![0]], Asymmetry::Refuse).unwrap();
        assert_eq!(graph.neighbours(0), [2, 1, 1, 0]);
        assert_eq!(graph.edges().count(), 4);
    }

    #[test]
    fn what_is_asymmetric_is_refused_or_mended() {
        let lists = || vec![vec![1, 1, 2], vec![0], vec![]];
        for (lists, why) in [
            (lists(), "node 0 lists 1 more often than 1 lists 0\n"),
            (vec![vec![1], vec![0, 2], vec![2]], "node 1 lists 2, which does not list 1\n"),
            (vec![vec![1], vec![], vec![2]], "node 0 lists 1, which lists no node\n"),
            // This may be no node at all.
            (
                vec![vec![1], vec![0, 3], vec![2], vec![]],
                "node 1 lists 3, which lists no node; the highest that does is 2\n",
            ),
        ] {
            let bad = Graph::from_lists(lists, Asymmetry::Refuse).unwrap_err();
            assert!(bad.why.starts_with(why), "{}", bad.why);
            assert!(bad.why.contains("--symmetrise"), "{}", bad.why);
            assert_eq!(bad.node, why[5..6].parse::<u32>().unwrap());
        }
        let graph = Graph::from_lists(lists(), Asymmetry::Mend).unwrap();
        assert_eq!((graph.neighbours(1), graph.neighbours(2)), (&[0, 0][..], &[0][..]));
        let bad = Graph::from_lists(vec![vec![1]], Asymmetry::Mend).unwrap_err();
        assert_eq!(bad.why, "neighbour 1 in a graph with 1 nodes");
    }
}
