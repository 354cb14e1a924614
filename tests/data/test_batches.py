"""Batches: augmentation against a slow twin, shuffling by key, normalisation, labels."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from polarbear import Evaluator, Hierarchy, Schedule, Stream
from polarbear.base.errors import DataError
from polarbear.data.batches import Normalise, batches, evaluation_batches, pad_crop_flip

BEARS = Hierarchy.from_children({"bear": ["polar bear", "brown bear"]}, alone=["lamp"])
SCHEDULE = Schedule.of([["bear"], ["lamp", "polar bear"], ["brown bear"]])
AS_IS = Normalise(mean=(0.0, 0.0, 0.0), std=(1 / 255,) * 3)


@pytest.fixture(scope="module")
def stream() -> Stream:
    leaves = ["polar bear", "brown bear", "lamp"]
    return Stream.build(BEARS, SCHEDULE, leaves * 60, leaves * 20)


def numbered(count: int, side: int = 4) -> np.ndarray:
    """Images that are all one colour, which is their row number."""
    rows = np.arange(count)
    colour = np.stack([rows % 256, rows // 256, np.zeros_like(rows)], axis=1).astype(np.uint8)
    return np.broadcast_to(colour[:, None, None], (count, side, side, 3))


def row_numbers(x: np.ndarray) -> list[int]:
    red, green = np.rint(x[:, :2, 0, 0]).astype(int).T
    return (red + 256 * green).tolist()


def slow_pad_crop_flip(
    images: np.ndarray, random: np.random.Generator, pad: int
) -> list[np.ndarray]:
    n, h, w, _ = images.shape
    corners = random.integers(0, 2 * pad + 1, (n, 2))
    mirror = random.random(n) < 0.5
    made = []
    for image, (y, x), flip in zip(images, corners, mirror, strict=True):
        padded = np.pad(image, ((pad, pad), (pad, pad), (0, 0)))
        cut = padded[y : y + h, x : x + w]
        made.append(cut[:, ::-1] if flip else cut)
    return made


class TestAugmentation:
    @given(
        n=st.integers(0, 9),
        h=st.integers(1, 9),
        w=st.integers(1, 9),
        pad=st.integers(0, 5),
        seed=st.integers(0, 2**32),
    )
    def test_it_is_its_slow_twin(self, n, h, w, pad, seed):
        images = np.random.default_rng(seed).integers(1, 256, (n, h, w, 3), np.uint8)
        before = images.copy()
        fast = pad_crop_flip(images, np.random.default_rng(seed), pad)
        slow = slow_pad_crop_flip(images, np.random.default_rng(seed), pad)
        assert fast.shape == images.shape
        assert fast.dtype == np.uint8
        np.testing.assert_array_equal(fast, np.array(slow).reshape(images.shape))
        np.testing.assert_array_equal(images, before)

    def test_every_place_and_both_sides_are_reached_about_equally(self):
        # Each pixel says where it is, so that a pixel in the middle tells shift and side.
        y, x = np.indices((32, 32), dtype=np.uint8)
        image = np.stack([y, x, np.full_like(x, 9)], axis=-1)
        n = 16_200
        made = pad_crop_flip(np.broadcast_to(image, (n, 32, 32, 3)), np.random.default_rng(0))
        flipped = made[:, 16, 17, 1] < made[:, 16, 16, 1]
        column = np.where(flipped, 31 - 16, 16)
        up, left = made[:, 16, 16, 0].astype(int) - 16, made[:, 16, 16, 1].astype(int) - column
        found = Counter(zip(up.tolist(), left.tolist(), flipped.tolist(), strict=True))
        places = range(-4, 5)
        assert set(found) == {(a, b, f) for a in places for b in places for f in (False, True)}
        assert 50 < min(found.values()) <= max(found.values()) < 160

    def test_padding_is_black_before_normalisation(self):
        white = np.full((200, 32, 32, 3), 255, np.uint8)
        made = pad_crop_flip(white, np.random.default_rng(0))
        assert set(np.unique(made).tolist()) == {0, 255}
        assert made[:, 4:28, 4:28].min() == 255


class TestNormalise:
    @pytest.mark.parametrize("normalise", [Normalise(), Normalise((0.4, 0.5, 0.6), (0.2, 0.3, 1))])
    def test_every_value_is_exact_to_a_millionth(self, normalise):
        grey = np.repeat(np.arange(256, dtype=np.uint8), 3).reshape(4, 8, 8, 3)
        expected = (grey / 255 - normalise.mean) / normalise.std
        made = normalise(grey)
        assert made.dtype == np.float32
        assert made.shape == (4, 3, 8, 8)
        np.testing.assert_allclose(made, expected.transpose(0, 3, 1, 2), rtol=0, atol=1e-6)

    def test_the_defaults_are_the_papers(self):
        assert Normalise().mean == (0.5071, 0.4866, 0.4409)
        assert Normalise().std == (0.2009, 0.1984, 0.2023)

    def test_parts_of_larger_images_and_none(self):
        large = np.random.default_rng(0).integers(0, 256, (5, 9, 12, 3), np.uint8)
        part = large[::2, 1:8, 10:2:-1]
        np.testing.assert_array_equal(Normalise()(part), Normalise()(part.copy()))
        assert Normalise()(large[:0]).shape == (0, 3, 9, 12)


class TestBatches:
    @pytest.mark.parametrize("augment", [False, True])
    def test_every_row_comes_once_with_its_labels(self, stream, augment):
        images = numbered(len(stream.train_leaf), side=16)
        for task in stream:
            # The middle of a 16×16 image stays inside whatever the shift.
            found = {}
            for x, y in batches(
                task.train, images, seed=1, epoch=2, size=7, augment=augment, normalise=AS_IS
            ):
                rows = row_numbers(x[:, :, 8:, 8:])
                assert not set(rows) & set(found)
                found |= dict(zip(rows, y.tolist(), strict=True))
            expected = zip(task.train.rows.tolist(), task.train.targets.tolist(), strict=True)
            assert found == dict(expected)

    def test_augmented_batches_are_the_slow_twins(self, stream):
        view = stream[0].train
        images = np.random.default_rng(3).integers(0, 256, (180, 32, 32, 3), np.uint8)
        random = np.random.default_rng([5, len(view.classes), 6])
        order = random.permutation(len(view))
        made = list(batches(view, images, seed=5, epoch=6, size=40))
        for start, (x, y) in zip(range(0, len(view), 40), made, strict=True):
            chosen = order[start : start + 40]
            cut = np.array(slow_pad_crop_flip(images[view.rows[chosen]], random, 4))
            slow = (cut / 255 - Normalise().mean) / Normalise().std
            np.testing.assert_allclose(x, slow.transpose(0, 3, 1, 2), rtol=0, atol=1e-6)
            np.testing.assert_array_equal(y, view.targets[chosen])

    def test_only_the_last_batch_is_smaller(self, stream):
        view, images = stream[1].train, numbered(180)
        sizes = [len(x) for x, _ in batches(view, images, seed=0, epoch=0, size=50)]
        assert sizes[:-1] == [50] * (len(sizes) - 1)
        assert sizes[-1] == len(view) % 50 > 0

    def test_the_same_key_gives_the_same_batches(self, stream):
        images = np.random.default_rng(0).integers(0, 256, (180, 8, 8, 3), np.uint8)

        def epoch(seed: int, epoch: int) -> np.ndarray:
            made = batches(stream[0].train, images, seed=seed, epoch=epoch)
            return np.concatenate([x for x, _ in made])

        np.testing.assert_array_equal(epoch(0, 0), epoch(0, 0))
        assert not np.array_equal(epoch(0, 0), epoch(0, 1))
        assert not np.array_equal(epoch(0, 0), epoch(1, 0))

    def test_a_view_without_rows_has_no_batches(self, stream):
        few = Stream.build(BEARS, SCHEDULE, ["polar bear"] * 30, ["polar bear"])
        assert list(batches(few[2].train, numbered(30), seed=0, epoch=0)) == []

    @pytest.mark.parametrize(
        ("given", "message"),
        [
            ({"size": 0}, "size must be a whole number from 1 upwards, not 0"),
            ({"size": 1.5}, "size must be a whole number from 1 upwards, not 1.5"),
            ({"seed": -1}, "seed must be a whole number from 0 upwards, not -1"),
            ({"epoch": -2}, "epoch must be a whole number from 0 upwards, not -2"),
        ],
    )
    def test_odd_numbers_are_refused_at_once(self, stream, given, message):
        with pytest.raises(DataError, match=message):
            batches(stream[0].train, numbered(180), **({"seed": 0, "epoch": 0} | given))


class TestEvaluationBatches:
    def test_rows_come_in_their_order_with_complete_labels(self, stream):
        view = stream.test(after=1)
        made = list(evaluation_batches(view, numbered(60), size=16, normalise=AS_IS))
        assert [len(x) for x, _ in made] == [16] * (len(view) // 16) + [len(view) % 16]
        assert [r for x, _ in made for r in row_numbers(x)] == view.rows.tolist()
        np.testing.assert_array_equal(np.concatenate([y for _, y in made]), view.targets)

    def test_one_pass_gives_every_score(self, stream):
        evaluator = Evaluator(stream)
        for j in range(len(stream)):
            made = evaluation_batches(stream.test(after=j), numbered(60), size=9)
            evaluator.add(after=j, predictions=(y for _, y in made))
        np.testing.assert_array_equal(evaluator.table.r_jk == 1, np.tri(3, dtype=bool))

    def test_an_empty_batch_is_refused_at_once(self, stream):
        with pytest.raises(DataError, match="size must be a whole number from 1"):
            evaluation_batches(stream.test(after=0), numbered(60), size=0)


def test_real_images_come_out_of_the_official_file(cifar_root):
    import polarbear

    stream = polarbear.load("iirc-cifar", 0, cifar_root)
    images, view = stream.images("test"), stream.test(after=0)
    x, y = next(evaluation_batches(view, images, size=100))
    pixels = images[view.rows[:100]] / 255
    expected = (pixels - Normalise().mean) / Normalise().std
    np.testing.assert_allclose(x, expected.transpose(0, 3, 1, 2), rtol=0, atol=1e-6)
    np.testing.assert_array_equal(y, view.targets[:100])
