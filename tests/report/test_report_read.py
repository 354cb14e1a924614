"""What the report reads: run folders and summaries, grouped; and what it says of bad ones."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from polarbear.base.errors import DataError, UnknownNameError
from polarbear.report.read.runs import read_run, read_runs
from polarbear.runs.folder import RunFolder
from polarbear.score.record import EpochRecord
from synthetic_runs import make_run, summary

TASKS = 7


def test_a_run_has_the_scores_its_folder_has(tmp_path: Path) -> None:
    make_run(tmp_path / "a")
    (run,) = read_runs(tmp_path).groups[0].runs
    table = RunFolder(tmp_path / "a").table()
    for name, values in table.scores.items():
        np.testing.assert_array_equal(run.scores[name], values)
    np.testing.assert_array_equal(run.by_task["pw_jaccard"], table.r_jk)
    assert (run.method, run.order, run.seed, run.finished) == ("er", 0, 100, True)
    assert run.done == tuple(range(TASKS))


def test_runs_are_grouped_over_orders_and_seeds(tmp_path: Path) -> None:
    for method in ("icarl-norm", "er"):
        for order in (0, 1):
            for seed in (100, 101):
                make_run(tmp_path / method / f"{order}-{seed}", method, order, seed)
    runs = read_runs(tmp_path)
    assert runs.benchmark == "iirc-shapes-v1"
    assert [(g.name, g.title, g.count) for g in runs.groups] == [
        ("er", "ER", 4),
        ("icarl-norm", "iCaRL-norm", 4),
    ]
    group = runs.group("er")
    stack = np.stack([run.scores["pw_jaccard"] for run in group.runs])
    np.testing.assert_allclose(group.mean("pw_jaccard"), stack.mean(axis=0))
    np.testing.assert_allclose(group.std("pw_jaccard"), stack.std(axis=0, ddof=1))
    by_task = np.stack([run.by_task["jaccard"] for run in group.runs])
    np.testing.assert_allclose(group.by_task_mean("jaccard"), by_task.mean(axis=0))
    np.testing.assert_allclose(group.by_task_std("jaccard"), by_task.std(axis=0, ddof=1))
    assert np.isnan(group.mean("implication")[0])
    with pytest.raises(UnknownNameError, match="unknown group of runs 'eer': did you mean 'er'"):
        runs.group("eer")


def test_unfinished_runs_count_as_far_as_they_are(tmp_path: Path) -> None:
    make_run(tmp_path / "a", seed=1)
    make_run(tmp_path / "b", seed=2, done=3)
    make_run(tmp_path / "c", seed=3, done=0)
    runs = read_runs(tmp_path)
    (group,) = runs.groups
    assert group.count == 2
    assert group.counts() == (2, 2, 2, 1, 1, 1, 1)
    np.testing.assert_array_equal(
        group.mean("pw_jaccard")[3:], group.runs[0].scores["pw_jaccard"][3:]
    )
    assert np.isfinite(group.std("pw_jaccard")[:3]).all()
    assert np.isnan(group.std("pw_jaccard")[3:]).all()
    assert runs.last == TASKS - 1
    assert runs.short == {tmp_path / "b": "it has come to task 2"}


@pytest.mark.parametrize(
    ("done", "last", "compared"),
    [
        ({"er": 7, "lucir": 2, "agem": 7}, 6, ["er", "agem"]),
        ({"er": 7, "lucir": 6}, 6, ["er"]),  # who is at the end need not wait
        ({"er": 6, "lucir": 5}, 4, ["er", "lucir"]),
        ({"er": 6, "lucir": 2}, 5, ["er"]),
        ({"er": 4, "lucir": 2}, 1, ["er", "lucir"]),
        ({"er": 4, "joint": 1}, 3, ["er"]),
        ({"er": 7, "joint": 1}, 6, ["er", "joint"]),
        ({"joint": 1}, 0, ["joint"]),
    ],
)
def test_a_short_run_does_not_cut_the_others(
    tmp_path: Path, done: dict[str, int], last: int, compared: list[str]
) -> None:
    for method, tasks in done.items():
        make_run(tmp_path / method, method, done=tasks)
    runs = read_runs(tmp_path)
    assert runs.last == last
    assert {group.name for group in runs.compared} == set(compared)
    assert {path.name for path in runs.short} == set(done) - set(compared)


def test_why_a_run_is_short_is_said(tmp_path: Path) -> None:
    make_run(tmp_path / "er", done=4)
    make_run(tmp_path / "joint", "joint")
    asked = make_run(tmp_path / "few", "lucir", done=1, tasks=1)
    (asked / "finished.json").write_text('{"seconds": 1.0}')
    assert read_runs(tmp_path).short == {
        tmp_path / "joint": "joint training has scores after the benchmark's last task alone",
        tmp_path / "few": "it ends with task 0",
    }


LINE = '{"after": 1, "split": "test", "scores": {"jaccard": %s}, "by_task": {"jaccard": %s}}'


@pytest.mark.parametrize(
    "bad",
    [
        '{"after": 1, "split": "te',
        "[]",
        "[" * 100_000,
        '{"after": 99, "split": "test", "scores": {"jaccard": 0}, "by_task": {}}',
        '{"after": 1, "split": "test", "scores": {"jaccard": "x"}, "by_task": {}}',
        LINE % ("Infinity", "[0, 0]"),
        LINE % ("1e999", "[0, 0]"),
        LINE % ("0", "[0, -Infinity]"),
        LINE % ("0", "[0, 0, 0]"),
        LINE % ("1" * 400, "[0, 0]"),
    ],
)
def test_a_run_with_a_damaged_line_is_left_out_by_name(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, bad: str
) -> None:
    whole, damaged = make_run(tmp_path / "a"), make_run(tmp_path / "b", seed=2)
    file = damaged / "scores.jsonl"
    lines = file.read_text().splitlines()
    file.write_text("\n".join([*lines[:4], bad, *lines[4:]]) + "\n")
    (run,) = read_runs(tmp_path).groups[0].runs
    assert run.path == whole
    (message,) = caplog.messages
    assert message.startswith("left out: ")
    assert str(damaged) in message
    assert "damaged" in message
    assert len(message.splitlines()) == 1


#: Where a manifest can be wrong, and how.
WRONG = {
    "settings.order": ([1], "0", 1.5, True, {}),
    "settings.seed": ([], "x"),
    "settings.method": (None, 5, ["er"]),
    "settings.benchmark": (None, 5, "x" * 5000),
    "settings.options": ([1], "x", None),
    "settings.tasks": ("2", [2]),
    "settings": ([], None, "x"),
    "classes": (None, 5, "abc", [[1]], [[]], [["a", "a"]], [[["a"]]], {"a": 1}),
    "root": (5, []),
    "format": ("1", [], {}),
}


@pytest.mark.parametrize(("key", "value"), [(k, v) for k, vs in WRONG.items() for v in vs])
def test_a_run_with_a_wrong_manifest_is_left_out_by_name(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, key: str, value: object
) -> None:
    make_run(tmp_path / "a")
    file = make_run(tmp_path / "b", seed=2) / "manifest.json"
    manifest = json.loads(file.read_text())
    *above, last = key.split(".")
    (manifest[above[0]] if above else manifest)[last] = value
    file.write_text(json.dumps(manifest))
    assert read_runs(tmp_path).count == 1
    (message,) = caplog.messages
    assert str(tmp_path / "b") in message
    assert len(message) < 8000


@pytest.mark.parametrize(
    "content",
    [
        "[" * 100_000,
        '{"r": [0.5, Infinity]}',
        '{"r": ["0.5", 0.5]}',
        '{"r": [true, false]}',
        '{"r": [[0.5], [0.5]]}',
        '{"r": [0.5, 0.5], "order": [1]}',
        '{"r": [0.5, 0.5], "method": null}',
        '{"r": [0.5, 0.5], "method": {}}',
        '{"r": [0.5, 0.5], "benchmark": 3}',
        '{"r": [0.5, 0.5], "seed": "x"}',
        '{"r": [0.5, 0.5], "settings": []}',
        '{"r": [0.5, 0.5], "settings": {"options": 3}}',
        '{"r": [0.5, 0.5], "scores": [1]}',
        '{"r": [0.5, 0.5], "scores": {"jaccard": [1, {}]}}',
        '{"r": [0.5, 0.5], "r_jk": [1, 2]}',
        '{"r": [0.5, 0.5], "r_jk": [[0.5, null], [0.5, 1e400]]}',
        '{"r": [' + "0.5," * 10_000 + "0.5]}",
        "\udcff",
    ],
)
def test_a_wrong_summary_is_left_out_by_name(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, content: str
) -> None:
    folder = tmp_path / "iirc-cifar" / "er"
    summary(folder / "order-0.json", [0.5, 0.5])
    (folder / "order-1.json").write_bytes(content.encode(errors="surrogateescape"))
    assert read_runs(tmp_path).count == 1
    (message,) = caplog.messages
    assert str(folder / "order-1.json") in message


def test_a_run_with_a_damaged_manifest_is_left_out_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    make_run(tmp_path / "a", seed=1)
    for name, text in (("b", "{"), ("c", '{"format": 1}'), ("d", '{"format": 7}')):
        (make_run(tmp_path / name, seed=2) / "manifest.json").write_text(text)
    assert read_runs(tmp_path).count == 1
    assert all(str(tmp_path / n) in m for n, m in zip("bcd", caplog.messages, strict=True))
    assert "format 7" in caplog.messages[2]


def test_empty_and_missing_folders_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no run with scores in .*: give folders that `polarbear"):
        read_runs(tmp_path)
    with pytest.raises(DataError, match=r"there is no folder .*nowhere"):
        read_runs([tmp_path, tmp_path / "nowhere"])
    with pytest.raises(UnknownNameError, match="unknown split 'tset': did you mean 'test'"):
        read_runs(tmp_path, split="tset")


def test_runs_of_different_benchmarks_are_refused_with_a_list(tmp_path: Path) -> None:
    for name in "abcde":
        make_run(tmp_path / name, seed=ord(name))
    make_run(tmp_path / "z", benchmark="iirc-cifar")
    with pytest.raises(DataError, match="different benchmarks") as refused:
        read_runs(tmp_path)
    lines = str(refused.value).splitlines()
    assert lines[1] == f"  iirc-cifar-v1: {tmp_path / 'z'}"
    assert lines[2].startswith(f"  iirc-shapes-v1: {tmp_path / 'a'}, ")
    assert lines[2].endswith(" and 2 more")


def test_the_same_benchmark_with_and_without_its_version_is_one(tmp_path: Path) -> None:
    make_run(tmp_path / "a", seed=1)
    make_run(tmp_path / "b", seed=2, benchmark="iirc-shapes-v1")
    assert read_runs(tmp_path).groups[0].count == 2


def test_settings_that_differ_make_groups_sorted_by_value(tmp_path: Path) -> None:
    for size in (100, 5, 20, None):
        make_run(tmp_path / str(size), memory_per_class=size)
    make_run(tmp_path / "alone", "finetune", memory_per_class=7)
    runs = read_runs(tmp_path)
    assert runs.names == (
        "finetune",
        *("er, memory 5", "er, memory 20", "er, memory 100", "er, memory all"),
    )
    assert [group.title for group in runs.groups[:2]] == ["finetune", "ER, memory 5"]
    assert runs.groups[1].settings == {"memory_per_class": 5}


def test_a_total_memory_is_named_only_where_there_is_one(tmp_path: Path) -> None:
    make_run(tmp_path / "a", memory_total=200)
    make_run(tmp_path / "b", memory_per_class=None)
    make_run(tmp_path / "c")
    assert set(read_runs(tmp_path).names) == {
        *("er, memory 20, total memory 200", "er, memory all", "er, memory 20")
    }
    assert set(read_runs([tmp_path / "a", tmp_path / "c"]).names) == {"er, total memory 200", "er"}


def test_options_and_rules_tell_groups_apart_but_devices_do_not(tmp_path: Path) -> None:
    make_run(tmp_path / "a", seed=1, device="cpu", keep_scores=True, tasks=7)
    make_run(tmp_path / "b", seed=2, device="cuda")
    make_run(tmp_path / "c", seed=3, decision="top1")
    make_run(tmp_path / "d", seed=4, options={"scale": 2})
    counts = {group.name: group.count for group in read_runs(tmp_path).groups}
    assert counts == {
        "er, decision threshold": 2,
        "er, decision threshold, scale 2": 1,
        "er, decision top1": 1,
    }


def test_runs_of_an_oracle_are_never_shown_without_saying_so(tmp_path: Path) -> None:
    make_run(tmp_path / "a", seed=1, decision="top1-per-level")
    file = make_run(tmp_path / "b", "lucir", decision="not_there:rule") / "manifest.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"oracle_rule": True}))
    make_run(tmp_path / "c", "agem", decision="not_there:rule")
    assert [group.title for group in read_runs(tmp_path).groups] == [
        "ER, decision top1-per-level (oracle)",
        "A-GEM",
        "LUCIR, decision not_there:rule (oracle)",
    ]


def rewritten(folder: Path, **more: Any) -> None:
    """Write more into a run's manifest."""
    file = folder / "manifest.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | more))


