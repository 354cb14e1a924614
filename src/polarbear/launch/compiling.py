"""Which of a run's batches go through ``torch.compile``, tried out before the first step."""

import torch

from polarbear.engine.contract.method import Method
from polarbear.engine.machine import Machine
from polarbear.engine.nets.frozen import Frozen
from polarbear.engine.nets.model import Compilation
from polarbear.settings.settings import WORTH_COMPILING, Settings


def compilation_of(
    method: Method, settings: Settings, machine: Machine, side: int
) -> Compilation | None:
    """Return what of a method's network is compiled, tried out: None if nothing is, or can be.

    Steps on a frozen network's features, which are worked out before, have nothing to compile.
    """
    part, backbone = _in_part(settings.batch_size, settings), method.model.backbone
    if part == 1 or isinstance(backbone, Frozen) or not wants_compiling(settings, machine.device):
        return None
    name = f"{settings.network}{settings.network_options or ''}"
    found = Compilation(name, batches_of(method, settings))
    found.announce(part)
    images = torch.zeros(part, 3, side, side, device=machine.device)
    with machine.autocast():
        works = found.works(backbone, images.contiguous(memory_format=torch.channels_last))
    return found if works else None


def wants_compiling(settings: Settings, device: torch.device) -> bool:
    """Whether a run's network is to be compiled: as asked for, else where that pays."""
    if settings.compile != "auto":
        return settings.compile
    return settings.network in WORTH_COMPILING and device.type == "cuda"


def batches_of(method: Method, settings: Settings) -> frozenset[int]:
    """Return how many images a method may give the network at once in a whole step.

    They are the step's own, memory's beside them or both together, in one view or in all. Which of
    these a method gives is seen when it does.
    """
    sizes = {_in_part(settings.batch_size, settings)}
    if method.replay == "reference":
        beside = _in_part(method.reference_batch_size or settings.batch_size, settings)
        sizes |= {beside, beside + max(sizes)}
    return frozenset(size * views for size in sizes for views in (1, method.views))


def _in_part(images: int, settings: Settings) -> int:
    return -(-images // settings.accumulate)
