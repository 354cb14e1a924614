"""The check of methods finds what was put in, says the remedy, and passes all that ship."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import Tensor

from polarbear.engine.contract.batch import Batch, TaskContext
from polarbear.engine.contract.method import Method, bce
from polarbear.engine.nets.model import Model
from polarbear.launch.check.learner import CheckError, Finding, check_learner
from polarbear.methods.catalogue import METHODS
from polarbear.methods.er import ER

Loss = Callable[[Method, Batch], object]


def method_with(loss: Loss, **attributes: object) -> type[Method]:
    words = {"summary": "for a test", "replay": "mixed", "loss": loss} | attributes
    return type("Mine", (Method,), words)


def problems(method: object, options: object = None) -> str:
    with pytest.raises(CheckError) as caught:
        check_learner(method, options)
    assert str(caught.value).startswith("the method ")
    return str(caught.value)


@pytest.mark.parametrize("name", METHODS)
def test_every_method_that_ships_passes(name: str) -> None:
    assert check_learner(name) == ()


# The class.


def test_what_is_no_method_is_refused() -> None:
    assert "is no class derived from Method: write class Mine(Method)" in problems(object)
    assert "pass the class itself, not an object of it" in problems(len)


def test_a_class_without_a_loss() -> None:
    class Empty(Method):
        summary = "nothing"

    assert "it has no loss: define loss(self, batch)" in problems(Empty)


def test_wrong_words_bring_the_nearest_and_all_come_at_once() -> None:
    message = problems(method_with(ER.loss, replay="mixd", keep="best ", wants_teacher="yes"))
    assert message.startswith("the method 'Mine': 3 errors\n")
    assert "unknown replay 'mixd': did you mean 'mixed'?" in message
    assert "unknown keep 'best ': did you mean 'best'?" in message
    assert "wants_teacher must be bool, not 'yes'" in message


def test_misspelt_attributes_and_missing_words_are_warnings() -> None:
    found = check_learner(method_with(ER.loss, wants_techer=True, summary="", replay="reference"))
    assert all(finding.level == "warning" for finding in found)
    text = "\n".join(map(str, found))
    assert "'wants_techer' means nothing to the engine: did you mean 'wants_teacher'?" in text
    assert "summary is empty" in text
    assert "hands memory images to backward(batch, reference), which is not overridden" in text


class Undecorated(Method.Options):
    weight: float = 1.0


@dataclass
class Loose:
    weight: float = 1.0


@dataclass(frozen=True)
class Bare(Method.Options):
    weight: float


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (Undecorated, "Options is no data class: put @dataclass(frozen=True)"),
        (Loose, "Options can be changed: write @dataclass(frozen=True)"),
        (Bare, "Options has no default for 'weight'"),
    ],
)
def test_options_must_be_frozen_with_defaults(options: type, message: str) -> None:
    assert message in problems(method_with(ER.loss, Options=options))


def test_the_constructor_must_store_what_it_gets() -> None:
    class Copies(ER):
        def __init__(self, model: Model, options: object = None) -> None:
            super().__init__(Model(model.backbone, model.head), options)

    assert "self.model is not what the constructor was given" in problems(Copies)


def test_what_the_engine_would_pass_over_is_refused_on_an_object_as_on_a_class() -> None:
    class OnTheClass(ER):
        predict = ER.scores

    class WhenMade(ER):
        def __init__(self, model: Model, options: object = None) -> None:
            super().__init__(model, options)
            self.predict = self.scores

    class InATask(ER):
        def begin_task(self, context: TaskContext) -> None:
            self.forward = self.model.forward

    words = "the engine never calls predict: define scores(self, images), and decide(self, scores)"
    assert words in problems(OnTheClass)
    assert f"WhenMade cannot be run: {words}" in problems(WhenMade)
    assert f"InATask cannot be run: {words.replace('predict', 'forward')}" in problems(InATask)


@pytest.mark.parametrize(("name", "value"), [("head", "cosine"), ("joint", True), ("decide", len)])
def test_what_the_class_is_asked_for_is_refused_on_an_object(name: str, value: object) -> None:
    class Late(ER):
        def __init__(self, model: Model, options: object = None) -> None:
            super().__init__(model, options)
            setattr(self, name, value)

    message = f"Late cannot be run: the engine asks the class for {name}: define it there"
    assert message in problems(Late)


def test_parts_that_a_method_uses_itself_may_have_any_name() -> None:
    class Mine(ER):
        def __init__(self, model: Model, options: object = None) -> None:
            super().__init__(model, options)
            self.criterion = torch.nn.BCEWithLogitsLoss()
            self.validate = False

        def loss(self, batch: Batch) -> Tensor:
            loss: Tensor = self.criterion(self.model(batch.images), batch.targets)
            return loss

    assert check_learner(Mine) == ()


def test_options_are_passed_on() -> None:
    @dataclass(frozen=True)
    class Options(Method.Options):
        weight: float = 1.0

    def loss(self: Method, batch: Batch) -> Tensor:
        return self.options.weight * bce(self.model(batch.images), batch.targets)

    method = method_with(loss, Options=Options)
    assert check_learner(method) == ()
    assert "the loss is nan" in problems(method, Options(weight=float("nan")))


# A step.


def scores(self: Method, batch: Batch) -> Tensor:
    return self.model(batch.images)


def not_a_scalar(self: Method, batch: Batch) -> Tensor:
    return (scores(self, batch) - batch.targets) ** 2


def not_a_tensor(self: Method, batch: Batch) -> float:
    return bce(scores(self, batch), batch.targets).item()


def without_gradient(self: Method, batch: Batch) -> Tensor:
    return bce(scores(self, batch).detach(), batch.targets)


def mean_of_nothing(self: Method, batch: Batch) -> Tensor:
    losses = (scores(self, batch) - batch.targets) ** 2
    return losses.mean() + losses[batch.replayed].mean()


def fails_on_one_image(self: Method, batch: Batch) -> Tensor:
    out = scores(self, batch)
    return bce(out, batch.targets) + out[1].sum()


def changes_the_batch(self: Method, batch: Batch) -> Tensor:
    batch.targets[:, 0] = 0.5
    return bce(scores(self, batch), batch.targets)


def draws_elsewhere(self: Method, batch: Batch) -> Tensor:
    return random.random() * bce(scores(self, batch), batch.targets)


def touches_the_future(self: Method, batch: Batch) -> Tensor:
    return bce(scores(self, batch), batch.targets) + self.model.head.weight.square().mean()


def needs_a_teacher(self: Method, batch: Batch) -> Tensor:
    return bce(scores(self, batch)[:, :3], self.teacher(batch.images)[:, :3])


def trains_the_teacher(self: Method, batch: Batch) -> Tensor:
    if self.teacher is not None:
        self.teacher.train()
        self.teacher(batch.images)
        self.teacher.eval()
    return bce(scores(self, batch), batch.targets)


def learns_nothing(self: Method, batch: Batch) -> Tensor:
    return 0 * bce(scores(self, batch), batch.targets)


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (not_a_scalar, "gives a tensor of 2 dimensions, not one number: end with .mean()"),
        (not_a_tensor, "loss gives float, not a tensor: leave out .item()"),
        (without_gradient, "the loss has no gradient: work it out from self.model(batch.images)"),
        (mean_of_nothing, "the loss is nan: where a batch may hold no image of a kind"),
        (fails_on_one_image, "IndexError"),
        (changes_the_batch, "it changes batch.targets, which is not its own"),
        (
            draws_elsewhere,
            "two equal steps give different losses: draw random numbers",
        ),
        (touches_the_future, "head.weight gets a gradient for classes of the future"),
        (needs_a_teacher, "self.teacher is None in the first task"),
        (learns_nothing, "no weight of self.model gets a gradient"),
    ],
)
def test_what_is_wrong_with_a_loss_is_said(loss: Loss, message: str) -> None:
    found = problems(method_with(loss))
    assert found.startswith("the method 'Mine': 1 error\n")
    assert message in found


def test_it_is_said_where_and_only_once() -> None:
    message = problems(method_with(fails_on_one_image))
    assert "; in a later task, one image from memory]" in message
    assert "[in the first task, one image of the task; in a later task, one image of" in message
    assert " of test_check_learner.py)" in message
    assert message.count("IndexError") == 1
    assert "two images" not in message


def test_a_class_without_a_file_is_checked_too() -> None:
    code = "class Typed(Method):\n    def loss(self, batch):\n        return missing\n"
    names = {"Method": Method, "__name__": "__main__"}
    exec(code, names)
    assert "NameError: name 'missing' is not defined [in the" in problems(names["Typed"])


def test_a_teacher_that_learns_is_found() -> None:
    message = problems(method_with(trains_the_teacher, wants_teacher=True))
    assert "a step changes the teacher: leave it in evaluation mode" in message
    assert "first task" not in message


def test_the_checker_sees_a_backward_without_a_loss() -> None:
    def backward(self: Method, batch: Batch, reference: Batch | None) -> Tensor:
        loss = bce(scores(self, batch), batch.targets)
        loss.backward()
        return loss.detach()

    assert check_learner(method_with(Method.loss, backward=backward)) == ()

    def silent(self: Method, batch: Batch, reference: Batch | None) -> None:
        backward(self, batch, reference)

    message = problems(method_with(Method.loss, backward=silent))
    assert "backward gives NoneType, not the loss as a tensor" in message


def test_a_backward_that_adds_no_gradient_to_another_is_found() -> None:
    def sets(self: Method, batch: Batch, reference: Batch | None) -> Tensor:
        loss, parameters = self.loss(batch), list(self.model.parameters())
        gradients = torch.autograd.grad(loss, parameters)
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient
        return loss.detach()

    message = problems(method_with(ER.loss, backward=sets))
    assert "must add to them as loss.backward() does: p.grad = g if p.grad is None" in message

    def adds(self: Method, batch: Batch, reference: Batch | None) -> Tensor:
        before = [parameter.grad for parameter in self.model.parameters()]
        loss = sets(self, batch, reference)
        for parameter, there in zip(self.model.parameters(), before, strict=True):
            parameter.grad = parameter.grad if there is None else parameter.grad + there
        return loss

    assert check_learner(method_with(ER.loss, backward=adds)) == ()


# Checkpoints.


class Anchored(ER):
    """Stays near the weights' mean size at the end of the last task, kept as a plain number."""

    summary = "for a test"

    def __init__(self, model: Model, options: object = None) -> None:
        super().__init__(model, options)
        self.keep_size(torch.zeros(()))

    def keep_size(self, size: Tensor) -> None:
        self.size = size

    def end_task(self) -> None:
        self.keep_size(self.model.head.weight.square().mean().detach())

    def loss(self, batch: Batch) -> Tensor:
        row = self.model.head.weight[0]
        return super().loss(batch) + self.last_size() * row.square().sum()

    def last_size(self) -> Tensor:
        return self.size