def test_a_method_that_is_not_ours_has_the_title_of_its_class(tmp_path: Path) -> None:
    rewritten(make_run(tmp_path / "a", "not_there:Mine"), title="My\nmethod")
    make_run(tmp_path / "b", "not_there:Mine", seed=2)
    rewritten(make_run(tmp_path / "c", "agem"), title="mine, too")
    told = {"title": "Told", "oracle": True, "method": "not_there:Told"}
    summary(tmp_path / "iirc-shapes" / "t" / "order-0.json", [0.5] * 7, **told)
    groups = read_runs(tmp_path).groups
    assert [group.title for group in groups] == ["A-GEM", "My method", "Told (oracle)"]
    assert [group.method_title for group in groups] == ["A-GEM", "My method", "Told (oracle)"]


def test_a_strangers_title_is_never_taken_for_ours_and_an_oracle_never_for_none(
    tmp_path: Path,
) -> None:
    make_run(tmp_path / "a", "er")
    rewritten(make_run(tmp_path / "b", "not_there:Mine"), title="ER")
    rewritten(make_run(tmp_path / "c", "here:Told"), oracle=True)
    rewritten(make_run(tmp_path / "d", "there:Told"), oracle=True)
    assert [group.title for group in read_runs(tmp_path).groups] == [
        "er",
        "here:Told (oracle)",
        "not_there:Mine",
        "there:Told (oracle)",
    ]


