"""Every named data set, one row each: its size, its files with their SHA-256 and mirrors, and how it is read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from metriscope.data import images, tabular
from metriscope.data.dataset import DataError, Parts
from metriscope.data.download import File

__all__ = ["ROWS", "Row", "names", "row"]


@dataclass(frozen=True)
class Row:
    """What is known of a data set before it is read.

    ``train`` and ``test`` are numbers of examples. ``read`` takes the path of each file by its name. A set without
    files comes with an installed package, and ``sha256`` is the digest of its content. An ``archive`` holds all the
    files; ``instead`` is the embedded set to fall back on.
    """

    kind: Literal["images", "table", "sequences"]
    train: int
    test: int
    classes: int
    read: Callable[[Mapping[str, Path]], Parts]
    files: tuple[File, ...] = ()
    archive: File | None = None
    instead: str = ""
    note: str = ""
    sha256: str = ""

    @property
    def size(self) -> int:
        """Total number of bytes of all files."""
        return sum(file.size for file in self.files)


# SHA-256 of the content of embedded data sets.
_CONTENT = {
    "mnist-5k": "3a4c89cca0dbeb79dc67c7c6313c0261d710c86421171f98e50108e2e89e20fc",
    "digits": "360bb7bf8c743eda5c6fa80e040d670e09d5d16dc70c268078db9b4cf8920351",
    "wine": "5f2bfe5780499e5ddb6a7c416bd0c65849fe6d8e3c69bf8c2bd773694ef55b14",
    "breast_cancer": "3096c80b66b7e1b48b721b7c1cb59f19e3f86e8db1f3301bd19c08083586bc7b",
}
# SHA-256, size in bytes and name of each file.
_FILES = {
    "mnist": [
        "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609  9912422  train-images-idx3-ubyte.gz",
        "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c  28881  train-labels-idx1-ubyte.gz",
        "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6  1648877  t10k-images-idx3-ubyte.gz",
        "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6  4542  t10k-labels-idx1-ubyte.gz",
    ],
    "fashion-mnist": [
        "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84  26421880  train-images-idx3-ubyte.gz",
        "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845  29515  train-labels-idx1-ubyte.gz",
        "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073  4422102  t10k-images-idx3-ubyte.gz",
        "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5  5148  t10k-labels-idx1-ubyte.gz",
    ],
    "cifar-10": [
        "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5  30730000  data_batch_1.bin",
        "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed  30730000  data_batch_2.bin",
        "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67  30730000  data_batch_3.bin",
        "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48  30730000  data_batch_4.bin",
        "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add  30730000  data_batch_5.bin",
        "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b  30730000  test_batch.bin",
    ],
    "cifar-10 archive": [
        "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd  170052171  cifar-10-binary.tar.gz"
    ],
    "adult": [
        "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d  3974305  adult.data",
        "a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05  2003153  adult.test",
    ],
    "covertype": ["054503622a3d92e5499f0f3d27e32e7ef3eeb11a031a244a4132ef7b32120d32  11246185  covtype.data.gz"],
    "letter": ["2b89f3602cf768d3c8355267d2f13f2417809e101fc2b5ceee10db19a60de6e2  712565  letter-recognition.data"],
    "spambase": ["b1ef93de71f97714d3d7d4f58fc9f718da7bbc8ac8a150eff2778616a8097b12  702942  spambase.data"],
    "ecg5000": [
        "df86ac15d7e283e731db6be7865f5004b65bc639014cb8b9753c26e24a9092a1  786687  ECG5000_TRAIN.tsv",
        "0192997dd1793880633bfb34ae3ad5129c09a8e0f210c469225451b92cdd8548  7083836  ECG5000_TEST.tsv",
    ],
    "fsdd": ["6c95b38706a9eb4dee6715ab122f517b3b1f4d45875856cb492891c06eb8d399  15425695  fsdd.npz"],
}
# Folder of a data set's files, and its mirrors: addresses in front of a file's name.
_UCI = "https://archive.ics.uci.edu/ml/machine-learning-databases"
_SOURCES = {
    "mnist": (
        "mnist",
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        "https://storage.googleapis.com/cvdf-datasets/mnist/",
    ),
    "fashion-mnist": ("fashion-mnist", "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"),
    "cifar-10": ("cifar-10/cifar-10-batches-bin",),
    "cifar-10 archive": ("cifar-10", "https://www.cs.toronto.edu/~kriz/"),
    "adult": ("tabular", f"{_UCI}/adult/"),
    "covertype": ("tabular", f"{_UCI}/covtype/"),
    "letter": ("tabular", f"{_UCI}/letter-recognition/"),
    "spambase": ("tabular", f"{_UCI}/spambase/"),
    "ecg5000": ("sequence",),
    "fsdd": ("sequence",),
}


def _files(name: str) -> tuple[File, ...]:
    (folder, *mirrors), rows = _SOURCES[name], [line.split() for line in _FILES[name]]
    return tuple(File(f"{folder}/{file}", sha, int(size), tuple(m + file for m in mirrors)) for sha, size, file in rows)


# Some training batches of CIFAR-10 may be missing.
_BATCHES = tuple(replace(file, optional=file.name.startswith("data_batch")) for file in _files("cifar-10"))
_ARCHIVE = _files("cifar-10 archive")[0]

_FIFTH = "no published split: every fifth example of each class is test"
_LEVELS = f"gray levels are 0 to 16; {_FIFTH}"
_CATEGORIES = "categories are one-hot, a missing value is a category of its own, no row is dropped"
_COVERTYPE = "the published training and validation rows, 2,160 per class, are the training part"
_LETTER = "the first 16,000 are the training part, as published"
_SPOKEN = "8 kHz; recordings are padded with zeros to the longest; recordings 0 to 4 are test, as published"

# Kind, training and test examples, classes, reader, files, archive.
ROWS: dict[str, Row] = {
    "mnist": Row("images", 60_000, 10_000, 10, images.idx_parts, _files("mnist"), instead="mnist-5k"),
    "fashion-mnist": Row("images", 60_000, 10_000, 10, images.idx_parts, _files("fashion-mnist"), instead="mnist-5k"),
    "cifar-10": Row("images", 50_000, 10_000, 10, images.cifar_parts, _BATCHES, _ARCHIVE, instead="mnist-5k"),
    "mnist-5k": Row("images", 4_000, 1_000, 10, images.mnist_5k_parts, note=_FIFTH, sha256=_CONTENT["mnist-5k"]),
    "digits": Row("images", 1_442, 355, 10, images.digits_parts, note=_LEVELS, sha256=_CONTENT["digits"]),
    "wine": Row("table", 144, 34, 3, tabular.wine_parts, note=_FIFTH, sha256=_CONTENT["wine"]),
    "breast_cancer": Row(
        "table", 456, 113, 2, tabular.breast_cancer_parts, note=_FIFTH, sha256=_CONTENT["breast_cancer"]
    ),
    "adult": Row(
        "table", 32_561, 16_281, 2, tabular.adult_parts, _files("adult"), instead="breast_cancer", note=_CATEGORIES
    ),
    "covertype": Row(
        "table", 15_120, 565_892, 7, tabular.covertype_parts, _files("covertype"), instead="wine", note=_COVERTYPE
    ),
    "letter": Row("table", 16_000, 4_000, 26, tabular.letter_parts, _files("letter"), instead="wine", note=_LETTER),
    "spambase": Row(
        "table", 3_682, 919, 2, tabular.spambase_parts, _files("spambase"), instead="breast_cancer", note=_FIFTH
    ),
    "ecg5000": Row("sequences", 500, 4_500, 5, tabular.ecg5000_parts, _files("ecg5000")),
    "fsdd": Row("sequences", 2_700, 300, 10, tabular.fsdd_parts, _files("fsdd"), note=_SPOKEN),
}


def names() -> tuple[str, ...]:
    """Return the name of every data set.

    Returns
    -------
    tuple of str
        Names that :func:`load` accepts.

    Examples
    --------
    >>> names()[:3]
    ('mnist', 'fashion-mnist', 'cifar-10')
    """
    return tuple(ROWS)


def row(name: str) -> Row:
    """Return the row of a data set."""
    if name not in ROWS:
        raise DataError(f"unknown data set {name!r}: there are {', '.join(ROWS)}")
    return ROWS[name]
