import math
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from sklearn.metrics import f1_score, jaccard_score, precision_score, recall_score

from polarbear.base.errors import PredictionError
from polarbear.score import metrics
from polarbear.score.catalogue import image_scores
from polarbear.score.metrics import Ratio

METRICS = {score.name: score.compute for score in image_scores()}

SHAPES = st.tuples(st.integers(1, 12), st.integers(2, 9))


@st.composite
def pairs(draw):
    shape = draw(SHAPES)
    return draw(hnp.arrays(bool, shape)), draw(hnp.arrays(bool, shape))


def label_sets(matrix):
    return [set(np.flatnonzero(row).tolist()) for row in matrix]


def slow_scores(name, predictions, targets):
    return [
        SLOW[name](p, y) for p, y in zip(label_sets(predictions), label_sets(targets), strict=True)
    ]


SLOW = {
    "jaccard": lambda p, y: len(y & p) / len(y | p) if p else 0,
    "pw_jaccard": lambda p, y: len(y & p) / len(y | p) * len(y & p) / len(p) if p else 0,
    "exact_match": lambda p, y: float(p == y) if p else 0,
    "precision": lambda p, y: len(y & p) / len(p) if p else 0,
    "recall": lambda p, y: len(y & p) / len(y) if p and y else 0,
    "f1": lambda p, y: 2 * len(y & p) / (len(y) + len(p)) if p else 0,
}

SKLEARN = {
    "jaccard": jaccard_score,
    "precision": precision_score,
    "recall": recall_score,
    "f1": f1_score,
}


def test_no_property_test_has_a_deadline():
    assert settings.default.deadline is None


def test_the_table_has_the_metrics_of_the_paper_and_a_slow_twin_of_each():
    assert set(METRICS) == set(SLOW)
    for name, metric in METRICS.items():
        assert metric is getattr(metrics, name)


@pytest.mark.parametrize("name", METRICS)
@given(pair=pairs())
def test_scores_are_those_of_the_sets(name, pair):
    scores = METRICS[name](*pair)
    assert scores.dtype == np.float64
    assert scores.shape == (len(pair[0]),)
    np.testing.assert_allclose(scores, slow_scores(name, *pair), rtol=1e-15)


@pytest.mark.parametrize("name", SKLEARN)
@given(pair=pairs())
def test_means_are_those_of_scikit_learn(name, pair):
    predictions, targets = pair
    theirs = SKLEARN[name](targets, predictions, average="samples", zero_division=0)
    assert METRICS[name](predictions, targets).mean() == pytest.approx(theirs, abs=1e-12)


@pytest.mark.parametrize(
    ("predicted", "score"),
    [([1, 1, 0], 1), ([0, 1, 0], 1 / 2), ([1, 1, 1], 4 / 9), ([0, 0, 1], 0), ([0, 0, 0], 0)],
)
def test_pw_jaccard_of_the_worked_cases(predicted, score):
    assert metrics.pw_jaccard([predicted], [[1, 1, 0]])[0] == pytest.approx(score)


@pytest.mark.parametrize("name", METRICS)
def test_an_empty_prediction_scores_0_even_where_nothing_is_true(name):
    assert METRICS[name]([[0, 0], [0, 0]], [[0, 0], [0, 1]]).tolist() == [0, 0]


@pytest.mark.parametrize("name", METRICS)
def test_a_perfect_prediction_scores_1(name):
    truth = np.array([[1, 0, 1], [0, 1, 0]], bool)
    assert METRICS[name](truth, truth).tolist() == [1, 1]


@pytest.mark.parametrize("name", METRICS)
@given(pair=pairs(), more=st.integers(1, 300))
def test_classes_that_nobody_names_change_nothing(name, pair, more):
    wide = [np.pad(matrix, ((0, 0), (0, more))) for matrix in pair]
    np.testing.assert_array_equal(METRICS[name](*wide), METRICS[name](*pair))


@pytest.mark.parametrize("classes", [255, 256, 65_535, 65_536])
def test_counts_do_not_overflow(classes):
    everything = np.ones((1, classes), bool)
    one = np.zeros_like(everything)
    one[0, -1] = True
    assert metrics.precision(everything, one)[0] == 1 / classes
    assert metrics.recall(everything, everything)[0] == 1


@pytest.mark.parametrize("name", METRICS)
def test_a_view_with_gaps_in_memory_is_read_right(name):
    random = np.random.default_rng(0)
    predictions, targets = (random.random((9, 2 * 8)) < 0.4 for _ in range(2))
    gaps = METRICS[name](predictions[::2, ::2], targets[::2, ::2])
    whole = METRICS[name](predictions[::2, ::2].copy(), targets[::2, ::2].copy())
    np.testing.assert_array_equal(gaps, whole)


def test_whole_numbers_0_and_1_are_booleans():
    assert metrics.recall(np.array([[1, 0]], np.int8), np.array([[1, 1]], np.uint64))[0] == 0.5


