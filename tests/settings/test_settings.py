import dataclasses
import json
import math
from dataclasses import asdict, fields, replace
from typing import Any, get_args, get_type_hints

import pytest

from polarbear.base.errors import PolarbearError, UnknownNameError
from polarbear.settings.settings import Kind, Settings, deciding, fits

CHANGED: dict[str, Any] = {
    "method": "lucir",
    "benchmark": "iirc-shapes",
    "order": 3,
    "seed": 7,
    "epochs": 5,
    "first_task_factor": 1.5,
    "batch_size": 17,
    "accumulate": 2,
    "learning_rate": 0.25,
    "optimiser": "sgd",  # nesterov is SGD's: adamw has a test of its own
    "momentum": 0.5,
    "nesterov": True,
    "weight_decay": 0.0,
    "clip": 1.0,
    "schedule": "steps",
    "warm_up": 0.5,
    "rate_steps": (0.6, 0.8),
    "rate_factor": 0.3,
    "plateau_patience": 0,
    "plateau_factor": 0.5,
    "plateau_threshold": 0.0,
    "network": "my_nets:vit",
    "network_options": {"depth": 2},
    "frozen": True,
    "preparation": "my_images:prepare",
    "preparation_options": {"side": 64},
    "memory_per_class": None,
    "memory_total": 100,
    "decision": "top1",
    "options": {"margin": 0.3},
    "device": "cpu",
    "precision": "bf16",
    "graph": False,
    "fused": False,
    "compile": True,
    "images": "streamed",
    "features_in": "features",
    "keep_scores": True,
    "tasks": 2,
}


def test_the_defaults_are_the_papers_for_cifar() -> None:
    assert asdict(Settings("er")) == {
        "method": "er",
        "benchmark": "iirc-cifar",
        "order": 0,
        "seed": 100,
        "epochs": 140,
        "first_task_factor": 2.0,
        "batch_size": 128,
        "accumulate": 1,
        "learning_rate": 1.0,
        "optimiser": "sgd",
        "momentum": 0.9,
        "nesterov": False,
        "weight_decay": 1e-5,
        "clip": None,
        "schedule": "plateau",
        "warm_up": 0,
        "rate_steps": (0.5, 0.75),
        "rate_factor": 0.1,
        "plateau_patience": 10,
        "plateau_factor": 0.1,
        "plateau_threshold": 1e-3,
        "network": "resnet32",
        "network_options": {},
        "frozen": False,
        "preparation": None,
        "preparation_options": {},
        "memory_per_class": 20,
        "memory_total": None,
        "decision": None,
        "options": {},
        "device": "auto",
        "precision": "auto",
        "graph": True,
        "fused": True,
        "compile": "auto",
        "images": "auto",
        "features_in": None,
        "keep_scores": False,
        "tasks": None,
    }


def test_every_setting_survives_a_manifest() -> None:
    assert CHANGED.keys() == {one.name for one in fields(Settings)}
    for values in (CHANGED, {"method": "er"}, {"method": "er", "optimiser": "adamw"}):
        settings = Settings.from_dict(values)
        again = Settings.from_dict(json.loads(json.dumps(settings.to_dict())))
        assert again == settings
    changed, usual = Settings(**CHANGED), Settings("er")
    assert [k for k in CHANGED if getattr(changed, k) == getattr(usual, k)] == ["optimiser"]


def test_a_manifest_without_newer_settings_has_the_papers() -> None:
    newer = ("optimiser", "nesterov", "clip", "schedule", "warm_up", "rate_steps", "rate_factor")
    newer += ("preparation_options", "network_options", "frozen", "features_in", "images")
    newer += ("accumulate",)
    old = {k: v for k, v in Settings("er").to_dict().items() if k not in newer}
    assert Settings.from_dict(old) == Settings("er")


KINDS = {
    "run": "method benchmark order seed tasks",
    "result": "epochs first_task_factor batch_size accumulate learning_rate optimiser momentum "
    "nesterov weight_decay clip schedule warm_up rate_steps rate_factor "
    "plateau_patience plateau_factor plateau_threshold network network_options frozen preparation "
    "preparation_options memory_per_class memory_total decision options",
    "arithmetic": "precision fused",
    "speed": "device graph compile images features_in",
    "files": "keep_scores",
}


def test_every_setting_has_a_kind() -> None:
    """Without one, a report would not know whether it makes another group."""
    assert {one.name: one.metadata.get("kind") for one in fields(Settings)} == {
        name: kind for kind, names in KINDS.items() for name in names.split()
    }
    assert tuple(KINDS) == get_args(Kind)
    assert deciding("speed", "files") == {
        "device",
        "graph",
        "compile",
        "images",
        "features_in",
        "keep_scores",
    }


