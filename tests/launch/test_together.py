"""One run by several processes: the run of one process, whoever resumes it, whatever ends."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from engine_run import newest_checkpoint, shapes_stream
from polarbear.engine.nets.frozen import AT_ONCE, LOOKED_AT
from polarbear.methods.catalogue import METHODS
from polarbear.runs.folder import RunFolder
from together import torchrun, train

#: Low, for rounding alone changes what a high rate makes of it; neither number is even.
HOW = {"learning_rate": 0.01, "epochs": 1, "tasks": 2, "batch_size": 33, "memory_per_class": 3}
OWN = ("together:LossAlone", "together:StoresLogits")
#: Methods that carry more than weights from task to task, of several kinds.
CARRYING = ("together:LossAlone", "derpp", "gem", "lucir", "rwalk", "si")
#: In two parts by each of two processes; the last one has batch norm, and so is another run.
IN_PARTS = ("agem", "derpp", "er-ace", "lucir", "rwalk", "si", "together:LossAlone")


def in_order(runs: list[dict[str, Any]], folder: Path) -> str:
    """Let two processes train runs, one after the other; returns what they wrote."""
    orders = folder / "orders.json"
    orders.write_text(json.dumps(runs))
    code, said = torchrun(2, str(Path(__file__).parents[1] / "together.py"), str(orders))
    assert code == 0, said
    return said


def wanted(folder: Path, method: str, **more: Any) -> dict[str, Any]:
    folder = folder / method.replace(":", "-")
    return {"folder": str(folder), "method": method, **HOW, **more}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return folders of the same runs, by one process and by two.

    Of some, each began what the other finished.
    """
    one, two = tmp_path_factory.mktemp("one"), tmp_path_factory.mktemp("two")
    methods, begun = (*METHODS, *OWN), tmp_path_factory.mktemp("begun")
    by_one = wanted(begun / "by-one", "together:LossAlone", stop=5)
    by_two = [wanted(begun / "by-two", method, stop=13) for method in CARRYING]
    assert not train(**by_one)
    whole = [wanted(two, method) for method in methods]
    alone = {"network": "engine_run:network_without_batch_norm"}
    parts = [wanted(two / "parts", method, accumulate=2, **alone) for method in IN_PARTS]
    parts[-1].pop("network")
    in_order([*whole, {**by_one, "stop": None}, *by_two, *parts], two)
    for half in by_two:
        there = RunFolder(Path(half["folder"]))
        assert not there.finished
        assert {record.after for record in there.scores()} == {0}  # it has ended a task
        assert train(**{**half, "stop": None})
    for method in methods:
        assert train(**wanted(one, method))
    for method in IN_PARTS[:-1]:
        assert train(**wanted(one / "parts", method, **alone))
    for half in (by_one, *by_two):
        begun = Path(half["folder"])
        name = f"{begun.name}-begun-{begun.parent.name}"
        begun.rename(two / name)
        (one / name).symlink_to(one / begun.name)
    return one, two


@pytest.mark.parametrize(
    "name",
    [
        *(one.replace(":", "-") for one in (*METHODS, *OWN)),
        "together-LossAlone-begun-by-one",
        *(f"{one.replace(':', '-')}-begun-by-two" for one in CARRYING),
        *(f"parts/{method}" for method in IN_PARTS[:-1]),
    ],
)
def test_two_processes_train_the_run_of_one(name: str, folders: tuple[Path, Path]) -> None:
    one, two = (RunFolder(folder / name) for folder in folders)
    assert two.finished
    for mine, other in zip(one.epochs(), two.epochs(), strict=True):
        assert other.loss == pytest.approx(mine.loss, rel=1e-5)
        assert other.own == pytest.approx(mine.own, rel=1e-4)
    for mine, other in zip(one.scores(), two.scores(), strict=True):
        assert other.to_json() == mine.to_json()
    (_, mine), (_, other) = (newest_checkpoint(run.path / "checkpoint") for run in (one, two))
    assert mine.tensors.keys() == other.tensors.keys()
    for key, tensor in mine.tensors.items():
        scale = max(0.1, float(tensor.double().abs().max())) if tensor.numel() else 0.0
        near = {"rtol": 1e-4, "atol": 1e-5 * scale} if tensor.is_floating_point() else {}
        torch.testing.assert_close(other.tensors[key], tensor, msg=key, **near)


