use std::path::Path;

use segue_data_error::DataError;
use segue_foreign::{ElementType, Pickle, RawTensor, SharedBytes, SparseMatrix, SparsePlaces, View};

use super::part;
use crate::limit::Limit;
use crate::lines::line_of;
use crate::split::BadMember;
use crate::text::read_index;
use crate::{Asymmetry, Graph, NodeData, Setting, SparseRows};

/// Rows of features and the classes of these rows.
struct Table {
    features: SparseRows,
    labels: Vec<Option<u32>>,
    classes: usize,
}

/// Reads the pickles of a prefix; whether their nodes can be in the split they make is not looked at.
pub(crate) fn read(prefix: &Path, setting: Setting, asymmetry: Asymmetry) -> Result<NodeData, DataError> {
    let name = prefix.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let published = has_all(prefix, &name)?;
    let train = read_table(prefix, "x", "y")?;
    let tested = read_table(prefix, "tx", "ty")?;
    let trained = train.labels.len();
    // The graph alone says which nodes there are: rows of all other files are of these.
    let graph = read_graph(&part(prefix, "graph"), asymmetry)?;
    // Which rows have which nodes: all that is trained on from node 0 on, then what is tested on.
    let (first, test) = if published {
        let all = read_table(prefix, "allx", "ally")?;
        check_beginning(prefix, &train, &all)?;
        check_rows(&part(prefix, "allx"), 0, all.labels.len(), graph.nodes())?;
        let test = read_test(prefix, all.labels.len(), tested.labels.len(), graph.nodes())?;
        (all, test)
    } else {
        check_rows(&part(prefix, "x"), 0, trained, graph.nodes())?;
        check_rows(&part(prefix, "tx"), trained, tested.labels.len(), graph.nodes())?;
        (train, (trained as u32..(trained + tested.labels.len()) as u32).collect())
    };
    if first.features.columns != tested.features.columns || first.classes != tested.classes {
        let (found, expected) = (tested.features.columns, first.features.columns);
        let why = format!(
            "{found} columns and {} classes, expected {expected} and {}",
            tested.classes, first.classes
        );
        return Err(DataError::foreign(&part(prefix, "tx"), why));
    }
    let rows = place_rows(graph.nodes(), &first, &tested, &test);
    Ok(NodeData {
        name: ["ind.", "trans."].iter().find_map(|form| name.strip_prefix(form)).unwrap_or(&name).to_string(),
        classes: first.classes,
        graph,
        train: (0..trained as u32).collect(),
        seen: setting.seen(&rows.2, &test),
        features: rows.0,
        labels: rows.1,
        has_features: rows.2,
        test,
        setting,
    })
}

/// The error of a node that cannot be in the split that the pickles of a prefix make.
pub(crate) fn refusal(prefix: &Path, bad: BadMember) -> DataError {
    let labels = part(prefix, if bad.split == "test" { "ty" } else { "y" });
    DataError::foreign(&labels, format!("row {}: {}", bad.place, bad.why))
}

/// Whether there is `allx`, the nodes with features that are not tested on. Without it, test nodes come right behind those of `x`; a set of
/// which it is missing would then have the wrong nodes, and is refused.
fn has_all(prefix: &Path, name: &str) -> Result<bool, DataError> {
    let path = part(prefix, "allx");
    if path.is_file() {
        return Ok(true);
    }
    let beside = ["ally", "test.index"].map(|name| part(prefix, name)).into_iter().any(|path| path.is_file());
    match beside || name.starts_with("ind.") {
        true => Err(DataError::Missing {
            path,
            why: "the features of all nodes of an inductive set that are not tested on".into(),
        }),
        false => Ok(false),
    }
}

/// Features, labels and whether there are any, by node.
fn place_rows(
    nodes: usize,
    first: &Table,
    tested: &Table,
    test: &[u32],
) -> (SparseRows, Vec<Option<u32>>, Vec<bool>) {
    let mut row_of: Vec<Option<(&Table, usize)>> = vec![None; nodes];
    (0..first.labels.len()).for_each(|row| row_of[row] = Some((first, row)));
    test.iter().enumerate().for_each(|(row, node)| row_of[*node as usize] = Some((tested, row)));
    let mut features = SparseRows::new(first.features.columns);
    for place in &row_of {
        match place {
            Some((table, row)) => features.push_row_of(&table.features, *row),
            None => features.push_zero(),
        }
    }
    let labels = row_of.iter().map(|place| place.and_then(|(table, row)| table.labels[row])).collect();
    (features, labels, row_of.iter().map(Option::is_some).collect())
}

