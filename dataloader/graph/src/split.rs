//! Which nodes are trained and tested on.

use std::path::{Path, PathBuf};

use segue_data_error::DataError;
use segue_random::{Draws, Purpose};

use crate::lines::line_of;
use crate::text::read_index;
use crate::{NodeData, Setting};

/// Which nodes are trained and tested on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Split {
    /// Those that the files name.
    #[default]
    Files,
    /// Nodes drawn at random, as by [`NodeData::split`].
    Drawn {
        /// Nodes of each class to train on.
        per_class: usize,
        /// Nodes to test on.
        test: usize,
        /// Seed of the draws.
        seed: u64,
    },
    /// Number, from 1, of one of those that the data set brings: of the folders in its folder `splits`, or in that beside its pickles, in
    /// the order of their names as numbers, each with `train.index` and `test.index`.
    Given(usize),
}

/// Nodes that are trained on with their labels, and nodes that are tested on.
struct Members {
    train: Vec<u32>,
    test: Vec<u32>,
}

/// A node that cannot be in a split.
pub(crate) struct BadMember {
    /// The part, `train` or `test`.
    pub split: &'static str,
    /// Its place there, from 0.
    pub place: usize,
    /// What is wrong.
    pub why: String,
}

impl BadMember {
    /// The error of the file of its part in `folder`.
    pub fn in_file(self, folder: &Path) -> DataError {
        let path = folder.join(format!("{}.index", self.split));
        DataError::line(&path, line_of(&path, self.place), self.why)
    }
}

/// The part of a split that a node is in.
#[derive(Clone, Copy)]
enum Part {
    Neither,
    Train,
    Test,
}

/// Nodes of a data set that can be in a split.
struct Candidates<'a> {
    data: &'a NodeData,
    /// Whether they need features.
    with_features: bool,
}

impl<'a> Candidates<'a> {
    fn of(data: &'a NodeData, features_needed: bool) -> Self {
        let needed = || features_needed && data.has_features.contains(&true);
        Candidates { data, with_features: data.setting == Setting::Inductive || needed() }
    }

    /// Whether a node can be in a split as far as its features go.
    fn takes(&self, node: u32) -> bool {
        !self.with_features || self.data.has_features.get(node as usize) == Some(&true)
    }

    /// Nodes with a label, and features where these are needed, with their class.
    fn labelled(&self) -> Vec<(u32, u32)> {
        let labelled = (0u32..).zip(&self.data.labels).filter_map(|(node, label)| Some((node, (*label)?)));
        labelled.filter(|(node, _)| self.takes(*node)).collect()
    }

    /// Checks what nodes of a split promise: that they are there, in one part alone, and have a label and features where these are needed.
    fn check(&self, train: &[u32], test: &[u32]) -> Result<(), BadMember> {
        let nodes = self.data.nodes();
        // A byte a node: of a large graph there are many.
        let mut part_of = vec![Part::Neither; nodes];
        for (part, split, members) in [(Part::Train, "train", train), (Part::Test, "test", test)] {
            for (place, node) in members.iter().enumerate() {
                let bad = |why: String| Err(BadMember { split, place, why });
                match part_of.get_mut(*node as usize) {
                    None => return bad(format!("node {node} of a graph with {nodes} nodes")),
                    Some(free @ Part::Neither) => *free = part,
                    Some(Part::Train) => return bad(format!("node {node} is in train and in {split}")),
                    Some(Part::Test) => return bad(format!("node {node} is in test and in {split}")),
                }
                if self.data.labels.get(*node as usize).is_none_or(Option::is_none) {
                    return bad(format!("node {node} has no label"));
                }
                if !self.takes(*node) {
                    let hint = "name nodes with features, or choose a model that reads the graph alone";
                    return bad(format!("node {node} has no features, which are learnt from\nhint: {hint}"));
                }
            }
        }
        Ok(())
    }

    /// A split with `counts[c]` nodes of class `c` to train on. `test`: number of test nodes; `None`: all others that have labels.
    fn draw(&self, counts: &[usize], test: Option<usize>, seed: u64) -> Result<Members, DataError> {
        let mut free = self.labelled();
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
        Ok(Members { train: train.into_iter().map(|(_, node)| node).collect(), test: rest })
    }

