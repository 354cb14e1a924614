"""Each method has one look everywhere, and eyes of all kinds tell looks apart."""

import itertools
from pathlib import Path

import numpy as np
import pytest

from polarbear.methods.catalogue import METHODS, is_bound
from polarbear.report.palette import BOUNDS, COLOURS, GREY, LISTED, TONES, Look, looks
from polarbear.report.read.groups import Group
from polarbear.report.read.runs import read_runs
from synthetic_runs import make_run

KNOWN = (*LISTED, *BOUNDS)


def group(method: str, name: str = "") -> Group:
    return Group(name or method, method, "iirc-shapes-v1", ())


def test_a_method_looks_the_same_in_every_report() -> None:
    every = looks([group(name) for name in KNOWN])
    for name in KNOWN:
        assert looks([group("their.package:Own"), group(name)])[name] == every[name]
        assert looks([group(name), group("own:Own"), group("own:Two")])[name] == every[name]


def test_known_methods_have_looks_of_their_own() -> None:
    assert len(set(looks([group(name) for name in KNOWN]).values())) == len(KNOWN)


def test_bounds_are_grey_and_dashed_and_nothing_else_is() -> None:
    for name, look in looks([group(name) for name in METHODS]).items():
        assert look.dashed is is_bound(name)
        assert (look.colour == GREY[0]) is is_bound(name)


def test_unlisted_names_have_looks_that_their_places_do_not_decide() -> None:
    own = [group(f"their.package:Own{i}") for i in range(4)]
    assert looks(own) == looks(own[::-1])
    assert looks(own[:1])[own[0].name] == looks([group("joint"), own[0]])[own[0].name]


def test_unlisted_names_take_tones_that_are_free() -> None:
    named = [group(name) for name in ("er", "kin", "lucir", "agem")]
    own = [group(f"own:Own{i}") for i in range(6)]
    assert len({look.colour for look in looks(named + own).values()}) == 10


def test_names_that_are_no_text_have_looks_too() -> None:
    assert len(looks([group("own:\ud800"), group("own:\x1b]0;")])) == 2


def test_ninety_groups_differ_in_colour_or_marker() -> None:
    many = [group("er", f"er, memory {kept}") for kept in range(90)]
    assert len(set(looks(many).values())) == 90
    assert len(looks([*many, group("er", "er, memory all")])) == 91


def test_several_groups_of_a_method_differ_and_the_first_is_the_methods(tmp_path: Path) -> None:
    for kept in (5, 20, 50):
        make_run(tmp_path / f"er-{kept}", memory_per_class=kept)
    make_run(tmp_path / "joint", "joint")
    found = looks(read_runs(tmp_path).groups)
    assert next(iter(found)) == "er, memory 5"
    assert len({look.colour for look in found.values()}) == 4
    assert found["er, memory 5"] == Look(*TONES["vermilion"], "o")


def test_settings_of_a_bound_are_grey_with_other_markers() -> None:
    both = looks([group("joint", "joint, epochs 1"), group("joint", "joint, epochs 2")])
    assert {look.colour for look in both.values()} == {GREY[0]}
    assert len({look.marker for look in both.values()}) == 2


#: What a full lack of green or red cones makes of linear colours (Machado and others, 2009).
SIGHT = {
    "all": np.eye(3),
    "no green": np.array(
        [[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]],
    ),
    "no red": np.array(
        [[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]],
    ),
}
DARK = tuple(dark for _, dark in TONES.values())


def linear(colour: str) -> np.ndarray:
    parts = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    return np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)


def lab(light: np.ndarray) -> np.ndarray:
    """CIE L*a*b* of linear sRGB: distances are about what eyes see."""
    to_xyz = np.array(
        [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
    )
    x, y, z = np.cbrt(to_xyz @ light.clip(1e-3, 1) / np.array([0.9505, 1.0, 1.089]))
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("sight", SIGHT)
@pytest.mark.parametrize(("colours", "grey"), [(COLOURS, GREY[0]), (DARK, GREY[1])])
def test_colour_blind_readers_tell_the_colours_apart(
    sight: str, colours: tuple[str, ...], grey: str
) -> None:
    seen = [lab(SIGHT[sight] @ linear(colour)) for colour in colours]
    pairs = itertools.combinations(seen, 2)
    assert min(float(np.linalg.norm(one - other)) for one, other in pairs) > 15
    # Bounds have dashes, too.
    bound = lab(SIGHT[sight] @ linear(grey))
    assert min(float(np.linalg.norm(bound - one)) for one in seen) > 12


@pytest.mark.parametrize(
    ("colours", "ground", "least"), [(COLOURS, "#FFFFFF", 2), (DARK, "#12161b", 3)]
)
def test_every_colour_stands_out_from_its_ground(
    colours: tuple[str, ...], ground: str, least: float
) -> None:
    weights = np.array([0.2126, 0.7152, 0.0722])
    for colour in colours:
        low, high = sorted(float(weights @ linear(one)) for one in (colour, ground))
        assert (high + 0.05) / (low + 0.05) > least, colour
