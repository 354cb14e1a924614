"""The page of all methods says what their classes and the files in ``results`` say."""

import json
import shutil
from pathlib import Path
from types import ModuleType

import pytest

from doc_pages import PAGES, ROOT, bench_script
from polarbear.base.errors import DataError
from polarbear.methods.catalogue import METHODS


@pytest.fixture(scope="module")
def maker() -> ModuleType:
    """Return the script that writes the page."""
    return bench_script("methods_page")


def test_the_page_is_what_the_script_writes(maker: ModuleType) -> None:
    page = maker.PAGE.read_text(encoding="utf-8")
    assert maker.written(page) == page, "run python bench/methods_page.py"


@pytest.mark.parametrize(
    ("name", "millions"),
    [
        ("finetune", 7.6),
        ("er", 11.1),
        ("er-infinite", 85),
        ("incremental-joint", 76),
        ("joint", 16),
    ],
)
def test_images_passed_are_those_of_the_specification(
    maker: ModuleType, name: str, millions: float
) -> None:
    assert float(maker.costs(name)[-1]) == pytest.approx(millions, abs=0.05)


def test_what_kin_keeps_is_what_its_page_says(maker: ModuleType) -> None:
    images, networks, megabytes, told, _ = maker.costs("kin")
    assert (images, networks, told) == ("20 per class", "22", "task borders")
    assert float(megabytes) == pytest.approx(7.1 + 41.6, abs=0.5)


# Results


def summary(results: Path, method: str, benchmark: str, r: list[float]) -> None:
    file = results / benchmark / method / "order-0.json"
    file.parent.mkdir(parents=True)
    about = {"method": method, "benchmark": benchmark, "order": 0, "r": r}
    file.write_text(json.dumps(about), encoding="utf-8")


@pytest.mark.parametrize("method", METHODS)
def test_the_page_of_a_method_has_its_results(maker: ModuleType, method: str) -> None:
    page = PAGES[f"docs/methods/{method}.md"]
    found = maker.Found(maker.RESULTS)
    assert found.with_results(method, page) == page, "run python bench/methods_page.py"
    assert found.verdict(method) not in ("", maker.DASH)


def test_results_come_into_the_pages_beside_published_ones(
    maker: ModuleType, tmp_path: Path
) -> None:
    summary(tmp_path, "wa", "cil-cifar-b0-5", [0.9] * 19 + [0.4812])
    summary(tmp_path, "wa", "iirc-cifar", [0.5] * 21 + [0.06])
    for name in ("hcv", "lwf", "er-ace"):
        summary(tmp_path, name, "iirc-cifar", [0.5] * 21 + [0.28])
    found = maker.Found(tmp_path)
    verdict = "48.1 % after 20 tasks of 5 classes, 48 % published"
    assert found.reached("wa") == ["0", "0.060", "0.480", "48.1", "48", verdict]
    own = found.with_results("wa", PAGES["docs/methods/wa.md"])
    assert f"## Result\n\n{maker.BEGIN}\n\n**{verdict}.**\n" in own
    assert "| cil-cifar-b0-5 | 0 | 0.481 | 0.879 |" in own
    assert found.reached("hcv")[1:5] == ["0.280", "0.490", "–", "–"]
    assert found.verdict("hcv").startswith("Not compared: its paper has figures")
    assert found.verdict("lwf") == "Not compared yet: 13 % are published for `cil-cifar-b0-5`"
    assert found.verdict("er-ace").startswith("Nothing to compare with")
    assert found.verdict("eeil") == "Not run on real data yet"


def test_one_method_with_two_settings_has_no_line(maker: ModuleType, tmp_path: Path) -> None:
    shutil.copytree(maker.RESULTS / "iirc-cifar/er", tmp_path / "iirc-cifar/er")
    assert maker.Found(tmp_path).reached("er")[0] == "0–9"
    file = tmp_path / "iirc-cifar/er/order-9.json"
    content = json.loads(file.read_text(encoding="utf-8"))
    content["settings"]["epochs"] = 3
    file.write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(DataError, match="'ER, epochs 3' and 'ER, epochs 140' are one method"):
        maker.Found(tmp_path)


@pytest.fixture(scope="module")
def classes() -> ModuleType:
    """Return the script that writes the tables of class-incremental learning."""
    return bench_script("class_incremental")


def test_the_class_incremental_page_is_what_the_script_writes(classes: ModuleType) -> None:
    page = classes.PAGE.read_text(encoding="utf-8")
    assert classes.written(page) == page, "run python bench/class_incremental.py"


def test_the_class_incremental_claim_is_that_of_the_files(classes: ModuleType) -> None:
    claim = PAGES["docs/explanation/class-incremental.md"].split("**")[1]
    names = ("replay", "icarl-nme", "wa", "bic")
    ours = [
        classes.accuracies(classes.groups_in(classes.RESULTS / "cil-cifar-b0-5")[name])[1]
        for name in names
    ]
    assert "{}, {}, {} and {} %".format(*ours) in claim
    assert (
        "{}, {}, {} and {} are published".format(*(classes.LAST[name] for name in names)) in claim
    )


def test_what_is_said_of_bic_on_a_small_network_is_in_the_files(classes: ModuleType) -> None:
    page = PAGES["docs/explanation/class-incremental.md"]
    kept = ROOT / "bench/results/bic"

    def last_and_mean(path: str) -> list[str]:
        found = json.loads((kept / path / "order-0.json").read_text(encoding="utf-8"))["r"]
        return [f"{100 * one:.1f}" for one in (found[-1], sum(found) / len(found))]

    table = page[page.index("| `cil-cifar-b0-5` |") :].splitlines()[2:7]
    in_fives = ("100/{}/bic", "101/{}/bic", "100/{}/ablations.BiCSoftmaxTwice")
    in_fives += ("100/{}/ablations.BiCPyCIL", "101/{}/ablations.BiCPyCIL")
    for line, path in zip(table, in_fives, strict=True):
        last, over = last_and_mean(f"seed-{path.format('cil-cifar-b0-5')}")
        assert line.endswith(f"| {path[:3]} | {last} | {over} |")
    whole = last_and_mean("seed-100/cil-cifar/bic")
    without = last_and_mean("seed-100/cil-cifar/ablations.BiCUncorrected")
    assert f"ours has {whole[1]} % over the tasks of `cil-cifar`, {without[1]} with" in page
    assert f"and ends at {whole[0]} and {without[0]} " in page


def test_class_incremental_accuracies_stand_beside_published_ones(
    classes: ModuleType, tmp_path: Path
) -> None:
    summary(tmp_path, "bic", "cil-cifar-b0-5", [0.9] * 19 + [0.4312])
    summary(tmp_path, "bic", "cil-cifar", [0.6] * 10 + [0.5])
    summary(tmp_path, "mine", "cil-cifar", [0.6] * 10 + [0.7])
    lines = classes.tables(tmp_path).splitlines()
    in_fives, after_fifty = (line for line in lines if line.startswith("| [BiC]"))
    assert in_fives.endswith("| 0 | 43.1 | 43 | 87.7 | – |")
    assert after_fifty.endswith("| 0 | 50.0 | – | 59.1 | 53.2 |")
    assert "| mine | 0 | 70.0 | – | 60.9 | – |" in lines
    assert any(
        line.startswith("| [LwF]") and line.endswith("| – | – | 13 | – | – |") for line in lines
    )
