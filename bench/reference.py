"""Task 0 trained to its end the reference's way, as a yardstick for the engine's scores.

A DataLoader with PIL transforms, fp32, eager steps, PyTorch's own SGD and ReduceLROnPlateau: none
of our loop, augmentation, precision or schedule. Scores are in-task validation after each epoch
and, of the best epoch's weights, test; the engine's are those of ``bench/run.py er:2 --settings
'{"tasks": 1}'``.

    python bench/reference.py 2 --root data --weights authors
"""

import argparse
import json
import random
from copy import deepcopy

import torch
from torch.optim.lr_scheduler import ReduceLROnPlateau
from torch.utils.data import DataLoader

import polarbear
from ablations import draw_like_the_authors
from polarbear.benchmark.stream import View
from polarbear.engine.task.learner import Learner
from polarbear.launch.assembly import build_learner
from polarbear.methods.presets import settings_for
from polarbear.score import metrics
from polarbear.score.evaluate import Evaluator
from train import pil_loader, with_plain_batch_norm


def built(stream: polarbear.Stream, weights: str, seed: int) -> Learner:
    """The network with a draw of first weights, batch norm as PyTorch has it."""
    learner = build_learner(settings_for("er", "iirc-cifar", seed=seed, precision="fp32"), stream)
    learner.model.head.grow(len(stream[0].seen))
    if weights == "authors":
        draw_like_the_authors(learner.model)
    with_plain_batch_norm(learner.model).to(memory_format=torch.contiguous_format)
    return learner


def score(learner: Learner, view: View) -> float:
    """pw-JS of predicting every class with a positive score."""
    return float(metrics.pw_jaccard(learner.scores(view) > 0, view.targets).mean())


def train(learner: Learner, stream: polarbear.Stream, args: argparse.Namespace) -> float:
    """Train on task 0, print every epoch, and give the test score of the best one's weights."""
    model, device = learner.model, learner.machine.device
    optimiser = torch.optim.SGD(model.parameters(), lr=1.0, momentum=0.9, weight_decay=1e-5)
    schedule = ReduceLROnPlateau(
        optimiser, mode="max", factor=0.1, patience=10, threshold=1e-3, threshold_mode="abs"
    )
    loader = pil_loader(stream, args.workers, device)
    best, kept = 0.0, deepcopy(model.state_dict())
    for epoch in range(args.epochs):
        loss, rate = train_epoch(model, loader, optimiser, device), schedule.get_last_lr()[0]
        valid = score(learner, stream[0].valid)
        schedule.step(valid)
        if valid >= best:
            best, kept = valid, deepcopy(model.state_dict())
        print(json.dumps({"epoch": epoch, "loss": loss, "rate": rate, "valid": valid}), flush=True)
    model.load_state_dict(kept)
    return score(learner, Evaluator(stream).view(0))


def train_epoch(
    model: torch.nn.Module, loader: DataLoader, optimiser: torch.optim.SGD, device: torch.device
) -> float:
    """The mean loss of an epoch's steps."""
    loss_function, losses = torch.nn.BCEWithLogitsLoss(), []
    model.train()
    for images, targets in loader:
        optimiser.zero_grad()
        loss = loss_function(model(images.to(device)), targets.to(device))
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    return sum(losses) / len(losses)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("order", type=int)
    parser.add_argument("--root", default="data")
    parser.add_argument("--weights", choices=("ours", "authors"), default="ours")
    parser.add_argument("--seed", type=int, default=100)
    parser.add_argument("--epochs", type=int, default=280)
    parser.add_argument("--workers", type=int, default=4)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    random.seed(args.seed)
    stream = polarbear.load("iirc-cifar", args.order, args.root)
    learner = built(stream, args.weights, args.seed)
    print(json.dumps({"order": args.order, "test": train(learner, stream, args)}))


if __name__ == "__main__":
    main()
