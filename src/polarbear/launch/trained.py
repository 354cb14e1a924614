"""What a run has learnt, read from its last checkpoint and ready for images of any origin."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from polarbear.base.arrays import Bools, Pixels
from polarbear.base.errors import DataError, PolarbearError
from polarbear.base.guarded import read_bytes
from polarbear.data.decode import decode, in_order
from polarbear.engine.contract.batch import TaskContext
from polarbear.engine.contract.predict import decision_name
from polarbear.engine.images.pixels import ResidentFeatures, ResidentPixels
from polarbear.engine.images.preparation import find_transform
from polarbear.engine.images.transform import ImageTransform, for_evaluation
from polarbear.engine.nets.frozen import Frozen
from polarbear.engine.nets.model import Model
from polarbear.engine.task.learner import Learner
from polarbear.launch.assembly import make_learner, preparation
from polarbear.launch.checkpoint import Checkpoint, from_newest
from polarbear.launch.prepare import refuse_other_options, refuse_other_weights
from polarbear.launch.runner import refuse_other_settings
from polarbear.launch.snapshot import restore_learnt
from polarbear.methods.registry import make_options, resolve
from polarbear.named.registry import find, load
from polarbear.runs.folder import OWN_LOOP, RunFolder
from polarbear.runs.guards import RunError, reading
from polarbear.runs.result import Result
from polarbear.score.decide import OWN_RULE, RawScores, Seen, Truth, decision
from polarbear.settings.settings import Settings

AT_ONCE = 512  # files decoded at a time

KEEP = (
    "keep what scores(self, images) and decide(self, scores) need in a buffer, a parameter or "
    "self.networks, which checkpoints hold"
)


@dataclass(frozen=True, eq=False)
class TrainedModel:
    """A method as a run left it: its networks, how images are prepared, how it decides.

    ``classes`` are what it knows, a column of scores each, in their order of arrival; ``titles``
    how people call them. Images are uint8 (n, h, w, 3), of the ``size`` (h, w) it learnt from.
    ``decision`` is the rule by which it predicts.
    """

    classes: tuple[str, ...]
    titles: tuple[str, ...]
    size: tuple[int, int]
    decision: str
    learner: Learner
    about: Seen

    @property
    def network(self) -> Model:
        """The newest network, in evaluation mode: :meth:`prepared` images in, logits out."""
        model: Model = self.learner.model.eval()
        return model

    def prepared(self, images: Pixels) -> Tensor:
        """Return images as the network takes them: float (n, 3, h', w'), on its device."""
        placed = torch.tensor(self._checked(images), device=self.learner.machine.device)
        return for_evaluation(placed, self.learner.transform)

    def scores(self, images: Pixels) -> NDArray[np.float32]:
        """Return the method's raw score of every class for images: (n, classes)."""
        pixels = ResidentPixels(self._checked(images), self.learner.machine.device)
        if not len(pixels):
            return np.empty((0, len(self.classes)), np.float32)
        if isinstance(frozen := self.learner.model.backbone, Frozen):  # as its method knows them
            how = (self.learner.transform, self.learner.machine)
            pixels = ResidentFeatures(frozen.features_of(pixels, *how))
        name = type(self.learner.method).__name__
        try:
            found = self.learner.scores_of(pixels, np.arange(len(pixels)), len(self.classes))
        except AttributeError as error:
            error.add_note(f"If training has set it in {name}: {KEEP}")
            raise
        if np.isnan(found).any():
            raise PolarbearError(
                f"{name} gives scores that are no numbers. If they depend on context.class_counts, "
                f"which a trained model does not have: {KEEP}"
            )
        return found

    def decide(self, scores: RawScores) -> Bools:
        """Return which classes are predicted, given raw scores (n, classes)."""
        if not len(scores):
            return np.zeros(scores.shape, dtype=bool)
        if self.decision == OWN_RULE:
            return self.learner.decide(scores)
        return decision(self.decision)(scores, self.about)

    def predict(self, images: Pixels) -> Bools:
        """Return which classes are predicted for images: (n, classes)."""
        return self.decide(self.scores(images))

    def names(self, predicted: Bools) -> list[tuple[str, ...]]:
        """Return the names of what is predicted for each image."""
        return [tuple(self.classes[i] for i in np.flatnonzero(row)) for row in predicted]

    def read(self, files: Iterable[str | Path]) -> Pixels:
        """Return image files as the network learnt from them: RGB, of its size (n, h, w, 3).

        Others are resized until their short side fits, and cut round their middle.
        """
        decoded = list(in_order(self._decoded, map(Path, files)))
        return np.stack(decoded) if decoded else np.empty((0, *self.size, 3), np.uint8)

    def predict_files(
        self, files: Iterable[str | Path]
    ) -> Iterator[tuple[Path, NDArray[np.float32], Bools]]:
        """Go through image files: the path, the raw scores (classes,) and what is predicted."""
        waiting = iter(map(Path, files))
        while some := list(islice(waiting, AT_ONCE)):
            scores = self.scores(self.read(some))
            yield from zip(some, scores, self.decide(scores), strict=True)

    def _decoded(self, file: Path) -> Pixels:
        encoded, (height, width) = read_bytes(file, str(file)), self.size
        if height == width:
            return decode(encoded, str(file), height)
        found = decode(encoded, str(file))
        if found.shape[:2] != self.size:
            raise DataError(
                f"{file} is {found.shape[0]}×{found.shape[1]}, and the run learnt from images of "
                f"{height}×{width} (height, width): bring it to that size"
            )
        return found

    def _checked(self, images: Pixels) -> Pixels:
        found = np.asarray(images)
        if found.dtype != np.uint8 or found.ndim != 4 or found.shape[1:] != (*self.size, 3):
            raise DataError(
                f"images are {found.dtype} of {found.shape}: due is uint8 (n, {self.size[0]}, "
                f"{self.size[1]}, 3); read(files) makes them of image files"
            )
        return found


