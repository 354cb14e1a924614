import json
import time
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polarbear.base.errors import DataError, PredictionError, ScheduleError, UnknownNameError
from polarbear.benchmark.hierarchy import Hierarchy
from polarbear.benchmark.schedule import Schedule
from polarbear.benchmark.stream import Stream
from polarbear.score.catalogue import image_scores, pair_scores, score_names
from polarbear.score.evaluate import Evaluator
from polarbear.score.record import BY_TASK
from polarbear.score.relations import Relations
from polarbear.score.table import ScoreTable

ANIMALS = Hierarchy.from_children(
    {"animal": {"bear": ["polar bear", "brown bear"], "cat": ["lion", "tiger"]}}, alone=["lamp"]
)
ANIMAL_TASKS = Schedule.of(
    [["animal", "lamp"], ["bear", "polar bear"], ["brown bear", "cat"], ["lion"], ["tiger"]]
)


def animals(images=3):
    leaf = list(ANIMALS.leaves) * images
    return Stream.build(ANIMALS, ANIMAL_TASKS, leaf * 10, leaf)


@st.composite
def streams(draw):
    """Any forest, any schedule of some of its classes, any images."""
    size = draw(st.integers(2, 9))
    parents = [-1, *(draw(st.integers(-1, i - 1)) for i in range(1, size))]
    hierarchy = Hierarchy(tuple(f"c{i}" for i in range(size)), tuple(parents))
    classes = draw(st.permutations(hierarchy.names))[: draw(st.integers(1, size))]
    tasks = np.array_split(classes, draw(st.integers(1, min(5, len(classes)))))
    images = st.lists(st.sampled_from(hierarchy.leaves), min_size=draw(st.sampled_from([0, 9])))
    return Stream.build(hierarchy, Schedule.of(tasks), draw(images) * 5, draw(images))


def guesses(stream, split="test", seed=0, share=0.4):
    """Random predictions after each task."""
    random = np.random.default_rng(seed)
    shapes = [getattr(stream, split)(after=j).targets.shape for j in range(len(stream))]
    return [random.random(shape) < share for shape in shapes]


def scored(stream, predictions, split="test"):
    evaluator = Evaluator(stream, split)
    for after, matrix in enumerate(predictions):
        evaluator.add(after=after, predictions=matrix)
    return evaluator.table


class SlowTwin:
    """The spec's definitions, one image and one set at a time."""

    def __init__(self, stream, after, predictions, split="test"):
        self.stream, self.hierarchy = stream, stream.hierarchy
        self.arrival = stream.schedule.task_of
        self.seen = stream.schedule.seen(after)
        leaf = stream.test_leaf if split == "test" else stream.train_leaf
        view = getattr(stream, split)(after=after)
        self.rows = view.rows.tolist()
        self.path = [self.hierarchy.labels_of(self.hierarchy.names[leaf[r]]) for r in self.rows]
        self.true = [set(path) & set(self.seen) for path in self.path]
        self.predicted = [{self.seen[c] for c in np.flatnonzero(row)} for row in predictions]

    @staticmethod
    def pw(y, p):
        return len(y & p) / len(y | p) * len(y & p) / len(p) if p else 0.0

    def r(self, rows=None):
        chosen = zip(self.rows, self.true, self.predicted, strict=True)
        return mean([self.pw(y, p) for row, y, p in chosen if rows is None or row in rows])

    def level(self, of_leaves):
        here = {c for c in self.seen if (not self.hierarchy.children(c)) == of_leaves}
        pairs = zip(self.true, self.predicted, strict=True)
        return mean([self.pw(y & here, p & here) for y, p in pairs if y & here])

    def label_ratio(self):
        return ratio(sum(map(len, self.predicted)), sum(map(len, self.true)))

    def implication(self):
        parent = self.hierarchy.parent
        cases = [parent(c) in p for p in self.predicted for c in p if parent(c) in self.seen]
        return ratio(sum(cases), len(cases))

    def sibling_error(self):
        hits = []
        for path, predicted in zip(self.path, self.predicted, strict=True):
            siblings = {
                other
                for up, own in pairwise(path)
                for other in self.hierarchy.children(up)
                if other != own and other in self.seen
            }
            if siblings:
                hits.append(bool(siblings & predicted))
        return ratio(sum(hits), len(hits))

    def late_recall(self):
        cases = [
            up in predicted
            for path, predicted in zip(self.path, self.predicted, strict=True)
            for up, below in pairwise(path)
            if up in self.seen and below in self.seen and self.arrival[below] > self.arrival[up]
        ]
        return ratio(sum(cases), len(cases))


