"""Checks for whoever brings own data: everything that is odd, all at once, with the remedy.

What cannot be at all (a cycle, a class in two tasks, images of no class) is refused when a
:class:`Hierarchy` or :class:`Stream` is built. Here comes what can be but should be known.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np

from polarbear.base.errors import counted
from polarbear.base.findings import CheckError, Finding, error, listed, warning
from polarbear.benchmark.hierarchy import Hierarchy
from polarbear.benchmark.row_checks import check_images, check_labels, check_rows
from polarbear.benchmark.schedule import Schedule
from polarbear.benchmark.stream import Stream

__all__ = ["CheckError", "Finding", "check_hierarchy", "check_stream"]


def check_hierarchy(hierarchy: Hierarchy, *, strict: bool = True) -> tuple[Finding, ...]:
    """Return everything odd about a hierarchy; with ``strict``, errors are raised.

    >>> for finding in check_hierarchy(Hierarchy.from_children({"bear": ["polar bear"]})):
    ...     print(finding.message[:55])
    superclass 'bear' has a single subclass: the two labels
    """
    found = (
        *_one_level(hierarchy),
        *_single_child(hierarchy),
        *_uneven_depth(hierarchy),
        *_near_names(hierarchy),
    )
    return _report("the hierarchy", found, strict)


def check_stream(stream: Stream, *, strict: bool = True) -> tuple[Finding, ...]:
    """Return everything odd about a stream and its hierarchy; with ``strict``, errors are raised.

    Looks at every label and every row number, and at the first images of each file.
    """
    found = (
        *check_hierarchy(stream.hierarchy, strict=False),
        *_order_of_arrival(stream.hierarchy, stream.schedule),
        *_never_scheduled(stream),
        *check_rows(stream),
        *check_images(stream),
        *check_labels(stream),
    )
    return _report(f"the stream {stream.name!r}", found, strict)


def refuse_nothing_to_learn(stream: Stream) -> None:
    """Refuse a stream with a task or a class that has no training or no test image."""
    found = tuple(finding for finding in check_rows(stream) if finding.level == "error")
    _report(f"the stream {stream.name!r}", found, strict=True)


def _report(what: str, found: tuple[Finding, ...], strict: bool) -> tuple[Finding, ...]:
    if strict and any(finding.level == "error" for finding in found):
        raise CheckError(what, found)
    return found


def _one_level(hierarchy: Hierarchy) -> Iterator[Finding]:
    if not hierarchy.superclasses:
        yield warning(
            "no class has another above it: nothing is ever refined, and this is plain "
            "class-incremental learning. To study coarse and fine labels, group classes below "
            "superclasses"
        )


def _single_child(hierarchy: Hierarchy) -> Iterator[Finding]:
    for name in hierarchy.superclasses:
        if len(hierarchy.children(name)) == 1:
            yield warning(
                f"superclass {name!r} has a single subclass: the two labels stand for the same "
                "images and cannot be told apart. Add subclasses, or leave the superclass out"
            )


def _uneven_depth(hierarchy: Hierarchy) -> Iterator[Finding]:
    leaves = np.flatnonzero(hierarchy.is_leaf & (hierarchy.parent_array >= 0))
    depths = np.unique(hierarchy.depth[leaves])
    if len(depths) > 1:
        levels = " and ".join(str(depth + 1) for depth in depths)
        shallow = (hierarchy.names[i] for i in leaves if hierarchy.depth[i] == depths[0])
        yield warning(
            f"leaves lie on different levels ({levels}): images carry differently many labels, and "
            "one wrong label costs those with few of them more. If that is not meant, see "
            f"{listed(shallow)}"
        )


def _near_names(hierarchy: Hierarchy) -> Iterator[Finding]:
    alike: dict[str, list[str]] = defaultdict(list)
    for name in hierarchy.names:
        alike["".join(c for c in name.casefold() if c not in " _-")].append(name)
    for names in alike.values():
        if len(names) > 1:
            yield error(
                f"{listed(names)} differ only by case, spaces, hyphens or underscores: they are "
                "different classes here, each with a part of the images. If they are the same, "
                "write them the same way; if not, give one a clearer name"
            )


def _order_of_arrival(hierarchy: Hierarchy, schedule: Schedule) -> Iterator[Finding]:
    early = schedule.children_too_early(hierarchy)
    together = [pair for pair in early if schedule.task_of[pair[0]] == schedule.task_of[pair[1]]]
    before = [pair for pair in early if pair not in together]
    if together:
        yield warning(
            f"subclasses arrive together with their superclass ({_pairs(together)}): their images "
            "carry both labels at once, so that nothing has to be put together later. The paper "
            "has every superclass in an earlier task; Schedule.draw makes such orders"
        )
    if before:
        yield warning(
            f"subclasses arrive before their superclass ({_pairs(before)}): the learner goes from "
            "fine to coarse, the reverse of the paper's question. Schedule.draw makes orders with "
            "every superclass in an earlier task"
        )
    fine = [name for name in schedule.tasks[0] if hierarchy.is_leaf[hierarchy.index(name)]]
    if fine and hierarchy.superclasses and len(schedule) > 1:
        yield warning(
            f"task 0 has leaves ({listed(fine)}): the paper's has superclasses alone, the coarse "
            "knowledge that later tasks refine"
        )


def _pairs(pairs: Sequence[tuple[str, str]]) -> str:
    return listed(f"{name} < {up}" for up, name in pairs)


def _never_scheduled(stream: Stream) -> Iterator[Finding]:
    hierarchy, scheduled = stream.hierarchy, set(stream.classes)
    missing = [name for name in hierarchy.names if name not in scheduled]
    if missing:
        yield warning(
            f"{counted(len(missing), 'class', 'classes')} of the hierarchy in no task "
            f"({listed(missing)}): images of those below a superclass that arrives still carry its "
            "label, the others are never used. "
            "Add them to a task if that is not meant"
        )
