"""The named benchmarks: a data source, a hierarchy and class orders under one versioned name."""

import json
import os
import re
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from polarbear.base.errors import (
    DataError,
    PartialDataError,
    PolarbearError,
    ScheduleError,
    UnknownNameError,
    counted,
    unknown_name,
)
from polarbear.base.guarded import naming
from polarbear.benchmark.hierarchy import Hierarchy
from polarbear.benchmark.schedule import Schedule
from polarbear.benchmark.source import Source
from polarbear.benchmark.split import SplitRule
from polarbear.benchmark.stream import Stream
from polarbear.data.cifar100 import open_cifar100
from polarbear.data.colours import Colours
from polarbear.data.imagenet import open_imagenet, reference_file_order
from polarbear.data.shapes import shapes
from polarbear.named.published_images import PublishedImages

RowOrder = Literal["sorted", "iirc-1.0.1"]

PUBLISHED = Path(__file__).parent / "published"

# Their words, "maillot" and "crane", occur twice in ImageNet, so the authors left these two out.
LEFT_OUT = MappingProxyType({"n03710637": "maillot", "n02012849": "crane"})

#: ILSVRC 2012: who counts its classes finds so many images in them.
IMAGENET = PublishedImages(732, 1300, 50, in_all=1_281_167, leaves=1000)

#: What the name of a benchmark ends with where images of it are missing.
PARTIAL = "-partial"


@dataclass(frozen=True)
class Benchmark:
    """A name and what stands behind it; ``version`` rises when results would change.

    ``open_source(root, hierarchy)`` opens the data. ``images_per_leaf`` is (training, test) where
    every leaf has the same number, so that counts can be told without the data; where leaves
    differ, ``images`` are their limits. Data with fewer or more are refused by :func:`load`. A
    ``partial`` benchmark is one with fewer, which its name then says. Rows of leaves in
    ``ignore`` are in the data but not in the benchmark. ``reference_sequence`` lists the leaves as
    ``iirc==1.0.1`` goes through them, where that decides the order of rows. ``preparation`` names
    how the engine augments and normalises the images: cifar, cifar-bright, imagenet, plain or the
    dotted path of one of your own; ``colours``, where given, are the mean and deviation it
    normalises by instead. ``folder`` is where :func:`find` read one of your own.
    """

    name: str
    version: int
    summary: str
    hierarchy: Callable[[], Hierarchy]
    orders: Callable[[], tuple[Schedule, ...]]
    rule: SplitRule
    open_source: Callable[[Path, Hierarchy], Source]
    images_per_leaf: tuple[int, int] | None = None
    ignore: tuple[str, ...] = ()
    reference_sequence: Callable[[Hierarchy], tuple[str, ...]] | None = None
    preparation: str = "plain"
    folder: Path | None = None
    colours: Colours | None = None
    images: PublishedImages | None = None
    partial: bool = False

    @property
    def id(self) -> str:
        """Name with version: ``iirc-cifar-v1``, of partial data ``iirc-cifar-v1-partial``."""
        return f"{self.name}-v{self.version}" + PARTIAL * self.partial

    @property
    def published_images(self) -> PublishedImages | None:
        """How many images each leaf is to have; None where nobody says."""
        if self.images is None and self.images_per_leaf is not None:
            train, test = self.images_per_leaf
            return PublishedImages(train, train, test)
        return self.images

    def schedule(self, order: int) -> Schedule:
        """Return one of the published class orders."""
        orders = self.orders()
        if not isinstance(order, int | np.integer) or not 0 <= order < len(orders):
            there = "is 0" if len(orders) == 1 else f"are 0 to {len(orders) - 1}"
            raise ScheduleError(
                f"{self.name} has no order {order!r}: its {counted(len(orders), 'published order')}"
                f" {there} (Schedule.draw makes new ones)"
            )
        return orders[order]


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
    from polarbear.named.folder import read_benchmark

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


@cache
def _hierarchy(file: str) -> Hierarchy:
    return Hierarchy.read(PUBLISHED / file)