def mean(values):
    return sum(values) / len(values) if values else np.nan


def ratio(count, of):
    return count / of if of else np.nan


def same(a, b):
    np.testing.assert_allclose(a, b, rtol=1e-12, equal_nan=True)


@pytest.mark.parametrize("split", ["test", "post_valid"])
@settings(max_examples=60)
@given(stream=streams(), seed=st.integers(0, 99))
def test_every_score_is_that_of_its_slow_twin(split, stream, seed):
    predictions = guesses(stream, split, seed)
    table = scored(stream, predictions, split)
    for j, matrix in enumerate(predictions):
        twin = SlowTwin(stream, j, matrix, split)
        same(table.r[j], twin.r())
        same(table.scores["pw_jaccard/superclass"][j], twin.level(of_leaves=False))
        same(table.scores["pw_jaccard/subclass"][j], twin.level(of_leaves=True))
        for score in pair_scores():
            same(table.scores[score.name][j], getattr(twin, score.name)())
        for k in range(len(stream)):
            rows = getattr(stream, split)(after=j, task=k).rows.tolist() if k <= j else []
            same(table.r_jk[j, k], twin.r(rows))


@settings(max_examples=60)
@given(stream=streams(), seed=st.integers(0, 99))
def test_forgetting_is_the_mean_fall_from_the_best(stream, seed):
    table = scored(stream, guesses(stream, seed=seed))
    slow = [
        mean(
            [
                max(table.r_jk[before, k] for before in range(k, j)) - table.r_jk[j, k]
                for k in range(j)
                if not np.isnan(table.r_jk[j, k])
            ]
        )
        for j in range(len(stream))
    ]
    same(table.forgetting, slow)
    assert np.isnan(table.forgetting[0])


@settings(max_examples=60)
@given(stream=streams(), seed=st.integers(0, 99))
def test_average_and_backward_transfer_by_hand(stream, seed):
    table = scored(stream, guesses(stream, seed=seed))
    r, r_jk = table.r, table.r_jk
    # A task without test images has no score, and its end no average.
    so_far = [[x for x in r[: j + 1] if not np.isnan(x)] for j in range(len(stream))]
    averages = [np.nan if np.isnan(end) else mean(x) for end, x in zip(r, so_far, strict=True)]
    same(table.average_incremental, averages)
    falls = [[r_jk[j, k] - r_jk[k, k] for k in range(j)] for j in range(len(stream))]
    slow = [mean([fall for fall in each if not np.isnan(fall)]) for each in falls]
    same(table.backward_transfer, slow)


def test_forgetting_of_a_worked_case():
    r_jk = np.array([[0.9, np.nan, np.nan], [0.5, 0.8, np.nan], [0.6, 0.2, 1.0]])
    scores = {name: np.zeros(3) for name in BY_TASK}
    table = ScoreTable("case", None, "test", scores, {"pw_jaccard": r_jk, "jaccard": r_jk})
    same(table.forgetting, [np.nan, 0.4, (0.3 + 0.6) / 2])


@settings(max_examples=60)
@given(stream=streams())
def test_an_oracle_scores_1_everywhere(stream):
    truth = [stream.test(after=j).targets for j in range(len(stream))]
    table = scored(stream, truth)
    present = [len(matrix) > 0 for matrix in truth]
    for score in image_scores():
        same(table.scores[score.name], np.where(present, 1, np.nan))
    for k in range(len(stream)):
        for j in range(len(stream)):
            some = k <= j and len(stream.test(after=j, task=k))
            same(table.r_jk[j, k], 1 if some else np.nan)
    assert not np.nan_to_num(table.scores["sibling_error"]).any()
    for name in ("label_ratio", "implication", "late_recall"):
        assert (np.nan_to_num(table.scores[name], nan=1) == 1).all()


@settings(max_examples=60)
@given(stream=streams(), seed=st.integers(0, 99), data=st.data())
def test_batches_of_any_sizes_give_the_same_bits(stream, seed, data):
    predictions = guesses(stream, seed=seed)
    whole, parts = Evaluator(stream), Evaluator(stream)
    for after in data.draw(st.permutations(range(len(stream)))):
        matrix = predictions[after]
        cuts = data.draw(st.lists(st.integers(0, len(matrix)), max_size=6).map(sorted))
        whole.add(after, matrix)
        parts.add(after, iter(np.split(matrix, cuts)))
    assert parts.table.to_json() == whole.table.to_json()


def test_the_size_of_the_chunks_changes_no_bit(monkeypatch):
    stream = animals(images=40)
    predictions = guesses(stream)
    table = scored(stream, predictions).to_json()
    monkeypatch.setattr("polarbear.score.evaluate.CHUNK", 50)
    assert scored(stream, predictions).to_json() == table


