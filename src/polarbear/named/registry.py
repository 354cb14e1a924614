"""Benchmarks by name: those that come with polarbear, and those of your own."""

import os
import re
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from polarbear.base.errors import (
    DataError,
    PartialDataError,
    PolarbearError,
    UnknownNameError,
    unknown_name,
)
from polarbear.base.guarded import naming
from polarbear.benchmark.schedule import Schedule
from polarbear.benchmark.stream import Stream
from polarbear.data.imagenet import reference_file_order
from polarbear.named.benchmark import PARTIAL, Benchmark
from polarbear.named.folder import read_benchmark
from polarbear.named.shipped import SHIPPED

RowOrder = Literal["sorted", "iirc-1.0.1"]

_REGISTRY = dict(SHIPPED)
_FOLDERS: dict[str, Benchmark] = {}


def load(
    name: str | Path,
    order: int = 0,
    root: str | Path | None = None,
    *,
    leaf_train: ArrayLike | None = None,
    leaf_test: ArrayLike | None = None,
    schedule: Schedule | None = None,
    joint: bool = False,
    shuffle_seed: int | None = None,
    row_order: RowOrder = "sorted",
    partial: bool = False,
) -> Stream:
    """Return a benchmark's stream of tasks.

    ``name`` is that of a registered benchmark, or the folder of one of your own that
    ``polarbear new-benchmark`` made, which says itself where its data are.
    ``root`` is the folder with the data (default: ``$POLARBEAR_DATA``, else ``data``). Without
    the data, ``leaf_train`` and ``leaf_test`` (a leaf name a row) make a stream without pixels.
    ``schedule`` replaces the published order; ``joint`` puts all classes into one task.
    ``shuffle_seed`` mixes each leaf's rows before the split, as the paper's text has it.
    ``row_order="iirc-1.0.1"`` takes ImageNet's rows in the order of the authors' package.
    Data that lack images of the published ones are refused, unless ``partial`` lets them pass:
    then the stream's name ends with ``-partial``, and so does that of every result.

    >>> stream = load("iirc-shapes", order=0)
    >>> len(stream), len(stream.classes)
    (7, 36)
    """
    benchmark = find(name)
    folder = benchmark.folder
    at_home = naming(folder / "benchmark.toml", "a benchmark") if folder else nullcontext()
    with at_home:  # whatever is wrong with a folder of your own, its file is named
        hierarchy = benchmark.hierarchy()
        chosen = schedule or benchmark.schedule(order)
        common: dict[str, Any] = {
            "rule": replace(benchmark.rule, shuffle_seed=shuffle_seed),
            "ignore": benchmark.ignore,
            "name": replace(benchmark, partial=False).id,
            "order": order if schedule is None else None,
        }
        chosen = chosen.joint() if joint else chosen
        if leaf_train is not None and leaf_test is not None:
            stream = Stream.build(hierarchy, chosen, leaf_train, leaf_test, **common)
            partial = True  # who lists the rows knows which there are
        elif leaf_train is None and leaf_test is None:
            source = benchmark.open_source(data_root(root), hierarchy)
            stream = Stream.from_source(source, hierarchy, chosen, **common)
            if benchmark.published_images is not None:
                benchmark.published_images.refuse_more(stream, source.origin)
        else:
            raise DataError("give both leaf_train and leaf_test, or neither and root=…")
        stream = _named_if_partial(stream, benchmark, allowed=partial or benchmark.partial)
        return _in_row_order(stream, benchmark, row_order)


def _named_if_partial(stream: Stream, benchmark: Benchmark, *, allowed: bool) -> Stream:
    """Return a stream whose name says so if it lacks published images; refuse it if not allowed."""
    published = benchmark.published_images
    if published is None or not (lacking := published.lacking(stream)):
        return stream
    if not allowed:
        where = f"{stream.source.origin} has " if stream.source else ""
        raise PartialDataError(
            f"{where}not all images of {stream.name}: {lacking}. Complete the data; or, to go on "
            "with what is there, add --partial (in Python, partial=True), and every result says so"
        )
    return replace(stream, name=f"{stream.name}{PARTIAL}")


def find(name: str | Path) -> Benchmark:
    """Return a benchmark by name, by name and version (``iirc-cifar-v1``), or by its folder.

    A folder found once is known by its name too, as long as Python runs. A name that ends with
    ``-partial`` is that of a benchmark whose data may lack images.

    >>> find("iirc-cifar-partial").id
    'iirc-cifar-v1-partial'
    """
    name = os.fspath(name)
    known = _known(name, _REGISTRY) or _known_partial(name)
    if known is None and Path(name).is_dir():
        return _open_folder(Path(name))
    known = known or _known(name, _FOLDERS)
    if known is not None:
        return known
    wanted = re.fullmatch(r"(.+)-v(\d+)", name)
    if wanted and wanted[1] in _REGISTRY:
        there = ", ".join(b.id for b in benchmarks() if b.name == wanted[1])
        raise PolarbearError(f"{wanted[1]} has no version {wanted[2]}: this polarbear has {there}")
    if made_of := [known for known in _REGISTRY if _is_data_of(name, known)]:
        raise UnknownNameError(
            f"unknown benchmark {name!r}: that is a data set. Its benchmarks: {', '.join(made_of)}"
        )
    raise unknown_name("benchmark", name, [b.id for b in benchmarks()] if wanted else _REGISTRY)


