"""The page, in a real browser: what a reader sees, presses and points at."""

import json
import re
import sys
import tracemalloc
from base64 import b64decode
from collections.abc import Iterator
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import polarbear
from browser import Opened, axe, launched, opened
from polarbear.base.errors import install_line
from polarbear.benchmark.source import Source
from polarbear.benchmark.stream import Stream
from polarbear.named.registry import _REGISTRY, find
from polarbear.report.build import draw
from polarbear.report.options import Options
from polarbear.report.page import answers as page_answers
from polarbear.report.page.images import pick_rows, picture_data
from polarbear.report.page.page import add_links, page_data, render, write_page
from polarbear.report.palette import looks
from polarbear.report.read.answers import answers, known_hierarchy
from polarbear.report.read.groups import Runs
from polarbear.report.read.runs import read_runs
from polarbear.report.read.series import average
from polarbear.report.tables.marks import best
from polarbear.runs.cost import Cost
from polarbear.runs.folder import RunFolder
from polarbear.score.catalogue import score_names
from polarbear.score.intervals import interval
from polarbear.score.metrics import confusion_rates, pw_jaccard
from polarbear.score.record import BY_TASK
from synthetic_runs import make_run, summary

TEN = (
    *("finetune", "er", "er-infinite", "mask-seen", "agem"),
    *("icarl-cnn", "icarl-norm", "lucir", "joint", "incremental-joint"),
)


def write_run(
    folder: Path,
    stream: Stream,
    method: str,
    *,
    skill: float,
    kept: bool = True,
    tasks: int | None = None,
) -> None:
    """A run folder of a learner that names this share of the true labels, and some others."""
    settings = {"method": method, "benchmark": stream.name, "order": stream.order, "seed": 100}
    about = {"settings": settings, "root": None, "classes": stream.schedule.tasks}
    run = RunFolder.create(folder, about)
    done = len(stream) if tasks is None else tasks
    random = np.random.default_rng([stream.order or 0, len(method)])
    evaluator = polarbear.Evaluator(stream)
    for after in range(done):
        targets = stream.test(after).targets
        predicted = targets & (random.random(targets.shape) < skill)
        predicted |= random.random(targets.shape) < (1 - skill) / 10
        scores = evaluator.add(after, predicted)
        rows = {name: evaluator.table.by_task[name][after, : after + 1] for name in BY_TASK}
        run.append("scores", {"after": after, "split": "test", "scores": scores, "by_task": rows})
        if kept:
            run.save_predictions(after, predicted)
    if done == len(stream):
        (folder / "finished.json").write_text("{}")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    root = tmp_path_factory.mktemp("runs")
    streams = [polarbear.load("iirc-shapes", order) for order in range(3)]
    write_run(root / "finetune", streams[0], "finetune", skill=0.2)
    for order, stream in enumerate(streams):
        write_run(root / f"er-{order}", stream, "er", skill=0.5 + order / 10, kept=order == 0)
    joint = polarbear.load("iirc-shapes", 0, joint=True)
    write_run(root / "joint", joint, "joint", skill=0.9)
    return read_runs(root)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with launched() as one:
        yield one


