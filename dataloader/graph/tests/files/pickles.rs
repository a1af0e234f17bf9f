//! Pickles: what is refused, and every way in which Python writes the same.

use std::fs;
use std::path::PathBuf;

use proptest::prelude::*;
use segue_graph::{NodeData, Setting};
use tempfile::TempDir;

use super::{fixture, open};

/// A copy of the pickles of a set, with one changed.
fn set_with(set: &str, name: &str, change: impl FnOnce(&mut Vec<u8>)) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let prefix = folder.path().join(set);
    for part in ["x", "y", "tx", "ty", "allx", "ally", "graph", "test.index"] {
        let file = fixture(&format!("{set}.{part}"));
        if file.is_file() {
            fs::copy(file, folder.path().join(format!("{set}.{part}"))).unwrap();
        }
    }
    let path = folder.path().join(format!("{set}.{name}"));
    let mut bytes = fs::read(&path).unwrap();
    change(&mut bytes);
    fs::write(&path, bytes).unwrap();
    (folder, prefix)
}

fn pickles_with(name: &str, change: impl FnOnce(&mut Vec<u8>)) -> (TempDir, PathBuf) {
    set_with("ind.python2-protocol2", name, change)
}

fn refused_pickle(name: &str, change: impl FnOnce(&mut Vec<u8>)) -> String {
    refused_of("ind.python2-protocol2", name, change)
}

fn refused_of(set: &str, name: &str, change: impl FnOnce(&mut Vec<u8>)) -> String {
    let (_folder, prefix) = set_with(set, name, change);
    let error = NodeData::open(&prefix, Setting::Inductive).unwrap_err();
    assert_eq!(error.exit_code(), 65, "{error}");
    error.to_string().rsplit(&format!("{set}.")).next().unwrap().to_string()
}

/// A change that puts `new` in the place of the first `old`.
fn replace<'a>(old: &'a [u8], new: &'a [u8]) -> impl FnOnce(&mut Vec<u8>) + 'a {
    move |bytes| {
        let at = bytes.windows(old.len()).position(|window| window == old).unwrap();
        bytes.splice(at..at + old.len(), new.iter().copied());
    }
}

#[test]
fn bad_pickles_are_refused_with_file_and_place() {
    let cut = refused_pickle("allx", |bytes| bytes.truncate(300));
    assert!(cut.starts_with("allx cannot be read: ") && cut.contains("byte"), "{cut}");
    // Two ones in the last row of labels; a graph that is a list; a matrix of another class.
    let one = [1, 0, 0, 0];
    let doubled = refused_pickle("ty", |bytes| {
        let place = bytes.windows(4).rposition(|window| window == one).unwrap();
        bytes[place + 4] = 1;
    });
    assert_eq!(doubled, "ty cannot be read: row 2 is not one-hot");
    // A text, whose first letter is an opcode that looks a value up.
    let text = refused_pickle("graph", |bytes| *bytes = b"hello, this is text\n".to_vec());
    assert_eq!(text, "graph cannot be read: memo 101 is empty: is it a pickle? (opcode 0x68 at byte 0)");
    let list = refused_pickle("graph", |bytes| *bytes = b"\x80\x02]q\x00.".to_vec());
    assert_eq!(list, "graph cannot be read: a value of kind List, expected a dict");
    let other = refused_pickle("tx", replace(b"csr_matrix", b"bsr_matrix"));
    assert!(
        other.contains(
            "an object of scipy.sparse.csr.bsr_matrix, expected a csr_matrix, csc_matrix, coo_matrix or lil_matrix"
        ),
        "{other}"
    );
    let lists =
        refused_pickle("graph", |bytes| *bytes = b"\x80\x02}(K\x00](K\x01K\x09eK\x01](K\x00eu.".to_vec());
    assert!(
        lists.starts_with("graph cannot be read: the list of node 0: node 0 lists 9, which lists no node"),
        "{lists}"
    );
    let far = refused_pickle("graph", |bytes| *bytes = b"\x80\x02}(K\x00]J\xff\xff\xff\x7fau.".to_vec());
    assert_eq!(far, "graph cannot be read: node 2147483647 in a file of 15 bytes");
    let negative = refused_pickle("graph", |bytes| *bytes = b"\x80\x02}(K\x00]J\xff\xff\xff\xffau.".to_vec());
    assert!(negative.contains("the list of node 0: -1 for a node"), "{negative}");
    let few = refused_pickle("test.index", |bytes| *bytes = b"7\n4\n".to_vec());
    assert_eq!(few, "test.index cannot be read: 2 nodes for the 3 rows of tx");
    let far = refused_pickle("test.index", |bytes| *bytes = b"7\n4\n4000000\n".to_vec());
    assert_eq!(far, "test.index, line 3: node 4000000 of a graph with 8 nodes");
    let low = refused_pickle("test.index", |bytes| *bytes = b"7\n4\n2\n".to_vec());
    assert_eq!(low, "test.index, line 3: node 2 is one of the 4 of allx");
}