def test_a_title_that_is_no_text_is_damage(tmp_path: Path) -> None:
    rewritten(make_run(tmp_path / "a"), title=3)
    with pytest.raises(DataError, match="its title is 3"):
        read_run(tmp_path / "a")


def test_settings_an_older_version_did_not_write_have_their_defaults(tmp_path: Path) -> None:
    make_run(tmp_path / "a", seed=1)
    file = make_run(tmp_path / "b", seed=2) / "manifest.json"
    manifest = json.loads(file.read_text())
    del manifest["settings"]["precision"], manifest["settings"]["decision"]
    file.write_text(json.dumps(manifest))
    assert read_runs(tmp_path).names == ("er",)


def test_runs_from_before_a_setting_of_several_numbers_are_in_the_group_of_its_default(
    tmp_path: Path,
) -> None:
    old = make_run(tmp_path / "old", order=0)
    make_run(tmp_path / "new", order=1)
    make_run(tmp_path / "other", order=0, schedule="steps", rate_steps=(0.3, 0.6))
    make_run(tmp_path / "usual", order=0, schedule="steps")
    manifest = json.loads((old / "manifest.json").read_text())
    for name in ("schedule", "rate_steps"):
        del manifest["settings"][name]
    (old / "manifest.json").write_text(json.dumps(manifest))
    assert {group.name: len(group.runs) for group in read_runs(tmp_path).groups} == {
        "er, schedule plateau": 2,
        "er, schedule steps, rate steps 0.3 0.6": 1,
        "er, schedule steps, rate steps 0.5 0.75": 1,
    }


