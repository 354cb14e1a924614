"""Data of your own: a folder, a CSV file or arrays become a benchmark folder."""

import csv
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import polarbear
from polarbear.base.errors import DataError, PolarbearError, UnknownNameError
from polarbear.benchmark.hierarchy import Hierarchy
from polarbear.benchmark.schedule import Schedule
from polarbear.benchmark.source import Source
from polarbear.benchmark.stream import Stream
from polarbear.cli import main
from polarbear.cli.commands.new_benchmark import draw_orders
from polarbear.data.kinds import Data
from polarbear.data.npz import open_npz
from polarbear.data.table import open_table
from polarbear.engine.images.transform import TRANSFORMS, ImageTransform, for_evaluation
from polarbear.launch.assembly import build_learner
from polarbear.launch.runner import resume, run
from polarbear.methods.presets import settings_for
from polarbear.named.card import data_card
from polarbear.named.contact_sheet import MOST_LEAVES, contact_sheet, shown_leaves
from polarbear.named.folder import Blueprint, read_blueprint
from polarbear.named.registry import find, lasting_name
from polarbear.runs.folder import RunFolder
from polarbear.settings.settings import Settings

TREE = """alone = ["lamp"]
[tree]
bear = ["polar_bear", "brown_bear"]
dog = ["pug", "whippet"]
[titles]
polar_bear = "ice bear"
"""
LEAVES = ("brown_bear", "lamp", "polar_bear", "pug", "whippet")
PER_LEAF = {"train": 20, "test": 3}
ORDER = ["bear", "dog"], ["pug", "lamp", "polar_bear"], ["whippet", "brown_bear"]


@pytest.fixture(autouse=True)
def _here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")


