"""Which way a run's steps are taken: captured where that can be, else one by one."""

import logging

import torch

from polarbear.benchmark.stream import View
from polarbear.engine.contract.phase import Phase
from polarbear.engine.images.task_pixels import resident
from polarbear.engine.steps.captured import CapturedSteps, can_capture
from polarbear.engine.steps.eager import EagerSteps
from polarbear.engine.steps.steps import Steps
from polarbear.engine.task.epoch_plan import EpochPlan
from polarbear.engine.task.learner import Learner

log = logging.getLogger("polarbear")


class StepsChoice:
    """Captures a run's steps; once they cannot be, it says why, and they run one by one."""

    def __init__(self, learner: Learner) -> None:
        """Capture steps if that is asked for and may work here."""
        self.learner = learner
        self.captures = learner.settings.graph and can_capture(learner)
        if self.captures and learner.world.size > 1:
            log.warning("with several processes, steps run one by one: none is captured")
            self.captures = False

    def make(
        self,
        optimiser: torch.optim.Optimizer,
        phase: Phase,
        plan: EpochPlan,
        valid: View,
        *,
        rates_change: bool,
    ) -> Steps:
        """Return a phase's steps, for epochs like the one of the plan."""
        # What a reservoir gives to a step is known there alone: nobody could bring its images.
        there = resident(self.learner.train_pixels) is not None
        if self.captures and (there or plan.slots is None):
            try:
                return CapturedSteps(
                    *(self.learner, optimiser, phase, plan, valid), rates_change=rates_change
                )
            except RuntimeError as error:
                log.warning(
                    "steps cannot be captured as a CUDA graph, so they run one by one "
                    "and slower: %s",
                    str(_first_cause(error)),  # text alone: an error holds on to its frames
                )
                self.captures = False
        return EagerSteps(self.learner, optimiser, phase, valid)

    def unless_overtaken(self, steps: Steps | None) -> Steps | None:
        """Return steps, or None once the method has changed what they were captured with."""
        changed = steps and steps.overtaken_by()
        if steps and changed:
            log.warning(
                "%s has changed between two epochs, which captured steps do not see: steps run one "
                "by one from here, and slower. What may change belongs into a buffer",
                changed,
            )
            steps.close()
            self.captures = False
            return None
        return steps


def _first_cause(error: BaseException) -> BaseException:
    """Return what went wrong first: a capture that ends after an error ends in another one."""
    while error.__context__ is not None and not error.__suppress_context__:
        error = error.__context__
    return error