/// The graph says which nodes there are. That of the example has eight, and the last of them is tested on.
/// Row P1.
#[test]
fn rows_of_nodes_that_the_graph_does_not_have_are_refused() {
    let graph = |lists: &str| format!("(d{lists}.").into_bytes();
    let list = |node: usize, other: usize| format!("I{node}\n(lI{other}\nas");
    for (set, name, content, expected) in [
        (
            "ind.python2-protocol2",
            "test.index",
            b"7\n8\n6\n".to_vec(),
            "test.index, line 2: node 8 of a graph with 8 nodes",
        ),
        (
            "ind.python2-protocol2",
            "graph",
            graph(&(list(0, 6) + &list(6, 0))),
            "test.index, line 1: node 7 of a graph with 7 nodes",
        ),
        (
            "ind.python2-protocol2",
            "graph",
            graph(&list(2, 2)),
            "allx cannot be read: row 3 is of node 3 of a graph with 3 nodes",
        ),
        (
            "trans.python2-protocol2",
            "graph",
            graph(&list(2, 2)),
            "tx cannot be read: row 1 is of node 3 of a graph with 3 nodes",
        ),
        (
            "trans.python2-protocol2",
            "graph",
            graph(&list(0, 0)),
            "x cannot be read: row 1 is of node 1 of a graph with 1 nodes",
        ),
    ] {
        assert_eq!(refused_of(set, name, |file| *file = content), expected);
    }
}

/// One list for all nodes: two bytes each, however long it is.
#[test]
fn lists_that_are_named_again_and_again_are_refused_before_they_are_held() {
    let mut pickle = b"\x80\x02}(K\x00](".to_vec();
    (0..200).for_each(|_| pickle.extend(b"K\x00"));
    pickle.extend(b"eq\x01");
    (1..200).for_each(|node| pickle.extend([b'K', node, b'h', 1]));
    pickle.extend(b"u.");
    let array = old_array("u1", '|', &[500], &[0; 500]);
    let again: String = (1..200).map(|node| format!("I{node}\ng1\ns")).collect();
    let arrays = format!("(dI0\n{array}p1\ns{again}.");
    for pickle in [pickle, arrays.into_bytes()] {
        let refused = refused_pickle("graph", |file| *file = pickle);
        assert!(refused.contains("more neighbours than its"), "{refused}");
    }
}

/// An array as Python 2 writes it by protocol 0, without the end of the pickle.
fn old_array(code: &str, order: char, shape: &[usize], bytes: &[u8]) -> String {
    let shape: String = shape.iter().map(|size| format!("I{size}\n")).collect();
    let bytes: String = bytes.iter().map(|byte| format!("\\x{byte:02x}")).collect();
    format!(
        "cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(I0\ntS'b'\ntR(I1\n({shape}tcnumpy\ndtype\n(S'{code}'\nI0\nI1\ntR\
         (I3\nS'{order}'\nNNNI-1\nI-1\nI0\ntbI00\nS'{bytes}'\ntb"
    )
}

