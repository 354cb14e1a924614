"""A task's steps one by one, each launched by the host: on any device, with any method."""

from collections.abc import Iterator
from functools import partial

import numpy as np
import torch
from torch import Tensor

from polarbear.base.arrays import Floats
from polarbear.benchmark.stream import View
from polarbear.engine.contract.batch import Batch
from polarbear.engine.contract.method import Method
from polarbear.engine.contract.phase import Phase
from polarbear.engine.generator import generator_for
from polarbear.engine.nets.model import weights_are_finite
from polarbear.engine.nets.summed_batch_norm import summed_batch_norm
from polarbear.engine.steps.parts import backward_in_parts
from polarbear.engine.task.epoch_plan import EpochPlan
from polarbear.engine.task.learner import Learner
from polarbear.engine.task.optimiser import average_gradients, clip_and_step
from polarbear.score.decide import RawScores


class EagerSteps:
    """The training steps of one phase, and its validation, one by one."""

    def __init__(
        self, learner: Learner, optimiser: torch.optim.Optimizer, phase: Phase, valid: View
    ) -> None:
        """Stand before an epoch."""
        self.learner, self.optimiser, self.phase, self.valid = learner, optimiser, phase, valid
        self._before: Floats = np.empty(0)
        self._losses: list[Tensor] = []  # on the device: to ask for one would be to wait

    def epoch(self, plan: EpochPlan, rates: Floats, first: int, losses: Floats) -> Iterator[int]:
        """Train from step ``first`` on, with a pause after every step."""
        self._before, self._losses = losses, []
        world = self.learner.world
        for step, (batch, reference) in enumerate(plan.batches(first), start=first):
            for group in self.optimiser.param_groups:
                group["lr"] = float(rates[step]) * group["rate"]
            self.learner.method.context.step.fill_(step)
            seed = generator_for(self.learner.settings.seed, "dropout", *plan.place, step)
            number = int(seed.integers(2**63)) + world.rank  # each draws for images of its own
            given = (batch, reference, number, plan.parts(step))
            with world.step(plan.drawn.images(step)), summed_batch_norm(world):
                if plan.slots is None:
                    self._losses.append(self._step(*given))
                else:
                    self._losses.append(self._step_and_put(*given, plan.landing(step)))
            yield step + 1

    def _step_and_put(
        self, batch: Batch, reference: Batch | None, seed: int, parts: int, landing: Tensor
    ) -> Tensor:
        """Take a step and put its images into the reservoir, with what was to store before it."""
        learner = self.learner
        learner.model.train()
        with learner.machine.seeded(seed):
            found = learner.store_at_step(batch)
        loss = self._step(batch, reference, seed, parts)
        learner.put(landing, batch, found)
        return loss

    def _step(self, batch: Batch, reference: Batch | None, seed: int, parts: int) -> Tensor:
        machine, method, world = self.learner.machine, self.learner.method, self.learner.world
        self.learner.model.train(not self.phase.evaluation)
        before = _own_state(method) if world.size > 1 else {}
        backward = partial(self.phase.backward, method.backward)
        loss = backward_in_parts(
            *(self.learner, backward, batch, reference, parts),
            lambda part: machine.seeded(seed + part * world.size),
        )
        if world.size > 1:
            moved = [t for t, known in _own_state(method).items() if before.get(t) != known]
            loss = average_gradients(self.optimiser, moved, loss, world)
        clip_and_step(self.optimiser, self.learner.settings)
        return loss

    def loss_values(self, steps: int) -> Floats:
        """Return the losses of the epoch's first steps: (steps,)."""
        if not self._losses:
            return self._before[:steps]
        new = torch.stack(self._losses).double().cpu().numpy()
        return np.concatenate([self._before, new])[:steps]

    def validation_scores(self) -> RawScores:
        """Return the method's scores for the validation images: (v, seen)."""
        return self.learner.scores(self.valid, validation=True)

    @property
    def replays_validation(self) -> bool:
        """Return False: validation runs the network's own lines."""
        return False

    def overtaken_by(self) -> str | None:
        """Return None: every step runs the method's own lines."""
        return None

    def weights_are_finite(self) -> bool:
        """Whether every weight is a number."""
        return bool(weights_are_finite(self.learner.model, self.learner.method))

    def close(self) -> None:
        """Nothing is held."""


def _own_state(method: Method) -> dict[Tensor, int]:
    """Return a method's buffers of real numbers, and how often each was changed."""
    return {t: t._version for t in method.buffers() if t.is_floating_point()}
