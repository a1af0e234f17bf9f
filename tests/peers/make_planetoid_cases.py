#!/usr/bin/env python3
"""A small data set in the form of kimiyoung/planetoid's pickles, as Python 2 and 3 write them, and as text.

    make_planetoid_cases.py OUT                    writes OUT/ind.* and OUT/trans.* and the folder OUT/text
    make_planetoid_cases.py --check PREFIX TEXT    compares pickles with a folder of text; exits with 1 where they differ

Made once with numpy 2.4 and scipy 1.17; tests/fixtures/planetoid holds the result. Exits with 2 where the packages are not installed.
"""
import io
import pathlib
import pickle
import sys
from collections import defaultdict

try:
    import numpy as np
    import scipy.sparse as sp
except ImportError as error:
    print(f"skipped: {error}", file=sys.stderr)
    sys.exit(2)

COLUMNS, CLASSES, NODES = 4, 3, 8
# Nodes 0 and 1 are trained on, 0 to 3 are seen, 7, 4 and 6 are tested on in this order; 5 is in no matrix.
TRAIN, ALL, TEST = [0, 1], [0, 1, 2, 3], [7, 4, 6]
FEATURES = {0: {0: 1, 3: 1}, 1: {1: 0.5}, 2: {}, 3: {2: -0.25, 3: 3e-5}, 4: {0: 2}, 6: {1: 1, 2: 1}, 7: {3: 0.1}}
LABELS = {0: 2, 1: 0, 2: 1, 3: 2, 4: 0, 6: 1, 7: 2}
# Repeats, a self-loop, a node that has only itself, and one that is in no matrix but has a neighbour.
GRAPH = {0: [3, 1, 1], 1: [0, 0, 4], 2: [2], 3: [0, 3, 5], 4: [1, 6], 5: [3], 6: [4, 7], 7: [6]}


class Python2(pickle._Pickler):
    """Writes what Python 2 would have: every text is a byte string, and names are those of old modules."""
    dispatch = dict(pickle._Pickler.dispatch)

    def save_bytes(self, text):
        value = text.encode("latin1") if isinstance(text, str) else text
        if self.proto == 0:
            self.write(b"S" + repr(value)[1:].encode() + b"\n")
        elif len(value) < 256:
            self.write(b"U" + bytes([len(value)]) + value)
        else:
            self.write(b"T" + len(value).to_bytes(4, "little") + value)
        self.memoize(text)

    dispatch[str] = dispatch[bytes] = save_bytes

    @classmethod
    def dumps(cls, value, protocol):
        out = io.BytesIO()
        cls(out, protocol).dump(value)
        return old_names(out.getvalue())


def old_names(content):
    content = content.replace(b"numpy._core.", b"numpy.core.")
    for form in (b"csr", b"csc", b"coo", b"lil"):
        content = content.replace(b"scipy.sparse._" + form, b"scipy.sparse." + form)
    return content


def matrix(nodes, wide):
    dense = np.zeros((len(nodes), COLUMNS), dtype=np.float64 if wide else np.float32)
    for row, node in enumerate(nodes):
        for column, value in FEATURES[node].items():
            dense[row, column] = np.float32(value)
    if not wide:
        return sp.csr_matrix(dense)
    # Columns out of order, values in two parts, a zero that is stored: the matrix is the same.
    starts, columns, values = [0], [], []
    for row in dense:
        for column in [*reversed(np.flatnonzero(row)), *np.flatnonzero(row)]:
            columns.append(column)
            values.append(row[column] / 2)
        columns.append(1)
        values.append(0.0)
        starts.append(len(columns))
    found = sp.csr_matrix((np.array(values), np.array(columns), np.array(starts)), shape=dense.shape)
    found.indices, found.indptr = found.indices.astype(np.int64), found.indptr.astype(np.int64)
    return found


def repeated(nodes):
    """Coordinates in no order, each value in two parts."""
    whole = matrix(nodes, False).tocoo()
    order = np.roll(np.arange(2 * whole.nnz), 3)
    rows, columns, values = (np.tile(part, 2)[order] for part in (whole.row, whole.col, whole.data / 2))
    return sp.coo_matrix((values, (rows, columns)), shape=whole.shape)


def one_hot(nodes, wide):
    table = np.zeros((len(nodes), CLASSES), dtype=np.int32)
    for row, node in enumerate(nodes):
        table[row, LABELS[node]] = 1
    return np.asfortranarray(table.astype(np.int64)) if wide else table


def write(prefix, dumps, tested, all_nodes, graph, wide=False):
    parts = {"x": matrix(TRAIN, wide), "y": one_hot(TRAIN, wide), "tx": matrix(tested, wide), "ty": one_hot(tested, wide),
             "graph": defaultdict(list, graph)}
    if all_nodes:
        parts |= {"allx": matrix(all_nodes, wide), "ally": one_hot(all_nodes, wide)}
        prefix.with_name(prefix.name + ".test.index").write_text("".join(f"{node}\n" for node in tested))
    for name, value in parts.items():
        prefix.with_name(f"{prefix.name}.{name}").write_bytes(dumps(value))


