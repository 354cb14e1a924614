import errno
import itertools
import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from engine_run import (
    Notes,
    interrupt_at,
    newest_checkpoint,
    outcome,
    shapes_stream,
    tiny,
)
from polarbear.base.errors import DataError, PolarbearError, UnknownNameError
from polarbear.base.files import write_json
from polarbear.base.sealed import sealed
from polarbear.benchmark.source import Source
from polarbear.benchmark.stream import Stream
from polarbear.engine.trainer import DivergedError, Trainer
from polarbear.launch.assembly import build_learner
from polarbear.launch.checkpoint import Checkpoint, clear, save
from polarbear.launch.prepare import begin, reopen
from polarbear.launch.runner import advance, resume, run
from polarbear.launch.stop import Stop, stop_on_signal
from polarbear.methods.er import ER
from polarbear.runs.folder import UNSEALED, RunFolder
from polarbear.runs.guards import RunError
from polarbear.score.decide import Seen, decision, threshold
from polarbear.score.evaluate import Evaluator
from polarbear.settings.settings import Settings

pytestmark = pytest.mark.usefixtures("one_thread")


def trained(folder: Path, settings: Settings, stream: Stream | None = None, **more: Any) -> Path:
    assert run(settings, folder, stream=shapes_stream() if stream is None else stream, **more)
    return folder


# One process at a time

