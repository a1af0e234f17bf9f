//! Which nodes are trained and tested on.

use segue_data_error::DataError;
use segue_random::{Draws, Purpose};

use crate::{NodeData, Setting};

impl NodeData {
    /// A split drawn at random (Yang et al. 2016, §5): `per_class` nodes of each class to train on with their labels, `test` of the
    /// other nodes with labels to test on, the rest without labels. Inductively both have features.
    ///
    /// # Errors
    ///
    /// Fewer nodes than that, with the class.
    pub fn split(&self, per_class: usize, test: usize, seed: u64) -> Result<NodeData, DataError> {
        self.split_by(&vec![per_class; self.classes], Some(test), seed)
    }

    /// A split with `counts[c]` nodes of class `c` to train on. `test`: number of test nodes; `None`: all others that have labels.
    pub(crate) fn split_by(
        &self,
        counts: &[usize],
        test: Option<usize>,
        seed: u64,
    ) -> Result<NodeData, DataError> {
        let mut free: Vec<(u32, u32)> =
            (0u32..).zip(&self.labels).filter_map(|(node, l)| Some((node, (*l)?))).collect();
        if self.setting == Setting::Inductive {
            free.retain(|(node, _)| self.has_features[*node as usize]);
        }
        Draws::new(seed, Purpose::NodeSplit, &[]).shuffle(&mut free);
        let mut lacking = counts.to_vec();
        let (mut train, mut rest) = (Vec::new(), Vec::new());
        for (node, class) in free {
            match lacking.get_mut(class as usize) {
                Some(count) if *count > 0 => {
                    *count -= 1;
                    train.push((class, node));
                }
                _ => rest.push(node),
            }
        }
        if let Some(class) = lacking.iter().position(|count| *count > 0) {
            let wanted = counts[class];
            let why = format!(
                "class {class} has {} nodes to train on, {wanted} are asked for",
                wanted - lacking[class]
            );
            return Err(DataError::Usage(why));
        }
        let test = test.unwrap_or(rest.len());
        if rest.len() < test {
            return Err(DataError::Usage(format!("{} nodes to test on, {test} are asked for", rest.len())));
        }
        rest.truncate(test);
        train.sort_by_key(|(class, _)| *class);
        self.with_split(train.into_iter().map(|(_, node)| node).collect(), rest)
    }

    /// The same data with other nodes to train and to test on. Training may read what it may by the setting.
    ///
    /// # Errors
    ///
    /// Nodes that are not there, have no label or are named twice.
    pub fn with_split(&self, train: Vec<u32>, test: Vec<u32>) -> Result<NodeData, DataError> {
        let split = NodeData { train, test, seen: Vec::new(), ..self.clone() };
        split.check().map_err(DataError::Usage)?;
        let seen = self.setting.seen(&self.has_features, &split.test);
        Ok(NodeData { seen, ..split })
    }
}
