"""``polarbear describe``: a benchmark's tasks and classes and the paper's statistics tables."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated

from rich.table import Table
from rich.text import Text

from polarbear.base.errors import DataError, PartialDataError, PolarbearError, counted
from polarbear.base.names import printable
from polarbear.benchmark.checks import check_rows
from polarbear.benchmark.counts import ClassSize, Statistics, schedule_statistics, stream_statistics
from polarbear.benchmark.stream import Stream
from polarbear.cli.shared.console import console, count, plain_table, print_json, print_table
from polarbear.cli.shared.cost import show_cost
from polarbear.cli.shared.options import Json, Partial, Root, flag
from polarbear.named.benchmark import PARTIAL, Benchmark
from polarbear.named.registry import find, load, nominal_stream, partial_name


def describe(
    name: Annotated[
        str, flag("The benchmark, such as iirc-cifar; polarbear benchmarks lists them.", "NAME")
    ],
    /,
    *,
    order: Annotated[int, flag("Which of its class orders.")] = 0,
    root: Root = None,
    partial: Partial = False,
    cost: Annotated[
        bool, flag("Tell what runs of it cost instead; measures this machine for a minute or two.")
    ] = False,
    methods: Annotated[
        str | None,
        flag("With --cost: methods by name, such as er,lucir.", "LIST", default="the paper's"),
    ] = None,
    json: Json = False,
) -> None:
    """Tell a benchmark's tasks, classes and counts; without its data, the official counts.

    With --cost, what a run of each method costs with the preset paper: images passed, hours on this
    machine, bytes.
    """
    benchmark = find(partial_name(name) if partial else name)
    if cost:
        show_cost(benchmark, order, root, methods, json=json)
        return
    if methods is not None:
        raise PolarbearError("--methods is for what runs cost: add --cost")
    statistics, note = count_benchmark(benchmark, order, root)
    if json:
        about = {"benchmark": benchmark.name, "version": benchmark.version, "note": note}
        print_json(about | {"summary": benchmark.summary} | statistics.to_dict())
        return
    screen = console()
    about_it = f", order {statistics.order}: {benchmark.summary}"
    screen.print(Text.assemble((statistics.name, "bold"), printable(about_it)), soft_wrap=True)
    if note:
        screen.print(note, style="yellow", soft_wrap=True)
    for table in _tables(statistics):
        screen.print()
        print_table(screen, table)


def count_benchmark(
    benchmark: Benchmark, order: int, root: Path | None
) -> tuple[Statistics, str | None]:
    """Count a benchmark, by its data if they are there; and say what could not be read.

    Data that are asked for by their ``root`` must be there.
    """
    schedule = benchmark.schedule(order)
    try:
        stream = load(benchmark.id, order, root)
        return stream_statistics(stream), _of_partial(stream, benchmark)
    except DataError as error:
        if root is not None or isinstance(error, PartialDataError):
            raise
        reason = str(error).split(". ")[0]
    nominal = nominal_stream(benchmark.id, order)
    if nominal is not None:
        note = f"Counts are the official ones; the data were not read: {reason}."
        return stream_statistics(nominal), note
    note = f"Classes only, since counting the images needs the data: {reason}."
    counted = schedule_statistics(benchmark.hierarchy(), schedule, name=benchmark.id, order=order)
    return counted, note


def _of_partial(stream: Stream, benchmark: Benchmark) -> str | None:
    """Say what partial data lack, and what follows from that; None of whole ones."""
    published = benchmark.published_images
    if published is None or not stream.name.endswith(PARTIAL):
        return None
    told = [f"Partial data: {published.lacking(stream)}.", *map(str, check_rows(stream))]
    if blind := sum(not len(task.valid) for task in stream):
        tasks = f"{blind} of {counted(len(stream), 'task')}"
        told.append(f"No in-task validation images in {tasks}: on a plateau, no rate falls there.")
    return "\n".join(told)


def _tables(found: Statistics) -> Iterator[Table]:
    images = ("train", "in-task valid.", "post-task valid.", "test")
    sizes, classes = found.splits, found.classes
    if sizes is not None:
        table = plain_table("", *images, title="Images of each split")
        table.columns[0].min_width = len("without duplicates")
        twice = (sizes.train_with_duplicates, sizes.valid_with_duplicates)
        once = (sizes.train, sizes.valid, sizes.post_valid, sizes.test)
        table.add_row("with duplicates", *map(count, twice))
        table.add_row("without duplicates", *map(count, once))
        yield table

    table = plain_table(
        "superclasses", "subclasses", "without superclass", "total", title="Classes"
    )
    table.columns[0].justify = "right"
    numbers = (classes.superclasses, classes.subclasses, classes.alone, classes.total)
    table.add_row(*map(count, numbers))
    yield table

    yield _sizes_table(found.class_sizes)

    if found.leaks:
        table = plain_table(
            *("classes", "", *images[:2], "shown before"),
            title="What counting images tells of the hierarchy",
        )
        for leak in found.leaks:
            of_each = (count(leak.classes), _from_to(leak.train), _from_to(leak.valid))
            table.add_row(leak.kind, *of_each, f"{leak.repeated:.0%}")
        yield table

    table = plain_table(
        *("task", "new", "of them super", "seen", *(images if sizes else ())),
        title="Classes and images of each task",
    )
    for task in found.tasks:
        new = (len(task.classes), task.superclasses, task.seen)
        of_it = (task.train, task.valid, task.post_valid, task.test) if sizes else ()
        table.add_row(str(task.index), *map(count, (*new, *of_it)))
    yield table

    table = plain_table(
        "task", "", title="Classes in their order of arrival (superclasses: with subclasses)"
    )
    by_name = {size.name: size for size in found.class_sizes}
    for task in found.tasks:
        shown = [by_name[name] for name in task.classes]
        titles = (f"{s.title} ({s.subclasses})" if s.subclasses else s.title for s in shown)
        table.add_row(str(task.index), ", ".join(titles))
    yield table


def _sizes_table(classes: Sequence[ClassSize]) -> Table:
    table = plain_table(
        *("superclass", "arrives", "subclasses", "its images", "a subclass's images"),
        title="Superclasses, and training images with a class's label on arrival",
    )
    for size in sorted((one for one in classes if one.subclasses), key=lambda one: one.title):
        below = _from_to(one.train for one in classes if one.superclass == size.name)
        numbers = (count(size.subclasses), count(size.train), below)
        table.add_row(size.title, f"task {size.task}", *numbers)
    alone = [one for one in classes if one.superclass is None and not one.subclasses]
    if alone:
        several = counted(len(alone), "class", "classes")
        table.add_row(f"none ({several})", "", "", "", _from_to(one.train for one in alone))
    return table


def _from_to(sizes: Iterable[int | None]) -> str:
    counts = sorted({size for size in sizes if size is not None})
    if not counts:
        return count(None)
    return count(counts[0]) + (f" to {count(counts[-1])}" if len(counts) > 1 else "")
