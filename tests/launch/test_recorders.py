"""What docs/how-to/watch.md promises a recorder: what it is told, when, and again after a stop."""

import csv
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from doc_pages import PAGES, ROOT
from engine_run import interrupt_at, shapes_stream, tiny
from polarbear.cli import main
from polarbear.launch.fleet import Job, run_fleet
from polarbear.launch.prepare import begin
from polarbear.launch.runner import resume, run
from polarbear.learn import EpochRecord, Recorder, ScoreRecord
from polarbear.runs.folder import RunFolder

SETTINGS = tiny("er", epochs=1, tasks=2)
PLACES = [("epoch", 0, 0), ("epoch", 0, 1), ("scores", 0, "post_valid"), ("scores", 0, "test")]
PLACES += [("answers", 0), ("epoch", 1, 0), ("scores", 1, "post_valid"), ("scores", 1, "test")]
PLACES += [("answers", 1)]

pytestmark = pytest.mark.usefixtures("one_thread")


class Notes(Recorder):
    """Notes what it is told, and what the folder has by then."""

    def __init__(self, folder: Path, raises_at: int = 0) -> None:
        self.folder, self.raises_at = RunFolder(folder), raises_at
        self.told: list[tuple[Any, ...]] = []
        self.records: dict[tuple[Any, ...], Any] = {}
        self.in_folder: list[int] = []

    def epoch(self, record: EpochRecord) -> None:
        self._note(("epoch", record.task, record.epoch), replace(record, seconds=0))

    def scores(self, record: ScoreRecord) -> None:
        self._note(("scores", record.after, record.split), record.to_json())

    def answers(self, after: int, predictions: Any, scores: Any) -> None:
        self._note(("answers", after), (predictions.tolist(), scores.tolist()))
        assert np.array_equal(self.folder.predictions(after), predictions)

    def _note(self, place: tuple[Any, ...], record: Any) -> None:
        self.told.append(place)
        self.records[place] = record
        self.in_folder.append(len([*self.folder.epochs(), *self.folder.scores()]))
        if len(self.told) == self.raises_at:
            raise OSError("the disk of the recorder is full")


@pytest.fixture
def whole(tmp_path: Path) -> Notes:
    notes = Notes(tmp_path / "whole")
    assert run(SETTINGS, tmp_path / "whole", stream=shapes_stream(), recorders=(notes,))
    return notes


def test_it_is_told_in_order_once_the_folder_has_it(whole: Notes) -> None:
    assert whole.told == PLACES
    assert whole.in_folder == [1, 2, 3, 4, 4, 5, 6, 7, 7]


@pytest.mark.parametrize(
    ("back", "save_every", "told"),
    [
        pytest.param(1, 0, 1, id="after an epoch, since the step before"),
        pytest.param(1, 1e9, 1, id="after an epoch, since the task's start"),
        pytest.param(2, 0, 0, id="within an epoch, since the step before"),
    ],
)
def test_a_resumed_run_tells_again_what_came_after_its_checkpoint(
    tmp_path: Path, whole: Notes, back: int, save_every: float, told: int
) -> None:
    folder = tmp_path / "run"
    first, second = Notes(folder), Notes(folder)
    how: dict[str, Any] = {"stream": shapes_stream(), "save_every": save_every}
    steps: list[object] = []
    run(SETTINGS, tmp_path / "count", on_step=lambda *a: steps.append(a), **how)
    with pytest.raises(KeyboardInterrupt):  # so many steps before the task's end
        run(SETTINGS, folder, recorders=(first,), on_step=interrupt_at(len(steps) - back), **how)
    assert first.told == PLACES[: 5 + told]
    assert resume(folder, recorders=(second,), **how)
    assert second.told == PLACES[5:]
    assert second.in_folder == whole.in_folder[5:]
    assert {**first.records, **second.records} == whole.records


