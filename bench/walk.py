"""The authors' training code and ours, step by step: the same batches, equal weights, fp64.

Their ``task_train`` runs from a checkout of their repository, on the batches of a short run of
ours; before each step it is given our weights and momentum, so that one step's rounding cannot
grow. What each then has is compared: logits, loss, gradients, weights, batch norm, rate,
validation, the weights that are kept, memory, the next task's start, R_j.

    git clone https://github.com/chandar-lab/IIRC authors
    python bench/walk.py --authors authors --root data er lucir

The images are the first of each class of CIFAR-100. A number is the largest difference, divided by
the largest number of its tensor; of scores and rates the difference itself. A method takes about
three minutes on one core. ``lucir-sigma`` is LUCIR with ``margin_moves_sigma``.
"""

import argparse
import pickle
import tempfile
from collections import Counter
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import polarbear
from polarbear.engine.contract.batch import Batch
from polarbear.engine.task.learner import Learner
from polarbear.engine.task.plateau import Plateau
from polarbear.engine.trainer import Trainer
from polarbear.launch.assembly import build_learner
from polarbear.methods.icarl_norm import ICarlNorm
from polarbear.methods.presets import settings_for
from polarbear.score.record import EpochRecord, ScoreRecord
from walk_authors import Authors, Step, step_gradients
from walk_weights import (
    Named,
    apart,
    copied,
    difference,
    gradients,
    momentum,
    our_head,
    parameters,
    statistics,
)


@dataclass(frozen=True)
class Case:
    """A method of ours, its options, and the released configuration it is compared with."""

    method: str
    released: str
    options: dict[str, Any] = field(default_factory=dict)


CASES = {
    "finetune": Case("finetune", "finetune"),
    "er": Case("er", "finetune_20"),
    "er-infinite": Case("er-infinite", "infinite_buffer"),
    "incremental-joint": Case("incremental-joint", "incremental_joint"),
    "agem": Case("agem", "agem_20_lr1"),
    "icarl-cnn": Case("icarl-cnn", "icarl_cnn_20"),
    "icarl-norm": Case("icarl-norm", "icarl_norm_20"),
    "lucir": Case("lucir", "lucir_20"),
    "lucir-sigma": Case("lucir", "lucir_20", {"margin_moves_sigma": True}),
}


class Ours:
    """A run of ours in fp64, all of whose steps are noted."""

    def __init__(self, case: Case, stream: polarbear.Stream, args: argparse.Namespace) -> None:
        settings = settings_for(
            case.method, "iirc-cifar", order=args.order, device="cpu", tasks=args.tasks,
            epochs=args.epochs, batch_size=args.batch, memory_per_class=args.memory,
            network=f"resnet{args.layers}", options=case.options,
        )  # fmt: skip
        self.learner: Learner = build_learner(settings, stream)
        self.model, self.method = self.learner.model.double(), self.learner.method
        self.trainer = Trainer(stream, self.learner, (self,))
        self.epochs: list[list[Step]] = [[]]
        self.valid: list[float] = []
        self.r, self._noted, self._logits = 0.0, {}, []
        self._walk = self.trainer.steps()
        self._listen()

    @property
    def state(self) -> Named:
        """Weights and what batch norm remembers."""
        return _state(self.model)

    def train_task(self) -> list[list[Step]]:
        """Go through the next task and return its steps, epoch by epoch."""
        self.epochs, self.valid, self.teacher = [[]], [], {}
        task = self.trainer.progress.task
        for progress in self._walk:
            if self._noted:
                self._note_step()
            if progress.task > task:
                break
        return [epoch for epoch in self.epochs if epoch]

    def epoch(self, record: EpochRecord) -> None:
        """Note an epoch's validation."""
        self.valid.append(record.valid)
        self.epochs.append([])

    def scores(self, record: ScoreRecord) -> None:
        """Note R_j."""
        self.r = record.r

    def answers(self, *_: object) -> None: ...

    def _note_step(self) -> None:
        """Note what a step has done; the next has not begun."""
        weights = parameters(self.model.backbone, our_head(self.model.head))
        rate = self.trainer.optimiser.param_groups[0]["lr"]
        moved = copied(momentum(weights, self.trainer.optimiser))
        done = Step(**self._noted, rate=rate, after=copied(self.state), momentum_after=moved)
        self.epochs[-1].append(done)
        self._noted = {}

    def _listen(self) -> None:
        """Note what each step is given, its logits, its loss and its gradients."""
        backward = self.method.backward

        def noted(batch: Batch, reference: Batch | None) -> Tensor:
            batch, reference = _in_fp64(batch), reference and _in_fp64(reference)
            weights = parameters(self.model.backbone, our_head(self.model.head))
            before = copied(self.state)
            memory = copied(momentum(weights, self.trainer.optimiser))
            if self.method.teacher is not None:
                self.teacher = _state(self.method.teacher)
            self._logits.clear()
            loss = backward(batch, reference)
            found = copied(gradients(weights))
            self._noted = {
                "batch": batch, "reference": reference, "before": before,
                "momentum_before": memory, "logits": self._logits[0], "loss": float(loss),
                "gradients": found,
            }  # fmt: skip
            return loss

        def logits(head: Any, _: Any, output: Tensor) -> None:
            if head is self.model.head and head.training:
                self._logits.append(output.detach())

        self.method.backward = noted
        self.model.head.register_forward_hook(logits)
        self.model.backbone.register_forward_pre_hook(lambda _, given: (given[0].double(),))


