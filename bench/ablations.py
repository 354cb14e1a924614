"""Methods with one thing changed, to find out what a result depends on.

    PYTHONPATH=bench python bench/run.py ablations:ERLast:0-2 --root data --out runs/ablations

Other changes are settings: ``bench/run.py er:0 --settings '{"precision": "fp32"}'``.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from polarbear.engine.contract.batch import Batch, TaskContext
from polarbear.engine.contract.method import Method
from polarbear.engine.contract.phase import Phase
from polarbear.engine.nets.heads import LinearHead
from polarbear.engine.nets.model import Model
from polarbear.methods.agem import AGEM
from polarbear.methods.bic import BiC
from polarbear.methods.births import looked_at
from polarbear.methods.er import ER
from polarbear.methods.er_infinite import ERInfinite
from polarbear.methods.icarl_cnn import ICarlCNN
from polarbear.methods.incremental_joint import IncrementalJoint
from polarbear.methods.kin import Kin
from polarbear.methods.kin_options import KinOptions
from polarbear.methods.lucir import LUCIR
from polarbear.methods.softmax import cross_entropy, distilled_cross_entropy, log_odds
from polarbear.named.registry import find

AUTHORS_SEED = 100


class ERLast(ER):
    """ER that goes on from its last weights, not from those of the best in-task validation."""

    summary = "ER with the last weights"
    keep = "last"


class ERInfiniteLast(ERInfinite):
    """ER-infinite likewise."""

    summary = "ER-infinite with the last weights"
    keep = "last"


class AuthorsWeights(Method):
    """Starts from the very weights the authors' runs start from.

    They set PyTorch's seed to 100 in every run, so all their orders share one draw, and all their
    methods share that of the network.
    """

    def begin_task(self, context: TaskContext) -> None:
        """Replace the first weights before the first task."""
        if context.task == 0:
            draw_like_the_authors(self.model)
        super().begin_task(context)


class ERAuthorsWeights(AuthorsWeights, ER):
    summary = "ER from the authors' first weights"


class ERInfiniteAuthorsWeights(AuthorsWeights, ERInfinite):
    summary = "ER-infinite from the authors' first weights"


class AGEMAuthorsWeights(AuthorsWeights, AGEM):
    summary = "A-GEM from the authors' first weights"


class ICarlCNNAuthorsWeights(AuthorsWeights, ICarlCNN):
    summary = "iCaRL-CNN from the authors' first weights"


class IncrementalJointAuthorsWeights(AuthorsWeights, IncrementalJoint):
    summary = "incremental joint from the authors' first weights"


@torch.no_grad()
def draw_like_the_authors(model: Model) -> None:
    """Fill a linear-head ResNet with what PyTorch draws after ``manual_seed(100)``.

    Layers draw once when they are made and again, normally, when all are there.
    """
    ours = [m for m in model.backbone.modules() if isinstance(m, nn.Conv2d)]
    head = model.head
    assert isinstance(head, LinearHead)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(AUTHORS_SEED)  # the CPU's alone
        drawn = [nn.Conv2d(c.in_channels, c.out_channels, c.kernel_size, bias=False) for c in ours]
        linear = nn.Linear(head.weight.shape[1], head.weight.shape[0])
        for conv in drawn:
            nn.init.kaiming_normal_(conv.weight, nonlinearity="relu")
        nn.init.kaiming_normal_(linear.weight, nonlinearity="sigmoid")
    for conv, other in zip(ours, drawn, strict=True):
        conv.weight.copy_(other.weight)
    head.weight.copy_(linear.weight)
    head.bias.copy_(linear.bias)


class LUCIRSigma(LUCIR):
    """LUCIR that notes σ: its mean over each epoch, and in what part of the steps it is below 0.

    Below 0 every score has the wrong sign. With ``{"options": {"margin_moves_sigma": true}}`` for
    settings its steps are the authors'.
    """

    summary = "LUCIR with σ in its log"

    def loss(self, batch: Batch) -> Tensor:
        """Return LUCIR's loss."""
        sigma = self.model.head.sigma.detach()
        self.log("sigma", sigma)
        self.log("sigma_below_0", (sigma < 0).float())
        return super().loss(batch)


class BiCUncorrected(BiC):
    """BiC whose correction is learnt, and teaches the next network, but is left out at the test."""

    summary = "BiC without its correction at the test"

    def scores(self, images: Tensor) -> Tensor:
        """Return the log-odds of the network's own logits: (n, seen)."""
        return log_odds(self.model(images))


