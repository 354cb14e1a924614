"""How far the gradients of bf16 are from fp64's, with weights that a run came by, as CSV.

    python bench/gradients.py 2 checkpoint/00000010.safetensors … --root data
    python bench/gradients.py --header

The first number is the class order; the weights are those of its task 0, with the linear head and
the loss that ER has there. A run keeps two checkpoints, so copy them while it trains. *batches* is
how far a batch's gradient is from the mean over many, the noise that training has anyway; *bf16* is
PyTorch's autocast, *fused* our kernels: on a GPU they themselves, elsewhere their source compiled
by g++ as in the tests, a minute or two for 64 images. Each is a part of the gradient's size. The
*part* of the exact gradient that is left tells a bias from noise: 1 where there is none.
"""

import argparse
import copy
import csv
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional

from polarbear.engine.images.preparation import find_transform
from polarbear.engine.images.transform import for_evaluation
from polarbear.engine.nets.fused import backward, blocks, whole_images
from polarbear.engine.nets.fused import features as fused
from polarbear.engine.nets.heads import build_head
from polarbear.engine.nets.model import Model
from polarbear.engine.nets.networks import build_backbone
from polarbear.named.registry import load

BENCHMARK, NETWORK = "iirc-cifar", "resnet32"
HEADS = ["order", "epoch", "step", "rate", "loss", "batches"]
HEADS += ["fp32", "bf16", "bf16_part", "fused", "fused_part"]
Features = Callable[[nn.Module, Tensor], Tensor]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("order", type=int, nargs="?")
    parser.add_argument("checkpoints", nargs="*", type=Path)
    parser.add_argument("--root", default="data")
    parser.add_argument("--images", type=int, default=64, help="of the batch that is compared")
    parser.add_argument("--batches", type=int, default=32, help="of 128, for their noise")
    parser.add_argument("--header", action="store_true", help="the names of the columns first")
    args = parser.parse_args()
    out = csv.writer(sys.stdout, lineterminator="\n")
    if args.header:
        out.writerow(HEADS)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cpu" and args.checkpoints:
        emulate()
    torch.backends.cudnn.allow_tf32 = False
    for path in args.checkpoints:
        images, targets = drawn(args.order, args.images + 128 * args.batches, args.root)
        model = model_of(path, targets.shape[1])
        batch = [t.to(device) for t in (images[: args.images], targets[: args.images])]
        rest = [t[args.images :].to(device).split(128) for t in (images, targets)]
        found = [args.order, *place(path), *compared(model.to(device), batch)]
        noise = apart_from_their_mean(model, list(zip(*rest, strict=True)))
        out.writerow([*found[:4], f"{found[4]:.4f}", f"{noise:.3f}", *found[5:]])
        sys.stdout.flush()


def drawn(order: int, count: int, root: str) -> tuple[Tensor, Tensor]:
    """Return images of task 0 as a network takes them, not augmented, and their targets."""
    stream = load(BENCHMARK, order, root)
    view = stream.train(0, 0)
    chosen = np.random.default_rng(0).permutation(len(view))[:count]
    pixels = torch.from_numpy(np.stack([stream.images("train")[row] for row in view.rows[chosen]]))
    images = for_evaluation(pixels, find_transform("cifar"))
    return images, torch.from_numpy(view.targets[chosen]).float()


def model_of(path: Path, classes: int) -> Model:
    """Return the network of a checkpoint, with a linear head for so many classes."""
    own = {name: t for name, t in load_file(path).items() if name.startswith("model/")}
    tensors = {name.removeprefix("model/"): tensor for name, tensor in own.items()}
    rows = len(tensors["head.weight"])
    model = Model(build_backbone(NETWORK, 0), build_head("linear", 64, rows, 0))
    model.load_state_dict(tensors)
    model.head.grow(classes)  # type: ignore[operator]
    return model.train()


def place(path: Path) -> list[Any]:
    """Return epoch, step and rate of a checkpoint."""
    facts = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))["facts"]["progress"]
    return [facts["epoch"], facts["step"], facts["plateau"]["rate"]]


def compared(model: Model, batch: list[Tensor]) -> list[Any]:
    """Return the exact loss, and how far each arithmetic's gradient is from the exact one."""
    loss, exact = gradient(copy.deepcopy(model).double(), [t.double() for t in batch])
    _, single = gradient(model, batch)
    found: list[Any] = [loss, f"{apart(single, exact):.5f}"]
    for features in (plain, ours):
        _, rounded = gradient(model, batch, features)
        found += [f"{apart(rounded, exact):.4f}", f"{rounded @ exact / exact.norm() ** 2:.4f}"]
    return found


def gradient(
    model: Model, batch: list[Tensor], features: Features | None = None
) -> tuple[float, Tensor]:
    """Return loss and gradient of all weights of the network below the head, flat, in float64."""
    images, targets = batch
    before = copy.deepcopy(model.backbone.state_dict())
    if features is None:
        loss = functional.binary_cross_entropy_with_logits(model(images), targets)
    else:
        with torch.autocast(images.device.type, torch.bfloat16):
            logits = model.head(features(model.backbone, images))
        loss = functional.binary_cross_entropy_with_logits(logits.float(), targets)
    found = torch.autograd.grad(loss, [*model.backbone.parameters()])
    model.backbone.load_state_dict(before)  # the statistics of batch norm have moved
    return float(loss.detach()), torch.cat([one.flatten().double() for one in found])


def plain(backbone: nn.Module, images: Tensor) -> Tensor:
    features: Tensor = backbone(images.contiguous(memory_format=torch.channels_last))
    return features


def ours(backbone: nn.Module, images: Tensor) -> Tensor:
    return fused.features(backbone, images.contiguous(memory_format=torch.channels_last))


def apart(found: Tensor, exact: Tensor) -> float:
    return float((found - exact).norm() / exact.norm())


def apart_from_their_mean(model: Model, batches: list[Any]) -> float:
    """Return how far a batch's gradient is from the mean of many (root mean square)."""
    found = torch.stack([gradient(model, [*batch])[1] for batch in batches])
    mean = found.mean(0)
    return float((found - mean).square().sum(1).mean().sqrt() / mean.norm())


def emulate() -> None:
    """Let g++ compile the kernels for whole images, as in the tests."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    import emulated_gpu

    blocks.compile_kernel = emulated_gpu.compile_kernel
    whole_images.work = lambda *size: True
    backward.sum_gradient = summed  # Triton's


def summed(gradient: Tensor, raw: Tensor, sums: Tensor) -> None:
    """Add what a batch norm needs on the way back: sums of the gradient, and of it times raw."""
    flow, below = (maps.float().flatten(0, 2) for maps in (gradient, raw))
    sums += torch.cat([flow.sum(0), (flow * below).sum(0)])


if __name__ == "__main__":
    main()