@pytest.fixture(scope="module")
def file(runs: Runs, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_page(runs, tmp_path_factory.mktemp("page"))


@pytest.fixture
def site(browser: Any, file: Path) -> Iterator[Opened]:
    with opened(browser, file) as one:
        yield one
        assert one.errors == []


def lines(page: Any) -> dict[str, str]:
    """The curves of the chart, by method."""
    found = page.locator("#curve-chart .line").all()
    return {one.get_attribute("data-method"): one.get_attribute("d") for one in found}


def shown(value: float) -> str:
    """A number as the page writes it; it has four places of it."""
    return f"{round(value, 4):.3f}"


def compare(page: Any, left: str, right: str) -> None:
    page.select_option("#left", label=left)
    page.select_option("#right", label=right)


def test_opens_quietly_and_asks_nothing_of_the_network(site: Opened, file: Path) -> None:
    assert [url for url in site.requests if not url.startswith("data:")] == [file.as_uri()]
    page = site.page
    assert page.title() == "What learners know: iirc-shapes-v1 – polarbear"
    assert page.inner_text("h1") == "What learners know"
    assert page.get_attribute("html", "lang") == "en"
    assert "iirc-shapes-v1: 3 methods, 5 runs, 7 tasks" in page.inner_text("#lead")
    assert page.locator("#methods .chip").all_inner_texts()[1].split("\n")[-1] == "3 runs"
    assert set(lines(page)) == {"finetune", "ER", "joint"}
    assert page.locator(".card").count() == 8


def test_every_control_and_picture_has_a_name(site: Opened) -> None:
    nameless = site.page.evaluate(
        """() => [...document.querySelectorAll('button, select, input, canvas, [role=img]')]
        .filter((node) => !(node.labels?.length || node.textContent.trim()
          || node.getAttribute('aria-label') || node.getAttribute('aria-labelledby')))
        .map((node) => node.outerHTML)"""
    )
    assert nameless == []


def test_a_score_is_chosen_from_the_list_and_by_a_question(site: Opened) -> None:
    page = site.page
    before = lines(page)
    page.select_option("#metric", "implication")
    assert lines(page)["ER"] != before["ER"]
    assert "superclass is predicted when its subclass is" in page.inner_text("#metric-about")
    page.get_by_role("button", name="How well does it label").click()
    assert page.input_value("#metric") == "pw_jaccard"
    assert lines(page) == before


def test_one_tasks_images_are_followed(site: Opened, runs: Runs) -> None:
    page = site.page
    assert not page.is_visible("#on-task")
    page.select_option("#metric", "pw_jaccard@k")
    first = lines(page)["ER"]
    page.select_option("#on-task", "3")
    assert lines(page)["ER"] != first
    assert lines(page)["ER"].count("L") == 3  # tasks 3 to 6
    page.locator("details summary").first.click()
    row = page.locator("#by-task tbody tr").nth(5).inner_text()
    assert f"{runs.group('er').by_task_mean()[5, 3]:.3f}" in row


def test_methods_are_switched_off_and_on(site: Opened) -> None:
    page = site.page
    page.locator("#methods .chip", has_text="finetune").click()
    assert set(lines(page)) == {"ER", "joint"}
    assert page.locator("#results tbody tr").count() == 2
    page.click("#no-methods")
    assert "No method is chosen" in page.inner_text("#curve-chart")
    page.click("#all-methods")
    assert len(lines(page)) == 3


def test_pointing_at_the_chart_tells_mean_spread_and_runs(site: Opened, runs: Runs) -> None:
    page = site.page
    chart = page.locator("#curve-chart svg")
    chart.scroll_into_view_if_needed()
    box = chart.bounding_box()
    page.mouse.move(box["x"] + 46, box["y"] + 100)
    er = runs.group("er")
    found = interval([run.scores["pw_jaccard"][0] for run in er.runs])
    tip = page.inner_text("#tip")
    assert "pw-JS after task 0" in tip
    assert f"{shown(found.mean)} ± {shown(found.half_width)} (3 runs)" in tip
    assert f"{runs.group('finetune').mean('pw_jaccard')[0]:.3f} (1 run)" in tip
    page.mouse.click(box["x"] + 46, box["y"] + 100)
    assert page.input_value("#task") == "0"
    page.mouse.move(5, 5)
    assert not page.is_visible("#tip")


def test_table_tells_means_intervals_and_the_best(site: Opened, runs: Runs) -> None:
    page = site.page
    er = runs.group("er")
    found = interval([run.scores["pw_jaccard"][-1] for run in er.runs])
    text = f"{shown(found.mean)} ± {shown(found.half_width)}"
    row = page.locator("#results tbody tr").nth(1)
    cell = row.locator("td").nth(1)
    assert " ".join(cell.inner_text().split()) == text
    assert row.locator("td").first.inner_text().split("\n") == ["3", "3 orders, 1 seed"]
    # The methods differ in orders, so that nobody can be said to be the best.
    assert page.locator("#results .best").count() == 0
    assert "Nothing is bold" in page.inner_text("#rule")
    assert page.locator("#results tbody th").all_inner_texts() == ["finetune", "ER", "joint bound"]
    sort = page.locator("#results").get_by_role("button", name="Jaccard", exact=True)
    sort.click()
    assert page.locator("#results tbody th").first.inner_text() == "joint bound"
    assert page.evaluate("document.activeElement.textContent") == "Jaccard"


def test_scores_that_others_know_are_offered_by_their_names(runs: Runs) -> None:
    data = page_data(runs, images=False)
    titles = {one["id"]: one["title"] for one in data["metrics"]}
    assert titles["average_incremental"].startswith("average incremental score")
    assert titles["backward_transfer"].startswith("backward transfer")
    er = data["methods"][runs.names.index("er")]["scores"]
    r = [run.scores["pw_jaccard"] for run in runs.group("er").runs]
    assert er["average_incremental"]["mean"][2] == pytest.approx(
        np.mean(r, axis=0)[:3].mean(), abs=1e-4
    )
    r_jk = np.mean([run.by_task["pw_jaccard"] for run in runs.group("er").runs], axis=0)
    due = (r_jk[2, :2] - np.diagonal(r_jk)[:2]).mean()
    assert er["backward_transfer"]["mean"][2] == pytest.approx(due, abs=1e-4)
    joint = data["methods"][runs.names.index("joint")]["scores"]
    assert joint["average_incremental"]["mean"][-1] is None


def test_arrow_keys_change_the_task_everywhere(site: Opened) -> None:
    page = site.page
    cards = page.inner_text("#questions")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    assert page.input_value("#task") == "4"
    assert page.inner_text("#task-number") == "4 of 6"
    assert page.inner_text("#questions") != cards
    page.focus("#task")
    page.keyboard.press("ArrowRight")
    assert page.input_value("#task") == "5"
    page.click("#later")
    assert page.is_disabled("#later")


def test_focus_stays_where_it_was_and_is_seen(site: Opened) -> None:
    page = site.page
    page.locator("#methods .chip").nth(1).focus()
    page.keyboard.press("Space")
    active = "document.activeElement"
    assert page.evaluate(f"{active}.getAttribute('aria-pressed')") == "false"
    assert page.evaluate(f"getComputedStyle({active}).outlineStyle") == "solid"


def test_pointing_at_r_jk_tells_its_value(site: Opened, runs: Runs) -> None:
    page = site.page
    compare(page, "finetune", "ER")
    cell = page.locator("#heat svg").nth(1).locator("[data-after='4'][data-task='2']")
    cell.hover()
    er = runs.group("er")
    found = interval([run.by_task["pw_jaccard"][4, 2] for run in er.runs])
    value = f"{shown(found.mean)} ± {shown(found.half_width)} (3 runs)"
    assert "after task 4, on the images of task 2" in page.inner_text("#tip")
    assert value in page.inner_text("#tip")
    page.select_option("#right", label="joint")
    assert "joint has no scores by task" in page.inner_text("#heat")


def test_a_cell_of_the_confusion_matrix_is_read(site: Opened, runs: Runs) -> None:
    page = site.page
    compare(page, "finetune", "ER")
    page.wait_for_selector("canvas[data-who='1']")
    page.locator("canvas").nth(1).focus()
    for key in ("ArrowDown", "ArrowDown", "ArrowDown", "ArrowRight"):
        page.keyboard.press(key)
    given = answers(runs.group("er").runs[0], 6)
    rate = confusion_rates(given.predicted, given.view.targets)[3, 1]
    names = [given.hierarchy.title(name) for name in given.view.classes]
    told = page.inner_text("#confusion-readout")
    assert f"that are {names[3]} (task 0), predicted {names[1]} (task 0)" in told
    told_rate = re.search(r"ER (\d+) % · truth 0 %", told)
    assert told_rate
    assert abs(int(told_rate[1]) - 100 * rate) <= 1
    assert page.input_value("#task") == "6"  # the arrows moved the cell, not the task


def test_pointing_at_the_truth_tells_what_is_due(site: Opened) -> None:
    page = site.page
    truth = page.locator("canvas[data-who='truth']")
    truth.scroll_into_view_if_needed()
    box = truth.bounding_box()
    page.mouse.move(box["x"] + 92 + 2, box["y"] + 92 + 2)
    assert "truth 100 %" in page.inner_text("#confusion-readout")


def test_the_confusion_matrix_zooms(site: Opened) -> None:
    page = site.page
    truth = page.locator("canvas[data-who='truth']")
    picture = "(node) => node.toDataURL()"
    whole = truth.evaluate(picture)
    assert page.is_disabled("#zoom-out")
    page.click("#zoom-in")
    near = truth.evaluate(picture)
    assert near != whole
    truth.focus()
    page.keyboard.press("+")
    assert truth.evaluate(picture) not in (near, whole)
    page.keyboard.press("0")
    page.locator("h2").first.click()
    assert page.is_disabled("#zoom-all")
    page.select_option("#go-to", label="bear")
    assert "that are bear" in page.inner_text("#confusion-readout")
    assert page.is_enabled("#zoom-all")


def test_siblings_stand_together_where_asked(site: Opened) -> None:
    page, stream = site.page, polarbear.load("iirc-shapes")
    page.select_option("#arranged", "family")
    page.locator("canvas[data-who='truth']").focus()
    first, tree = stream.classes[0], stream.hierarchy
    found = set()
    for _ in tree.children(first):
        page.keyboard.press("ArrowDown")
        told = page.inner_text("#confusion-readout")
        assert f"predicted {tree.title(first)} (task 0)" in told
        assert "truth 100 %" in told
        found.add(re.search(r"that are ([a-z ]+) \(", told)[1])
    assert found == {tree.title(name) for name in tree.children(first)}


def test_the_river_follows_a_superclass(site: Opened) -> None:
    page = site.page
    compare(page, "finetune", "ER")
    bands = "nodes => nodes.map((node) => node.getAttribute('d'))"
    first = page.locator("#river [data-way]").evaluate_all(bands)
    page.select_option("#superclass", label="star")
    assert page.locator("#river [data-way]").evaluate_all(bands) != first
    chart = page.locator("#river svg").first
    chart.scroll_into_view_if_needed()
    box = chart.bounding_box()
    page.mouse.move(box["x"] + box["width"] - 16, box["y"] + 100)
    tip = page.inner_text("#tip")
    assert "finetune, star after task 6" in tip
    shares = [int(share) for share in re.findall(r"(\d+) %", tip)]
    assert abs(sum(shares[1:]) - 100) <= 4  # the first is the superclass, whatever else


def test_images_show_right_and_wrong_labels_of_two_methods(site: Opened, runs: Runs) -> None:
    page = site.page
    compare(page, "finetune", "ER")
    given = answers(runs.group("er").runs[0], 6)
    data = page_data(runs)["answers"]
    card = page.locator(".photo").first
    truth = [data["classes"][place]["name"] for place in data["photos"][0]]
    assert card.locator("> div .label").all_inner_texts()[: len(truth)] == truth
    predicted = {data["classes"][place]["name"] for place in data["methods"][1]["labels"][6][0]}
    labels = card.locator("[data-method='ER'] .label").all_inner_texts()
    assert {text[2:] for text in labels if text[0] == "✓"} == predicted & set(truth)
    assert {text[2:] for text in labels if text[0] == "✗"} <= predicted - set(truth)
    assert card.locator("[data-method='ER'] .strip i").count() == 7
    assert given.predicted.shape[1] == 36
    assert page.locator(".picture").first.evaluate(
        "(node) => getComputedStyle(node).backgroundImage.startsWith('url(\"data:image/png')"
    )


def test_images_are_filtered_and_more_are_shown(site: Opened) -> None:
    page = site.page
    assert page.locator(".photo").count() == 12
    page.click("#more")
    assert page.locator(".photo").count() == 36
    page.select_option("#gallery-class", label="star")
    stars = page.locator(".photo").all_inner_texts()
    assert stars
    assert all("star" in text for text in stars)
    page.select_option("#gallery-filter", "right")
    fewer = page.locator(".photo")
    for card in fewer.all():
        assert card.locator(".answer").nth(1).locator(".wrong, .missing").count() == 0
    assert fewer.count() < len(stars) + 1


def test_before_its_classes_arrive_an_image_is_not_asked_about(site: Opened) -> None:
    page = site.page
    for _ in range(6):
        page.click("#earlier")
    assert "not asked yet" in page.inner_text("#gallery")
    page.select_option("#right", label="joint")
    page.wait_for_function(
        "() => document.querySelector('#confusion').textContent.includes('joint has no pred')"
    )


@pytest.mark.parametrize("width", [360, 800])
def test_narrow_screens_need_no_sideways_scrolling(browser: Any, file: Path, width: int) -> None:
    with opened(browser, file, viewport={"width": width, "height": 740}) as site:
        assert site.page.evaluate("document.documentElement.scrollWidth") <= width
        site.page.click("#earlier")
        assert site.page.evaluate("document.documentElement.scrollWidth") <= width
        assert site.errors == []


def test_dark_follows_the_system_and_the_button(browser: Any, file: Path) -> None:
    def ground(page: Any) -> int:
        colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
        return int(re.findall(r"\d+", colour)[0])

    with opened(browser, file, color_scheme="dark") as site:
        assert ground(site.page) < 40
        site.page.emulate_media(color_scheme="light")
        site.page.wait_for_selector("html[data-theme='light']")
        assert ground(site.page) > 220
        site.page.click("#theme")
        assert ground(site.page) < 40
        assert site.errors == []


def test_printing_leaves_the_controls_out(site: Opened) -> None:
    page = site.page
    page.emulate_media(media="print")
    assert not page.is_visible("#task")
    assert page.is_visible("#curve-chart svg")


def test_without_predictions_the_parts_say_so(browser: Any, runs: Runs, tmp_path: Path) -> None:
    order = replace(runs.group("er"), runs=runs.group("er").runs[1:])
    file = write_page(Runs(runs.benchmark, (order,)), tmp_path)
    with opened(browser, file) as site:
        for part in ("confusion", "river", "gallery"):
            text = site.page.inner_text(f"#{part}-part")
            assert "needs the predictions of a run" in text
            assert "no run has kept its predictions" in text
        assert lines(site.page).keys() == {"ER"}
        assert site.errors == []


def test_unfinished_runs_are_shown_as_far_as_they_are(browser: Any, tmp_path: Path) -> None:
    stream = polarbear.load("iirc-shapes")
    write_run(tmp_path / "er", stream, "er", skill=0.5, tasks=3)
    with opened(browser, write_page(read_runs(tmp_path), tmp_path)) as site:
        page = site.page
        assert "1 run unfinished" in page.inner_text("#lead")
        assert page.input_value("#task") == "2"
        page.wait_for_selector("canvas")
        page.click("#later")
        assert "0 of 1" in page.inner_text("#results tbody")
        page.wait_for_selector("#confusion .notice")
        assert site.errors == []


def test_the_papers_curves_are_there_and_can_be_asked_for(browser: Any, tmp_path: Path) -> None:
    summary(tmp_path / "runs" / "iirc-cifar" / "er" / "order-0.json", [0.5] * 22)
    runs = read_runs(tmp_path / "runs")
    for asked in (False, True):
        with opened(browser, write_page(runs, tmp_path / str(asked), Options(paper=asked))) as site:
            box, dashed = site.page.locator("#paper"), site.page.locator("[data-paper='ER']")
            assert (box.is_checked(), dashed.count()) == (asked, int(asked))
            box.click()
            assert dashed.count() == int(not asked)
            assert site.errors == []


def test_a_finger_reads_values_too(browser: Any, file: Path) -> None:
    phone = {"viewport": {"width": 360, "height": 740}, "has_touch": True, "is_mobile": True}
    with opened(browser, file, **phone) as site:
        site.page.locator("#curve-chart svg").tap()
        assert "± " in site.page.inner_text("#tip")
        box = site.page.locator("#tip").bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 360
        site.page.locator("canvas").first.tap()
        assert not site.page.is_visible("#tip")
        assert "Of the images that are" in site.page.inner_text("#confusion-readout")


def test_damaged_predictions_cost_one_task(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_run(tmp_path / "er", polarbear.load("iirc-shapes"), "er", skill=0.5)
    (tmp_path / "er" / "predictions" / "after_3.npz").write_bytes(b"PK no archive")
    data = page_data(read_runs(tmp_path), images=False)
    there = [text is not None for text in data["answers"]["methods"][0]["confusion"]]
    assert there == [True, True, True, False, True, True, True]
    assert "after task 3 left out" in caplog.text
    assert data["answers"]["pictures"] == {"missing": "they were not asked for"}


def test_large_matrices_are_kept_for_fewer_tasks(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_answers, "BUDGET", 6000)
    kept = page_data(runs, images=False)["answers"]["kept"]
    assert kept[-1] == 6
    assert len(kept) in (2, 4)


def test_names_cannot_break_out_of_the_page(runs: Runs) -> None:
    data = page_data(runs, images=False)
    data["methods"][0]["name"] = "</script><script>alert(1)</script>"
    data["benchmark"] = "<b>"
    text = render(data)
    assert "alert(1)</script>" not in text
    assert "&lt;b&gt;" in text
    inside = text.split('id="data">')[1].split("</script>")[0]
    assert json.loads(inside)["methods"][0]["name"].startswith("</script>")


def write_scores(folder: Path, schedule: Any, method: str, order: int) -> None:
    """A run folder with scores that differ from run to run, without predictions."""
    settings = {"method": method, "benchmark": "cifar-sized", "order": order, "seed": 100}
    classes = schedule.joint().tasks if method == "joint" else schedule.tasks
    RunFolder.create(folder, {"settings": settings, "root": None, "classes": classes})
    random = np.random.default_rng([order, TEN.index(method)])
    records = [
        {
            "after": after,
            "split": "test",
            "scores": dict(zip(score_names(), random.random(len(score_names())), strict=True)),
            "by_task": {name: random.random(after + 1).tolist() for name in BY_TASK},
        }
        for after in range(len(classes))
    ]
    for record in records:
        RunFolder(folder).append("scores", record)


def cifar_sized(root: Path, hierarchy: Any) -> Source:
    """Noise, which no picture format makes smaller, in the place of CIFAR-100's test images."""
    leaf = np.repeat(np.arange(100), 100)
    images = np.random.default_rng(0).integers(0, 256, (10000, 32, 32, 3), dtype=np.uint8)
    return Source(hierarchy.leaves, images[:100], np.arange(100), images, leaf)


def test_ten_methods_and_ten_orders_stay_under_2_mb(
    browser: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cifar = find("iirc-cifar")
    sized = replace(cifar, name="cifar-sized", open_source=cifar_sized, images_per_leaf=None)
    monkeypatch.setitem(_REGISTRY, "cifar-sized", sized)
    stream = polarbear.load("cifar-sized")
    random = np.random.default_rng(0)
    for method in TEN:
        for order in range(10):
            folder = tmp_path / "runs" / method / str(order)
            write_scores(folder, cifar.schedule(order), method, order)
        first = RunFolder(tmp_path / "runs" / method / "0")
        for after in range(22):
            targets = stream.test(after).targets
            # Three wrong labels per image: more than any method of the paper predicts.
            noise = random.integers(0, 65536, targets.shape, dtype=np.uint16)
            predicted = targets & (noise % 2 == 0) | (noise < 65536 * 3 // targets.shape[1])
            if method != "joint":
                first.save_predictions(after, predicted)
            elif after == 21:
                first.save_predictions(0, predicted)
    runs = read_runs(tmp_path / "runs")
    assert runs.count == 100
    file = write_page(runs, tmp_path)
    assert file.stat().st_size < 2_000_000
    with opened(browser, file, viewport={"width": 360, "height": 740}) as site:
        site.page.wait_for_selector("canvas[data-who='truth']")
        assert site.page.locator("#curve-chart .line").count() == 10
        assert "n = 10 runs per method" in site.page.inner_text("#curve-foot")
        assert site.page.evaluate("document.documentElement.scrollWidth") <= 360
        assert site.errors == []


@pytest.mark.parametrize("width", [400, 800, 1400])
def test_a_wide_table_scrolls_in_its_box_and_says_so(browser: Any, file: Path, width: int) -> None:
    with opened(browser, file, viewport={"width": width, "height": 740}) as site:
        page, box = site.page, site.page.locator(".scroll-box", has=site.page.locator("#results"))
        table = box.locator(".scroll")
        hidden = table.evaluate("(node) => node.scrollWidth - node.clientWidth")
        assert box.locator(".hint").is_visible() is (hidden > 1)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        if hidden <= 1:
            assert width == 1400
            return
        told = box.locator(".hint").inner_text()
        assert re.fullmatch(r"scroll for \d more columns? →", told)
        assert ("more" in box.get_attribute("class")) is True
        name = table.locator("tbody th").first
        before = name.bounding_box()
        table.evaluate("(node) => node.scrollTo(node.scrollWidth, 0)")
        box.get_by_text("← scroll back").wait_for()
        # The method's name stays, and leaves room for numbers.
        assert name.bounding_box()["x"] == pytest.approx(before["x"], abs=1)
        assert before["width"] < 0.5 * width
        assert site.errors == []


def test_a_link_restores_the_view(browser: Any, site: Opened, file: Path) -> None:
    page = site.page
    page.select_option("#metric", "pw_jaccard@k")
    page.select_option("#on-task", "2")
    page.locator("#methods .chip", has_text="finetune").click()
    page.keyboard.press("ArrowLeft")
    compare(page, "joint", "finetune")
    page.select_option("#superclass", label="cross")
    page.wait_for_function("() => location.hash.includes('superclass')")
    address = page.evaluate("location.hash")
    with opened(browser, file, address) as again:
        assert again.page.input_value("#task") == "5"
        assert again.page.input_value("#metric") == "pw_jaccard@k"
        assert again.page.input_value("#on-task") == "2"
        assert lines(again.page) == lines(page)
        assert lines(again.page).keys() == {"ER", "joint"}
        for one in ("#left", "#right", "#superclass"):
            assert again.page.input_value(one) == page.input_value(one)
        again.page.evaluate("location.hash = ''")
        again.page.wait_for_function("() => document.getElementById('task').value === '6'")
        assert lines(again.page).keys() == {"finetune", "ER", "joint"}
        assert again.errors == []


def test_an_address_that_asks_for_what_is_not_there_shows_the_page_as_it_is(
    browser: Any, file: Path
) -> None:
    asked = "#task=99&score=none&method=nobody&method=er&compare=nobody&on=x&superclass=none"
    with opened(browser, file, asked) as site:
        assert site.page.input_value("#task") == "6"
        assert site.page.input_value("#metric") == "pw_jaccard"
        assert lines(site.page).keys() == {"ER"}
        assert site.errors == []
    with opened(browser, file, "#method=") as site:
        assert "No method is chosen" in site.page.inner_text("#curve-chart")
    with opened(browser, file, "#curves") as site:
        assert len(lines(site.page)) == 3


def test_an_anchor_leaves_what_is_shown_alone(site: Opened) -> None:
    page = site.page
    page.keyboard.press("ArrowLeft")
    page.evaluate("location.hash = 'curves'")
    page.wait_for_timeout(400)
    assert page.input_value("#task") == "5"


HOLDERS = {
    "not shown": '<iframe id="held" src="{}" style="display:none"></iframe>',
    "of no width": '<iframe id="held" src="{}" style="width:0;height:0;border:0"></iframe>',
    "very narrow": '<iframe id="held" src="{}" style="width:60px;height:60px"></iframe>',
}


@pytest.mark.parametrize("holder", HOLDERS)
def test_a_hidden_page_is_quiet_and_draws_itself_when_it_is_shown(
    browser: Any, file: Path, tmp_path: Path, holder: str
) -> None:
    outside = tmp_path / "outside.html"
    outside.write_text("<!doctype html>" + HOLDERS[holder].format(file.resolve().as_uri()))
    with opened(browser, outside) as site:
        site.page.wait_for_timeout(300)
        assert site.errors == []
        site.page.evaluate(
            "document.getElementById('held').style = 'display:block;width:900px;height:600px'"
        )
        inside = site.page.frame_locator("#held")
        inside.locator("#curve-chart .line").nth(2).wait_for(state="attached")
        inside.locator("canvas").first.wait_for()
        assert inside.locator("#curve-chart svg").bounding_box()["width"] > 600
        assert site.errors == []


def test_bands_are_intervals_around_the_means(site: Opened, runs: Runs) -> None:
    def heights(path: str) -> list[float]:
        return [float(point.split(",")[1]) for point in re.split("[ML]", path.strip("MZ"))]

    page = site.page
    found = interval([run.scores["pw_jaccard"][0] for run in runs.group("er").runs])
    line = heights(lines(page)["ER"])
    band = heights(page.locator("#curve-chart .band").nth(1).get_attribute("d"))
    assert len(band) == 2 * len(line) == 14
    up, down = line[0] - band[0], band[-1] - line[0]
    assert up == pytest.approx(down, abs=0.2)
    zero, one = (
        float(
            page.locator("#curve-chart text", has_text=re.compile(f"^{text}$")).first.get_attribute(
                "y"
            )
        )
        for text in ("0", "0.2")
    )
    assert up / (zero - one) == pytest.approx(found.half_width / 0.2, abs=0.02)
    flat = heights(page.locator("#curve-chart .band").first.get_attribute("d"))
    assert flat[0] == flat[-1]  # finetune has one run


def test_parts_lead_to_their_files(browser: Any, file: Path, tmp_path: Path) -> None:
    page = tmp_path / "index.html"
    page.write_bytes(file.read_bytes())
    files = {
        "average-pw-js": ["figures/average-pw-js.pdf", "figures/average-pw-js.svg"],
        "last-scores": ["tables/last-scores.csv", "tables/last-scores.tex"],
        "logged": ["figures/a name </script> #1.pdf"],
        "transfer": ["tables/transfer.md"],
        "confusion": ["figures/confusion.pdf"],
        "confusion-er": ["figures/confusion-er.svg"],
    }
    add_links(page, files)
    with opened(browser, page) as site:

        def links(place: str) -> dict[str, str]:
            found = site.page.locator(f"{place} a").all()
            return {one.inner_text(): one.get_attribute("href") for one in found}

        assert links("#curves .files") == {
            "PDF": "figures/average-pw-js.pdf",
            "SVG": "figures/average-pw-js.svg",
        }
        table = links("section[aria-labelledby=table-title] .files")
        last = {"CSV": "tables/last-scores.csv", "LaTeX": "tables/last-scores.tex"}
        assert table == {**last, "Markdown": "tables/transfer.md"}
        matrices = links("section[aria-labelledby=confusion-title] .files")
        assert matrices == {"PDF": "figures/confusion.pdf", "SVG": "figures/confusion-er.svg"}
        odd = site.page.locator("#file-list li", has_text="logged").locator("a")
        assert odd.get_attribute("href") == "figures/a%20name%20%3C/script%3E%20%231.pdf"
        assert site.page.locator("#file-list li").count() == 6
        assert not site.page.is_visible("[data-files=questions]")
        assert site.errors == []
    with opened(browser, file) as site:
        assert not site.page.is_visible("#all-files")


def test_questions_take_a_line_each_and_name_the_best(site: Opened) -> None:
    page = site.page
    for card in page.locator(".card").all():
        assert card.bounding_box()["height"] < 46
    first = page.locator(".card").first
    assert first.locator(".leader").inner_text().startswith("ER ")  # joint is a bound
    assert first.locator(".dots svg").count() == 3
    first.locator(".dots").hover()
    assert "(3 runs)" in page.inner_text("#tip")


def test_superclasses_stand_against_subclasses(site: Opened, runs: Runs) -> None:
    page = site.page
    told = page.locator("#levels svg").first.get_attribute("aria-label")
    er = runs.group("er")
    for score in ("pw_jaccard/superclass", "pw_jaccard/subclass"):
        found = interval([run.scores[score][-1] for run in er.runs])
        assert f"{shown(found.mean)} ± {shown(found.half_width)} (3 runs)" in told
    assert page.locator("#levels .point-name").all_text_contents() == ["finetune", "ER", "joint"]
    page.click("#no-methods")
    assert "None of the chosen methods" in page.inner_text("#levels")


def test_each_superclass_has_its_score_by_method(site: Opened, runs: Runs) -> None:
    page = site.page
    given = answers(runs.group("er").runs[0], 6)
    images = given.view.targets[:, given.view.classes.index("star")]
    expected = pw_jaccard(given.predicted, given.view.targets)[images].mean()
    row = page.locator("#families tbody tr", has=page.locator("th", has_text="star"))
    assert float(row.locator("td").nth(1).inner_text()) == pytest.approx(expected, abs=0.0051)
    page.locator("#methods .chip", has_text="finetune").click()
    assert float(row.locator("td").nth(0).inner_text()) == pytest.approx(expected, abs=0.0051)


def made_up(root: Path, **levels: float) -> Runs:
    """Three orders of each method, without predictions."""
    for method, level in levels.items():
        for order in range(3):
            make_run(root / f"{method}-{order}", method, order, level=level)
    return read_runs(root)


def test_the_page_marks_what_the_tables_mark(browser: Any, tmp_path: Path) -> None:
    runs = made_up(tmp_path / "runs", er=0.5, lucir=0.5, finetune=0.1)
    marks = page_data(runs, images=False)["marks"]
    won = best(runs.groups, average("pw_jaccard"), 6)
    assert marks["pw_jaccard"][6] == sorted(won)
    assert won
    assert marks["implication"][6] == []  # nobody knows of how many cases it is
    assert marks["label_ratio"] == []
    assert runs.names.index("finetune") in marks["forgetting"][6]  # low is good
    with opened(browser, write_page(runs, tmp_path)) as site:
        rows = site.page.locator("#results tbody tr")
        bold = {i for i in range(3) if "best" in (score_cell(rows.nth(i), 1) or "")}
        assert bold == won
        assert "Bold: the best mean" in site.page.inner_text("#rule")
        card = site.page.locator(".card[data-key='implication']")
        assert card.locator(".leader").inner_text() == "–"
        assert site.errors == []


def score_cell(row: Any, place: int) -> str | None:
    return row.locator("td").nth(place).get_attribute("class")


def test_a_ratio_of_few_cases_is_pale_and_never_wins(browser: Any, tmp_path: Path) -> None:
    runs = made_up(tmp_path / "runs", er=0.4, lucir=0.9)
    told = {"er": 400.0, "lucir": 3.0}
    groups = tuple(
        replace(
            group,
            runs=tuple(
                replace(run, told={"implication": np.full(7, of), "images": np.full(7, 1000.0)})
                for run in group.runs
            ),
        )
        for group, of in ((group, told[group.name]) for group in runs.groups)
    )
    runs = Runs(runs.benchmark, groups)
    with opened(browser, write_page(runs, tmp_path)) as site:
        page = site.page
        heads = page.locator("#results thead th").all_inner_texts()
        column = next(i for i, text in enumerate(heads) if text.startswith("implication")) - 1
        rows = page.locator("#results tbody tr")
        er, lucir = (rows.nth(i).locator("td").nth(column) for i in (0, 1))
        assert "few" in lucir.get_attribute("class")
        assert "of 3" in lucir.inner_text()
        assert "few" not in (er.get_attribute("class") or "")
        leader = page.locator(".card[data-key='implication'] .leader").inner_text()
        assert leader.startswith("ER ")
        assert site.errors == []


def test_scores_stand_against_what_is_kept(browser: Any, tmp_path: Path) -> None:
    runs = made_up(tmp_path / "runs", er=0.5, finetune=0.1)
    costs = {"er": Cost(passes=41_000, kept=1_500_000), "finetune": Cost(kept=0)}
    groups = tuple(
        replace(g, runs=tuple(replace(run, told_cost=costs[g.name]) for run in g.runs))
        for g in runs.groups
    )
    with opened(browser, write_page(Runs(runs.benchmark, groups), tmp_path)) as site:
        told = site.page.locator("#kept svg").first.get_attribute("aria-label")
        assert "finetune 0 B and 0.0" in told
        assert "ER 1.5 MB and 0." in told
        heads = site.page.locator("#costs thead th").all_inner_texts()
        assert heads == ["Method", "image passes", "seconds", "bytes kept"]
        cells = site.page.locator("#costs tbody td").all_inner_texts()
        assert cells == ["–", "–", "0 B", "41,000", "–", "1.5 MB"]
        marks = site.page.locator("#kept svg > text").all_text_contents()
        assert {"0", "1 MB", "10 MB"} <= set(marks)
        assert site.errors == []


def test_where_nobody_says_what_is_kept_the_page_has_no_part_for_it(site: Opened) -> None:
    assert not site.page.is_visible("#kept-title")


def test_an_inferred_tree_shows_what_is_right_missing_and_wrong(
    browser: Any, runs: Runs, tmp_path: Path
) -> None:
    tree = known_hierarchy(runs.benchmark)
    found = {name: up for name in tree.names if (up := tree.parent(name)) is not None}
    right, (lost, moved, *_) = len(found) - 2, tree.children("star")
    del found[lost]
    found |= {moved: "circle", "spiral": "circle"}  # spiral has no superclass
    er = replace(runs.group("er"), runs=(replace(runs.group("er").runs[0], tree=found),))
    file = write_page(Runs(runs.benchmark, (runs.groups[0], er)), tmp_path, images=False)
    with opened(browser, file) as site:
        part = site.page.locator("#trees")
        assert f"{right} found and 1 wrong; 1 given to classes" in part.inner_text()
        star = part.locator("tr", has=site.page.locator("th", has_text="star"))
        missing = {f"misses {tree.title(name)}" for name in (lost, moved)}
        assert set(star.locator(".missing").all_inner_texts()) == missing
        circle = part.locator("tr", has=site.page.locator("th", has_text="circle"))
        wrong = {f"✗ {tree.title(moved)}", "✗ spiral"}
        assert set(circle.locator(".wrong").all_inner_texts()) == wrong
        assert circle.locator(".right").count() == len(tree.children("circle"))
        assert site.errors == []


def test_without_inferred_trees_the_page_has_no_part_for_them(site: Opened) -> None:
    assert not site.page.is_visible("#trees-title")


def test_methods_look_as_in_the_figures(site: Opened, runs: Runs) -> None:
    for name, look in looks(runs.groups).items():
        line = site.page.locator(f"#curve-chart .line[data-method='{runs.group(name).title}']")
        assert line.get_attribute("stroke") == look.colour
        assert bool(line.get_attribute("stroke-dasharray")) is look.dashed
    site.page.click("#theme")
    line = site.page.locator("#curve-chart .line[data-method='ER']")
    assert line.get_attribute("stroke") == looks(runs.groups)["er"].on_dark


def test_the_page_compares_the_pair_of_the_figure(runs: Runs) -> None:
    (drawing,) = draw("side-by-side", runs)
    data = page_data(runs, images=False)
    left, right = (data["methods"][place]["name"] for place in data["pair"])
    assert drawing.caption.startswith(f"{left} and {right} on")
    asked = page_data(runs, Options(compare=("joint", "finetune")), images=False)
    assert asked["pair"] == [2, 0]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1400])
def test_nothing_bars_anyone(browser: Any, file: Path, scheme: str, width: int) -> None:
    barriers, size = axe(), {"width": width, "height": 900}
    # The page lets no script in but its own; the check is one from outside.
    with opened(browser, file, color_scheme=scheme, viewport=size, bypass_csp=True) as site:
        site.page.wait_for_selector("canvas[data-who='truth']")
        site.page.evaluate(barriers)
        found = site.page.evaluate("axe.run()")["violations"]
        grave = [one for one in found if one["impact"] in ("serious", "critical")]
        assert [(one["id"], one["nodes"][0]["html"]) for one in grave] == []


def test_picked_images_come_from_every_superclass() -> None:
    stream = polarbear.load("iirc-shapes")
    rows = pick_rows(stream, 26)
    leaves = [stream.hierarchy.names[number] for number in stream.test_leaf[rows]]
    families = [stream.hierarchy.labels_of(leaf)[0] for leaf in leaves]
    assert len(set(leaves)) == 26
    assert all(families.count(name) == 3 for name in stream.hierarchy.superclasses)
    assert set(families[:7]) == set(stream.hierarchy.superclasses)


def test_large_images_are_made_small(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = polarbear.load("iirc-shapes")
    large = np.zeros((60, 120, 200, 3), dtype=np.uint8)
    monkeypatch.setattr(type(stream), "images", lambda self, split: large)
    made = picture_data(stream, np.arange(60))
    kind, content = made["sheet"].split(",", 1)
    assert kind == "data:image/jpeg;base64"
    assert Image.open(BytesIO(b64decode(content))).size == (960, 576)


class LargeImages:
    """Images of 3 MB, made when they are asked for."""

    def __getitem__(self, rows: Any) -> np.ndarray:
        return np.zeros((*np.shape(rows), 1000, 1000, 3), dtype=np.uint8)


def test_one_large_image_at_a_time_is_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = polarbear.load("iirc-shapes")
    monkeypatch.setattr(type(stream), "images", lambda self, split: LargeImages())
    tracemalloc.start()
    try:
        assert "sheet" in picture_data(stream, np.arange(60))
        assert tracemalloc.get_traced_memory()[1] < 30e6
    finally:
        tracemalloc.stop()


def test_without_pillow_the_page_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    missing = picture_data(polarbear.load("iirc-shapes"), np.arange(3))["missing"]
    assert install_line("report") in missing
