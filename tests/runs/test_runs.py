import errno
import json
import math
import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from polarbear.base.files import plain, write_json, write_whole
from polarbear.benchmark.hierarchy import Hierarchy
from polarbear.benchmark.schedule import Schedule
from polarbear.benchmark.stream import Stream
from polarbear.runs.environment import environment
from polarbear.runs.folder import FORMAT, UNSEALED, RunFolder, find_runs
from polarbear.runs.guards import RunError
from polarbear.score.decide import Seen, threshold
from polarbear.score.evaluate import Evaluator
from polarbear.settings.settings import Settings


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder.create(tmp_path / "run", {"settings": {"seed": 1}})


def test_a_folder_holds_its_manifest_and_format(folder: RunFolder) -> None:
    assert RunFolder.open(folder.path).manifest() == {"format": FORMAT, "settings": {"seed": 1}}
    assert not folder.finished


def test_a_run_is_never_overwritten(folder: RunFolder) -> None:
    before = (folder.path / "manifest.json").read_bytes()
    with pytest.raises(RunError, match=r"holds a run already: `polarbear resume .*run` resumes it"):
        RunFolder.create(folder.path, {"settings": {"seed": 2}})
    assert (folder.path / "manifest.json").read_bytes() == before


def occupied(folder: RunFolder) -> str:
    before = (folder.path / "manifest.json").read_bytes()
    with pytest.raises(RunError) as caught:
        RunFolder.create(folder.path, {"settings": {"seed": 2}})
    assert (folder.path / "manifest.json").read_bytes() == before
    return str(caught.value).replace(str(folder.path), "DIR")


def test_a_folder_in_use_says_what_can_be_done_with_it(folder: RunFolder) -> None:
    write_json(folder.path / "checkpoint" / "00000001.json", {})
    resumes = "DIR holds a run already: `polarbear resume DIR` resumes it"
    assert occupied(folder) == f"{resumes}; choose another folder for a new one (--out DIR)"
    write_json(folder.path / "finished.json", {})
    assert "can only show it, as it is finished; choose another" in occupied(folder)


def test_the_folder_of_a_loop_of_ones_own_cannot_be_resumed(tmp_path: Path) -> None:
    own = RunFolder.create(tmp_path, {"made_by": "own loop", "settings": {}})
    assert own.own_loop
    assert "of a loop of your own, which `polarbear resume` cannot resume" in occupied(own)


@pytest.mark.parametrize(
    ("manifest", "own"),
    [
        ({"settings": {"decision": "own"}}, True),  # as written before made_by was
        ({"settings": {"decision": "threshold"}}, False),
        ({"settings": {"decision": "own", "network": "small"}}, False),  # a method's own rule
        ({"made_by": "something else", "settings": {}}, False),
    ],
)
def test_who_made_a_folder(tmp_path: Path, manifest: dict[str, Any], own: bool) -> None:
    assert RunFolder.create(tmp_path, manifest).own_loop is own


def test_a_folder_of_another_version_is_not_said_to_be_resumable(folder: RunFolder) -> None:
    (folder.path / "manifest.json").write_text('{"format": 99}')
    with folder.held():
        pass
    assert "holds a run already, and DIR is a run folder of format 99" in occupied(folder)


def test_what_a_crash_in_the_first_step_left_is_taken_over(folder: RunFolder) -> None:
    with folder.held():
        assert not folder.left_empty()
        assert "holds a run already" in occupied(folder)
    assert folder.left_empty()
    RunFolder.create(folder.path, {"settings": {"seed": 2}})
    assert folder.manifest()["settings"] == {"seed": 2}


def test_where_filelock_is_not_installed_a_run_is_warned_and_not_taken_over(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "filelock", None)
    with folder.held():
        pass
    assert f"{folder.path} cannot be locked: filelock 3.30 or later is not installed" in caplog.text
    assert not folder.left_empty()


@pytest.mark.parametrize("kept", ["epochs.jsonl", "scores.jsonl", "finished.json", "checkpoint/1"])
def test_what_has_learnt_anything_is_not(folder: RunFolder, kept: str) -> None:
    with folder.held():
        pass
    (folder.path / kept).parent.mkdir(exist_ok=True)
    (folder.path / kept).write_text("")
    assert not folder.left_empty()
    assert "holds a run already" in occupied(folder)


