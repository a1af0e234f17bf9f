use std::path::Path;

use segue_data_error::DataError;
use segue_publish::write_file;

use super::emit::Emitter;
use super::part;
use crate::{NodeData, Setting};

impl NodeData {
    /// Writes the pickles of a prefix such as `PLACE/ind.NAME`, in the form of the setting. Nodes have to be numbered as that form has
    /// them, which [`NodeData::in_published_order`] sees to.
    ///
    /// # Errors
    ///
    /// Nodes in another order, weights or numbers that the form has no room for, and what the system refused.
    pub fn write_pickles(&self, prefix: &Path) -> Result<(), DataError> {
        let (rows, test) = (self.first_rows(), self.test.len());
        self.check_order(rows).map_err(DataError::Usage)?;
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
        let mut graph = Emitter::new();
        graph.lists((0..self.nodes() as u32).map(|node| self.graph.neighbours(node)));
        Ok(write("graph", graph.finish())?)
    }

    /// The same data with nodes numbered as the published files have them: those that are trained on first, then others with features
    /// that are not tested on, then test nodes in their order, then the rest. Numbers stay where they fit already.
    pub fn in_published_order(&self) -> NodeData {
        if self.check_order(self.first_rows()).is_ok() {
            return self.clone();
        }
        let mut place = vec![3u8; self.nodes()];
        self.has_features.iter().enumerate().filter(|(_, has)| **has).for_each(|(node, _)| place[node] = 1);
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
        let rest =
            (rows..self.nodes()).all(|node| tested[node] || (!known(node) && self.labels[node].is_none()));
        match rises(&self.train, 0) && test && rest && (0..rows).all(known) {
            true => Ok(()),
            false => Err(format!(
                "nodes are not in the order of the files of {}.NAME, or some without features are trained on",
                self.setting.prefix()
            )),
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
