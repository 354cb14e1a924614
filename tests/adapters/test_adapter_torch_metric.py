"""pw-JS of TorchMetrics is that of polarbear.metrics, however the images come."""

import pickle

import numpy as np
import pytest

from polarbear.base.errors import PredictionError
from polarbear.score import metrics


@pytest.fixture
def metric_class(library):
    library("torchmetrics")
    from polarbear.adapters.torch_metric import PwJaccard

    return PwJaccard


@pytest.fixture
def case() -> tuple[np.ndarray, np.ndarray, float]:
    random = np.random.default_rng(0)
    logits = random.normal(size=(500, 12)).astype(np.float32)
    targets = random.random((500, 12)) < 0.2
    logits[:20] = -1  # nothing predicted
    targets[10:30] = False  # nothing true
    return logits, targets, float(metrics.pw_jaccard(logits > 0, targets).mean())


@pytest.mark.parametrize("cuts", [[], [1], [250], [100, 101, 499], list(range(1, 500))])
def test_any_batches_give_the_mean_of_the_pure_function(metric_class, case, cuts) -> None:
    import torch

    logits, targets, expected = case
    metric = metric_class()
    for x, y in zip(np.split(logits, cuts), np.split(targets, cuts), strict=True):
        metric.update(torch.from_numpy(x), torch.from_numpy(y))
    assert float(metric.compute()) == pytest.approx(expected, abs=1e-12)
    assert 0.05 < expected < 0.95


def test_booleans_zero_and_one_and_probabilities_are_understood(metric_class, case) -> None:
    import torch

    logits, targets, expected = (torch.as_tensor(part) for part in case)
    for predicted in (logits > 0, (logits > 0).long()):
        assert float(metric_class()(predicted, targets.float())) == pytest.approx(float(expected))
    probabilities = metric_class(threshold=0.5)
    assert float(probabilities(logits.sigmoid(), targets)) == pytest.approx(float(expected))


def test_parts_of_several_processes_add_up(metric_class, case) -> None:
    import torch

    logits, targets, expected = case
    parts = []
    for half in (slice(0, 130), slice(130, None)):
        metric = metric_class()
        metric.update(torch.from_numpy(logits[half]), torch.from_numpy(targets[half]))
        parts.append(metric)
    whole = metric_class()
    assert whole._reductions.keys() == {"total", "images"}
    for name, reduce in whole._reductions.items():
        setattr(whole, name, reduce(torch.stack([getattr(part, name) for part in parts])))
    whole._update_count = 1
    assert float(whole.compute()) == pytest.approx(expected, abs=1e-12)


def test_it_starts_again_is_copied_and_is_collected(metric_class, case) -> None:
    import torch
    from torchmetrics import MetricCollection

    logits, targets, expected = (torch.as_tensor(part) for part in case)
    collection = MetricCollection({"pw_js": metric_class()})
    assert float(collection(logits, targets)["pw_js"]) == pytest.approx(float(expected))
    metric = collection["pw_js"]
    assert float(pickle.loads(pickle.dumps(metric)).compute()) == pytest.approx(float(expected))
    metric.reset()
    assert int(metric.images) == 0
    assert float(metric.total) == 0


def test_what_does_not_fit_is_refused(metric_class) -> None:
    import torch

    with pytest.raises(PredictionError, match=r"predictions are \(2, 3\) and targets \(2, 4\)"):
        metric_class().update(torch.zeros(2, 3), torch.zeros(2, 4))
    with pytest.raises(PredictionError, match=r"both must be \(images, classes\)"):
        metric_class().update(torch.zeros(3), torch.zeros(3))
