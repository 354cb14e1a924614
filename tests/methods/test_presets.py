from pathlib import Path
from typing import Any

import pytest

from polarbear.base.errors import PolarbearError, UnknownNameError
from polarbear.methods.catalogue import METHODS
from polarbear.methods.presets import preset_names, preset_values, settings_for
from polarbear.named.registry import benchmarks

CIFAR = ("iirc-cifar", "cil-cifar")
# They have the rates of their literature, not the paper's.
SOFTMAX = ("replay", "eeil", "il2m", "wa", "bic", "lwf", "lwm", "er-ace", "derpp", "ss-il")
OWN_RECIPE = ("kin", "gdumb", "icarl-nme", "podnet")
# Where no class is below another, they look for no parents.
ON_FEATURES = ("ncm", "slda", "ranpac")
IMAGENET = tuple(f"{kind}-imagenet-{size}" for kind in ("iirc", "cil") for size in ("full", "lite"))


def papers(benchmark: str, method: str) -> dict[str, Any]:
    """Section 6 of the specification, written down once more."""
    on_cifar = benchmark in CIFAR
    rate = 1.0 if on_cifar else 0.5 if method in ("icarl-cnn", "icarl-norm") else 0.1
    if method == "gem":  # not in the paper: at its rate GEM's weights become infinite on CIFAR
        rate = 0.1
    epochs, first = (140, 280) if on_cifar else (100, 200)
    if method == "joint":
        epochs = first = 400 if on_cifar else 180
    return {
        "network": "resnet32" if on_cifar else "resnet50",
        "learning_rate": rate,
        "epochs": epochs,
        "first": first,
    }


@pytest.mark.parametrize("benchmark", [*CIFAR, *IMAGENET])
@pytest.mark.parametrize("method", sorted(METHODS.keys() - {*OWN_RECIPE, *SOFTMAX}))
def test_the_papers_values(benchmark: str, method: str) -> None:
    second = [f"{benchmark}-v2"] if benchmark.startswith("iirc") else []
    for name in (benchmark, f"{benchmark}-v1", *second):
        settings = settings_for(method, name)
        assert (settings.method, settings.benchmark) == (method, name)
        assert papers(benchmark, method) == {
            "network": settings.network,
            "learning_rate": settings.learning_rate,
            "epochs": settings.epochs_of(1),
            "first": settings.epochs_of(0),
        }
        assert (settings.momentum, settings.weight_decay, settings.batch_size) == (0.9, 1e-5, 128)
        plateau = (settings.plateau_patience, settings.plateau_factor, settings.plateau_threshold)
        assert plateau == (10, 0.1, 1e-3)
        assert (settings.memory_per_class, settings.memory_total) == (20, None)
        assert (settings.seed, settings.decision) == (100, None)
        flat = benchmark.startswith("cil") and method in ON_FEATURES
        assert settings.options == ({"parents": False} if flat else {})


def test_kin_has_a_recipe_of_its_own_on_cifar() -> None:
    for benchmark in ("iirc-cifar", "iirc-cifar-v2", "cil-cifar"):
        settings = settings_for("kin", benchmark)
        assert [settings.epochs_of(task) for task in (0, 1)] == [70, 70]
        assert (settings.learning_rate, settings.weight_decay) == (0.1, 5e-4)
        assert (settings.schedule, settings.memory_per_class) == ("cosine", 20)


@pytest.mark.parametrize("method", SOFTMAX)
def test_softmax_methods_have_the_rates_of_their_literature_on_cifar(method: str) -> None:
    for benchmark in ("iirc-cifar", "cil-cifar", "cil-cifar-b0-5"):
        settings = settings_for(method, benchmark)
        assert (settings.learning_rate, settings.weight_decay) == (0.1, 2e-4)
        assert (settings.schedule, settings.rate_factor) == ("steps", 0.1)


@pytest.mark.parametrize(
    ("method", "epochs", "falls"),
    [
        ("wa", 170, [60, 100, 140]),
        ("eeil", 170, [60, 100, 140]),
        ("replay", 70, [30, 50]),
        ("il2m", 70, [30, 50]),
        ("lwf", 250, [60, 120, 180, 220]),
        ("lwm", 250, [60, 120, 180, 220]),
        ("icarl-nme", 70, [49, 63]),
    ],
)
def test_tasks_of_five_have_the_literatures_recipe(
    method: str, epochs: int, falls: list[int]
) -> None:
    settings = settings_for(method, "cil-cifar-b0-5")
    assert settings.epochs_of(0) == (70 if method == "icarl-nme" else 200)
    assert settings.epochs_of(1) == epochs
    assert [round(part * epochs) for part in settings.rate_steps] == falls
    assert (settings.memory_total, settings.batch_size, settings.momentum) == (2000, 128, 0.9)


