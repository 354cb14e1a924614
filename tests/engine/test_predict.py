"""What a method gives for images, what it predicts by it, and how it measures an epoch."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import fake_graphs
from engine_run import finish, shapes_stream, tiny, trainer_for
from polarbear.base.errors import PolarbearError
from polarbear.engine.contract.method import bce
from polarbear.engine.steps.captured import CapturedSteps
from polarbear.launch.check.learner import check_learner
from polarbear.launch.runner import resume, run
from polarbear.methods.er import ER
from polarbear.report.read.runs import read_runs
from polarbear.runs.folder import RunFolder
from polarbear.runs.result_file import command_of, summarise
from polarbear.score import metrics
from polarbear.score.decide import Seen, decision

STREAM = shapes_stream(40)  # with validation images in the first task, too

pytestmark = pytest.mark.usefixtures("one_thread")


class Halved(ER):
    """ER whose scores are logits less a half, of a dropout layer of its own: off in evaluation."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.drop = nn.Dropout(0.99)
        self.modes: set[tuple[bool, ...]] = set()

    def scores(self, images: Tensor) -> Tensor:
        modes = (self.model.training, self.drop.training, torch.is_grad_enabled())
        self.modes = self.modes | {modes}
        return self.drop(self.model(images)) - 0.5


class Learnt(ER):
    """ER with a threshold of its own for each class, in a buffer."""

    def begin_task(self, context: Any) -> None:
        self.register_buffer("least", torch.full((context.seen,), -1.5))

    def decide(self, scores: Tensor) -> Tensor:
        assert scores.device == self.least.device
        return scores > self.least


class ByLoss(ER):
    """ER that judges an epoch by its validation loss."""

    def measure(self, scores: Tensor, targets: Tensor) -> Tensor:
        return -bce(scores, targets)


class ByHighLoss(ER):
    """ER that takes the worst epoch for the best."""

    def measure(self, scores: Tensor, targets: Tensor) -> float:
        return float(bce(scores, targets))


def test_scores_of_a_method_are_what_is_predicted_by_and_kept(tmp_path: Path) -> None:
    trainer, notes = trainer_for(tiny("test_predict:Halved", tasks=2), STREAM)
    finish(trainer)
    method = trainer.learner.method
    assert method.modes == {(False, False, False)}
    assert method.training
    assert method.drop.training  # as it was
    usual, kept = trainer_for(tiny("er", tasks=2), STREAM)
    finish(usual)
    for after, (predicted, scores) in notes.kept.items():
        assert np.array_equal(predicted, scores > 0)
        assert not np.array_equal(scores, kept.kept[after][1])
    # Validation sees them too: the first epoch is the same but for what is predicted.
    assert notes.epochs[0].loss == kept.epochs[0].loss
    view = trainer.images.valid
    shifted = trainer.learner.scores(view)
    trainer.learner.method.__class__ = ER
    assert np.allclose(trainer.learner.scores(view) - 0.5, shifted, atol=1e-6)


def test_a_rule_of_the_methods_own_predicts_in_validation_and_test() -> None:
    trainer, notes = trainer_for(tiny("test_predict:Learnt", tasks=2), STREAM)
    finish(trainer)
    for predicted, scores in notes.kept.values():
        assert np.array_equal(predicted, scores > -1.5)
        assert not np.array_equal(predicted, scores > 0)


def valid_scores(method: str, **changes: Any) -> list[tuple[float, float]]:
    """Validation scores as recorded, and as worked out by hand at every epoch."""
    trainer, notes = trainer_for(tiny(method, tasks=1, epochs=3, **changes), STREAM)
    by_hand: list[float] = []

    def look() -> None:
        view = trainer.images.valid
        scores = trainer.learner.scores(view)
        if method.endswith("ByLoss"):
            targets = torch.tensor(view.targets).float()
            by_hand.append(float(-bce(torch.from_numpy(scores), targets)))
        else:
            named = scores > (-1.5 if method.endswith("Learnt") else 0)
            by_hand.append(float(metrics.pw_jaccard(named, view.targets).mean()))

    notes.at_epoch.append(look)
    finish(trainer)
    return list(zip([record.valid for record in notes.epochs], by_hand, strict=True))


@pytest.mark.parametrize("method", ["er", "test_predict:Learnt", "test_predict:ByLoss"])
def test_an_epoch_is_measured_by_what_is_predicted_or_as_the_method_says(method: str) -> None:
    found = valid_scores(method)
    assert all(recorded == expected for recorded, expected in found)
    assert (len({recorded for recorded, _ in found}) > 1) == (
        method != "er"
    )  # too little is learnt
    assert (found[0][0] < 0) == method.endswith("ByLoss")


