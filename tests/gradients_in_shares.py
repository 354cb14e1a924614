"""What a process of several finds at one step; run by torchrun, or alone.

As a program: FOLDER IMAGES BESIDE IMAGES BESIDE …
"""

import atexit
import os
import sys
from pathlib import Path

import torch
from torch import Tensor, nn

from polarbear.engine.contract.batch import Batch
from polarbear.engine.nets.networks import build_backbone
from polarbear.engine.nets.summed_batch_norm import summed_batch_norm
from polarbear.engine.task.optimiser import average_gradients
from polarbear.engine.world import World, the_world


def loss_of_step(network: nn.Module, batch: Batch, beside: Batch, world: World) -> Tensor:
    """Return a loss with all that is delicate: batch norm, a ratio of sums, a mean, two batches."""
    found = network(batch.images)
    loss = (found - batch.targets).square().mean()
    counted = found[:, :3] * batch.replayed[:, None]
    ratio = world.sum(counted.square().sum()) / world.sum(batch.replayed.sum()).clamp(min=1)
    centre = world.mean(found.mean(dim=0)).square().sum()
    other = (network(beside.images) - beside.targets).square().mean()
    return loss + ratio + 3 * centre + other * beside.weight


def batch_of(images: int, seed: int, at: slice, weight: float = 1.0) -> Batch:
    random = torch.Generator().manual_seed(seed)
    pixels = torch.randn(images, 3, 32, 32, generator=random, dtype=torch.double)
    targets = torch.randn(images, 128, generator=random, dtype=torch.double)
    replayed = torch.arange(images) % 3 == 0
    return Batch(pixels[at], targets[at], replayed[at], torch.arange(images)[at], weight=weight)


def main(folder: str, images: int, beside: int) -> None:
    torch.set_num_threads(1)
    world = the_world()
    network = build_backbone("small", 1).double()
    optimiser = torch.optim.SGD(network.parameters(), lr=0.1)
    divided = world.divides(images), world.divides(images) and world.divides(beside)
    shares = [world.share if one else slice for one in divided]
    weight = world.weight_of(beside) / world.weight_of(images) if divided[0] else 1.0
    own = batch_of(images, 1, shares[0](0, images))
    others = batch_of(beside, 2, shares[1](0, beside), weight)
    with world.step(images), summed_batch_norm(world):
        loss = loss_of_step(network, own, others, world)
        loss.backward()
        loss = loss.detach()
        if world.size > 1:
            loss = average_gradients(optimiser, [], loss, world)
    found = {name: parameter.grad for name, parameter in network.named_parameters()}
    found |= {name: buffer for name, buffer in network.named_buffers() if "running" in name}
    file = f"{images}-{beside}-of-{world.size}-{world.rank}.pt"
    torch.save({**found, "loss": loss.double()}, Path(folder) / file)


def tell_threads(folder: str) -> None:
    """Write the names of this process's threads, where the system tells them."""
    names = [file.read_text() for file in Path("/proc/self/task").glob("*/comm")]
    Path(folder, f"threads-{os.environ['RANK']}.txt").write_text("".join(names))


if __name__ == "__main__":
    atexit.register(tell_threads, sys.argv[1])  # the first to be asked for is the last to be done
    numbers = [int(word) for word in sys.argv[2:]]
    for pair in zip(numbers[::2], numbers[1::2], strict=True):
        main(sys.argv[1], *pair)