/// Refuses an `x` and `y` that are not the beginning of `allx` and `ally`.
fn check_beginning(prefix: &Path, train: &Table, all: &Table) -> Result<(), DataError> {
    let rows = train.labels.len();
    let why = if all.labels.len() < rows {
        format!("{} rows, less than the {rows} of x", all.labels.len())
    } else if let Some(row) = (0..rows).find(|row| {
        train.labels[*row] != all.labels[*row] || train.features.row(*row) != all.features.row(*row)
    }) {
        format!("row {row} is not that of x")
    } else {
        return Ok(());
    };
    Err(DataError::foreign(&part(prefix, "allx"), why))
}

/// Refuses rows of the nodes from `first` on that the graph does not have.
fn check_rows(path: &Path, first: usize, rows: usize, nodes: usize) -> Result<(), DataError> {
    match first + rows <= nodes {
        true => Ok(()),
        false => {
            let row = nodes.saturating_sub(first);
            let why = format!("row {row} is of node {} of a graph with {nodes} nodes", first + row);
            Err(DataError::foreign(path, why))
        }
    }
}

/// Reads the nodes of the `rows` rows of `tx`, which come after the `first` of `allx` in a graph with so many nodes.
fn read_test(prefix: &Path, first: usize, rows: usize, nodes: usize) -> Result<Vec<u32>, DataError> {
    let path = &part(prefix, "test.index");
    let test = read_index(path, nodes)?;
    if test.len() != rows {
        return Err(DataError::foreign(path, format!("{} nodes for the {rows} rows of tx", test.len())));
    }
    match test.iter().position(|node| (*node as usize) < first) {
        Some(at) => {
            let why = format!("node {} is one of the {first} of allx", test[at]);
            Err(DataError::line(path, line_of(path, at), why))
        }
        None => Ok(test),
    }
}

/// Classes that labels may have without a row that shows them.
const MOST_CLASSES: usize = 1 << 16;

/// Reads a pickle.
fn load(path: &Path) -> Result<Pickle, DataError> {
    let bytes = SharedBytes::map(path)?;
    Pickle::parse(&bytes).map_err(|why| DataError::foreign(path, why))
}

/// Reads the neighbour lists: a dict of lists by node. The graph has the nodes up to the highest that it names.
fn read_graph(path: &Path, asymmetry: Asymmetry) -> Result<Graph, DataError> {
    let pickle = load(path)?;
    let bad = |why: String| DataError::foreign(path, why);
    let root = pickle.root();
    let pairs = root.pairs().ok_or_else(|| bad(format!("{}, expected a dict", root.described())))?;
    let limit = Limit::of(path);
    let mut found = Vec::with_capacity(pairs.len());
    let (mut nodes, mut entries) = (0, 0);
    for (key, list) in pairs {
        let node = key.size().ok_or_else(|| bad(format!("{} for a node", key.described())))?;
        let list = neighbours(list, entries).map_err(|why| bad(format!("the list of node {node}: {why}")))?;
        let highest = list.iter().copied().max().map_or(node, |other| node.max(other as usize));
        let highest = u32::try_from(highest).unwrap_or(u32::MAX);
        nodes = nodes.max(limit.count("node", highest).map_err(bad)?);
        entries += list.len();
        found.push((node, list));
    }
    let mut lists: Vec<Option<Vec<u32>>> = vec![None; nodes];
    for (node, list) in found {
        if lists[node].replace(list).is_some() {
            return Err(bad(format!("two lists of node {node}")));
        }
    }
    let lists = lists.into_iter().map(Option::unwrap_or_default).collect();
    Graph::from_lists(lists, asymmetry)
        .map_err(|found| bad(format!("the list of node {}: {}", found.node, found.why)))
}