def _state(model: Any) -> Named:
    return parameters(model.backbone, our_head(model.head)) | statistics(model.backbone)


def _in_fp64(batch: Batch) -> Batch:
    return replace(batch, images=batch.images.double(), targets=batch.targets.double())


class Findings:
    """The largest difference of each thing, task by task."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[int, float | str]] = {}
        self.task = 0

    def add(self, what: str, found: float | str) -> None:
        row = self.rows.setdefault(what, {})
        known = row.get(self.task, 0.0)
        is_number = isinstance(found, float) and isinstance(known, float)
        row[self.task] = max(found, known) if is_number else found

    def add_weights(self, what: str, theirs: Named, ours: Named) -> None:
        """Compare σ, if there is one, apart from the rest."""
        sigma = "head sigma"
        self.add(what, difference(_without(theirs, sigma), _without(ours, sigma)))
        if sigma in theirs:
            self.add(f"{what}: σ", apart(theirs[sigma], ours[sigma]))

    def __str__(self) -> str:
        tasks = range(self.task + 1)
        lines = ["| | " + " | ".join(f"task {task}" for task in tasks) + " |"]
        lines.append("|---" * (len(tasks) + 1) + "|")
        for what, row in self.rows.items():
            cells = (_shown(row.get(task, "–")) for task in tasks)
            lines.append(f"| {what} | " + " | ".join(cells) + " |")
        return "\n".join(lines)


def _shown(found: float | str) -> str:
    if isinstance(found, str):
        return found
    return "0" if found == 0 else f"{found:.0e}"


def compare_step(step: Step, run: Authors, found: Findings) -> None:
    """Compare a step of theirs, just done, with ours."""
    seen = step.logits.shape[1]
    found.add("logits", apart(run.last["logits"][:, :seen], step.logits))
    found.add("loss", abs(run.last["loss"] / step.loss - 1))
    moved = momentum(run.weights, run.model.opt)
    for what, theirs, ours in (
        ("gradients", step_gradients(run), step.gradients),
        ("momentum", moved, step.momentum_after),
        ("weights after the step", run.weights, {name: step.after[name] for name in run.weights}),
    ):
        found.add_weights(what, theirs, ours)
    theirs = statistics(run.model.net)
    found.add("batch norm's statistics", difference(theirs, {k: step.after[k] for k in theirs}))
    found.add("learning rate", abs(run.model.get_last_lr()[0] - step.rate))


def _without(tensors: Named, name: str) -> Named:
    return {key: tensor for key, tensor in tensors.items() if key != name}


def compare_start(ours: Ours, first: Step, run: Authors, found: Findings) -> None:
    """Compare a task's start: the network, with imprinted rows if any, and the teacher."""
    drawn = "head new" if isinstance(ours.method, ICarlNorm) else ""  # its new rows are random
    theirs = _without(run.state, drawn)
    found.add_weights("weights at the start", theirs, _without(first.before, drawn))
    if ours.teacher:
        teacher = {k: v for k, v in run.teacher.items() if k in ours.teacher}
        found.add_weights("teacher", teacher, ours.teacher)


