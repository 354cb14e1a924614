"""What a method stores with images, how it comes back, and how memory and heads are chosen."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import fake_graphs
from engine_run import (
    finish,
    interrupt_at,
    losses_with_and_without_graphs,
    outcome,
    row_stream,
    rows_of,
    shapes_stream,
    tiny,
    trainer_for,
)
from polarbear.base.errors import DataError, PolarbearError
from polarbear.engine.contract.batch import Batch
from polarbear.engine.contract.check_class import check_class
from polarbear.engine.contract.method import Method
from polarbear.engine.images.transform import for_evaluation
from polarbear.engine.nets.heads import LinearHead, build_head
from polarbear.engine.task import learner
from polarbear.engine.task.replay_memory import ReplayMemory
from polarbear.engine.task.selection import Candidates
from polarbear.engine.trainer import Trainer
from polarbear.launch.check.learner import check_learner
from polarbear.launch.runner import resume, run
from polarbear.methods.er import ER
from polarbear.settings.settings import Settings

pytestmark = pytest.mark.usefixtures("one_thread")


class StoresER(ER):
    """ER that keeps logits, and whether a column was there, and pulls replayed images to them."""

    def store(self, images: Tensor, targets: Tensor) -> dict[str, Tensor]:
        logits = self.model(images)
        return {"logits": logits, "known": torch.ones_like(logits, dtype=torch.bool)}

    def end_task(self) -> None:
        self.model.train()  # not the engine's way: it must see to evaluation mode itself

    def loss(self, batch: Batch) -> Tensor:
        return super().loss(batch) + self.pull(batch)

    def pull(self, batch: Batch) -> Tensor | float:
        if not batch.stored:
            return 0.0
        logits, known = batch.stored["logits"], batch.stored["known"]
        apart = (self.model(batch.images)[:, : logits.shape[1]] - logits) ** 2
        return (apart * known).sum() / known.sum().clamp(min=1)


class StoresBeside(StoresER):
    """The same with memory images beside each step."""

    replay = "reference"

    def backward(self, batch: Batch, reference: Batch | None) -> Tensor:
        loss = ER.loss(self, batch)
        if reference is not None:
            loss = loss + ER.loss(self, reference) + self.pull(reference)
        loss.backward()
        return loss.detach()


class StoresAtEachStep(StoresBeside):
    """The same with a reservoir, which holds fewer images than wanted at the first two steps."""

    selection = "reservoir"
    reference_batch_size = property(lambda self: 50)


class CountsRows(ER):
    """ER that counts how often it was given each row."""

    def begin_task(self, context: Any) -> None:
        if not hasattr(self, "counts"):
            self.register_buffer("counts", torch.zeros(context.rows_in_all))

    def loss(self, batch: Batch) -> Tensor:
        self.counts.index_add_(0, batch.rows, torch.ones_like(batch.targets[:, 0]))
        return super().loss(batch)


STORING = ("StoresER", "StoresBeside", "StoresAtEachStep")


def batches_of(trainer: Trainer) -> list[tuple[int, Batch, Batch | None]]:
    """The batches that the method will be given, with the number of their task."""
    given: list[tuple[int, Batch, Batch | None]] = []
    inner = trainer.learner.method.backward

    def backward(batch: Batch, reference: Batch | None) -> Tensor:
        given.append((trainer.progress.task, batch, reference))
        return inner(batch, reference)

    trainer.learner.method.backward = backward  # type: ignore[method-assign]
    return given


# Rows


@pytest.mark.parametrize("method", ["er", "agem", "test_stored:StoresAtEachStep"])
def test_rows_are_those_of_the_images(method: str) -> None:
    trainer, _ = trainer_for(tiny(method, epochs=1))
    given = batches_of(trainer)
    finish(trainer)
    batches = [b for _, *pair in given for b in pair if b is not None]
    assert any(bool(batch.replayed.any()) for batch in batches)
    for batch in batches:
        assert batch.rows.dtype == torch.int64
        assert batch.rows.tolist() == rows_of(batch.images)


def test_captured_steps_have_the_rows_too(monkeypatch: pytest.MonkeyPatch) -> None:
    captured = fake_graphs.install(monkeypatch)
    trainer, _ = trainer_for(tiny("test_stored:CountsRows", tasks=1, epochs=1))
    finish(trainer)
    assert captured
    counts = trainer.learner.method.counts
    assert len(counts) == len(trainer.stream.images("train"))
    expected = torch.zeros_like(counts)
    expected[torch.tensor(trainer.stream[0].train.rows)] = 2  # epochs of the first task
    assert torch.equal(counts, expected)


# What is stored after a task


def test_stored_is_what_the_network_gave_at_the_end_of_the_task() -> None:
    trainer, _ = trainer_for(tiny("test_stored:StoresER", epochs=1))
    learner = trainer.learner
    for progress in trainer.steps():
        if progress.begun:
            continue
        memory, task = learner.memory, trainer.stream[progress.task - 1]
        new = np.flatnonzero(memory.classes >= task.new.start)
        images = torch.from_numpy(np.array(trainer.stream.images("train")[memory.rows[new]]))
        assert memory.stored["logits"].shape == (len(memory), len(task.seen))
        learner.model.eval()
        with torch.no_grad():
            expected = learner.model(for_evaluation(images, learner.transform)).numpy()
        np.testing.assert_allclose(memory.stored["logits"][new], expected, atol=1e-5)
        assert memory.stored["known"][new].all()
    first = learner.memory.classes < len(trainer.stream[0].seen)
    known = learner.memory.stored["known"]
    width = len(trainer.stream[0].seen)
    assert known[first][:, :width].all()
    assert not known[first][:, width:].any()
    assert not learner.memory.stored["logits"][first][:, width:].any()


@pytest.mark.parametrize("method", ["StoresER", "StoresBeside"])
def test_stored_comes_back_with_its_image_and_zeros_with_others(method: str) -> None:
    trainer, _ = trainer_for(tiny(f"test_stored:{method}", epochs=1))
    given = batches_of(trainer)
    kept: dict[int, set[tuple[Any, ...]]] = {}
    for progress in trainer.steps():
        if progress.begun and progress.task not in kept:
            memory = trainer.learner.memory
            seen = len(trainer.stream[progress.task].seen)
            triples = zip(
                memory.rows.tolist(),
                memory.targets(seen).tolist(),
                memory.stored.get("logits", np.empty((len(memory), 0))).tolist(),
                strict=True,
            )
            kept[progress.task] = {(r, *map(tuple, more)) for r, *more in triples}
    replayed = 0
    for task, batch, reference in given:
        if task == 0:
            assert batch.stored == {}
            assert reference is None
            continue
        for one in [batch] if reference is None else [batch, reference]:
            logits = one.stored["logits"]
            assert logits.shape == (len(one.images), len(trainer.stream[task - 1].seen))
            assert not logits[~one.replayed].any()
            for i in torch.nonzero(one.replayed)[:, 0].tolist():
                labels = tuple((one.targets[i] > 0).tolist())
                assert (int(one.rows[i]), labels, tuple(logits[i].tolist())) in kept[task]
                replayed += 1
    assert replayed > 50


@pytest.mark.parametrize("method", STORING)
def test_captured_steps_use_what_is_stored_as_eager_ones_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, method: str
) -> None:
    captured = fake_graphs.install(monkeypatch)
    fast, slow = losses_with_and_without_graphs(
        tmp_path, f"test_stored:{method}", learning_rate=0.05
    )
    assert len(captured) == 3
    assert fast == pytest.approx(slow)


def break_and_resume(folder: Path, settings: Settings, at: int) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(settings, folder, stream=shapes_stream(), on_step=interrupt_at(at), save_every=0)
    assert resume(folder, stream=shapes_stream())


@pytest.mark.parametrize("at", [3, 25, 31])
@pytest.mark.parametrize("method", STORING)
def test_a_run_resumed_amid_an_epoch_ends_the_same(tmp_path: Path, method: str, at: int) -> None:
    settings = tiny(f"test_stored:{method}", keep_scores=True)
    assert run(settings, tmp_path / "whole", stream=shapes_stream())
    break_and_resume(tmp_path / "broken", settings, at)
    assert outcome(tmp_path / "broken") == outcome(tmp_path / "whole")


@pytest.mark.parametrize("method", ["StoresER", "StoresAtEachStep"])
def test_captured_steps_resumed_amid_an_epoch_end_the_same(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, method: str
) -> None:
    fake_graphs.install(monkeypatch)
    settings = tiny(f"test_stored:{method}")
    assert run(settings, tmp_path / "whole", stream=shapes_stream())
    break_and_resume(tmp_path / "broken", settings, 8)
    assert outcome(tmp_path / "broken") == outcome(tmp_path / "whole")


class VariesNames(StoresER):
    """A method that stores by another name from the second image on."""

    def store(self, images: Tensor, targets: Tensor) -> dict[str, Tensor]:
        return {f"of {len(images)}": targets}


class StoresOne(StoresER):
    """A method that stores one row for all images."""

    def store(self, images: Tensor, targets: Tensor) -> dict[str, Tensor]:
        return {"mean": targets.mean(dim=0)}


class StoresTensor(StoresER):
    """A method that stores a tensor without a name."""

    def store(self, images: Tensor, targets: Tensor) -> Any:
        return targets


@pytest.mark.parametrize(
    ("method", "words"),
    [
        ("VariesNames", "must stay the same within a task"),
        ("StoresOne", "one row for each of the 18 images, not {'mean': \\(6,\\)}"),
        ("StoresTensor", "a dict of tensors.*not Tensor"),
    ],
)
def test_what_cannot_be_stored_is_an_error(
    monkeypatch: pytest.MonkeyPatch, method: str, words: str
) -> None:
    if method == "VariesNames":
        monkeypatch.setattr(learner, "PREDICT_AT_ONCE", 10)
    trainer, _ = trainer_for(tiny(f"test_stored:{method}", tasks=1, epochs=1))
    with pytest.raises(PolarbearError, match=words):
        finish(trainer)


# The memory by itself

STREAM = row_stream()


def stored_memory(tasks: int, **limit: Any) -> ReplayMemory:
    memory = ReplayMemory()
    for task in STREAM[:tasks]:
        memory = memory.add(
            task,
            lambda column, rows, count: rows[:count],
            store=lambda rows, targets: {"row": rows, "targets": targets.astype(np.float32)},
            **limit,
        )
    return memory


def test_what_is_stored_is_cut_with_its_lists_and_survives_a_checkpoint() -> None:
    memory = stored_memory(3, total=40)
    assert len(memory) == 48  # 3 for each of 16 classes, where the first task had 7
    for found in (memory, ReplayMemory.from_arrays(memory.to_arrays())):
        assert found.stored["row"].tolist() == memory.rows.tolist()
        assert all(np.array_equal(one.stored["row"], one.rows) for one in found.lists)
        assert found.stored["targets"].dtype == np.float32
        assert np.array_equal(found.stored["targets"] > 0, memory.targets(16))


def test_a_checkpoint_from_before_anything_could_be_stored_is_read() -> None:
    arrays = stored_memory(2, per_class=5).to_arrays()
    old = {name: a for name, a in arrays.items() if not name.startswith("stored/")}
    assert set(old) == {"columns", "firsts", "widths", "counts", "rows", "labels"}
    memory = ReplayMemory.from_arrays(old)
    assert memory.stored == {}
    assert memory.offered == 0
    both = memory.add(STREAM[2], lambda c, rows, n: rows[:n], 5, store=lambda r, t: {"row": r + 1})
    assert (
        both.stored["row"].tolist() == [0] * len(memory) + (both.rows[len(memory) :] + 1).tolist()
    )


def test_a_damaged_memory_is_refused() -> None:
    arrays = stored_memory(2, per_class=5).to_arrays()
    with pytest.raises(DataError, match="54 rows of 'row' are stored with 55 images"):
        ReplayMemory.from_arrays(arrays | {"stored/row": arrays["stored/row"][:-1]})


def test_rows_of_other_dimensions_than_before_are_refused() -> None:
    def select(column: int, rows: Any, count: int) -> Any:
        return rows[:count]

    memory = ReplayMemory().add(STREAM[0], select, 2, store=lambda r, t: {"x": r})
    memory = memory.add(STREAM[1], select, 2, store=lambda r, t: {"x": t})
    with pytest.raises(DataError, match="'x' has shapes of different lengths"):
        memory.stored  # noqa: B018


# Chosen by functions of one's own


def lowest_rows(candidates: Candidates, count: int) -> Any:
    assert candidates.features.shape == (len(candidates), 8)
    assert candidates.logits.shape[1] > candidates.column
    return np.argsort(candidates.rows)[:count]


def too_few(candidates: Candidates, count: int) -> Any:
    return [0]


def twice(candidates: Candidates, count: int) -> Any:
    return [0] * count


def mask(candidates: Candidates, count: int) -> Any:
    return np.arange(len(candidates)) < count


class LowestER(ER):
    """ER that keeps the images of the lowest rows."""

    selection = "test_stored:lowest_rows"


def test_memory_is_chosen_by_a_function_of_ones_own() -> None:
    trainer, _ = trainer_for(tiny("test_stored:LowestER", epochs=1, tasks=2))
    finish(trainer)
    assert list(check_class(LowestER)) == []
    memory = trainer.learner.memory
    for column in range(len(trainer.stream[0].seen)):
        view = trainer.stream[0].train
        lowest = np.sort(view.rows[view.targets[:, column]])[:3]
        assert memory.rows[memory.classes == column].tolist() == lowest.tolist()


@pytest.mark.parametrize("name", ["too_few", "twice", "mask"])
def test_a_wrong_choice_is_an_error(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(LowestER, "selection", f"test_stored:{name}")
    trainer, _ = trainer_for(tiny("test_stored:LowestER", epochs=1, tasks=1))
    with pytest.raises(PolarbearError, match=r"asked for 3 of \d+ images.*give 3 whole numbers"):
        finish(trainer)


def test_a_misspelt_selection_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    for wrong in ("herdin", 3):
        monkeypatch.setattr(LowestER, "selection", wrong)
        assert [found.level for found in check_class(LowestER)] == ["error"]


class HalfHead(LinearHead):
    """A head of one's own: half the logits."""

    def forward(self, features: Tensor) -> Tensor:
        return super().forward(features) / 2


