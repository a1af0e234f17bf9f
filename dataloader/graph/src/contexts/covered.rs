/// Stands for the number of a node that is not covered.
const NONE: u32 = u32::MAX;

/// The nodes that walks start at and pairs may hold, where these are not all: inductively those whose features training may read.
#[derive(Clone, Debug)]
pub struct Covered {
    /// By node, its number among them.
    number_of: Vec<u32>,
    nodes: Vec<u32>,
}

impl Covered {
    /// Those nodes whose flag is set.
    pub fn new(flags: impl IntoIterator<Item = bool>) -> Covered {
        let mut covered = Covered { number_of: Vec::new(), nodes: Vec::new() };
        for (node, flag) in (0u32..).zip(flags) {
            covered.number_of.push(if flag { covered.nodes.len() as u32 } else { NONE });
            if flag {
                covered.nodes.push(node);
            }
        }
        covered
    }

    /// The nodes, in order.
    pub fn nodes(&self) -> &[u32] {
        &self.nodes
    }

    /// The number of a node among them; `None` where it is not covered.
    pub fn number(&self, node: u32) -> Option<u32> {
        self.number_of.get(node as usize).copied().filter(|number| *number != NONE)
    }

    /// Nodes of the graph that it was made for.
    pub(super) fn of(&self) -> usize {
        self.number_of.len()
    }
}
