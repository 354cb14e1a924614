"""Predictions go into a file and come back in the right order, or not at all."""

import json
from pathlib import Path

import numpy as np
import pytest

from polarbear.base.errors import PredictionError, UnknownNameError
from polarbear.benchmark.stream import Stream
from polarbear.cli import main
from polarbear.named.registry import load, nominal_stream
from polarbear.score.predictions import above, read_predictions, save_predictions


@pytest.fixture(scope="module")
def stream() -> Stream:
    return nominal_stream("iirc-shapes")


@pytest.fixture
def noisy(stream: Stream) -> dict[int, np.ndarray]:
    random = np.random.default_rng(0)
    return {j: random.random(stream.test(j).targets.shape) < 0.3 for j in range(len(stream))}


def test_what_is_saved_comes_back(tmp_path: Path, stream: Stream, noisy) -> None:
    file = read_predictions(save_predictions(tmp_path / "mine", stream, noisy))
    assert file.path == tmp_path / "mine.npz"
    assert (file.benchmark, file.order, file.split) == ("iirc-shapes-v1", 0, "test")
    assert file.tasks == tuple(range(7))
    for after, expected in noisy.items():
        np.testing.assert_array_equal(file.predicted(stream.test(after), after), expected)
    assert list(tmp_path.iterdir()) == [file.path]


def test_rows_bring_shuffled_predictions_into_order(tmp_path: Path, stream: Stream, noisy) -> None:
    view, path = stream.test(2), tmp_path / "p.npz"
    order = np.random.default_rng(1).permutation(len(view))
    np.savez(path, after_2=noisy[2][order], rows_2=view.rows[order])
    np.testing.assert_array_equal(read_predictions(path).predicted(view, 2), noisy[2])


def test_without_rows_the_order_is_the_views(tmp_path: Path, stream: Stream, noisy) -> None:
    np.savez(tmp_path / "p.npz", after_0=noisy[0].astype(np.uint8))
    file = read_predictions(tmp_path / "p.npz")
    assert (file.benchmark, file.order, file.split) == (None, None, None)
    np.testing.assert_array_equal(file.predicted(stream.test(0), 0), noisy[0])


def test_scores_need_a_threshold(tmp_path: Path, stream: Stream) -> None:
    view = stream.test(0)
    scores = np.where(view.targets, 0.6, 0.4)
    file = read_predictions(save_predictions(tmp_path / "p.npz", stream, {0: scores}))
    np.testing.assert_array_equal(file.predicted(view, 0, threshold=0.5), view.targets)
    assert not file.predicted(view, 0, threshold=0.6).any()
    with pytest.raises(PredictionError, match=r"after_0 has scores \(float64\).*--threshold 0 for"):
        file.predicted(view, 0)


def test_thresholds_leave_booleans_and_refuse_nan() -> None:
    np.testing.assert_array_equal(above([[True, False]], 5.0), [[True, False]])
    np.testing.assert_array_equal(above([[3, -1]], 0), [[True, False]])
    with pytest.raises(PredictionError, match="not a number"):
        above([[np.nan]], 0.5)
    with pytest.raises(PredictionError, match="must be booleans"):
        above([["a"]], 0.5)


def test_post_task_validation_has_its_own_rows(tmp_path: Path, stream: Stream) -> None:
    view = stream.post_valid(1)
    path = save_predictions(tmp_path / "p", stream, {1: view.targets}, split="post_valid")
    assert read_predictions(path).split == "post_valid"
    np.testing.assert_array_equal(read_predictions(path).predicted(view, 1), view.targets)
    with pytest.raises(UnknownNameError, match="did you mean 'post_valid'"):
        save_predictions(tmp_path / "p", stream, {}, split="post-valid")


def test_a_wrong_shape_is_refused_before_anything_is_written(tmp_path: Path, stream) -> None:
    with pytest.raises(PredictionError, match=r"after task 1 has the shape \(3, 11\); due are"):
        save_predictions(tmp_path / "p.npz", stream, {1: np.zeros((3, 11), bool)})
    assert not list(tmp_path.iterdir())