class NoHead(nn.Module):
    """A module that cannot grow."""

    def __init__(self, features: int, classes: int, seed: int) -> None:
        super().__init__()


class HalfER(ER):
    """ER with a head of one's own."""

    summary = "half"
    head = "test_stored:HalfHead"


def test_a_head_of_ones_own() -> None:
    trainer, _ = trainer_for(tiny("test_stored:HalfER", epochs=1, tasks=2))
    assert isinstance(trainer.learner.model.head, HalfHead)
    finish(trainer)
    assert trainer.learner.model.head.sizes == (6, 5)
    assert check_learner(HalfER) == ()


def test_what_is_no_head_is_refused() -> None:
    with pytest.raises(PolarbearError, match="NoHead has no sizes and no grow and no resize"):
        build_head("test_stored:NoHead", 8, 10, 0)
    with pytest.raises(PolarbearError, match=r"package\.module:Class"):
        build_head("linea", 8, 10, 0)


# Looked up


class LooksUp(ER):
    """ER that looks at what is stored of the class in column 0."""

    def begin_task(self, context: Any) -> None:
        self.found = [rows_of(context.stored_images(0, limit)) for limit in (None, 2)]
        self.others = rows_of(context.stored_images(context.seen - 1))


def test_stored_images_are_those_of_a_class_in_memory() -> None:
    trainer, _ = trainer_for(tiny("test_stored:LooksUp", epochs=1, tasks=2))
    finish(trainer)
    method, memory = trainer.learner.method, trainer.learner.memory
    expected = memory.rows[memory.classes == 0].tolist()
    assert len(expected) == 3
    assert method.found == [expected, expected[:2]]
    assert method.others == []


def test_the_check_finds_nothing_wrong_with_methods_that_store() -> None:
    for method in (StoresER, StoresBeside, StoresAtEachStep):
        assert [f for f in check_learner(method) if f.level == "error"] == []


class ChangesStored(StoresER):
    """A method that changes what is stored."""

    def pull(self, batch: Batch) -> Tensor | float:
        if batch.stored:
            batch.stored["logits"].add_(1)
        return 0.0


def test_a_step_that_changes_what_is_stored_is_found_out() -> None:
    found = check_learner(ChangesStored, strict=False)
    assert any("batch.stored['logits']" in finding.message for finding in found)


def test_a_store_that_is_never_called_is_told() -> None:
    class Forgets(Method):
        summary = "forgets"

        def loss(self, batch: Batch) -> Tensor:
            return self.model(batch.images).sum()

        def store(self, images: Tensor, targets: Tensor) -> dict[str, Tensor]:
            return {}

    (found,) = check_class(Forgets)
    assert (found.level, "never called" in found.message) == ("warning", True)