def test_the_best_epoch_is_the_best_by_the_methods_own_measure() -> None:
    settings = tiny("test_predict:ByHighLoss", tasks=1)
    trainer, notes = trainer_for(settings, STREAM)
    weights: list[Tensor] = []
    head = trainer.learner.model.head
    notes.at_epoch.append(lambda: weights.append(head.weight.detach().clone()))
    finish(trainer)
    measures = [record.valid for record in notes.epochs]
    best = max(range(len(measures)), key=lambda i: (measures[i], i))
    assert torch.equal(weights[best], head.weight)
    assert best != len(measures) - 1


# In a run folder


def settings_of(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "manifest.json").read_text())["settings"]
    return found


@pytest.mark.parametrize(
    ("method", "asked", "written"),
    [
        ("er", None, "threshold"),
        ("er", "top1", "top1"),
        ("test_predict:Learnt", None, "own"),
        ("test_predict:Learnt", "own", "own"),
        ("test_predict:Learnt", "threshold", "threshold"),
    ],
)
def test_a_manifest_says_which_rule_it_was(
    tmp_path: Path, method: str, asked: str | None, written: str
) -> None:
    settings = tiny(method, decision=asked, tasks=1, epochs=1)
    assert run(settings, tmp_path / "run", stream=STREAM)
    assert settings_of(tmp_path / "run")["decision"] == written
    assert not RunFolder(tmp_path / "run").own_loop
    summary = summarise(RunFolder(tmp_path / "run"))
    assert summary["decision"] == written
    # The command brings the same rule back, and says no more than it must.
    needed = written if asked and written != "own" else None
    assert ("--decision" in summary["command"]) == (needed is not None)


def test_a_class_that_is_not_ours_may_gain_a_rule_so_the_usual_one_is_said() -> None:
    settings = tiny("test_predict:ByLoss", decision="threshold").to_dict()
    assert command_of(settings).endswith("--decision threshold")


def test_own_is_refused_where_there_is_none(tmp_path: Path) -> None:
    with pytest.raises(
        PolarbearError,
        match=r"ER has no decision rule of its own: define decide\(self, scores\), or choose "
        r"threshold, top1, .*, expected-tree \(oracle\) or package\.module:rule",
    ):
        run(tiny("er", decision="own"), tmp_path / "run", stream=STREAM)
    assert not (tmp_path / "run").exists()


def test_a_rule_with_parents_is_refused_before_training_where_none_are_inferred(
    tmp_path: Path,
) -> None:
    with pytest.raises(PolarbearError, match=r"top1-parent .* this method infers none"):
        run(tiny("er", decision="top1-parent"), tmp_path / "run", stream=STREAM)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("rule", ["top1-parent", "expected", "expected-tree"])
def test_a_run_predicts_by_parents(tmp_path: Path, rule: str) -> None:
    settings = tiny("kin", decision=rule, tasks=2, epochs=1, keep_scores=True)
    assert run(settings, tmp_path / "run", stream=STREAM)
    folder = RunFolder(tmp_path / "run")
    (record,) = (r for r in folder.scores() if (r.after, r.split) == (1, "test"))
    about = Seen.of(STREAM.hierarchy, STREAM.test(1).classes, parents=np.array(record.parents))
    predicted = decision(rule)(folder.raw(1), about)
    # Kept scores are rounded, so that a few images may be decided otherwise.
    assert (predicted == folder.predictions(1)).all(axis=1).mean() > 0.95
    assert bool(folder.manifest().get("oracle_rule")) == (rule == "expected-tree")


def best_two(scores: np.ndarray, about: Seen) -> np.ndarray:
    return np.argsort(np.argsort(-scores, axis=1), axis=1) < 2


def levels_told(scores: np.ndarray, about: Seen) -> np.ndarray:
    return np.broadcast_to(about.oracle.levels == 0, scores.shape)


levels_told.oracle = True


def test_a_rule_by_dotted_path_predicts_and_an_oracle_is_noted(tmp_path: Path) -> None:
    for name, oracle in (("best_two", False), ("levels_told", True)):
        settings = tiny("er", decision=f"test_predict:{name}", tasks=2, epochs=1)
        assert run(settings, tmp_path / name, stream=STREAM)
        folder = RunFolder(tmp_path / name)
        assert folder.manifest().get("oracle_rule", False) is oracle
        assert summarise(folder).get("oracle_rule", False) is oracle
    assert (RunFolder(tmp_path / "best_two").predictions(1).sum(axis=1) == 2).all()


class Told(ER):
    """ER that says it was told more than a learner is."""

    title = "ER, told"
    oracle = True


def test_what_a_class_calls_itself_is_in_the_manifest_and_the_report(tmp_path: Path) -> None:
    for method in ("test_predict:Told", "er"):
        assert run(tiny(method, tasks=1, epochs=1), tmp_path / method[-4:], stream=STREAM)
    told, plain = (RunFolder(tmp_path / name) for name in ("Told", "er"))
    for written in (told.manifest(), summarise(told)):
        assert (written["title"], written["oracle"]) == ("ER, told", True)
    for written in (plain.manifest(), summarise(plain)):
        assert not {"title", "oracle"} & set(written)
    assert read_runs(told.path).groups[0].title == "ER, told (oracle)"