@pytest.fixture
def animals(tmp_path: Path) -> Path:
    """The same images as a folder of folders, as a CSV file and as arrays."""
    folder = tmp_path / "animals"
    random = np.random.default_rng(0)
    lines, arrays = [], {}
    for split, count in PER_LEAF.items():
        leaf = np.repeat(np.arange(len(LEAVES)), count)
        images = random.integers(0, 256, (len(leaf), 8, 8, 3), dtype=np.uint8)
        arrays |= {f"{split}_images": images, f"{split}_labels": np.array(LEAVES)[leaf]}
        for i, (image, number) in enumerate(zip(images, leaf, strict=True)):
            path = folder / split / LEAVES[number] / f"{i:03}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(image).save(path)
            lines.append((path.relative_to(folder).as_posix(), LEAVES[number], split, "x"))
    (folder / "hierarchy.toml").write_text(TREE)
    with (folder / "list.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("path", "label", "split", "note"), *lines])
    np.savez(folder / "arrays.npz", **arrays)
    return folder


def make(data: Path, *more: str, name: str = "zoo") -> int:
    return main(["new-benchmark", name, "--data", str(data), "--size", "3", *more])


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    def call(*words: str | Path) -> str:
        assert main([str(word) for word in words]) == 2
        return capsys.readouterr().err

    return call


def same_stream(left: Stream, right: Stream) -> bool:
    return left.schedule == right.schedule and all(
        np.array_equal(a.rows, b.rows)
        and np.array_equal(a.targets, b.targets)
        and np.array_equal(left.images(a.file)[a.rows], right.images(b.file)[b.rows])
        for i in range(len(left))
        for a, b in [
            (left[i].train, right[i].train),
            (left[i].valid, right[i].valid),
            (left.test(i), right.test(i)),
        ]
    )


def test_three_ways_to_bring_the_same_data_give_the_same_stream(animals: Path) -> None:
    streams = []
    for name, data in (("folders", "."), ("table", "list.csv"), ("arrays", "arrays.npz")):
        assert make(animals / data, "--orders", "2", "--valid", "0.2", name=name) == 0
        streams.append(polarbear.load(name, order=1))
    assert same_stream(streams[0], streams[1])
    assert same_stream(streams[0], streams[2])
    assert streams[0].name == "folders-v1"
    assert len({stream.source.checksum for stream in streams}) == 3


@pytest.mark.parametrize("data", [".", "list.csv"])
def test_packed_data_of_ones_own_give_the_same_stream(
    animals: Path, data: str, refused: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["pack", str(animals / data), "--out", "packed", "--size", "8"]) == 0
    assert "packed 115 images into" in capsys.readouterr().out
    assert make(animals / data, "--valid", "0.2", name="as-files") == 0
    assert make(Path("packed"), "--valid", "0.2", name="as-packed") == 0
    assert same_stream(polarbear.load("as-files"), polarbear.load("as-packed"))
    Path("packed/hierarchy.toml").write_text(TREE.replace("lamp", "mug"))
    words = refused("new-benchmark", "other", "--data", "packed", "--size", "3")
    assert "packed (train) lacks 1 of the classes: 'mug'" in words
    own = ("pack", animals / "arrays.npz", "--out", "arrays")
    assert "only image files can be packed" in refused(*own)
    assert "--root is for imagenet" in refused(*own, "--root", "here")
    assert "--hierarchy is for data of your own" in refused(
        "pack", "imagenet", "--out", "p", "--hierarchy", "h.toml"
    )


def write_parquet(folder: Path, animals: Path, *, numbers: bool, names: bool = True) -> None:
    """Write the images class by class, as folders number them, in row groups of seven."""
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    folder.mkdir()
    features = {"image": {"_type": "Image"}, "label": {"names": LEAVES, "_type": "ClassLabel"}}
    told = {"huggingface": json.dumps({"info": {"features": features}})} if names else {}
    for split in PER_LEAF:
        files = sorted((animals / split).rglob("*.png"))
        halves = {
            "00000-of-00002": files[: len(files) // 2],
            "00001-of-00002": files[len(files) // 2 :],
        }
        for part, some in halves.items():
            labels = [file.parent.name for file in some]
            images = [{"bytes": file.read_bytes(), "path": file.name} for file in some]
            table = arrow.table(
                {"image": images, "label": [LEAVES.index(x) for x in labels] if numbers else labels}
            )
            table = table.replace_schema_metadata(told)
            parquet.write_table(table, folder / f"{split}-{part}.parquet", row_group_size=7)


@pytest.mark.parametrize("numbers", [True, False])
def test_parquet_gives_the_same_stream(animals: Path, numbers: bool) -> None:
    write_parquet(Path("tables"), animals, numbers=numbers)
    more = ("--hierarchy", str(animals / "hierarchy.toml"), "--valid", "0.2")
    assert make(animals, *more, name="as-files") == 0
    assert make(Path("tables"), *more, name="as-parquet") == 0
    assert same_stream(polarbear.load("as-files"), polarbear.load("as-parquet"))
    packed = ["pack", "tables", "--out", "packed", "--size", "8", *more[:2]]
    assert main(packed) == 0
    assert make(Path("packed"), *more, name="as-packed") == 0
    assert same_stream(polarbear.load("as-files"), polarbear.load("as-packed"))


def test_parquet_that_says_too_little_is_refused(
    animals: Path, refused: Callable[..., str]
) -> None:
    write_parquet(Path("tables"), animals, numbers=True, names=False)
    words = ("new-benchmark", "zoo", "--data", "tables", "--size", "3")
    words += ("--hierarchy", str(animals / "hierarchy.toml"))
    assert "has numbers for labels and no names for them" in refused(*words)
    for file in Path("tables").glob("test*"):
        file.unlink()
    Path("tables/train-00000-of-00002.parquet").write_bytes(b"PAR1")
    assert "train-00000-of-00002.parquet cannot be read as parquet" in refused(*words)
    shutil.rmtree("tables")
    write_parquet(Path("tables"), animals, numbers=False)
    for file in Path("tables").glob("test*"):
        file.unlink()
    assert "tables has no test*.parquet" in refused(*words)


def test_a_hugging_face_data_set_on_disk_gives_the_same_stream(
    animals: Path, refused: Callable[..., str]
) -> None:
    hub = pytest.importorskip("datasets", reason="needs datasets, which make test-adapters has")
    names = hub.ClassLabel(names=list(LEAVES))
    features = hub.Features({"image": hub.Image(), "label": names})
    parts = {}
    for split in PER_LEAF:
        files = sorted((animals / split).rglob("*.png"), key=lambda file: file.name)
        columns = {"image": list(map(str, files)), "label": [f.parent.name for f in files]}
        parts[split] = hub.Dataset.from_dict(columns, features=features)
    hub.DatasetDict(parts).save_to_disk("saved")
    more = ("--hierarchy", str(animals / "hierarchy.toml"), "--valid", "0.2")
    assert make(animals, "--valid", "0.2", name="folders") == 0
    assert make(Path("saved"), *more, name="saved-zoo") == 0
    assert same_stream(polarbear.load("folders"), polarbear.load("saved-zoo"))
    hub.DatasetDict({"train": parts["train"]}).save_to_disk("half")
    words = ("new-benchmark", "half-zoo", "--data", "half", "--size", "3", *more)
    assert "has no split 'test'" in refused(*words)


def test_a_benchmark_folder_says_where_everything_is(animals: Path, tmp_path: Path) -> None:
    assert make(animals, "--seed", "7", "--orders", "3", "--out", "made/zoo") == 0
    folder = tmp_path / "made" / "zoo"
    blueprint = read_blueprint(folder)
    hierarchy = Hierarchy.read(animals / "hierarchy.toml")
    assert blueprint.orders == tuple(
        Schedule.draw(hierarchy, seed=seed, first=1, size=3) for seed in (7, 8, 9)
    )
    assert 'path = "../../animals"' in (folder / "benchmark.toml").read_text()
    before = polarbear.load(folder)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    shutil.move(animals, elsewhere)
    shutil.move(tmp_path / "made", elsewhere)
    assert before.test_leaf.tolist() == polarbear.load(elsewhere / "made/zoo").test_leaf.tolist()
    shutil.move(elsewhere / "animals", elsewhere / "moved")
    with pytest.raises(DataError, match="no folder"):
        polarbear.load(elsewhere / "made" / "zoo")


def test_a_folder_of_data_can_become_the_benchmark_itself(animals: Path) -> None:
    assert make(animals, "--out", str(animals), "--valid", "0.2") == 0
    assert (animals / "hierarchy.toml").read_text() == TREE
    assert 'path = "."' in (animals / "benchmark.toml").read_text()
    assert polarbear.check_stream(polarbear.load(animals)) == ()
    assert "valid = 0.2" in (animals / "benchmark.toml").read_text()


def test_images_of_any_size_are_brought_to_one(animals: Path, refused: Callable[..., str]) -> None:
    Image.new("RGB", (30, 20)).save(animals / "train" / "brown_bear" / "000.png")
    words = ("new-benchmark", "zoo", "--data", animals, "--size", "3")
    message = refused(*words)
    assert "1 of 115 images are not 8×8 (height × width), as 114 are. Add --image-size N" in message
    assert "brown_bear/000.png (row 0) is 20×30\n" in message
    assert not Path("zoo").exists()
    assert make(animals, "--image-size", "6") == 0
    assert polarbear.load("zoo").images("train")[:2].shape == (2, 6, 6, 3)
    arrays = ("--data", animals / "arrays.npz", "--image-size", "6", "--size", "3")
    assert "leave image_size out" in refused("new-benchmark", "arrays", *arrays)


def test_the_data_card_tells_counts_tree_tasks_and_what_was_found(
    animals: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (animals / "hierarchy.toml").write_text(TREE.replace('"pug", "whippet"', '"pug"') + "\n")
    for split in PER_LEAF:
        shutil.rmtree(animals / split / "whippet")
    assert make(animals, "--summary", "four animals and a lamp", "--orders", "1") == 0
    assert "superclass 'dog' has a single subclass" in capsys.readouterr().out
    card = Path("zoo/data-card.md").read_text()
    for part in (
        "# zoo\n\nfour animals and a lamp\n\n![Images of each class](data-card.png)\n",
        "| classes | 6 |\n| superclasses | 2 |\n",
        "| training images | 64 |\n",
        "| test images | 12 |\n",
        "bear\n  polar_bear (ice bear): 20 + 3\n  brown_bear: 20 + 3\ndog\n  pug: 20 + 3\nlamp: 20",
        "- warning: superclass 'dog' has a single subclass",
    ):
        assert part in card
    first = polarbear.load("zoo").schedule.tasks[0][0]
    assert f"| 0 | **{first}** |" in card
    with Image.open("zoo/data-card.png") as sheet:
        assert sheet.size[0] > sheet.size[1] > 64


def test_the_contact_sheet_shows_each_leafs_first_images() -> None:
    hierarchy = Hierarchy.from_children({"bear": ["polar bear", "brown bear"]}, alone=["lamp"])
    colours = np.array([[250, 0, 0], [0, 250, 0], [0, 0, 250]], dtype=np.uint8)
    leaf = np.arange(12) % 3
    images = np.broadcast_to(colours[leaf][:, None, None], (12, 8, 8, 3))
    source = Source(hierarchy.leaves, images, leaf, images, leaf)
    schedule = Schedule.of([["bear"], ["polar bear", "brown bear", "lamp"]])
    sheet = contact_sheet(Stream.from_source(source, hierarchy, schedule))
    found = {sheet.getpixel((x, 40)) for x in range(sheet.width)}
    assert {tuple(map(int, colour)) for colour in colours} <= found


def test_a_sheet_of_very_many_leaves_shows_some_from_all_over() -> None:
    hierarchy = Hierarchy.flat([f"class {i}" for i in range(200)])
    leaf = np.arange(200)
    stream = Stream.build(hierarchy, Schedule((hierarchy.names,)), leaf, leaf)
    shown = shown_leaves(stream)
    assert (len(shown), shown[0], shown[-1]) == (MOST_LEAVES, "class 0", "class 199")
    assert "class 77: 1 + 1" in data_card(stream, name="many")


def test_a_run_on_a_folder_resumes_from_another_directory(
    animals: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert make(animals) == 0
    tiny = {"epochs": 1, "network": "engine_run:TinyNetwork", "tasks": 2, "device": "cpu"}
    settings = Settings("er", benchmark="zoo", memory_per_class=2, **tiny)
    folder = tmp_path / "run"
    assert run(settings, folder)
    scores = (folder / "scores.jsonl").read_bytes()
    assert RunFolder(folder).manifest()["settings"]["benchmark"] == str(tmp_path / "zoo")
    (folder / "finished.json").unlink()
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    assert resume(folder)
    assert (folder / "scores.jsonl").read_bytes() == scores


@pytest.mark.parametrize(
    ("kept", "messages"),
    [
        # Per leaf: training images, test images; the last of a list holds for all other leaves.
        ([(0, 3)], ["task 0 has no train images", "no training image has the label"]),
        ([(20, 0)], ["task 0 has no test images", "no test image has the label"]),
        ([(0, 3), (20, 3)], ["no training image has the label 'brown_bear'"]),
        ([(20, 3), (20, 0), (20, 3)], ["no test image has the label 'lamp'"]),
        ([(1, 1)], ["no training image has the label", "'bear', 'dog'"]),
    ],
)
@pytest.mark.parametrize("method", ["er", "joint"])
def test_a_run_that_would_learn_nothing_is_refused(
    animals: Path,
    refused: Callable[..., str],
    method: str,
    kept: list[tuple[int, int]],
    messages: list[str],
) -> None:
    assert make(animals / "arrays.npz", "--orders", "1") == 0
    with np.load(animals / "arrays.npz") as stored:
        arrays = dict(stored)
    for column, split in enumerate(PER_LEAF):
        labels = arrays[f"{split}_labels"]
        rows = [
            np.flatnonzero(labels == leaf)[: kept[min(i, len(kept) - 1)][column]]
            for i, leaf in enumerate(LEAVES)
        ]
        for what in ("images", "labels"):
            arrays[f"{split}_{what}"] = arrays[f"{split}_{what}"][np.concatenate(rows)]
    np.savez(animals / "arrays.npz", **arrays)
    message = refused("run", method, "--benchmark", "zoo", "--out", "run", "--network", "small")
    assert all(one in message for one in messages), message
    assert not Path("run").exists()
    again = ("new-benchmark", "again", "--data", animals / "arrays.npz", "--size", "3")
    assert all(one in refused(*again) for one in messages)
    # To look at a stream needs no image of every class.
    assert len(polarbear.load("zoo")) > 1


def test_the_commands_take_a_folder(animals: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert make(animals) == 0
    assert main(["describe", "./zoo", "--order", "1"]) == 0
    assert "zoo-v1, order 1: a benchmark of your own" in capsys.readouterr().out
    stream = polarbear.load("zoo")
    oracle = {j: stream.test(after=j).targets for j in range(len(stream))}
    polarbear.save_predictions("p.npz", stream, oracle)
    assert main(["score", "p.npz", "--benchmark", "./zoo", "--json"]) == 0
    assert set(json.loads(capsys.readouterr().out)["scores"]["pw_jaccard"]) == {1.0}


def test_a_preset_of_your_own_may_have_a_table_for_the_folder(animals: Path) -> None:
    assert make(animals, "--out", "some/where/zoo") == 0
    Path("mine.toml").write_text("[zoo]\nepochs = 3\n")
    assert settings_for("er", "some/where/zoo", preset="mine.toml").epochs == 3
    assert settings_for("er", "some/where/zoo").epochs == Settings("er").epochs


def test_a_folder_is_read_anew_and_known_by_its_name_afterwards(animals: Path) -> None:
    assert make(animals, "--out", "here") == 0
    assert find("./here").version == 1
    Path("here/benchmark.toml").write_text(
        Path("here/benchmark.toml").read_text().replace("version = 1", "version = 2")
    )
    assert find(Path("here")).id == "zoo-v2"
    assert find("zoo-v2").version == 2
    assert lasting_name("here") == str(Path("here").resolve())
    assert (lasting_name("iirc-cifar"), lasting_name("nowhere")) == ("iirc-cifar", "nowhere")


def with_orders(animals: Path, *orders: list[list[str]]) -> Stream:
    assert make(animals) == 0
    Path("zoo/orders.json").write_text(json.dumps({"orders": orders}))
    return polarbear.load("zoo")


def test_a_parent_may_arrive_after_its_child(animals: Path) -> None:
    stream = with_orders(animals, [["polar_bear", "lamp"], ["bear"], ["dog", "pug"]])
    messages = [finding.message for finding in polarbear.check_stream(stream)]
    assert any("subclasses arrive before their superclass" in m for m in messages)
    assert any("2 classes of the hierarchy in no task" in m for m in messages)
    last = stream.test(after=1)
    polar = last.leaf == stream.hierarchy.index("polar_bear")
    assert last.targets[polar].tolist() == [[True, False, True]] * 3


def test_three_levels(animals: Path) -> None:
    (animals / "hierarchy.toml").write_text(
        '[tree.animal]\nbear = ["polar_bear", "brown_bear"]\ndog = ["pug", "whippet"]\n'
        '[tree]\nthing = ["lamp"]\n'.replace("[tree]\n", "[tree.thing]\nlight = ").replace(
            'light = thing = ["lamp"]', 'light = ["lamp"]'
        )
    )
    assert make(animals, "--first", "2", "--orders", "1") == 0
    stream = polarbear.load("zoo")
    assert set(stream.schedule.tasks[0]) == {"animal", "thing"}
    assert stream.schedule.children_too_early(stream.hierarchy) == ()
    assert stream.test(after=len(stream) - 1).targets.sum(axis=1).tolist() == [3] * 15


@pytest.mark.parametrize(
    ("hierarchy", "message"),
    [
        ('[tree]\nbear = ["polar_bear"]\nwhite = ["polar_bear"]', "A class has one parent"),
        ('[tree]\nbear = ["polar_bear", "polar bear"]', "differ only by case, spaces"),
        ('alone = ["lamp", "pug"]', "no class has another above it"),
        (TREE.replace('"whippet"', '"wippet"'), "'whippet' (did you mean 'wippet'?)"),
    ],
)
def test_a_hierarchy_that_does_not_do(
    animals: Path, refused: Callable[..., str], hierarchy: str, message: str
) -> None:
    (animals / "hierarchy.toml").write_text(hierarchy)
    assert message in refused("new-benchmark", "zoo", "--data", animals, "--size", "3")
    assert not Path("zoo").exists()


def test_what_new_benchmark_refuses(animals: Path, refused: Callable[..., str]) -> None:
    data = ("--data", animals, "--size", "3")
    assert "exists: choose another" in refused("new-benchmark", "iirc-cifar", *data)
    assert "cannot name a benchmark" in refused("new-benchmark", "Zoo", *data, "--out", "x")
    assert "cannot name a benchmark" in refused("new-benchmark", "zoo-v2", *data)
    for orders in ("0", "99999999"):
        message = refused("new-benchmark", "z", *data, "--orders", orders)
        assert f"--orders must be from 1 to 1,000, not {orders}" in message
    assert "cannot have 3 superclasses" in refused("new-benchmark", "z", *data, "--first", "3")
    assert "there is nothing at nowhere" in refused(
        "new-benchmark", "z", "--data", "nowhere", "--hierarchy", animals / "hierarchy.toml"
    )
    assert make(animals) == 0
    assert "holds a benchmark already" in refused("new-benchmark", "zoo", *data)
    (animals / "hierarchy.toml").unlink()
    assert "holds no hierarchy.toml" in refused("new-benchmark", "z", *data)


def test_a_new_benchmark_has_its_own_mean_and_deviation(animals: Path) -> None:
    images = np.load(animals / "arrays.npz")["train_images"] / 255
    for name, data in (("folders", "."), ("arrays", "arrays.npz")):
        assert make(animals / data, name=name) == 0
        colours = find(name).colours
        assert colours is not None
        assert colours.mean == pytest.approx(images.mean(axis=(0, 1, 2)), rel=1e-12)
        assert colours.std == pytest.approx(images.std(axis=(0, 1, 2)), rel=1e-12)
    assert find("folders").colours == find("arrays").colours


def test_runs_normalise_by_the_mean_and_deviation_of_the_data(animals: Path) -> None:
    assert make(animals) == 0
    colours, stream = find("zoo").colours, polarbear.load("zoo")
    assert colours is not None
    tiny = {"network": "engine_run:TinyNetwork", "device": "cpu"}

    def transform(**changes: str) -> ImageTransform:
        settings = Settings("er", benchmark="zoo", **tiny | changes)
        return build_learner(settings, stream).transform

    assert transform() == ImageTransform(colours.mean, colours.std)
    pixels = torch.from_numpy(stream.images("train")[np.arange(len(stream.train_leaf))])
    normalised = for_evaluation(pixels, transform())
    assert normalised.mean(dim=(0, 2, 3)).tolist() == pytest.approx([0, 0, 0], abs=1e-5)
    assert normalised.std(dim=(0, 2, 3)).tolist() == pytest.approx([1, 1, 1], abs=1e-3)
    for name in ("plain", "cifar"):
        assert transform(preparation=name) is TRANSFORMS[name]
    file = Path("zoo/benchmark.toml")
    whole = file.read_text()
    file.write_text(whole[: whole.index("[colours]")])  # as it was written before
    assert find("zoo").colours is None
    assert transform() == TRANSFORMS["plain"]


def test_a_named_preparation_brings_its_own_numbers(animals: Path) -> None:
    assert make(animals, "--preparation", "cifar") == 0
    assert find("zoo").colours is None
    assert "colours" not in Path("zoo/benchmark.toml").read_text()


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("mean = [0.5, 0.5]\nstd = [1, 1, 1]", "mean must be three numbers"),
        ("mean = [0.5, 0.5, nan]\nstd = [1, 1, 1]", "mean must be three numbers"),
        ("mean = [0.5, 0.5, 0.5]\nstd = [1, 0, 1]", "std must be three numbers over 0"),
        ("mean = [0.5, 0.5, 0.5]", "lacks colours.std"),
        ("mean = 0.5\nstd = [1, 1, 1]", "colours.mean must be list, not 0.5"),
        ("means = [0.5, 0.5, 0.5]", "did you mean 'colours.mean'"),
    ],
)
def test_a_mean_and_deviation_that_do_not_do(
    animals: Path, refused: Callable[..., str], written: str, said: str
) -> None:
    assert make(animals, "--preparation", "cifar") == 0
    with Path("zoo/benchmark.toml").open("a") as file:
        file.write(f"\n[colours]\n{written}\n")
    message = refused("describe", "zoo")
    assert said in message
    assert "benchmark.toml" in message


def test_two_hierarchies_beside_the_data(animals: Path, refused: Callable[..., str]) -> None:
    (animals / "hierarchy.csv").write_text("class,parent\n")
    message = refused("new-benchmark", "zoo", "--data", animals, "--size", "3")
    assert f"{animals} holds both hierarchy.toml and hierarchy.csv: remove the one" in message
    assert make(animals, "--hierarchy", str(animals / "hierarchy.toml")) == 0


def test_one_is_not_several(animals: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert make(animals, "--orders", "1") == 0
    assert " tasks, 1 order, " in capsys.readouterr().out
    assert main(["describe", "zoo", "--order", "1"]) == 2
    assert "its 1 published order is 0 (" in capsys.readouterr().err


def test_a_folder_that_cannot_be_made(animals: Path, refused: Callable[..., str]) -> None:
    Path("file").touch()
    words = ("new-benchmark", "zoo", "--data", animals, "--size", "3", "--out")
    assert "polarbear: file: file exists; a file lies where a folder" in refused(*words, "file")
    assert "polarbear: file/zoo: not a directory; a file lies" in refused(*words, "file/zoo")


def test_a_folder_around_a_file_names_the_file(animals: Path, refused: Callable[..., str]) -> None:
    shutil.rmtree(animals / "train")
    words = ("new-benchmark", "zoo", "--data", animals, "--size", "3")
    assert f"holds arrays.npz, list.csv: to use a file, give its own path, --data {animals}" in (
        refused(*words)
    )
    (animals / "list.csv").unlink()
    assert f"holds arrays.npz: to use a file, give its own path, --data {animals}" in (
        refused(*words)
    )
    (animals / "arrays.npz").rename(animals / "hierarchy.csv")
    words += ("--hierarchy", animals / "hierarchy.toml")
    assert "holds the folders: 'test'" in refused(*words)


def test_data_of_an_unknown_kind(tmp_path: Path) -> None:
    (tmp_path / "data.mat").touch()
    with pytest.raises(DataError, match=r"data\.mat is \.mat: give a folder"):
        Data.at("data.mat")
    with pytest.raises(UnknownNameError, match="did you mean 'folders'"):
        Data("folder", tmp_path)


def test_by_default_two_thirds_of_the_superclasses_come_first() -> None:
    hierarchy = polarbear.load("iirc-shapes").hierarchy
    (order,) = draw_orders(hierarchy, first=None, size=5, orders=1, seed=0)
    assert len(order.tasks[0]) == 5


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("version = 1", 'version = "1"', "version must be int, not '1'"),
        ("version = 1", "versoin = 1", "did you mean 'version'"),
        ("cap = 8", "cup = 8", r"did you mean 'split\.cap'"),
        ("valid = 0.1", "valid = 1.1", "valid is a share of the rows"),
        ('kind = "folders"', 'kind = "photos"', "unknown kind of data 'photos'"),
        ('name = "zoo"\n', "", "lacks name"),
        ('name = "zoo"', 'name = "iirc-cifar"', "as a registered benchmark is named"),
        ('name = "zoo"', "name = zoo", "cannot be read as TOML"),
    ],
)
def test_a_benchmark_file_that_does_not_do(animals: Path, old: str, new: str, message: str) -> None:
    assert make(animals) == 0
    file = Path("zoo/benchmark.toml")
    file.write_text(file.read_text().replace(old, new, 1))
    with pytest.raises(PolarbearError, match=message):
        polarbear.load("zoo")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "cannot be read as class orders"),
        ("[]", "cannot be read as class orders"),
        ('{"orders": [[["bear"], ["bear"]]]}', "a class arrives once"),
    ],
)
def test_orders_that_do_not_do(animals: Path, text: str, message: str) -> None:
    assert make(animals) == 0
    Path("zoo/orders.json").write_text(text)
    with pytest.raises(PolarbearError, match=rf"orders\.json.*{message}"):
        polarbear.load("zoo")


