//! Graphs of entities, from the triples of a knowledge base (Yang 2019, §3.3.4: NELL).

use std::path::Path;

use ahash::AHashMap;
use segue_data_error::DataError;

use crate::lines::each_record;
use crate::{Graph, NodeData, Setting, SparseRows};

/// Relations that are left out of the graph; the first one names categories, which are the classes.
const GENERALIZATIONS: &str = "generalizations";
const LEFT_OUT: [&str; 3] = [GENERALIZATIONS, "haswikipediaurl", "atdate"];

/// A graph of entities and relations: each relation `r` has two nodes `r₁` and `r₂`, and a triple `(e₁, r, e₂)` gives the edges
/// `(e₁, r₁)` and `(e₂, r₂)`. Nodes are the entities in the order in which they come, then the two nodes of each relation.
#[derive(Clone, Debug)]
pub struct EntityGraph {
    /// Edges; of triples that share an end and a relation, one with their number as its weight.
    pub graph: Graph,
    /// Names of the first nodes.
    pub entities: Vec<String>,
    /// Names of the relations.
    pub relations: Vec<String>,
    /// Names of the classes.
    pub categories: Vec<String>,
    /// The class of each node: the first category that is named of an entity, none of a relation.
    pub labels: Vec<Option<u32>>,
}

impl EntityGraph {
    /// Reads a file of triples: entity, relation and value, separated by tabs; what stands behind them is left alone, and so is a first
    /// line that names these columns. Of a name such as `concept:relation` the last part tells which relation it is.
    ///
    /// # Errors
    ///
    /// A line without three names, with its number.
    pub fn read(path: &Path) -> Result<EntityGraph, DataError> {
        let mut builder = Builder::default();
        each_record(path, |number, line| {
            let mut columns = line.split('\t').map(str::trim);
            let triple = [columns.next(), columns.next(), columns.next()].map(Option::unwrap_or_default);
            if number == 1 && triple.map(str::to_lowercase) == ["entity", "relation", "value"] {
                return Ok(());
            }
            match triple.iter().any(|name| name.is_empty()) {
                true => Err("no triple: an entity, a relation and a value, separated by tabs".into()),
                false => {
                    builder.add(triple);
                    Ok(())
                }
            }
        })?;
        builder.finish().map_err(|why| DataError::foreign(path, why))
    }

    /// A graph of triples `[entity, relation, value]`.
    ///
    /// # Errors
    ///
    /// More nodes than a graph can have.
    pub fn from_triples<'a>(triples: impl IntoIterator<Item = [&'a str; 3]>) -> Result<EntityGraph, String> {
        let mut builder = Builder::default();
        triples.into_iter().for_each(|triple| builder.add(triple));
        builder.finish()
    }

    /// The data set of this graph, without features and without a split.
    pub fn into_data(self, name: &str) -> NodeData {
        let nodes = self.graph.nodes();
        let mut features = SparseRows::new(0);
        (0..nodes).for_each(|_| features.push_zero());
        NodeData {
            name: name.into(),
            classes: self.categories.len(),
            graph: self.graph,
            features,
            has_features: vec![false; nodes],
            labels: self.labels,
            train: Vec::new(),
            test: Vec::new(),
            seen: vec![false; nodes],
            setting: Setting::Transductive,
        }
    }
}

/// Names in the order in which they came.
#[derive(Default)]
struct Names {
    place_of: AHashMap<String, u32>,
    names: Vec<String>,
}

impl Names {
    fn place(&mut self, name: &str) -> u32 {
        if let Some(place) = self.place_of.get(name) {
            return *place;
        }
        let place = self.names.len() as u32;
        self.place_of.insert(name.into(), place);
        self.names.push(name.into());
        place
    }
}

#[derive(Default)]
struct Builder {
    entities: Names,
    relations: Names,
    categories: Names,
    /// Category of an entity, by name: it may come before the entity has an edge.
    category_of: AHashMap<String, u32>,
    /// Both ends and the relation between them.
    triples: Vec<(u32, u32, u32)>,
}

impl Builder {
    fn add(&mut self, [entity, relation, value]: [&str; 3]) {
        let kind = relation.rsplit(':').next().unwrap_or(relation);
        if kind == GENERALIZATIONS {
            let category = self.categories.place(value);
            self.category_of.entry(entity.into()).or_insert(category);
        }
        if !LEFT_OUT.contains(&kind) {
            let (first, second) = (self.entities.place(entity), self.entities.place(value));
            self.triples.push((first, self.relations.place(relation), second));
        }
    }

