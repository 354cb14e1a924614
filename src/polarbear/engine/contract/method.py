"""What a method is: a loss, and a few words about what it needs from the engine."""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from polarbear.base.errors import PolarbearError
from polarbear.engine.contract.batch import Batch, TaskContext
from polarbear.engine.contract.elsewhere import passed_over
from polarbear.engine.contract.phase import Phase
from polarbear.engine.nets.model import Model
from polarbear.engine.world import the_world


class Method(nn.Module):
    """A learner: fill in :meth:`loss`; the engine owns everything else.

    The class attributes tell the engine what to provide:

    - ``head``: ``linear`` (full size from the start), ``fresh`` (the same, but a class's row is as
      it was drawn when the class comes), ``cosine`` (grows with the tasks), ``proxies`` (the same
      with ten rows per class), or the dotted path of a class of your own
      (``package.module:Class``; :mod:`.nets.heads` says what it must have).
    - ``keep``: the weights a task ends with, of its ``best`` epoch or its ``last``.
    - ``inclusive``: whether a logit of exactly 0 predicts a class.
    - ``replay``: ``none``; ``mixed`` puts every memory image into every epoch; ``reference`` gives
      a batch of memory images beside each batch of the task.
    - ``selection``: how memory chooses after a task, ``random``, ``herding`` or the dotted path of
      a function of your own, ``(candidates, count) → positions``; ``reservoir``, with ``replay =
      "reference"``: it is offered every training image at every step instead.
    - ``keep_everything``: memory without a limit.
    - ``trains_on``: ``all`` images of the task and, with ``replay = "mixed"``, of memory; or a
      ``balanced`` set alone, the memory as it will be when the task ends.
    - ``complete``: trains on the union of all data so far with complete labels.
    - ``joint``: all classes in one task.
    - ``views``: how often a step's images are varied; with 2, ``batch.views`` holds two tensors of
      the same images, the first of which is ``batch.images``.
    - ``held_out``: images per class, of the task and of memory, kept for a phase of their own; a
      number below 1 is the part of what memory has of a class, and at least one image.
    - ``oracle``: it is told what a learner is not, such as the hierarchy; reports say so.

    ``teacher`` is a frozen copy of the model as it was before the current task, in evaluation
    mode, if ``wants_teacher``; None in the first task. ``context`` tells where in the stream it
    stands. A tensor that must last, ``self.register_buffer(name, tensor)``, is on the run's device
    and in its checkpoints; change it in place. So are ``networks``, frozen copies of the model by
    name: ``self.networks["first"] = frozen_copy(self.model)``. Parameters and modules of the
    method's own are there too, and are trained with the model (:meth:`parameter_groups`).

    ``world`` are the processes that train the run together, usually one: ``self.world.sum`` and
    ``self.world.mean`` are for what is no mean over the images of a batch.
    """

    summary: ClassVar[str] = ""
    title: ClassVar[str] = ""
    head: ClassVar[Literal["linear", "fresh", "cosine", "proxies"] | str] = "linear"
    keep: ClassVar[Literal["best", "last"]] = "best"
    inclusive: ClassVar[bool] = False
    replay: ClassVar[Literal["none", "mixed", "reference"]] = "none"
    selection: ClassVar[Literal["random", "herding", "reservoir"] | str] = "random"
    keep_everything: ClassVar[bool] = False
    trains_on: ClassVar[Literal["all", "balanced"]] = "all"
    complete: ClassVar[bool] = False
    joint: ClassVar[bool] = False
    wants_teacher: ClassVar[bool] = False
    views: ClassVar[int] = 1
    held_out: ClassVar[float] = 0
    oracle: ClassVar[bool] = False

    @dataclass(frozen=True)
    class Options:
        """Settings of this method alone; each becomes a flag of ``polarbear run``.

        ``field(default=…, metadata={"at_least": 1})`` refuses smaller values.
        """

        def __post_init__(self) -> None:
            """Refuse values below a field's lowest."""
            for one in fields(self):
                value, low = getattr(self, one.name), one.metadata.get("at_least")
                if low is not None and not value >= low:
                    raise PolarbearError(f"{one.name} must be at least {low}, not {value!r}")

    def __init__(self, model: Model, options: Any = None) -> None:
        """Store the model and the options untouched."""
        super().__init__()
        self.model = model
        self.options: Any = self.Options() if options is None else options
        self.teacher: Model | None = None
        self.networks: dict[str, Model] = {}
        self.logged: dict[str, Tensor] = {}
        self.world = the_world()
        self.context: TaskContext

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute; weights of the model and the teacher do not count as the method's.

        What would never be looked at is refused: whoever sets it believes that it is.
        """
        if why := passed_over(name, value):
            raise PolarbearError(f"{type(self).__name__} cannot be run: {why}")
        if name in ("model", "teacher"):
            object.__setattr__(self, name, value)
        else:
            super().__setattr__(name, value)

    @property
    def reference_batch_size(self) -> int | None:
        """Memory images beside each step with ``replay = "reference"``; None: as many as others."""
        return None

    def begin_task(self, context: TaskContext) -> None:
        """Get ready for a task: the head has grown, the optimiser is made afterwards."""

    def trains_in(self, task: int) -> bool:
        """Return whether a task has its main phase: steps by :meth:`loss`, as long as settings say.

        Define it for a method that learns in :meth:`end_task` or in phases of its own.
        """
        return True

    def loss(self, batch: Batch) -> Tensor:
        """Return the loss of a batch, a scalar; called with the model in training mode."""
        raise NotImplementedError(f"{type(self).__name__} must define loss(batch)")

    def backward(self, batch: Batch, reference: Batch | None) -> Tensor:
        """Add the step's gradients to those of the parameters and give the loss, detached.

        What is in ``.grad`` already stays in the sum, as with ``loss.backward()``. ``reference`` is
        a batch of memory images for methods with ``replay = "reference"``.
        """
        loss = self.loss(batch)
        loss.backward()  # type: ignore[no-untyped-call]
        return loss.detach()

    def parameter_groups(self) -> list[dict[str, Any]]:
        """Return what a task trains: all trainable parameters of the model and of the method.

        Asked after ``begin_task``. A group is ``{"params": parameters}``, with ``"rate"``, a factor
        on the learning rate, and a ``"weight_decay"`` of its own if wanted. A parameter in no group
        is not trained.
        """
        return [{"params": [*self.model.parameters(), *self.parameters()]}]

    def phases(self) -> Sequence[Phase]:
        """Return the phases that follow a task's main one, in order; called after begin_task."""
        return ()

    def scores(self, images: Tensor) -> Tensor:
        """Return a score of every seen class for images (n, 3, h, w), normalised: (n, seen).

        What is predicted comes from these numbers, in validation and test. Called in evaluation
        mode, without gradients, with images that are not augmented.
        """
        logits: Tensor = self.model(images)
        return logits

    def decide(self, scores: Tensor) -> Tensor:
        """Return which classes are predicted, bool (n, seen), for scores (n, seen).

        Define it where the method has a rule of its own. Without one it predicts by the run's
        ``decision``: each class whose score is over 0.
        """
        raise NotImplementedError(f"{type(self).__name__} has no decide(scores) of its own")

    def validation_scores(self, images: Tensor) -> Tensor:
        """Return the scores of in-task validation, after every epoch: those of :meth:`scores`.

        Define it where these are dear: cheaper ones do for the log, and for a choice of epochs.
        """
        return self.scores(images)

    def inferred_parents(self) -> Tensor | None:
        """Return the column of the class above each seen class, -1 for none: (seen,) whole numbers.

        Define it where the method infers which class lies below which; it is scored and drawn.
        """
        return None

    def measure(self, scores: Tensor, targets: Tensor) -> Tensor | float:
        """Return how good an epoch was, a number, from in-task validation: the higher the better.

        It chooses the best epoch and lowers the learning rate. Define it where that is not the
        mean pw-JS of what is predicted; ``targets`` (n, seen) are 0 or 1.
        """
        raise NotImplementedError(f"{type(self).__name__} has no measure(scores, targets)")

    def store(self, images: Tensor, targets: Tensor) -> dict[str, Tensor]:
        """Return what to keep with images that go into memory, by name: tensors (n, …).

        It comes back as ``batch.stored[name]``. After a task it is called with the chosen images,
        normalised and not augmented, and targets (n, seen), the network in evaluation mode and the
        task's kept weights in place. With ``selection = "reservoir"`` it is called before every
        step instead, with that step's augmented images, the network in training mode (a forward
        pass more per step). No gradients either way. Names and shapes stay the same within a task;
        rows that become longer in a later one leave zeros at the end of the earlier.
        """
        return {}

    def end_task(self) -> None:
        """Finish a task: the kept weights are in place, and memory has its images."""

    def log(self, name: str, value: Tensor | float) -> None:
        """Note a number of one's own, for the log and the report: its mean over an epoch is kept.

        Called in ``begin_task`` or in a loss, there with a tensor of one number, which stays on the
        device.
        """
        if name not in self.logged:
            self.logged[name] = torch.zeros(2, dtype=torch.float64, device=self.context.step.device)
        total = self.logged[name]
        own = value.detach() if isinstance(value, Tensor) else value
        counts = self.world.weight * self.world.fraction
        total[0] += own if counts == 1 else own * counts
        total[1] += self.world.fraction

    def take_logged(self) -> dict[str, float]:
        """Return the mean of each logged number, for the engine, and begin anew."""
        sums = {name: total.tolist() for name, total in sorted(self.logged.items())}
        for total in self.logged.values():
            total.zero_()
        return {name: total / count for name, (total, count) in sums.items() if count}

    def state(self) -> dict[str, Tensor]:
        """Return tensors of the method's own that a checkpoint must keep, by name.

        These are its buffers, its parameters and those of its modules.

        The model, the teacher and the memory are kept anyway. With a :meth:`state` of its own, as
        methods had before they had buffers, a method's steps are never captured.
        """
        return self.state_dict()

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Take back what :meth:`state` gave; called after ``begin_task`` when a run is resumed.

        Buffers are there before it already, so that ``begin_task`` finds what there was.
        """
        for name, tensor in state.items():
            if "." not in name and name not in self._parameters:
                self.register_buffer(name, tensor)  # of any shape: it may grow with the tasks
        for name, parameter in self.named_parameters():
            if name in state and state[name].shape != parameter.shape:
                parameter.data = torch.empty_like(state[name])  # that one may grow, too
        if unknown := self.load_state_dict(state, strict=False).unexpected_keys:
            raise PolarbearError(
                f"the checkpoint has {', '.join(unknown)}, and {type(self).__name__} has no such "
                "tensor: make its modules in __init__, so that they are there when a run resumes"
            )


def bce(logits: Tensor, targets: Tensor) -> Tensor:
    """Return binary cross-entropy on logits (n, c), mean over images and classes."""
    return binary_cross_entropy_with_logits(logits, targets)


def frozen_copy(model: Model) -> Model:
    """Return a copy that learns nothing and stays in evaluation mode."""
    copy = deepcopy(model).requires_grad_(False)
    return copy.eval()


@torch.no_grad()
def teacher_targets(teacher: Model, images: Tensor) -> Tensor:
    """Return a frozen model's probabilities (n, old) on images."""
    return torch.sigmoid(teacher(images))