HOLD = """
import sys, time
from polarbear.runs.folder import RunFolder
with RunFolder.open(sys.argv[1]).held():
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_folder_is_trained_into_by_one_process_until_that_is_killed(tmp_path: Path) -> None:
    folder = trained(tmp_path / "run", tiny("er", epochs=1, tasks=1))
    (folder / "finished.json").unlink()
    with subprocess.Popen([sys.executable, "-c", HOLD, folder], stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        with pytest.raises(RunError, match="is being trained into by this or another process"):
            resume(folder, stream=shapes_stream())
        other.kill()
    assert resume(folder, stream=shapes_stream())


def test_a_run_holds_its_folder_to_its_end(tmp_path: Path) -> None:
    refused = []

    def meddle(*_: object) -> None:
        with pytest.raises(RunError, match="another process"), RunFolder(tmp_path / "run").held():
            pass
        refused.append(True)

    folder = trained(tmp_path / "run", tiny("er", epochs=1, tasks=1), on_step=meddle)
    assert refused
    with RunFolder(folder).held():
        pass


# What a run leaves


def test_a_run_taken_over_while_it_is_made_ready_does_not_train(tmp_path: Path) -> None:
    def fail(trainer: Trainer, progress: Any) -> None:
        raise RuntimeError("at the first step")

    with pytest.raises(RuntimeError, match="first step"):
        run(tiny("er"), tmp_path / "run", stream=shapes_stream(), on_step=fail, save_every=1e9)
    first = reopen(tmp_path / "run", stream=shapes_stream())
    begin(tiny("finetune"), tmp_path / "run", stream=shapes_stream())
    with pytest.raises(RunError, match="taken over by another run"):
        next(advance(first, Stop()))


def test_a_file_system_without_locks_is_no_hindrance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", refuse)
    trained(tmp_path / "run", tiny("er", epochs=1, tasks=1))
    assert f"cannot be locked: [Errno {errno.ENOLCK}] No locks available" in caplog.text


def test_each_step_is_told_once_however_often_the_run_pauses_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = Trainer.steps

    def hesitant(self: Trainer) -> Iterator[Any]:
        for progress in inner(self):
            yield from (progress, progress, progress)

    monkeypatch.setattr(Trainer, "steps", hesitant)
    told: list[Any] = []
    settings = tiny("er", epochs=1, tasks=1)
    trained(tmp_path / "run", settings, on_step=lambda _, progress: told.append(progress))
    assert told
    assert all(a is not b for a, b in itertools.pairwise(told))


def test_the_manifest_says_all_that_decides_a_run(tmp_path: Path) -> None:
    settings, stream = tiny("er", epochs=1, tasks=1), shapes_stream()
    manifest = RunFolder(trained(tmp_path / "run", settings)).manifest()
    assert Settings.from_dict(manifest["settings"]) == replace(settings, decision="threshold")
    assert manifest["data"] == stream.source.checksum
    assert manifest["data"].startswith("sha256:")
    assert [tuple(task) for task in manifest["classes"]] == list(stream.schedule.tasks)
    assert manifest["threads"] == 1
    versions = {"polarbear", "python", "numpy", "platform", "cores", "commit", "torch"}
    assert manifest["environment"].keys() == versions | {"device", "precision", "compiled"}
    assert manifest["environment"]["precision"] == "fp32"
    assert manifest["environment"]["torch"] == torch.__version__


def test_the_folder_has_a_line_an_epoch_and_two_a_task(tmp_path: Path) -> None:
    folder = RunFolder(trained(tmp_path / "run", tiny("finetune")))
    places = [(line["task"], line["epoch"]) for line in folder.lines("epochs")]
    assert places == [(0, e) for e in range(4)] + [(t, e) for t in (1, 2) for e in range(2)]
    keys = {"task", "epoch", "loss", "rate", "valid", "images", "seconds"}
    assert all(line.keys() == keys for line in folder.lines("epochs"))
    scored = [(line["after"], line["split"]) for line in folder.lines("scores")]
    assert scored == [(j, split) for j in range(3) for split in ("post_valid", "test")]
    assert folder.finished
    finished = json.loads((folder.path / "finished.json").read_text())
    assert finished["tasks"] == 3
    assert folder.seconds() == finished["seconds"] > 0


def test_kept_predictions_give_the_scores_again(tmp_path: Path) -> None:
    stream, folder = shapes_stream(), RunFolder(trained(tmp_path / "run", tiny("er")))
    evaluator = Evaluator(stream)
    for after in range(3):
        evaluator.add(after, folder.predictions(after))
    table = folder.table()
    for name, column in evaluator.table.scores.items():
        assert np.array_equal(table.scores[name], column, equal_nan=True), name
    assert np.array_equal(table.r_jk, evaluator.table.r_jk, equal_nan=True)
    assert np.isnan(table.r[3:]).all()


def test_kept_scores_serve_another_decision_rule_without_training(tmp_path: Path) -> None:
    settings = tiny("icarl-norm", keep_scores=True, tasks=2)
    by_threshold = RunFolder(trained(tmp_path / "threshold", settings))
    by_top1 = RunFolder(trained(tmp_path / "top1", replace(settings, decision="top1")))
    for after in range(2):
        raw = by_threshold.raw(after)
        seen = Seen(shapes_stream().test(after).classes, inclusive=True)
        assert raw is not None
        assert raw.dtype == np.float16
        assert np.array_equal(threshold(raw, seen), by_threshold.predictions(after))
        top = decision("top1")(raw, seen)
        # Scores that are equal as float16 are not decided by it.
        clear = (raw == raw.max(axis=1, keepdims=True)).sum(axis=1) == 1
        assert clear.mean() > 0.5
        wanted = by_top1.predictions(after)
        assert wanted is not None
        assert np.array_equal(top[clear], wanted[clear])
    assert by_top1.raw(0) is not None


def test_scores_are_kept_on_request_alone(tmp_path: Path) -> None:
    trained(tmp_path / "run", tiny("finetune", epochs=1, tasks=1))
    assert not (tmp_path / "run" / "raw").exists()
    assert (tmp_path / "run" / "predictions").exists()


def test_other_recorders_get_the_same_records(tmp_path: Path) -> None:
    notes = Notes()
    trained(tmp_path / "run", tiny("er", epochs=1, tasks=2), recorders=(notes,))
    folder = RunFolder(tmp_path / "run")
    assert [r.loss for r in notes.epochs] == [r["loss"] for r in folder.lines("epochs")]
    assert len(notes.lines) == 4
    for after, (predictions, _) in notes.kept.items():
        assert np.array_equal(predictions, folder.predictions(after))


# The same again


@pytest.mark.parametrize("method", ["finetune", "er", "agem", "lucir"])
def test_two_runs_with_one_manifest_give_the_same_bytes(tmp_path: Path, method: str) -> None:
    settings = tiny(method, tasks=2, keep_scores=True)
    first, second = (outcome(trained(tmp_path / name, settings)) for name in "ab")
    assert first == second
    assert len(first["files"]) == 4


def test_another_seed_gives_another_run(tmp_path: Path) -> None:
    first, second = (
        outcome(trained(tmp_path / str(seed), tiny("er", tasks=1, keep_scores=True, seed=seed)))
        for seed in (1, 2)
    )
    assert first["epochs"] != second["epochs"]
    assert first["files"] != second["files"]


def test_a_run_does_not_depend_on_global_random_numbers_nor_changes_them(tmp_path: Path) -> None:
    settings = tiny("er", network="engine_run:dropping_network", tasks=2, keep_scores=True)
    found = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        np.random.seed(seed)  # noqa: NPY002
        before = torch.get_rng_state()
        found.append(outcome(trained(tmp_path / str(seed), settings)))
        assert torch.equal(torch.get_rng_state(), before)
    assert found[0] == found[1]


def test_dropout_draws_anew_at_every_step() -> None:
    learner = build_learner(tiny("er"), shapes_stream())
    with learner.machine.seeded(1):
        first = torch.rand(3)
    with learner.machine.seeded(2):
        second = torch.rand(3)
    with learner.machine.seeded(1):
        again = torch.rand(3)
    assert torch.equal(first, again)
    assert not torch.equal(first, second)


class Lazy:
    """Images that are decoded when asked for: no array."""

    def __init__(self, images: Any) -> None:
        self.images, self.asked = np.asarray(images), 0

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, rows: Any, /) -> Any:
        self.asked += 1
        batch = self.images[rows]
        batch.flags.writeable = False
        return batch


@pytest.mark.parametrize("method", ["agem", "lucir"])
def test_streamed_images_give_the_scores_of_resident_ones(tmp_path: Path, method: str) -> None:
    stream = shapes_stream()
    source = stream.source
    train, test = Lazy(source.train), Lazy(source.test)
    more = (source.train_leaf, test, source.test_leaf, source.origin, source.checksum)
    lazy = replace(stream, source=Source(source.leaves, train, *more))
    settings = tiny(method, tasks=2, epochs=1, keep_scores=True)
    resident = outcome(trained(tmp_path / "resident", settings))
    streamed = outcome(trained(tmp_path / "streamed", replace(settings, images="streamed"), lazy))
    assert streamed == resident
    assert train.asked > 10
    assert test.asked == 2


# Asked for


def test_joint_is_one_task_whatever_stream_is_given(tmp_path: Path) -> None:
    folder = trained(tmp_path / "run", tiny("joint", epochs=1, tasks=None))
    (classes,) = RunFolder(folder).manifest()["classes"]
    assert tuple(classes) == shapes_stream().classes
    assert [line["after"] for line in RunFolder(folder).lines("scores")] == [0, 0]
    assert RunFolder(folder).predictions(0).shape == (116, 36)  # type: ignore[union-attr]


def test_a_joint_run_is_resumed_as_one_task(tmp_path: Path) -> None:
    settings = tiny("joint", epochs=1, tasks=None)
    whole = outcome(trained(tmp_path / "whole", settings))
    assert not run(settings, tmp_path / "run", stream=shapes_stream(), on_step=stop_at(3))
    assert resume(tmp_path / "run", stream=shapes_stream())
    assert outcome(tmp_path / "run") == whole


def test_a_network_of_ones_own_is_tried_at_the_size_of_its_images() -> None:
    class Large(Lazy):
        def __init__(self, count: int) -> None:
            super().__init__(np.zeros((count, 256, 256, 3), np.uint8))

    stream = shapes_stream(1, 1)
    leaf = stream.source.train_leaf
    source = Source(stream.source.leaves, Large(len(leaf)), leaf, Large(len(leaf)), leaf)
    settings = tiny("er", network="engine_run:large_network", preparation="imagenet")
    build_learner(settings, replace(stream, source=source))
    with pytest.raises(PolarbearError, match="cannot take images of 32×32"):
        build_learner(replace(settings, preparation=None), stream)


def test_a_benchmark_is_loaded_by_its_name(tmp_path: Path) -> None:
    settings = tiny("finetune", order=1, epochs=1, tasks=1, first_task_factor=1.0, batch_size=512)
    assert run(settings, tmp_path / "run")
    manifest = RunFolder(tmp_path / "run").manifest()
    assert manifest["classes"][0] != list(shapes_stream().schedule.tasks[0])
    assert manifest["root"] is None


# Refused


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"method": "finetun"}, "unknown method 'finetun': did you mean 'finetune'"),
        ({"method": "absent.module:Class"}, "there is no module 'absent'"),
        ({"network": "resnet-32"}, "unknown network 'resnet-32': did you mean 'resnet32'"),
        ({"decision": "top-1"}, "unknown decision rule 'top-1': did you mean 'top1'"),
        ({"preparation": "cifr"}, "unknown preparation 'cifr': did you mean 'cifar'"),
        ({"benchmark": "iirc-shape"}, "unknown benchmark 'iirc-shape': did you mean 'iirc-shapes'"),
        ({"device": "gpu"}, "unknown device 'gpu': auto, cpu, cuda or cuda:N"),
        ({"device": "mps"}, "device 'mps' is not supported: auto, cpu, cuda or cuda:N"),
        ({"options": {"margin": 1}}, "Finetune has no options"),
        ({"method": "lucir", "options": {"margn": 1}}, "did you mean 'margin'"),
    ],
)
def test_wrong_names_are_refused_before_anything_is_written(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    settings = tiny(**{"method": "finetune", **changes})
    with pytest.raises(PolarbearError, match=message):
        run(settings, tmp_path / "run", stream=shapes_stream())
    assert not (tmp_path / "run").exists()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
@pytest.mark.parametrize("device", ["cuda", "cuda:0", "cuda:3"])
def test_a_gpu_where_there_is_none_is_refused(tmp_path: Path, device: str) -> None:
    with pytest.raises(
        PolarbearError, match=f"device '{device}' was asked for, but PyTorch .* sees 0 GPUs.*cpu"
    ):
        run(tiny("finetune", device=device), tmp_path / "run", stream=shapes_stream())
    assert not (tmp_path / "run").exists()


def test_a_gpu_is_taken_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    from polarbear.engine.machine import Machine

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert Machine.of(tiny("er", device="auto")).device == torch.device("cuda")
    assert Machine.of(tiny("er", device="cuda:1")).device == torch.device("cuda:1")
    with pytest.raises(PolarbearError, match="sees 2 GPUs"):
        Machine.of(tiny("er", device="cuda:2"))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert Machine.of(tiny("er", device="auto")).device == torch.device("cpu")


def test_more_tasks_than_there_are_are_refused_before_a_folder_is_made(tmp_path: Path) -> None:
    with pytest.raises(PolarbearError, match=r"tasks must be from 1 to 7, .*iirc-shapes, not 8"):
        run(tiny("er", tasks=8), tmp_path / "run", stream=shapes_stream())
    assert not (tmp_path / "run").exists()


def test_absent_data_say_how_to_get_them(tmp_path: Path) -> None:
    settings = Settings("er", "iirc-cifar", device="cpu")
    with pytest.raises(DataError, match="polarbear fetch") as caught:
        run(settings, tmp_path / "run", root=tmp_path / "empty")
    assert "empty" in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_a_stream_without_images_is_refused(tmp_path: Path) -> None:
    bare = replace(shapes_stream(), source=None)
    with pytest.raises(DataError, match="built from labels alone"):
        run(tiny("er"), tmp_path / "run", stream=bare)


def test_a_folder_with_a_run_is_refused(tmp_path: Path) -> None:
    settings = tiny("finetune", epochs=1, tasks=1)
    before = outcome(trained(tmp_path / "run", settings))
    with pytest.raises(RunError, match="holds a run already: `polarbear resume"):
        run(settings, tmp_path / "run", stream=shapes_stream())
    assert outcome(tmp_path / "run") == before


# Divergence


def test_a_nan_stops_the_run_and_the_last_good_checkpoint_is_kept(tmp_path: Path) -> None:
    settings = tiny("engine_run:NaNAt", epochs=4)
    with pytest.raises(DivergedError, match=r"became nan at step \d of epoch 1 of task 1.*lower"):
        run(settings, tmp_path / "run", stream=shapes_stream(), save_every=0)
    folder = RunFolder(tmp_path / "run")
    assert not folder.finished
    found = newest_checkpoint(folder.path / "checkpoint")
    assert found is not None
    progress = found[1].facts["progress"]
    assert (progress["task"], progress["epoch"]) == (1, 1)
    for name, tensor in found[1].tensors.items():
        assert tensor.isfinite().all(), name


def test_weights_that_are_no_numbers_are_never_saved(tmp_path: Path) -> None:
    def spoil(trainer: Any, progress: Any) -> None:
        if (progress.task, progress.epoch, progress.step) == (1, 0, 2):
            with torch.no_grad():
                trainer.learner.model.head.weight.fill_(float("nan"))

    settings = tiny("finetune")
    with pytest.raises(DivergedError, match="weights became infinite or NaN at step 1 of epoch 0"):
        run(settings, tmp_path / "run", stream=shapes_stream(), on_step=spoil, save_every=0)
    found = newest_checkpoint(tmp_path / "run" / "checkpoint")
    assert found is not None
    assert all(tensor.isfinite().all() for tensor in found[1].tensors.values())
    assert found[1].facts["progress"]["step"] == 1


# Stopping and going on, in one process (test_resume.py kills real ones)


def stop_at(step: int, number: int = signal.SIGTERM) -> Any:
    taken = 0

    def on_step(*_: object) -> None:
        nonlocal taken
        taken += 1
        if taken == step:
            os.kill(os.getpid(), number)

    return on_step


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2]
)
def test_a_signal_stops_at_the_next_step_with_a_checkpoint(
    tmp_path: Path, number: int, caplog: pytest.LogCaptureFixture
) -> None:
    settings, handler = tiny("er"), signal.getsignal(number)
    reached: list[Any] = []

    def on_step(trainer: Any, progress: Any) -> None:
        reached.append(progress)
        if len(reached) == 7:
            os.kill(os.getpid(), number)

    with caplog.at_level(logging.WARNING, "polarbear"):
        ended = run(settings, tmp_path / "run", stream=shapes_stream(), on_step=on_step)
    assert ended is False
    assert len(reached) == 7
    assert f"`polarbear resume {tmp_path / 'run'}` goes on" in caplog.text
    assert not RunFolder(tmp_path / "run").finished
    found = newest_checkpoint(tmp_path / "run" / "checkpoint")
    assert found is not None
    progress = found[1].facts["progress"]
    last = reached[-1]
    assert (progress["task"], progress["epoch"], progress["step"]) == (
        last.task,
        last.epoch,
        last.step,
    )
    assert signal.getsignal(number) == handler
    assert resume(tmp_path / "run", stream=shapes_stream()) is True


def test_a_second_ctrl_c_does_not_wait_for_the_step() -> None:
    with stop_on_signal() as stop:
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.is_set()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_sighup_stays_ignored_under_nohup() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with stop_on_signal() as stop:
            os.kill(os.getpid(), signal.SIGHUP)
            assert not stop.is_set()
    finally:
        signal.signal(signal.SIGHUP, before)


def test_what_a_program_of_ones_own_does_on_sigusr1_stays_so() -> None:
    heard: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda number, _: heard.append(number))
    try:
        with stop_on_signal() as stop:
            os.kill(os.getpid(), signal.SIGUSR1)
            assert (heard, stop.is_set()) == ([signal.SIGUSR1], False)
    finally:
        signal.signal(signal.SIGUSR1, before)


TWO_SIGNALS = """
import os, signal, sys
from polarbear.launch.stop import stop_on_signal

