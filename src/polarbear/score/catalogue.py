"""The catalogue of scores: what each one is called, how it is worked out and where it is shown.

The evaluator, the command line and the report all read it, so that a score is added in one place:
its function and its entry in :mod:`polarbear.score.metrics`, or, for one of your own,
:func:`register_score`.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np

from polarbear.base.arrays import Bools, Floats, Ints
from polarbear.base.errors import PolarbearError
from polarbear.score.relations import LEVELS, Compared

if TYPE_CHECKING:
    from polarbear.score.metrics import Ratio

#: Which way a score is good; ``"one"`` is best near 1.
Better = Literal["high", "low", "one"]


@dataclass(frozen=True)
class Shown:
    """Where a score is shown and in which words; where its words are empty, it is left out.

    In the terminal, ``column`` heads its column and ``legend`` explains it; ``asked`` is a question
    to which the answer is "… % of" ``share_of`` ``answer``. In the report, ``head`` heads its
    column in tables of last scores, ``question`` is what it answers on the page, and ``panel`` is
    the title of its panel in the figure of the paper's questions.
    """

    column: str = ""
    legend: str = ""
    asked: str = ""
    share_of: str = ""
    answer: str = ""
    head: str = ""
    question: str = ""
    panel: str = ""


@dataclass(frozen=True)
class ImageScore:
    """A score (n,) of single images from predictions and targets (n, c), at every level.

    It must depend on the two label sets alone, not on how many classes are in neither. ``shown``
    has its words at each level: ``""`` is all labels.
    """

    name: str
    compute: Callable[[Bools, Bools], Floats]
    title: str = ""
    about: str = "a metric of your own"
    better: Better = "high"
    shown: Mapping[str, Shown] = field(default_factory=dict)


@dataclass(frozen=True)
class PairScore:
    """A score of pairs of labels: a ratio of two counts, which add up over the images.

    ``cases`` counts what it is a ratio of from predictions (n, s) and the column of each class's
    superclass (s,), -1 for none, where that depends on what is predicted: reports then show it.
    """

    name: str
    compute: Callable[[Compared], "Ratio"]
    title: str = ""
    about: str = "a score of your own"
    better: Better = "high"
    shown: Mapping[str, Shown] = field(default_factory=dict)
    cases: Callable[[Bools, Ints], int] | None = None


Score = ImageScore | PairScore

_CATALOGUE: dict[str, Score] = {}


def register_score(score: Score) -> None:
    """Add a score to the catalogue: from now on every evaluator works it out.

    >>> from polarbear.score.metrics import recall
    >>> register_score(ImageScore("recall", recall))
    Traceback (most recent call last):
      ...
    polarbear.base.errors.PolarbearError: there is a score 'recall' already: choose another name
    """
    if score.name in _CATALOGUE:
        raise PolarbearError(f"there is a score {score.name!r} already: choose another name")
    if not score.name.isidentifier():
        raise PolarbearError(f"{score.name!r} is no name of a score: write it like pw_jaccard")
    if isinstance(score, ImageScore):
        # Tried on two images: one number for both would pass for a score of each.
        pair = np.array([[True, False, True], [False, False, False]])
        if (shape := np.shape(score.compute(pair, pair))) != (2,):
            raise PolarbearError(
                f"the score {score.name!r} must be one number per image, (n,); "
                f"of 2 images it gives the shape {shape}"
            )
    _CATALOGUE[score.name] = score


def image_scores() -> tuple[ImageScore, ...]:
    """Return the scores of single images, in the order of their registration."""
    return tuple(score for score in _CATALOGUE.values() if isinstance(score, ImageScore))


def pair_scores() -> tuple[PairScore, ...]:
    """Return the scores of pairs of labels, in the order of their registration."""
    return tuple(score for score in _CATALOGUE.values() if isinstance(score, PairScore))


def score_names() -> tuple[str, ...]:
    """Return the name of every score of a score table, in its order.

    >>> score_names()[-4:]
    ('label_ratio', 'implication', 'sibling_error', 'late_recall')
    """
    images = (score.name + level for level in LEVELS for score in image_scores())
    return (*images, *(score.name for score in pair_scores()))


def in_order() -> tuple[Score, ...]:
    """Return all scores as they are shown: those that are best near 1, not at an end, last."""
    return (*image_scores(), *sorted(pair_scores(), key=lambda score: score.better == "one"))


def shown_scores() -> Iterator[tuple[str, Score, Shown]]:
    """Go through what is shown of each score: its name with the level, itself and its words."""
    for score in in_order():
        yield from ((score.name + level, score, words) for level, words in score.shown.items())


def headline() -> dict[str, tuple[Score, str]]:
    """Return the scores of tables of last scores with their heads: all labels, then by level."""

    def place(entry: tuple[str, Score, Shown]) -> int:
        name, score, _ = entry
        if isinstance(score, PairScore):
            return len(LEVELS)
        return LEVELS.index(name.removeprefix(score.name))

    entries = sorted(shown_scores(), key=place)
    return {name: (score, words.head) for name, score, words in entries if words.head}