def compare_images(ours: Ours, stream: polarbear.Stream, run: Authors, found: Findings) -> None:
    """Count the images, with their labels, that one has and the other has not."""
    task = found.task
    views = {"train": stream[task].train, "intask_valid": stream[task].valid}
    if ours.method.complete:
        views = {
            "train": ours.trainer.images.training_set,
            "intask_valid": ours.trainer.images.valid,
        }
    for split, view in views.items():
        targets, images = view.targets, stream.images("train")[view.rows]
        own = zip(images, (_names(stream, row) for row in targets), strict=True)
        own = [(image.tobytes(), names) for image, names in own]
        found.add(f"images and labels, {split}", _unlike(run.labelled(split), own))


def compare_memory(ours: Ours, stream: polarbear.Stream, run: Authors, found: Findings) -> None:
    """Compare the memory's lists of the task's classes: herded ones in their order."""
    if ours.method.replay == "none":
        return
    herded, everything = ours.method.selection == "herding", ours.method.keep_everything
    wrong = 0
    for one in ours.learner.memory.lists:
        name = stream.classes[one.column]
        theirs = run.stored(name)
        images = stream.images("train")[one.rows]
        labels = (_names(stream, row, one.first) for row in one.labels)
        own = [(image.tobytes(), names) for image, names in zip(images, labels, strict=True)]
        if herded:
            wrong += sum(a != b for a, b in zip_longest(theirs, own))
        elif everything:
            wrong += sum((Counter(theirs) - Counter(own)).values())
        else:  # drawn at random: as many, with the same labels, none twice
            wrong += Counter(n for _, n in theirs) != Counter(n for _, n in own)
            wrong += len({image for image, _ in theirs}) != len(theirs)
    how = "by herding" if herded else "all" if everything else "at random: numbers and labels"
    found.add(f"memory, {how}", f"{wrong} of {len(ours.learner.memory)} differ")


def _names(stream: polarbear.Stream, row: Any, first: int = 0) -> frozenset[str]:
    return frozenset(stream.classes[first + column] for column in np.flatnonzero(row))


def _unlike(theirs: list[Any], own: list[Any]) -> str:
    one, other = Counter(theirs), Counter(own)
    return f"{((one - other) + (other - one)).total()} of {len(own)} differ"


def compare(case: Case, stream: polarbear.Stream, root: Path, args: argparse.Namespace) -> Findings:
    """Walk through the first tasks with both."""
    ours, found = Ours(case, stream, args), Findings()
    smaller = {"epochs_per_task": args.epochs, "batch_size": args.batch, "n_layers": args.layers}
    run = Authors(args.authors, case.released, args.order, root, args.memory, **smaller)
    print(
        f"settings unlike the released ones: {unlike_settings(case, run) or 'none'}\n", flush=True
    )
    for task in range(args.tasks):
        found.task = task
        steps = ours.train_task()
        run.begin_task(task)
        compare_images(ours, stream, run, found)
        if task > 0:
            compare_start(ours, steps[0][0], run, found)
        found.add("optimiser starts afresh", "both" if not run.model.opt.state else "ours alone")
        run.train(steps, lambda step, run: compare_step(step, run, found))
        taken = sum(len(step.batch.images) for step in steps[0])
        found.add("images of an epoch", "equal" if taken == run.epoch_images else "differ")
        theirs = run.validated(task)
        found.add(
            "validation after each epoch", float(np.abs(np.subtract(theirs, ours.valid)).max())
        )
        found.add_weights("weights the task ends with", run.state, ours.state)
        found.add("R_j", abs(run.end_task(task) - ours.r))
        compare_memory(ours, stream, run, found)
    found.add("plateau, 280 scores", _plateau_apart(ours, run))
    return found


