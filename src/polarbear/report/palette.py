"""How each method looks wherever it is shown: a colour and a marker of its own, fixed by name."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from zlib import crc32

from polarbear.methods.catalogue import is_bound
from polarbear.report.read.groups import Group

#: Each tone on a light ground and on a dark one. On light ones: Okabe and Ito's colours without the
#: yellow, which print loses, then three of Tol's dark ones. On either ground they stay apart for
#: colour-blind readers, too (measured in the tests).
TONES: Mapping[str, tuple[str, str]] = {
    "blue": ("#0072B2", "#1099FB"),
    "vermilion": ("#D55E00", "#DD7D01"),
    "green": ("#009E73", "#3BE08A"),
    "pink": ("#CC79A7", "#BF3FA8"),
    "black": ("#000000", "#F4F6F8"),
    "orange": ("#E69F00", "#FCE03A"),
    "sky": ("#56B4E9", "#5ACFFF"),
    "wine": ("#882255", "#BB3967"),
    "indigo": ("#332288", "#713BFF"),
    "brown": ("#661100", "#BC3A2F"),
}
GREY = ("#707070", "#AFAFAF")
#: The tones on a light ground, for what is no method: bars, dots, panels of one thing.
COLOURS = tuple(light for light, _ in TONES.values())
#: As Matplotlib names them.
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">")

#: The tone and marker of each method. There are more methods than tones: those likely to be drawn
#: together differ in tone, and those of one tone in the marker.
LISTED: Mapping[str, tuple[str, str]] = {
    "finetune": ("brown", "v"),
    "er": ("vermilion", "o"),
    "mask-seen": ("pink", "D"),
    "agem": ("black", "s"),
    "icarl-cnn": ("orange", "^"),
    "icarl-norm": ("sky", "P"),
    "lucir": ("wine", "X"),
    "kin": ("blue", "o"),
    "hcv": ("green", "s"),
    "lwf": ("indigo", "^"),
    "er-ace": ("blue", "s"),
    "derpp": ("green", "D"),
    "gdumb": ("brown", "o"),
    "ss-il": ("pink", "^"),
    "bic": ("wine", "o"),
    "wa": ("indigo", "s"),
    "gem": ("black", "o"),
    "icarl-nme": ("orange", "o"),
    "ranpac": ("sky", "o"),
    "ncm": ("indigo", "o"),
    "slda": ("vermilion", "s"),
    "ewc": ("green", "v"),
    "si": ("pink", "P"),
    "mas": ("sky", "D"),
    "rwalk": ("orange", "P"),
    "lwm": ("brown", "^"),
    "mtkd": ("wine", "^"),
    "replay": ("vermilion", "^"),
    "eeil": ("orange", "s"),
    "il2m": ("green", "^"),
    "podnet": ("brown", "s"),
}
BOUNDS: Mapping[str, str] = {"joint": "D", "incremental-joint": "s", "er-infinite": "^"}


@dataclass(frozen=True)
class Look:
    """A colour on a light ground and one on a dark; a marker; bounds are grey and dashed."""

    colour: str
    on_dark: str
    marker: str
    dashed: bool = False


def looks(groups: Sequence[Group]) -> dict[str, Look]:
    """Return each group's look by its name, whatever else stands beside it and where.

    The first group of a method looks as the method does in every report. Others, and methods that
    nobody listed, have a look by their names, in a tone that the report does not have yet while
    there is one.
    """
    taken: dict[str, tuple[str, str]] = {}
    others: list[Group] = []
    for group in groups:
        own = _own(group.method)
        if own is None or own in taken.values():
            others.append(group)
        else:
            taken[group.name] = own
    # By name: their places in the report have no say.
    for group in sorted(others, key=lambda group: group.name):
        taken[group.name] = _free(group, taken)
    return {group.name: _look(*taken[group.name]) for group in groups}


def _own(method: str) -> tuple[str, str] | None:
    """Return a known method's tone and marker."""
    if is_bound(method):
        return ("grey", BOUNDS[method]) if method in BOUNDS else None
    return LISTED.get(method)


def _free(group: Group, taken: Mapping[str, tuple[str, str]]) -> tuple[str, str]:
    """Return a tone seldom seen so far and a marker new to it, from where the name's hash says."""
    used, places = (
        Counter(tone for tone, _ in taken.values()),
        crc32(group.name.encode(errors="surrogatepass")),
    )
    tones = ["grey"] if is_bound(group.method) else _from(list(TONES), places)
    tones.sort(key=lambda tone: used[tone])
    pairs = product(tones, _from(list(MARKERS), places // len(TONES)))
    return next((pair for pair in pairs if pair not in taken.values()), (tones[0], MARKERS[0]))


def _from(values: list[str], place: int) -> list[str]:
    """Return the values from a place on, then those before it."""
    first = place % len(values)
    return values[first:] + values[:first]


def _look(tone: str, marker: str) -> Look:
    light, dark = TONES.get(tone, GREY)
    return Look(light, dark, marker, dashed=tone == "grey")