/// The labels of the two rows of `x`, in types that NumPy's users choose for them.
/// Row P1.
#[test]
fn labels_may_be_of_any_type_that_holds_0_and_1() {
    let expected = open(&fixture("ind.python2-protocol2"), Setting::Inductive).fingerprint();
    let ones = [0u8, 0, 1, 1, 0, 0];
    let wide = |width: usize, at: usize| -> Vec<u8> {
        ones.iter().flat_map(|one| (0..width).map(move |byte| if byte == at { *one } else { 0 })).collect()
    };
    let doubles: Vec<u8> = ones.iter().flat_map(|one| f64::from(*one).to_be_bytes()).collect();
    for (code, order, bytes) in [
        ("b1", '|', ones.to_vec()),
        ("u1", '|', ones.to_vec()),
        ("i1", '|', ones.to_vec()),
        ("i2", '<', wide(2, 0)),
        ("i4", '>', wide(4, 3)),
        ("i8", '>', wide(8, 7)),
        ("u2", '>', wide(2, 1)),
        ("u4", '<', wide(4, 0)),
        ("u8", '>', wide(8, 7)),
        ("f8", '>', doubles),
    ] {
        let labels = old_array(code, order, &[2, 3], &bytes) + ".";
        let (_folder, prefix) = pickles_with("y", |file| *file = labels.into_bytes());
        let read = open(&prefix, Setting::Inductive);
        assert_eq!(read.fingerprint(), expected, "{code}{order}");
    }
    let halves = old_array("f2", '<', &[2, 3], &wide(2, 0)) + ".";
    let refused = refused_pickle("y", |file| *file = halves.into_bytes());
    assert_eq!(refused, "y cannot be read: unsupported element type f16");
    for (bytes, why) in [
        (vec![0xFF; 48], "y cannot be read: an element of type `u8` of more than 63 bits"),
        (vec![0; 47], "y cannot be read: 47 bytes for elements of type `u8`"),
        (vec![0; 40], "y cannot be read: 40 bytes for a tensor of i64 and shape [2, 3]"),
    ] {
        let labels = old_array("u8", '<', &[2, 3], &bytes) + ".";
        assert_eq!(refused_pickle("y", |file| *file = labels.into_bytes()), why);
    }
}

/// Rows of `ally` may be zeros, as those of NELL's entities without a label are; such a node is seen and in no part of a split.
/// Row P19.
#[test]
fn rows_of_unlabelled_nodes_are_zeros() {
    let whole = open(&fixture("ind.python2-protocol2"), Setting::Inductive);
    let (_folder, prefix) = pickles_with("ally", |bytes| {
        // The one of the last of four rows of three classes.
        let place = bytes.windows(4).rposition(|window| window == [1, 0, 0, 0]).unwrap();
        bytes[place] = 0;
    });
    let read = open(&prefix, Setting::Inductive);
    assert_eq!((whole.labels[3], read.labels[3]), (Some(2), None));
    assert_eq!(read.labels[..3], whole.labels[..3]);
    assert_eq!((&read.seen, read.classes), (&whole.seen, 3));
}

/// An object of SciPy as Python 2 writes it by protocol 0, of three rows and four columns.
fn old_matrix(form: &str, parts: &[(&str, String)]) -> Vec<u8> {
    let parts: String = parts.iter().map(|(name, array)| format!("S'{name}'\n{array}s")).collect();
    format!(
        "ccopy_reg\n_reconstructor\n(cscipy.sparse.{form}\n{form}_matrix\nc__builtin__\nobject\nNtR(dS'_shape'\n(I3\nI4\nts{parts}b."
    )
    .into_bytes()
}

fn old_integers(code: &str, numbers: &[i64]) -> String {
    let width = code[1..].parse().unwrap();
    let bytes: Vec<u8> = numbers.iter().flat_map(|n| n.to_le_bytes().into_iter().take(width)).collect();
    old_array(code, '<', &[numbers.len()], &bytes)
}

/// An array of lists, as a `lil_matrix` has two of.
fn old_lists(lists: &str, count: usize) -> String {
    let head = "cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(I0\ntS'b'\ntR(I1\n";
    let of_objects = "cnumpy\ndtype\n(S'O8'\nI0\nI1\ntR(I3\nS'|'\nNNNI-1\nI-1\nI63\ntb";
    format!("{head}(I{count}\nt{of_objects}I00\n(l{lists}tb")
}

