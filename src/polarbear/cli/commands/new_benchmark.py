"""``polarbear new-benchmark``: from data of your own to a benchmark folder with a data card."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from polarbear.base.errors import HierarchyError, PolarbearError, counted
from polarbear.base.findings import CheckError, Finding
from polarbear.benchmark.checks import check_hierarchy, check_stream, refuse_nothing_to_learn
from polarbear.benchmark.hierarchy import Hierarchy
from polarbear.benchmark.schedule import Schedule
from polarbear.benchmark.split import SplitRule
from polarbear.benchmark.stream import Stream
from polarbear.cli.shared.console import console
from polarbear.cli.shared.options import flag
from polarbear.cli.shared.progress import progress
from polarbear.data.colours import colours_of
from polarbear.data.kinds import Data
from polarbear.data.whole import refuse_bad_images
from polarbear.named.card import data_card
from polarbear.named.contact_sheet import contact_sheet
from polarbear.named.folder import Blueprint
from polarbear.named.registry import benchmarks

CARD, SHEET = "data-card.md", "data-card.png"


def new_benchmark(
    name: Annotated[str, flag("What the benchmark is called.", "NAME")],
    /,
    *,
    data: Annotated[
        Path,
        flag(
            "A folder with train/CLASS/IMAGE and test/CLASS/IMAGE, a .csv file with the columns "
            "path,label,split, a .npz file with train_images, train_labels, test_images and "
            "test_labels, a folder that Hugging Face datasets saved, one with train*.parquet and "
            "test*.parquet, or one that polarbear pack made.",
            "PATH",
        ),
    ],
    hierarchy: Annotated[
        Path | None,
        flag(
            "The classes, a .toml or a .csv file.",
            "FILE",
            default="hierarchy.toml or hierarchy.csv with the data",
        ),
    ] = None,
    first: Annotated[
        int | None,
        flag("Superclasses in task 0.", "INT", default="two thirds of them, as in IIRC-CIFAR"),
    ] = None,
    size: Annotated[int, flag("Classes in each later task.")] = 5,
    orders: Annotated[int, flag("How many class orders are drawn.")] = 5,
    seed: Annotated[int, flag("Seed of the first order; the next ones have the next seeds.")] = 0,
    out: Annotated[Path | None, flag("Folder to make.", "DIR", default="./NAME")] = None,
    image_size: Annotated[
        int | None,
        flag(
            "Side of the square that image files are resized and cut to.",
            "INT",
            default="as they are, if all are alike",
        ),
    ] = None,
    valid: Annotated[
        float,
        flag(
            "Part of each leaf's training images for in-task validation, and as much again for "
            "post-task validation.",
            "SHARE",
        ),
    ] = 0.1,
    summary: Annotated[
        str, flag("What it is, in a few words.", "TEXT")
    ] = "a benchmark of your own",
    preparation: Annotated[
        str,
        flag(
            "How learners vary and normalise the images: plain, by their own mean and deviation; "
            "cifar, imagenet or package.module:thing, by those it has.",
            "NAME",
        ),
    ] = "plain",
) -> None:
    """Check data of your own, draw class orders and write a benchmark folder with a data card."""
    folder = out or Path(name)
    if name in [benchmark.name for benchmark in benchmarks()]:
        raise PolarbearError(f"a benchmark named {name!r} exists: choose another name")
    found = Data.at(data, image_size)
    file = hierarchy or beside(data)
    classes = Hierarchy.read(file)
    check_hierarchy(classes)
    drawn = draw_orders(classes, first=first, size=size, orders=orders, seed=seed)
    rule = SplitRule(valid=valid, post_valid=valid)
    blueprint = Blueprint(name, found, file, drawn, summary, 1, rule, preparation)
    source = found.open(classes)
    streams = [
        Stream.from_source(
            source, classes, schedule, rule=rule, name=blueprint.benchmark().id, order=i
        )
        for i, schedule in enumerate(drawn)
    ]
    for stream in streams:
        refuse_nothing_to_learn(stream)
    with progress("looking at all images") as report:
        refuse_bad_images(source, report)
    if preparation == "plain":
        with progress("mean and deviation of the training images") as report:
            blueprint = replace(blueprint, colours=colours_of(source.train, report))
    findings = _check(streams)
    sheet = contact_sheet(streams[0])
    blueprint.write(folder)
    sheet.save(folder / SHEET, optimize=True)
    card = data_card(
        streams[0], name=name, summary=summary, orders=len(drawn), findings=findings, samples=SHEET
    )
    (folder / CARD).write_text(card, encoding="utf-8")
    screen, stream = console(), streams[0]
    for finding in findings:
        screen.print(str(finding), style="yellow", soft_wrap=True)
    screen.print(
        f"{stream.name}: {counted(len(stream.classes), 'class', 'classes')} in "
        f"{counted(len(stream), 'task')}, {counted(len(drawn), 'order')}, "
        f"{len(stream.train_leaf):,} training and {counted(len(stream.test_leaf), 'test image')}\n"
        f"The benchmark is in {folder}, its data card in {folder / CARD}. To go on:\n\n"
        f"  polarbear describe {folder}\n"
        f"  polarbear run er --benchmark {folder}",
        soft_wrap=True,
    )


def draw_orders(
    hierarchy: Hierarchy, *, first: int | None, size: int, orders: int, seed: int
) -> tuple[Schedule, ...]:
    """Draw class orders by the paper's rules, with one seed after the other."""
    if not 1 <= orders <= 1000:
        raise PolarbearError(f"--orders must be from 1 to 1,000, not {orders}")
    if not hierarchy.superclasses:
        raise HierarchyError(
            "no class has another above it, so that there is nothing coarse to begin with: put "
            "classes below superclasses in the hierarchy's [tree]"
        )
    if first is None:
        roots = sum(hierarchy.parent(name) is None for name in hierarchy.superclasses)
        first = max(1, round(2 * roots / 3))
    return tuple(
        Schedule.draw(hierarchy, seed=seed + i, first=first, size=size) for i in range(orders)
    )


def beside(data: Path) -> Path:
    """Return the file of classes that lies with the data."""
    folder = data if data.is_dir() else data.parent
    names = ("hierarchy.toml", "hierarchy.csv")
    there = [folder / name for name in names if (folder / name).is_file()]
    if len(there) == 1:
        return there[0]
    if there:
        raise HierarchyError(
            f"{folder} holds both hierarchy.toml and hierarchy.csv: remove the one that is not "
            "meant, or say which with --hierarchy FILE"
        )
    raise HierarchyError(
        f"{folder} holds no hierarchy.toml and no hierarchy.csv: write one, or say with "
        "--hierarchy FILE where it is"
    )


def _check(streams: Sequence[Stream]) -> tuple[Finding, ...]:
    """Return what is odd about the first order; errors, also of the others, are raised."""
    found, *others = [check_stream(stream, strict=False) for stream in streams]
    errors = [one for several in others for one in several if one.level == "error"]
    if any(finding.level == "error" for finding in (*found, *errors)):
        raise CheckError("the data", tuple(dict.fromkeys((*found, *errors))))
    return found