@pytest.mark.parametrize(
    ("predictions", "message"),
    [
        (np.array([[0.2, 0.7]]), r"predictions must be booleans.*float64.*logits > 0.*> 0.5"),
        (np.array([[1.0, 0.0]], np.float32), "float32"),
        (np.array([[2, 0]]), "0 and 1; what came has 2 in it"),
        (np.array([[-1, 0]]), "what came has -1 in it"),
        (np.array([["a", "b"]]), "what came is <U1"),
        (np.array([True, False]), r"matrix \(images, classes\); what came has shape \(2,\)"),
        (np.array([[True, False, True]]), r"predictions are \(1, 3\) but targets are \(1, 2\)"),
    ],
)
def test_what_is_no_label_matrix_is_refused(predictions, message):
    with pytest.raises(PredictionError, match=message):
        metrics.pw_jaccard(predictions, [[1, 0]])


def test_bad_targets_are_called_targets():
    with pytest.raises(PredictionError, match="targets must be booleans"):
        metrics.jaccard([[1, 0]], np.array([[0.5, 0.5]]))


def slow_confusion(predictions, targets):
    counts = np.zeros((predictions.shape[1],) * 2, int)
    for p, y in zip(label_sets(predictions), label_sets(targets), strict=True):
        for i in y:
            for j in p:
                counts[i, j] += 1
    return counts


@given(pair=pairs())
def test_confusion_counts_predicted_labels_by_true_label(pair):
    counts = metrics.confusion(*pair)
    assert np.issubdtype(counts.dtype, np.integer)
    np.testing.assert_array_equal(counts, slow_confusion(*pair))


@given(pair=pairs())
def test_confusion_rates_are_shares_of_a_labels_images(pair):
    rates = metrics.confusion_rates(*pair)
    images = pair[1].sum(axis=0)
    np.testing.assert_allclose(rates * images[:, None], slow_confusion(*pair))
    assert not rates[images == 0].any()


def test_confusion_of_imagenet_full_is_cheaper_than_a_product_of_matrices():
    """A sixth of its processor time on one core, which other processes hardly change."""
    random = np.random.default_rng(0)
    targets = random.random((49_900, 1083), dtype=np.float32) < 0.002
    numbers = targets.astype(np.float32)
    started = time.process_time()
    counts = metrics.confusion(targets, targets)
    counted = time.process_time()
    product = numbers.T @ numbers
    assert counted - started < time.process_time() - counted
    np.testing.assert_array_equal(counts, product)


@given(pair=pairs())
def test_label_ratio(pair):
    predictions, targets = pair
    ratio = metrics.label_ratio(predictions, targets)
    assert ratio == Ratio(int(predictions.sum()), int(targets.sum()))


@given(data=st.data(), shape=SHAPES)
def test_implication_counts_predicted_classes_with_a_parent(data, shape):
    predictions = data.draw(hnp.arrays(bool, shape))
    parent = data.draw(hnp.arrays(int, shape[1], elements=st.integers(-1, shape[1] - 1)))
    cases = [
        parent[c] in predicted
        for predicted in label_sets(predictions)
        for c in predicted
        if parent[c] >= 0
    ]
    assert metrics.implication(predictions, parent) == Ratio(sum(cases), len(cases))


@given(pair=pairs())
def test_sibling_error_and_late_recall_count_what_they_say(pair):
    predictions, marked = pair
    both = [p & m for p, m in zip(label_sets(predictions), label_sets(marked), strict=True)]
    images = [m for m in label_sets(marked) if m]
    assert metrics.sibling_error(*pair) == Ratio(sum(map(bool, both)), len(images))
    assert metrics.late_recall(*pair) == Ratio(sum(map(len, both)), sum(map(len, images)))


def test_a_ratio_without_cases_is_nan_and_plain_otherwise():
    none = metrics.implication([[0, 1]], parent=[-1, -1])
    assert (none.count, none.of) == (0, 0)
    assert math.isnan(none.value)
    assert type(metrics.label_ratio([[1, 1]], [[1, 0]]).value) is float


@pytest.mark.parametrize(
    ("parent", "message"),
    [
        ([-1], r"one column number per class, \(2,\); its shape is \(1,\)"),
        ([-1, 2], "from 0 to 1, or -1 for none; what came is int64 from -1 to 2"),
        ([-2, 0], "from -2 to 0"),
        ([-1.0, 0.0], "what came is float64"),
    ],
)
def test_bad_parents_are_refused(parent, message):
    with pytest.raises(PredictionError, match=message):
        metrics.implication([[1, 0]], parent)


def test_siblings_of_another_shape_are_refused():
    with pytest.raises(PredictionError, match="but siblings are"):
        metrics.sibling_error([[1, 0]], [[1, 0, 0]])
    with pytest.raises(PredictionError, match="but late are"):
        metrics.late_recall([[1, 0]], [[1, 0, 0]])