def test_a_folder_without_a_benchmark(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(PolarbearError, match=r"empty is no benchmark: it holds no benchmark\.toml"):
        polarbear.load("empty")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.replace("split,note", "part,note"), "without split"),
        (lambda t: t.replace(",test,", ",val,"), "unknown split in .*list.csv, entry"),
        (lambda t: t.replace(",test,", ",train,"), "no line with the split 'test'"),
        (lambda t: t.replace(",lamp,", ",lmap,"), "unknown leaf class.*did you mean 'lamp'"),
        (lambda t: t.replace(",pug,", ",dog,"), "labelled 'dog', which has subclasses.*pug"),
        (lambda t: t.replace("000.png", "gone.png"), "lists (2 files|1 file) not there"),
        (lambda t: t + t.splitlines()[1] + "\n", "twice: an image has one line"),
        (lambda t: t + "a,b\n", "has 2 columns, the first line 4"),
    ],
)
def test_a_table_that_does_not_do(
    animals: Path, change: Callable[[str], str], message: str
) -> None:
    file = animals / "list.csv"
    file.write_text(change(file.read_text()))
    with pytest.raises(PolarbearError, match=message):
        open_table(file, Hierarchy.read(animals / "hierarchy.toml"))


def test_a_file_that_is_gone_is_named(animals: Path) -> None:
    source = open_table(animals / "list.csv", Hierarchy.read(animals / "hierarchy.toml"))
    assert source.train.files.name(0) == "train/brown_bear/000.png"
    (animals / "train/brown_bear/000.png").unlink()
    with pytest.raises(DataError, match=r"there is no file .*000\.png \(row 0\)"):
        source.train[0]


