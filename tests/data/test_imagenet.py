"""ImageNet: real images from folders and packed, and the row order of the authors' package."""

import json
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from iirc import datasets_loader

import polarbear
from polarbear import Hierarchy, Schedule, Stream
from polarbear.base.errors import DataError, UnknownNameError
from polarbear.benchmark.counts import stream_statistics
from polarbear.benchmark.labels import leaf_numbers
from polarbear.benchmark.source import Source
from polarbear.benchmark.split import SplitRule
from polarbear.data.imagenet import NOT_IN_IIRC, open_imagenet, reference_file_order
from polarbear.data.pack import pack
from polarbear.data.packed import open_packed

METADATA = Path(datasets_loader.metadata_root)
VALID, POST_VALID = 0.4, 0.3


def metadata(file: str) -> dict:
    return json.loads((METADATA / file).read_text())


@pytest.fixture(scope="module")
def hierarchy() -> Hierarchy:
    tree = metadata("iirc_imagenet_hierarchy_wnids.json")
    return Hierarchy.from_children(tree["super_classes"], alone=tree["other_sub_classes"])


def iirc_sequence() -> list[str]:
    tree = metadata("iirc_imagenet_hierarchy_wnids.json")
    below = [name for names in tree["super_classes"].values() for name in names]
    return [*tree["other_sub_classes"], *below]


def cil_sequence() -> list[str]:
    return metadata("imagenet_classes.json")["classes"]


