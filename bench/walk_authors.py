"""The authors' training code, run task by task from a checkout, on the batches of our steps.

``task_train``, the method, its memory and its evaluation are theirs, imported from the checkout.
What is put in their place: the loader of training batches, and, before each step, all weights.
"""

import contextlib
import importlib
import inspect
import io
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.optim.lr_scheduler import ReduceLROnPlateau
from torch.utils.data import DataLoader

from polarbear.engine.contract.batch import Batch
from walk_weights import Named, gradients, momentum, parameters, put, statistics, their_head

MEAN, STD = (0.5071, 0.4866, 0.4409), (0.2009, 0.1984, 0.2023)

# What experiments/main.py has for whatever the released configurations leave open.
USUAL = {
    "temperature": 1.0,
    "memory_strength": 1.0,
    "buffer_sampling_multiplier": 1.0,
    "max_mems_pool_per_class": 1e5,
    "lucir_lambda": 5.0,
    "lucir_margin_1": 0.5,
    "lucir_margin_2": 0.5,
}


@dataclass(frozen=True, eq=False)
class Step:
    """One step of ours: what it was given, and what it did."""

    batch: Batch
    reference: Batch | None
    rate: float
    before: Named
    momentum_before: Named
    logits: Tensor
    loss: float
    gradients: Named
    after: Named
    momentum_after: Named


class Authors:
    """A run of theirs, as far as it has come."""

    def __init__(
        self, checkout: Path, name: str, order: int, root: Path, memory: int, **changes: Any
    ) -> None:
        """``name`` is that of a released configuration; ``memory`` and ``changes`` make it smaller.

        ``memory`` is for those that keep some images of each class.
        """
        _make_importable(checkout)
        folder = checkout / "experiments" / "experiments_configurations"
        found = json.loads((folder / "configurations_cifar.json").read_text())[name]
        self.released = found["fixed_arguments"] | found["flags"]
        self.config = USUAL | self.released | changes | {"lr_schedule": None}
        if self.released["n_memories_per_class"] > 0:
            self.config["n_memories_per_class"] = memory
        never = {"checkpoint_interval": 10**9, "num_workers": 0, "task_epoch": 0}
        self.config |= never | {"device": torch.device("cpu"), "logging_path": str(root)}
        self.training = importlib.import_module("experiments.train")
        self.definitions = importlib.import_module("iirc.definitions")
        method = importlib.import_module(f"lifelong_methods.methods.{self.config['method']}")
        loader = importlib.import_module("iirc.datasets_loader")
        with _quiet():
            self.splits, self.tasks, self.columns = loader.get_lifelong_datasets(
                "iirc_cifar100", str(root), tasks_configuration_id=order,
                essential_transforms_fn=prepared, augmentation_transforms_fn=prepared,
            )  # fmt: skip
        if self.config["complete_info"]:
            for split in self.splits.values():
                split.enable_complete_information_mode()
        sizes = [len(task) for task in self.tasks]
        self.metadata = {"class_names_to_idx": self.columns}
        with _quiet():
            self.model = method.Model(sizes, self.columns, self.config)
        self.buffer = method.Buffer(self.config, None, None, prepared, prepared)
        self.logged: list[dict[str, Any]] = []
        self.last: dict[str, Any] = {}
        self._listen()

    @property
    def weights(self) -> Named:
        """What is trained."""
        return parameters(self.model.net, their_head(self.model.net.model.output_layer))

    @property
    def state(self) -> Named:
        """Weights and what batch norm remembers."""
        return self.weights | statistics(self.model.net)

    @property
    def teacher(self) -> Named:
        """The frozen copy of the network before the task."""
        old = self.model.old_net
        return parameters(old, their_head(old.model.output_layer)) | statistics(old)

    def begin_task(self, task: int) -> None:
        """Choose the task's images and make the model ready, as ``main_worker`` does."""
        with _quiet():
            for split in self.splits.values():
                joint = self.config["incremental_joint"]
                (split.load_tasks_up_to if joint else split.choose_task)(task)
            self.model.net.eval()
            self.model.prepare_model_for_new_task(
                task_data=self.splits["train"], dist_args=None, buffer=self.buffer, num_workers=0
            )
        self.model.net.train()

    def train(self, epochs: list[list[Step]], check: Callable[[Step, "Authors"], None]) -> None:
        """Run their ``task_train`` on our batches; ``check`` looks at each step when it is done."""
        feed = _Feed(self, epochs, check)
        self.training.data = SimpleNamespace(DataLoader=feed.loader)
        with _quiet():
            self.training.task_train(
                self.model, self.buffer, self.splits, self.config, self.metadata, self
            )
        self.config["task_epoch"] = 0
        self.epoch_images = feed.images

    def end_task(self, task: int) -> float:
        """Fill the memory and return R_j on the test images, as ``main_worker`` does."""
        self.model.net.eval()
        with _quiet():
            self.buffer.update_buffer_new_task(
                self.splits["train"], dist_args=None, model=self.model,
                batch_size=self.config["batch_size"],
            )  # fmt: skip
            given = (self.splits["test"], task, self.config, self.metadata)
            self.training.tasks_eval(self.model, *given, logbook=self, dataset_type="test")
        return float(self.logged[-1]["average_test_modified_jaccard"])

    def write_metric(self, found: dict[str, Any]) -> None:
        """Their log book."""
        self.logged.append(found)

    def validated(self, task: int) -> list[float]:
        """In-task validation after each epoch of a task."""
        key = f"valid_modified_jaccard_{task}"
        return [float(found[key]) for found in self.logged if key in found]

    def labelled(self, split: str) -> list[tuple[bytes, frozenset[str]]]:
        """The images of a split as it stands, each with its labels."""
        data = self.splits[split]
        items = (data.get_item(i) for i in range(len(data)))
        return [(image.tobytes(), self._names(labels)) for image, *labels in items]

    def stored(self, name: str) -> list[tuple[bytes, frozenset[str]]]:
        """The memory's images of a class, each with its labels."""
        return [(one["image"], self._names(one["labels"])) for one in self.buffer.mem_class_x[name]]

    def rates(self, scores: list[float]) -> list[float]:
        """The learning rate after each of these validation scores, from a fresh start."""
        found = []
        with _quiet():
            self.model.reset_optimizer_and_scheduler()
            for score in scores:
                self.model.consolidate_epoch_knowledge(score)
                found.append(self.model.get_last_lr()[0])
        return found

    def _names(self, labels: Any) -> frozenset[str]:
        return frozenset(labels) - {self.definitions.NO_LABEL_PLACEHOLDER}

    def _listen(self) -> None:
        """Note logits and loss of each training step."""
        observe = self.model.observe

        def observed(*given: Any, **more: Any) -> Any:
            found = observe(*given, **more)
            if more.get("train"):
                self.last["loss"] = found[1]
            return found

        def hook(module: Any, _: Any, output: Any) -> None:
            if module is self.model.net and module.training:
                self.last.setdefault("logits", output[0].detach())

        self.model.observe = observed
        self.model.net.register_forward_hook(hook)


