"""GDumb: what it trains on is memory as it will be, and every task begins with the same weights."""

from collections import Counter

import pytest
import torch

from engine_run import finish, row_stream, same, tiny, trainer_for, watch_steps, weights
from polarbear.base.errors import PolarbearError
from polarbear.methods.gdumb import GDumb
from polarbear.methods.registry import resolve

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize("limit", [{"memory_per_class": 3}, {"memory_total": 20}])
def test_every_epoch_has_the_images_that_memory_will_have(limit: dict[str, int]) -> None:
    settings = tiny("gdumb", **{"memory_per_class": None, "epochs": 1} | limit)
    trainer, _ = trainer_for(settings, row_stream())
    steps = watch_steps(trainer)
    memories: list[Counter[int]] = []
    for progress in trainer.steps():
        if not progress.begun:
            memories.append(Counter(trainer.learner.memory.rows.tolist()))
    assert len(memories) == 3
    for task, memory in enumerate(memories):
        last = max(one.epoch for one in steps if one.task == task)
        mine = [one for one in steps if (one.task, one.epoch) == (task, last)]
        assert Counter(row for one in mine for row in one.rows) == memory
        old = trainer.stream[task].new.start
        for one in mine:
            labels = one.targets.argmax(dim=1)
            assert torch.equal(one.replayed, labels < old)


def test_every_task_begins_with_the_first_weights() -> None:
    trainer, _ = trainer_for(tiny("gdumb", epochs=1), row_stream())
    first = weights(trainer.learner.model)
    begun: dict[int, bool] = {}
    inner = trainer.learner.method.backward

    def backward(*given: object) -> torch.Tensor:
        parameters = dict(trainer.learner.model.named_parameters())
        known = same({k: first[k] for k in parameters}, parameters)
        begun.setdefault(trainer.progress.task, known)
        return inner(*given)

    trainer.learner.method.backward = backward
    finish(trainer)
    assert begun == {0: True, 1: True, 2: True}
    assert not same(weights(trainer.learner.model), first)


class Herded(GDumb):
    """Its choice would depend on weights that a resumed run does not have."""

    selection = "herding"


class WithoutMemory(GDumb):
    """It would train on a memory that it never fills."""

    replay = "none"


class HoldsOut(GDumb):
    """It has no task images to hold out."""

    held_out = 2


@pytest.mark.parametrize("name", ["Herded", "WithoutMemory", "HoldsOut"])
def test_a_balanced_set_that_cannot_be_chosen_before_is_refused(name: str) -> None:
    with pytest.raises(PolarbearError, match="trains_on = 'balanced' is the memory as it will be"):
        resolve(f"test_method_gdumb:{name}")
