"""Tables of what a benchmark holds, as in the paper's appendix: splits, classes, tasks."""

from dataclasses import astuple

from polarbear.base.errors import DataError
from polarbear.benchmark.counts import Statistics, schedule_statistics, stream_statistics
from polarbear.named.registry import find, nominal_stream
from polarbear.report.options import Options
from polarbear.report.read.answers import known_hierarchy, stream_of
from polarbear.report.read.groups import Runs
from polarbear.report.tables.formats import Cell, Table

IMAGES = ("train", "in-task validation", "post-task validation", "test")


def statistics_tables(runs: Runs, options: Options) -> list[Table]:
    """Return a benchmark's statistics in the class order of the first run."""
    return benchmark_tables(statistics_of(runs, options))


def benchmark_tables(count: Statistics) -> list[Table]:
    """Return tables of all that was counted: images of each split, classes, each class, tasks."""
    tables = []
    if count.splits is not None:
        words = (
            f"Images of each split of {count.name}. With duplicates, an image that serves a "
            "superclass and later its subclass counts twice."
        )
        twice = ("train, with duplicates", "in-task validation, with duplicates")
        row = _row(count.name, *astuple(count.splits))
        tables.append(Table("statistics-splits", words, ("data set", *twice, *IMAGES), (row,)))
    kinds = ("subclasses (under superclasses)", "subclasses (with no superclass)", "total")
    head = ("data set", "superclasses", *kinds)
    row = _row(count.name, *astuple(count.classes))
    tables.append(Table("statistics-classes", f"Classes of {count.name}.", head, (row,)))
    return [*tables, _class_sizes(count), _tasks(count)]


def statistics_of(runs: Runs, options: Options) -> Statistics:
    """Count from the official sizes, else from the data, else the classes alone."""
    tree = known_hierarchy(runs.benchmark)
    benchmark = find(runs.benchmark)
    known = range(len(benchmark.orders()))
    every = [run for group in runs.groups for run in group.runs]
    # The class orders may be fewer than when a run was made, or its file is damaged.
    run = next((run for run in every if run.order in known), every[0])
    order = run.order if run.order is not None and run.order in known else 0
    stream = nominal_stream(benchmark.id, order)
    if stream is not None:
        return stream_statistics(stream)
    try:
        return stream_statistics(stream_of(run, options.root))
    except DataError:
        schedule = benchmark.schedule(order)
        return schedule_statistics(tree, schedule, name=benchmark.id, order=order)


def _class_sizes(count: Statistics) -> Table:
    """Return every class with its images, the superclasses' before their subclasses'."""
    title = {size.name: size.title for size in count.class_sizes}
    rows = []
    for size in count.class_sizes:
        above = None if size.superclass is None else title.get(size.superclass, size.superclass)
        below = size.subclasses or None
        rows.append(_row(size.title, above, below, size.task, size.train, size.valid))
    head = ("class", "superclass", "subclasses", "task", *IMAGES[:2])
    words = f"Classes of {count.name} in their order of arrival (order {count.order})."
    return Table("statistics-class-sizes", words, head, tuple(rows))


def _tasks(count: Statistics) -> Table:
    rows = []
    for task in count.tasks:
        classes = (task.superclasses, len(task.classes), task.seen)
        images = (task.train, task.valid, task.post_valid, task.test)
        rows.append(_row(str(task.index), *classes, *images))
    head = ("task", "superclasses", "classes", "classes so far", *IMAGES)
    words = f"Tasks of {count.name}, order {count.order}."
    return Table("statistics-tasks", words, head, tuple(rows))


def _row(name: str, *values: int | str | None) -> tuple[Cell, ...]:
    def written(value: int | str | None) -> str:
        return f"{value:,}" if isinstance(value, int) else value or "–"

    return (Cell(name), *(Cell(written(value)) for value in values))