def cifar_like(order=0):
    """15 superclasses of 77 classes, and 23 classes without, as IIRC-CIFAR has them."""
    sizes = [5] * 13 + [6] * 2
    tree = {f"super{i}": [f"sub{i}.{k}" for k in range(n)] for i, n in enumerate(sizes)}
    hierarchy = Hierarchy.from_children(tree, alone=[f"alone{i}" for i in range(23)])
    schedule = Schedule.draw(hierarchy, seed=order, first=10, size=5)
    leaf = np.tile(np.flatnonzero(hierarchy.is_leaf), 10)
    return Stream.build(hierarchy, schedule, leaf, leaf)


def test_a_perfect_namer_of_fine_labels_alone_gets_0_615_on_cifar_and_is_found_out():
    stream = cifar_like()
    assert (len(stream), len(stream.classes)) == (22, 115)
    last = len(stream) - 1
    view = stream.test(after=last)
    fine = np.array([stream.hierarchy.is_leaf[stream.hierarchy.index(c)] for c in view.classes])
    scores = Evaluator(stream).add(after=last, predictions=view.targets & fine)
    assert scores["pw_jaccard"] == pytest.approx(0.615, abs=1e-12)
    assert scores["pw_jaccard/subclass"] == 1
    assert scores["pw_jaccard/superclass"] == 0
    assert scores["implication"] == 0
    assert scores["late_recall"] == 0
    assert scores["label_ratio"] == pytest.approx(100 / 177)


def test_earlier_images_are_scored_against_labels_that_came_later():
    stream = animals()
    evaluator = Evaluator(stream)
    for j in range(len(stream)):
        stays = stream.test(after=j).targets.copy()
        stays[:, 2:] = False
        evaluator.add(after=j, predictions=stays)
    # Labels of polar bear, brown bear, lion, tiger and lamp; of them one is predicted.
    labels = [[1, 1, 1, 1, 1], [3, 2, 1, 1, 1], [3, 3, 2, 2, 1], [3, 3, 3, 2, 1], [3, 3, 3, 3, 1]]
    same(evaluator.table.r_jk[:, 0], (1 / np.array(labels)).mean(axis=1))


def test_relations_of_three_levels():
    stream = animals()
    relations = Relations.of(stream, after=2)
    seen = stream.schedule.seen(2)
    assert seen == ("animal", "lamp", "bear", "polar bear", "brown bear", "cat")
    assert relations.parent.tolist() == [-1, -1, 0, 2, 2, 0]

    def names(table, leaf):
        return {seen[c] for c in np.flatnonzero(table[ANIMALS.index(leaf)])}

    assert names(relations.siblings, "polar bear") == {"brown bear", "cat"}
    # No lion has come yet, but its superclasses have.
    assert names(relations.siblings, "lion") == {"bear"}
    assert names(relations.siblings, "lamp") == set()
    # Bear came with polar bear, before brown bear; cat came, lion did not.
    assert names(relations.late, "polar bear") == {"animal"}
    assert names(relations.late, "brown bear") == {"animal", "bear"}
    assert names(relations.late, "lion") == {"animal"}
    assert names(relations.late, "lamp") == set()


def test_three_levels_by_hand():
    stream = animals(images=1)
    view = stream.test(after=2)
    assert [ANIMALS.names[leaf] for leaf in view.leaf] == list(ANIMALS.leaves)
    #          animal lamp bear polar brown cat
    guess = [
        [0, 0, 1, 0, 1, 0],  # a polar bear called a brown bear, animal forgotten
        [1, 0, 1, 0, 1, 0],  # a brown bear, right
        [1, 0, 0, 0, 0, 1],  # a lion, right so far
        [0, 0, 1, 0, 0, 0],  # a tiger called a bear
        [0, 1, 0, 0, 0, 0],  # a lamp, right
    ]
    scores = Evaluator(stream).add(after=2, predictions=np.array(guess))
    assert scores["pw_jaccard"] == pytest.approx((1 / 4 * 1 / 2 + 1 + 1 + 0 + 1) / 5)
    assert scores["sibling_error"] == 2 / 4
    assert scores["implication"] == 4 / 6
    # Polar bear → animal, brown bear → animal and bear, lion and tiger → animal.
    assert scores["late_recall"] == 3 / 5
    assert scores["pw_jaccard/superclass"] == pytest.approx((1 / 2 + 1 + 1 + 0) / 4)
    assert scores["pw_jaccard/subclass"] == pytest.approx((0 + 1 + 1) / 3)
    assert scores["label_ratio"] == 9 / 11