/// Features of nodes 7, 4 and 6 by columns, by coordinates as before SciPy 1.13, and by lists: 1 in (0, 3), 2 in (1, 0), 3 and 4 in (2, 1) and (2, 2).
/// Row P1.
#[test]
fn matrices_of_every_form_hold_the_same() {
    let values = |order: [i64; 4]| ("data", old_integers("i1", &order));
    let integers = |name, numbers: &[i64]| (name, old_integers("i4", numbers));
    let of_lists = |rows: &str, data: &str| vec![("rows", old_lists(rows, 3)), ("data", old_lists(data, 3))];
    let by_columns = |starts: &[i64], rows: &[i64]| {
        vec![integers("indptr", starts), integers("indices", rows), values([2, 3, 4, 1])]
    };
    let by_coordinates = |rows: &[i64], columns: &[i64]| {
        vec![integers("row", rows), integers("col", columns), values([3, 1, 2, 4])]
    };
    let lists = of_lists("(lI3\naa(lI0\naa(lI1\naI2\naa", "(lF1.0\naa(lF2.0\naa(lI3\naI4\naa");
    for (form, parts) in [
        ("csc", by_columns(&[0, 1, 2, 3, 4], &[1, 2, 2, 0])),
        ("coo", by_coordinates(&[2, 0, 1, 2], &[1, 3, 0, 2])),
        ("lil", lists),
    ] {
        let (_folder, prefix) = pickles_with("tx", |file| *file = old_matrix(form, &parts));
        let features = open(&prefix, Setting::Inductive).features;
        let rows = [7, 4, 6].map(|node| features.row(node));
        assert_eq!(rows[0], (&[3][..], &[1.0][..]), "{form}");
        assert_eq!(rows[1], (&[0][..], &[2.0][..]), "{form}");
        assert_eq!(rows[2], (&[1, 2][..], &[3.0, 4.0][..]), "{form}");
    }
    for (form, parts, why) in [
        ("csc", by_columns(&[0, 1, 2, 3, 4], &[1, 2, 3, 0]), "row 3 of 3"),
        ("csc", by_columns(&[0, 1, 2, 4], &[1, 2, 2, 0]), "`indptr` does not divide 4 values into 4 columns"),
        (
            "csc",
            by_columns(&[0, 1, 2, 3, 5], &[1, 2, 2, 0]),
            "`indptr` does not divide 4 values into 4 columns",
        ),
        ("coo", by_coordinates(&[2, 0, 1, -1], &[1, 3, 0, 2]), "row -1 of 3"),
        ("coo", by_coordinates(&[2, 0, 1, 2], &[1, 4, 0, 2]), "row 0: column 4 of 4"),
        ("coo", by_coordinates(&[2, 0, 1], &[1, 3, 0, 2]), "3 rows and 4 columns for 4 values"),
        ("coo", vec![integers("row", &[0])], "a matrix without `col`"),
        (
            "lil",
            of_lists("(lI3\naa(la(la", "(la(la(la"),
            "row 0 of a matrix is not a list of columns and one of as many",
        ),
        ("lil", of_lists("(lI9\naa(la(la", "(lI1\naa(la(la"), "row 0: column 9 of 4"),
        (
            "lil",
            of_lists("(la(la", "(la(la(la"),
            "`rows` of a matrix: an array of shape [3], expected one of objects",
        ),
    ] {
        let refused = refused_pickle("tx", |file| *file = old_matrix(form, &parts));
        assert!(refused.starts_with("tx cannot be read: ") && refused.contains(why), "{form}: {refused}");
    }
}