def asked_twice(number, later):
    steps = 0
    def trace(*_):
        nonlocal steps
        steps += 1
        if steps == later:
            os.kill(os.getpid(), number)
        return trace
    sys.settrace(trace)
    os.kill(os.getpid(), number)
    sys.settrace(None)
    return steps

with stop_on_signal() as stop:
    for number in (signal.SIGTERM, signal.SIGHUP):
        later = 1
        while asked_twice(number, later) >= later:
            later += 1
        assert later > 3 and stop.is_set()
"""


def test_a_signal_at_any_step_of_the_handler_of_another_hangs_no_process() -> None:
    """A handler that takes a lock waits for itself, if the next signal comes while it has it."""
    subprocess.run([sys.executable, "-c", TWO_SIGNALS], check=True, timeout=60)


def test_a_handler_that_python_does_not_know_ends_no_run_in_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = signal.signal

    def unknown_before(number: int, handler: Any) -> Any:
        real(number, handler)
        return None  # as for a handler that a C library has set

    monkeypatch.setattr(signal, "signal", unknown_before)
    try:
        with stop_on_signal():
            pass
        assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    finally:
        real(signal.SIGINT, signal.default_int_handler)
        real(signal.SIGTERM, signal.SIG_DFL)


def test_a_run_in_another_thread_leaves_signals_alone(tmp_path: Path) -> None:
    ended: list[bool] = []
    settings = tiny("finetune", epochs=1, tasks=1)
    thread = threading.Thread(
        target=lambda: ended.append(run(settings, tmp_path / "run", stream=shapes_stream()))
    )
    thread.start()
    thread.join(60)
    assert ended == [True]


@pytest.mark.parametrize(
    "method", ["er", "icarl-norm", "lucir", "agem", "incremental-joint", "kin"]
)
def test_stopped_at_any_step_a_run_ends_as_if_it_had_not_been(tmp_path: Path, method: str) -> None:
    settings = tiny(method, tasks=2, epochs=1, batch_size=64, keep_scores=True)
    steps: list[object] = []
    whole = outcome(
        trained(tmp_path / "whole", settings, on_step=lambda *a: steps.append(a), save_every=1e9)
    )
    for step in range(1, len(steps) + 1):
        folder = tmp_path / f"{step}"
        assert not run(settings, folder, stream=shapes_stream(), on_step=stop_at(step))
        assert resume(folder, stream=shapes_stream())
        assert outcome(folder) == whole, f"stopped after {step} of {len(steps)}"


@pytest.mark.parametrize("best", [0, 2])
def test_a_resumed_run_still_knows_its_best_epoch_and_its_rate(
    tmp_path: Path, best: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plateau's best, its patience and the best weights are all from before the stop."""
    monkeypatch.setattr(
        Trainer,
        "_validation_score",
        lambda self, steps: 0.9 if self.progress.epoch == best else 0.1,
    )
    settings = tiny("er", tasks=2, plateau_patience=1, keep_scores=True)
    steps: list[object] = []
    whole = outcome(trained(tmp_path / "whole", settings, on_step=lambda *a: steps.append(a)))
    for step in range(3, len(steps), 4):
        folder = tmp_path / f"{step}"
        assert not run(settings, folder, stream=shapes_stream(), on_step=stop_at(step))
        assert resume(folder, stream=shapes_stream())
        assert outcome(folder) == whole, f"stopped after {step} of {len(steps)}"


