use std::path::Path;

use segue_data_error::DataError;
use segue_publish::write_file;

use super::emit::Emitter;
use super::part;
use crate::{NodeData, Setting};

/// Files of a prefix.
const PARTS: [&str; 8] = ["x", "y", "tx", "ty", "allx", "ally", "test.index", "graph"];

impl NodeData {
    /// Writes the pickles of a prefix such as `PLACE/ind.NAME`, in the form of the setting. Nodes have to be numbered as that form has
    /// them, which [`NodeData::in_published_order`] sees to.
    ///
    /// # Errors
    ///
    /// Nodes in another order, weights or numbers that the form has no room for, files that are there, and what the system refused.
    pub fn write_pickles(&self, prefix: &Path) -> Result<(), DataError> {
        let (rows, test) = (self.first_rows(), self.test.len());
        self.check_order(rows).map_err(DataError::Usage)?;
        let name = prefix.file_name().unwrap_or_default().to_string_lossy();
        if self.setting == Setting::Transductive && name.starts_with("ind.") {
            let hint = "add --setting inductive, or name the prefix trans.NAME";
            return Err(DataError::Usage(format!(
                "{name} stands for an inductive set, and this is not one\nhint: {hint}"
            )));
        }
        // Files of two sets under one prefix would read as one.
        if let Some(path) = PARTS.map(|name| part(prefix, name)).into_iter().find(|path| path.exists()) {
            return Err(DataError::Output {
                path,
                why: "it is there\nhint: choose another prefix, or remove its files".into(),
            });
        }
        if let Some(folder) = prefix.parent() {
            std::fs::create_dir_all(folder).map_err(|e| DataError::write(folder, e))?;
        }
        let write = |name: &str, content: Vec<u8>| write_file(&part(prefix, name), &content);
        let table = |features: &str, labels: &str, nodes: &[u32]| -> Result<(), DataError> {
            write(features, self.pickled_features(nodes)?)?;
            Ok(write(labels, self.pickled_labels(nodes))?)
        };
        table("x", "y", &self.train)?;
        table("tx", "ty", &self.test)?;
        if self.setting == Setting::Inductive {
            table("allx", "ally", &(0..rows as u32).collect::<Vec<_>>())?;
            let mut lines = String::with_capacity(test * 8);
            self.test.iter().for_each(|node| lines.push_str(&format!("{node}\n")));
            write("test.index", lines.into_bytes())?;
        }
        // Last: without it nothing is read of a set whose writer died.
        let mut graph = Emitter::new();
        graph.lists((0..self.nodes() as u32).map(|node| self.graph.neighbours(node)));
        Ok(write("graph", graph.finish())?)
    }

    /// The same data with nodes numbered as the published files have them: those that are trained on first, then inductively others with
    /// features that are not tested on, then test nodes in their order, then the rest. Numbers stay where they fit already.
    pub fn in_published_order(&self) -> NodeData {
        if self.check_order(self.first_rows()).is_ok() {
            return self.clone();
        }
        let mut place = vec![3u8; self.nodes()];
        if self.setting == Setting::Inductive {
            self.has_features
                .iter()
                .zip(&mut place)
                .filter(|(has, _)| **has)
                .for_each(|(_, place)| *place = 1);
        }
        self.train.iter().for_each(|node| place[*node as usize] = 0);
        self.test.iter().for_each(|node| place[*node as usize] = 2);
        let others =
            |wanted: u8| (0u32..).zip(&place).filter(move |(_, at)| **at == wanted).map(|(node, _)| node);
        let order: Vec<u32> = self
            .train
            .iter()
            .copied()
            .chain(others(1))
            .chain(self.test.iter().copied())
            .chain(others(3))
            .collect();
        self.renumbered(&order)
    }

    /// Rows that come before those of test nodes: of all nodes trained on, and inductively of others with features.
    fn first_rows(&self) -> usize {
        match self.setting {
            Setting::Transductive => self.train.len(),
            Setting::Inductive => {
                Setting::Inductive.seen(&self.has_features, &self.test).iter().filter(|s| **s).count()
            }
        }
    }

    fn check_order(&self, rows: usize) -> Result<(), String> {
        if self.graph.is_weighted() {
            return Err("the graph has weights, for which pickles have no room".into());
        }
        let rises =
            |nodes: &[u32], from: usize| nodes.iter().zip(from as u32..).all(|(node, place)| *node == place);
        let known = |node: usize| self.has_features[node];
        let test = match self.setting {
            Setting::Transductive => rises(&self.test, rows),
            Setting::Inductive => self.test.iter().all(|node| *node as usize >= rows),
        };
        let mut tested = vec![false; self.nodes()];
        self.test.iter().for_each(|node| tested[*node as usize] = true);
        // Nodes behind the first rows that the matrices have no row for.
        let lost = (rows..self.nodes())
            .find(|node| !tested[*node] && (known(*node) || self.labels[*node].is_some()));
        let form = format!("files of {}.NAME", self.setting.prefix());
        match (rises(&self.train, 0) && test, (0..rows).find(|node| !known(*node)), lost) {
            (false, ..) => Err(format!("nodes are not in the order of the {form}")),
            (_, Some(_), _) => Err(format!(
                "a node before the test nodes has no features, and the {form} have some of all these"
            )),
            (.., Some(_)) => Err(format!(
                "a node with features or a label is in no part of the split, and the {form} have no room for it\nhint: add --setting \
                 inductive, or write --text"
            )),
            _ => Ok(()),
        }
    }

    fn pickled_features(&self, nodes: &[u32]) -> Result<Vec<u8>, DataError> {
        let rows = self.features.select(nodes);
        let too_many = || DataError::Usage("more than 2^31 features, for which pickles have no room".into());
        let narrow = |number: u64| i32::try_from(number).map_err(|_| too_many());
        let starts = rows.offsets().iter().map(|start| narrow(*start)).collect::<Result<Vec<_>, _>>()?;
        let columns =
            rows.indices().iter().map(|column| narrow(u64::from(*column))).collect::<Result<Vec<_>, _>>()?;
        let mut out = Emitter::new();
        out.sparse_matrix([rows.len(), rows.columns], &starts, &columns, rows.values());
        Ok(out.finish())
    }

    fn pickled_labels(&self, nodes: &[u32]) -> Vec<u8> {
        let mut table = vec![0i32; nodes.len() * self.classes];
        for (row, node) in nodes.iter().enumerate() {
            if let Some(class) = self.labels[*node as usize] {
                table[row * self.classes + class as usize] = 1;
            }
        }
        let mut out = Emitter::new();
        out.array("i4", &[nodes.len(), self.classes], bytemuck::cast_slice(&table));
        out.finish()
    }
}
