"""The benchmarks that come with polarbear; their hierarchies and orders are in ``published``."""

import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from types import MappingProxyType

from polarbear.benchmark.hierarchy import Hierarchy
from polarbear.benchmark.schedule import Schedule
from polarbear.benchmark.split import SplitRule
from polarbear.data.cifar100 import open_cifar100
from polarbear.data.imagenet import open_imagenet
from polarbear.data.shapes import shapes
from polarbear.named.benchmark import Benchmark
from polarbear.named.published_images import PublishedImages

PUBLISHED = Path(__file__).parent / "published"

# Their words, "maillot" and "crane", occur twice in ImageNet, so the authors left these two out.
LEFT_OUT = MappingProxyType({"n03710637": "maillot", "n02012849": "crane"})

#: ILSVRC 2012: who counts its classes finds so many images in them.
IMAGENET = PublishedImages(732, 1300, 50, in_all=1_281_167, leaves=1000)


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
#: By the shortest name that finds a benchmark: without a version, it is the first.
SHIPPED = {first.name: first for first in _FIRST} | {second.id: second for second in _SECOND}
