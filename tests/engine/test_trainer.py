from collections import Counter
from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import settings as checks
from hypothesis import strategies as st

from engine_run import (
    METHODS,
    Step,
    finish,
    row_stream,
    same,
    shapes_stream,
    tiny,
    trainer_for,
    watch_looks,
    watch_steps,
    weights,
)
from polarbear.benchmark.schedule import Schedule
from polarbear.engine.contract.batch import Batch
from polarbear.engine.generator import generator_for
from polarbear.engine.images.transform import TRANSFORMS, for_evaluation
from polarbear.engine.task.epoch_plan import EpochPlan
from polarbear.engine.task.labels import Labels
from polarbear.engine.task.training_set import TrainingSet
from polarbear.engine.trainer import DivergedError, Trainer
from polarbear.score import metrics
from polarbear.score.decide import Seen, threshold
from polarbear.score.evaluate import Evaluator

KEEPS_LAST = ("mask-seen", "agem", "icarl-cnn", "icarl-norm", "lucir")
WANTS_TEACHER = ("icarl-cnn", "icarl-norm", "lucir")
MIXED = ("er", "er-infinite", "mask-seen", "icarl-cnn", "icarl-norm", "lucir")
ALONE = ("finetune", "agem")


pytestmark = pytest.mark.usefixtures("one_thread")


def epochs_of(steps: list[Step]) -> dict[tuple[int, int], list[Step]]:
    found: dict[tuple[int, int], list[Step]] = {}
    for step in steps:
        found.setdefault((step.task, step.epoch), []).append(step)
    return found


def images_of(steps: list[Step]) -> Counter[tuple[int, bool, tuple[bool, ...]]]:
    """How often each (row, replayed, labels) was given."""
    return Counter(
        (row, bool(replayed), tuple(labels > 0))
        for step in steps
        for row, replayed, labels in zip(
            step.rows, step.replayed.tolist(), step.targets.numpy(), strict=True
        )
    )


def stored_labels(trainer: Trainer, seen: int) -> list[tuple[int, tuple[bool, ...]]]:
    """Row and labels of every image in memory, looked up in the task its class came in."""
    found = []
    for row, column in zip(
        trainer.learner.memory.rows, trainer.learner.memory.classes, strict=True
    ):
        task = next(t for t in trainer.stream if t.new.start <= column < t.new.stop)
        (place,) = np.flatnonzero(task.train.rows == row)
        labels = np.zeros(seen, dtype=bool)
        labels[: len(task.seen)] = task.train.targets[place]
        assert labels[column]
        found.append((int(row), tuple(labels)))
    return found


# Epochs and batches


