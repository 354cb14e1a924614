"""A run folder from a training loop of your own, as the engine writes one.

Two calls beside the loop, and ``polarbear runs`` and the report show it among the engine's runs:

    folder = start_run("runs/mine", stream, method="my-loop", seed=0)
    for task in stream:
        ...
        evaluator.add(after=task.index, predictions=predicted)
        write_scores(folder, evaluator, after=task.index, predictions=predicted)
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from polarbear.base.errors import PolarbearError, PredictionError
from polarbear.base.files import plain
from polarbear.benchmark.stream import Stream
from polarbear.named.registry import benchmarks, short_name
from polarbear.runs.environment import environment
from polarbear.runs.folder import OWN_LOOP, RunFolder
from polarbear.runs.guards import RunError
from polarbear.score.decide import OWN_RULE
from polarbear.score.evaluate import Evaluator
from polarbear.score.label_matrix import as_labels

#: Frameworks whose version is noted.
FRAMEWORKS = ("torch", "tensorflow", "keras", "jax", "flax", "avalanche")


def start_run(
    path: str | Path,
    stream: Stream,
    *,
    method: str,
    seed: int = 0,
    tasks: int | None = None,
    device: str | None = "cpu",
    **options: Any,
) -> RunFolder:
    """Make a run folder for a loop of your own; an existing run is never overwritten.

    ``method`` is the name it is shown under, ``tasks`` how many tasks it goes through (default:
    all), ``options`` whatever else decides what it does: epochs, learning rate, memory; paths are
    kept as text. The benchmark and its order are the stream's. ``device`` is what results name as
    the hardware, such as "NVIDIA H200"; with None, as for predictions made elsewhere, neither it
    nor the seconds it took are known. A loop that was stopped resumes with
    ``RunFolder.open(path)``, after the last task that has scores there.

    >>> from tempfile import TemporaryDirectory
    >>> from polarbear import Evaluator, load
    >>> stream = load("iirc-shapes")
    >>> evaluator, predicted = Evaluator(stream), stream.test(after=0).targets
    >>> with TemporaryDirectory() as place:
    ...     folder = start_run(f"{place}/oracle", stream, method="oracle", tasks=1)
    ...     score = evaluator.add(after=0, predictions=predicted)["pw_jaccard"]
    ...     write_scores(folder, evaluator, after=0, predictions=predicted)
    ...     float(folder.table().r[0]), folder.finished
    (1.0, True)
    """
    # A registered benchmark is named as the engine does, its first version without a number.
    benchmark = {b.id: short_name(b) for b in benchmarks()}.get(stream.name, stream.name)
    for name, value in {"benchmark": benchmark, "order": stream.order}.items():
        if name in options:
            raise PolarbearError(
                f"leave {name}={options[name]!r} out: the stream says it itself, its {name} is "
                f"{value!r}. polarbear.load(name, order=…) gives a stream of another one"
            )
    settings = {
        "method": method,
        "benchmark": benchmark,
        "order": stream.order,
        "seed": seed,
        "tasks": tasks,
        "decision": OWN_RULE,
        "options": {name: _as_kept(name, value) for name, value in options.items()},
    }
    # The engine's framework always has an entry, others where the loop has imported them.
    loaded = {name: sys.modules[name] for name in FRAMEWORKS if name in sys.modules}
    versions = {"torch": None} | {n: getattr(m, "__version__", None) for n, m in loaded.items()}
    manifest = {
        "made_by": OWN_LOOP,
        "settings": settings,
        "root": None,
        "classes": [list(task) for task in stream.schedule.tasks],
        "data": stream.source.checksum if stream.source else "",
        # What is None, the loop alone knows.
        "environment": environment()
        | versions
        | {"device": device, "precision": None, "compiled": None},
        "threads": None,
    }
    return RunFolder.create(path, manifest)


def write_scores(
    folder: RunFolder, evaluator: Evaluator, after: int, predictions: object = None
) -> None:
    """Write what an evaluator has found after a task; the run is finished with its last task.

    Test ``predictions`` (n, s), where given, are kept too, for confusion matrices and other
    scores later.
    """
    record = evaluator.record(after)
    split = record.split
    done = {one.after for one in folder.scores() if one.split == split}
    if after in done:
        _finish_if_last(folder, split, done)  # a killed process may not have come to it
        raise RunError(f"{folder.path} has its {split} scores after task {after} already")
    if split == "test" and predictions is not None:  # first: a task with a line is not repeated
        predicted, view = as_labels(predictions), evaluator.view(after)
        if predicted.shape != (len(view), len(view.classes)):
            raise PredictionError(
                f"predictions to keep must be {(len(view), len(view.classes))}, those given to "
                f"evaluator.add; what came is {predicted.shape}"
            )
        folder.save_predictions(after, predicted)
    folder.append("scores", record.to_json())
    _finish_if_last(folder, split, {*done, after})


def _as_kept(name: str, value: object) -> Any:
    """Return an option as the manifest has it."""
    try:
        return json.loads(json.dumps(plain(value), default=os.fspath))
    except (TypeError, ValueError) as error:
        raise PolarbearError(
            f"the option {name}={value!r} cannot be kept: give numbers, texts, paths, None, or "
            "lists and dicts of them"
        ) from error


def _finish_if_last(folder: RunFolder, split: str, done: set[int]) -> None:
    manifest = folder.manifest()
    tasks = manifest["settings"]["tasks"] or len(manifest["classes"])
    if split == "test" and done >= set(range(tasks)) and not folder.finished:
        began = (folder.path / "manifest.json").stat().st_mtime
        elsewhere = manifest["environment"]["device"] is None
        folder.finish({"tasks": tasks, "seconds": None if elsewhere else time.time() - began})
