"""How images are prepared, by name or by the dotted path of one of your own."""

from collections.abc import Mapping
from inspect import isfunction
from types import MappingProxyType
from typing import Any

import numpy as np
from torch import Tensor

from polarbear.base.dotted import find_dotted
from polarbear.base.errors import PolarbearError, unknown_name
from polarbear.engine.images.transform import TRANSFORMS, ImageTransform, Jitter
from polarbear.settings.factory_options import refuse_unfit_options

_TRIES = 4  # draws of a crop of one's own before a run


def find_transform(name: str, options: Mapping[str, Any] = MappingProxyType({})) -> ImageTransform:
    """Return an image transform by name or dotted path, which is the setting ``preparation``.

    A path names an ``ImageTransform``, or a function that returns one for ``options``.

    >>> find_transform("plain").std
    (0.36, 0.36, 0.36)
    """
    if ":" in name:
        return _own(name, find_dotted(name, "transform", _may_prepare), options)
    try:
        return TRANSFORMS[name]
    except KeyError:
        raise unknown_name("preparation", name, [*TRANSFORMS, "package.module:transform"]) from None


def _may_prepare(value: object) -> bool:
    return isfunction(value) or isinstance(value, ImageTransform)


def _own(name: str, thing: object, options: Mapping[str, Any]) -> ImageTransform:
    if isinstance(thing, ImageTransform):
        if options:
            raise PolarbearError(
                f"preparation {name!r} is an ImageTransform, which takes no options: leave "
                "preparation_options out, or name a function that returns one"
            )
        return thing
    if not callable(thing):
        raise PolarbearError(
            f"preparation {name!r} is {thing!r}: an ImageTransform is needed, or a function that "
            "returns one"
        )
    refuse_unfit_options("preparation", name, thing, options)
    made = thing(**options)
    if not isinstance(made, ImageTransform):
        raise PolarbearError(
            f"preparation {name!r} returns a {type(made).__name__}, not an ImageTransform"
        )
    return made


def refuse_bad_crop(name: str, transform: ImageTransform, image: Tensor) -> None:
    """Try a crop of one's own on an image (1, h, w, 3), and refuse what steps could not use."""
    images, crop = image.repeat(2, 1, 1, 1), transform.crop
    cuts = {"cut_for_evaluation": {_shape(crop.cut_for_evaluation(images))}, "cut": set()}
    for seed in range(_TRIES):
        jitter = crop.draw(2, np.random.default_rng(seed))
        if not isinstance(jitter, Jitter) or len(jitter.place) != 2 or jitter.flip.shape != (2,):
            raise PolarbearError(
                f"preparation {name!r}: draw(2, random) of its crop must give a Jitter with place "
                f"(2, …) and flip (2,), not {jitter!r}"
            )
        cuts["cut"].add(_shape(crop.cut(images, jitter)))
    for function, found in cuts.items():
        for shape in found:
            if not (len(shape) == 4 and (shape[0], shape[3]) == (2, 3)):
                raise PolarbearError(
                    f"preparation {name!r}: {function} of its crop gives {shape} for 2 images, not "
                    "pixels (2, h, w, 3)"
                )
    if len(cuts["cut"]) > 1:
        both = " and ".join(str(shape) for shape in sorted(cuts["cut"]))
        raise PolarbearError(
            f"preparation {name!r}: cut of its crop gives {both}: the shape may not depend on "
            "what was drawn, so bring all to one size"
        )


def _shape(pixels: object) -> tuple[int, ...]:
    return tuple(pixels.shape) if isinstance(pixels, Tensor) else ()