@pytest.mark.parametrize("method", ["Learnt", "ByLoss", "Halved"])
def test_a_run_resumed_ends_with_the_same_scores(tmp_path: Path, method: str) -> None:
    settings = tiny(f"test_predict:{method}", tasks=2)
    assert run(settings, tmp_path / "whole", stream=STREAM)

    def stop(trainer: Any, progress: Any) -> None:
        if progress.task == 1 and progress.epoch == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(settings, tmp_path / "cut", stream=STREAM, on_step=stop, save_every=0)
    assert resume(tmp_path / "cut", stream=STREAM)
    scores = [(tmp_path / name / "scores.jsonl").read_bytes() for name in ("whole", "cut")]
    assert scores[0] == scores[1]


def test_an_old_folder_goes_on_by_the_rule_it_names(tmp_path: Path) -> None:
    """A class that has a rule of its own now does not change what a run began with."""
    settings = tiny("test_predict:Learnt", decision="threshold", tasks=1, keep_scores=True)
    assert run(settings, tmp_path / "run", stream=STREAM)
    folder = RunFolder(tmp_path / "run")
    (folder.path / "finished.json").unlink()
    assert resume(folder.path, stream=STREAM)
    assert np.array_equal(folder.predictions(0), folder.raw(0) > 0)


# Wrong ones


class Wrong(ER):
    """A method that gives what it is told to give."""

    gives: Any = None

    def scores(self, images: Tensor) -> Tensor:
        return self.gives(self.model(images)) if self.gives else self.model(images)


class WrongRule(Wrong):
    def decide(self, scores: Tensor) -> Tensor:
        return self.rule(scores)


class WrongMeasure(Wrong):
    def measure(self, scores: Tensor, targets: Tensor) -> Any:
        return self.value


@pytest.mark.parametrize(
    ("method", "attribute", "value", "message"),
    [
        (
            *("Wrong", "gives", lambda s: s[:, :1]),
            r"Wrong\.scores gives \(20, 1\), not a tensor of \(20, 6\): a row for each image, a",
        ),
        ("Wrong", "gives", lambda s: s.numpy(), r"Wrong\.scores gives ndarray, not a tensor of"),
        ("Wrong", "gives", lambda s: s > 0, r"Wrong\.scores gives torch\.bool: scores are float"),
        ("WrongRule", "rule", lambda s: s[:1] > 0, r"WrongRule\.decide gives \(1, 6\), not a"),
        ("WrongRule", "rule", lambda s: s, r"WrongRule\.decide gives torch\.float32, not bool"),
        ("WrongMeasure", "value", float("nan"), r"WrongMeasure\.measure gives nan, which is no"),
        ("WrongMeasure", "value", None, r"WrongMeasure\.measure gives a NoneType None: it must"),
        ("WrongMeasure", "value", torch.ones(2), r"measure gives a Tensor of \(2,\): it must give"),
    ],
)
def test_anything_else_is_refused_with_the_class_and_the_shape(
    method: str, attribute: str, value: Any, message: str
) -> None:
    trainer, _ = trainer_for(tiny(f"test_predict:{method}", tasks=1), STREAM)
    setattr(trainer.learner.method, attribute, value)
    with pytest.raises(PolarbearError, match=message):
        finish(trainer)


class Forgetful(ER):
    """Predicts by a threshold that a checkpoint does not hold."""

    least = 0.0

    def end_task(self) -> None:
        self.least += 0.05

    def decide(self, scores: Tensor) -> Tensor:
        return scores > self.least


def test_a_rule_that_a_checkpoint_does_not_hold_is_found() -> None:
    assert not check_learner(Learnt)
    found = check_learner(Forgetful, strict=False)
    assert ["ends with other scores" in str(one) for one in found] == [True]


# Captured


@pytest.mark.parametrize("method", ["Learnt", "ByLoss", "Halved"])
def test_captured_validation_gives_the_methods_own_scores(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, method: str
) -> None:
    captured: list[CapturedSteps] = fake_graphs.install(monkeypatch)
    found = {}
    for graph in (True, False):
        settings = tiny(f"test_predict:{method}", graph=graph, learning_rate=0.1)
        assert run(settings, tmp_path / str(graph), stream=STREAM)
        lines = RunFolder(tmp_path / str(graph)).lines("epochs")
        found[graph] = [{k: line[k] for k in ("loss", "valid")} for line in lines]
    assert found[True] == [pytest.approx(line) for line in found[False]]
    assert len(captured) == (0 if method == "Halved" else 3)  # that one changes an attribute
