"""What holds for every method, and the losses of those without a file of their own here."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from polarbear.engine.contract.batch import Batch
from polarbear.engine.contract.method import Method, bce, frozen_copy
from polarbear.methods.catalogue import METHODS
from polarbear.methods.registry import resolve
from tiny_learner import at_task, batch_for, scores_of, slow_bce, step

ROOT = Path(__file__).parents[2]

# The specification's table of methods, line by line, and what is not in the paper.
TABLE = {
    "finetune": {},
    "er": {"replay": "mixed"},
    "er-infinite": {"replay": "mixed", "keep_everything": True},
    "incremental-joint": {"complete": True},
    "joint": {"complete": True, "joint": True},
    "mask-seen": {"replay": "mixed", "keep": "last"},
    "agem": {"replay": "reference", "keep": "last"},
    "icarl-cnn": {
        "replay": "mixed",
        "keep": "last",
        "inclusive": True,
        "selection": "herding",
        "wants_teacher": True,
    },
}
TABLE["gem"] = TABLE["agem"]
TABLE["ewc"] = TABLE["si"] = TABLE["mas"] = {"keep": "last"}
TABLE["rwalk"] = {"replay": "mixed", "keep": "last"}
TABLE["gdumb"] = {"replay": "mixed", "keep": "last", "trains_on": "balanced"}
TABLE["hcv"] = TABLE["mtkd"] = TABLE["icarl-cnn"]
TABLE["icarl-norm"] = TABLE["icarl-cnn"] | {"head": "cosine"}
TABLE["lucir"] = TABLE["icarl-norm"]
TABLE["kin"] = TABLE["icarl-norm"] | {"inclusive": False}
TABLE["icarl-nme"] = TABLE["icarl-cnn"]
SOFTMAX = {"head": "fresh", "keep": "last"}
TABLE["replay"] = SOFTMAX | {"replay": "mixed", "selection": "herding"}
TABLE["il2m"] = TABLE["replay"]
TABLE["wa"] = TABLE["bic"] = TABLE["eeil"] = TABLE["replay"] | {"wants_teacher": True}
TABLE["lwf"] = TABLE["lwm"] = SOFTMAX | {"wants_teacher": True}
TABLE["er-ace"] = SOFTMAX | {"replay": "reference", "selection": "reservoir"}
TABLE["derpp"] = TABLE["er-ace"]
TABLE["ss-il"] = SOFTMAX | {"replay": "reference", "wants_teacher": True}
TABLE["podnet"] = TABLE["wa"] | {"head": "proxies"}
TABLE |= {name: {"keep": "last"} for name in ("ncm", "slda", "ranpac")}
PLAIN = {
    "head": "linear",
    "keep": "best",
    "inclusive": False,
    "replay": "none",
    "selection": "random",
    "keep_everything": False,
    "trains_on": "all",
    "complete": False,
    "joint": False,
    "wants_teacher": False,
}

every_method = pytest.mark.parametrize("name", METHODS)


@every_method
def test_what_the_engine_is_told_is_the_table_of_the_specification(name):
    method = resolve(name)
    assert {key: getattr(method, key) for key in PLAIN} == PLAIN | TABLE[name]


@pytest.mark.parametrize("name", ["finetune", "er", "er-infinite", "joint", "incremental-joint"])
def test_loss_is_bce_over_the_seen_classes(name):
    learner = at_task(resolve(name))
    batch = batch_for(learner)
    expected = slow_bce(scores_of(learner, batch.images), batch.targets)
    assert learner.loss(batch).item() == pytest.approx(expected, rel=1e-5)


def test_mask_seen_asks_about_new_classes_alone():
    learner = at_task(resolve("mask-seen"), sizes=(4, 3))
    batch = batch_for(learner)
    scores = scores_of(learner, batch.images)
    loss = learner.backward(batch, None)
    assert loss.item() == pytest.approx(slow_bce(scores[:, 4:], batch.targets[:, 4:]), rel=1e-5)
    gradient = learner.model.head.weight.grad
    assert (gradient[:4] == 0).all()
    assert (gradient[4:7] != 0).any(dim=1).all()


def test_mask_seen_counts_memory_images_as_what_new_classes_are_not():
    learner = at_task(resolve("mask-seen"))
    batch = batch_for(learner)
    assert batch.replayed.any()
    other = replace(batch, targets=batch.targets.clone())
    other.targets[:, :4] = 1 - other.targets[:, :4]
    assert learner.loss(other) == learner.loss(batch)


def backward(learner: Method) -> torch.Tensor:
    return learner.backward(batch_for(learner), reference_for(learner))


def reference_for(learner: Method) -> Batch | None:
    """Memory images beside a step, with what the method stores with them."""
    if learner.replay != "reference" or not learner.context.old:
        return None
    batch = batch_for(learner, n=6, replayed=6, seed=5)
    with torch.no_grad():
        return replace(batch, stored=learner.store(batch.images, batch.targets))


@every_method
@pytest.mark.parametrize("sizes", [(4,), (4, 3), (4, 3, 2)])
def test_no_class_of_the_future_gets_a_gradient(name, sizes):
    learner = at_task(resolve(name), sizes)
    learner.model.train()
    loss = backward(learner)
    assert torch.isfinite(loss)
    seen, head = sum(sizes), learner.model.head
    if learner.head in ("cosine", "proxies"):
        assert len(head.old) + len(head.new) == seen
        assert (head.new.grad != 0).any()
    else:
        assert len(head.weight) > seen
        assert (head.weight.grad[seen:] == 0).all()
        assert (head.bias.grad[seen:] == 0).all()
        assert (head.weight.grad[:seen] != 0).any()


@every_method
def test_all_trained_parameters_get_finite_gradients(name):
    learner = at_task(resolve(name))
    learner.model.train()
    backward(learner)
    trained = [p for p in learner.model.parameters() if p.requires_grad]
    assert all(torch.isfinite(p.grad).all() for p in trained)


def on_meta(learner: Method) -> torch.Tensor:
    """A step where tensors have shapes but no values: whoever asks for a value fails."""
    batch, reference = batch_for(learner), reference_for(learner)

    def away(batch: Batch | None) -> Batch | None:
        fields = (batch.images, batch.targets, batch.replayed, batch.rows) if batch else ()
        stored = {name: t.to("meta") for name, t in batch.stored.items()} if batch else {}
        return Batch(*(t.to("meta") for t in fields), stored) if fields else None

    learner.model.to("meta").train()
    learner.to("meta")
    numbers = {name: getattr(learner.context, name).to("meta") for name in ("epoch", "step")}
    learner.context = replace(learner.context, **numbers)
    if learner.teacher is not None:
        learner.teacher.to("meta")
    for network in learner.networks.values():
        network.to("meta")
    return learner.backward(away(batch), away(reference))


@every_method
def test_a_step_never_waits_for_a_value(name):
    loss = on_meta(at_task(resolve(name)))
    assert loss.shape == ()


class Asking(Method):
    """Looks at its loss."""

    def loss(self, batch: Batch) -> torch.Tensor:
        loss = bce(self.model(batch.images), batch.targets)
        return loss if loss.item() > 0 else 2 * loss


class Indexing(Method):
    """Picks images by a mask."""

    def loss(self, batch: Batch) -> torch.Tensor:
        return bce(self.model(batch.images)[batch.replayed], batch.targets[batch.replayed])


@pytest.mark.parametrize("method", [Asking, Indexing])
def test_the_test_for_values_can_fail(method):
    with pytest.raises(RuntimeError, match="meta"):
        on_meta(at_task(method))


@pytest.mark.parametrize("name", [n for n in METHODS if TABLE[n].get("wants_teacher")])
def test_the_teacher_is_frozen_and_in_evaluation_mode(name):
    learner = at_task(resolve(name), sizes=(4, 3, 2))
    teacher = learner.teacher
    before = {key: tensor.clone() for key, tensor in teacher.state_dict().items()}
    student = {key: tensor.clone() for key, tensor in learner.model.state_dict().items()}
    step(learner, batch_for(learner))
    assert not any(module.training for module in teacher.modules())
    assert not any(p.requires_grad or p.grad is not None for p in teacher.parameters())
    for key, tensor in teacher.state_dict().items():
        assert torch.equal(tensor, before[key]), key
    statistics = [key for key in student if "running" in key]
    assert statistics
    for key in statistics:
        assert not torch.equal(learner.model.state_dict()[key], student[key]), key


def test_a_frozen_copy_shares_nothing_with_its_model():
    learner = at_task(resolve("er"), sizes=(4,))
    copy = frozen_copy(learner.model)
    assert learner.model.training
    kept = copy.backbone.layers[0].weight.clone()
    step(learner, batch_for(learner))
    assert torch.equal(copy.backbone.layers[0].weight, kept)
    assert not torch.equal(learner.model.backbone.layers[0].weight, kept)


def test_a_method_without_a_loss_says_so():
    learner = at_task(Method, sizes=(4,))
    with pytest.raises(NotImplementedError, match=r"Method must define loss\(batch\)"):
        learner.loss(batch_for(learner))


@pytest.mark.parametrize(
    ("name", "limit"),
    [("er", 60), ("agem", 61), ("icarl-cnn", 120), ("icarl-norm", 120), ("lucir", 180)],
)
def test_a_method_stays_short(name, limit):
    module = METHODS[name].path.partition(":")[0].replace(".", "/")
    assert len((ROOT / "src" / f"{module}.py").read_text(encoding="utf-8").splitlines()) < limit


@every_method
def test_every_method_has_its_page(name):
    page = (ROOT / "docs" / "methods" / f"{name}.md").read_text(encoding="utf-8")
    assert f"polarbear run {name} --benchmark iirc-cifar" in page
    for field in resolve(name).Options.__dataclass_fields__:
        assert f"`{field}`" in page
