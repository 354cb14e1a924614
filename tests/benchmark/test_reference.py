"""Identity with ``iirc==1.0.1``: every order, hierarchy, row list and label set."""

import json
from pathlib import Path
from typing import Any

import iirc
import numpy as np
import pytest

import polarbear
from polarbear.benchmark.stream import View
from polarbear.named.registry import find
from reference import cifar_data, cifar_row, imagenet_data, splits

METADATA = Path(iirc.__file__).parent / "metadata"
NAMES = {
    "iirc-cifar": "iirc_cifar100",
    "cil-cifar": "incremental_cifar100",
    "iirc-imagenet-full": "iirc_imagenet_full",
    "iirc-imagenet-lite": "iirc_imagenet_lite",
    "cil-imagenet-full": "incremental_imagenet_full",
    "cil-imagenet-lite": "incremental_imagenet_lite",
}


def metadata(file: str) -> Any:
    return json.loads((METADATA / file).read_text())


def labels(view: View) -> dict[int, frozenset[str]]:
    names = np.array(view.classes)
    return {
        int(row): frozenset(names[target].tolist())
        for row, target in zip(view.rows, view.targets, strict=True)
    }


@pytest.mark.parametrize("name", NAMES)
def test_every_class_order_is_the_published_one(name: str) -> None:
    theirs = metadata(f"{NAMES[name]}_task_configurations.json")
    ours = find(name).orders()
    assert len(ours) == len(theirs)
    for i, schedule in enumerate(ours):
        order = theirs[f"configuration_{i}"]
        assert schedule.tasks == tuple(tuple(order[f"task_{j}"]) for j in range(len(order)))


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("iirc-cifar", "iirc_cifar100_hierarchy.json"),
        ("iirc-imagenet-full", "iirc_imagenet_hierarchy_wnids.json"),
    ],
)
def test_every_hierarchy_is_the_published_one(name: str, file: str) -> None:
    theirs, ours = metadata(file), find(name).hierarchy()
    assert set(ours.superclasses) == set(theirs["super_classes"])
    for superclass, subclasses in theirs["super_classes"].items():
        assert set(ours.children(superclass)) == set(subclasses)
    alone = {leaf for leaf in ours.leaves if ours.parent(leaf) is None}
    assert alone == set(theirs["other_sub_classes"])


def test_imagenet_titles_are_the_published_words() -> None:
    wnids, words = (metadata(f"iirc_imagenet_hierarchy_{kind}.json") for kind in ("wnids", "words"))
    hierarchy = find("iirc-imagenet-full").hierarchy()
    for superclass, leaves in wnids["super_classes"].items():
        titles = [hierarchy.title(leaf) for leaf in leaves]
        assert titles == words["super_classes"][superclass]


def test_class_incremental_leaves_are_the_published_ones() -> None:
    assert set(find("cil-imagenet-full").hierarchy().names) == set(
        metadata("imagenet_classes.json")["classes"]
    )
    assert set(find("cil-cifar").hierarchy().names) == set(
        metadata("cifar100_classes.json")["classes"]
    )


def agree(ours: polarbear.Stream, theirs: Any, tasks: Any, number: Any, row_of: Any) -> None:
    """Rows and labels of every task and of every evaluation are the package's."""
    assert list(ours.classes) == list(number)
    assert [list(task.classes) for task in ours] == tasks
    for j, task in enumerate(ours):
        assert labels(task.train) == theirs["train"].one_task(j, row_of["train"])
        assert labels(task.valid) == theirs["intask_valid"].one_task(j, row_of["train"])
        for split, evaluation, file in (
            ("posttask_valid", ours.post_valid, "train"),
            ("test", ours.test, "test"),
        ):
            assert labels(evaluation(after=j)) == theirs[split].up_to(j, row_of[file])
            # An earlier task's images, labelled among everything seen by now.
            k = (j * 7) % (j + 1)
            one = theirs[split].one_task(k, row_of[file])
            assert labels(evaluation(after=j, task=k)) == one


