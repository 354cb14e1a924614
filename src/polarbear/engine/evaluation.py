"""What a learner predicts, by the rule of its run, and how good that is."""

from collections.abc import Iterable
from functools import lru_cache, partial

import numpy as np

from polarbear.base.arrays import Bools, Ints
from polarbear.benchmark.stream import Stream, View
from polarbear.engine.contract.predict import decision_name, has_measure
from polarbear.engine.recorder import Recorder
from polarbear.engine.task.learner import Learner
from polarbear.score import metrics
from polarbear.score.decide import OWN_RULE, RawScores, Seen, Truth, decision
from polarbear.score.evaluate import Evaluator


class Evaluation:
    """Validation after epochs, and the splits that are looked at after a task."""

    def __init__(self, stream: Stream, learner: Learner) -> None:
        """Find the rule by which the run predicts; its absence is the method's own."""
        self.stream, self.learner = stream, learner
        rule = decision_name(learner.settings.decision, type(learner.method))
        self.rule = None if rule == OWN_RULE else decision(rule)
        self._truth = lru_cache(maxsize=1)(partial(Truth.of, stream.hierarchy))  # after every epoch

    def of_validation(self, view: View, scores: RawScores) -> float:
        """Return how good raw scores (v, seen) of in-task validation are, by the method's measure.

        Without one it is the mean pw-JS.
        """
        if has_measure(self.learner.method):
            return self.learner.measure(scores, view.targets)
        return float(metrics.pw_jaccard(self.predicted(view, scores), view.targets).mean())

    def predicted(self, view: View, scores: RawScores) -> Bools:
        """Return which classes raw scores (n, seen) of a view's images mean: (n, seen)."""
        if not len(view):
            return np.zeros((0, len(view.classes)), dtype=bool)
        if self.rule is None:
            return self.learner.decide(scores)
        classes, inclusive = view.classes, self.learner.method.inclusive
        about = Seen(classes, inclusive, self._parents(), self._truth(classes))
        return self.rule(scores, about)

    def after_task(self, task: int, recorders: Iterable[Recorder]) -> None:
        """Tell recorders the scores after a task on both of its splits, and the test predictions.

        Each seen image is predicted once; the union's and every task's scores come from that.
        """
        for split in ("post_valid", "test"):
            evaluator = Evaluator(self.stream, split)
            view = evaluator.view(task)
            scores = self.learner.scores(view)
            predicted = self.predicted(view, scores)
            evaluator.add(task, predicted, self._parents())
            for recorder in recorders:
                recorder.scores(evaluator.record(task))
                if split == "test":
                    recorder.answers(task, predicted, scores)

    def _parents(self) -> Ints | None:
        """Return the column of the class above each seen one, as the method infers it: (s,)."""
        found = self.learner.method.inferred_parents()
        return None if found is None else found.cpu().numpy()