    fn finish(self) -> Result<EntityGraph, String> {
        let entities = self.entities.names.len();
        let nodes = entities + 2 * self.relations.names.len();
        u32::try_from(nodes).map_err(|_| format!("{nodes} nodes, more than a graph can have"))?;
        let relation_node = |relation: u32, end: u32| entities as u32 + 2 * relation + end;
        let edges = self.triples.iter().flat_map(|&(first, relation, second)| {
            [(first, relation_node(relation, 0), 1.0), (second, relation_node(relation, 1), 1.0)]
        });
        let graph = Graph::from_edges(nodes, edges)?;
        let mut labels: Vec<Option<u32>> =
            self.entities.names.iter().map(|name| self.category_of.get(name).copied()).collect();
        labels.resize(nodes, None);
        Ok(EntityGraph {
            graph,
            entities: self.entities.names,
            relations: self.relations.names,
            categories: self.categories.names,
            labels,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRIPLES: [[&str; 3]; 6] = [
        ["ann", "concept:likes", "tea"],
        ["bob", "concept:likes", "tea"],
        ["ann", "concept:knows", "bob"],
        ["ann", "generalizations", "person"],
        ["tea", "generalizations", "drink"],
        ["ann", "concept:atdate", "2010"],
    ];

    /// Row P15.
    #[test]
    fn a_relation_is_two_nodes_and_a_triple_two_edges() {
        let built = EntityGraph::from_triples(TRIPLES).unwrap();
        assert_eq!(built.entities, ["ann", "tea", "bob"]);
        assert_eq!(built.relations, ["concept:likes", "concept:knows"]);
        // ann-likes₁, bob-likes₁, tea-likes₂ twice; ann-knows₁, bob-knows₂. Dropped relations are absent.
        let edges: Vec<_> = built.graph.edges().collect();
        assert_eq!(built.graph.nodes(), 3 + 2 * 2);
        assert_eq!(edges, [(0, 3, 1.0), (0, 5, 1.0), (1, 4, 2.0), (2, 3, 1.0), (2, 6, 1.0)]);
        let total: f32 = edges.iter().map(|(_, _, weight)| weight).sum();
        assert_eq!(total, 2.0 * 3.0);
        assert_eq!(built.categories, ["person", "drink"]);
        assert_eq!(built.labels[..4], [Some(0), Some(1), None, None]);
    }

    /// Row P15.
    #[test]
    fn a_file_of_triples_is_read_and_a_bad_line_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("nell.tsv");
        let lines: Vec<String> = TRIPLES.iter().map(|triple| triple.join("\t") + "\t1\t0.9").collect();
        std::fs::write(&path, format!("Entity\tRelation\tValue\tIteration\n{}\n", lines.join("\n"))).unwrap();
        let read = EntityGraph::read(&path).unwrap();
        assert_eq!(read.graph.entries(), 10);
        std::fs::write(&path, "ann\tlikes\ttea\nann\tlikes\n").unwrap();
        let error = EntityGraph::read(&path).unwrap_err();
        assert_eq!(error.exit_code(), 65);
        assert!(
            error.to_string().ends_with(
                "nell.tsv, line 2: no triple: an entity, a relation and a value, separated by tabs"
            ),
            "{error}"
        );
    }

    /// Row P19.
    #[test]
    fn small_classes_go_and_the_others_keep_a_label_at_any_rate() {
        let mut triples = Vec::new();
        let names: Vec<String> = (0..60).map(|number| format!("e{number}")).collect();
        for (number, name) in names.iter().enumerate() {
            triples.push([name.as_str(), "r", "hub"]);
            // 38 of a, 10 of b, 9 of c, 3 without a category.
            let category = match number {
                0..38 => "a",
                38..47 => "c",
                47..57 => "b",
                _ => continue,
            };
            triples.push([name.as_str(), "generalizations", category]);
        }
        let data = EntityGraph::from_triples(triples).unwrap().into_data("toy").drop_small_classes(10);
        assert_eq!(data.classes, 2);
        assert_eq!(data.labels.iter().flatten().count(), 48);
        for (rate, counts) in [(0.1, [3, 1]), (0.01, [1, 1]), (0.001, [1, 1]), (0.5, [19, 5])] {
            let split = data.clone().split_by_rate(rate, 3).unwrap();
            let mut found = [0; 2];
            split.labelled().iter().for_each(|(_, class)| found[*class as usize] += 1);
            assert_eq!(found, counts, "{rate}");
            assert_eq!(split.train.len() + split.test.len(), 48);
            assert_eq!((split.features.columns, split.seen.contains(&true)), (0, false));
        }
        assert_eq!(data.split_by_rate(1.5, 3).unwrap_err().exit_code(), 64);
    }
}