    fn too_few(&self, what: &str, found: usize, wanted: usize) -> DataError {
        let all = self.data.labels.iter().flatten().count();
        let with = if self.labelled().len() < all { " and features" } else { "" };
        DataError::Usage(format!(
            "the graph `{}` has {found} nodes with labels{with} {what}, {wanted} are asked for\nhint: ask for fewer",
            self.data.name
        ))
    }

    /// The split in a folder.
    fn read(&self, folder: &Path) -> Result<Members, DataError> {
        let read = |file: &str| read_index(&folder.join(file), self.data.nodes());
        let (train, test) = (read("train.index")?, read("test.index")?);
        self.check(&train, &test).map_err(|bad| bad.in_file(folder))?;
        Ok(Members { train, test })
    }
}

/// The folder of split `number`, from 1, of those in `folder`, in the order of their names as numbers.
fn given_split(folder: &Path, number: usize) -> Result<PathBuf, DataError> {
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
    places.into_iter().nth(number.wrapping_sub(1)).ok_or_else(|| {
        let why = "a split\nhint: splits are folders with train.index and test.index, numbered from 1 in the order of their names";
        DataError::Missing { path: folder.join(number.to_string()).join("train.index"), why: why.into() }
    })
}

impl NodeData {
    /// The same data, which was opened at `path` and not looked at yet, with the split that is chosen. `features_needed`: whether its nodes
    /// need features where any node has some. `refusal`: the error of a node that cannot be in that of the files.
    pub(crate) fn choose(
        self,
        split: Split,
        features_needed: bool,
        path: &Path,
        refusal: impl Fn(BadMember) -> DataError,
    ) -> Result<NodeData, DataError> {
        let candidates = Candidates::of(&self, features_needed);
        let members = match split {
            Split::Files => {
                candidates.check(&self.train, &self.test).map_err(refusal)?;
                return Ok(self);
            }
            Split::Drawn { per_class, test, seed } => {
                candidates.draw(&vec![per_class; self.classes], Some(test), seed)?
            }
            Split::Given(number) => {
                let folder = if path.is_dir() { path } else { path.parent().unwrap_or(path) };
                candidates.read(&given_split(&folder.join("splits"), number)?)?
            }
        };
        Ok(self.with_members(members))
    }

    /// The same data with other nodes to train and to test on. Training may read what it may by the setting.
    fn with_members(self, Members { train, test }: Members) -> NodeData {
        let seen = self.setting.seen(&self.has_features, &test);
        NodeData { train, test, seen, ..self }
    }

    /// The same data with a split drawn at random (Yang 2019, §3.3.4): `per_class` nodes of each class to train on with their labels, `test`
    /// of the other nodes with labels to test on, the rest without labels. Inductively both have features.
    ///
    /// # Errors
    ///
    /// Fewer nodes than that, with the class.
    pub fn split(self, per_class: usize, test: usize, seed: u64) -> Result<NodeData, DataError> {
        let members = Candidates::of(&self, false).draw(&vec![per_class; self.classes], Some(test), seed)?;
        Ok(self.with_members(members))
    }

    /// The same data with a split drawn at random: `max(rate · N, 1)` nodes to train on of a class with N nodes, and all others that have
    /// labels to test on (Yang 2019, §3.3.4).
    ///
    /// # Errors
    ///
    /// A rate outside 0 to 1.
    pub fn split_by_rate(self, rate: f64, seed: u64) -> Result<NodeData, DataError> {
        if !(0.0..=1.0).contains(&rate) {
            return Err(DataError::Usage(format!("a labelling rate of {rate}, expected 0 to 1")));
        }
        let candidates = Candidates::of(&self, false);
        let mut sizes = vec![0usize; self.classes];
        candidates.labelled().iter().for_each(|(_, class)| sizes[*class as usize] += 1);
        let count = |size: &usize| ((rate * *size as f64) as usize).max(1).min(*size);
        let members = candidates.draw(&sizes.iter().map(count).collect::<Vec<_>>(), None, seed)?;
        Ok(self.with_members(members))
    }

    /// The same data without the labels of classes that have fewer than `least` nodes; the others are numbered anew, in order
    /// (Yang 2019, §3.3.4: 10). Nodes of a class that goes are in no split.
    pub fn drop_small_classes(self, least: usize) -> NodeData {
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
        NodeData { classes: classes as usize, train, test, seen, labels, ..self }
    }
}
