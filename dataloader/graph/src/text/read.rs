use std::path::Path;

use segue_data_error::DataError;

use crate::graph::check_edge;
use crate::limit::Limit;
use crate::lines::{each_line, each_record, number, words};
use crate::{Asymmetry, Graph, NodeData, Setting, SparseRows};

/// Sizes that the other files may leave open.
#[derive(Default)]
struct Sizes {
    nodes: usize,
    columns: usize,
    classes: usize,
}

/// Reads the folder of a data set; whether its nodes can be in the split it names is not looked at.
pub(crate) fn read(folder: &Path, setting: Setting, asymmetry: Asymmetry) -> Result<NodeData, DataError> {
    let sizes = read_sizes(&folder.join("sizes.txt"))?;
    let mut labels = read_labels(&folder.join("labels.txt"), &sizes)?;
    let graph = read_graph(folder, sizes.nodes.max(labels.len()), asymmetry)?;
    let nodes = graph.nodes();
    if sizes.nodes > 0 && nodes != sizes.nodes {
        let why = format!("{nodes} nodes in labels.txt and the graph, {} in sizes.txt", sizes.nodes);
        return Err(DataError::foreign(folder, why));
    }
    if labels.len() > nodes {
        let why = format!("node {nodes} of a graph with {nodes} nodes");
        return Err(DataError::line(&folder.join("labels.txt"), nodes as u64 + 1, why));
    }
    labels.resize(nodes, None);
    let highest = labels.iter().flatten().max().map_or(0, |label| *label as usize + 1);
    let (features, mut has_features) = read_features(folder, nodes, sizes.columns)?;
    let train = read_index(&folder.join("train.index"), nodes)?;
    let test = read_index(&folder.join("test.index"), nodes)?;
    let all = folder.join("allx.index");
    if all.is_file() {
        // What is in none of the published matrices has no features, even where the file has a row of zeros for it.
        let mut known = vec![false; nodes];
        read_index(&all, nodes)?.iter().chain(&test).for_each(|node| known[*node as usize] = true);
        has_features.iter_mut().zip(known).for_each(|(has, known)| *has &= known);
    }
    Ok(NodeData {
        name: name_of(folder, setting),
        classes: sizes.classes.max(highest),
        seen: setting.seen(&has_features, &test),
        graph,
        features,
        has_features,
        labels,
        train,
        test,
        setting,
    })
}

/// The folder's name, or that of the folder around it where this one is called like a setting.
fn name_of(folder: &Path, setting: Setting) -> String {
    let place = folder.canonicalize().unwrap_or_else(|_| folder.into());
    let own = |path: &Path| path.file_name().map(|name| name.to_string_lossy().into_owned());
    let name = own(&place).unwrap_or_default();
    let settings = [setting, Setting::Inductive, Setting::Transductive].map(Setting::prefix);
    match settings.contains(&name.as_str()) {
        true => place.parent().and_then(own).unwrap_or(name),
        false => name,
    }
}

/// Reads `sizes.txt`, which may be missing: `nodes`, `columns` and `classes`, each with its number.
fn read_sizes(path: &Path) -> Result<Sizes, DataError> {
    let mut sizes = Sizes::default();
    if !path.is_file() {
        return Ok(sizes);
    }
    each_record(path, |_, line| {
        let mut words = words(line);
        let (key, value) = (words.next().unwrap_or_default(), number::<u32>(words.next(), "size")?);
        let size = match key {
            "nodes" => &mut sizes.nodes,
            "columns" => &mut sizes.columns,
            "classes" => &mut sizes.classes,
            _ => return Err(format!("`{key}` is not a size\nhint: nodes, columns and classes are")),
        };
        *size = value as usize;
        Ok(())
    })?;
    Ok(sizes)
}

