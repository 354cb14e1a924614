"""Train four of the paper's methods on the embedded benchmark, answer its questions, draw it all.

About two minutes on two CPU cores. Run it with ``make demo``, or ``python examples/demo.py`` where
``polarbear-iirc[cli,report,torch]`` is installed. ``make demo DEMO='--orders 5'`` trains in all
five orders of the classes and shows means. Run folders and the report stay in ``runs/demo``.
"""

import argparse
import shutil
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

import polarbear
from polarbear import ClassSize, ScoreTable, Statistics, learn, stream_statistics
from polarbear.report import build_report, read_runs

OUT = Path("runs/demo")
METHODS = ("finetune", "er", "icarl-norm", "incremental-joint")
SCORES = {
    "pw-JS": "pw_jaccard",
    "super": "pw_jaccard/superclass",
    "sub": "pw_jaccard/subclass",
    "implication": "implication",
    "siblings": "sibling_error",
    "late": "late_recall",
}
QUESTIONS = (
    (
        "Does a learner that predicts a fine label still predict the coarse one above it?",
        "implication",
        "of the predicted subclasses come with their superclass.",
    ),
    (
        "Can it tell a new subclass from its siblings?",
        "sibling_error",
        "of the images get a wrong sibling's label (lower is better).",
    ),
    (
        "Does it predict a known superclass on images of subclasses it learnt later?",
        "late_recall",
        "of these images get the superclass's label.",
    ),
)


def train(method: str, order: int) -> tuple[ScoreTable, float]:
    began = time.perf_counter()
    folder = OUT / method / f"order-{order}"
    result = learn.run(method, "iirc-shapes", order=order, folder=folder, progress=False)
    return result.table, time.perf_counter() - began


def train_all(
    methods: Sequence[str], orders: Sequence[int], screen: Console
) -> dict[str, list[ScoreTable]]:
    """Train a run a core, the longest first."""
    jobs = [(method, order) for method in reversed(methods) for order in orders]
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        futures = {job: pool.submit(train, *job) for job in jobs}
        tables = {}
        for method in methods:
            done = [futures[method, order].result() for order in orders]
            tables[method] = [table for table, _ in done]
            course = "  ".join(f"{r:.2f}" for r in np.mean([t.r for t in tables[method]], axis=0))
            screen.print(f"  {method:18} {course}   {sum(s for _, s in done):.0f} s")
    return tables


def last(tables: list[ScoreTable], score: str) -> list[float]:
    """After the last task, a number an order."""
    return [float(table.scores[score][-1]) for table in tables]


def with_deviation(values: list[float]) -> str:
    """Return the mean, with the standard deviation where there are several values."""
    several = f" ± {np.std(values, ddof=1):.3f}" if len(values) > 1 else ""
    return f"{np.mean(values):.3f}{several}"


def table_of_tasks(count: Statistics) -> Table:
    table = Table(box=None, title="What arrives (superclasses: with how many subclasses)")
    table.title_justify = "left"
    for column in ("task", "train", "test"):
        table.add_column(column, justify="right")
    table.add_column("new classes")
    sizes = {size.name: size for size in count.class_sizes}
    for task in count.tasks:
        titles = ", ".join(titled(sizes[name]) for name in task.classes)
        table.add_row(str(task.index), f"{task.train:,}", f"{task.test:,}", titles)
    return table


def titled(size: ClassSize) -> str:
    return f"[bold]{size.title} ({size.subclasses})[/]" if size.subclasses else size.title


def table_of_scores(tables: dict[str, list[ScoreTable]], title: str) -> Table:
    table = Table(box=None, title=title, title_justify="left")
    table.add_column("score")
    for method in tables:
        table.add_column(method, justify="right")
    for shown, score in SCORES.items():
        table.add_row(shown, *(with_deviation(last(t, score)) for t in tables.values()))
    return table


def asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--orders", type=int, choices=range(1, 6), default=1, help="how many")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=METHODS)
    return parser.parse_args()


def main() -> None:
    options = asked()
    screen = Console(highlight=False)
    stream = polarbear.load("iirc-shapes", order=0)
    count = stream_statistics(stream)
    screen.print(
        f"[bold]{stream.name}[/]: {count.classes.total} classes in {len(stream)} tasks, "
        f"{count.classes.superclasses} of them superclasses; {count.splits.train:,} training and "
        f"{count.splits.test:,} test images, drawn just now.\n"
    )
    screen.print(table_of_tasks(count))
    shutil.rmtree(OUT, ignore_errors=True)
    screen.print(
        "\nTraining; R_j (pw-JS on all test images of the classes so far) after each task:"
    )
    tables = train_all(options.methods, range(options.orders), screen)
    screen.print()
    several = f", mean ± standard deviation over {options.orders} orders"
    title = f"Scores after the last task{several if options.orders > 1 else ''}"
    screen.print(table_of_scores(tables, title))
    screen.print("\n[bold]The paper's questions[/]")
    for question, name, meaning in QUESTIONS:
        answers = [f"{who} {100 * np.mean(last(t, name)):.0f} %" for who, t in tables.items()]
        screen.print(f"\n{question}\n  {', '.join(answers)}\n  {meaning}")
    report = build_report(read_runs(OUT), OUT / "report", formats=("png",), jobs=2)
    screen.print(
        f"\nOpen {report.folder / 'index.html'}: what each method predicts, image by image."
    )
    screen.print(f"Figures and tables are beside it, run folders in {OUT}.")


if __name__ == "__main__":
    main()