def _is_data_of(name: str, benchmark: str) -> bool:
    """Whether a name is that of a published benchmark's data: of ``iirc-cifar``, CIFAR-100 …"""
    family, _, data = benchmark.partition("-")
    return family in ("iirc", "cil") and name.lower().startswith(data.partition("-")[0])


def _known(name: str, among: Mapping[str, Benchmark]) -> Benchmark | None:
    return next((b for b in among.values() if name in (b.name, b.id)), None)


def _known_partial(name: str) -> Benchmark | None:
    found = _known(name.removesuffix(PARTIAL), _REGISTRY) if name.endswith(PARTIAL) else None
    known = found is not None and found.published_images is not None
    return replace(found, partial=True) if found is not None and known else None


def partial_name(name: str) -> str:
    """Return the name of a benchmark whose data may lack images.

    >>> partial_name("iirc-cifar"), partial_name("iirc-cifar-v1-partial")
    ('iirc-cifar-partial', 'iirc-cifar-v1-partial')
    """
    benchmark = find(name)
    if benchmark.partial:
        return name
    if _known_partial(f"{name}{PARTIAL}") is None:
        raise PolarbearError(
            f"nobody has published how many images {benchmark.name} has, so none can be missing: "
            "leave out --partial"
        )
    return f"{name}{PARTIAL}"


def _open_folder(folder: Path) -> Benchmark:
    benchmark = replace(read_benchmark(folder), folder=folder.resolve())
    if benchmark.name in _REGISTRY:
        raise PolarbearError(
            f"{folder} names itself {benchmark.name!r}, as a registered benchmark is named: write "
            "another name into its benchmark.toml"
        )
    _FOLDERS[benchmark.id] = benchmark
    return benchmark


def benchmarks() -> tuple[Benchmark, ...]:
    """Return every registered benchmark."""
    return tuple(_REGISTRY.values())


def register(benchmark: Benchmark) -> None:
    """Add a benchmark of your own, so that :func:`load` and the command line know it."""
    if benchmark.name in _REGISTRY:
        raise PolarbearError(f"a benchmark named {benchmark.name!r} exists: choose another name")
    _REGISTRY[benchmark.name] = benchmark


def data_root(root: str | Path | None = None) -> Path:
    """Return the data folder: the one named, else ``$POLARBEAR_DATA``, else ``data``."""
    return Path(root if root is not None else os.environ.get("POLARBEAR_DATA", "data"))


def short_name(benchmark: Benchmark) -> str:
    """Return the shortest name that finds a benchmark: a second version's has its number.

    >>> short_name(find("iirc-cifar-v1")), short_name(find("iirc-cifar-v2"))
    ('iirc-cifar', 'iirc-cifar-v2')
    """
    first = _REGISTRY.get(benchmark.name, benchmark)
    if first.version != benchmark.version:
        return benchmark.id
    return benchmark.name + PARTIAL * benchmark.partial


def lasting_name(name: str) -> str:
    """Return a name that holds in any working directory: a folder's path is made absolute."""
    if (_known(name, _REGISTRY) or _known_partial(name)) or not Path(name).is_dir():
        return name
    return str(Path(name).resolve())


def nominal_stream(name: str, order: int = 0) -> Stream | None:
    """Return a stream with the official number of images a class, without the data.

    Its counts are exact, its row numbers are not. None where leaves differ in size (ImageNet) and
    where images are missing.
    """
    benchmark = find(name)
    if benchmark.images_per_leaf is None or benchmark.partial:
        return None
    leaves = np.flatnonzero(benchmark.hierarchy().is_leaf)
    train, test = (np.repeat(leaves, n) for n in benchmark.images_per_leaf)
    return load(name, order, leaf_train=train, leaf_test=test)


def _in_row_order(stream: Stream, benchmark: Benchmark, row_order: RowOrder) -> Stream:
    if row_order not in ("sorted", "iirc-1.0.1"):
        raise unknown_name("row order", row_order, ("sorted", "iirc-1.0.1"))
    if row_order == "sorted" or benchmark.reference_sequence is None:
        return stream
    sequence = [stream.hierarchy.index(n) for n in benchmark.reference_sequence(stream.hierarchy)]
    return replace(
        stream, file_order=reference_file_order(stream.train_leaf, sequence, stream.hierarchy)
    )
