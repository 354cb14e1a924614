"""``polarbear describe``: a benchmark's tasks and classes and the paper's statistics tables."""

from pathlib import Path
from typing import Annotated

from rich.console import Console
from rich.table import Table
from rich.text import Text

from polarbear.base.errors import DataError, counted
from polarbear.base.names import printable
from polarbear.benchmark.counts import ClassSize, Statistics, schedule_statistics, stream_statistics
from polarbear.cli.shared.console import console, count, plain_table, print_json
from polarbear.cli.shared.options import Json, Root, flag
from polarbear.named.registry import Benchmark, find, load, nominal_stream


def describe(
    name: Annotated[
        str, flag("The benchmark, such as iirc-cifar; polarbear benchmarks lists them.", "NAME")
    ],
    /,
    *,
    order: Annotated[int, flag("Which of its class orders.")] = 0,
    root: Root = None,
    json: Json = False,
) -> None:
    """Tell a benchmark's tasks, classes and counts; without its data, the official counts."""
    benchmark = find(name)
    statistics, note = count_benchmark(benchmark, order, root)
    if json:
        about = {"benchmark": benchmark.name, "version": benchmark.version, "note": note}
        print_json(about | {"summary": benchmark.summary} | statistics.to_dict())
    else:
        _print(console(), benchmark, statistics, note)


def count_benchmark(
    benchmark: Benchmark, order: int, root: Path | None
) -> tuple[Statistics, str | None]:
    """Count a benchmark, by its data if they are there; and say what could not be read."""
    schedule = benchmark.schedule(order)
    try:
        return stream_statistics(load(benchmark.id, order, root)), None
    except DataError as error:
        reason = str(error).split(". ")[0]
    nominal = nominal_stream(benchmark.name, order)
    if nominal is not None:
        note = f"Counts are the official ones; the data were not read: {reason}."
        return stream_statistics(nominal), note
    note = f"Classes only, since counting the images needs the data: {reason}."
    counted = schedule_statistics(benchmark.hierarchy(), schedule, name=benchmark.id, order=order)
    return counted, note


def _print(screen: Console, benchmark: Benchmark, statistics: Statistics, note: str | None) -> None:
    about = f", order {statistics.order}: {benchmark.summary}"
    screen.print(Text.assemble((statistics.name, "bold"), printable(about)), soft_wrap=True)
    if note:
        screen.print(note, style="yellow", soft_wrap=True)
    tables = (
        _splits_table(statistics),
        _classes_table(statistics),
        _sizes_table(statistics),
        _tasks_table(statistics),
        _names_table(statistics),
    )
    for table in tables:
        if table is not None:
            screen.print()
            screen.print(table)


def _splits_table(statistics: Statistics) -> Table | None:
    sizes = statistics.splits
    if sizes is None:
        return None
    table = plain_table(
        "", "train", "in-task valid.", "post-task valid.", "test", title="Images of each split"
    )
    table.columns[0].min_width = len("without duplicates")
    twice = (sizes.train_with_duplicates, sizes.valid_with_duplicates)
    once = (sizes.train, sizes.valid, sizes.post_valid, sizes.test)
    table.add_row("with duplicates", *map(count, twice))
    table.add_row("without duplicates", *map(count, once))
    return table


def _classes_table(statistics: Statistics) -> Table:
    counts = statistics.classes
    table = plain_table(
        "superclasses", "subclasses", "without superclass", "total", title="Classes"
    )
    table.columns[0].justify = "right"
    table.add_row(*map(count, (counts.superclasses, counts.subclasses, counts.alone, counts.total)))
    return table


def _sizes_table(statistics: Statistics) -> Table:
    table = plain_table(
        *("superclass", "arrives", "subclasses", "its images", "a subclass's images"),
        title="Superclasses, and training images with a class's label on arrival",
    )
    supers = [size for size in statistics.class_sizes if size.subclasses]
    for size in sorted(supers, key=lambda size: size.title):
        below = [s for s in statistics.class_sizes if s.superclass == size.name]
        numbers = (count(size.subclasses), count(size.train), _from_to(below))
        table.add_row(size.title, f"task {size.task}", *numbers)
    alone = [s for s in statistics.class_sizes if s.superclass is None and not s.subclasses]
    if alone:
        table.add_row(
            f"none ({counted(len(alone), 'class', 'classes')})", "", "", "", _from_to(alone)
        )
    return table


def _from_to(sizes: list[ClassSize]) -> str:
    counts = sorted({size.train for size in sizes if size.train is not None})
    if not counts:
        return count(None)
    return count(counts[0]) + (f" to {count(counts[-1])}" if len(counts) > 1 else "")


def _tasks_table(statistics: Statistics) -> Table:
    counted = statistics.splits is not None
    images = ("train", "in-task valid.", "post-task valid.", "test") if counted else ()
    table = plain_table(
        *("task", "new", "of them super", "seen", *images), title="Classes and images of each task"
    )
    for task in statistics.tasks:
        classes = (len(task.classes), task.superclasses, task.seen)
        sizes = (task.train, task.valid, task.post_valid, task.test) if counted else ()
        table.add_row(str(task.index), *map(count, classes), *map(count, sizes))
    return table


def _names_table(statistics: Statistics) -> Table:
    sizes = {size.name: size for size in statistics.class_sizes}
    table = plain_table(
        "task", "", title="Classes in their order of arrival (superclasses: with subclasses)"
    )
    for task in statistics.tasks:
        shown = [sizes[name] for name in task.classes]
        titles = (f"{s.title} ({s.subclasses})" if s.subclasses else s.title for s in shown)
        table.add_row(str(task.index), ", ".join(titles))
    return table
