"""An Avalanche strategy on polarbear's stream: replay with Avalanche's own plugin, scored by ours.

    pip install '.[avalanche]'    # in the checkout
    python examples/avalanche_strategy.py --out runs/own/avalanche-replay

The folder it writes is shown by ``polarbear runs`` beside those of the engine.
"""

import argparse

import torch
from avalanche.core import SupervisedPlugin
from avalanche.training.plugins import EvaluationPlugin, ReplayPlugin
from avalanche.training.templates import SupervisedTemplate
from torch import Tensor, nn

import polarbear
from polarbear.adapters.avalanche import benchmark


class Network(nn.Module):
    def __init__(self, classes: int) -> None:
        super().__init__()
        layers = []
        for inputs, outputs in ((3, 16), (16, 32), (32, 48), (48, 128)):
            layers += [nn.Conv2d(inputs, outputs, 3, 2, 1, bias=False), nn.BatchNorm2d(outputs)]
            layers += [nn.ReLU()]
        self.features = nn.Sequential(*layers[:-1], nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.head = nn.Linear(128, classes)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.features(images.float() / 127.5 - 1))


class SeenClasses(SupervisedTemplate):
    """A strategy whose loss is over the classes seen so far: the first columns of the targets."""

    stream: polarbear.Stream

    @property
    def seen(self) -> int:
        return len(self.stream[self.experience.current_experience].seen)

    def criterion(self) -> Tensor:
        return self._criterion(self.mb_output[:, : self.seen], self.mb_y[:, : self.seen])


class Score(SupervisedPlugin):
    """Collects predictions for ``test_stream[j]`` and writes their scores after task j."""

    def __init__(self, stream: polarbear.Stream, folder: polarbear.RunFolder) -> None:
        super().__init__()
        self.evaluator, self.folder = polarbear.Evaluator(stream), folder
        self.predicted: list[Tensor] = []

    def after_eval_forward(self, strategy: SeenClasses, **_: object) -> None:
        self.predicted.append(strategy.mb_output[:, : strategy.seen].cpu() > 0)

    def after_eval_exp(self, strategy: SeenClasses, **_: object) -> None:
        after, predicted = strategy.experience.current_experience, torch.cat(self.predicted).numpy()
        scores = self.evaluator.add(after=after, predictions=predicted)
        polarbear.write_scores(self.folder, self.evaluator, after=after, predictions=predicted)
        print(f"task {after}: R_j {scores['pw_jaccard']:.3f}")
        self.predicted = []


def main(out: str, epochs: int = 8, tasks: int | None = None, seed: int = 100) -> None:
    torch.manual_seed(seed)
    stream = polarbear.load("iirc-shapes", order=0)
    folder = polarbear.start_run(
        out, stream, method="avalanche-replay", seed=seed, tasks=tasks, epochs=epochs
    )
    made = benchmark(stream)
    net = Network(len(stream.classes))
    strategy = SeenClasses(
        model=net,
        optimizer=torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-5),
        criterion=nn.BCEWithLogitsLoss(),
        train_mb_size=16,
        train_epochs=epochs,
        eval_mb_size=256,
        plugins=[ReplayPlugin(mem_size=20 * len(stream.classes)), Score(stream, folder)],
        evaluator=EvaluationPlugin(),
    )
    strategy.stream = stream
    for experience in made.train_stream[:tasks]:
        strategy.train(experience)
        strategy.eval(made.test_stream[experience.current_experience])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", default="runs/own/avalanche-replay")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--tasks", type=int)
    main(**vars(parser.parse_args()))