def test_dropout_goes_on_as_it_would_have(tmp_path: Path) -> None:
    settings = tiny("er", network="engine_run:dropping_network", tasks=1, keep_scores=True)
    whole = outcome(trained(tmp_path / "whole", settings))
    assert not run(settings, tmp_path / "run", stream=shapes_stream(), on_step=stop_at(6))
    torch.rand(5)
    assert resume(tmp_path / "run", stream=shapes_stream())
    assert outcome(tmp_path / "run") == whole


def test_a_run_goes_on_with_as_many_threads_as_it_began(tmp_path: Path) -> None:
    assert not run(tiny("er"), tmp_path / "run", stream=shapes_stream(), on_step=stop_at(3))
    torch.set_num_threads(2)
    threads: set[int] = set()
    assert resume(
        tmp_path / "run",
        stream=shapes_stream(),
        on_step=lambda *_: threads.add(torch.get_num_threads()),
    )
    assert threads == {1}
    assert torch.get_num_threads() == 2


def test_another_machine_is_spoken_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "run"
    assert not run(tiny("er"), folder, stream=shapes_stream(), on_step=stop_at(3))
    manifest = RunFolder(folder).manifest()
    manifest["environment"]["torch"] = "2.0.0"
    write_json(folder / "manifest.json", sealed(manifest))
    with caplog.at_level(logging.WARNING, "polarbear"):
        assert resume(folder, stream=shapes_stream())
    assert "began with torch 2.0.0" in caplog.text