def test_tasks_may_come_in_any_order_and_be_left_out():
    stream = animals()
    predictions = guesses(stream)
    full = scored(stream, predictions)
    evaluator = Evaluator(stream)
    for after in (3, 0):
        evaluator.add(after=after, predictions=predictions[after])
    table = evaluator.table
    assert np.isnan(table.r).tolist() == [False, True, True, False, True]
    assert table.r[3] == full.r[3]
    same(table.r_jk[3], full.r_jk[3])
    assert np.isnan(table.r_jk[1:3]).all()
    same(table.forgetting, [np.nan] * 3 + [full.r_jk[0, 0] - full.r_jk[3, 0], np.nan])


def test_a_table_without_predictions_has_every_name_and_no_number():
    table = Evaluator(animals()).table
    assert tuple(table.scores) == score_names()
    assert all(np.isnan(values).all() for values in table.scores.values())
    assert {"f1/superclass", "exact_match/subclass", "late_recall"} <= set(score_names())


def test_a_plain_stream_without_superclasses_has_no_level_above():
    stream = Stream.build(
        Hierarchy.flat(["a", "b"]), Schedule.of([["a"], ["b"]]), ["a"], ["a", "b"]
    )
    table = scored(stream, [stream.test(after=j).targets for j in range(2)])
    for name in ("f1/superclass", "implication", "sibling_error", "late_recall"):
        assert np.isnan(table.scores[name]).all()
    same(table.scores["f1/subclass"], [1, 1])


def test_a_table_goes_through_json_unharmed():
    stream = animals()
    evaluator = Evaluator(stream)
    evaluator.add(after=1, predictions=guesses(stream)[1])
    table = evaluator.table
    text = table.to_json()
    assert "NaN" not in text
    assert json.loads(text)["scores"]["pw_jaccard"] == [None, float(table.r[1]), None, None, None]
    again = ScoreTable.from_json(text)
    assert again.to_json() == text
    assert (again.name, again.order, again.split) == ("custom", None, "test")
    for name, values in table.scores.items():
        np.testing.assert_array_equal(again.scores[name], values)
    np.testing.assert_array_equal(again.r_jk, table.r_jk)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not a score table .*JSONDecodeError"),
        ("[]", "keys name, order, split, scores and by_task"),
        ('{"name": "x"}', "KeyError: 'scores'"),
        ('{"scores": {"f1": "high"}, "by_task": {}}', "could not convert"),
        ('{"name": "", "order": 0, "split": "", "scores": {}, "by_task": {}}', "needs 'pw_jacc"),
    ],
)
def test_text_that_is_no_table_is_refused(text, message):
    with pytest.raises(DataError, match=message):
        ScoreTable.from_json(text)


def test_scores_of_different_lengths_are_refused():
    scores = {"pw_jaccard": np.zeros(2), "jaccard": np.zeros(3)}
    tables = dict.fromkeys(BY_TASK, np.zeros((2, 2)))
    with pytest.raises(DataError, match=r"scores\['jaccard'\] of a table of 2 tasks must be \(2,"):
        ScoreTable("x", None, "test", scores, tables)


def test_a_table_cannot_be_changed():
    stream = animals()
    table = scored(stream, guesses(stream))
    with pytest.raises(ValueError, match="read-only"):
        table.r[0] = 1
    with pytest.raises(ValueError, match="read-only"):
        ScoreTable.from_json(table.to_json()).r_jk[0, 0] = 1


def test_what_add_gives_is_what_the_table_holds_and_a_copy():
    stream = animals()
    evaluator = Evaluator(stream)
    row = dict(evaluator.add(after=0, predictions=guesses(stream)[0]))
    assert tuple(row) == score_names()
    same(list(row.values()), [values[0] for values in evaluator.table.scores.values()])


def bad(rows, columns):
    return np.zeros((rows, columns), bool)