def test_two_processes_take_parts_with_batch_norm_over_both(folders: tuple[Path, Path]) -> None:
    assert RunFolder(folders[1] / "parts" / IN_PARTS[-1].replace(":", "-")).finished


def test_each_process_keeps_images_where_it_has_room(tmp_path: Path) -> None:
    one, two = (wanted(tmp_path / name, "er") for name in ("one", "two"))
    in_order([{**two, "encoded": True}], tmp_path)
    assert train(**one)
    scores = [RunFolder(Path(run["folder"])).scores() for run in (one, two)]
    assert [score.to_json() for score in scores[0]] == [score.to_json() for score in scores[1]]


def test_each_process_looks_at_a_part_of_the_images_with_a_frozen_network(tmp_path: Path) -> None:
    how = {"network": "together:Watched", "frozen": True}
    one, two = (wanted(tmp_path / name, "ncm", **how) for name in ("one", "two"))
    passes = re.findall(r"process (\d) looks at (\d+)", in_order([two], tmp_path))
    looked = [sum(int(n) for rank, n in passes if rank == own and int(n) > 8) for own in "01"]
    stream = shapes_stream()
    assert sum(looked) == len(stream.images("train")) + len(stream.images("test"))
    assert abs(looked[0] - looked[1]) <= 2 * AT_ONCE  # a part of each file
    assert train(**one)
    scores = [Path(run["folder"], "scores.jsonl").read_bytes() for run in (one, two)]
    assert scores[0] == scores[1]


def test_features_that_one_process_alone_has_kept_are_worked_out_by_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # and back in the end: train goes elsewhere
    how = {"network": "together:Watched", "frozen": True, "disk": str(tmp_path / "disk")}
    one, two, three = (wanted(tmp_path / name, "ncm", **how) for name in ("one", "two", "three"))
    assert train(**one)
    assert largest_pass(in_order([two], tmp_path)) == AT_ONCE
    assert largest_pass(in_order([three], tmp_path)) == LOOKED_AT  # each has them now
    scores = [Path(run["folder"], "scores.jsonl").read_bytes() for run in (one, two, three)]
    assert scores[0] == scores[1] == scores[2]


def largest_pass(said: str) -> int:
    return max(int(images) for images in re.findall(r"looks at (\d+)", said))


def test_a_killed_process_ends_the_others_and_all_go_on(tmp_path: Path) -> None:
    flags = {"network": "engine_run:TinyNetwork", "epochs": 1, "tasks": 2, "learning-rate": 0.01}
    words = [word for name, value in flags.items() for word in (f"--{name}", str(value))]
    how = ("--benchmark", "iirc-shapes", "--device", "cpu", *words, "--save-every", "0")
    for name in ("unbroken", "killed"):
        method = "together:LossAlone" if name == "unbroken" else "together:DiesOnce"
        run = ("-m", "polarbear", "run", method, *how, "--out", str(tmp_path / name))
        code, said = torchrun(2, *run, options=["--max-restarts=1"])
        assert code == 0, said
        assert said.count("The run is in") == 1  # the first process speaks, and no other
        assert "on cpu, 1 thread, fp32, by 2 processes together, in" in said
    unbroken, killed = (RunFolder(tmp_path / name) for name in ("unbroken", "killed"))
    assert "has ended, and its own message says why" in said
    for name in ("scores.jsonl", "predictions/after_1.npz"):
        assert (killed.path / name).read_bytes() == (unbroken.path / name).read_bytes()
    assert killed.manifest()["processes"] == 2
