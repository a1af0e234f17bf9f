use crate::{Graph, SparseRows};

/// Nodes whose flags or labels are copied for a hash at once: beside a large graph there is little memory left.
const HASHED_AT_ONCE: usize = 1 << 16;

/// What training may read of a node that is tested later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    /// All nodes and their features, but no label of a test node.
    Transductive,
    /// Nothing of a test node but its edges: a classifier is learned that takes features of nodes it has not seen.
    Inductive,
}

impl Setting {
    /// How published files call it.
    pub fn prefix(self) -> &'static str {
        match self {
            Setting::Transductive => "trans",
            Setting::Inductive => "ind",
        }
    }

    /// Nodes whose features training may read: inductively not test nodes.
    pub(crate) fn seen(self, has_features: &[bool], test: &[u32]) -> Vec<bool> {
        let mut seen = has_features.to_vec();
        if self == Setting::Inductive {
            test.iter().for_each(|node| seen[*node as usize] = false);
        }
        seen
    }
}

/// A graph whose nodes are to be classified.
#[derive(Clone, Debug)]
pub struct NodeData {
    /// What the data set is called.
    pub name: String,
    /// Number of classes.
    pub classes: usize,
    /// Edges between nodes.
    pub graph: Graph,
    /// Features, a row for each node: zeros where a node has none.
    pub features: SparseRows,
    /// Whether a node's features are known, by node.
    pub has_features: Vec<bool>,
    /// The class of each node, where it is known: of test nodes and of nodes that train without it too.
    pub labels: Vec<Option<u32>>,
    /// Nodes that are trained on with their label.
    pub train: Vec<u32>,
    /// Nodes that accuracy is measured on, in the order of the file.
    pub test: Vec<u32>,
    /// Whether training may read the features of a node, by node; inductively not those of test nodes.
    pub seen: Vec<bool>,
    /// What training may read.
    pub setting: Setting,
}

impl NodeData {
    /// Whether no node has a feature that is not zero, as in a graph of entities and relations.
    pub fn has_no_features(&self) -> bool {
        self.features.values().is_empty()
    }

    /// Number of nodes.
    pub fn nodes(&self) -> usize {
        self.graph.nodes()
    }

    /// Labels of nodes that are trained on: `(node, class)`, in the order of [`NodeData::train`].
    pub fn labelled(&self) -> Vec<(u32, u32)> {
        let label = |node: &u32| Some((*node, (*self.labels.get(*node as usize)?)?));
        self.train.iter().filter_map(label).collect()
    }

    /// Test nodes by class.
    pub fn test_counts(&self) -> Vec<usize> {
        let mut counts = vec![0; self.classes];
        for node in &self.test {
            if let Some(Some(class)) = self.labels.get(*node as usize)
                && let Some(count) = counts.get_mut(*class as usize)
            {
                *count += 1;
            }
        }
        counts
    }

    /// The accuracy of naming the most frequent class of the test nodes for all of them.
    pub fn majority_rate(&self) -> f64 {
        let most = self.test_counts().into_iter().max().unwrap_or(0);
        most as f64 / self.test.len().max(1) as f64
    }

    /// The same data with node `i` in the place of node `order[i]`; `order` holds every node once.
    pub(crate) fn renumbered(&self, order: &[u32]) -> NodeData {
        let mut place_of = vec![0u32; order.len()];
        (0u32..).zip(order).for_each(|(place, node)| place_of[*node as usize] = place);
        let places = |nodes: &[u32]| nodes.iter().map(|node| place_of[*node as usize]).collect();
        NodeData {
            name: self.name.clone(),
            classes: self.classes,
            graph: self.graph.renumbered(order, &place_of),
            features: self.features.select(order),
            has_features: order.iter().map(|node| self.has_features[*node as usize]).collect(),
            labels: order.iter().map(|node| self.labels[*node as usize]).collect(),
            train: places(&self.train),
            test: places(&self.test),
            seen: order.iter().map(|node| self.seen[*node as usize]).collect(),
            setting: self.setting,
        }
    }

    /// A hash, in hexadecimal, that names the content: graph, features, labels, split and setting.
    pub fn fingerprint(&self) -> String {
        let mut hasher = blake3::Hasher::new();
        hasher.update(b"segue-node-data 1\n");
        hasher.update(self.setting.prefix().as_bytes());
        hasher.update(&(self.classes as u64).to_le_bytes());
        self.graph.hash_into(&mut hasher);
        self.features.hash_into(&mut hasher);
        for flags in [&self.has_features, &self.seen] {
            for flags in flags.chunks(HASHED_AT_ONCE) {
                hasher.update(&flags.iter().map(|flag| u8::from(*flag)).collect::<Vec<_>>());
            }
        }
        for labels in self.labels.chunks(HASHED_AT_ONCE) {
            let labels: Vec<u32> = labels.iter().map(|label| label.unwrap_or(u32::MAX)).collect();
            hasher.update(bytemuck::cast_slice(&labels));
        }
        for nodes in [&self.train, &self.test] {
            hasher.update(&(nodes.len() as u64).to_le_bytes());
            hasher.update(bytemuck::cast_slice(nodes));
        }
        hasher.finalize().to_hex().to_string()
    }
}