def test_the_first_task_trains_twice_as_long_and_partial_batches_are_kept() -> None:
    trainer, notes = trainer_for(tiny("finetune", batch_size=50))
    steps = watch_steps(trainer)
    finish(trainer)
    assert Counter(record.task for record in notes.epochs) == {0: 4, 1: 2, 2: 2}
    for (task, epoch), given_there in epochs_of(steps).items():
        count = len(trainer.stream[task].train)
        sizes = [len(step.rows) for step in given_there]
        assert sizes == [50] * (count // 50) + [count % 50] * (count % 50 > 0)
        assert [step.step for step in given_there] == list(range(len(sizes)))
        record = next(r for r in notes.epochs if (r.task, r.epoch) == (task, epoch))
        assert record.images == count
    assert any(len(step.rows) < 50 for step in steps)


@pytest.mark.parametrize("method", ALONE)
def test_without_replay_each_task_image_comes_once_an_epoch_with_its_labels(method: str) -> None:
    trainer, _ = trainer_for(tiny(method))
    steps = watch_steps(trainer)
    finish(trainer)
    for (task, _epoch), given_there in epochs_of(steps).items():
        view = trainer.stream[task].train
        expected = Counter(
            (int(row), False, tuple(labels))
            for row, labels in zip(view.rows, view.targets, strict=True)
        )
        assert images_of(given_there) == expected


@pytest.mark.parametrize("method", MIXED)
def test_replay_gives_each_memory_image_once_an_epoch_with_its_stored_labels(method: str) -> None:
    trainer, _ = trainer_for(tiny(method))
    steps = watch_steps(trainer)
    stored: dict[int, list[tuple[int, tuple[bool, ...]]]] = {}
    for progress in trainer.steps():
        if progress.begun and progress.task not in stored:
            seen = len(trainer.stream[progress.task].seen)
            stored[progress.task] = stored_labels(trainer, seen)
    assert [len(stored[task]) > 0 for task in range(3)] == [False, True, True]
    for (task, _epoch), given_there in epochs_of(steps).items():
        view = trainer.stream[task].train
        expected = Counter(
            (int(row), False, tuple(labels))
            for row, labels in zip(view.rows, view.targets, strict=True)
        )
        expected += Counter((row, True, labels) for row, labels in stored[task])
        assert images_of(given_there) == expected


def test_the_same_image_is_replayed_under_two_labels() -> None:
    trainer, _ = trainer_for(tiny("er-infinite", epochs=1, tasks=3))
    steps = watch_steps(trainer)
    finish(trainer)
    replayed = [image for image in images_of(epochs_of(steps)[2, 0]) if image[1]]
    labels: dict[int, set[tuple[bool, ...]]] = {}
    for row, _, carried in replayed:
        labels.setdefault(row, set()).add(carried)
    assert any(len(kinds) == 2 for kinds in labels.values())


def test_memory_images_are_augmented_like_the_others() -> None:
    trainer, _ = trainer_for(tiny("er", epochs=1, tasks=2), shapes_stream())
    shown: dict[bool, list[torch.Tensor]] = {False: [], True: []}
    inner = trainer.learner.method.backward

    def backward(batch: Batch, reference: Batch | None) -> torch.Tensor:
        for image, replayed in zip(batch.images, batch.replayed.tolist(), strict=True):
            shown[replayed].append(image)
        return inner(batch, reference)

    trainer.learner.method.backward = backward  # type: ignore[method-assign]
    finish(trainer)
    pixels = torch.from_numpy(np.array(trainer.stream.images("train")[:]))
    as_stored = {image.numpy().tobytes() for image in for_evaluation(pixels, TRANSFORMS["plain"])}
    for images in shown.values():
        # One in 162 is neither shifted nor mirrored.
        assert len(images) >= 18
        untouched = [image.numpy().tobytes() in as_stored for image in images]
        assert np.mean(untouched) < 0.2


def test_infinite_memory_holds_every_earlier_image_whatever_the_budget() -> None:
    trainer, _ = trainer_for(tiny("er-infinite", epochs=1, memory_per_class=2))
    finish(trainer)
    expected = sum(len(trainer.stream[task].train) for task in range(3))
    assert len(trainer.learner.memory.rows) == expected


@pytest.mark.parametrize(
    ("budget", "counts"),
    [
        ({"memory_per_class": 3}, [18, 33, 48]),
        ({"memory_total": 40}, [42, 44, 48]),  # ceil(40 / 6) · 6, ceil(40 / 11) · 11, …
        ({"memory_per_class": 3, "memory_total": 40}, [42, 44, 48]),
    ],
)
@pytest.mark.parametrize("method", ["er", "icarl-cnn"])
def test_the_memory_keeps_to_its_budget(
    method: str, budget: dict[str, int], counts: list[int]
) -> None:
    trainer, _ = trainer_for(tiny(method, epochs=1, **budget))
    found = {}
    for _ in trainer.steps():
        if not trainer.progress.begun:
            found[trainer.progress.task] = len(trainer.learner.memory.rows)
    assert list(found.values()) == counts


@pytest.mark.parametrize("size", [7, 128])
def test_agem_gets_reference_batches_of_memory_alone(size: int) -> None:
    trainer, _ = trainer_for(tiny("agem", options={"reference_batch_size": size}))
    steps = watch_steps(trainer)
    stored: dict[int, set[tuple[int, tuple[bool, ...]]]] = {}
    for progress in trainer.steps():
        if progress.begun and progress.task not in stored:
            seen = len(trainer.stream[progress.task].seen)
            stored[progress.task] = set(stored_labels(trainer, seen))
    drawn = []
    for step in steps:
        assert not step.replayed.any()
        assert (step.reference is None) == (step.task == 0)
        if step.reference is None:
            continue
        assert step.reference.replayed.all()
        images = images_of([step.reference])
        assert sum(images.values()) == min(size, len(stored[step.task]))
        assert {(row, labels) for row, _, labels in images} <= stored[step.task]
        assert max(images.values()) == 1
        drawn.append(tuple(step.reference.rows))
    # Another draw at every step.
    assert len(set(drawn)) == len(drawn)


def test_a_method_of_ones_own_gets_reference_batches_of_the_batch_size() -> None:
    trainer, _ = trainer_for(tiny("engine_run:OwnReference", batch_size=20, epochs=1, tasks=2))
    steps = watch_steps(trainer)
    finish(trainer)
    sizes = {len(step.reference.rows) for step in steps if step.reference}
    assert sizes == {min(20, 6 * 3)}


def test_incremental_joint_trains_and_validates_on_the_union_with_complete_labels() -> None:
    trainer, notes = trainer_for(tiny("incremental-joint"))
    steps, looks = watch_steps(trainer), watch_looks(trainer)
    validated: list[list[int]] = []
    notes.at_epoch.append(lambda: validated.append(looks.take()))
    notes.at_scores.append(looks.take)
    finish(trainer)
    assert len(trainer.learner.memory.rows) == 0
    for (task, _epoch), given_there in epochs_of(steps).items():
        view = trainer.stream.train(after=task)
        expected = Counter(
            (int(row), False, tuple(labels))
            for row, labels in zip(view.rows, view.targets, strict=True)
        )
        assert images_of(given_there) == expected
    two_labels = [labels for _, _, labels in images_of(epochs_of(steps)[2, 0]) if sum(labels) == 2]
    assert two_labels
    for record, rows in zip(notes.epochs, validated, strict=True):
        assert sorted(rows) == trainer.stream.valid(after=record.task).rows.tolist()


@checks(max_examples=30)
@given(st.integers(1, 40), st.integers(0, 60), st.integers(0, 10))
def test_an_epoch_gives_every_image_once_in_batches(size: int, count: int, first: int) -> None:
    trainer, _ = trainer_for(tiny("finetune", batch_size=size))
    rows = np.arange(count)
    targets = rows[:, None] % 2 == np.arange(2)
    pool = TrainingSet(rows, Labels.of_targets(targets), np.where(rows % 3 == 0, rows, -1))
    whole = [b for b, _ in EpochPlan.plan(trainer.learner, pool, None, (1, 2)).batches()]
    part = [b for b, _ in EpochPlan.plan(trainer.learner, pool, None, (1, 2)).batches(first)]
    assert [len(batch.images) for batch in whole] == [
        min(size, count - start) for start in range(0, count, size)
    ]
    assert len(part) == max(0, len(whole) - first)
    for left, right in zip(whole[first:], part, strict=True):
        assert torch.equal(left.images, right.images)
        assert torch.equal(left.targets, right.targets)
    other = [b for b, _ in EpochPlan.plan(trainer.learner, pool, None, (1, 3)).batches()]
    if count > 8:
        assert not torch.equal(
            torch.cat([b.targets for b in whole]), torch.cat([b.targets for b in other])
        ) or not torch.equal(
            torch.cat([b.images for b in whole]), torch.cat([b.images for b in other])
        )


def test_every_epoch_has_an_order_of_its_own() -> None:
    trainer, _ = trainer_for(tiny("finetune", epochs=3))
    steps = watch_steps(trainer)
    finish(trainer)
    orders = [tuple(row for s in given for row in s.rows) for given in epochs_of(steps).values()]
    assert len(set(orders)) == len(orders) == 12
    for given_there in epochs_of(steps).values():
        rows = [row for step in given_there for row in step.rows]
        assert rows != sorted(rows)


def test_another_seed_gives_another_order_memory_and_reference() -> None:
    found: list[list[Step]] = []
    for seed in (1, 2):
        trainer, _ = trainer_for(tiny("agem", seed=seed, tasks=2, epochs=1))
        found.append(watch_steps(trainer))
        finish(trainer)
    for one, other in zip(*found, strict=True):
        assert one.rows != other.rows
        assert (one.reference is None) == (other.reference is None)
        if one.reference and other.reference:
            assert set(one.reference.rows) != set(other.reference.rows)


def test_random_numbers_depend_on_seed_purpose_and_place_alone() -> None:
    keys = [(1, "shuffle", 0, 1), (2, "shuffle", 0, 1), (1, "augment", 0, 1), (1, "shuffle", 1, 0)]
    drawn = [generator_for(*key).random() for key in keys]
    assert len(set(drawn)) == 4
    assert [generator_for(*key).random() for key in keys] == drawn


def test_every_step_has_random_numbers_of_its_own_for_dropout() -> None:
    drawn: list[list[float]] = []
    for _ in range(2):
        trainer, _ = trainer_for(tiny("finetune", tasks=2))
        drawn.append([])
        watch_steps(trainer, also=lambda _: drawn[-1].append(torch.rand(()).item()))
        finish(trainer)
    assert drawn[0] == drawn[1]
    assert len(set(drawn[0])) == len(drawn[0])


# From task to task


def test_optimiser_and_rate_are_fresh_at_each_task_and_weights_are_not() -> None:
    settings = tiny("finetune", learning_rate=0.5, plateau_patience=0, plateau_factor=0.1)
    trainer, notes = trainer_for(settings)
    first_steps: list[tuple[int, float, int]] = []
    ends: list[dict[str, torch.Tensor]] = []
    begins: list[dict[str, torch.Tensor]] = []

    def at_step(_: object) -> None:
        if (trainer.progress.epoch, trainer.progress.step) == (0, 0):
            optimiser = trainer.optimiser
            rate = optimiser.param_groups[0]["lr"]
            first_steps.append((id(optimiser), rate, len(optimiser.state)))
            begins.append(weights(trainer.learner.model))

    watch_steps(trainer, also=at_step)
    for progress in trainer.steps():
        if not progress.begun:
            ends.append(weights(trainer.learner.model))
    assert [(rate, kept) for _, rate, kept in first_steps] == [(0.5, 0)] * 3
    for end, begin in zip(ends[:-1], begins[1:], strict=True):
        # The first forward pass has moved the batch-norm statistics already.
        learnt = {k: v for k, v in end.items() if "running" not in k and "num_" not in k}
        assert same(learnt, {k: begin[k] for k in learnt})
    # The rate did fall meanwhile, and began anew.
    rates = [(r.task, r.epoch, r.rate) for r in notes.epochs]
    assert all(rate == 0.5 for _, epoch, rate in rates if epoch == 0)
    assert any(rate < 0.5 for _, _, rate in rates)


@pytest.mark.parametrize("network", ["engine_run:TinyNetwork", "resnet20"])
def test_a_task_is_a_plain_loop_of_steps(network: str) -> None:
    """A-GEM's first task is plain training, and it keeps its last weights."""
    trainer, _ = trainer_for(tiny("agem", tasks=1, network=network, learning_rate=0.02))
    trainer.begin_task()
    learner, task = trainer.learner, trainer.stream[0]
    model, pool = deepcopy(learner.model).train(), TrainingSet.of(task.train, None)
    optimiser = torch.optim.SGD(model.parameters(), 0.02, momentum=0.9, weight_decay=1e-5)
    for epoch in range(4):
        for batch, _ in EpochPlan.plan(learner, pool, None, (0, epoch)).batches():
            optimiser.zero_grad()
            scores = model(batch.images)
            torch.nn.functional.binary_cross_entropy_with_logits(scores, batch.targets).backward()
            optimiser.step()
    finish(trainer)
    for name, tensor in learner.model.state_dict().items():
        torch.testing.assert_close(tensor, model.state_dict()[name], msg=name)


def test_the_optimiser_is_the_papers() -> None:
    trainer, _ = trainer_for(tiny("finetune"))
    trainer.begin_task()
    (group,) = trainer.optimiser.param_groups
    assert (group["momentum"], group["weight_decay"], group["nesterov"]) == (0.9, 1e-5, False)
    assert group["dampening"] == 0
    assert len(group["params"]) == len(list(trainer.learner.model.parameters()))


def test_the_rate_follows_validation(monkeypatch: pytest.MonkeyPatch) -> None:
    script = iter([0.5, 0.4, 0.4, 0.4, 0.6, 0.6, 0.6, 0.6, 0.9, 0.8, 0.7, 0.6])
    monkeypatch.setattr(Trainer, "_validation_score", lambda self, steps: next(script))
    settings = tiny("finetune", epochs=4, tasks=2, learning_rate=1.0, plateau_patience=1)
    trainer, notes = trainer_for(settings)
    used: list[float] = []
    watch_steps(trainer, also=lambda _: used.append(trainer.optimiser.param_groups[0]["lr"]))
    finish(trainer)
    expected = [1, 1, 1, 0.1, 0.1, 0.1, 0.1, 0.01, 1, 1, 1, 0.1]
    assert [record.rate for record in notes.epochs] == pytest.approx(expected)
    assert sorted(set(used)) == pytest.approx([0.01, 0.1, 1])


@pytest.mark.parametrize("method", [m for m in METHODS if m != "joint"])
def test_a_task_ends_with_the_best_or_the_last_weights(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Ties go to the later epoch; a new task must not be measured against the best of the old.
    scores = iter([0.1, 0.5, 0.5, 0.2, 0.3, 0.2])
    best, last = {0: 2, 1: 0}, {0: 3, 1: 1}
    monkeypatch.setattr(Trainer, "_validation_score", lambda self, steps: next(scores))
    trainer, notes = trainer_for(tiny(method, epochs=2, tasks=2))
    by_epoch: dict[tuple[int, int], dict[str, torch.Tensor]] = {}
    ended: dict[int, dict[str, torch.Tensor]] = {}
    model = trainer.learner.model

    def note_epoch() -> None:
        record = notes.epochs[-1]
        by_epoch[record.task, record.epoch] = weights(model)

    notes.at_epoch.append(note_epoch)
    notes.at_scores.append(lambda: ended.update({notes.lines[-1].after: weights(model)}))
    finish(trainer)
    for task in range(2):
        kept = last[task] if method in KEEPS_LAST else best[task]
        matching = [e for (t, e), w in by_epoch.items() if t == task and same(w, ended[task])]
        assert matching == [kept]


def test_memory_is_chosen_and_images_are_judged_with_the_kept_weights(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scores = iter([0.9, 0.1, 0.1, 0.1])
    monkeypatch.setattr(Trainer, "_validation_score", lambda self, steps: next(scores))
    trainer, notes = trainer_for(tiny("er", tasks=1))
    best: list[dict[str, torch.Tensor]] = []
    notes.at_epoch.append(lambda: best.append(weights(trainer.learner.model)))
    remembered: list[bool] = []
    inner = trainer.learner.remember

    def remember(*given: object) -> None:
        remembered.append(same(best[0], weights(trainer.learner.model)))
        inner(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(trainer.learner, "remember", remember)
    finish(trainer)
    assert remembered == [True]


@pytest.mark.parametrize("method", [m for m in METHODS if m != "joint"])
def test_the_teacher_is_the_model_before_the_task_frozen(method: str) -> None:
    trainer, _ = trainer_for(tiny(method, epochs=1))
    learner, ends = trainer.learner, [weights(trainer.learner.model)]
    seen_by_step: list[int] = []

    def check(_: object) -> None:
        teacher, task = learner.method.teacher, trainer.progress.task
        if method not in WANTS_TEACHER or task == 0:
            assert teacher is None
            return
        assert teacher is not None
        assert not any(module.training for module in teacher.modules())
        assert not any(p.requires_grad or p.grad is not None for p in teacher.parameters())
        assert same(teacher.state_dict(), ends[-1])
        old = trainer.stream[task].new.start
        assert teacher.head.seen == old
        assert learner.model.head.seen == len(trainer.stream[task].seen)
        seen_by_step.append(task)

    watch_steps(trainer, also=check)
    for progress in trainer.steps():
        if not progress.begun:
            assert learner.method.teacher is None
            ends.append(weights(learner.model))
            # The evaluation before left it in evaluation mode; the teacher must not count on that.
            learner.model.train()
    assert set(seen_by_step) == ({1, 2} if method in WANTS_TEACHER else set())


@pytest.mark.parametrize("method", METHODS)
def test_no_class_of_the_future_ever_gets_a_gradient_or_a_score(method: str) -> None:
    stream = row_stream()
    trainer, notes = trainer_for(tiny(method, weight_decay=0.0, epochs=1), stream)
    head = trainer.learner.model.head
    before = weights(head)
    checked: list[int] = []

    def check(batch: object) -> None:
        seen = len(stream[trainer.progress.task].seen)
        assert batch.targets.shape[1] == seen  # type: ignore[attr-defined]
        for name, p in head.named_parameters():
            if name in ("weight", "bias"):
                assert p.grad is not None
                assert not p.grad[seen:].any()
                assert p.grad[:seen].any()
            elif name in ("old", "new"):
                assert head.seen == seen
        checked.append(seen)

    watch_steps(trainer, also=check)
    finish(trainer)
    assert set(checked) == {6, 11, 16}
    if "weight" in before:
        assert torch.equal(head.weight[16:], before["weight"][16:])
        assert torch.equal(head.bias[16:], before["bias"][16:])
        assert not torch.equal(head.weight[:16], before["weight"][:16])
    for after, (predictions, scores) in notes.kept.items():
        assert predictions.shape == scores.shape == (len(stream.test(after)), [6, 11, 16][after])


# Validation and evaluation


def test_validation_after_each_epoch_is_pw_js_on_the_tasks_own_labels() -> None:
    settings = tiny("finetune", epochs=4, network="small", batch_size=16, learning_rate=1.0)
    trainer, notes = trainer_for(settings, shapes_stream(30, 4))
    expected: list[float] = []

    def judge() -> None:
        view = trainer.stream[notes.epochs[-1].task].valid
        named = trainer.learner.scores(view) > 0
        expected.append(float(metrics.pw_jaccard(named, view.targets).mean()))

    notes.at_epoch.append(judge)
    finish(trainer)
    assert [record.valid for record in notes.epochs] == expected
    assert len(set(expected)) > 3
    assert len(trainer.stream[0].valid) > 0


def test_validation_without_images_is_zero() -> None:
    trainer, notes = trainer_for(tiny("finetune", tasks=1, epochs=1), shapes_stream())
    assert len(trainer.stream[0].valid) == 0
    finish(trainer)
    assert [record.valid for record in notes.epochs] == [0.0, 0.0]


@pytest.mark.parametrize("method", ["finetune", "lucir"])
def test_each_image_is_looked_at_once_an_evaluation(method: str) -> None:
    trainer, notes = trainer_for(tiny(method))
    looks, stream = watch_looks(trainer), trainer.stream
    validated: list[list[int]] = []
    judged: list[list[int]] = []
    notes.at_epoch.append(lambda: validated.append(looks.take()))
    notes.at_scores.append(lambda: judged.append(looks.take()))
    finish(trainer)
    for record, rows in zip(notes.epochs, validated, strict=True):
        assert sorted(rows) == stream[record.task].valid.rows.tolist()
    assert [(line.after, line.split) for line in notes.lines] == [
        (after, split) for after in range(3) for split in ("post_valid", "test")
    ]
    for line, rows in zip(notes.lines, judged, strict=True):
        if line.split == "test":
            assert sorted(rows) == (stream.test(line.after).rows + 10_000).tolist()
        else:
            assert sorted(rows) == stream.post_valid(line.after).rows.tolist()


@pytest.mark.parametrize("split", ["test", "post_valid"])
def test_scores_of_the_union_and_of_each_task_are_those_of_separate_evaluation(split: str) -> None:
    trainer, notes = trainer_for(tiny("er", epochs=4), shapes_stream(30, 4))
    stream = trainer.stream

    def judge() -> None:
        line = notes.lines[-1]
        if line.split != split:
            return
        after = line.after
        view = getattr(stream, split)(after)
        whole = Evaluator(stream, split).add(after, trainer.learner.scores(view) > 0)
        assert line.scores == pytest.approx(whole, nan_ok=True, abs=0)
        for task in range(after + 1):
            part = getattr(stream, split)(after, task=task)
            named = trainer.learner.scores(part) > 0
            for name in ("pw_jaccard", "jaccard"):
                alone = getattr(metrics, name)(named, part.targets).mean()
                assert line.by_task[name][task] == pytest.approx(alone, abs=1e-12)

    notes.at_scores.append(judge)
    finish(trainer)
    assert len(notes.lines) == 6
    assert any(line.scores["pw_jaccard"] > 0 for line in notes.lines)


@pytest.mark.parametrize(("method", "inclusive"), [("finetune", False), ("icarl-cnn", True)])
def test_a_score_of_exactly_zero(method: str, inclusive: bool) -> None:
    trainer, notes = trainer_for(tiny(method, tasks=1, epochs=1))
    with torch.no_grad():
        trainer.learner.model.head.weight.zero_()
        trainer.learner.model.head.bias.zero_()
    trainer.begin_task()
    trainer.evaluation.after_task(0, trainer.recorders)
    predictions, scores = notes.kept[0]
    assert not scores.any()
    assert predictions.all() == inclusive
    assert predictions.any() == inclusive


@pytest.mark.parametrize("rule", ["top1", "top1-per-level"])
def test_other_decision_rules_name_one_class_or_one_a_level(rule: str) -> None:
    trainer, notes = trainer_for(tiny("finetune", decision=rule, epochs=1))
    finish(trainer)
    stream = trainer.stream
    for after, (predictions, _) in notes.kept.items():
        leaf = np.array(
            [stream.hierarchy.is_leaf[stream.hierarchy.index(c)] for c in stream[after].seen]
        )
        if rule == "top1":
            assert (predictions.sum(axis=1) == 1).all()
            continue
        assert (predictions[:, ~leaf].sum(axis=1) == 1).all()
        assert (predictions[:, leaf].sum(axis=1) == (1 if leaf.any() else 0)).all()


def test_predictions_are_the_rule_applied_to_the_scores() -> None:
    trainer, notes = trainer_for(tiny("er"), shapes_stream())
    finish(trainer)
    for predictions, scores in notes.kept.values():
        assert np.array_equal(predictions, threshold(scores, Seen(())))


def test_joint_trains_on_everything_in_one_task() -> None:
    stream = row_stream()
    whole = replace(stream, schedule=stream.schedule.joint())
    trainer, notes = trainer_for(tiny("joint", epochs=1, tasks=None), whole)
    steps = watch_steps(trainer)
    finish(trainer)
    view = stream.train(after=len(stream) - 1)
    for given_there in epochs_of(steps).values():
        rows = sorted(row for step in given_there for row in step.rows)
        assert rows == view.rows.tolist()
    assert [line.after for line in notes.lines] == [0, 0]


# Divergence


def test_a_loss_that_is_no_number_names_its_place() -> None:
    trainer, _ = trainer_for(tiny("engine_run:NaNAt", epochs=4, batch_size=20))
    per_epoch = -(-len(trainer.stream[1].train) // 20)
    with pytest.raises(
        DivergedError,
        match=rf"the loss became nan at step {5 % per_epoch} of epoch {5 // per_epoch} of task 1: "
        r"try a lower learning_rate \(it is 0.3\) or precision fp32\. The last good checkpoint",
    ):
        finish(trainer)


def test_weights_that_are_no_numbers_are_noticed_though_the_loss_was_one() -> None:
    trainer, notes = trainer_for(tiny("finetune", tasks=1))
    run = trainer.steps()
    next(run)
    with torch.no_grad():
        trainer.learner.model.head.weight[0, 0] = float("inf")
    with pytest.raises(DivergedError, match="weights became infinite or NaN at step 0 of epoch 0"):
        trainer.refuse_divergence()
    assert notes.epochs == []


def test_a_huge_learning_rate_is_noticed_before_anything_is_scored() -> None:
    trainer, notes = trainer_for(tiny("finetune", learning_rate=1e6, tasks=2), shapes_stream())
    with pytest.raises(DivergedError, match=r"of epoch 0 of task 0: .*\(it is 1e\+06\)"):
        finish(trainer)
    assert notes.epochs == notes.lines == []


@pytest.mark.parametrize("method", [m for m in METHODS if m != "joint"])
def test_a_task_without_images_passes(method: str) -> None:
    # With one image a leaf, a superclass's share is none.
    stream = replace(
        shapes_stream(1, 1), schedule=Schedule.of([["spiral", "cloud"], ["circle"], ["moon"]])
    )
    trainer, notes = trainer_for(tiny(method), stream)
    assert [len(task.train) for task in stream] == [2, 0, 1]
    finish(trainer)
    without = [np.isnan(r.loss) for r in notes.epochs if not r.images]
    assert all(without)
    assert len(notes.lines) == 6