def write_forms(prefix, dumps):
    """The same in other forms of matrices, with labels without a sign, and neighbours in arrays."""
    parts = {"x": matrix(TRAIN, True).tocsc(), "tx": repeated(TEST), "allx": matrix(ALL, False).tolil(),
             "y": one_hot(TRAIN, False).astype("<u2"), "ty": one_hot(TEST, False).astype(">u4"),
             "ally": one_hot(ALL, False).astype("<u8"),
             "graph": {node: np.array(others, dtype=np.uint16) for node, others in GRAPH.items()}}
    prefix.with_name(prefix.name + ".test.index").write_text("".join(f"{node}\n" for node in TEST))
    for name, value in parts.items():
        prefix.with_name(f"{prefix.name}.{name}").write_bytes(dumps(value))


def write_text(folder, tested, seen):
    folder.mkdir(parents=True, exist_ok=True)
    shown = sorted(set(TRAIN + tested + seen))
    lines = {
        "sizes.txt": [f"nodes {NODES}", f"columns {COLUMNS}", f"classes {CLASSES}"],
        "graph.adj": [" ".join(map(str, [node, *GRAPH[node]])) for node in range(NODES)],
        "labels.txt": [str(LABELS[node] if node in shown else -1) for node in range(NODES)],
        "features.svm": [" ".join([str(node)] + [f"{column}:{value}" for column, value in FEATURES[node].items()])
                         for node in shown],
        "train.index": map(str, TRAIN),
        "test.index": map(str, tested),
        "allx.index": map(str, sorted(set(shown) - set(tested))),
    }
    for name, content in lines.items():
        (folder / name).write_text("".join(line + "\n" for line in content))


def make(out):
    out.mkdir(parents=True, exist_ok=True)
    write_text(out / "text" / "ind", TEST, ALL)
    # Without allx the test nodes follow those that are trained on.
    write_text(out / "text" / "trans", [2, 3], [])
    for protocol in (0, 2):
        write(out / f"ind.python2-protocol{protocol}", lambda value: Python2.dumps(value, protocol), TEST, ALL, GRAPH)
    write(out / "ind.python3-protocol2", lambda value: old_names(pickle.dumps(value, 2)), TEST, ALL, GRAPH)
    write(out / "ind.python3-protocol5", lambda value: pickle.dumps(value, 5), TEST, ALL, GRAPH, wide=True)
    write_forms(out / "ind.forms-protocol0", lambda value: Python2.dumps(value, 0))
    write_forms(out / "ind.forms-protocol4", lambda value: pickle.dumps(value, 4))
    write(out / "trans.python2-protocol2", lambda value: Python2.dumps(value, 2), [2, 3], None, GRAPH)


def check(prefix, text):
    """Reads pickles with Python alone and compares each number with the text."""
    def load(name):
        with open(f"{prefix}.{name}", "rb") as file:
            return pickle.load(file, encoding="latin1")

    def lines(name):
        return [line.split() for line in (text / name).read_text().splitlines()]

    def index(name):
        return [int(node) for node, in lines(name + ".index")]

    graph = {int(node): list(map(int, rest)) for node, *rest in lines("graph.adj")}
    features = {int(node): {int(c): np.float32(v) for c, v in (word.split(":") for word in rest)}
                for node, *rest in lines("features.svm")}
    labels = [int(label) for label, in lines("labels.txt")]
    tables = {"x": index("train"), "tx": index("test")}
    if pathlib.Path(f"{prefix}.allx").exists():
        tables["allx"] = index("allx")
        assert [int(line) for line in pathlib.Path(f"{prefix}.test.index").read_text().split()] == index("test")
    assert {int(node): list(map(int, rest)) for node, rest in load("graph").items()} == graph
    for name, nodes in tables.items():
        found, classes = load(name), load(name.replace("x", "y"))
        assert found.dtype == np.float32 and classes.dtype == np.int32
        assert found.shape[0] == classes.shape[0] == len(nodes), name
        for row, node in enumerate(nodes):
            entries = found[row].tocoo()
            assert dict(zip(entries.col.tolist(), entries.data)) == features[node], (name, node)
            expected = np.zeros(classes.shape[1], int)
            if labels[node] >= 0:
                expected[labels[node]] = 1
            assert (classes[row] == expected).all(), (name, node)
    print(f"{prefix}: {', '.join(f'{name} {len(nodes)}' for name, nodes in tables.items())}, graph {len(graph)}")


if sys.argv[1:2] == ["--check"]:
    check(sys.argv[2], pathlib.Path(sys.argv[3]))
else:
    make(pathlib.Path(sys.argv[1]))
