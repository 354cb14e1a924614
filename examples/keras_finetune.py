"""Finetuning in Keras on TensorFlow: tf.data pipelines and score from polarbear.

    pip install '.[tensorflow]'    # in the checkout
    python examples/keras_finetune.py --out runs/own/keras-finetune

The folder it writes is shown by ``polarbear runs`` beside those of the engine.
"""

import argparse
import os

os.environ.setdefault("KERAS_BACKEND", "tensorflow")

import keras
import numpy as np

import polarbear
from polarbear.adapters.tf_data import dataset

BATCH = 16


def network(classes: int) -> keras.Model:
    layers = [keras.Input((32, 32, 3)), keras.layers.Rescaling(1 / 127.5, offset=-1)]
    for width in (16, 32, 48, 128):
        layers += [keras.layers.Conv2D(width, 3, 2, "same", use_bias=False)]
        layers += [keras.layers.BatchNormalization(momentum=0.9), keras.layers.ReLU()]
    pooled = keras.layers.GlobalAveragePooling2D()
    return keras.Sequential([*layers[:-1], pooled, keras.layers.Dense(classes)])


def seen_bce(targets: keras.KerasTensor, scores: keras.KerasTensor) -> keras.KerasTensor:
    """Return the loss over the classes so far: the columns the targets have."""
    seen = scores[:, : targets.shape[1]]
    return keras.losses.binary_crossentropy(targets, seen, from_logits=True)


def train(net: keras.Model, data: object, images: int, epochs: int) -> None:
    steps = epochs * -(-images // BATCH)
    rate = keras.optimizers.schedules.CosineDecay(
        0.04, steps, warmup_target=1.0, warmup_steps=max(1, steps // 3)
    )
    net.compile(keras.optimizers.SGD(rate, momentum=0.9, weight_decay=1e-5), seen_bce)
    net.fit(data, epochs=epochs, shuffle=False, verbose=0)  # the data set shuffles itself


def main(out: str, epochs: int = 8, tasks: int | None = None, seed: int = 100) -> None:
    keras.utils.set_random_seed(seed)
    stream = polarbear.load("iirc-shapes", order=0)
    evaluator = polarbear.Evaluator(stream)
    folder = polarbear.start_run(
        out, stream, method="keras-finetune", seed=seed, tasks=tasks, epochs=epochs
    )
    net = network(len(stream.classes))
    test_images = stream.images("test")[:]
    for task in stream[:tasks]:
        data = dataset(stream, task.train, BATCH, seed=seed)
        train(net, data, len(task.train), epochs * (2 if task.index == 0 else 1))
        scores = np.asarray(net(test_images, training=False))
        predicted = scores[evaluator.view(task.index).rows, : len(task.seen)] > 0
        found = evaluator.add(after=task.index, predictions=predicted)
        polarbear.write_scores(folder, evaluator, after=task.index, predictions=predicted)
        print(f"task {task.index}: R_j {found['pw_jaccard']:.3f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", default="runs/own/keras-finetune")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--tasks", type=int)
    main(**vars(parser.parse_args()))