/// Neighbours in a list, or in an array of integers, after `entries` of the same pickle.
fn neighbours(list: View<'_>, entries: usize) -> Result<Vec<u32>, String> {
    let node = |value: i64| u32::try_from(value).map_err(|_| format!("{value} for a node"));
    // A pickle may name one list, or one array, for any number of nodes.
    let check_room = |more: usize| match entries.saturating_add(more) > list.pickle_bytes() {
        true => Err(format!("more neighbours than its {} bytes can hold", list.pickle_bytes())),
        false => Ok(()),
    };
    let Some(elements) = list.elements() else {
        let array = list.array().map_err(|_| format!("{}, expected a list", list.described()))?;
        check_room(array.numel())?;
        return integers(&array)?.into_iter().map(node).collect();
    };
    check_room(elements.len())?;
    elements
        .map(|value| node(value.int().ok_or_else(|| format!("{} for a node", value.described()))?))
        .collect()
}

/// Reads a sparse matrix of features and the one-hot labels of its rows.
fn read_table(prefix: &Path, features: &str, labels: &str) -> Result<Table, DataError> {
    let (features, labels) = (part(prefix, features), part(prefix, labels));
    let bad = |why| DataError::foreign(&features, why);
    let pickle = load(&features)?;
    let matrix = pickle.root().sparse_matrix().map_err(bad)?;
    let [rows, columns] = matrix.shape;
    let last = u32::try_from(columns.saturating_sub(1)).unwrap_or(u32::MAX);
    Limit::of_columns(&features).count("column", last).map_err(bad)?;
    let (classes, found) = one_hot(load(&labels)?.root()).map_err(|why| DataError::foreign(&labels, why))?;
    // Before rows are made: those of some forms take no byte of the file.
    if found.len() != rows {
        let why = format!("{} rows of labels for {rows} rows of features", found.len());
        return Err(DataError::foreign(&labels, why));
    }
    Ok(Table { features: sparse_rows(&matrix).map_err(bad)?, labels: found, classes })
}

/// A value of a matrix: row, column and itself.
type Entry = (u32, u32, f64);

/// Rows of a sparse matrix; columns are sorted, repeated ones summed as their type has it, zeros left out, as a dense matrix would have them.
fn sparse_rows(matrix: &SparseMatrix) -> Result<SparseRows, String> {
    let [rows, columns] = matrix.shape;
    let mut entries = entries(matrix)?;
    // Stable: repeated ones are summed in the order in which they stand.
    entries.sort_by_key(|(row, column, _)| (*row, *column));
    entries.dedup_by(|later, kept| {
        let same = (later.0, later.1) == (kept.0, kept.1);
        if same {
            kept.2 = sum(matrix.data.dtype(), kept.2, later.2);
        }
        same
    });
    let mut table = SparseRows::new(columns);
    let mut rest = &entries[..];
    for row in 0..rows as u32 {
        let (own, others) = rest.split_at(rest.partition_point(|entry| entry.0 <= row));
        rest = others;
        let single = own.iter().map(|(_, column, value)| (*column, *value as f32));
        table.push(single.filter(|(_, value)| *value != 0.0)).map_err(|why| format!("row {row}: {why}"))?;
    }
    Ok(table)
}

/// The values of a matrix in the order in which they stand.
fn entries(matrix: &SparseMatrix) -> Result<Vec<Entry>, String> {
    let [rows, columns] = matrix.shape;
    let data = numbers(&matrix.data)?;
    let within = |what: &str, number: i64, end: usize| match u32::try_from(number) {
        Ok(place) if (place as usize) < end => Ok(place),
        _ => Err(format!("{what} {number} of {end}")),
    };
    let places: Vec<(i64, i64)> = match &matrix.places {
        SparsePlaces::Rows { indptr, indices } => divided(indptr, indices, data.len(), rows, "rows")?,
        SparsePlaces::Columns { indptr, indices } => {
            divided(indptr, indices, data.len(), columns, "columns")?
                .into_iter()
                .map(|(column, row)| (row, column))
                .collect()
        }
        SparsePlaces::Coordinates { rows, columns } => {
            let (rows, columns) = (integers(rows)?, integers(columns)?);
            if rows.len() != data.len() || columns.len() != data.len() {
                let (of_rows, of_columns) = (rows.len(), columns.len());
                return Err(format!("{of_rows} rows and {of_columns} columns for {} values", data.len()));
            }
            rows.into_iter().zip(columns).collect()
        }
    };
    let entry = |((row, column), value)| {
        let row = within("row", row, rows)?;
        let column = within("column", column, columns).map_err(|why| format!("row {row}: {why}"))?;
        Ok((row, column, value))
    };
    places.into_iter().zip(data).map(entry).collect()
}