@pytest.mark.parametrize("method", ON_FEATURES)
def test_methods_on_features_predict_one_class_in_tasks_of_five(method: str) -> None:
    settings = settings_for(method, "cil-cifar-b0-5")
    assert settings.options == {"parents": False}
    assert (settings.schedule, settings.epochs_of(0)) == ("cosine", 200)


def test_gdumb_has_the_recipe_of_its_authors_on_cifar() -> None:
    for benchmark in ("iirc-cifar", "cil-cifar"):
        settings = settings_for("gdumb", benchmark)
        assert [settings.epochs_of(task) for task in (0, 1)] == [256, 256]
        assert (settings.learning_rate, settings.weight_decay) == (0.05, 1e-6)
        assert (settings.batch_size, settings.clip) == (16, 10.0)
        assert (settings.schedule, settings.memory_per_class) == ("cosine", 20)


@pytest.mark.parametrize("benchmark", ["iirc-cifar", "cil-cifar", "cil-cifar-b0-5"])
def test_podnet_has_the_recipe_of_its_authors_on_cifar(benchmark: str) -> None:
    settings = settings_for("podnet", benchmark)
    assert [settings.epochs_of(task) for task in (0, 1)] == [160, 160]
    assert (settings.learning_rate, settings.weight_decay) == (0.1, 5e-4)
    assert (settings.schedule, settings.batch_size) == ("cosine", 128)
    in_fives = benchmark == "cil-cifar-b0-5"  # which has a memory for all classes together
    assert settings.memory_total == (2000 if in_fives else None)
    assert settings.memory_per_class == 20


@pytest.mark.parametrize("benchmark", IMAGENET)
def test_podnet_has_the_recipe_of_its_authors_on_imagenet(benchmark: str) -> None:
    settings = settings_for("podnet", benchmark)
    assert [settings.epochs_of(task) for task in (0, 1)] == [90, 90]
    assert (settings.learning_rate, settings.weight_decay) == (0.05, 1e-4)
    assert (settings.schedule, settings.batch_size) == ("cosine", 64)
    assert settings.options == {"spatial": 8.0, "flat": 10.0, "tuning_rate": 0.01}


def test_every_benchmark_has_its_values_in_the_papers_preset() -> None:
    for benchmark in benchmarks():
        assert preset_values("paper", benchmark.id, "er"), benchmark.id


@pytest.mark.parametrize("method", sorted(METHODS))
def test_the_embedded_benchmark_trains_a_small_network(method: str) -> None:
    settings = settings_for(method, "iirc-shapes")
    assert settings.network == "small"
    assert settings.epochs_of(0) <= 60


def test_changes_of_ones_own_come_last() -> None:
    settings = settings_for("icarl-cnn", "iirc-imagenet-lite", learning_rate=0.2, order=3)
    assert (settings.learning_rate, settings.order, settings.network) == (0.2, 3, "resnet50")


def test_an_option_of_ones_own_leaves_the_presets_others_alone() -> None:
    settings = settings_for("ranpac", "cil-cifar", options={"width": 50})
    assert settings.options == {"parents": False, "width": 50}
    settings = settings_for("ranpac", "cil-cifar", options={"parents": True})
    assert settings.options == {"parents": True}
    assert settings_for("ranpac", "iirc-cifar", options={"width": 50}).options == {"width": 50}


def test_another_schedule_leaves_the_steps_of_the_presets_behind() -> None:
    settings = settings_for("icarl-nme", "iirc-cifar", schedule="cosine")
    assert (settings.rate_steps, settings.rate_factor) == ((0.5, 0.75), 0.1)
    with pytest.raises(PolarbearError, match="rate_steps and rate_factor are for the schedule"):
        settings_for("icarl-nme", "iirc-cifar", schedule="cosine", rate_steps=(0.2,))


def test_an_unknown_change_is_refused() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'epochs'"):
        settings_for("er", "iirc-cifar", epoch=3)


def test_a_benchmark_of_ones_own_has_the_defaults() -> None:
    assert preset_values("paper", "my-birds", "er") == {}