LIMITS = {
    "order": "at least 0",
    "seed": "from 0 to 18,446,744,073,709,551,615",
    "epochs": "from 1 to 1,000,000",
    "first_task_factor": "from 0.01 to 1,000",
    "batch_size": "from 1 to 1,000,000",
    "accumulate": "from 1 to 1,000,000",
    "learning_rate": "from 1e-12 to 1,000,000",
    "momentum": "from 0 to 0.9999",
    "weight_decay": "from 0 to 100",
    "clip": "from 1e-12 to 1,000,000",
    "warm_up": "from 0 to 1,000,000",
    "rate_factor": "from 0 to 1",
    "plateau_patience": "from 0 to 1,000,000",
    "plateau_factor": "from 0 to 1",
    "plateau_threshold": "from 0 to 1",
    "memory_per_class": "from 1 to 1,000,000,000",
    "memory_total": "from 1 to 1,000,000,000",
    "tasks": "at least 1",
}


def test_every_number_has_limits() -> None:
    hints = get_type_hints(Settings)
    numbers = {name for name, hint in hints.items() if fits(3, hint) and hint is not Any}
    assert numbers == LIMITS.keys()


@pytest.mark.parametrize(("name", "allowed"), LIMITS.items())
def test_a_number_beyond_its_limits_is_refused_with_them(name: str, allowed: str) -> None:
    hint = get_type_hints(Settings)[name]
    beyond: list[float] = [-1, -(2**70)]
    if "to" in allowed:
        beyond += [2**64, 10**400]
    if hint is float:
        beyond += [math.nan, math.inf, -math.inf, 1e308]
    for value in beyond:
        with pytest.raises(PolarbearError) as refused:
            Settings("er", **{name: value})
        assert str(refused.value) == f"{name} must be {allowed}, not {value!r}"


@pytest.mark.parametrize(
    ("name", "bad"), [("learning_rate", 0), ("momentum", 1.0), ("first_task_factor", 0.0)]
)
def test_numbers_that_would_train_nothing_or_without_end_are_refused(name: str, bad: float) -> None:
    with pytest.raises(PolarbearError, match=f"^{name} must be from"):
        Settings("er", **{name: bad})


@pytest.mark.parametrize(
    ("name", "good"), [("seed", 2**64 - 1), ("plateau_factor", 1), ("weight_decay", 0)]
)
def test_a_limit_itself_is_allowed(name: str, good: float) -> None:
    assert getattr(Settings("er", **{name: good}), name) == good


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_methods_option_is_a_finite_number(bad: float) -> None:
    with pytest.raises(PolarbearError, match="the option margin must be a finite number, not"):
        Settings("lucir", options={"margin": bad})
    with pytest.raises(PolarbearError, match="the option pad must be a finite number, not"):
        Settings("er", preparation="mine:images", preparation_options={"pad": bad})
    with pytest.raises(PolarbearError, match="the option drop must be a finite number, not"):
        Settings("er", network="mine:vit", network_options={"drop": bad})


@pytest.mark.parametrize("name", [None, "cifar"])
def test_only_a_preparation_of_ones_own_has_options(name: str | None) -> None:
    said = "preparation_options are for a preparation of your own, package.module:function, not"
    with pytest.raises(PolarbearError, match=said):
        Settings("er", preparation=name, preparation_options={"pad": 2})


def test_only_a_network_of_ones_own_has_options() -> None:
    said = "network_options are for a network of your own, package.module:function, not 'small'"
    with pytest.raises(PolarbearError, match=said):
        Settings("er", network="small", network_options={"depth": 2})


@pytest.mark.parametrize("name", ["memory_per_class", "memory_total"])
def test_a_memory_of_nothing_is_refused_with_what_to_do(name: str) -> None:
    with pytest.raises(PolarbearError, match=r"memory of 0 images.*'finetune'.*None keeps all"):
        Settings("er", **{name: 0})


@pytest.mark.parametrize(
    ("name", "bad", "message"),
    [
        ("epochs", "140", "epochs must be int, not '140'"),
        ("epochs", 1.5, "epochs must be int, not 1.5"),
        ("epochs", True, "epochs must be int, not True"),
        ("epochs", None, "epochs must be int, not None"),
        ("learning_rate", "high", "learning_rate must be float, not 'high'"),
        ("clip", "1", r"clip must be float \| None, not '1'"),
        ("nesterov", 1, "nesterov must be bool, not 1"),
        ("compile", "yes", "compile must be True, False or 'auto', not 'yes'"),
        ("compile", 1, "compile must be True, False or 'auto', not 1"),
        ("rate_steps", 0.5, r"rate_steps must be tuple\[float, ...\], not 0.5"),
        ("rate_steps", ["0.5"], r"rate_steps must be tuple\[float, ...\], not \('0.5',\)"),
        ("memory_per_class", "all", r"memory_per_class must be int \| None, not 'all'"),
        ("preparation", 3, r"preparation must be str \| None, not 3"),
        ("network_options", "depth=2", "network_options must be dict"),
        ("preparation_options", "pad=2", "preparation_options must be dict"),
        ("options", None, "options must be dict"),
        ("options", [("margin", 0.1)], "options must be dict"),
        ("keep_scores", "yes", "keep_scores must be bool, not 'yes'"),
        ("method", None, "method must be str, not None"),
        ("network", 32, "network must be str, not 32"),
    ],
)
def test_a_value_of_the_wrong_type_is_refused(name: str, bad: object, message: str) -> None:
    with pytest.raises(PolarbearError, match=message):
        Settings.from_dict({"method": "er", name: bad})


