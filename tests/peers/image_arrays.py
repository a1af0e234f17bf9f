#!/usr/bin/env python3
"""Writes small data sets of images with public packages, and what torchvision reads from them.

    $(scripts/peers.sh python base) tests/peers/image_arrays.py FOLDER

Makes the folders `idx`, `idx_gz`, `cifar_python`, `cifar_binary`, `svhn` and `png` in FOLDER, as their sets are published: with NumPy, gzip, pickle,
SciPy and Pillow. Beside each of them NAME.SPLIT.pixels and NAME.SPLIT.labels hold the bytes of torchvision's arrays, `[images, channels, height, width]`
and `[images]`, of the splits `train` and `test`; of `cifar_binary`, which torchvision does not read, they are those of `cifar_python`.
"""

import gzip
import pathlib
import pickle
import shutil
import struct
import sys

import numpy as np
import scipy.io
import torchvision.datasets as sets
from PIL import Image

# Files that are made have other sums than those that are published.
for module in (sets.cifar, sets.svhn):
    module.check_integrity = lambda path, md5=None: pathlib.Path(path).is_file()

random = np.random.default_rng(7)


def drawn(*sizes):
    return random.integers(0, 256, sizes, dtype=np.uint8)


def labels_of(count, classes=10):
    """Every class, so that a reader that counts them finds as many."""
    return random.permutation(np.arange(count) % classes).astype(np.uint8)


def publish(folder, name, split, pixels, labels):
    (folder / f"{name}.{split}.pixels").write_bytes(np.ascontiguousarray(pixels, np.uint8).tobytes())
    (folder / f"{name}.{split}.labels").write_bytes(np.asarray(labels, np.uint8).tobytes())


def idx(array):
    return struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.tobytes()


def make_idx(folder):
    """`MNIST` reads a folder of its own within the one it is given."""
    raw = folder / "torchvision" / "MNIST" / "raw"
    raw.mkdir(parents=True)
    for file, count in (("train", 30), ("t10k", 20)):
        (raw / f"{file}-images-idx3-ubyte").write_bytes(idx(drawn(count, 7, 5)))
        (raw / f"{file}-labels-idx1-ubyte").write_bytes(idx(labels_of(count)))
    for name in ("idx", "idx_gz"):
        (folder / name).mkdir()
        for file in raw.iterdir():
            if name == "idx":
                shutil.copy(file, folder / name)
            else:
                (folder / name / f"{file.name}.gz").write_bytes(gzip.compress(file.read_bytes()))
        for split in ("train", "test"):
            read = sets.MNIST(folder / "torchvision", train=split == "train")
            publish(folder, name, split, read.data[:, None], read.targets)


def make_cifar(folder):
    base = folder / "torchvision" / "cifar-10-batches-py"
    base.mkdir(parents=True)
    (folder / "cifar_binary").mkdir()
    names = [f"class {number}" for number in range(10)]
    with open(base / "batches.meta", "wb") as file:
        pickle.dump({"label_names": names}, file, protocol=2)
    for name in [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]:
        pixels, labels = drawn(10, 3072), labels_of(10)
        with open(base / name, "wb") as file:
            pickle.dump({"data": pixels, "labels": labels.tolist()}, file, protocol=2)
        records = np.concatenate([labels[:, None], pixels], 1)
        (folder / "cifar_binary" / f"{name}.bin").write_bytes(records.tobytes())
    shutil.copytree(base, folder / "cifar_python")
    for split in ("train", "test"):
        read = sets.CIFAR10(folder / "torchvision", train=split == "train")
        for name in ("cifar_python", "cifar_binary"):
            publish(folder, name, split, read.data.transpose(0, 3, 1, 2), read.targets)


def make_svhn(folder):
    (folder / "svhn").mkdir()
    for split, count in (("train", 30), ("test", 20)):
        # Class 0 is stored as 10.
        labels = labels_of(count)[:, None] + np.uint8(1)
        path = folder / "svhn" / f"{split}_32x32.mat"
        scipy.io.savemat(path, {"X": drawn(32, 32, 3, count), "y": labels}, do_compression=split == "train")
        read = sets.SVHN(folder / "svhn", split=split)
        publish(folder, "svhn", split, read.data, read.labels)


def make_png(folder):
    for split in ("train", "test"):
        for name in ("b", "Z", "a10", "a9"):
            path = folder / "png" / split / name
            path.mkdir(parents=True)
            for number in (2, 10, 1):
                Image.fromarray(drawn(6, 4, 3)).save(path / f"{number}.png")
        read = sets.ImageFolder(folder / "png" / split)
        pixels = np.stack([np.asarray(image) for image, _ in read])
        publish(folder, "png", split, pixels.transpose(0, 3, 1, 2), read.targets)


def main():
    folder = pathlib.Path(sys.argv[1])
    for make in (make_idx, make_cifar, make_svhn, make_png):
        make(folder)


if __name__ == "__main__":
    main()
