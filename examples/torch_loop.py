"""A training loop of your own in plain PyTorch: polarbear gives the stream and the score.

    pip install '.[torch]'    # in the checkout
    python examples/torch_loop.py --out runs/own/torch-loop

It finetunes on task after task. The folder it writes is shown by ``polarbear runs`` beside those
of the engine.
"""

import argparse

import numpy as np
import torch
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits as bce

import polarbear


def network(classes: int) -> nn.Sequential:
    layers = []
    for inputs, outputs in ((3, 16), (16, 32), (32, 48), (48, 128)):
        layers += [nn.Conv2d(inputs, outputs, 3, 2, 1, bias=False), nn.BatchNorm2d(outputs)]
        layers += [nn.ReLU()]
    return nn.Sequential(
        *layers[:-1], nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, classes)
    )


def tensor(images: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(images).permute(0, 3, 1, 2).float() / 127.5 - 1


def train(net: nn.Module, stream: polarbear.Stream, task: polarbear.Task, epochs: int, random):
    optimiser = torch.optim.SGD(net.parameters(), lr=1.0, momentum=0.9, weight_decay=1e-5)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, 1.0, total_steps=epochs * -(-len(task.train) // 16)
    )
    net.train()
    for _ in range(epochs):
        for batch in np.array_split(random.permutation(len(task.train)), -(-len(task.train) // 16)):
            x = tensor(stream.images("train")[task.train.rows[batch]])
            y = torch.from_numpy(task.train.targets[batch]).float()  # (n, seen): new labels alone
            optimiser.zero_grad()
            bce(net(x)[:, : len(task.seen)], y).backward()
            optimiser.step()
            schedule.step()


@torch.no_grad()
def predict(net: nn.Module, stream: polarbear.Stream, view: polarbear.View) -> np.ndarray:
    net.eval()
    parts = np.array_split(view.rows, -(-len(view) // 256))
    scores = [net(tensor(stream.images("test")[rows])) for rows in parts]
    return torch.cat(scores)[:, : len(view.classes)].numpy() > 0


def main(out: str, epochs: int = 8, tasks: int | None = None, seed: int = 100) -> None:
    torch.manual_seed(seed)
    random = np.random.default_rng(seed)
    stream = polarbear.load("iirc-shapes", order=0)
    evaluator = polarbear.Evaluator(stream)
    about = {"seed": seed, "tasks": tasks, "epochs": epochs}
    folder = polarbear.start_run(out, stream, method="torch-loop", **about)
    net = network(len(stream.classes))
    for task in stream[:tasks]:
        train(net, stream, task, epochs * (2 if task.index == 0 else 1), random)
        predicted = predict(net, stream, stream.test(after=task.index))
        scores = evaluator.add(after=task.index, predictions=predicted)
        polarbear.write_scores(folder, evaluator, after=task.index, predictions=predicted)
        print(f"task {task.index}: R_j {scores['pw_jaccard']:.3f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", default="runs/own/torch-loop")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--tasks", type=int)
    main(**vars(parser.parse_args()))