def test_a_finished_run_has_nothing_to_do(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    before = outcome(trained(tmp_path / "run", tiny("finetune", epochs=1, tasks=1)))
    with caplog.at_level(logging.INFO, "polarbear"):
        assert resume(tmp_path / "run")
    assert "is finished: nothing to do" in caplog.text
    assert outcome(tmp_path / "run") == before


def test_a_run_that_lacks_only_its_last_word_gets_it(tmp_path: Path) -> None:
    settings = tiny("er", epochs=1)
    folder = trained(tmp_path / "run", settings)
    before = outcome(folder)
    (folder / "finished.json").unlink()
    assert resume(folder, stream=shapes_stream())
    assert outcome(folder) == before


def test_a_run_without_a_checkpoint_begins_again(tmp_path: Path) -> None:
    settings = tiny("er", epochs=1)
    whole = outcome(trained(tmp_path / "whole", settings))
    folder = RunFolder(tmp_path / "run")
    with pytest.raises(KeyboardInterrupt):
        run(settings, folder.path, stream=shapes_stream(), on_step=interrupt_at(9), save_every=1e9)
    assert list(folder.lines("epochs"))
    assert not (folder.path / "checkpoint").exists()
    assert resume(folder.path, stream=shapes_stream())
    assert outcome(folder.path) == whole


def test_other_data_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    assert not run(tiny("er"), folder, stream=shapes_stream(), on_step=stop_at(3))
    with pytest.raises(RunError, match="data are not those this run began with: checksum 'sha256:"):
        resume(folder, stream=shapes_stream(21, 4))
    with pytest.raises(RunError, match="class order is not the one this run began with"):
        resume(folder, stream=shapes_stream(20, 4, order=1))
    assert resume(folder, stream=shapes_stream())


def test_a_folder_of_another_version_is_refused(tmp_path: Path) -> None:
    folder = trained(tmp_path / "run", tiny("finetune", epochs=1, tasks=1))
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps({**manifest, "format": 99}))
    with pytest.raises(
        RunError, match="run folder of format 99; this polarbear reads formats 1 and 2"
    ):
        resume(folder)
    with pytest.raises(RunError, match="is no run folder"):
        resume(tmp_path / "absent")