def test_options_of_a_preparation_tell_runs_apart_and_none_do_not(tmp_path: Path) -> None:
    old = make_run(tmp_path / "old", order=0)
    make_run(tmp_path / "new", order=1)
    manifest = json.loads((old / "manifest.json").read_text())
    del manifest["settings"]["preparation_options"]
    (old / "manifest.json").write_text(json.dumps(manifest))
    assert {group.name: len(group.runs) for group in read_runs(tmp_path).groups} == {"er": 2}
    for name, side in (("small", 32), ("large", 64)):
        own = {"preparation": "mine:images", "preparation_options": {"side": side}}
        make_run(tmp_path / "own" / name, **own)
    assert {group.name: len(group.runs) for group in read_runs(tmp_path / "own").groups} == {
        "er, preparation side 32": 1,
        "er, preparation side 64": 1,
    }


def test_the_same_run_twice_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    make_run(tmp_path / "a")
    make_run(tmp_path / "b")
    assert read_runs([tmp_path, tmp_path / "a"]).count == 2
    (message,) = caplog.messages
    assert f"{tmp_path / 'a'} and {tmp_path / 'b'} have the same order 0 and seed 100" in message


def test_what_is_under_way_does_not_lower_the_cost(tmp_path: Path) -> None:
    for name, order, done, images in (("a", 0, None, 300), ("b", 1, 2, 100)):
        folder = RunFolder(make_run(tmp_path / name, order=order, done=done))
        folder.append("epochs", EpochRecord(0, 0, 0.5, 1.0, 0.5, images, 1.0).to_json())
    assert read_runs(tmp_path).groups[0].cost("passes") == 300
    assert read_runs(tmp_path / "b").groups[0].cost("passes") == 100