def test_a_whole_number_will_do_for_a_rate() -> None:
    assert Settings("er", learning_rate=1).learning_rate == 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"nesterov": True, "optimiser": "adamw"},
            "nesterov is for the optimiser sgd, not adamw: leave it out",
        ),
        (
            {"nesterov": True, "momentum": 0},
            "nesterov looks ahead along a momentum, and momentum is 0: leave nesterov out, or give "
            "momentum a number such as 0.9",
        ),
        (
            {"warm_up": 1, "schedule": "onecycle"},
            "the schedule onecycle has a rise of its own: leave warm_up out",
        ),
        (
            {"warm_up": 5.5, "epochs": 5},
            "warm_up must be at most 5, the epochs of the shortest task, not 5.5",
        ),
        (
            {"warm_up": 4, "epochs": 5, "first_task_factor": 0.5},
            "warm_up must be at most 2, the epochs of the shortest task, not 4",
        ),
        (
            {"rate_steps": (0.3,)},
            "rate_steps and rate_factor are for the schedule steps, not plateau: leave them out, "
            "or set schedule to steps",
        ),
        (
            {"rate_factor": 0.3, "schedule": "cosine"},
            "rate_steps and rate_factor are for the schedule steps, not cosine: leave them out, or "
            "set schedule to steps",
        ),
    ],
)
def test_settings_of_rate_and_optimiser_that_mean_nothing_together_are_refused(
    changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(PolarbearError) as refused:
        Settings("er", **changes)
    assert str(refused.value) == message


@pytest.mark.parametrize("bad", [(), (0.75, 0.5), (0.5, 0.5), (0.0,), (0.5, 1), (math.nan,)])
def test_rate_steps_lie_within_a_task_one_after_another(bad: tuple[float, ...]) -> None:
    with pytest.raises(PolarbearError, match=r"^rate_steps must be parts of a task between 0 and"):
        Settings("er", schedule="steps", rate_steps=bad)


def test_a_warm_up_may_last_a_whole_task() -> None:
    assert Settings("er", warm_up=5, epochs=5).warm_up == 5
    assert Settings("er", warm_up=10, epochs=5, tasks=1).warm_up == 10


@pytest.mark.parametrize(
    ("name", "bad", "near"), [("optimiser", "adam", "adamw"), ("schedule", "cosin", "cosine")]
)
def test_an_unknown_word_is_refused_with_the_nearest(name: str, bad: str, near: str) -> None:
    with pytest.raises(UnknownNameError, match=f"unknown {name} '{bad}': did you mean '{near}'"):
        Settings("er", **{name: bad})


def test_an_unknown_precision_is_refused() -> None:
    with pytest.raises(UnknownNameError, match="unknown precision 'fp16': did you mean 'bf16'"):
        Settings("er", precision="fp16")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("wrong", "nearest"),
    [
        ("learning_rat", "learning_rate"),
        ("lr", None),
        ("memory", "memory_total"),
        ("Epochs", "epochs"),
    ],
)
def test_an_unknown_setting_is_refused_with_the_nearest(wrong: str, nearest: str | None) -> None:
    hint = f"did you mean '{nearest}'\\? " if nearest else ""
    with pytest.raises(
        UnknownNameError, match=f"unknown setting '{wrong}': {hint}Valid: accumulate"
    ):
        Settings.from_dict({"method": "er", wrong: 1})


def test_settings_without_a_method_are_refused() -> None:
    with pytest.raises(PolarbearError, match="needs a method"):
        Settings.from_dict({"epochs": 3})


@pytest.mark.parametrize(
    ("epochs", "factor", "first"), [(140, 2.0, 280), (100, 2.0, 200), (3, 1.5, 4), (1, 0.01, 1)]
)
def test_the_first_task_trains_longer_and_never_not_at_all(
    epochs: int, factor: float, first: int
) -> None:
    settings = Settings("er", epochs=epochs, first_task_factor=factor)
    assert [settings.epochs_of(task) for task in range(3)] == [first, epochs, epochs]


def test_settings_do_not_change() -> None:
    settings = Settings("er")
    with pytest.raises(dataclasses.FrozenInstanceError):
        settings.epochs = 3  # type: ignore[misc]
    with pytest.raises(PolarbearError, match="epochs must be from 1 to 1,000,000"):
        replace(settings, epochs=0)
