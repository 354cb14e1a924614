"""Device and precision: chosen once, used everywhere, known to no method."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass

import torch
from torch import nn

from polarbear.base.errors import PolarbearError, counted
from polarbear.engine.cpu_bf16 import refuse_unless_it_works
from polarbear.engine.world import own_gpu, the_world
from polarbear.settings.settings import Precision, Settings


@dataclass(frozen=True)
class Machine:
    """Where a run computes and with what arithmetic."""

    device: torch.device
    precision: Precision = "fp32"

    @classmethod
    def of(cls, settings: Settings) -> "Machine":
        """Return the machine a run asks for, or an error that says what is there."""
        name = settings.device
        if name == "auto":
            name = "cuda" if torch.cuda.is_available() else "cpu"
        try:
            device = torch.device(name)
        except RuntimeError:
            raise PolarbearError(f"unknown device {name!r}: auto, cpu, cuda or cuda:N") from None
        if device.type not in ("cpu", "cuda"):
            raise PolarbearError(f"device {name!r} is not supported: auto, cpu, cuda or cuda:N")
        device = _own_gpu(device)
        if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
            raise PolarbearError(
                f"device {str(device)!r} was asked for, but PyTorch {torch.__version__} sees "
                f"{counted(torch.cuda.device_count(), 'GPU')} here: use --device cpu or auto"
            )
        automatic: Precision = "bf16" if device.type == "cuda" else "fp32"
        precision = automatic if settings.precision == "auto" else settings.precision
        if (device.type, precision) == ("cpu", "bf16"):
            refuse_unless_it_works()
        return cls(device, precision)

    def autocast(self) -> AbstractContextManager[object]:
        """Return the context a forward pass runs in."""
        if self.precision == "bf16":
            return torch.autocast(self.device.type, torch.bfloat16)
        return nullcontext()

    @contextmanager
    def seeded(self, seed: int) -> Iterator[None]:
        """Seed PyTorch's own random numbers, which dropout draws; afterwards they are as before."""
        on_gpu = self.device.type == "cuda"
        with torch.random.fork_rng(devices=[self.device] if on_gpu else []):
            torch.default_generator.manual_seed(seed)
            if on_gpu:
                with torch.cuda.device(self.device):
                    torch.cuda.manual_seed(seed)
            yield

    def place(self, model: nn.Module) -> None:
        """Move a model here, channels last: faster convolutions on a CPU and on a GPU."""
        model.to(device=self.device, memory_format=torch.channels_last)  # type: ignore[call-overload]

    def allow_tf32(self) -> None:
        """Let matrix units round fp32 to tf32, if asked: a switch of the whole process."""
        if self.device.type == "cuda":
            allowed = self.precision == "tf32"
            torch.backends.cuda.matmul.allow_tf32 = allowed
            torch.backends.cudnn.allow_tf32 = allowed


def _own_gpu(device: torch.device) -> torch.device:
    """Return a GPU for this process alone, where several train a run together."""
    if device.type != "cuda" or the_world().size == 1:
        return device
    if device.index is not None:
        raise PolarbearError(
            f"device '{device}' is one GPU, but each of {the_world().size} processes needs one of "
            "its own: use --device cuda"
        )
    return torch.device("cuda", own_gpu())
