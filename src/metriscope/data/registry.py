"""Every named data set, one row each: its size, its files with their SHA-256 and mirrors, and how it is read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from metriscope.common.validation import described
from metriscope.data import images, tabular
from metriscope.data.dataset import DataError, Parts
from metriscope.data.download import File

__all__ = ["ROWS", "Row", "names", "row"]


@dataclass(frozen=True)
class Row:
    """The description of a data set: what is known before its files are read.

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


_FIFTH = "no published split: every fifth example of each class is test"
_MNIST = ("https://ossci-datasets.s3.amazonaws.com/mnist/", "https://storage.googleapis.com/cvdf-datasets/mnist/")
_FASHION = ("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",)
_UCI = "https://archive.ics.uci.edu/ml/machine-learning-databases/"


def _files(folder: str, mirrors: tuple[str, ...], *lines: str) -> tuple[File, ...]:
    """Return files from lines of SHA-256, size and name; a mirror is the address in front of a file's name."""
    rows = [line.split() for line in lines]
    return tuple(File(f"{folder}/{name}", sha, int(size), tuple(m + name for m in mirrors)) for sha, size, name in rows)


def _batches(*lines: str) -> tuple[File, ...]:
    """Return the files of CIFAR-10: some training batches may be missing, and only the archive can be downloaded."""
    found = _files("cifar-10/cifar-10-batches-bin", (), *lines)
    return tuple(replace(file, optional=file.name.startswith("data_batch")) for file in found)


ROWS: dict[str, Row] = {
    "mnist": Row(
        kind="images",
        train=60_000,
        test=10_000,
        classes=10,
        read=images.idx_parts,
        files=_files(
            "mnist",
            _MNIST,
            "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609  9912422  train-images-idx3-ubyte.gz",
            "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c  28881  train-labels-idx1-ubyte.gz",
            "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6  1648877  t10k-images-idx3-ubyte.gz",
            "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6  4542  t10k-labels-idx1-ubyte.gz",
        ),
        instead="mnist-5k",
    ),
    "fashion-mnist": Row(
        kind="images",
        train=60_000,
        test=10_000,
        classes=10,
        read=images.idx_parts,
        files=_files(
            "fashion-mnist",
            _FASHION,
            "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84  26421880  train-images-idx3-ubyte.gz",
            "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845  29515  train-labels-idx1-ubyte.gz",
            "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073  4422102  t10k-images-idx3-ubyte.gz",
            "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5  5148  t10k-labels-idx1-ubyte.gz",
        ),
        instead="mnist-5k",
    ),
    "cifar-10": Row(
        kind="images",
        train=50_000,
        test=10_000,
        classes=10,
        read=images.cifar_parts,
        files=_batches(
            "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5  30730000  data_batch_1.bin",
            "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed  30730000  data_batch_2.bin",
            "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67  30730000  data_batch_3.bin",
            "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48  30730000  data_batch_4.bin",
            "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add  30730000  data_batch_5.bin",
            "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b  30730000  test_batch.bin",
        ),
        archive=_files(
            "cifar-10",
            ("https://www.cs.toronto.edu/~kriz/",),
            "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd  170052171  cifar-10-binary.tar.gz",
        )[0],
        instead="mnist-5k",
    ),
    "mnist-5k": Row(
        kind="images",
        train=4_000,
        test=1_000,
        classes=10,
        read=images.mnist_5k_parts,
        note=_FIFTH,
        sha256="3a4c89cca0dbeb79dc67c7c6313c0261d710c86421171f98e50108e2e89e20fc",
    ),
    "digits": Row(
        kind="images",
        train=1_442,
        test=355,
        classes=10,
        read=images.digits_parts,
        note=f"gray levels are 0 to 16; {_FIFTH}",
        sha256="360bb7bf8c743eda5c6fa80e040d670e09d5d16dc70c268078db9b4cf8920351",
    ),
    "wine": Row(
        kind="table",
        train=144,
        test=34,
        classes=3,
        read=tabular.wine_parts,
        note=_FIFTH,
        sha256="5f2bfe5780499e5ddb6a7c416bd0c65849fe6d8e3c69bf8c2bd773694ef55b14",
    ),
    "breast_cancer": Row(
        kind="table",
        train=456,
        test=113,
        classes=2,
        read=tabular.breast_cancer_parts,
        note=_FIFTH,
        sha256="3096c80b66b7e1b48b721b7c1cb59f19e3f86e8db1f3301bd19c08083586bc7b",
    ),
    "adult": Row(
        kind="table",
        train=32_561,
        test=16_281,
        classes=2,
        read=tabular.adult_parts,
        files=_files(
            "tabular",
            (_UCI + "adult/",),
            "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d  3974305  adult.data",
            "a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05  2003153  adult.test",
        ),
        instead="breast_cancer",
        note="categories are one-hot, a missing value is a category of its own, no row is dropped",
    ),
    "covertype": Row(
        kind="table",
        train=15_120,
        test=565_892,
        classes=7,
        read=tabular.covertype_parts,
        files=_files(
            "tabular",
            (_UCI + "covtype/",),
            "054503622a3d92e5499f0f3d27e32e7ef3eeb11a031a244a4132ef7b32120d32  11246185  covtype.data.gz",
        ),
        instead="wine",
        note="the published training and validation rows, 2,160 per class, are the training part",
    ),
    "letter": Row(
        kind="table",
        train=16_000,
        test=4_000,
        classes=26,
        read=tabular.letter_parts,
        files=_files(
            "tabular",
            (_UCI + "letter-recognition/",),
            "2b89f3602cf768d3c8355267d2f13f2417809e101fc2b5ceee10db19a60de6e2  712565  letter-recognition.data",
        ),
        instead="wine",
        note="the first 16,000 are the training part, as published",
    ),
    "spambase": Row(
        kind="table",
        train=3_682,
        test=919,
        classes=2,
        read=tabular.spambase_parts,
        files=_files(
            "tabular",
            (_UCI + "spambase/",),
            "b1ef93de71f97714d3d7d4f58fc9f718da7bbc8ac8a150eff2778616a8097b12  702942  spambase.data",
        ),
        instead="breast_cancer",
        note=_FIFTH,
    ),
    "ecg5000": Row(
        kind="sequences",
        train=500,
        test=4_500,
        classes=5,
        read=tabular.ecg5000_parts,
        files=_files(
            "sequence",
            (),
            "df86ac15d7e283e731db6be7865f5004b65bc639014cb8b9753c26e24a9092a1  786687  ECG5000_TRAIN.tsv",
            "0192997dd1793880633bfb34ae3ad5129c09a8e0f210c469225451b92cdd8548  7083836  ECG5000_TEST.tsv",
        ),
    ),
    "fsdd": Row(
        kind="sequences",
        train=2_700,
        test=300,
        classes=10,
        read=tabular.fsdd_parts,
        files=_files(
            "sequence",
            (),
            "6c95b38706a9eb4dee6715ab122f517b3b1f4d45875856cb492891c06eb8d399  15425695  fsdd.npz",
        ),
        note="8 kHz; recordings are padded with zeros to the longest; recordings 0 to 4 are test, as published",
    ),
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
    if not isinstance(name, str) or name not in ROWS:
        if not isinstance(name, str) or len(name) > 200:
            raise DataError(f"unknown data set {described(name)}: there are {', '.join(ROWS)}")
        if "/" in name or "\\" in name:
            raise DataError(f"there is no folder {name}")
        raise DataError(f"unknown data set {name!r}: there are {', '.join(ROWS)}")
    return ROWS[name]