@cache
def _flat_imagenet() -> Hierarchy:
    iirc = _hierarchy("iirc-imagenet.toml")
    return Hierarchy.flat(sorted({*iirc.leaves, *LEFT_OUT}), {**iirc.titles, **LEFT_OUT})


@cache
def _orders(name: str) -> tuple[Schedule, ...]:
    content = json.loads((PUBLISHED / f"{name}.orders.json").read_text(encoding="utf-8"))
    return tuple(Schedule.of(order) for order in content["orders"])


def _iirc_sequence(hierarchy: Hierarchy) -> tuple[str, ...]:
    """Leaves without a superclass first, then the others in the order of the hierarchy file."""
    return tuple(sorted(hierarchy.leaves, key=lambda name: hierarchy.parent(name) is not None))


def _cil_sequence(hierarchy: Hierarchy) -> tuple[str, ...]:
    """Sorted wnids written in columns of 72 and read in lines: every 72nd, then the next."""
    return tuple(name for i in range(72) for name in sorted(hierarchy.names)[i::72])


def _flat_cifar() -> Hierarchy:
    return Hierarchy.flat(sorted(_hierarchy("iirc-cifar.toml").leaves))


def _cifar(name: str, summary: str, hierarchy: Callable[[], Hierarchy]) -> Benchmark:
    return Benchmark(
        name,
        1,
        summary,
        hierarchy,
        partial(_orders, name),
        SplitRule(),
        lambda root, hierarchy: open_cifar100(root),
        images_per_leaf=(500, 100),
        preparation="cifar",
    )


def _imagenet(name: str, summary: str, iirc: bool) -> Benchmark:
    return Benchmark(
        name,
        1,
        summary,
        partial(_hierarchy, "iirc-imagenet.toml") if iirc else _flat_imagenet,
        partial(_orders, name),
        SplitRule(valid=0.04, post_valid=0.04),
        partial(open_imagenet, ignore=tuple(LEFT_OUT)),
        ignore=tuple(LEFT_OUT) if iirc else (),
        reference_sequence=_iirc_sequence if iirc else _cil_sequence,
        preparation="imagenet",
        images=IMAGENET,
    )


_FIRST = (
    Benchmark(
        "iirc-shapes",
        1,
        "drawn shapes and their looks; embedded, for trying out and for tests",
        partial(_hierarchy, "iirc-shapes.toml"),
        partial(_orders, "iirc-shapes"),
        SplitRule(),
        lambda root, hierarchy: shapes(),
        images_per_leaf=(100, 30),
    ),
    _cifar(
        "iirc-cifar",
        "CIFAR-100 with 15 superclasses; the paper's main benchmark",
        partial(_hierarchy, "iirc-cifar.toml"),
    ),
    _imagenet("iirc-imagenet-lite", "a third of IIRC-ImageNet, for quick experiments", True),
    _imagenet("iirc-imagenet-full", "ImageNet with 85 superclasses", True),
    _cifar("cil-cifar", "CIFAR-100, class-incremental: no superclasses", _flat_cifar),
    # The literature's: no image is kept for validation.
    replace(
        _cifar("cil-cifar-b0-5", "CIFAR-100 in 20 tasks of 5, as most compare on", _flat_cifar),
        rule=SplitRule(valid=0, post_valid=0),
        preparation="cifar-bright",
    ),
    _imagenet("cil-imagenet-lite", "ImageNet, class-incremental, 430 of its classes", False),
    _imagenet("cil-imagenet-full", "ImageNet, class-incremental: no superclasses", False),
)
# Sizes and repeated images of the first versions tell the hierarchy (docs/explanation/leaks.md).
_SECOND = (
    replace(
        first,
        version=2,
        summary=f"{first.name} with equal class sizes, no image under two labels",
        rule=replace(first.rule, equal=True),
    )
    for first in _FIRST
    if first.name.startswith("iirc-")
)
# The shortest name that finds a benchmark: without a version, it is the first.
_REGISTRY = {first.name: first for first in _FIRST} | {second.id: second for second in _SECOND}
_FOLDERS: dict[str, Benchmark] = {}
