use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use segue_data_error::DataError;

use crate::{NodeData, Setting};

/// What holds the graph of a folder that is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GraphForm {
    /// Text: `edges.txt`, and where there are no weights the lists as they are in `graph.adj`.
    #[default]
    Text,
    /// `graph.bin`, which is mapped into memory.
    Mapped,
}

impl NodeData {
    /// Writes a folder of text, whole or not at all. What is read back has the same fingerprint.
    ///
    /// # Errors
    ///
    /// A folder that is there and not empty, and what the system refused.
    pub fn write_text(&self, folder: &Path, form: GraphForm) -> Result<(), DataError> {
        let fresh = DataError::begin_folder(folder)?;
        let write = |name: &str, lines: &dyn Fn(&mut BufWriter<File>) -> io::Result<()>| {
            let path = fresh.path().join(name);
            let written = File::create(&path).map(BufWriter::new).and_then(|mut file| {
                lines(&mut file)?;
                file.flush()
            });
            written.map_err(|e| DataError::write(&folder.join(name), e))
        };
        write("sizes.txt", &|out| {
            writeln!(out, "nodes {}", self.nodes())?;
            writeln!(out, "columns {}", self.features.columns)?;
            writeln!(out, "classes {}", self.classes)
        })?;
        match form {
            GraphForm::Mapped => self.graph.write(&fresh.path().join("graph.bin"))?,
            GraphForm::Text => {
                write("edges.txt", &|out| self.write_edges(out))?;
                if !self.graph.is_weighted() {
                    write("graph.adj", &|out| self.write_lists(out))?;
                }
            }
        }
        write("labels.txt", &|out| {
            let label = |label: &Option<u32>| label.map_or(-1, i64::from);
            self.labels.iter().try_for_each(|found| writeln!(out, "{}", label(found)))
        })?;
        let known = Setting::Inductive.seen(&self.has_features, &self.test);
        let known: Vec<u32> = (0u32..).zip(known).filter_map(|(node, known)| known.then_some(node)).collect();
        // Empty files would say that no node may have features, to whoever puts some beside a graph that has none.
        let all = self.has_features.contains(&true).then_some(("allx", &known));
        if all.is_some() {
            write("features.svm", &|out| self.write_features(out))?;
        }
        for (name, nodes) in [("train", &self.train), ("test", &self.test)].into_iter().chain(all) {
            write(&format!("{name}.index"), &|out| {
                nodes.iter().try_for_each(|node| writeln!(out, "{node}"))
            })?;
        }
        Ok(fresh.publish()?)
    }

    /// Each undirected edge once, in order, with its weight where there are weights.
    fn write_edges(&self, out: &mut impl Write) -> io::Result<()> {
        let mut row = Vec::new();
        for node in 0..self.nodes() as u32 {
            let entries = self.graph.neighbours(node);
            match self.graph.weights(node) {
                // Rows with weights are sorted and have no repeats.
                Some(weights) => {
                    for (other, weight) in entries.iter().zip(weights).filter(|(other, _)| **other >= node) {
                        writeln!(out, "{node} {other} {weight}")?;
                    }
                }
                None => {
                    row.clear();
                    row.extend(entries.iter().copied().filter(|other| *other >= node));
                    row.sort_unstable();
                    row.dedup();
                    row.iter().try_for_each(|other| writeln!(out, "{node} {other}"))?;
                }
            }
        }
        Ok(())
    }

    fn write_lists(&self, out: &mut impl Write) -> io::Result<()> {
        for node in 0..self.nodes() as u32 {
            write!(out, "{node}")?;
            self.graph.neighbours(node).iter().try_for_each(|other| write!(out, " {other}"))?;
            writeln!(out)?;
        }
        Ok(())
    }

    /// Rows of the nodes that have features; values are the shortest decimals that read back to the same number.
    fn write_features(&self, out: &mut impl Write) -> io::Result<()> {
        for (node, _) in self.has_features.iter().enumerate().filter(|(_, has)| **has) {
            write!(out, "{node}")?;
            let (columns, values) = self.features.row(node);
            columns.iter().zip(values).try_for_each(|(column, value)| write!(out, " {column}:{value}"))?;
            writeln!(out)?;
        }
        Ok(())
    }
}
