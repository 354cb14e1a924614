"""A data card: what a benchmark holds, in Markdown."""

from collections.abc import Iterator, Sequence

import numpy as np

from polarbear.base.arrays import Ints
from polarbear.base.findings import Finding
from polarbear.benchmark.counts import Statistics, stream_statistics
from polarbear.benchmark.hierarchy import Hierarchy
from polarbear.benchmark.stream import Stream

TO_SAY = (
    "Where do the images come from, and who may use them (licence)?",
    "Who gave them their labels, and how sure are these?",
    "What should this benchmark not be used for?",
)


def data_card(
    stream: Stream,
    *,
    name: str,
    summary: str = "",
    orders: int = 1,
    findings: Sequence[Finding] = (),
    samples: str | None = None,
) -> str:
    """Return the card of a stream's benchmark; ``samples`` is the path of a picture to show.

    >>> import polarbear
    >>> print(data_card(polarbear.load("iirc-shapes"), name="shapes")[:9])
    # shapes
    <BLANKLINE>
    """
    counted = stream_statistics(stream)
    parts = (
        f"# {name}",
        summary,
        f"![Images of each class]({samples})" if samples else "",
        "\n".join(_counts(stream, counted, orders)),
        "## Classes\n\nLeaves with their training + test images.\n\n```text\n"
        + "\n".join(_tree(stream))
        + "\n```",
        "\n".join(_tasks(stream, counted)),
        "## What the check found\n\n" + ("\n".join(f"- {f}" for f in findings) or "Nothing odd."),
        "## To be filled in\n\n" + "\n".join(f"- {question}" for question in TO_SAY),
    )
    return "\n\n".join(part for part in parts if part) + "\n"


def _counts(stream: Stream, counted: Statistics, orders: int) -> Iterator[str]:
    classes, splits = counted.classes, counted.splits
    yield "## Counts\n"
    yield "| | |\n|---|---:|"
    yield f"| classes | {classes.total:,} |"
    yield f"| superclasses | {classes.superclasses:,} |"
    yield f"| classes below a superclass | {classes.subclasses:,} |"
    yield f"| classes without superclass or subclasses | {classes.alone:,} |"
    yield f"| tasks | {len(stream):,} |"
    yield f"| class orders | {orders:,} |"
    if splits is not None:
        yield f"| training images | {splits.train:,} |"
        yield f"| … counted once for each task that shows them | {splits.train_with_duplicates:,} |"
        yield f"| in-task validation images | {splits.valid:,} |"
        yield f"| post-task validation images | {splits.post_valid:,} |"
        yield f"| test images | {splits.test:,} |"
    if stream.source is not None:
        yield f"| checksum of the data | `{stream.source.checksum or 'none'}` |"


def _tree(stream: Stream) -> Iterator[str]:
    hierarchy = stream.hierarchy
    images = [
        np.bincount(leaf[leaf >= 0], minlength=len(hierarchy))
        for leaf in (stream.train_leaf, stream.test_leaf)
    ]
    for name, up in zip(hierarchy.names, hierarchy.parents, strict=True):
        if up < 0:
            yield from _branch(hierarchy, name, 0, images)


def _branch(hierarchy: Hierarchy, name: str, depth: int, images: Sequence[Ints]) -> Iterator[str]:
    i = hierarchy.index(name)
    title = f" ({hierarchy.titles[name]})" if name in hierarchy.titles else ""
    counts = f": {images[0][i]:,} + {images[1][i]:,}" if hierarchy.is_leaf[i] else ""
    yield "  " * depth + name + title + counts
    for child in hierarchy.children(name):
        yield from _branch(hierarchy, child, depth + 1, images)


def _tasks(stream: Stream, counted: Statistics) -> Iterator[str]:
    order = "" if stream.order is None else f" of order {stream.order}"
    yield f"## Tasks{order}\n"
    yield "| task | new classes | training images | test images |\n|---:|---|---:|---:|"
    for task in counted.tasks:
        names = ", ".join(_marked(stream.hierarchy, name) for name in task.classes)
        yield f"| {task.index} | {names} | {task.train:,} | {task.test:,} |"
    yield "\nSuperclasses are in bold."


def _marked(hierarchy: Hierarchy, name: str) -> str:
    title = hierarchy.title(name).replace("|", "\\|")
    return title if hierarchy.is_leaf[hierarchy.index(name)] else f"**{title}**"
