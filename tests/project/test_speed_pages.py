"""What pages say of ImageNet's speed is what ``bench/imagenet.py`` measured, in its file."""

import csv
import re
from types import ModuleType

import pytest

from doc_pages import PAGES, ROOT, bench_script

SPEED, IMAGENET = PAGES["docs/explanation/speed.md"], PAGES["docs/how-to/imagenet.md"]
#: The rows of the page's tables, in their order.
TRAINING = (
    *("the reference's way, 16 workers", "bare resnet50, eager", "bare resnet50, compiled"),
    *("er, steady", "er, task 0 of 200 epochs with all"),
    *("icarl-norm, steady", "icarl-norm, task 0 of 200 epochs with all"),
    "icarl-norm, steady in task 1, with a teacher",
    *("er, not compiled, steady", "er, pinned, steady", "er, streamed, steady"),
)
DECODING = ("Pillow", "simplejpeg", "ours, one by one", "torchvision on the GPU")
FULL = {
    "seconds until it was killed": "{:.0f} s",
    "seconds of the resumed run": "{:.0f} s",
    "seconds, killed and resumed": "{:.0f} s",
    "host memory, GiB": "{} GiB",
    "GPU memory, GiB": "{} GiB",
    "million image passes of all tasks": "{} million",
    "hours for all tasks at er's steady rate": "{}",
    "hours for all tasks at the rate of its last epoch": "{}",
}


@pytest.fixture(scope="module")
def figures() -> dict[str, float]:
    with (ROOT / "bench/results/imagenet.csv").open(encoding="utf-8") as file:
        return {row["what"]: float(row["figure"]) for row in csv.DictReader(file)}


@pytest.fixture(scope="module")
def plan() -> ModuleType:
    return bench_script("plan")


def tables() -> list[list[list[str]]]:
    """Return the cells of each table about ImageNet, without what names rows and columns."""
    section = SPEED.split("\n## ImageNet\n")[1].split("\n## ")[0]
    found = re.findall(r"^\|[-:|]+\|\n((?:\|.*\n)+)", section, re.M)
    return [
        [[cell.strip() for cell in line.split("|")[2:-1]] for line in lines.splitlines()]
        for lines in found
    ]


def test_rates_of_training_are_those_of_the_file(figures: dict[str, float]) -> None:
    rates = [figures[name] for name in TRAINING]
    way, _, bare = rates[:3]
    due = [[f"{rate:,.0f}", f"{rate / bare:.2f}", f"{rate / way:.2f}"] for rate in rates]
    assert tables()[0] == due


def test_rates_of_decoding_are_those_of_the_file(figures: dict[str, float]) -> None:
    names = [f"decoding, {name}" for name in DECODING]
    due = [
        [*(f"{figures[one]:,.0f}" if one in figures else "" for one in (f"{n}, one process", n))]
        for n in [*names, "decoding, as a run asks for it"]
    ]
    assert tables()[1] == due


def test_two_tasks_took_what_the_file_says(figures: dict[str, float]) -> None:
    due = [[form.format(figures[f"full, two tasks: {name}"])] for name, form in FULL.items()]
    assert tables()[2] == due
    assert len(tables()) == 3


@pytest.mark.parametrize("page", ["README.md", "docs/explanation/speed.md"])
def test_what_is_claimed_first_is_so(figures: dict[str, float], page: str) -> None:
    rate = figures["er, steady"]
    to_bare = rate / figures["bare resnet50, compiled"]
    to_way = rate / figures["the reference's way, 16 workers"]
    said = re.search(
        r"ER trains .*?([\d,]+) images.*? ([\d.]+) times.*? ([\d.]+) times", PAGES[page]
    )
    assert said is not None
    assert said.groups() == (f"{rate:,.0f}", f"{to_bare:.2f}", f"{to_way:.2f}")


def test_what_is_said_among_the_reasons_is_so(figures: dict[str, float]) -> None:
    compiled, eager = (
        f"{figures[name]:,.0f}" for name in ("er, steady", "er, not compiled, steady")
    )
    assert f"trains {compiled} images per second compiled and {eager} as it is" in SPEED
    decoded = f"{figures['decoding, as a run asks for it']:,.0f}"
    assert f"16 cores give a run {decoded} images per second" in SPEED
    assert f"**A run decodes {decoded} images per second on 16 cores.**" in SPEED


def test_plans_go_by_the_rates_of_the_file(figures: dict[str, float], plan: ModuleType) -> None:
    full = {name: figures[f"full, two tasks: {name}"] for name in FULL}
    passes = 1e6 * full["million image passes of all tasks"]
    hours = full["hours for all tasks at the rate of its last epoch"]
    assert (round(passes / hours / 3600, -2), figures["er, steady"]) == plan.IMAGENET
    assert plan.table(plan.CIFAR, plan.IMAGENET) in PAGES["docs/how-to/plan.md"]


def test_hours_of_runs_on_imagenet_go_by_the_same_rates(plan: ModuleType) -> None:
    names = {"finetune": "finetune", "ER": "er", "joint": "joint"}
    names |= {"LUCIR": "lucir", "incremental joint": "incremental-joint"}
    slow, fast = plan.IMAGENET
    for name, method in names.items():
        (line,) = re.findall(rf"^\| (?:.*, )?{name} \|(.*)\|$", IMAGENET, re.M)
        cells = [cell.strip() for cell in line.split("|")]
        for hours, benchmark in zip(cells[2:6:3], ("full", "lite"), strict=True):
            images = plan.images(method, f"iirc-imagenet-{benchmark}") / 3600
            assert hours == f"{images / fast:.1f}–{images / slow:.1f}", (name, benchmark)