def test_a_list_of_predictions_is_refused_with_what_is_wanted(tmp_path: Path, stream) -> None:
    with pytest.raises(PredictionError, match=r"must be a dict .*came is list.*dict\(enumerate"):
        save_predictions(tmp_path / "p.npz", stream, [stream.test(0).targets])
    assert not list(tmp_path.iterdir())


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, stream, noisy, monkeypatch) -> None:
    path = save_predictions(tmp_path / "p.npz", stream, noisy)
    before = path.read_bytes()

    def full_disk(*_: object, **__: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(np, "savez_compressed", full_disk)
    with pytest.raises(OSError, match="disk full"):
        save_predictions(path, stream, {})
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def write(path: Path, **arrays: object) -> Path:
    np.savez(path, **arrays)
    return path


def test_files_that_are_no_predictions(tmp_path: Path) -> None:
    text = tmp_path / "p.npz"
    text.write_text("no arrays")
    for path, message in (
        (tmp_path / "none.npz", "there is no file"),
        (tmp_path, r"is a folder: give a \.npz file"),
        (text, "cannot be read as predictions"),
        (write(tmp_path / "empty.npz"), "needs an array after_0.* it has nothing"),
        (write(tmp_path / "other.npz", before_0=1), "it has before_0"),
        (write(tmp_path / "o.npz", after_0=1, order=0.5), "order must be one whole number"),
    ):
        with pytest.raises(PredictionError, match=message):
            read_predictions(path)
    np.save(tmp_path / "one.npy", np.zeros(3))
    with pytest.raises(PredictionError, match="File is not a zip file"):
        read_predictions(tmp_path / "one.npy")


def test_a_pickle_inside_is_never_loaded(tmp_path: Path, stream: Stream) -> None:
    path = tmp_path / "p.npz"
    np.savez(path, after_0=np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(PredictionError, match="cannot be read") as refusal:
        read_predictions(path).predicted(stream.test(0), 0)
    assert "allow_pickle" not in str(refusal.value)


def test_nobody_is_told_to_load_a_file_unsafely(tmp_path: Path) -> None:
    (tmp_path / "p.npz").write_text("no arrays")
    with pytest.raises(PredictionError, match="File is not a zip file") as refusal:
        read_predictions(tmp_path / "p.npz")
    assert "allow_pickle" not in str(refusal.value)


def test_a_cut_file_is_refused(tmp_path: Path, stream: Stream, noisy) -> None:
    path = save_predictions(tmp_path / "p.npz", stream, noisy)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(PredictionError, match="cannot be read as predictions"):
        read_predictions(path)


def test_a_flipped_byte_is_noticed(tmp_path: Path, stream: Stream, noisy) -> None:
    path = save_predictions(tmp_path / "p.npz", stream, noisy)
    content = bytearray(path.read_bytes())
    place = content.index(b"after_0.npy") + 400
    content[place] ^= 0xFF
    path.write_bytes(content)
    with pytest.raises(PredictionError, match="cannot be read"):
        read_predictions(path).predicted(stream.test(0), 0)


def test_rows_of_other_images_are_refused(tmp_path: Path, stream: Stream, noisy) -> None:
    view = stream.test(1)
    other = view.rows.copy()
    other[-1] += 1000
    for rows, message in (
        (other, f"differ first at {other[-1]}, where {view.rows[-1]} is due"),
        (np.where(view.rows == view.rows[1], view.rows[0], view.rows), "are not the rows"),
        (view.rows[:-1], f"must be {len(view)} row numbers"),
        (view.rows.astype(float), "must be .* row numbers"),
    ):
        path = write(tmp_path / "p.npz", after_1=noisy[1], rows_1=rows)
        with pytest.raises(PredictionError, match=message):
            read_predictions(path).predicted(view, 1)


def test_predictions_of_the_first_tasks_are_scored(tmp_path: Path, capsys) -> None:
    stream = load("iirc-shapes")
    truth = {j: stream.test(j).targets for j in range(3)}
    path = str(save_predictions(tmp_path / "p.npz", stream, truth))
    assert main(["score", path, "--table"]) == 0
    text = capsys.readouterr().out
    assert "order 0, test images, the first 3 of 7 tasks" in text
    assert [f"task {j}" in text for j in range(7)] == [True] * 3 + [False] * 4
    assert "mean of R_j: 1.000, forgetting at the end: 0.000" in text
    assert text.splitlines()[-1].split() == ["2", *["100"] * 3]
    assert main(["score", path, "--json"]) == 0
    scores = json.loads(capsys.readouterr().out)["scores"]
    assert scores["pw_jaccard"] == [1.0] * 3 + [None] * 4


def test_gaps_are_named(tmp_path: Path, stream: Stream, noisy) -> None:
    chosen = {j: noisy[j] for j in (0, 2, 3)}
    file = read_predictions(save_predictions(tmp_path / "p.npz", stream, chosen))
    with pytest.raises(PredictionError, match=r"lacks after_1.*it has them after 0, 2, 3"):
        file.refuse_gaps(4)
    with pytest.raises(PredictionError, match="lacks after_0, after_1:"):
        read_predictions(write(tmp_path / "late.npz", after_2=1)).refuse_gaps(4)
    with pytest.raises(PredictionError, match=r"has after_3, but .* tasks are 0 to 2"):
        read_predictions(
            write(tmp_path / "q.npz", after_0=1, after_1=1, after_2=1, after_3=1)
        ).refuse_gaps(3)
    with pytest.raises(PredictionError, match="lacks after_1"):
        file.predicted(stream.test(1), 1)
