"""What ``polarbear describe NAME --cost`` prints: the bill of a benchmark's runs."""

import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table

from polarbear.base.errors import DataError, PartialDataError, counted
from polarbear.benchmark.stream import Stream
from polarbear.cli.shared.console import (
    console,
    count,
    error_console,
    plain_table,
    print_json,
    print_table,
)
from polarbear.cli.shared.training import engine
from polarbear.methods.catalogue import METHODS, title
from polarbear.named.benchmark import Benchmark
from polarbear.named.registry import load
from polarbear.report.read.paper import paper_results

if TYPE_CHECKING:
    from polarbear.launch.bill import Cost, Rate

SECONDS = 20.0
#: Bytes of an image of ImageNet in a packed file set, its short side 256.
PACKED = 26_000
NOTES = (
    "An image pass is an image forward and backward in a step, as often as it is there: counted "
    "from tasks, epochs and memory. Looked at: forward alone, in validation and test and by a "
    "teacher. Not counted: a method's own phases (BiC, EEIL) and computations (Kin, GEM), and "
    "networks it keeps for good."
)


def show_cost(
    benchmark: Benchmark, order: int, root: Path | None, methods: str | None, *, json: bool
) -> None:
    """Print what runs of a benchmark cost."""
    engine()
    from polarbear.launch.bill import (
        are_files,
        cost_of,
        image_shape,
        is_packed,
        largest_task_bytes,
        measure_rate,
        packing_hours,
        stream_to_count,
    )

    stream, exact = stream_to_count(benchmark.id, order, _data(benchmark, order, root))
    shape = image_shape(benchmark.id, stream)
    image = math.prod(shape)
    names = _methods(benchmark) if methods is None else [n.strip() for n in methods.split(",")]
    costs = [cost_of(name, benchmark.id, stream, image) for name in names]
    if not json:
        error_console().print(f"measuring about {SECONDS:.0f} seconds of steps …")
    rate = measure_rate(benchmark.id, shape, SECONDS)
    images = len(stream.train_leaf) + len(stream.test_leaf)
    task, packing = largest_task_bytes(stream, image), None
    files = image > PACKED and are_files(stream)  # smaller ones, and arrays, are kept whole
    if files and not is_packed(stream):
        with suppress(DataError):  # without Pillow nothing is packed, and the bill is one anyway
            packing = packing_hours(images, shape[0], SECONDS / 10)
    if json:
        runs = [asdict(cost) | {"hours": cost.hours(rate)} for cost in costs]
        about = {"benchmark": benchmark.id, "order": order, "exact": exact}
        pixels = {"images": images, "image_bytes": image, "largest_task_bytes": task}
        print_json(
            {**about, **pixels, "packing_hours": packing, "rate": asdict(rate), "runs": runs}
        )
        return
    screen = console()
    screen.print(f"{benchmark.id}, order {order}: one run of each method, preset paper\n")
    print_table(screen, _table(costs, rate, exact))
    room = _room(images, image, task, packing, files=files)
    for line in (*_lines(rate, exact=exact), *room, NOTES):
        screen.print(f"\n{line}", soft_wrap=True)


def _data(benchmark: Benchmark, order: int, root: Path | None) -> Stream | None:
    """Return the benchmark's stream if its data are there, as they must be at a ``root``."""
    try:
        return load(benchmark.id, order, root)
    except DataError as error:
        if root is not None or isinstance(error, PartialDataError):
            raise
        return None


def _methods(benchmark: Benchmark) -> list[str]:
    """Return the methods in the paper's table of a benchmark; of one without, all that are ours."""
    return [*paper_results(replace(benchmark, partial=False).id)] or [*METHODS]


def _table(costs: "Sequence[Cost]", rate: "Rate", exact: bool) -> Table:
    about = "" if exact else "about "
    table = plain_table(
        *("method", f"{about}image passes", "looked at", "time here", "stored images"),
        *("their size", "checkpoints"),
    )
    for cost in costs:
        seen = (cost.passes, cost.looks)
        table.add_row(
            title(cost.method),
            *(count(number if exact else round(number, -5)) for number in seen),
            _time(cost.hours(rate)),
            count(cost.stored),
            *(_size(number) for number in (cost.kept, cost.checkpoints)),
        )
    return table


def _time(hours: float) -> str:
    """Return a time in the unit that suits it.

    >>> _time(30.25), _time(0.5)
    ('30.2 h', '30.0 min')
    """
    return f"{hours:,.1f} h" if hours >= 1 else f"{60 * hours:.1f} min"


def _size(number: float) -> str:
    """Return bytes in the unit that suits them.

    >>> _size(222_600_000_000), _size(2_211_840)
    ('222.6 GB', '2.2 MB')
    """
    return f"{number / 1e9:,.1f} GB" if number >= 1e9 else f"{number / 1e6:.1f} MB"


def _lines(rate: "Rate", *, exact: bool) -> Iterator[str]:
    where = f"{rate.device}, {rate.precision}, {rate.network}, batches of {rate.batch_size}"
    peak = "" if rate.peak is None else f"; {_size(rate.peak)} of GPU memory"
    yield (
        f"Measured here over {counted(rate.steps, 'step')} on made-up pixels ({where}): "
        f"{rate.trained:,.1f} images/s trained, {rate.looked:,.1f} looked at{peak}. Hours are one "
        "run's, alone and without reading files; other orders cost as much again."
    )
    if not exact:
        yield (
            "The data are not here: every class is taken to have the mean number of images. With "
            "them (--root DIR), passes are exact."
        )


def _room(
    images: int, image: int, task: int, packing: float | None, *, files: bool
) -> Iterator[str]:
    """Say what room images take on the disk and, decoded, in memory, and how long packing takes."""
    if not files:
        yield f"{count(images)} images are {_size(images * image)} as pixels."
        return
    yield (
        f"{count(images)} images are {_size(images * image)} as pixels, packed about "
        f"{_size(images * PACKED)}. Those of a task are decoded once and kept on the GPU or in the "
        f"host's memory where there is twice the room: {_size(task)} at most, memory's aside."
    )
    if packing is not None:
        yield (
            f"Packing them takes about {_time(packing)} here, without reading the files: a made-up "
            "one, packed again and again by one core, and all cores as fast."
        )
