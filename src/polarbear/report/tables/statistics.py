"""Tables of what a benchmark holds, as in the paper's appendix: splits, classes, tasks."""

from polarbear.base.errors import DataError
from polarbear.benchmark.counts import Statistics, schedule_statistics, stream_statistics
from polarbear.named.registry import find, nominal_stream
from polarbear.report.options import Options
from polarbear.report.read.answers import known_hierarchy, stream_of
from polarbear.report.read.groups import Runs
from polarbear.report.tables.formats import Cell, Table


def statistics_tables(runs: Runs, options: Options) -> list[Table]:
    """Return a benchmark's statistics in the class order of the first run."""
    count = statistics_of(runs, options)
    return [*_splits(count), _classes(count), _class_sizes(count), _tasks(count)]


def statistics_of(runs: Runs, options: Options) -> Statistics:
    """Count from the official sizes, else from the data, else the classes alone."""
    tree = known_hierarchy(runs.benchmark)
    benchmark = find(runs.benchmark)
    known = range(len(benchmark.orders()))
    every = [run for group in runs.groups for run in group.runs]
    # The class orders may be fewer than when a run was made, or its file is damaged.
    run = next((run for run in every if run.order in known), every[0])
    order = run.order if run.order is not None and run.order in known else 0
    stream = nominal_stream(benchmark.name, order)
    if stream is not None:
        return stream_statistics(stream)
    try:
        return stream_statistics(stream_of(run, options.root))
    except DataError:
        schedule = benchmark.schedule(order)
        return schedule_statistics(tree, schedule, name=benchmark.id, order=order)


def _splits(count: Statistics) -> list[Table]:
    if count.splits is None:
        return []
    one = count.splits
    head = (
        "data set",
        "train, with duplicates",
        "in-task validation, with duplicates",
        "train",
        "in-task validation",
        "post-task validation",
        "test",
    )
    numbers = (
        one.train_with_duplicates,
        one.valid_with_duplicates,
        one.train,
        one.valid,
        one.post_valid,
        one.test,
    )
    words = (
        f"Images of each split of {count.name}. With duplicates, an image that serves a superclass "
        "and later its subclass counts twice."
    )
    return [Table("statistics-splits", words, head, (_row(count.name, *numbers),))]


def _classes(count: Statistics) -> Table:
    one = count.classes
    head = (
        "data set",
        "superclasses",
        "subclasses (under superclasses)",
        "subclasses (with no superclass)",
        "total",
    )
    row = _row(count.name, one.superclasses, one.subclasses, one.alone, one.total)
    return Table("statistics-classes", f"Classes of {count.name}.", head, (row,))


def _class_sizes(count: Statistics) -> Table:
    """Return every class with its images, the superclasses' before their subclasses'."""
    title = {size.name: size.title for size in count.class_sizes}
    rows = tuple(
        _row(
            size.title,
            "–" if size.superclass is None else title.get(size.superclass, size.superclass),
            size.subclasses or "–",
            size.task,
            size.train,
            size.valid,
        )
        for size in count.class_sizes
    )
    head = ("class", "superclass", "subclasses", "task", "train", "in-task validation")
    words = f"Classes of {count.name} in their order of arrival (order {count.order})."
    return Table("statistics-class-sizes", words, head, rows)


def _tasks(count: Statistics) -> Table:
    rows = tuple(
        _row(
            str(task.index),
            task.superclasses,
            len(task.classes),
            task.seen,
            task.train,
            task.valid,
            task.post_valid,
            task.test,
        )
        for task in count.tasks
    )
    head = (
        "task",
        "superclasses",
        "classes",
        "classes so far",
        "train",
        "in-task validation",
        "post-task validation",
        "test",
    )
    return Table("statistics-tasks", f"Tasks of {count.name}, order {count.order}.", head, rows)


def _row(name: str, *values: int | str | None) -> tuple[Cell, ...]:
    def written(value: int | str | None) -> str:
        return f"{value:,}" if isinstance(value, int) else value or "–"

    return (Cell(name), *(Cell(written(value)) for value in values))