def test_an_empty_folder_may_become_a_run(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    RunFolder.create(tmp_path, {})
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(RunError, match=r"file/run cannot become a run folder: .*Not a directory"):
        RunFolder.create(tmp_path / "file" / "run", {})


def test_a_folder_without_a_manifest_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"is no run folder: it has no manifest\.json"):
        RunFolder.open(tmp_path)
    with pytest.raises(RunError, match="is no run folder"):
        RunFolder.open(tmp_path / "absent")


@pytest.mark.parametrize("content", ["{", "", "[]", "3", '{"format": 1', '{"format": 1}'])
def test_a_damaged_manifest_is_refused(folder: RunFolder, content: str) -> None:
    (folder.path / "manifest.json").write_text(content)
    with pytest.raises(RunError, match=r"manifest\.json is damaged"):
        RunFolder.open(folder.path)


@pytest.mark.parametrize("found", ['{"format": 3}', '{"format": "1"}', "{}"])
def test_a_folder_of_another_format_is_refused(folder: RunFolder, found: str) -> None:
    (folder.path / "manifest.json").write_text(found)
    with pytest.raises(
        RunError, match=r"run folder of format .*; this polarbear reads formats 1 and 2"
    ):
        RunFolder.open(folder.path)


def test_lines_come_back_in_their_order(folder: RunFolder) -> None:
    assert list(folder.lines("epochs")) == []
    records = [{"epoch": i, "valid": i / 3, "score": np.float64(i)} for i in range(3)]
    for record in records:
        folder.append("epochs", record)
    assert list(folder.lines("epochs")) == records
    assert list(folder.lines("scores")) == []


def test_nan_is_written_as_null(folder: RunFolder) -> None:
    folder.append("scores", {"late": math.nan, "row": np.array([1.0, np.nan, np.inf])})
    assert list(folder.lines("scores")) == [{"late": None, "row": [1.0, None, None]}]


def test_a_line_that_was_cut_off_is_left_out(folder: RunFolder) -> None:
    folder.append("epochs", {"epoch": 0})
    with (folder.path / "epochs.jsonl").open("a") as file:
        file.write('{"epoch": 1, "va')
    assert list(folder.lines("epochs")) == [{"epoch": 0}]


def test_cutting_back_drops_what_came_later(folder: RunFolder) -> None:
    assert folder.sizes() == {"epochs": 0, "scores": 0}
    folder.append("epochs", {"epoch": 0})
    sizes = folder.sizes()
    before = (folder.path / "epochs.jsonl").read_bytes()
    folder.append("epochs", {"epoch": 1})
    folder.append("scores", {"after": 0})
    with (folder.path / "epochs.jsonl").open("a") as file:
        file.write('{"epoch": 2')
    folder.cut_back(sizes)
    assert (folder.path / "epochs.jsonl").read_bytes() == before
    assert list(folder.lines("scores")) == []
    folder.cut_back(sizes)
    assert (folder.path / "epochs.jsonl").read_bytes() == before


def test_lines_that_got_lost_are_noticed(folder: RunFolder) -> None:
    folder.append("epochs", {"epoch": 0})
    sizes = folder.sizes()
    os.truncate(folder.path / "epochs.jsonl", 5)
    with pytest.raises(RunError, match=r"epochs.jsonl lacks lines.*has 5 bytes.*counts on 42"):
        folder.cut_back(sizes)
    (folder.path / "epochs.jsonl").unlink()
    with pytest.raises(RunError, match="has 0 bytes"):
        folder.cut_back(sizes)


@given(arrays.arrays(np.bool_, st.tuples(st.integers(0, 9), st.integers(1, 19))))
def test_predictions_come_back(
    tmp_path_factory: pytest.TempPathFactory, predicted: np.ndarray
) -> None:
    folder = RunFolder(tmp_path_factory.mktemp("run"))
    folder.save_predictions(3, predicted)
    found = folder.predictions(3)
    assert found is not None
    assert found.dtype == bool
    assert np.array_equal(found, predicted)
    assert found.shape == predicted.shape