/// Reads `labels.txt`: line `i` is the class of node `i`, -1 where it has none. With sizes of 0 there are any number of classes and nodes.
fn read_labels(path: &Path, sizes: &Sizes) -> Result<Vec<Option<u32>>, DataError> {
    let (limit, classes) = (Limit::of(path), sizes.classes);
    let announced = |highest: u32| limit.count("class", highest).map_err(|why| DataError::foreign(path, why));
    u32::try_from(classes).map_or(Ok(0), |classes| announced(classes.saturating_sub(1)))?;
    // Room for all nodes at once, if the file can have so many lines: a table that doubles takes up to twice the memory of a large graph.
    let mut labels = Vec::with_capacity(sizes.nodes.min(limit.most() as usize));
    each_record(path, |at, line| {
        // The place of a line is the number of its node.
        if at != labels.len() as u64 + 1 {
            return Err("an empty line before this one\nhint: a node without a class has -1".into());
        }
        let label: i64 = number(Some(line.trim()), "class")?;
        labels.push(match u32::try_from(label) {
            Ok(label) if classes > 0 && label as usize >= classes => {
                return Err(format!("class {label} of {classes}"));
            }
            Ok(label) => limit.count("class", label).map(|_| Some(label))?,
            Err(_) if label == -1 => None,
            Err(_) => return Err(format!("`{label}` is not a class")),
        });
        Ok(())
    })?;
    Ok(labels)
}

/// Reads the graph of a folder: the lists of `graph.adj`, the file `graph.bin`, or the edges of `edges.txt`.
fn read_graph(folder: &Path, at_least: usize, asymmetry: Asymmetry) -> Result<Graph, DataError> {
    let (lists, edges) = (folder.join("graph.adj"), folder.join("edges.txt"));
    if let Some(path) = [&lists, &edges].into_iter().find(|path| path.is_file()) {
        let highest = u32::try_from(at_least.saturating_sub(1)).unwrap_or(u32::MAX);
        Limit::of(path).count("node", highest).map_err(|why| DataError::foreign(path, why))?;
    }
    if lists.is_file() {
        return read_lists(&lists, at_least, asymmetry);
    }
    let mapped = folder.join("graph.bin");
    if mapped.is_file() {
        return Graph::open(&mapped);
    }
    if edges.is_file() {
        return Graph::read_edges(&edges, at_least);
    }
    Err(DataError::Missing {
        path: lists,
        why: "the graph of a data set\nhint: name a folder with graph.adj, graph.bin or edges.txt, or the prefix of pickles".into(),
    })
}

/// Reads neighbour lists: `node neighbour neighbour ..`, a line for each node that has any.
fn read_lists(path: &Path, at_least: usize, asymmetry: Asymmetry) -> Result<Graph, DataError> {
    let limit = Limit::of(path);
    let mut lists: Vec<Vec<u32>> = vec![Vec::new(); at_least];
    let mut line_of: Vec<u64> = vec![0; at_least];
    each_record(path, |at, line| {
        let mut words = words(line);
        let node: u32 = number(words.next(), "node")?;
        let list = words.map(|word| number(Some(word), "node")).collect::<Result<Vec<u32>, _>>()?;
        let highest = list.iter().copied().max().unwrap_or(0).max(node);
        let nodes = limit.count("node", highest)?.max(lists.len());
        lists.resize(nodes, Vec::new());
        line_of.resize(nodes, 0);
        if line_of[node as usize] != 0 {
            return Err(format!("node {node} has a list already, in line {}", line_of[node as usize]));
        }
        line_of[node as usize] = at;
        lists[node as usize] = list;
        Ok(())
    })?;
    Graph::from_lists(lists, asymmetry)
        .map_err(|bad| DataError::line(path, line_of[bad.node as usize], bad.why))
}

impl Graph {
    /// Reads a list of coordinates: `u v`, or `u v weight`, each undirected edge once; what is given more than once adds up. Lines that
    /// begin with `#` or `%` are comments. The graph has the nodes up to the highest named, or `at_least` as many.
    ///
    /// # Errors
    ///
    /// A file that is missing, or a line that is no edge, with its number.
    pub fn read_edges(path: &Path, at_least: usize) -> Result<Graph, DataError> {
        let limit = Limit::of(path);
        let mut edges = Vec::new();
        let mut nodes = at_least;
        each_record(path, |_, line| {
            if line.starts_with(['#', '%']) {
                return Ok(());
            }
            let mut words = words(line);
            let (from, to): (u32, u32) = (number(words.next(), "node")?, number(words.next(), "node")?);
            let weight = words.next().map_or(Ok(1.0), |word| number(Some(word), "weight"))?;
            nodes = nodes.max(limit.count("node", from.max(to))?);
            check_edge(nodes, from, to, weight)?;
            edges.push((from, to, weight));
            match words.next() {
                None => Ok(()),
                Some(word) => Err(format!("`{word}` after the weight")),
            }
        })?;
        Graph::from_edges(nodes, edges).map_err(|why| DataError::foreign(path, why))
    }
}

