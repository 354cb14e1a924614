"""Pictures of what methods say of themselves: the tree they infer, the numbers they log."""

from pathlib import Path

import pytest

from engine_run import shapes_stream, tiny
from polarbear.base.errors import DataError
from polarbear.launch.runner import run
from polarbear.named.registry import find
from polarbear.report.figures.logged import logged
from polarbear.report.figures.style import styled
from polarbear.report.figures.tree import inferred_trees
from polarbear.report.options import Options
from polarbear.report.read.runs import read_runs
from polarbear.report.read.trees import inferred
from polarbear.runs.folder import RunFolder
from polarbear.runs.result_file import summarise
from synthetic_runs import summary

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs")
    for method in ("kin", "er"):
        settings = tiny(method, learning_rate=0.1, schedule="cosine", epochs=4, tasks=None)
        assert run(settings, path / method, stream=shapes_stream(), save_every=1e9)
    return path


def words_of(figure: object) -> list[str]:
    return [text.get_text().strip() for text in figure.axes[0].texts]


def test_the_tree_of_a_run_is_drawn_beside_the_true_one(folder: Path) -> None:
    tree = RunFolder(folder / "kin").inferred_tree()
    hierarchy = shapes_stream().hierarchy
    true = {name: up for name in hierarchy.names if (up := hierarchy.parent(name))}
    with styled():
        (drawing,) = inferred_trees(read_runs(folder), Options())
    right = sum(tree.get(child) == parent for child, parent in true.items())
    false = sum(child not in true for child in tree)
    assert f"Of {len(true)} parents, found: {right}, wrong: " in drawing.caption
    assert drawing.caption.endswith(f"given to classes that have none: {false}.")
    titles = [hierarchy.title(name) for name in hierarchy.names]
    assert set(titles) <= set(words_of(drawing.figure))


def test_a_summary_keeps_the_tree(folder: Path, tmp_path: Path) -> None:
    content = summarise(RunFolder(folder / "kin"))
    file = tmp_path / "iirc-shapes" / "kin" / "order-0.json"
    summary(file, **content)
    (group,) = read_runs(file).groups
    assert group.runs[0].tree == RunFolder(folder / "kin").inferred_tree()
    assert "tree" not in summarise(RunFolder(folder / "er"))


def test_the_tree_of_a_summary_is_of_the_tasks_it_came_to(tmp_path: Path) -> None:
    file = tmp_path / "iirc-shapes" / "kin" / "order-1.json"
    tasks, tree = find("iirc-shapes").schedule(1).tasks, find("iirc-shapes").hierarchy()
    came = {name for task in tasks[:2] for name in task}
    due = sum(tree.parent(name) in came for name in came)
    summary(file, [0.5, 0.4, *[None] * (len(tasks) - 2)], order=1, tree={})
    (found,) = inferred(read_runs(file), tree)
    assert (set(found.seen), len(found.true)) == (came, due)


def test_numbers_of_a_methods_own_are_drawn_over_the_epochs(folder: Path) -> None:
    with styled():
        (drawing,) = logged(read_runs(folder), Options())
    epochs = list(RunFolder(folder / "kin").epochs())
    (panel,) = drawing.figure.axes
    drawn = list(panel.lines[0].get_ydata())
    assert drawn == [e.own["distillation"] for e in epochs if e.own]
    assert len(panel.lines) == 1 + len({e.task for e in epochs})
    assert panel.get_ylabel() == "distillation"
    with pytest.raises(DataError, match="logs numbers of its own"):
        logged(read_runs(folder / "er"), Options())


def test_runs_that_infer_none_have_no_such_figure(folder: Path) -> None:
    with pytest.raises(DataError, match="no method of these runs infers"):
        inferred_trees(read_runs(folder / "er"), Options())