def test_predictions_are_kept_as_bits(folder: RunFolder) -> None:
    folder.save_predictions(0, np.ones((1000, 100), dtype=bool))
    assert (folder.path / "predictions" / "after_0.npz").stat().st_size < 100_000 / 8 + 1000


def test_what_was_not_kept_is_none(folder: RunFolder) -> None:
    assert folder.predictions(0) is None
    assert folder.raw(0) is None


@given(arrays.arrays(np.float32, (3, 4), elements=st.floats(width=32, allow_nan=False)))
def test_raw_scores_are_near_and_on_the_same_side_of_zero(
    tmp_path_factory: pytest.TempPathFactory, scores: np.ndarray
) -> None:
    folder = RunFolder(tmp_path_factory.mktemp("run"))
    folder.save_raw(0, scores)
    kept = folder.raw(0)
    assert kept is not None
    assert kept.dtype == np.float16
    wanted = np.clip(scores, -60000, 60000)
    assert np.allclose(kept, wanted, rtol=1e-3, atol=1e-7)
    for inclusive in (False, True):
        predicted = threshold(scores, Seen(("a", "b", "c", "d"), inclusive))
        assert np.array_equal(threshold(kept, Seen(("a", "b", "c", "d"), inclusive)), predicted)


def test_the_table_is_the_evaluators(tmp_path: Path) -> None:
    hierarchy = Hierarchy.from_children({"bear": ["polar", "brown"]})
    schedule = Schedule.of([["bear"], ["polar"], ["brown"]])
    leaves = ["polar", "brown"] * 5
    stream = Stream.build(hierarchy, schedule, leaves, leaves)
    settings = Settings("er", order=0).to_dict()
    manifest = {"settings": settings, "classes": [list(task) for task in schedule.tasks]}
    folder = RunFolder.create(tmp_path / "run", manifest)
    evaluator = Evaluator(stream)
    random = np.random.default_rng(0)
    for after in range(2):
        predicted = random.random((10, after + 1)) < 0.5
        scores = evaluator.add(after, predicted)
        by_task = {k: t[after, : after + 1] for k, t in evaluator.table.by_task.items()}
        for split in ("post_valid", "test"):
            shown = scores if split == "test" else dict.fromkeys(scores, 0.0)
            line = {"after": after, "split": split, "scores": shown, "by_task": by_task}
            folder.append("scores", line)
    table = folder.table()
    assert table.scores.keys() == evaluator.table.scores.keys()
    for name, column in evaluator.table.scores.items():
        assert np.array_equal(table.scores[name], column, equal_nan=True), name
    assert np.array_equal(table.r_jk, evaluator.table.r_jk, equal_nan=True)
    assert folder.table("post_valid").r.tolist()[:2] == [0.0, 0.0]


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    file = tmp_path / "file"
    write_whole(file, lambda out: out.write(b"old"))

    def fail(out: object) -> None:
        out.write(b"half")  # type: ignore[attr-defined]
        raise OSError("full")

    with pytest.raises(OSError, match="full"):
        write_whole(file, fail)
    assert file.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [file]