/// What a dense matrix of each type has where a column is given twice: the sum, and of truth values that there is one.
/// Row P1.
#[test]
fn columns_that_are_repeated_add_up_as_their_type_has_it() {
    let integers = |numbers: &[i32]| -> Vec<u8> { numbers.iter().flat_map(|n| n.to_le_bytes()).collect() };
    let [starts, columns] = [&[0, 2, 3, 6][..], &[3, 3, 0, 2, 1, 2]]
        .map(|numbers| old_array("i4", '<', &[numbers.len()], &integers(numbers)));
    // Their sum is past the middle between two numbers of single precision, where each alone is below it.
    let (one, least) = (1.0 + 1.5 * 2f64.powi(-25), 2f64.powi(-25));
    let doubles = [one, least, 0.1, one, 0.1, least].map(f64::to_le_bytes).concat();
    for (code, data, once, twice) in [
        ("b1", vec![1; 6], 1.0, 1.0),
        ("i1", vec![0xFF; 6], -1.0, -2.0),
        ("f8", doubles, 0.1, 1.0 + f32::EPSILON),
    ] {
        let data = old_array(code, '<', &[6], &data);
        let matrix = format!(
            "ccopy_reg\n_reconstructor\n(cscipy.sparse.csr\ncsr_matrix\nc__builtin__\nobject\nNtR(dS'_shape'\n(I3\nI4\ntsS'indptr'\n{starts}s\
             S'indices'\n{columns}sS'data'\n{data}sb."
        );
        let (_folder, prefix) = pickles_with("tx", |file| *file = matrix.into_bytes());
        let features = open(&prefix, Setting::Inductive).features;
        assert_eq!(features.row(7), (&[3][..], &[twice][..]), "{code}");
        assert_eq!(features.row(4), (&[0][..], &[once][..]), "{code}");
        assert_eq!(features.row(6), (&[1, 2][..], &[once, twice][..]), "{code}");
    }
}

/// Without `allx` the rows of `tx` would be taken for the nodes right behind `x`.
#[test]
fn an_inductive_set_without_all_its_files_is_refused() {
    for setting in [Setting::Inductive, Setting::Transductive] {
        let (_folder, prefix) = pickles_with("x", |_| ());
        fs::remove_file(format!("{}.allx", prefix.display())).unwrap();
        let error = NodeData::open(&prefix, setting).unwrap_err();
        assert_eq!(error.exit_code(), 66);
        assert!(error.to_string().contains("ind.python2-protocol2.allx"), "{error}");
    }
}

#[test]
fn pickles_are_not_written_over_others_nor_without_what_they_have_no_room_for() {
    let (_folder, prefix) = pickles_with("x", |_| ());
    let data = open(&prefix, Setting::Inductive);
    assert_eq!(data.write_pickles(&prefix).unwrap_err().exit_code(), 73);
    // Node 2 has features and is in no part of the split.
    let data = open(&fixture("text/ind"), Setting::Transductive);
    let error = data.in_published_order().write_pickles(&prefix.with_file_name("trans.other")).unwrap_err();
    assert!(error.to_string().contains("is in no part of the split"), "{error}");
    assert!(error.hint().unwrap().contains("--setting inductive"));
    let data = open(&fixture("text/trans"), Setting::Transductive);
    let error = data.in_published_order().write_pickles(&prefix.with_file_name("ind.other")).unwrap_err();
    assert!(error.to_string().contains("ind.other stands for an inductive set"), "{error}");
}

#[test]
fn a_matrix_whose_arrays_lie_is_refused() {
    // The first array is `indptr`: 0 and then the ends of rows.
    let (folder, prefix) = pickles_with("x", |_| ());
    let data = open(&prefix, Setting::Inductive);
    drop(folder);
    let folder = tempfile::tempdir().unwrap();
    let prefix = folder.path().join("ind.toy");
    data.write_pickles(&prefix).unwrap();
    let path = folder.path().join("ind.toy.x");
    let good = fs::read(&path).unwrap();
    let ends = [0u8, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0];
    let at = good.windows(12).position(|window| window == ends).unwrap();
    for (place, value) in [(at, 1), (at + 4, 4), (at + 8, 100), (at + 11, 0x7F)] {
        let mut bad = good.clone();
        bad[place] = value;
        fs::write(&path, bad).unwrap();
        let error = NodeData::open(&prefix, Setting::Inductive).unwrap_err().to_string();
        assert!(error.ends_with("`indptr` does not divide 3 values into 2 rows"), "{error}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn any_damage_of_a_pickle_is_read_or_refused(
        which in 0usize..7,
        set in prop::sample::select(vec!["ind.python2-protocol2", "ind.forms-protocol0", "ind.forms-protocol4"]),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
    ) {
        let name = ["x", "y", "tx", "ty", "allx", "ally", "graph"][which];
        let (_folder, prefix) = set_with(set, name, |bytes| {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        });
        if let Ok(data) = NodeData::open(&prefix, Setting::Inductive) {
            data.graph.counts();
            data.fingerprint();
        }
    }
}
