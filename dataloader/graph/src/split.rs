//! Which nodes are trained and tested on.

use std::path::{Path, PathBuf};

use segue_data_error::DataError;
use segue_random::{Draws, Purpose};

use crate::NodeData;
use crate::data::BadMember;
use crate::text::read_index;

/// Folders of splits, in the order of their names as numbers.
fn given_splits(folder: &Path) -> Result<Vec<PathBuf>, DataError> {
    let entries = std::fs::read_dir(folder).map_err(|e| DataError::read(folder, e))?;
    let mut places: Vec<PathBuf> = Vec::new();
    for entry in entries {
        let place = entry.map_err(|e| DataError::read(folder, e))?.path();
        if place.join("train.index").is_file() {
            places.push(place);
        }
    }
    let name = |place: &PathBuf| place.file_name().unwrap_or_default().to_string_lossy().into_owned();
    places.sort_by_cached_key(|place| (name(place).parse::<u64>().unwrap_or(u64::MAX), name(place)));
    Ok(places)
}

impl NodeData {
    /// A split drawn at random (Yang 2019, §3.3.4): `per_class` nodes of each class to train on with their labels, `test` of the
    /// other nodes with labels to test on, the rest without labels. Both have features where these are needed.
    ///
    /// # Errors
    ///
    /// Fewer nodes than that, with the class.
    pub fn split(&self, per_class: usize, test: usize, seed: u64) -> Result<NodeData, DataError> {
        self.split_by(&vec![per_class; self.classes], Some(test), seed)
    }

    /// A split drawn at random with `max(rate · N, 1)` nodes to train on of a class with N nodes, and all others that have labels to
    /// test on (Yang 2019, §3.3.4).
    ///
    /// # Errors
    ///
    /// A rate outside 0 to 1.
    pub fn split_by_rate(&self, rate: f64, seed: u64) -> Result<NodeData, DataError> {
        if !(0.0..=1.0).contains(&rate) {
            return Err(DataError::Usage(format!("a labelling rate of {rate}, expected 0 to 1")));
        }
        let mut sizes = vec![0usize; self.classes];
        self.eligible().iter().for_each(|(_, class)| sizes[*class as usize] += 1);
        let count = |size: &usize| ((rate * *size as f64) as usize).max(1).min(*size);
        self.split_by(&sizes.iter().map(count).collect::<Vec<_>>(), None, seed)
    }

    /// The same data with other nodes to train and to test on. Training may read what it may by the setting.
    ///
    /// # Errors
    ///
    /// Nodes that are not there, have no label or are named twice.
    pub fn with_split(&self, train: Vec<u32>, test: Vec<u32>) -> Result<NodeData, DataError> {
        let refused = |bad: BadMember| DataError::Usage(format!("to {} on: {}", bad.split, bad.why));
        self.resplit(train, test).map_err(refused)
    }

    fn resplit(&self, train: Vec<u32>, test: Vec<u32>) -> Result<NodeData, BadMember> {
        let split = NodeData { train, test, seen: Vec::new(), ..self.clone() };
        split.check()?;
        let seen = self.setting.seen(&self.has_features, &split.test);
        Ok(NodeData { seen, ..split })
    }

    /// The same data with split `number`, from 1, of those that are given: of the folders in `folder`, in the order of their names as numbers,
    /// each with `train.index` and `test.index`.
    ///
    /// # Errors
    ///
    /// No such folder, a folder without these files, a line that names no node or one that cannot be in a split.
    pub fn with_given_split(&self, folder: &Path, number: usize) -> Result<NodeData, DataError> {
        let place = given_splits(folder)?.into_iter().nth(number.wrapping_sub(1)).ok_or_else(|| {
            let why = "a split\nhint: splits are folders with train.index and test.index, numbered from 1 in the order of their names";
            DataError::Missing { path: folder.join(number.to_string()).join("train.index"), why: why.into() }
        })?;
        let read = |file: &str| read_index(&place.join(file), self.nodes());
        let (train, test) = (read("train.index")?, read("test.index")?);
        self.resplit(train, test).map_err(|bad| bad.in_file(&place))
    }

    /// The same data without the labels of classes that have fewer than `least` nodes; the others are numbered anew, in order
    /// (Yang 2019, §3.3.4: 10). Nodes of a class that goes are in no split.
    pub fn drop_small_classes(&self, least: usize) -> NodeData {
        let mut sizes = vec![0usize; self.classes];
        self.labels.iter().flatten().for_each(|class| sizes[*class as usize] += 1);
        let mut classes = 0u32;
        let number_of: Vec<Option<u32>> = sizes
            .iter()
            .map(|size| {
                let kept = *size >= least;
                classes += u32::from(kept);
                kept.then_some(classes.wrapping_sub(1))
            })
            .collect();
        let labels: Vec<Option<u32>> =
            self.labels.iter().map(|label| label.and_then(|class| number_of[class as usize])).collect();
        let left =
            |nodes: &[u32]| nodes.iter().copied().filter(|node| labels[*node as usize].is_some()).collect();
        let (train, test): (Vec<u32>, Vec<u32>) = (left(&self.train), left(&self.test));
        let seen = self.setting.seen(&self.has_features, &test);
        NodeData { classes: classes as usize, train, test, seen, labels, ..self.clone() }
    }

    /// Nodes with a label, and features where these are needed, with their class.
    fn eligible(&self) -> Vec<(u32, u32)> {
        let labelled = (0u32..).zip(&self.labels).filter_map(|(node, label)| Some((node, (*label)?)));
        labelled.filter(|(node, _)| self.usable(*node)).collect()
    }

    /// A split with `counts[c]` nodes of class `c` to train on. `test`: number of test nodes; `None`: all others that have labels.
    fn split_by(&self, counts: &[usize], test: Option<usize>, seed: u64) -> Result<NodeData, DataError> {
        let mut free = self.eligible();
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
            let (found, wanted) = (counts[class] - lacking[class], counts[class]);
            return Err(self.too_few(&format!("of class {class} to train on"), found, wanted));
        }
        let test = test.unwrap_or(rest.len());
        if rest.len() < test {
            return Err(self.too_few("to test on", rest.len(), test));
        }
        rest.truncate(test);
        train.sort_by_key(|(class, _)| *class);
        self.with_split(train.into_iter().map(|(_, node)| node).collect(), rest)
    }

    fn too_few(&self, what: &str, found: usize, wanted: usize) -> DataError {
        let with =
            if self.eligible().len() < self.labels.iter().flatten().count() { " and features" } else { "" };
        DataError::Usage(format!(
            "the graph `{}` has {found} nodes with labels{with} {what}, {wanted} are asked for\nhint: ask for fewer",
            self.name
        ))
    }
}