def load_model(run: str | Path | Result, *, device: str = "auto") -> TrainedModel:
    """Return what a run has learnt, ready for images; the run's data are not needed.

    ``run`` is its folder, finished or stopped between two tasks, with its ``checkpoint/``.
    """
    folder = run.folder if isinstance(run, Result) else RunFolder.open(run)
    manifest = folder.manifest()
    if manifest.get("made_by") == OWN_LOOP:
        raise RunError(
            f"{folder.path} was recorded by a loop of one's own, which keeps its network itself"
        )
    settings = replace(Settings.from_dict(manifest["settings"]), device=device, compile=False)
    refuse_other_options(folder, settings)
    found = _at_end_of_task(folder)
    size, prepared = _images(folder, manifest, settings)
    tasks = [tuple(task) for task in manifest["classes"]]
    method = resolve(settings.method)
    learner = make_learner(
        settings,
        method,
        make_options(method, settings.options),
        prepared,
        torch.zeros(1, *size, 3, dtype=torch.uint8),
        sum(map(len, tasks)),
    )
    refuse_other_weights(learner, manifest)
    try:
        restore_learnt(learner, found)
    except Exception as error:
        raise RunError(
            f"the network of {folder.path} cannot be restored ({type(error).__name__}: {error}): "
            "has the method, the network or PyTorch changed since? Put that back"
        ) from error
    context = _context(learner, tasks[: found.facts["progress"]["task"]])
    learner.method.context = context
    rule = decision_name(settings.decision, method)
    titles = _titles(settings, context.classes)
    return TrainedModel(context.classes, titles, size, rule, learner, _seen(learner, rule))


def _at_end_of_task(folder: RunFolder) -> Checkpoint:
    """Return the newest checkpoint that was taken between two tasks or at the run's end."""
    place, within = folder.path / "checkpoint", None
    for number, found in from_newest(place, required=folder.is_sealed):
        refuse_other_settings(folder, number, found)
        with reading(place / f"{number:08d}.json"):
            progress = found.facts["progress"]
            if not progress["begun"]:
                return found
            within = int(progress["task"])
    if within is not None:
        raise RunError(
            f"{folder.path} was stopped within task {within}, and no checkpoint of a task's end is "
            f"left: `polarbear resume {folder.path}` goes on with it"
        )
    raise RunError(
        f"{folder.path} has no whole checkpoint, which holds the network: put its folder "
        "checkpoint/ back, or run it again"
    )


def _images(
    folder: RunFolder, manifest: Mapping[str, Any], settings: Settings
) -> tuple[tuple[int, int], ImageTransform]:
    """Return the size of the images that a run learnt from, and how they are prepared."""
    about = manifest.get("images")
    if about is None:  # as earlier versions wrote it: the data must tell
        stream = load(settings.benchmark, settings.order, manifest.get("root"), partial=True)
        first = torch.from_numpy(np.array(stream.images("train")[:1]))
        return (first.shape[1], first.shape[2]), preparation(settings, first)
    with reading(folder.path / "manifest.json"):
        height, width = map(int, about["size"])
        name, mean, std = about["preparation"], tuple(about["mean"]), tuple(about["std"])
    transform = find_transform(name, settings.preparation_options)
    return (height, width), replace(transform, mean=mean, std=std)


def _context(learner: Learner, tasks: list[tuple[str, ...]]) -> TaskContext:
    """Return a method its place in the stream as far as it is known without the run's data."""
    device, classes = learner.machine.device, tuple(name for task in tasks for name in task)

    def unknown(*_: object, **__: object) -> NoReturn:
        raise PolarbearError(
            f"{type(learner.method).__name__} asks for images of the run, which a trained model "
            f"does not have: {KEEP}"
        )

    return TaskContext(
        task=len(tasks) - 1,
        old=len(classes) - len(tasks[-1]),
        seen=len(classes),
        classes=classes,
        settings=learner.settings,
        class_counts=torch.full((len(classes),), torch.nan, device=device),
        epoch=torch.zeros((), dtype=torch.long, device=device),
        step=torch.zeros((), dtype=torch.long, device=device),
        class_images=unknown,
        stored_images=unknown,
        batches=unknown,
        rows_in_all=0,
        autocast=learner.machine.autocast,
    )


def _seen(learner: Learner, rule: str) -> Seen:
    """Return what a decision rule is told; the hierarchy, if it is an oracle."""
    classes, parents = learner.method.context.classes, learner.method.inferred_parents()
    truth = None
    if rule != OWN_RULE and decision(rule).oracle:
        truth = Truth.of(find(learner.settings.benchmark).hierarchy(), classes)
    found = None if parents is None else parents.cpu().numpy()
    return Seen(classes, learner.method.inclusive, found, truth)


def _titles(settings: Settings, classes: tuple[str, ...]) -> tuple[str, ...]:
    """Return how people call the classes, where the benchmark is known here and says so."""
    try:
        titles = find(settings.benchmark).hierarchy().titles
    except PolarbearError:
        return classes
    return tuple(titles.get(name, name) for name in classes)
