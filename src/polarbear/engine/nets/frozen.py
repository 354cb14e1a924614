"""Frozen networks: features of every image are worked out once, and stand in the images' place."""

import hashlib
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from polarbear.base.errors import PolarbearError
from polarbear.engine.images.pixels import Pixels
from polarbear.engine.images.transform import ImageTransform, for_evaluation
from polarbear.engine.machine import Machine
from polarbear.engine.nets.networks import feature_width
from polarbear.engine.world import the_world

AT_ONCE = 256  # always the same images together: rounding depends on how many there are
SENT_AT_ONCE = 2**14  # images whose features are copied to be sent: for all, room may be wanting
LOOKED_AT = 8  # images by whose features two networks, or two preparations, are told apart


class Frozen(nn.Module):
    """A network that stays as it is: images or features (n, d, 1, 1) come in, (n, d) go out.

    It has neither parameters nor a state: checkpoints hold a checksum of its ``weights``, copies of
    it share the network. ``fingerprint`` is a checksum of what it says of the first images too.
    """

    def __init__(self, network: nn.Module) -> None:
        """Put a network, which is on its device, into evaluation mode for good."""
        super().__init__()
        self.out_features = feature_width(network)
        self.weights, self.fingerprint = _weights_checksum(network), ""
        self._held = _Held(network.eval().requires_grad_(False))

    @torch.no_grad()
    def forward(self, images: Tensor) -> Tensor:
        """Return features (n, d) of images (n, 3, h, w), or of what is features already."""
        if images.shape[1:] == (self.out_features, 1, 1):
            return images.flatten(1)
        found: Tensor = self._held.network(images)
        return found

    def maps(self, images: Tensor) -> list[Tensor]:
        """Return the features as maps of one place: they stand in the images' place."""
        return [self(images)[:, :, None, None]]

    def look_at_first(self, pixels: Pixels, transform: ImageTransform, machine: Machine) -> None:
        """Take the fingerprint: of the weights, and of the features of a file's first images."""
        first = self.features_of(pixels, transform, machine, most=LOOKED_AT)
        said = hashlib.sha256(f"{self.weights} {tuple(first.shape)}".encode())
        said.update(first.cpu().numpy().tobytes())
        self.fingerprint = said.hexdigest()

    def features_of(
        self,
        pixels: Pixels,
        transform: ImageTransform,
        machine: Machine,
        *,
        most: int | None = None,
        told: Callable[[int, int], object] | None = None,
    ) -> Tensor:
        """Return features of a file's images, as evaluation sees them: (n, d, 1, 1).

        Of ``most`` of them, if given; else each of several processes looks at some, and all have
        the whole. ``told`` hears after every part how many of how many images are done.
        """
        count, world = min(len(pixels), most or len(pixels)), the_world()
        found = torch.zeros(count, self.out_features, device=machine.device)
        parts = torch.split(torch.arange(count), AT_ONCE) if count else ()
        in_shares = most is None and world.size > 1
        parts = parts[world.rank :: world.size] if in_shares else parts
        for part, images in zip(parts, pixels.batches([p.numpy() for p in parts]), strict=True):
            with machine.autocast():
                found[part[0] : part[-1] + 1] = self(for_evaluation(images, transform)).float()
            if told is not None:
                told(int(part[-1]) + 1, count)
        for piece in torch.split(found, SENT_AT_ONCE) if in_shares else ():
            piece.copy_(world.reduce(piece))
        bad = int((~found.isfinite().all(dim=1)).sum())
        if bad:
            raise PolarbearError(
                f"the frozen network has features that are no numbers, of {bad} of {count} images: "
                "try precision fp32, and look at its weights"
            )
        return found[:, :, None, None]


class _Held:
    """Keeps a network out of a module's sight; whoever copies it has the same network."""

    def __init__(self, network: nn.Module) -> None:
        self.network = network

    def __deepcopy__(self, memo: dict[int, Any]) -> "_Held":
        return self


def _weights_checksum(network: nn.Module) -> str:
    found = hashlib.sha256()
    for name, tensor in sorted(network.state_dict().items()):
        found.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
        found.update(tensor.detach().cpu().reshape(-1).view(torch.uint8).numpy().data)
    return found.hexdigest()