def test_a_manifest_with_an_unknown_setting_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    assert not run(tiny("er"), folder, stream=shapes_stream(), on_step=stop_at(3))
    manifest = RunFolder(folder).manifest()
    manifest["settings"]["warmth"] = 3
    write_json(folder / "manifest.json", sealed(manifest))
    with pytest.raises(UnknownNameError, match="unknown setting 'warmth'"):
        resume(folder, stream=shapes_stream())


@pytest.mark.parametrize(
    "damage", ["cut tensors", "cut json", "no tensors", "no json", "cut network", "no network"]
)
def test_a_damaged_newest_checkpoint_is_passed_over(tmp_path: Path, damage: str) -> None:
    settings = tiny("lucir", tasks=2, epochs=1, keep_scores=True)
    whole = outcome(trained(tmp_path / "whole", settings))
    folder = tmp_path / "run"
    assert not run(settings, folder, stream=shapes_stream(), on_step=stop_at(12), save_every=0)
    what, kind = damage.split()
    names = {"tensors": "[0-9]*.safetensors", "json": "*.json", "network": "network-*.safetensors"}
    newest = max((folder / "checkpoint").glob(names[kind]))
    if what == "cut":
        os.truncate(newest, newest.stat().st_size // 2)
    else:
        newest.unlink()
    assert resume(folder, stream=shapes_stream())
    assert outcome(folder) == whole


def test_if_every_checkpoint_is_damaged_the_run_begins_again_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = tiny("er", tasks=2, epochs=1, keep_scores=True)
    whole = outcome(trained(tmp_path / "whole", settings))
    folder = tmp_path / "run"
    assert not run(settings, folder, stream=shapes_stream(), on_step=stop_at(9), save_every=0)
    for file in (folder / "checkpoint").glob("*.safetensors"):
        os.truncate(file, 10)
    assert resume(folder, stream=shapes_stream())
    assert outcome(folder) == whole
    assert f"no checkpoint of {folder} is whole: it begins again, at task 0" in caplog.text


def test_a_run_that_begins_again_can_be_stopped_and_go_on(tmp_path: Path) -> None:
    """Its first checkpoints have lower numbers than the damaged ones had."""
    settings = tiny("er", tasks=2, epochs=1, keep_scores=True)
    whole = outcome(trained(tmp_path / "whole", settings))
    folder = tmp_path / "run"
    assert not run(settings, folder, stream=shapes_stream(), on_step=stop_at(9), save_every=0)
    for file in (folder / "checkpoint").glob("*.safetensors"):
        os.truncate(file, 10)
    assert not resume(folder, stream=shapes_stream(), on_step=stop_at(3))
    found = newest_checkpoint(folder / "checkpoint")
    assert found is not None
    assert found[1].facts["progress"]["step"] == 3
    assert resume(folder, stream=shapes_stream())
    assert outcome(folder) == whole


class Forgetful(ER):
    """A method whose code has changed since its checkpoint: it wants more than is there."""

    def load_state(self, state: dict[str, torch.Tensor]) -> None:
        state["not there"]


def test_a_whole_checkpoint_that_cannot_be_restored_is_not_thrown_away(tmp_path: Path) -> None:
    settings, folder = tiny(f"{__name__}:{Forgetful.__name__}"), tmp_path / "run"
    assert not run(settings, folder, stream=shapes_stream(), on_step=stop_at(9), save_every=0)

    def kept() -> dict[Path, bytes]:
        files = (file for file in folder.rglob("*") if file.is_file())
        # Who trained last, and how that ended, is another matter.
        return {file: file.read_bytes() for file in files if file.name != "process.json"}

    before = kept()
    with pytest.raises(RunError, match=r"whole, but cannot be restored \(KeyError: 'not there'\)"):
        resume(folder, stream=shapes_stream())
    assert kept() == before


def as_of_format_1(folder: Path) -> None:
    """Take off what format 1 had not: every seal, and what checkpoints say of their settings."""
    manifest = RunFolder(folder).manifest()
    write_json(folder / "manifest.json", {**manifest, "format": UNSEALED})
    for name in ("epochs.jsonl", "scores.jsonl"):
        if (folder / name).exists():
            records = map(json.loads, (folder / name).read_text().splitlines())
            bare = [{k: v for k, v in record.items() if k != "check"} for record in records]
            (folder / name).write_text("".join(json.dumps(record) + "\n" for record in bare))
    for file in (folder / "checkpoint").glob("*.json"):
        content = json.loads(file.read_text())
        del content["check"], content["facts"]["settings"]
        content["facts"]["lines"] = RunFolder(folder).sizes()
        write_json(file, content)


def test_a_run_of_format_1_goes_on(tmp_path: Path) -> None:
    settings, folder = tiny("lucir", tasks=2, epochs=1, keep_scores=True), tmp_path / "run"
    whole = RunFolder(trained(tmp_path / "whole", settings))
    assert not run(settings, folder, stream=shapes_stream(), on_step=stop_at(9))
    as_of_format_1(folder)
    assert resume(folder, stream=shapes_stream())
    found = RunFolder(folder)
    for name, values in whole.table().scores.items():
        assert np.array_equal(found.table().scores[name], values, equal_nan=True), name
    assert found.seconds()


def test_networks_among_the_tensors_as_earlier_versions_wrote_them_are_restored(
    tmp_path: Path,
) -> None:
    settings, folder = tiny("kin", tasks=3, epochs=1, keep_scores=True), tmp_path / "run"
    whole = outcome(trained(tmp_path / "whole", settings))
    assert not run(settings, folder, stream=shapes_stream(), on_step=stop_at(20))
    found = newest_checkpoint(folder / "checkpoint")
    assert found is not None
    number, new = found
    assert new.networks.keys() == {"network/birth-0", "network/birth-1", "teacher"}
    among = {f"{group}/{n}": t for group, one in new.networks.items() for n, t in one.items()}
    clear(folder / "checkpoint")
    save(folder / "checkpoint", number, Checkpoint({**new.tensors, **among}, new.facts))
    assert resume(folder, stream=shapes_stream())
    assert outcome(folder) == whole


@pytest.mark.parametrize("part", ["progress", "sizes", "lines", "seconds"])
def test_facts_of_format_1_that_cannot_be_restored_are_damaged(
    tmp_path: Path, part: str, caplog: pytest.LogCaptureFixture
) -> None:
    settings, folder = tiny("lucir", tasks=2, epochs=1), tmp_path / "run"
    assert not run(settings, folder, stream=shapes_stream(), on_step=stop_at(12), save_every=0)
    as_of_format_1(folder)
    newest = max((folder / "checkpoint").glob("*.json"))
    content = json.loads(newest.read_text())
    content["facts"][part] = [[]]
    write_json(newest, content)
    assert resume(folder, stream=shapes_stream())
    assert "cannot be restored, the one before is used" in caplog.text
    assert "begins again" not in caplog.text


def test_a_checkpoint_of_another_run_is_refused(tmp_path: Path) -> None:
    for name, rate in (("a", 0.3), ("b", 0.2)):
        settings = tiny("er", learning_rate=rate)
        assert not run(settings, tmp_path / name, stream=shapes_stream(), on_step=stop_at(3))
    shutil.rmtree(tmp_path / "a" / "checkpoint")
    shutil.copytree(tmp_path / "b" / "checkpoint", tmp_path / "a" / "checkpoint")
    with pytest.raises(RunError, match=r"of other settings than its manifest.json: .*Put back"):
        resume(tmp_path / "a", stream=shapes_stream())


def test_a_damaged_line_before_the_checkpoint_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    assert not run(tiny("er"), folder, stream=shapes_stream(), on_step=stop_at(9))
    text = (folder / "epochs.jsonl").read_bytes()
    for place in (text.index(b'"valid"') + 10, len(text) - 1):
        flipped = bytearray(text)
        flipped[place] ^= 1
        (folder / "epochs.jsonl").write_bytes(flipped)
        with pytest.raises(RunError, match=r"epochs.jsonl.* is damaged .*or begin a new run. Or"):
            resume(folder, stream=shapes_stream())
    (folder / "epochs.jsonl").write_bytes(text)
    assert resume(folder, stream=shapes_stream())


def test_lost_lines_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    assert not run(tiny("er"), folder, stream=shapes_stream(), on_step=stop_at(9))
    os.truncate(folder / "epochs.jsonl", 3)
    with pytest.raises(RunError, match=r"epochs\.jsonl lacks lines"):
        resume(folder, stream=shapes_stream())


class CountingSteps(ER):
    """A method with a tensor of its own: the loss shrinks with every step it has seen."""

    def __init__(self, model: Any, options: Any = None) -> None:
        super().__init__(model, options)
        self.steps = torch.zeros(())

    def loss(self, batch: Any) -> torch.Tensor:
        self.steps += 1
        return super().loss(batch) / self.steps.sqrt()

    def state(self) -> dict[str, torch.Tensor]:
        return {"steps": self.steps}

    def load_state(self, state: dict[str, torch.Tensor]) -> None:
        self.steps = state["steps"]


def test_a_methods_own_state_survives(tmp_path: Path) -> None:
    settings = tiny(f"{__name__}:{CountingSteps.__name__}")
    whole = trained(tmp_path / "whole", settings)
    folder = tmp_path / "run"
    assert not run(settings, folder, stream=shapes_stream(), on_step=stop_at(7))
    assert resume(folder, stream=shapes_stream())
    assert outcome(folder) == outcome(whole)