@pytest.fixture(scope="module")
def made_up(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All 1,000 class folders with 3 to 9 empty files each: the package only lists names."""
    root = tmp_path_factory.mktemp("made-up")
    random = np.random.default_rng(7)
    for split, low, high in (("train", 3, 10), ("val", 1, 2)):
        for wnid in cil_sequence():
            folder = root / split / wnid
            folder.mkdir(parents=True)
            for i in random.permutation(1000)[: random.integers(low, high)]:
                (folder / f"{wnid}_{i}.JPEG").touch()
    return root


def by_class(samples: list) -> dict[str, list[str]]:
    paths = defaultdict(list)
    for path, labels in samples:
        paths[labels[-1]].append(path)
    return paths


def paths_by_class(source: Source) -> dict[str, list[str]]:
    """Training files of each leaf in the order in which a split takes them."""
    order = np.arange(len(source.train)) if source.file_order is None else source.file_order
    paths = defaultdict(list)
    for row in order:
        paths[source.leaves[source.train_leaf[row]]].append(str(source.train.files.path(row)))
    return paths


@pytest.mark.parametrize("setup", ["iirc", "class-incremental"])
def test_the_reference_row_order_is_the_packages(made_up, hierarchy, setup):
    if setup == "iirc":
        sequence, ignore, load = iirc_sequence(), NOT_IN_IIRC, datasets_loader._load_iirc_imagenet
    else:
        sequence, ignore, load = cil_sequence(), (), datasets_loader._load_incremental_imagenet
        hierarchy = Hierarchy.flat(sorted(sequence))
    theirs = load(str(made_up), VALID, POST_VALID)
    options = {"ignore": ignore, "cache": False}
    plain = open_imagenet(made_up, hierarchy, **options)
    exact = open_imagenet(
        made_up, hierarchy, row_order="iirc-1.0.1", class_sequence=sequence, **options
    )
    # The package's splits of a class, one after the other, are its rows in the package's order.
    expected = by_class(theirs["intask_valid"] + theirs["posttask_valid"] + theirs["train"])
    ours = {leaf: paths for leaf, paths in paths_by_class(exact).items() if leaf not in ignore}
    assert ours == expected
    sorted_ours = paths_by_class(plain)
    assert sum(sorted_ours[leaf] != expected[leaf] for leaf in expected) > 5

    post = by_class(theirs["posttask_valid"])
    schedule, rule = Schedule((hierarchy.names,)), SplitRule(valid=VALID, post_valid=POST_VALID)
    for source, same in ((exact, True), (plain, False)):
        stream = Stream.from_source(source, hierarchy, schedule, rule=rule, ignore=ignore)
        rows = stream.post_valid(after=0).rows
        found = {str(source.train.files.path(row)) for row in rows}
        assert (found == {path for paths in post.values() for path in paths}) == same


def test_the_reference_order_equals_its_slow_twin():
    classes = Hierarchy.flat([f"n{i:02}" for i in range(12)])
    random = np.random.default_rng(3)
    for _ in range(20):
        leaf = np.repeat(np.arange(12), random.integers(1, 6, 12))
        sequence = random.permutation(12)[:10].tolist()
        lined_up = [row for c in sequence for row in np.flatnonzero(leaf == c).tolist()]
        places = sorted(range(len(lined_up)), key=lambda k: lined_up[k])
        slow = [row for _, row in sorted(zip(places, lined_up, strict=True))]
        rest = [row for row in range(len(leaf)) if leaf[row] not in sequence]
        assert reference_file_order(leaf, sequence, classes).tolist() == slow + rest


def test_rows_of_no_class_come_last():
    leaf = np.array([-1, 0, 1, -1, 1])
    order = reference_file_order(leaf, [1, 0], Hierarchy.flat(["n1", "n2"]))
    assert order.tolist()[3:] == [0, 3]


def test_a_class_twice_in_the_sequence():
    with pytest.raises(DataError, match="names a class twice"):
        reference_file_order(np.array([0]), [0, 0], Hierarchy.flat(["n1"]))


def test_an_unknown_row_order_gets_a_hint(made_up, hierarchy):
    with pytest.raises(UnknownNameError, match=r"did you mean 'iirc-1.0.1'\?"):
        open_imagenet(made_up, hierarchy, row_order="iirc-1.0.0")


def test_the_reference_order_needs_its_sequence(made_up, hierarchy):
    with pytest.raises(DataError, match="needs class_sequence"):
        open_imagenet(made_up, hierarchy, row_order="iirc-1.0.1")


@pytest.mark.parametrize("wnid", NOT_IN_IIRC)
def test_the_two_ignored_classes_are_wanted_where_the_hierarchy_has_them(made_up, wnid, tmp_path):
    for split in ("train", "val"):
        (tmp_path / split).mkdir()
        for folder in (made_up / split).iterdir():
            if folder.name != wnid:
                (tmp_path / split / folder.name).symlink_to(folder)
    with pytest.raises(DataError, match=f"lacks 1 of the classes: '{wnid}'"):
        open_imagenet(tmp_path, Hierarchy.flat(sorted(cil_sequence())), cache=False)


def test_missing_and_extra_wnids_are_listed(made_up, tmp_path, hierarchy):
    for split in ("train", "val"):
        (tmp_path / split).mkdir()
        for folder in (made_up / split).iterdir():
            if folder.name not in (*NOT_IN_IIRC, "n01440764", "n02134084"):
                (tmp_path / split / folder.name).symlink_to(folder)
    (tmp_path / "val" / "n99999999").symlink_to(made_up / "val" / "n01440764")
    with pytest.raises(DataError) as caught:
        open_imagenet(tmp_path, hierarchy, cache=False)
    assert "train lacks 2 of the classes: 'n01440764', 'n02134084'" in str(caught.value)
    assert "val has 1 that is no leaf: 'n99999999'" in str(caught.value)


def test_no_imagenet_at_all(tmp_path, hierarchy):
    with pytest.raises(DataError, match=r"no folder .*train: .* holds the folders: none"):
        open_imagenet(tmp_path, hierarchy)


@pytest.fixture(scope="module")
def source(imagenet_root, hierarchy, tmp_path_factory):
    return open_imagenet(imagenet_root, hierarchy, cache=tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="module")
def packed(source, tmp_path_factory) -> Path:
    return pack(source, tmp_path_factory.mktemp("packed") / "imagenet", size=128)


@pytest.fixture(scope="module")
def schedule() -> Schedule:
    order = metadata("iirc_imagenet_full_task_configurations.json")["configuration_0"]
    return Schedule.of(order[f"task_{i}"] for i in range(len(order)))


class TestRealImages:
    def test_counts_and_leaves(self, source):
        assert len(source.leaves) == 1000
        assert np.bincount(source.train_leaf).tolist() == [4] * 1000
        assert np.bincount(source.test_leaf).tolist() == [2] * 1000
        for row in (0, 1234, 3999):
            assert source.train.files.path(row).parent.name == source.leaves[source.train_leaf[row]]

    def test_every_class_has_readable_pixels_of_one_size(self, source):
        batch = source.test[::40]
        assert batch.shape == (50, 256, 256, 3)
        assert batch.std(axis=(1, 2, 3)).min() > 5

    def test_packed_gives_the_same_stream(self, source, packed, hierarchy, schedule):
        folders, sets = (
            Stream.from_source(s, hierarchy, schedule, ignore=NOT_IN_IIRC)
            for s in (source, open_imagenet(packed, hierarchy))
        )
        for i in (0, 1, 34):
            np.testing.assert_array_equal(folders[i].train.rows, sets[i].train.rows)
            np.testing.assert_array_equal(folders[i].train.targets, sets[i].train.targets)
            np.testing.assert_array_equal(folders.test(i).rows, sets.test(i).rows)
            np.testing.assert_array_equal(folders.test(i).targets, sets.test(i).targets)
        assert len(sets.test(34)) == 2 * 998

    @pytest.mark.parametrize("kind", ["lite", "full"])
    def test_no_image_of_a_second_version_serves_two_classes(self, packed, kind):
        stream = polarbear.load(f"iirc-imagenet-{kind}-v2", 1, packed, partial=True)
        sizes = [size.train for size in stream_statistics(stream).class_sizes]
        assert set(sizes) == {3}  # of a leaf's four, one is for its superclass
        rows = np.concatenate([task.train.rows for task in stream])
        assert len(np.unique(rows)) == len(rows) == sum(sizes)
        assert stream.images("train")[stream[0].train.rows[:2]].shape == (2, 128, 128, 3)

    def test_packed_images_look_the_same(self, source, packed):
        rows = np.random.default_rng(0).permutation(4000)[:40]
        ours = open_packed(packed).train[rows].astype(int)
        theirs = replace(source.train, size=128)[rows]
        assert np.abs(ours - theirs).mean(axis=(1, 2, 3)).max() < 5
        assert np.abs(ours - np.roll(theirs, 1, axis=0)).mean() > 30

    def test_packed_knows_its_row_order_and_classes_too(self, packed, source, hierarchy):
        sequence = iirc_sequence()
        options = {"row_order": "iirc-1.0.1", "class_sequence": sequence}
        order = open_imagenet(packed, hierarchy, **options).file_order
        leaf = leaf_numbers(hierarchy, source.leaves, NOT_IN_IIRC)[source.train_leaf]
        numbers = [hierarchy.index(name) for name in sequence]
        np.testing.assert_array_equal(order, reference_file_order(leaf, numbers, hierarchy))
        with pytest.raises(DataError, match=r"\(train\) lacks 1 of the classes: 'n00000001'"):
            open_imagenet(packed, Hierarchy.flat([*sorted(cil_sequence()), "n00000001"]))


def test_absent_data_are_refused_with_how_to_get_them(hierarchy, tmp_path) -> None:
    with pytest.raises(DataError, match=r"does not exist\. ImageNet .*train/<wnid>"):
        open_imagenet(tmp_path / "nowhere", hierarchy)