/// Reads nodes of a graph with so many, one a line, each once.
///
/// # Errors
///
/// A file that is missing, or a line that names no node, or one again, with its number.
pub fn read_index(path: &Path, nodes: usize) -> Result<Vec<u32>, DataError> {
    let mut index = Vec::new();
    let mut taken = vec![false; nodes];
    each_record(path, |_, line| {
        let node: u32 = number(Some(line.trim()), "node")?;
        match taken.get_mut(node as usize) {
            None => return Err(format!("node {node} of a graph with {nodes} nodes")),
            Some(true) => return Err(format!("node {node} is named twice")),
            Some(taken) => *taken = true,
        }
        index.push(node);
        Ok(())
    })?;
    Ok(index)
}

/// Reads `features.svm`, or `features.partial.svm` with rows for some nodes: `node column:value ..`, columns rising. Without either
/// file no node has features.
fn read_features(folder: &Path, nodes: usize, columns: usize) -> Result<(SparseRows, Vec<bool>), DataError> {
    let files = ["features.svm", "features.partial.svm"].map(|name| folder.join(name));
    let found = files.iter().find(|path| path.is_file());
    let sizes = folder.join("sizes.txt");
    let path = found.unwrap_or(&sizes);
    let limit = Limit::of_columns(path);
    let announced = u32::try_from(columns.saturating_sub(1)).unwrap_or(u32::MAX);
    limit.count("column", announced).map_err(|why| DataError::foreign(path, why))?;
    if found.is_none() {
        return Ok((SparseRows::zeros(nodes, columns), vec![false; nodes]));
    }
    // By node the place of its row among those of the file: of a large graph few nodes may have one.
    let mut place_of = vec![NO_ROW; nodes];
    let mut rows = SparseRows::new(if columns > 0 { columns } else { usize::MAX });
    let mut wide = columns;
    each_record(path, |_, line| {
        let mut words = words(line);
        let node: u32 = number(words.next(), "node")?;
        let row = words.map(feature).collect::<Result<Vec<_>, _>>()?;
        match place_of.get_mut(node as usize) {
            None => return Err(format!("node {node} of a graph with {nodes} nodes")),
            Some(place) if *place == NO_ROW => *place = rows.len() as u32,
            Some(_) => return Err(format!("node {node} has a row already")),
        }
        wide = wide.max(row.last().map_or(Ok(0), |(column, _)| limit.count("column", *column))?);
        rows.push(row)
    })?;
    let has = place_of.iter().map(|place| *place != NO_ROW).collect();
    let mut features = rows.select(&place_of);
    features.columns = wide;
    Ok((features, has))
}

/// Stands for the row of a node that has none; a file has a row a node at most.
const NO_ROW: u32 = u32::MAX;

impl SparseRows {
    /// Reads rows of `columns` features from a file with one a line, `column:value`, columns from 0 and rising; an empty line is a row of zeros.
    /// A number that a line begins with, such as a node's, is left out.
    ///
    /// # Errors
    ///
    /// A file that is missing, or a line that is no row, with its number.
    pub fn read(path: &Path, columns: usize) -> Result<SparseRows, DataError> {
        let mut rows = SparseRows::new(columns);
        each_line(path, |_, line| {
            let mut words = words(line).peekable();
            words.next_if(|first| first.parse().is_ok_and(f64::is_finite));
            rows.push(words.map(feature).collect::<Result<Vec<_>, _>>()?)
        })?;
        Ok(rows)
    }
}

/// A feature, `column:value`.
fn feature(word: &str) -> Result<(u32, f32), String> {
    let (column, value) =
        word.split_once(':').ok_or_else(|| format!("`{word}` is not column:value, such as 12:0.5"))?;
    let value: f32 = number(Some(value), "value")?;
    match value.is_finite() {
        true => Ok((number(Some(column), "column")?, value)),
        false => Err(format!("a value of {value}")),
    }
}