def numbered(arrays: dict[str, np.ndarray]) -> None:
    for split in PER_LEAF:
        arrays[f"{split}_labels"] = np.searchsorted(LEAVES, arrays[f"{split}_labels"])[:, None]
    arrays["classes"] = np.array(LEAVES)


def test_labels_may_be_numbers_of_classes(animals: Path) -> None:
    hierarchy = Hierarchy.read(animals / "hierarchy.toml")
    with np.load(animals / "arrays.npz") as file:
        arrays = dict(file)
    numbered(arrays)
    np.savez("numbers.npz", **arrays)
    left, right = open_npz("numbers.npz", hierarchy), open_npz(animals / "arrays.npz", hierarchy)
    assert left.train_leaf.tolist() == right.train_leaf.tolist()
    assert left.leaves[left.train_leaf[0]] == "brown_bear"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda a: a.pop("test_images"), "lacks test_images"),
        (lambda a: a.update(train_images=a["train_images"] / 255), "must be uint8.*float64"),
        (lambda a: a.update(train_images=a["train_images"][..., 0]), "Grey images"),
        (
            lambda a: a.update(train_labels=a["train_labels"][1:]),
            r"one an image, \(100,\); their shape is \(99,\)",
        ),
        (lambda a: a.update(train_labels=np.zeros(100)), "must be names or whole numbers"),
        (lambda a: a.update(train_labels=np.zeros(100, int)), "an array classes must name them"),
        (lambda a: a.update(test_labels=a["test_labels"].astype(object)), "not of object"),
        (lambda a: (numbered(a), a.update(classes=np.array(LEAVES[:4]))), "classes names 0 to 3"),
    ],
)
def test_arrays_that_do_not_do(
    animals: Path, change: Callable[[dict[str, np.ndarray]], object], message: str
) -> None:
    with np.load(animals / "arrays.npz") as file:
        arrays = dict(file)
    change(arrays)
    np.savez("changed.npz", **arrays)
    with pytest.raises(DataError, match=message):
        open_npz("changed.npz", Hierarchy.read(animals / "hierarchy.toml"))


def test_a_damaged_file_of_arrays(tmp_path: Path) -> None:
    (tmp_path / "bad.npz").write_bytes(b"no archive")
    with pytest.raises(DataError, match=r"cannot be read as \.npz") as refusal:
        open_npz("bad.npz", Hierarchy.flat(["lamp"]))
    assert "allow_pickle" not in str(refusal.value)
    with pytest.raises(DataError, match="there is no file"):
        open_npz("none.npz", Hierarchy.flat(["lamp"]))


def test_a_name_has_no_version() -> None:
    with pytest.raises(PolarbearError, match="no version at its end"):
        Blueprint("zoo-v1", Data("folders", Path()), Path("hierarchy.toml"), ())
