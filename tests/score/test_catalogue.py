"""One entry per score: what is registered is worked out, kept, printed and drawn."""

import json

import numpy as np
import pytest
from rich.console import Console

import polarbear
from polarbear.base.errors import PolarbearError
from polarbear.cli.shared.outcome import legend, outcome_table
from polarbear.report.page.data import score_data
from polarbear.report.read.runs import read_runs
from polarbear.report.tables.results import last_scores
from polarbear.score import catalogue
from polarbear.score.catalogue import (
    ImageScore,
    PairScore,
    Shown,
    in_order,
    register_score,
    score_names,
    shown_scores,
)
from polarbear.score.metrics import Ratio
from polarbear.score.relations import LEVELS
from synthetic_runs import make_run


@pytest.fixture(autouse=True)
def _own_catalogue(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogue, "_CATALOGUE", dict(catalogue._CATALOGUE))


def wrong_labels(predictions: np.ndarray, targets: np.ndarray) -> np.ndarray:
    return np.minimum((predictions & ~targets).sum(axis=1), 1.0)


WRONG = ImageScore(
    "any_wrong",
    wrong_labels,
    "any wrong",
    "share of images with a wrong label",
    better="low",
    shown={"": Shown(column="wrong", legend="images with a wrong label.", head="any wrong")},
)
SILENT = PairScore(
    "silence",
    lambda compared: Ratio(int((~compared.predicted.any(axis=1)).sum()), len(compared.predicted)),
    "silence",
    "share of images without any label",
    shown={"": Shown(question="How often does it say nothing?", panel="silence")},
)


@pytest.mark.parametrize("score", in_order(), ids=lambda score: score.name)
def test_an_entry_says_what_its_score_is(score: catalogue.Score) -> None:
    assert score.title
    assert score.about
    assert score.better in ("high", "low", "one")
    assert set(score.shown) <= set(LEVELS if isinstance(score, ImageScore) else LEVELS[:1])
    for words in score.shown.values():
        assert not words.legend or words.column
        assert bool(words.asked) == bool(words.share_of) == bool(words.answer)


def test_no_two_columns_have_the_same_head() -> None:
    for kind in ("column", "head", "question", "asked", "panel"):
        given = [getattr(words, kind) for _, _, words in shown_scores() if getattr(words, kind)]
        assert len(given) == len(set(given))


def test_a_score_registered_at_run_time_is_in_tables_made_before_and_after() -> None:
    stream = polarbear.load("iirc-shapes")
    evaluator = polarbear.Evaluator(stream)
    evaluator.add(0, stream.test(after=0).targets)
    for score in (WRONG, SILENT):
        register_score(score)
    nothing = np.zeros_like(stream.test(after=1).targets)
    row = evaluator.add(1, nothing)
    assert row["silence"] == 1.0
    assert row["any_wrong"] == row["any_wrong/subclass"] == 0.0
    table = evaluator.table
    assert tuple(table.scores) == score_names()
    assert np.isnan(table.at("silence", 0))
    assert table.at("silence", 1) == 1.0
    assert polarbear.ScoreTable.from_json(table.to_json()).at("any_wrong", 1) == 0.0


def test_a_score_that_is_no_longer_registered_stays_in_the_table() -> None:
    register_score(SILENT)
    stream = polarbear.load("iirc-shapes")
    evaluator = polarbear.Evaluator(stream)
    evaluator.add(0, stream.test(after=0).targets)
    del catalogue._CATALOGUE["silence"]
    assert evaluator.table.at("silence", 0) == 0.0


def test_a_registered_score_is_printed_and_reported(tmp_path) -> None:
    for score in (WRONG, SILENT):
        register_score(score)
    make_run(tmp_path / "er", "er")
    runs = read_runs(tmp_path)
    page = json.loads(json.dumps(score_data(runs)))
    assert {"any_wrong", "any_wrong/superclass", "silence"} <= {m["id"] for m in page["metrics"]}
    assert "any_wrong" in page["headline"]
    assert page["questions"][-2]["question"] == "How often does it say nothing?"
    assert "any wrong" in last_scores(runs).head

    stream = polarbear.load("iirc-shapes")
    evaluator = polarbear.Evaluator(stream)
    evaluator.add(0, stream.test(after=0).targets)
    screen = Console(width=100)
    with screen.capture() as printed:
        screen.print(outcome_table(evaluator.table, {0: 4}))
    assert "wrong" in printed.get().splitlines()[0].split()
    assert "wrong: images with a wrong label." in legend()


@pytest.mark.parametrize(
    ("score", "message"),
    [
        (ImageScore("f1", wrong_labels), "there is a score 'f1' already"),
        (ImageScore("pw/mine", wrong_labels), "'pw/mine' is no name of a score"),
        (
            ImageScore("mean_wrong", lambda p, y: wrong_labels(p, y).mean()),
            r"one number per image, \(n,\); of 2 images it gives the shape \(\)",
        ),
    ],
)
def test_what_cannot_be_a_score_is_refused(score: catalogue.Score, message: str) -> None:
    before = score_names()
    with pytest.raises(PolarbearError, match=message):
        register_score(score)
    assert score_names() == before