class BiCSoftmaxTwice(BiC):
    """BiC that learns α and β as PyCIL does: 170 epochs at 0.1 and less, the softmax taken twice.

    Batch norm is in training mode meanwhile.
    """

    summary = "BiC with PyCIL's way to α and β"

    def phases(self) -> list[Phase]:
        """Return BiC's phase with PyCIL's rate, epochs and mode."""
        pycils = {"epochs": 170, "learning_rate": 0.1, "schedule": "steps", "evaluation": False}
        return [replace(phase, **pycils) for phase in super().phases()]

    def bias_loss(self, batch: Batch) -> Tensor:
        """Return a cross-entropy that takes probabilities for logits."""
        return cross_entropy(self.corrected_logits(batch.images).softmax(1), batch.targets)


class BiCPyCIL(BiCSoftmaxTwice):
    """Besides, each task's two numbers stay, and correct its classes' logits in later tasks too."""

    summary = "BiC as PyCIL has it"

    earlier: Tensor  # α and β of every old class: (2, old)

    def begin_task(self, context: TaskContext) -> None:
        """Keep the newest numbers beside those from before."""
        earlier = self.earlier if context.task else self.correction.detach().new_empty(2, 0)
        newest = self.correction.detach()[:, None].expand(2, context.old - earlier.shape[1])
        super().begin_task(context)
        self.register_buffer("earlier", torch.cat([earlier, newest], dim=1))

    def loss(self, batch: Batch) -> Tensor:
        """Return BiC's loss of logits that are corrected in both networks."""
        before = self.asked_before(batch.images)
        if before is not None:
            before = self.earlier[0] * before + self.earlier[1]
        logits = self.corrected_logits(batch.images)
        return distilled_cross_entropy(logits, batch.targets, before, self.options.temperature)

    def corrected_logits(self, images: Tensor) -> Tensor:
        """Return logits, those of every later task's classes corrected: (n, seen)."""
        new = self.correction[:, None].expand(2, self.context.seen - self.context.old)
        alpha, beta = torch.cat([self.earlier, new], dim=1)
        return alpha * self.model(images) + beta


class KinTrueParents(Kin):
    """Kin that is told which class lies above which: how much finding them costs."""

    title = "Kin, true parents"
    oracle = True

    def find_parents(self, context: TaskContext, parents: Tensor) -> Tensor:
        """Look every new class's parent up, as far as it has come."""
        tree, seen = find(context.settings.benchmark).hierarchy(), context.classes
        above = [tree.parent(name) for name in seen[context.old :]]
        columns = [seen.index(name) if name in seen else -1 for name in above]
        return torch.tensor(columns, device=parents.device)


class KinBare(Kin):
    """Kin whose thresholds are bare probabilities, one for the first task and one for later.

    What the other ablations of Kin were trained with.
    """

    title = "Kin, bare thresholds"

    @dataclass(frozen=True)
    class Options(KinOptions):
        """Kin's, and a threshold more."""

        first_threshold: float = 0.55
        threshold: float = 0.5

    options: Options

    def find_parents(self, context: TaskContext, parents: Tensor) -> Tensor:
        """Return each new class's parent, −1 for none: (new,)."""
        with context.autocast():
            likely, best = torch.where(parents < 0, self.asked(context), 0.0).max(dim=1)
        _, first = next(self.births())
        limit = torch.where(best < first.stop, self.options.first_threshold, self.options.threshold)
        return torch.where(likely >= limit, best, -1)


class KinNewestWitness(KinBare):
    """Kin that asks the newest network for parents, not those of birth; at the test all."""

    title = "Kin, parents of the newest network"

    def asked(self, context: TaskContext) -> Tensor:
        """Return how probable the newest network finds each old class: (new, old)."""
        network = self.networks[f"birth-{context.task - 1}"]
        columns = range(context.old, context.seen)
        found = [looked_at(network, context.class_images(one)).softmax(dim=1) for one in columns]
        return torch.stack([one.mean(dim=0) for one in found]).nan_to_num(0.0)


class PlainHead(LinearHead):
    """A linear head with the scale that Kin sets at the start, and without any use for it."""

    def __init__(self, features: int, classes: int, seed: int) -> None:
        """Make the scale a buffer, which no optimiser decays."""
        super().__init__(features, classes, seed)
        self.register_buffer("sigma", torch.ones(()))


class KinLinear(KinBare):
    """Kin with bare thresholds and a linear head."""

    title = "Kin, linear head"
    head = "ablations:PlainHead"
