"""Methods of replay and distillation: their equations as loops, whole runs, the check."""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import fake_graphs
from engine_run import (
    assert_stops_leave_no_trace,
    finish,
    losses_with_and_without_graphs,
    same,
    shapes_stream,
    tiny,
    trainer_for,
    weights,
)
from polarbear.engine.contract.batch import Batch
from polarbear.engine.contract.method import Method
from polarbear.engine.steps.captured import CapturedSteps
from polarbear.engine.trainer import Trainer
from polarbear.launch.check.learner import check_learner
from polarbear.launch.runner import run
from polarbear.methods.by_task import task_spans
from polarbear.methods.registry import resolve
from polarbear.methods.softmax import cross_entropy, log_odds
from tiny_learner import (
    at_task,
    batch_for,
    class_images,
    context_for,
    model_for,
    random_images,
    scores_of,
    slow_bce,
    step,
)

pytestmark = pytest.mark.usefixtures("one_thread")

# Each with the number of captures of a run of three tasks: a phase of its own is one more.
CAPTURES = {"replay": 3, "icarl-nme": 3, "wa": 3, "bic": 5, "lwf": 3, "lwm": 3}
CAPTURES |= {"er-ace": 3, "ss-il": 3, "derpp": 3, "eeil": 5, "il2m": 3, "podnet": 5}
OPTIONS = {"bic": {"bias_epochs": 2}, "derpp": {"beside": 8}, "ss-il": {"beside": 8}}
OPTIONS["eeil"] = {"balanced_epochs": 2}
OPTIONS["podnet"] = {"tuning_epochs": 2}

every_method = pytest.mark.parametrize("name", CAPTURES)


# --- Whole runs -------------------------------------------------------------------------------


@every_method
def test_the_check_finds_nothing(name: str) -> None:
    assert check_learner(resolve(name)) == ()