class AnchoredInTheModel(Anchored):
    """The same, kept in the model."""

    def keep_size(self, size: Tensor) -> None:
        if not hasattr(self.model, "size"):
            self.model.register_buffer("size", size)
        self.model.size.copy_(size)

    def last_size(self) -> Tensor:
        return self.model.size


class AnchoredInABuffer(Anchored):
    """The same, kept in a buffer of the method's own."""

    def keep_size(self, size: Tensor) -> None:
        self.register_buffer("size", size)


def test_what_a_checkpoint_would_lose_is_found() -> None:
    message = problems(Anchored)
    assert "a run that goes on from a checkpoint ends with other scores" in message
    assert "self.register_buffer(name, tensor) in __init__" in message
    assert "[stopped within a task; stopped between tasks]" in message


@pytest.mark.parametrize("method", [AnchoredInTheModel, AnchoredInABuffer])
def test_what_is_in_the_model_or_a_buffer_is_not_lost(method: type[Method]) -> None:
    assert check_learner(method) == ()


def test_a_method_may_set_itself_up_in_begin_task() -> None:
    class Counts(ER):
        def begin_task(self, context: TaskContext) -> None:
            self.weight = 1 / context.seen

        def loss(self, batch: Batch) -> Tensor:
            return self.weight * super().loss(batch)

    assert check_learner(Counts) == ()


def test_without_strict_the_findings_are_given_back() -> None:
    found = check_learner(method_with(without_gradient), strict=False)
    assert all(isinstance(finding, Finding) for finding in found)
    assert [finding.level for finding in found] == ["error"]


def test_a_path_is_looked_at_like_a_class(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = "from polarbear.methods.er import ER\nclass Mine(ER):\n    keep = 'lastt'\n"
    (tmp_path / "misspelt_for_the_check.py").write_text(code)
    monkeypatch.chdir(tmp_path)
    path = "misspelt_for_the_check:Mine"
    found = check_learner(path, strict=False)
    assert [finding.level for finding in found] == ["error"]
    assert problems(path).startswith("the method 'Mine': 1 error\n  error: unknown keep 'lastt'")


def test_random_numbers_of_torch_are_fine_and_left_as_they_were() -> None:
    def dropout(self: Method, batch: Batch) -> Tensor:
        kept = torch.rand_like(batch.targets) > 0.2
        return (kept * (scores(self, batch) - batch.targets) ** 2).mean()

    before = torch.random.get_rng_state()
    assert check_learner(method_with(dropout)) == ()
    assert torch.equal(torch.random.get_rng_state(), before)
