"""A stream as an Avalanche benchmark: one experience per task."""

from typing import Any

from polarbear.adapters.pytorch import Sample, Transform, ViewDataset
from polarbear.base.missing import needing
from polarbear.benchmark.stream import Stream, View

with needing("Avalanche", "avalanche"):
    from avalanche.benchmarks import benchmark_from_datasets
    from avalanche.benchmarks.utils import AvalancheDataset
    from avalanche.benchmarks.utils.transform_groups import TransformGroups


class ViewAvalancheDataset(AvalancheDataset):
    """Avalanche's data set, read in batches where nothing stands between it and one view."""

    def __getitems__(self, indices: list[int]) -> list[Sample]:
        """Return several samples at once, as a DataLoader asks."""
        flat = self._flat_data
        if not self._is_one_view():
            return [self[index] for index in indices]
        places = indices if flat._indices is None else [flat._indices[index] for index in indices]
        samples: list[Sample] = flat._datasets[0].__getitems__(places)
        return samples

    def _is_one_view(self) -> bool:
        flat = self._flat_data
        current = flat._transform_groups.current_group
        groups = (flat._transform_groups, flat._frozen_transform_groups)
        return (
            len(flat._datasets) == 1
            and isinstance(flat._datasets[0], ViewDataset)
            and all(group.transform_groups.get(current) is None for group in groups)
            and not any(one.use_in_getitem for one in self._data_attributes.values())
        )


def benchmark(
    stream: Stream, *, transform: Transform | None = None, eval_transform: Transform | None = None
) -> Any:
    """Return a benchmark with the streams ``train``, ``valid`` and ``test``, one per task.

    A sample is (image, target): uint8 (3, h, w), or what the transform makes of it, and float32
    (c,), a column for every class of the stream in its order of arrival, 0 for those still to
    come, so that replay can mix tasks. ``train_stream[j]`` and ``valid_stream[j]`` have the labels
    of task j alone. ``test_stream[j]`` is what to predict after task j: the test images of tasks
    0 to j, each once, with all their labels among the classes seen by then. The first
    ``len(stream[j].seen)`` columns of the predictions are what ``Evaluator.add`` takes.
    ``transform`` is for training, ``eval_transform`` for the others and for Avalanche's own
    evaluation.
    """
    views = {
        "train": [task.train for task in stream],
        "valid": [task.valid for task in stream],
        "test": [stream.test(after=task.index) for task in stream],
    }
    groups = {"train": (transform, None), "eval": (eval_transform, None)}
    made = {
        name: [_dataset(stream, view, groups, evaluated=name != "train") for view in of_split]
        for name, of_split in views.items()
    }
    return benchmark_from_datasets(**made)


def _dataset(stream: Stream, view: View, groups: dict[str, Any], evaluated: bool) -> Any:
    plain = ViewDataset(stream, view, width=len(stream.classes))
    if not any(transform for transform, _ in groups.values()):
        return ViewAvalancheDataset([plain])
    transformed = ViewAvalancheDataset([plain], transform_groups=TransformGroups(groups))
    return transformed.eval() if evaluated else transformed