def unlike_settings(case: Case, run: Authors) -> list[str]:
    """Name the settings in which the preset is not the released configuration."""
    ours, theirs = settings_for(case.method, "iirc-cifar"), run.released
    pairs = {
        "lr": ours.learning_rate, "batch_size": ours.batch_size, "seed": ours.seed,
        "epochs_per_task": ours.epochs, "weight_decay": ours.weight_decay,
        "lr_gamma": ours.plateau_factor, "n_layers": int(ours.network.removeprefix("resnet")),
    }  # fmt: skip
    if theirs["n_memories_per_class"] > 0:
        pairs["n_memories_per_class"] = ours.memory_per_class
    return [
        f"{name} {theirs[name]}, ours {own}" for name, own in pairs.items() if theirs[name] != own
    ]


def _plateau_apart(ours: Ours, run: Authors) -> float:
    """The largest difference of rates over 280 made-up scores that rise and level off."""
    random = np.random.default_rng(0)
    rise = 0.7 * (1 - np.exp(-np.arange(280) / 40))
    scores = (np.round((rise + random.normal(0, 0.02, 280)) * 1020) / 1020).tolist()
    plateau, rates = Plateau(ours.learner.settings.learning_rate), []
    for score in scores:
        plateau = plateau.update(score, ours.learner.settings)
        rates.append(plateau.rate)
    return float(np.abs(np.subtract(rates, run.rates(scores))).max())


def write_few_images(source: polarbear.Source, folder: Path, count: int) -> None:
    """Write the first images of each class, as official files and as ``cifar100.npz``."""
    arrays: dict[str, Any] = {}
    (folder / "cifar-100-python").mkdir()
    for split, leaf, images in (
        ("train", source.train_leaf, source.train),
        ("test", source.test_leaf, source.test),
    ):
        rows = [
            np.flatnonzero(leaf == one)[: count if split == "train" else 2] for one in range(100)
        ]
        chosen = np.sort(np.concatenate(rows))
        labels, pixels = np.asarray(leaf)[chosen], np.asarray(images[chosen])
        arrays |= {f"{split}_images": pixels, f"{split}_labels": labels}
        flat = pixels.transpose(0, 3, 1, 2).reshape(len(pixels), -1)
        content = {b"data": flat, b"fine_labels": labels.tolist()}
        (folder / "cifar-100-python" / split).write_bytes(pickle.dumps(content))
    names = {b"fine_label_names": [name.encode() for name in source.leaves]}
    (folder / "cifar-100-python" / "meta").write_bytes(pickle.dumps(names))
    np.savez(folder / "cifar100.npz", **arrays)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "methods", nargs="*", default=list(CASES), metavar="METHOD", help=", ".join(CASES)
    )
    parser.add_argument("--authors", type=Path, required=True, help="checkout of chandar-lab/IIRC")
    parser.add_argument("--root", default="data")
    parser.add_argument("--order", type=int, default=0)
    parser.add_argument("--tasks", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=1, help="per task; the first has two each")
    parser.add_argument("--images", type=int, default=30, help="training images per class, from 30")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--memory", type=int, default=5, help="memory images per class")
    parser.add_argument("--layers", type=int, default=32, choices=(20, 32, 44, 56))
    args = parser.parse_args()
    torch.set_default_dtype(torch.float64)
    with tempfile.TemporaryDirectory() as name:
        write_few_images(polarbear.load("iirc-cifar", 0, args.root).source, Path(name), args.images)
        small = polarbear.load("iirc-cifar", args.order, Path(name) / "cifar100.npz", partial=True)
        for method in args.methods:
            print(f"\n## {method}", flush=True)
            print(compare(CASES[method], small, Path(name), args), flush=True)


if __name__ == "__main__":
    main()