class _Feed:
    """Our steps' batches, as their loader would give them."""

    def __init__(self, run: Authors, epochs: list[list[Step]], check: Any) -> None:
        self.run, self.epochs, self.check = run, iter(epochs), check
        self.images = 0
        if hasattr(run.model, "memory_loader") and run.model.memory_loader is not None:
            run.model.memory_loader = self.references()

    def loader(self, dataset: Any, batch_size: int, **_: Any) -> Any:
        """In the place of torch's: their own batches for evaluation, ours for training."""
        if not hasattr(dataset, "buffer_sampling_multiplier"):
            return DataLoader(dataset, batch_size=batch_size)
        self.images = len(dataset)
        return self

    def __iter__(self) -> Iterator[Any]:
        for step in next(self.epochs):
            self.step = step
            self.put_ours(step)
            self.run.last = {}
            yield self.as_theirs(step.batch)
            self.check(step, self.run)

    def references(self) -> Any:
        """A loader of memory batches, which A-GEM asks for one at every step."""

        class References:
            def __iter__(own) -> Iterator[Any]:  # noqa: N805
                yield self.as_theirs(self.step.reference)

        return References()

    def put_ours(self, step: Step) -> None:
        """Take our weights, statistics and momentum of before the step."""
        run = self.run
        put(step.before, run.state)
        if step.momentum_before:
            for name, tensor in momentum(run.weights, run.model.opt).items():
                put({name: step.momentum_before[name]}, {name: tensor})

    def as_theirs(self, batch: Batch) -> tuple[Any, ...]:
        """Images, first labels, second labels, and which come from memory."""
        nothing = self.run.definitions.NO_LABEL_PLACEHOLDER
        classes = list(self.run.columns)
        rows = [[classes[c] for c in np.flatnonzero(row)] for row in batch.targets.numpy()]
        first, second = zip(*([*row, nothing][:2] for row in rows), strict=True)
        return batch.images, first, second, batch.replayed


def prepared(image: Any) -> Tensor:
    """An image as torchvision's ToTensor and Normalize give it, then in fp64."""
    pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1).to(torch.float32).div(255)
    mean, std = (torch.tensor(c, dtype=torch.float32).view(3, 1, 1) for c in (MEAN, STD))
    return pixels.sub(mean).div(std).double()


def step_gradients(run: Authors) -> Named:
    """The gradients their optimiser has used; old rows that it does not move have none."""
    moved = {id(p) for group in run.model.opt.param_groups for p in group["params"]}
    return gradients({name: w for name, w in run.weights.items() if id(w) in moved})


def _make_importable(checkout: Path) -> None:
    """Put the checkout on the path, and stand-ins where its old libraries are not there."""
    if str(checkout) not in sys.path:
        sys.path.insert(0, str(checkout))
    try:
        importlib.import_module("torchvision")
    except ImportError:
        package = ModuleType("torchvision")
        for name in ("transforms", "models"):  # asked for at the top of files, and not used here
            sys.modules[f"torchvision.{name}"] = ModuleType(f"torchvision.{name}")
            setattr(package, name, sys.modules[f"torchvision.{name}"])
        sys.modules["torchvision"] = package
    utils = importlib.import_module("lifelong_methods.utils")
    if "verbose" not in inspect.signature(ReduceLROnPlateau).parameters:

        def plateau(*given: Any, verbose: bool = False, **more: Any) -> ReduceLROnPlateau:
            return ReduceLROnPlateau(*given, **more)

        utils.ReduceLROnPlateau = plateau  # type: ignore[attr-defined]


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    with contextlib.redirect_stdout(io.StringIO()):
        yield