# After task 1, animals() has 15 test images and 4 seen classes.
@pytest.mark.parametrize(
    ("predictions", "message"),
    [
        (bad(15, 3), r"after task 1 must be \(15, 4\).*stream.test\(after=1\).*came is \(15, 3\)"),
        (
            bad(15, 8),
            r"4 seen classes.*from 'animal' to 'polar bear'.*future classes.*\[:, :4\]",
        ),
        (bad(4, 15), "transpose it"),
        (bad(60, 4), r"predictions\[view.rows\]"),
        (bad(14, 4), r"What came is \(14, 4\)"),
        (np.zeros((15, 4)), "Threshold the scores"),
        (np.zeros(15, bool), r"shape \(15,\)"),
        ([bad(10, 4), bad(5, 3)], r"must be \(15, 4\).*Batch 1, after 10 rows, is \(5, 3\)"),
        ([bad(10, 4), bad(6, 4)], r"Batch 1, after 10 rows, is \(6, 4\)"),
        ([bad(10, 4)], "The batches have 10 rows in all"),
        ([], "The batches have 0 rows in all"),
        ([bad(10, 4), np.zeros((5, 4))], "batch 1 of the predictions must be booleans"),
        ([[0, 1, 0, 0]], r"What came is \(1, 4\)"),
        ([[0, 1, 0], [0, 1]], "What came is a list of rows of 2 to 3 numbers"),
        ([[0, 1, 0.5, 0]], "Threshold the scores"),
        ([np.zeros(4, bool)], r"batch 0 of the predictions must be a matrix .*\(4,\)"),
        (None, "What came is None, no array and no batches"),
    ],
)
def test_predictions_that_do_not_fit_are_refused_and_nothing_is_kept(predictions, message):
    stream = animals()
    evaluator = Evaluator(stream)
    with pytest.raises(PredictionError, match=message):
        evaluator.add(after=1, predictions=predictions)
    assert np.isnan(evaluator.table.r).all()
    evaluator.add(after=1, predictions=stream.test(after=1).targets)
    assert evaluator.table.r[1] == 1


def test_endless_batches_end_in_an_error():
    def endless():
        while True:
            yield bad(4, 4)

    with pytest.raises(PredictionError, match="Batch 3, after 12 rows"):
        Evaluator(animals()).add(after=1, predictions=endless())


def test_a_task_is_added_once():
    stream = animals()
    evaluator = Evaluator(stream)
    evaluator.add(after=0, predictions=stream.test(after=0).targets)
    with pytest.raises(PredictionError, match="task 0 has its scores already"):
        evaluator.add(after=0, predictions=stream.test(after=0).targets)


def test_unknown_splits_and_tasks_are_refused():
    with pytest.raises(UnknownNameError, match="did you mean 'post_valid'"):
        Evaluator(animals(), split="postvalid")
    with pytest.raises(ScheduleError, match="tasks are 0 to 4"):
        Evaluator(animals()).add(after=5, predictions=bad(15, 4))


def test_post_task_validation_is_scored_on_its_own_images():
    stream = animals()
    evaluator = Evaluator(stream, split="post_valid")
    assert len(evaluator.view(after=4)) == len(stream.post_valid(after=4)) == 15
    evaluator.add(after=4, predictions=stream.post_valid(after=4).targets)
    assert evaluator.table.split == "post_valid"
    same(evaluator.table.r_jk[4], np.ones(5))


class Tensorlike:
    """Something that is no array but can become one, as a PyTorch tensor is."""

    def __init__(self, array):
        self.array = array

    def __array__(self, dtype=None, copy=None):
        return self.array

    def __iter__(self):
        return iter(self.array)


def test_anything_that_becomes_an_array_is_one_matrix():
    stream = animals()
    truth = stream.test(after=0).targets
    assert Evaluator(stream).add(after=0, predictions=Tensorlike(truth))["f1"] == 1


def test_lists_of_numbers_are_one_matrix_and_lists_of_matrices_are_batches():
    stream = animals()
    truth = stream.test(after=1).targets
    rows, numbers = truth.tolist(), truth.astype(int).tolist()
    for predicted in (rows, numbers, tuple(map(tuple, rows)), [list(row) for row in truth]):
        assert Evaluator(stream).add(after=1, predictions=predicted)["f1"] == 1
    for predicted in ([truth[:9], truth[9:]], [rows[:9], rows[9:]]):
        assert Evaluator(stream).add(after=1, predictions=predicted)["f1"] == 1


def test_imagenet_fulls_last_task_is_scored_in_few_passes_over_its_labels():
    tree = {f"super{i}": [f"sub{i}.{k}" for k in range(9 if i else 32)] for i in range(85)}
    hierarchy = Hierarchy.from_children(tree, alone=[f"alone{i}" for i in range(210)])
    leaf = np.tile(np.flatnonzero(hierarchy.is_leaf), 50)
    stream = Stream.build(hierarchy, Schedule.draw(hierarchy, seed=0, first=63, size=30), [], leaf)
    truth = stream.test(after=34).targets
    assert truth.shape == (49_900, 1083)
    started = time.process_time()
    truth.sum(axis=0)
    one_pass = time.process_time() - started
    scores = Evaluator(stream).add(after=34, predictions=truth)
    # What is done class by class would take 1,083 passes.
    assert time.process_time() - started < 200 * one_pass
    assert scores["pw_jaccard"] == 1