# The fewest images a class for which every share is at least one row (the package turns a share
# of no rows into all rows), so that all orders together stay quick.
@pytest.fixture(scope="session")
def cifar(tmp_path_factory: pytest.TempPathFactory) -> Any:
    leaves = find("cil-cifar").hierarchy().names
    random = np.random.default_rng(0)
    train, test = (random.permutation(np.repeat(np.arange(100), n)) for n in (60, 6))
    data = cifar_data(tmp_path_factory.mktemp("reference"), train, test, leaves)
    return data, np.array(leaves)[train], np.array(leaves)[test]


@pytest.mark.parametrize("order", range(10))
@pytest.mark.parametrize("name", ["iirc-cifar", "cil-cifar"])
def test_cifar_rows_and_labels(cifar: Any, name: str, order: int) -> None:
    data, train, test = cifar
    ours = polarbear.load(name, order, leaf_train=train, leaf_test=test)
    theirs = splits(NAMES[name], order, data[NAMES[name]])
    agree(ours, *theirs, {"train": cifar_row, "test": cifar_row})


@pytest.mark.parametrize("name", ["iirc-cifar", "cil-cifar"])
def test_joint_is_one_task_with_everything(cifar: Any, name: str) -> None:
    data, train, test = cifar
    ours = polarbear.load(name, leaf_train=train, leaf_test=test, joint=True)
    theirs = splits(NAMES[name], 0, data[NAMES[name]], joint=True)
    agree(ours, *theirs, {"train": cifar_row, "test": cifar_row})


@pytest.fixture(scope="session")
def real_cifar(cifar_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    from polarbear.data.cifar100 import open_cifar100
    from polarbear.data.cifar100_official import CIFAR100_LEAVES

    source = open_cifar100(cifar_root)
    folder = tmp_path_factory.mktemp("reference")
    return cifar_data(folder, source.train_leaf, source.test_leaf, CIFAR100_LEAVES), cifar_root


@pytest.mark.parametrize("order", range(10))
def test_real_cifar_rows_and_labels(real_cifar: Any, order: int) -> None:
    data, root = real_cifar
    ours = polarbear.load("iirc-cifar", order, root=root)
    theirs = splits("iirc_cifar100", order, data["iirc_cifar100"])
    agree(ours, *theirs, {"train": cifar_row, "test": cifar_row})


@pytest.fixture(scope="session")
def imagenet() -> Any:
    """File lists with all 1,000 wnids, uneven sizes, and rows that our numbering gives them."""
    random = np.random.default_rng(0)
    wnids = find("cil-imagenet-full").hierarchy().names
    listing = {
        split: {w: [f"{w}_{i:05d}.JPEG" for i in range(random.integers(low, high))] for w in wnids}
        for split, low, high in (("train", 50, 65), ("val", 1, 4))
    }
    leaf, row_of = {}, {}
    for split, folders in listing.items():
        files = [(w, name) for w, names in sorted(folders.items()) for name in names]
        number = {
            name if split == "train" else f"val{name}": i for i, (_, name) in enumerate(files)
        }
        prefix = "" if split == "train" else "val"
        leaf[split] = np.array([w for w, _ in files])
        row_of[split] = lambda path, number=number, prefix=prefix: number[
            prefix + path.rpartition("/")[2]
        ]
    return imagenet_data(listing), leaf, {"train": row_of["train"], "test": row_of["val"]}


@pytest.mark.parametrize("order", range(5))
@pytest.mark.parametrize("name", [name for name in NAMES if "imagenet" in name])
def test_imagenet_rows_and_labels(imagenet: Any, name: str, order: int) -> None:
    data, leaf, row_of = imagenet
    ours = polarbear.load(
        name, order, leaf_train=leaf["train"], leaf_test=leaf["val"], row_order="iirc-1.0.1"
    )
    theirs = splits(NAMES[name], order, data[NAMES[name].partition("_")[0]])
    agree(ours, *theirs, row_of)


def test_sorted_order_differs_from_the_packages_on_imagenet(imagenet: Any) -> None:
    _, leaf, _ = imagenet
    loaded = [
        polarbear.load(
            "iirc-imagenet-full", leaf_train=leaf["train"], leaf_test=leaf["val"], row_order=order
        )
        for order in ("sorted", "iirc-1.0.1")
    ]
    rows = [set(stream[0].train.rows.tolist()) for stream in loaded]
    assert rows[0] != rows[1]
    assert len(rows[0]) == len(rows[1])