def test_joint_training_stands_at_the_last_task(tmp_path: Path) -> None:
    make_run(tmp_path / "a")
    make_run(tmp_path / "b", "joint")
    joint = read_runs(tmp_path).group("joint")
    own = RunFolder(tmp_path / "b").table().r
    np.testing.assert_array_equal(joint.mean("pw_jaccard"), [*[np.nan] * 6, own[0]])
    assert np.isnan(joint.by_task_mean()).all()
    assert joint.runs[0].moment(6) == 0


def test_post_validation_scores_are_read_on_request(tmp_path: Path) -> None:
    make_run(tmp_path / "a")
    runs = read_runs(tmp_path, split="post_valid")
    expected = RunFolder(tmp_path / "a").table("post_valid").r
    np.testing.assert_array_equal(runs.groups[0].mean("pw_jaccard"), expected)


def test_summaries_are_runs_with_what_they_have(tmp_path: Path) -> None:
    more = {"order": 1, "seed": 100, "r_top1": [0.1, 0.2], "r_valid": [0.3, None]}
    summary(tmp_path / "iirc-cifar" / "er" / "order-0.json", [0.7, 0.3], order=0, seed=100)
    summary(tmp_path / "iirc-cifar" / "er" / "order-1.json", [0.8, 0.4], **more)
    runs = read_runs(tmp_path)
    assert (runs.benchmark, runs.names, runs.count) == ("iirc-cifar-v1", ("er",), 2)
    np.testing.assert_allclose(runs.groups[0].mean("pw_jaccard"), [0.75, 0.35])
    np.testing.assert_allclose(runs.groups[0].mean("pw_jaccard/top1"), [0.1, 0.2])
    assert np.isnan(runs.groups[0].mean("jaccard")).all()
    assert runs.groups[0].runs[0].predictions(0) is None
    valid = read_runs(tmp_path, split="post_valid").groups[0]
    np.testing.assert_array_equal(valid.mean("pw_jaccard"), [0.3, np.nan])


def test_a_summary_of_a_run_says_what_the_run_says(tmp_path: Path) -> None:
    from polarbear.runs.result_file import result_path, summarise

    folder = make_run(tmp_path / "runs" / "a")
    manifest = json.loads((folder / "manifest.json").read_text())
    versions = dict.fromkeys(("polarbear", "python", "numpy", "torch", "commit", "device"), "1")
    (folder / "manifest.json").write_text(json.dumps(manifest | {"environment": versions}))
    content = summarise(RunFolder(folder))
    summary(result_path(tmp_path / "results", content), **content)
    ours, theirs = (read_runs(tmp_path / name).groups[0].runs[0] for name in ("runs", "results"))
    for name, values in ours.scores.items():
        np.testing.assert_array_equal(theirs.scores[name], values)
    np.testing.assert_array_equal(theirs.by_task["pw_jaccard"], ours.by_task["pw_jaccard"])


def test_a_damaged_summary_is_left_out_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "iirc-cifar" / "er"
    summary(folder / "order-0.json", [0.7, 0.3])
    summary(folder / "order-1.json", [0.7, 0.3], r_top1=[1])
    (folder / "order-2.json").write_text('{"r": 3}')
    (folder / "order-3.json").write_text("{")
    assert read_runs(tmp_path).count == 1
    assert len(caplog.messages) == 3
    assert "order-1.json is damaged" in caplog.messages[0]
    assert "order-2.json is no result summary: it has no list 'r'" in caplog.messages[1]
    assert "order-3.json is damaged" in caplog.messages[2]


def test_several_processes_read_the_same_runs_in_the_same_order(
    tmp_path: Path, monkeypatch, caplog
) -> None:
    for order in range(4):
        make_run(tmp_path / f"{order}", order=order, level=0.1 * (order + 1))
    (tmp_path / "2" / "scores.jsonl").write_text("no JSON\n")
    alone = read_runs(tmp_path)
    warned = caplog.messages
    caplog.clear()
    monkeypatch.setattr("polarbear.report.read.runs.MANY", 1)
    together = read_runs(tmp_path, jobs=2)
    assert caplog.messages == warned
    assert "scores.jsonl, line 1" in warned[0]
    (mine,), (other,) = alone.groups, together.groups
    assert [run.path for run in other.runs] == [run.path for run in mine.runs]
    for one, two in zip(mine.runs, other.runs, strict=True):
        np.testing.assert_equal(dict(two.scores), dict(one.scores))