@pytest.mark.parametrize("raises_at", range(1, len(PLACES) + 1))
def test_an_error_ends_the_run_which_can_be_resumed(
    tmp_path: Path, whole: Notes, raises_at: int
) -> None:
    folder = tmp_path / "run"
    with pytest.raises(OSError, match="disk of the recorder"):
        run(SETTINGS, folder, stream=shapes_stream(), recorders=(Notes(folder, raises_at),))
    notes = Notes(folder)
    assert resume(folder, stream=shapes_stream(), recorders=(notes,))
    assert notes.records.items() <= whole.records.items()
    assert (folder / "scores.jsonl").read_bytes() == (
        tmp_path / "whole" / "scores.jsonl"
    ).read_bytes()


def test_each_run_of_a_fleet_has_its_own(tmp_path: Path, whole: Notes) -> None:
    notes = {name: Notes(tmp_path / name, raises_at) for name, raises_at in (("a", 3), ("b", 0))}

    def job(name: str) -> Job:
        def prepare(shared: Any) -> Any:
            return begin(SETTINGS, tmp_path / name, stream=shapes_stream(), shared=shared)

        return Job(name, prepare, {"recorders": (notes[name],)})

    outcomes = run_fleet([job("a"), job("b")], at_once=2)
    assert isinstance(outcomes["a"].error, OSError)
    assert outcomes["b"].finished
    assert notes["a"].told == PLACES[:3]
    assert notes["b"].records == whole.records


def test_whoever_inherits_defines_what_it_cares_for(tmp_path: Path) -> None:
    class Few(Recorder):
        """It cares for nothing."""

    assert run(SETTINGS, tmp_path / "run", stream=shapes_stream(), recorders=(Few(),))


# By its dotted path


@pytest.fixture
def example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    Path("own_recorder.py").write_text((ROOT / "examples" / "own_recorder.py").read_text())
    yield tmp_path
    sys.modules.pop("own_recorder", None)


def command(*words: str) -> int:
    tiny_run = ("--benchmark", "iirc-shapes", "--epochs", "1", "--tasks", "2", "--threads", "1")
    return main(["run", "er", *tiny_run, "--device", "cpu", *words])


def test_a_recorder_comes_by_its_dotted_path_for_each_run(example: Path) -> None:
    assert command("--orders", "0-1", "--out", "runs", "--recorder", "own_recorder:Standing") == 0
    for order in range(2):
        folder = RunFolder(Path(f"runs/order-{order}-seed-100"))
        head, *lines = csv.reader((folder.path / "standing.csv").read_text().splitlines())
        assert head == ["after task", "pw-JS", "seconds of training"]
        due = [[str(r.after), f"{r.r:.3f}"] for r in folder.scores() if r.split == "test"]
        assert [line[:2] for line in lines] == due
        assert all(float(line[2]) > 0 for line in lines)


def test_one_that_is_a_context_is_entered_and_left(example: Path) -> None:
    Path("noisy.py").write_text(
        "from polarbear.learn import Recorder\n"
        "class Noisy(Recorder):\n"
        "    def __init__(self, folder, settings):\n"
        "        self.folder, self.seed = folder, settings.seed\n"
        "    def __enter__(self):\n"
        "        return self\n"
        "    def __exit__(self, *_):\n"
        "        (self.folder / 'left').write_text(f'seed {self.seed}')\n"
    )
    assert command("--seed", "7", "--out", "run", "--recorder", "noisy:Noisy") == 0
    assert Path("run/left").read_text() == "seed 7"
    sys.modules.pop("noisy", None)


def test_what_is_no_recorder_is_refused(example: Path, refused: Callable[..., str]) -> None:
    words = ("run", "er", "--benchmark", "iirc-shapes", "--out", "run", "--recorder")
    assert "did you mean 'Standing'?" in refused(*words, "own_recorder:Standin")
    Path("bare.py").write_text(
        "class Bare:\n    def __init__(self, *_): pass\n    def epoch(self, record): pass\n"
    )
    said = refused(*words, "bare:Bare")
    assert "bare:Bare has no scores and no answers: let it inherit from polarbear.learn" in said
    assert not Path("run").exists()
    sys.modules.pop("bare", None)


def test_the_page_shows_the_example() -> None:
    code = (ROOT / "examples" / "own_recorder.py").read_text(encoding="utf-8")
    assert f"```python\n{code}```" in PAGES["docs/how-to/watch.md"]