def test_presets_are_found_by_name() -> None:
    assert preset_names() == ("paper",)
    with pytest.raises(UnknownNameError, match="unknown preset 'papr': did you mean 'paper'"):
        settings_for("er", preset="papr")


@pytest.mark.parametrize("name", ["mine.toml", "presets/mine", "/nowhere/mine.toml"])
def test_a_preset_named_like_a_file_that_is_not_there(name: str) -> None:
    with pytest.raises(
        PolarbearError, match=r"no preset file /.*mine.*ships with polarbear: paper"
    ):
        settings_for("er", preset=name)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("iirc-cifr", "unknown benchmark 'iirc-cifr': did you mean 'iirc-cifar'"),
        ("iirc-shapes-v9", "iirc-shapes has no version 9"),
        (
            "cifar100",
            "unknown benchmark 'cifar100': that is a data set.*benchmarks: iirc-cifar, cil-cifar",
        ),
    ],
)
def test_a_misspelt_benchmark_does_not_get_the_defaults(name: str, message: str) -> None:
    with pytest.raises(PolarbearError, match=message):
        settings_for("er", name)


def write(folder: Path, text: str) -> str:
    file = folder / "mine.toml"
    file.write_text(text, encoding="utf-8")
    return str(file)


def test_a_file_of_ones_own(tmp_path: Path) -> None:
    mine = write(
        tmp_path,
        """
        epochs = 9
        batch_size = 8

        [iirc-cifar]
        batch_size = 16
        learning_rate = 0.5

        [iirc-cifar.lucir]
        learning_rate = 0.25
        options = { margin = 0.3 }

        [iirc-cifar.icarl-cnn]
        like = "lucir"
        batch_size = 24

        [cil-cifar]
        like = "iirc-cifar"
        batch_size = 32

        [cil-cifar."my.module:Method"]
        epochs = 2
        """,
    )

    def values(method: str, benchmark: str) -> tuple[Any, ...]:
        s = settings_for(method, benchmark, preset=mine)
        return s.epochs, s.batch_size, s.learning_rate, s.options

    assert values("er", "iirc-cifar") == (9, 16, 0.5, {})
    assert values("icarl-cnn", "iirc-cifar") == (9, 24, 0.25, {"margin": 0.3})
    assert values("lucir", "iirc-cifar") == (9, 16, 0.25, {"margin": 0.3})
    assert values("lucir", "cil-cifar") == (9, 32, 0.25, {"margin": 0.3})
    assert values("my.module:Method", "cil-cifar") == (2, 32, 0.5, {})
    assert values("er", "iirc-shapes") == (9, 8, 1.0, {})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[iirc-cifar]\nepoch = 3", "unknown setting 'epoch': did you mean 'epochs'"),
        ("epoch = 3", "unknown setting 'epoch': did you mean 'epochs'"),
        ("[iirc-cifar.er]\nepoch = 3", "unknown setting 'epoch': did you mean 'epochs'"),
        ("[iirc-cifar.icarl]\nepochs = 3", "unknown method in .*'icarl': did you mean 'icarl-nme'"),
        ("[iirc-cifar.options]\nmargin = 3", "unknown method in .*iirc-cifar 'options'"),
        (
            "[iirc-cifra]\nepochs = 3",
            "unknown benchmark in .*'iirc-cifar': did you mean 'iirc-cifra'",
        ),
        (
            '[iirc-cifar]\nlike = "iirc-cifra"',
            "unknown table of a preset 'iirc-cifra': did you mean",
        ),
        (
            '[iirc-cifar.er]\nlike = "lucir"',
            "the table of er is like 'lucir', which has no values of its own there",
        ),
        (
            '[iirc-cifar.er]\nlike = "er"',
            "the table of er is like 'er', which has no values of its own there",
        ),
        ("[iirc-cifar]\nepochs = '3'", "epochs must be int, not '3'"),
        ("[iirc-cifar]\nepochs = 0", "epochs must be from 1 to 1,000,000, not 0"),
        ("[iirc-cifar", "mine.toml cannot be read as TOML"),
    ],
)
def test_a_faulty_file_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(PolarbearError, match=message):
        settings_for("er", "iirc-cifar", preset=write(tmp_path, text))


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(PolarbearError, match="cannot be read as TOML"):
        settings_for("er", "iirc-cifar", preset=str(tmp_path / "mine.toml"))