@every_method
def test_captured_steps_are_the_eager_ones(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    captured = fake_graphs.install(monkeypatch)
    changes = {"learning_rate": 0.05, "options": OPTIONS.get(name, {})}
    fast, slow = losses_with_and_without_graphs(tmp_path, name, **changes)
    assert len(captured) == CAPTURES[name]
    assert fast == pytest.approx(slow)


def test_captured_steps_are_the_eager_ones_while_a_reservoir_fills(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    captured = fake_graphs.install(monkeypatch)
    by_count: list[int | None] = []
    inner = CapturedSteps._train

    def train(self: CapturedSteps, images: int, beside: int | None = None) -> None:
        by_count.append(beside)
        inner(self, images, beside)

    monkeypatch.setattr(CapturedSteps, "_train", train)
    changes = {"memory_per_class": 10, "options": {"beside": 48}}
    fast, slow = losses_with_and_without_graphs(tmp_path, "derpp", learning_rate=0.05, **changes)
    assert len(captured) == 3
    assert [count for count in by_count if count is not None] == [0, 32, 64]
    assert fast == pytest.approx(slow)


@every_method
def test_a_run_resumed_ends_as_one_that_was_not(name: str, tmp_path: Path) -> None:
    changes = {"learning_rate": 0.05, "options": OPTIONS.get(name, {})}
    settings = tiny(name, tasks=3, epochs=1, batch_size=64, **changes)
    assert_stops_leave_no_trace(settings, tmp_path, lambda n: (2, n // 2, n - 2))


def after_run(name: str, **changes: Any) -> Trainer:
    settings = tiny(name, learning_rate=0.05, **changes)
    return finish(trainer_for(settings, shapes_stream())[0])


# --- What they share --------------------------------------------------------------------------


def slow_softmax(scores: Sequence[float], temperature: float = 1.0) -> list[float]:
    powers = [math.exp(score / temperature) for score in scores]
    return [power / sum(powers) for power in powers]


def slow_cross_entropy(logits: Tensor, targets: Tensor) -> float:
    """−log p of the label, one image at a time."""
    total = 0.0
    for scores, labels in zip(logits.tolist(), targets.tolist(), strict=True):
        total -= math.log(slow_softmax(scores)[labels.index(1)])
    return total / len(logits)


def slow_distillation(logits: Tensor, before: Tensor, temperature: float) -> float:
    total = 0.0
    for scores, then in zip(logits.tolist(), before.tolist(), strict=True):
        wanted, given = slow_softmax(then, temperature), slow_softmax(scores, temperature)
        total -= sum(w * math.log(g) for w, g in zip(wanted, given, strict=True))
    return total / len(logits)


def teacher_said(learner: Method, images: Tensor) -> Tensor:
    with torch.no_grad():
        return learner.teacher(images)


def test_log_odds_are_those_of_the_softmax() -> None:
    logits = torch.tensor([[0.3, -1.2, 2.0], [1.0, 1.0, -4.0]])
    for scores, found in zip(logits.tolist(), log_odds(logits).tolist(), strict=True):
        expected = [math.log(p / (1 - p)) for p in slow_softmax(scores)]
        assert found == pytest.approx(expected, abs=1e-5)


def test_log_odds_stay_finite_where_the_network_is_sure() -> None:
    found = log_odds(torch.tensor([[200.0, 0.0, 0.0]]))
    assert found[0].tolist() == pytest.approx([200 - math.log(2), -200, -200], abs=1e-3)
    assert log_odds(torch.zeros(2, 1)).isfinite().all()


def test_an_image_with_two_labels_counts_half_for_each() -> None:
    logits = torch.tensor([[0.3, -1.2, 2.0]])
    p = slow_softmax(logits[0].tolist())
    both = cross_entropy(logits, torch.tensor([[1.0, 0.0, 1.0]]))
    assert both.item() == pytest.approx(-(math.log(p[0]) + math.log(p[2])) / 2)


@pytest.mark.parametrize("name", sorted(CAPTURES.keys() - {"icarl-nme", "podnet"}))
def test_the_first_task_is_plain_cross_entropy_and_the_likeliest_class(name: str) -> None:
    learner = at_task(resolve(name), sizes=(4,))
    batch = batch_for(learner)
    expected = slow_cross_entropy(scores_of(learner, batch.images), batch.targets)
    assert learner.loss(batch).item() == pytest.approx(expected, rel=1e-5)
    with torch.no_grad():
        learner.model.eval()
        logits = learner.model(batch.images)
        predicted = learner.decide(learner.scores(batch.images))
    assert predicted.sum(dim=1).tolist() == [1] * len(logits)
    assert predicted.int().argmax(dim=1).tolist() == logits.argmax(dim=1).tolist()


def test_replay_is_cross_entropy_over_all_seen_classes() -> None:
    learner = at_task(resolve("replay"), sizes=(4, 3))
    batch = batch_for(learner)
    expected = slow_cross_entropy(scores_of(learner, batch.images), batch.targets)
    assert learner.loss(batch).item() == pytest.approx(expected, rel=1e-5)


# --- EEIL -------------------------------------------------------------------------------------


def test_eeil_distils_every_earlier_task_by_itself() -> None:
    method = resolve("eeil")
    learner = at_task(method, sizes=(4, 3, 2), options=method.Options(temperature=3.0))
    batch = batch_for(learner)
    logits, before = scores_of(learner, batch.images), teacher_said(learner, batch.images)
    due = slow_cross_entropy(logits, batch.targets)
    for columns in (slice(0, 4), slice(4, 7)):
        due += slow_distillation(logits[:, columns], before[:, columns], 3.0)
    assert learner.loss(batch).item() == pytest.approx(due, rel=1e-5)


def test_eeils_balanced_phase_has_the_network_before_it_for_a_teacher() -> None:
    learner = at_task(resolve("eeil"), sizes=(4, 3, 2))
    (phase,) = learner.phases()
    assert (phase.on, phase.epochs, phase.learning_rate) == ("balanced", 30, 0.01)
    earlier = learner.teacher
    phase.begin()
    assert learner.teacher is not earlier
    batch = batch_for(learner)
    before = teacher_said(learner, batch.images)
    assert before.shape[1] == 9
    step(learner, batch)
    assert torch.equal(teacher_said(learner, batch.images), before)
    logits = scores_of(learner, batch.images)
    due = slow_cross_entropy(logits, batch.targets)
    for columns in (slice(0, 4), slice(4, 7), slice(7, 9)):
        due += slow_distillation(logits[:, columns], before[:, columns], 2.0)
    assert learner.loss(batch).item() == pytest.approx(due, rel=1e-5)


def test_eeil_fine_tunes_on_as_many_images_of_each_class_from_the_second_task_on() -> None:
    options = {"balanced_epochs": 4, "balanced_rate": 0.02}
    trainer, notes = trainer_for(tiny("eeil", tasks=2, options=options), shapes_stream())
    learner, taught = trainer.learner, {}
    for progress in trainer.steps():
        if progress.begun:
            now = weights(learner.model)
            by = learner.method.teacher
            taught[progress.task, progress.phase] = None if by is None else weights(by)
        if progress.begun and progress.phase == 0:
            last = now
        elif progress.begun:
            assert same(taught[1, 1], last)  # as the main phase left it
    assert set(taught) == {(0, 0), (1, 0), (1, 1)}
    assert taught[0, 0] is None
    assert not same(taught[1, 0], taught[1, 1])
    later = [(r.phase, r.images) for r in notes.epochs if r.task == 1]
    assert later[2:] == [("balanced", 3 * len(trainer.stream[1].seen))] * 4
    rates = [r.rate for r in notes.epochs if r.phase]
    assert rates == pytest.approx([0.02, 0.02, 0.002, 0.0002])  # after 1/2 and 3/4


# --- IL2M -------------------------------------------------------------------------------------


def il2m_after(images: dict[str, list[Batch]], sizes: tuple[int, ...] = (4, 3)) -> Method:
    """Return the method at the end of its last task, with logits that are mostly positive.

    ``images`` are what each task and, in its last one, memory has.
    """
    method = resolve("il2m")
    learner, old = method(model_for(method)), 0
    for task, size in enumerate(sizes):
        learner.model.head.grow(old + size)
        biases = torch.tensor([1.0, 2, -9, 2, 1, 2, 1.5])
        learner.model.head.bias.data[old : old + size] = biases[old : old + size]
        memory = images["memory"] if task == len(sizes) - 1 else []
        batches = {"task": images[f"task {task}"], "memory": memory}
        context = context_for(task, old, old + size)
        learner.context = replace(context, batches=lambda which, now=batches: iter(now[which]))
        learner.begin_task(learner.context)
        assert learner.factors.tolist() == [1.0] * (old + size)
        step(learner, batch_for(learner, seed=task))
        learner.end_task()
        old += size
    return learner


def labelled(seen: int, columns: list[int], seed: int) -> Batch:
    rows = torch.arange(len(columns))
    return Batch(random_images(len(rows), seed), torch.eye(seen)[columns], rows < 0, rows)


def il2m_images() -> dict[str, list[Batch]]:
    """Two batches of each task; memory has no image of class 3, and some of new classes."""
    return {
        "task 0": [labelled(4, [0, 1, 2, 3, 0], 1), labelled(4, [3, 1, 2], 2)],
        "task 1": [labelled(7, [4, 5, 6, 6], 3), labelled(7, [5, 4], 4)],
        "memory": [labelled(7, [0, 0, 1, 2], 5), labelled(7, [1, 2, 4, 5], 6)],
    }


@torch.no_grad()
def slow_means(learner: Method, batches: list[Batch]) -> tuple[dict[int, float], float]:
    """The mean logit of each class on its images, and that of the highest: an image at a time."""
    own: dict[int, list[float]] = {}
    highest = []
    learner.model.eval()
    images = torch.cat([batch.images for batch in batches])
    columns = [row.index(1) for batch in batches for row in batch.targets.tolist()]
    for image, column in zip(images, columns, strict=True):
        logits = learner.model(image[None])[0].tolist()
        own.setdefault(column, []).append(logits[column])
        highest.append(max(logits))
    means = {column: sum(some) / len(some) for column, some in own.items()}
    return means, sum(highest) / len(highest)


def test_il2m_scales_old_classes_by_how_high_they_scored_when_they_were_learnt() -> None:
    images = il2m_images()
    earlier = il2m_after({"task 0": images["task 0"], "memory": []}, sizes=(4,))
    then, sure_then = slow_means(earlier, images["task 0"])
    learner = il2m_after(images)
    now, _ = slow_means(learner, images["memory"])
    _, sure_now = slow_means(learner, images["task 1"])
    due = [then[c] / now[c] * sure_now / sure_then for c in (0, 1)]
    assert now[2] < 0  # by its bias: both means are, and their ratio is not
    due += [then[2] / now[2] * sure_now / sure_then]
    assert all(abs(factor - 1) > 0.001 for factor in due)
    # Class 3 has no image in memory; new classes are as they are.
    assert learner.factors.tolist() == pytest.approx([*due, 1, 1, 1, 1], rel=1e-4)
    assert learner.first.isfinite().all()


@pytest.mark.parametrize("value", [-0.5, 0.0, math.nan, math.inf])
def test_il2m_leaves_a_class_alone_where_there_is_no_ratio(value: float) -> None:
    images = il2m_images()
    learner = il2m_after(images)
    usual = learner.factors[0].item()
    learner.first[1] = value
    learner.end_task()
    assert learner.factors[1] == 1
    assert learner.factors[0].item() == pytest.approx(usual)


def test_il2m_corrects_images_of_which_a_new_class_is_predicted() -> None:
    learner = il2m_after(il2m_images())
    learner.factors.copy_(torch.tensor([1.5, 0.7, 2.0, 3.0, 1, 1, 1]))
    many = random_images(40, 8) * 3
    with torch.no_grad():
        learner.model.head.bias.zero_()
        found, logits = learner.scores(many), learner.model(many)
    changed = 0
    for given, row in zip(found.tolist(), logits.tolist(), strict=True):
        if row.index(max(row)) >= 4:
            row[:4] = [z * f for z, f in zip(row[:4], (1.5, 0.7, 2.0, 3.0), strict=True)]
            changed += 1
        due = [math.log(p / (1 - p)) for p in slow_softmax(row)]
        assert given == pytest.approx(due, abs=1e-3)
    assert 0 < changed < 40


def test_il2m_remembers_each_class_from_the_task_that_brought_it() -> None:
    trainer, _ = trainer_for(tiny("il2m", learning_rate=0.05), shapes_stream())
    method, first = trainer.learner.method, torch.zeros(0)
    for progress in trainer.steps():
        if progress.begun:
            assert (method.factors == 1).all()
            continue
        seen = len(trainer.stream[progress.task - 1].seen)
        assert method.first.shape == method.factors.shape == (seen,)
        assert torch.equal(method.first[: len(first)], first)
        assert (method.factors[len(first) :] == 1).all()
        assert (method.factors[: len(first)] != 1).any() == (progress.task > 1)
        first = method.first.clone()


def test_il2m_trains_as_replay_does() -> None:
    ended = [weights(after_run(name, tasks=2).learner.model) for name in ("replay", "il2m")]
    assert same(*ended)


# --- WA ---------------------------------------------------------------------------------------


def test_wa_weighs_labels_and_distillation_by_the_numbers_of_classes() -> None:
    method = resolve("wa")
    learner = at_task(method, sizes=(4, 3), options=method.Options(temperature=3.0))
    batch = batch_for(learner)
    logits, before = scores_of(learner, batch.images), teacher_said(learner, batch.images)
    kept = slow_distillation(logits[:, :4], before, 3.0)
    expected = 3 / 7 * slow_cross_entropy(logits, batch.targets) + 4 / 7 * kept
    assert learner.loss(batch).item() == pytest.approx(expected, rel=1e-5)


def test_wa_brings_new_rows_to_the_mean_length_of_old_ones() -> None:
    learner = at_task(resolve("wa"), sizes=(4, 3))
    head = learner.model.head
    before, bias = head.weight.detach().clone(), head.bias.detach().clone()
    learner.end_task()
    lengths = [math.sqrt(sum(x * x for x in row)) for row in before[:7].tolist()]
    factor = (sum(lengths[:4]) / 4) / (sum(lengths[4:]) / 3)
    torch.testing.assert_close(head.weight[4:7], before[4:7] * factor)
    assert torch.equal(head.weight[:4], before[:4])
    assert torch.equal(head.weight[7:], before[7:])
    assert torch.equal(head.bias, bias)


def test_wa_leaves_the_first_task_alone_and_predicts_with_aligned_rows() -> None:
    trainer = after_run("wa", tasks=1)
    lengths = trainer.learner.model.head.weight.norm(dim=1)
    assert torch.isfinite(lengths).all()
    trainer = after_run("wa", tasks=2)
    method, context = trainer.learner.method, trainer.learner.method.context
    lengths = method.model.head.weight.detach().norm(dim=1)
    old, new = lengths[: context.old].mean(), lengths[context.new].mean()
    assert new.item() == pytest.approx(old.item(), rel=1e-5)


# --- BiC --------------------------------------------------------------------------------------


def test_bic_distils_from_corrected_logits() -> None:
    learner = at_task(resolve("bic"), sizes=(4, 3, 2))
    assert learner.correction.tolist() == [1.0, 0.0]  # a task begins anew
    learner.before.copy_(torch.tensor([0.5, 0.25]))
    batch = batch_for(learner)
    logits, before = scores_of(learner, batch.images), teacher_said(learner, batch.images)
    before[:, 4:] = 0.5 * before[:, 4:] + 0.25  # the classes that were new to the teacher
    kept = slow_distillation(logits[:, :7], before, 2.0)
    expected = 2 / 9 * slow_cross_entropy(logits, batch.targets) + 7 / 9 * kept
    assert learner.loss(batch).item() == pytest.approx(expected, rel=1e-5)


def test_bic_corrects_the_logits_of_new_classes_alone() -> None:
    learner = at_task(resolve("bic"), sizes=(4, 3))
    learner.model.eval()
    learner.correction.data.copy_(torch.tensor([0.5, 0.25]))
    batch = batch_for(learner)
    with torch.no_grad():
        logits = learner.model(batch.images)
    for row in logits:
        row[4:] = 0.5 * row[4:] + 0.25
    torch.testing.assert_close(learner.scores(batch.images), log_odds(logits))
    expected = slow_cross_entropy(logits, batch.targets)
    assert learner.bias_loss(batch).item() == pytest.approx(expected, rel=1e-5)


def test_bic_keeps_the_correction_for_the_next_tasks_teacher() -> None:
    learner = at_task(
        resolve("bic"),
        sizes=(4, 3, 2),
        between=lambda learner: learner.correction.data.copy_(torch.tensor([0.7, -0.1])),
    )
    assert learner.before.tolist() == pytest.approx([0.7, -0.1])


def test_bic_trains_its_two_numbers_in_the_second_phase_alone(tmp_path: Path) -> None:
    seen: dict[tuple[int, int], list[list[float]]] = {}

    def note(trainer: Any, progress: Any) -> None:
        numbers = trainer.learner.method.correction.tolist()
        seen.setdefault((progress.task, progress.phase), []).append(numbers)

    settings = tiny("bic", tasks=2, epochs=1, batch_size=64, memory_per_class=10)
    assert run(settings, tmp_path / "run", stream=shapes_stream(), on_step=note)
    assert set(seen) >= {(0, 0), (1, 0), (1, 1)}
    assert all(pair == [1.0, 0.0] for pair in seen[0, 0] + seen[1, 0])
    assert seen[1, 1][-1] != [1.0, 0.0]


@pytest.mark.parametrize(
    ("memory", "first"), [({"memory_per_class": 1}, 1), ({"memory_total": 10}, 2)]
)
def test_bic_corrects_nothing_where_memory_can_hold_nothing_out(
    caplog: pytest.LogCaptureFixture, memory: dict[str, int], first: int
) -> None:
    trainer, notes = trainer_for(
        tiny("bic", tasks=4, epochs=1, options=OPTIONS["bic"], **memory), shapes_stream()
    )
    corrections, stored = {}, {}
    for progress in trainer.steps():
        if progress.begun:
            corrections[progress.task] = trainer.learner.method.correction.tolist()
            stored[progress.task] = len(trainer.learner.memory)
    images = {(r.task, r.phase): r.images for r in notes.epochs}
    for task in range(1, 4):
        everything = len(trainer.stream[task].train) + stored[task]
        assert (corrections[task] == [1.0, 0.0]) == (task >= first)
        assert ((task, "bias") not in images) == (task >= first)
        assert (images[task, ""] == everything) == (task >= first)
    lines = [r.getMessage() for r in caplog.records if "'bias'" in r.getMessage()]
    assert [line[:6] for line in lines] == [f"task {task}" for task in range(first, 4)]


# --- LwF --------------------------------------------------------------------------------------


def test_lwf_has_a_softmax_of_new_classes_and_one_of_old_ones() -> None:
    method = resolve("lwf")
    options = method.Options(distillation=3.0, temperature=4.0)
    learner = at_task(method, sizes=(4, 3, 2), options=options)
    batch = batch_for(learner, replayed=0)
    logits, before = scores_of(learner, batch.images), teacher_said(learner, batch.images)
    taught = slow_cross_entropy(logits[:, 7:], batch.targets[:, 7:])
    expected = taught + 3 * slow_distillation(logits[:, :7], before, 4.0)
    assert learner.loss(batch).item() == pytest.approx(expected, rel=1e-5)


# --- ER-ACE -----------------------------------------------------------------------------------


def stored_batch(learner: Method, n: int = 6) -> Batch:
    """Memory images of all seen classes, with what the method has stored with them."""
    seen = learner.context.seen
    targets = torch.eye(seen)[torch.arange(n) % seen]
    everything = torch.ones(n, dtype=torch.bool)
    batch = Batch(random_images(n, 9), targets, everything, torch.arange(n))
    with torch.no_grad():
        return replace(batch, stored=learner.store(batch.images, targets))


def test_er_ace_asks_new_images_about_the_classes_of_their_batch_alone() -> None:
    learner = at_task(resolve("er-ace"), sizes=(4, 3))
    batch = batch_for(learner, n=4, replayed=0)
    batch.targets[:] = torch.eye(7)[[4, 6, 6, 4]]  # class 5 is of the task, too
    logits = scores_of(learner, batch.images)[:, [4, 6]]
    expected = slow_cross_entropy(logits, batch.targets[:, [4, 6]])
    assert learner.loss(batch).item() == pytest.approx(expected, rel=1e-5)
    learner.backward(batch, None)
    gradient = learner.model.head.weight.grad
    assert (gradient != 0).any(dim=1).tolist() == [False] * 4 + [True, False, True] + [False] * 3


def test_er_ace_asks_stored_images_about_all_seen_classes() -> None:
    learner = at_task(resolve("er-ace"), sizes=(4, 3))
    batch, beside = batch_for(learner, replayed=0), stored_batch(learner)
    due = learner.loss(batch).item()
    due += slow_cross_entropy(scores_of(learner, beside.images), beside.targets)
    assert learner.backward(batch, beside).item() == pytest.approx(due, rel=1e-5)


# --- DER++ ------------------------------------------------------------------------------------


def test_derpp_keeps_logits_of_one_half_and_labels_of_the_other() -> None:
    method = resolve("derpp")
    learner = at_task(method, sizes=(4, 3), options=method.Options(alpha=0.3, beta=0.7))
    batch, beside = batch_for(learner, replayed=0), stored_batch(learner)
    stored = {name: tensor.clone() for name, tensor in beside.stored.items()}
    stored["logits"] += 1.5
    for name in stored:
        stored[name][0, 4:] = 0  # stored before classes 4 to 6 came
    beside = replace(beside, stored=stored)
    now, squares, count = scores_of(learner, beside.images[:3]), 0.0, 0
    for i in range(3):
        for column in range(4 if i == 0 else 7):
            squares += (float(now[i, column]) - float(stored["logits"][i, column])) ** 2
            count += 1
    labelled = slow_cross_entropy(scores_of(learner, beside.images[3:]), beside.targets[3:])
    due = slow_cross_entropy(scores_of(learner, batch.images), batch.targets)
    due += 0.3 * squares / count + 0.7 * labelled
    assert learner.backward(batch, beside).item() == pytest.approx(due, rel=1e-5)


def test_derpp_takes_logits_of_fewer_classes_from_earlier_tasks() -> None:
    learner = at_task(resolve("derpp"), sizes=(4, 3))
    beside = stored_batch(learner)
    fewer = {name: tensor[:, :4] for name, tensor in beside.stored.items()}
    padded = {name: tensor.clone() for name, tensor in beside.stored.items()}
    for tensor in padded.values():
        tensor[:, 4:] = 0
    losses = [learner.replay_loss(replace(beside, stored=s)).item() for s in (fewer, padded)]
    assert losses[0] == pytest.approx(losses[1])
    assert learner.reference_batch_size == 256


# --- SS-IL ------------------------------------------------------------------------------------


def test_ss_il_separates_old_and_new_classes_and_distils_task_by_task() -> None:
    method = resolve("ss-il")
    learner = at_task(method, sizes=(4, 3, 2), options=method.Options(temperature=3.0))
    batch, beside = batch_for(learner, n=5, replayed=0), stored_batch(learner, 7)
    assert (beside.targets[:, 7:] == 0).all()  # images of old classes
    images = torch.cat([batch.images, beside.images])
    logits, before = scores_of(learner, images), teacher_said(learner, images)
    due = 5 * slow_cross_entropy(logits[:5, 7:], batch.targets[:, 7:])
    due += 7 * slow_cross_entropy(logits[5:, :7], beside.targets[:, :7])
    due /= 12
    for columns in (slice(0, 4), slice(4, 7)):
        due += 9 * slow_distillation(logits[:, columns], before[:, columns], 3.0)
    assert learner.backward(batch, beside).item() == pytest.approx(due, rel=1e-5)


def test_ss_il_knows_the_tasks_of_a_whole_run() -> None:
    trainer = after_run("ss-il", options={"beside": 8})
    sizes = [len(task.classes) for task in trainer.stream[:3]]
    borders = [0, sizes[0], sizes[0] + sizes[1], sum(sizes)]
    assert trainer.learner.method.borders.tolist() == borders
    assert trainer.learner.method.reference_batch_size == 8


def test_the_columns_of_each_task_are_known_anew_in_a_resumed_run() -> None:
    learner, due = at_task(resolve("er"), sizes=(4,)), [slice(0, 4), slice(4, 7), slice(7, 9)]
    tasks = [context_for(task, *place) for task, place in enumerate([(0, 4), (4, 7), (7, 9)])]
    for task in (0, 1, 1, 2, 2):  # a resumed run begins its task again
        assert task_spans(learner, "borders", tasks[task]) == due[: task + 1]
    learner.register_buffer("borders", torch.tensor([0, 4, 7]))  # as GEM kept them earlier
    assert task_spans(learner, "borders", tasks[2]) == due


# --- iCaRL with nearest means -----------------------------------------------------------------


def test_icarls_loss_is_summed_over_classes() -> None:
    learner = at_task(resolve("icarl-nme"), sizes=(4, 3))
    batch = batch_for(learner)
    targets = batch.targets.clone()
    targets[:, :4] = 1 / (1 + torch.exp(-teacher_said(learner, batch.images)))
    expected = 7 * slow_bce(scores_of(learner, batch.images), targets)
    assert learner.loss(batch).item() == pytest.approx(expected, rel=1e-5)


def test_icarl_predicts_the_nearest_mean() -> None:
    learner = at_task(resolve("icarl-nme"))
    learner.end_task()
    images, expected = random_images(6, 3), []
    for feature in map(unit, learner.model.features(images).tolist()):
        distances = []
        for column in range(learner.context.seen):
            stored = class_images(column, None)
            both = [*stored, *(image.flip(2) for image in stored)]
            features = learner.model.features(torch.stack(both)).tolist()
            mean = unit([sum(part) for part in zip(*map(unit, features), strict=True)])
            distances.append(sum((a - b) ** 2 for a, b in zip(feature, mean, strict=True)))
        expected.append(distances.index(min(distances)))
    with torch.no_grad():
        predicted = learner.decide(learner.scores(images))
    assert predicted.sum(dim=1).tolist() == [1] * 6
    assert predicted.int().argmax(dim=1).tolist() == expected
    assert len(set(expected)) > 1


def test_icarl_tells_means_apart_that_are_one_in_bf16() -> None:
    learner = at_task(resolve("icarl-nme"))
    learner.end_task()
    images = random_images(6, 3)
    nearest = torch.nn.functional.normalize(learner.model.features(images))[0].detach()
    learner.means = torch.stack([nearest * (1 - 1e-4), nearest])
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=True):
        learner.model.features = lambda some: nearest.expand(len(some), -1)
        assert learner.scores(images).argmax(dim=1).tolist() == [1] * 6


def test_a_class_without_stored_images_has_no_mean() -> None:
    def look_up(column: int, limit: int | None = None) -> Tensor:
        return class_images(column, limit)[: 0 if column == 2 else None]

    learner = at_task(resolve("icarl-nme"), look_up=look_up)
    learner.end_task()
    assert (learner.means.norm(dim=1) > 0).tolist() == [True, True, False, True, True, True, True]
    assert torch.isfinite(learner.scores(random_images(3, 1))).all()


def unit(vector: list[float]) -> list[float]:
    length = math.sqrt(sum(value**2 for value in vector))
    return [value / length for value in vector]