def test_files_may_be_read_by_the_group(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_json(tmp_path / "file", {"a": 1})
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o640


def test_a_folder_that_cannot_be_written_says_what_to_do(folder: RunFolder) -> None:
    for name in ("predictions", "raw"):
        (folder.path / name).write_text("in the way")
    (folder.path / "epochs.jsonl").mkdir()
    for write in (
        lambda: folder.append("epochs", {}),
        lambda: folder.save_predictions(0, np.ones((1, 1), dtype=bool)),
        lambda: folder.save_raw(0, np.ones((1, 1))),
    ):
        with pytest.raises(RunError, match=r"no more can be written .*make room, then `polarbear"):
            write()


def test_plain_data() -> None:
    value = {1: (np.int64(2), np.float32(0.5)), "a": {"b": np.array([[True]])}, "c": -math.inf}
    assert plain(value) == {"1": [2, 0.5], "a": {"b": [[True]]}, "c": None}
    assert json.loads(json.dumps(plain(value))) == plain(value)


def test_runs_are_found_below_a_folder(tmp_path: Path) -> None:
    for name in ("b", "a/deep", "c"):
        RunFolder.create(tmp_path / name, {})
    (tmp_path / "d").mkdir()
    found = [str(run.path.relative_to(tmp_path)) for run in find_runs(tmp_path)]
    assert found == ["a/deep", "b", "c"]


def test_the_environment_names_versions_and_hardware() -> None:
    found = environment()
    assert found.keys() == {"polarbear", "python", "numpy", "platform", "cores", "commit"}
    assert found["numpy"] == np.__version__


# What is damaged is told, never another number


def a_run(folder: Path) -> RunFolder:
    """Every file a reader opens, as small as can be."""
    settings = {"method": "er", "benchmark": "tiny", "order": 0, "seed": 1, "tasks": None}
    manifest = {"settings": settings, "classes": [["a"], ["b"]], "root": None, "threads": 1}
    run = RunFolder.create(folder, manifest)
    for after in range(2):
        row = {"pw_jaccard": 0.1 + after, "jaccard": 1 / 3, "late_recall": None}
        by_task = {name: [0.5] * (after + 1) for name in ("pw_jaccard", "jaccard")}
        run.append("scores", {"after": after, "split": "test", "scores": row, "by_task": by_task})
        run.append("epochs", {"task": after, "epoch": 0, "valid": 0.5})
        run.save_predictions(after, np.array([[True, False]] * 3))
        run.save_raw(after, np.array([[0.5, -0.5]] * 3))
    run.finish({"tasks": 2, "seconds": 12.5})
    return run


READERS: dict[str, Callable[[RunFolder], Any]] = {
    "manifest.json": RunFolder.manifest,
    "scores.jsonl": lambda run: json.loads(run.table().to_json()),
    "epochs.jsonl": lambda run: list(run.lines("epochs")),
    "finished.json": RunFolder.seconds,
    "predictions/after_1.npz": lambda run: plain(run.predictions(1)),
    "raw/after_1.npz": lambda run: plain(run.raw(1)),
}


@pytest.mark.parametrize("name", READERS)
def test_every_flipped_bit_is_told_or_changes_nothing(tmp_path: Path, name: str) -> None:
    run, file = a_run(tmp_path), tmp_path / name
    whole, text = READERS[name](run), file.read_bytes()
    told = 0
    step = 7 if file.suffix == ".npz" else 1  # their CRC finds any bit: those of each place do
    for bit in range(0, 8 * len(text), step):
        flipped = bytearray(text)
        flipped[bit // 8] ^= 1 << bit % 8
        file.write_bytes(flipped)
        try:
            assert READERS[name](run) == whole, flipped
        except RunError as error:
            told += str(tmp_path) in str(error)
    assert told > 2 * len(text) / step


def test_a_table_has_what_lines_say(tmp_path: Path) -> None:
    table = a_run(tmp_path).table()
    assert table.r.tolist() == [0.1, 1.1]
    assert np.array_equal(table.r_jk, [[0.5, np.nan], [0.5, 0.5]], equal_nan=True)


WRONG_LINES = (
    *("[]", "3", '"x"', "null", "{}", "{", "", "[" * 100_000, "\x00", "\xff"),
    '{"after": 0, "split": "test"}',
    '{"after": 0, "split": "test", "scores": [], "by_task": {}}',
    '{"after": 0, "split": "test", "scores": {"jaccard": "x"}, "by_task": {}}',
    '{"after": 0, "split": "test", "scores": {"jaccard": Infinity}, "by_task": {}}',
    '{"after": 0, "split": "test", "scores": {"jaccard": 1e999}, "by_task": {}}',
    '{"after": 0, "split": "test", "scores": {"jaccard": 1%s}, "by_task": {}}' % ("0" * 400),
    '{"after": 0, "split": "test", "scores": {"jaccard": [1]}, "by_task": {}}',
    '{"after": 0, "split": "test", "scores": {}, "by_task": {"jaccard": [1, 2]}}',
    '{"after": 0, "split": "test", "scores": {}, "by_task": {"jaccard": [[1]]}}',
    '{"after": 0, "split": "test", "scores": {}, "by_task": {"jaccard": 1}}',
    *(
        f'{{"after": {after}, "split": "test", "scores": {{}}, "by_task": {{}}}}'
        for after in ("-1", "9", '"0"', "true", "0.0")
    ),
)


def of_format_1(run: RunFolder, **changes: Any) -> None:
    write_json(run.path / "manifest.json", {**run.manifest(), "format": UNSEALED, **changes})


@pytest.mark.parametrize("line", WRONG_LINES)
def test_a_wrong_line_without_a_checksum_is_named(tmp_path: Path, line: str) -> None:
    run = a_run(tmp_path)
    of_format_1(run)
    with (tmp_path / "scores.jsonl").open("ab") as file:
        file.write(line.encode("latin-1") + b"\n")
    with pytest.raises(RunError, match=r"scores\.jsonl, line 3 is damaged"):
        run.table()


def test_a_score_of_another_version_is_kept(tmp_path: Path) -> None:
    run = a_run(tmp_path)
    run.append("scores", {"after": 1, "split": "test", "scores": {"new": 0.5}, "by_task": {}})
    assert np.array_equal(run.table().scores["new"], [np.nan, 0.5], equal_nan=True)


@pytest.mark.parametrize(
    "changes",
    [
        {"settings": []},
        {"settings": {"method": "er", "order": [1]}},
        {"settings": {"method": 3}},
        {"classes": 3},
        {"classes": [["a"], 3]},
        {"classes": [["a", 1]]},
        {"environment": None},
        {"threads": "x"},
    ],
)
def test_a_manifest_of_wrong_kinds_is_named(tmp_path: Path, changes: dict[str, Any]) -> None:
    run = a_run(tmp_path)
    of_format_1(run, **changes)
    with pytest.raises(RunError, match=r"manifest\.json is damaged \(its "):
        run.manifest()


@pytest.mark.parametrize(
    "text", ["[" * 100_000, '{"a":' * 100_000, "\xff", '{"seconds": []}', "{}"]
)
@pytest.mark.parametrize("name", ["manifest.json", "finished.json"])
def test_json_of_any_other_content_is_named(tmp_path: Path, name: str, text: str) -> None:
    run = a_run(tmp_path)
    of_format_1(run)
    (tmp_path / name).write_text(text, encoding="latin-1")
    with pytest.raises(RunError, match=str(tmp_path)):
        run.seconds()


def test_a_manifest_that_was_edited_by_hand_says_what_to_do(folder: RunFolder) -> None:
    file = folder.path / "manifest.json"
    file.write_text(file.read_text().replace('"seed": 1', '"seed": 2'))
    with pytest.raises(RunError, match=r"changed after it was written.*or begin a new run"):
        folder.manifest()


def test_other_spacing_is_no_damage(folder: RunFolder) -> None:
    file = folder.path / "manifest.json"
    before = folder.manifest()
    file.write_text(json.dumps(json.loads(file.read_text()), sort_keys=True))
    assert folder.manifest() == before


def test_raw_scores_of_format_1_are_read(tmp_path: Path) -> None:
    run = a_run(tmp_path)
    (tmp_path / "raw" / "after_0.npz").unlink()
    np.save(tmp_path / "raw" / "after_0.npy", np.ones((2, 2), np.float16))
    assert plain(run.raw(0)) == [[1, 1], [1, 1]]
    (tmp_path / "raw" / "after_0.npy").write_bytes(b"\x93NUMPY")
    with pytest.raises(RunError, match=r"after_0\.npy is damaged"):
        run.raw(0)


# Links


@pytest.mark.parametrize("name", ["epochs.jsonl", "scores.jsonl", "lock", "finished.json"])
def test_a_file_elsewhere_is_not_changed_through_a_link(folder: RunFolder, name: str) -> None:
    elsewhere = folder.path.with_name("elsewhere")
    elsewhere.write_text("mine\n")
    (folder.path / name).symlink_to(elsewhere)
    for change in (
        lambda: folder.append("epochs", {}),
        lambda: folder.append("scores", {}),
        lambda: folder.finish({}),
        lambda: folder.held().__enter__(),
    ):
        with pytest.raises(RunError, match=f"{name} is a link, and a run changes no files outside"):
            change()
    if name.endswith("jsonl"):
        with pytest.raises(RunError, match="is a link"):
            folder.cut_back({name.removesuffix(".jsonl"): 0})
    assert elsewhere.read_text() == "mine\n"


@pytest.mark.parametrize("name", ["predictions", "raw"])
def test_a_folder_elsewhere_is_not_filled_through_a_link(folder: RunFolder, name: str) -> None:
    elsewhere = folder.path.with_name("elsewhere")
    elsewhere.mkdir()
    (folder.path / name).symlink_to(elsewhere)
    for save in (folder.save_predictions, folder.save_raw):
        with pytest.raises(RunError, match=f"{name} is a link"):
            save(0, np.ones((1, 1), dtype=bool))
    assert not list(elsewhere.iterdir())


def test_a_link_in_the_place_of_a_half_written_file_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("mine")
    (tmp_path / ".file.part").symlink_to(tmp_path / "elsewhere")
    write_whole(tmp_path / "file", lambda out: out.write(b"new"))
    assert (tmp_path / "elsewhere").read_text() == "mine"
    assert (tmp_path / "file").read_bytes() == b"new"


def test_the_run_folder_itself_may_be_reached_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "scratch").mkdir()
    (tmp_path / "run").symlink_to(tmp_path / "scratch")
    a_run(tmp_path / "run")
    assert RunFolder(tmp_path / "scratch").finished


# On the disk


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is synced and renamed, in its order, as it is really done."""
    seen: list[str] = []
    fsync, replace = os.fsync, os.replace

    def watched_sync(descriptor: int) -> None:
        seen.append(f"sync {Path(f'/proc/self/fd/{descriptor}').readlink().name}")
        fsync(descriptor)

    def watched_replace(source: Any, target: Any) -> None:
        seen.append(f"name {Path(target).name}")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", watched_sync)
    monkeypatch.setattr(os, "replace", watched_replace)
    return seen


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")
def test_a_file_and_its_name_are_on_the_disk_and_so_are_new_folders(
    tmp_path: Path, calls: list[str]
) -> None:
    write_whole(tmp_path / "new" / "below" / "file", lambda out: out.write(b""))
    made = ["sync new", f"sync {tmp_path.name}"]
    assert calls == [*made, "sync .file.part", "name file", "sync below"]


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")
def test_all_that_a_finished_run_has_is_on_the_disk_before_it_says_so(
    folder: RunFolder, calls: list[str]
) -> None:
    folder.append("epochs", {"epoch": 0})
    folder.append("scores", {"after": 0})
    folder.save_predictions(0, np.ones((1, 1), dtype=bool))
    calls.clear()
    folder.finish({"seconds": 1})
    lines = ["sync epochs.jsonl", "sync scores.jsonl", "sync run"]
    assert calls == [*lines, "sync .finished.json.part", "name finished.json", "sync run"]


def test_a_file_system_that_cannot_sync_folders_is_no_hindrance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fsync = os.fsync

    def refuse_folders(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "Invalid argument")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", refuse_folders)
    write_whole(tmp_path / "file", lambda out: out.write(b"new"))
    assert (tmp_path / "file").read_bytes() == b"new"


def test_a_line_comes_after_the_last_whole_one(folder: RunFolder) -> None:
    for torn in (b'{"epoch": 1, "va', b"\x00" * 5000):
        folder.append("epochs", {"epoch": 0})
        with (folder.path / "epochs.jsonl").open("ab") as file:
            file.write(torn)
        folder.append("epochs", {"epoch": 1})
        assert [line["epoch"] for line in folder.lines("epochs")] == [0, 1]
        (folder.path / "epochs.jsonl").write_bytes(b'{"torn from the sta')
        folder.append("epochs", {"epoch": 2})
        assert [line["epoch"] for line in folder.lines("epochs")] == [2]
        (folder.path / "epochs.jsonl").unlink()