/// Of compressed rows or columns, for each value the number of its row or column, and its place there.
fn divided(
    indptr: &RawTensor,
    indices: &RawTensor,
    values: usize,
    parts: usize,
    what: &str,
) -> Result<Vec<(i64, i64)>, String> {
    let (starts, indices) = (integers(indptr)?, integers(indices)?);
    let most = indices.len().min(values) as i64;
    if starts.len() != parts.saturating_add(1)
        || starts[0] != 0
        || !starts.is_sorted()
        || starts[parts] > most
    {
        return Err(format!("`indptr` does not divide {most} values into {parts} {what}"));
    }
    let part = |(part, ends): (usize, &[i64])| {
        indices[ends[0] as usize..ends[1] as usize].iter().map(move |place| (part as i64, *place))
    };
    Ok(starts.windows(2).enumerate().flat_map(part).collect())
}

/// A sum as elements of a type have it: of truth values whether one is true, in single precision rounded to that. Wider ones are rounded later.
fn sum(of: ElementType, one: f64, other: f64) -> f64 {
    match of {
        ElementType::Bool => one.max(other),
        ElementType::F32 => f64::from((one + other) as f32),
        _ => one + other,
    }
}

/// Classes of one-hot rows, `[rows, classes]`; a row of zeros has none. Gives the number of classes too.
fn one_hot(root: View<'_>) -> Result<(usize, Vec<Option<u32>>), String> {
    let array = root.array()?;
    let &[rows, classes] = array.shape() else {
        return Err(format!("an array of shape {:?}, expected rows and classes", array.shape()));
    };
    let values = numbers(&array)?;
    if classes > MOST_CLASSES.max(values.len()) {
        return Err(format!("an array of {rows} rows and {classes} classes"));
    }
    let mut labels = Vec::with_capacity(values.len().checked_div(classes).unwrap_or(0));
    for (row, values) in values.chunks(classes.max(1)).enumerate() {
        let ones = values.iter().filter(|value| **value == 1.0).count();
        if ones > 1 || ones + values.iter().filter(|value| **value == 0.0).count() != classes {
            return Err(format!("row {row} is not one-hot"));
        }
        labels.push(values.iter().position(|value| *value == 1.0).map(|class| class as u32));
    }
    match labels.len() == rows {
        true => Ok((classes, labels)),
        false => Err(format!("an array of {rows} rows and no classes")),
    }
}

fn integers(array: &RawTensor) -> Result<Vec<i64>, String> {
    let bytes = array.to_bytes();
    Ok(match array.dtype() {
        ElementType::U8 | ElementType::Bool => bytes.iter().map(|byte| i64::from(*byte)).collect(),
        ElementType::I8 => {
            bytes.as_chunks().0.iter().map(|word| i64::from(i8::from_le_bytes(*word))).collect()
        }
        ElementType::I16 => {
            bytes.as_chunks().0.iter().map(|word| i64::from(i16::from_le_bytes(*word))).collect()
        }
        ElementType::I32 => {
            bytes.as_chunks().0.iter().map(|word| i64::from(i32::from_le_bytes(*word))).collect()
        }
        ElementType::I64 => bytes.as_chunks().0.iter().map(|word| i64::from_le_bytes(*word)).collect(),
        other => return Err(format!("elements of type {other}, expected integers")),
    })
}

/// Numbers in double precision.
fn numbers(array: &RawTensor) -> Result<Vec<f64>, String> {
    let bytes = array.to_bytes();
    Ok(match array.dtype() {
        ElementType::F32 => {
            bytes.as_chunks().0.iter().map(|word| f64::from(f32::from_le_bytes(*word))).collect()
        }
        ElementType::F64 => bytes.as_chunks().0.iter().map(|word| f64::from_le_bytes(*word)).collect(),
        half @ (ElementType::F16 | ElementType::Bf16) => {
            return Err(format!("unsupported element type {half}"));
        }
        _ => integers(array)?.into_iter().map(|value| value as f64).collect(),
    })
}
