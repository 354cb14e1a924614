"""Experience replay in JAX: a flax nnx network, an optax optimiser, polarbear's stream and score.

    pip install '.[jax]'    # in the checkout
    python examples/jax_er.py --out runs/own/jax-er

Each task trains on its images and on up to 20 stored images of every earlier class, with the labels
they had when they were stored. The folder it writes is shown by ``polarbear runs`` beside those of
the engine.
"""

import argparse

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

import polarbear
from polarbear.adapters.jax_arrays import arrays

BATCH = 16
Pool = tuple[jax.Array, jax.Array]  # images (n, h, w, 3) uint8, targets (n, all classes)


class Net(nnx.Module):
    def __init__(self, classes: int, rngs: nnx.Rngs) -> None:
        shapes = ((3, 16), (16, 32), (32, 48), (48, 128))
        self.convs = nnx.List(
            nnx.Conv(i, o, (3, 3), strides=2, use_bias=False, rngs=rngs) for i, o in shapes
        )
        self.norms = nnx.List(nnx.BatchNorm(o, momentum=0.9, rngs=rngs) for _, o in shapes)
        self.head = nnx.Linear(128, classes, rngs=rngs)

    def __call__(self, images: jax.Array) -> jax.Array:
        maps = images.astype(jnp.float32) / 127.5 - 1
        for number, (conv, norm) in enumerate(zip(self.convs, self.norms, strict=True)):
            maps = norm(conv(nnx.relu(maps) if number else maps))
        return self.head(maps.mean(axis=(1, 2)))


@nnx.jit
def step(
    net: Net, optimiser: nnx.Optimizer, pool: Pool, chosen: jax.Array, seen: jax.Array
) -> None:
    """Train on a batch; ``seen`` marks the columns of the classes so far, so that shapes stay."""
    images, targets = (column[chosen] for column in pool)

    def loss(net: Net) -> jax.Array:
        losses = optax.sigmoid_binary_cross_entropy(net(images), targets)
        return jnp.mean(losses, where=seen)

    optimiser.update(net, nnx.grad(loss)(net))


@nnx.jit
def logits(net: Net, images: jax.Array) -> jax.Array:
    return net(images)


def task_pool(stream: polarbear.Stream, task: polarbear.Task) -> Pool:
    images, labels = arrays(stream, task.train)
    later = len(stream.classes) - len(task.seen)
    return images, jnp.pad(labels, ((0, 0), (0, later)))


def joined(first: Pool, second: Pool | None) -> Pool:
    if second is None:
        return first
    return jnp.concatenate([first[0], second[0]]), jnp.concatenate([first[1], second[1]])


def stored(pool: Pool, task: polarbear.Task, random: np.random.Generator) -> Pool:
    """Choose 20 images of each new class."""
    targets = np.asarray(pool[1])[:, task.new] > 0
    chosen = [random.permutation(np.flatnonzero(carries))[:20] for carries in targets.T]
    rows = np.unique(np.concatenate(chosen))
    return pool[0][rows], pool[1][rows]


def train(net: Net, pool: Pool, seen: int, epochs: int, random: np.random.Generator) -> None:
    steps = len(pool[0]) // BATCH
    rate = optax.cosine_onecycle_schedule(steps * epochs, 1.0)
    decayed_sgd = optax.chain(optax.add_decayed_weights(1e-5), optax.sgd(rate, momentum=0.9))
    optimiser = nnx.Optimizer(net, decayed_sgd, wrt=nnx.Param)
    net.train()
    columns = jnp.arange(pool[1].shape[1]) < seen
    for _ in range(epochs):
        order = random.permutation(len(pool[0]))[: steps * BATCH].reshape(steps, BATCH)
        for chosen in order:
            step(net, optimiser, pool, chosen, columns)


def main(out: str, epochs: int = 8, tasks: int | None = None, seed: int = 100) -> None:
    random = np.random.default_rng(seed)
    stream = polarbear.load("iirc-shapes", order=0)
    evaluator = polarbear.Evaluator(stream)
    folder = polarbear.start_run(
        out, stream, method="jax-er", seed=seed, tasks=tasks, epochs=epochs
    )
    net = Net(len(stream.classes), nnx.Rngs(seed))
    test_images = jnp.asarray(stream.images("test")[:])
    memory: Pool | None = None
    for task in stream[:tasks]:
        new = task_pool(stream, task)
        factor = 2 if task.index == 0 else 1
        train(net, joined(new, memory), len(task.seen), epochs * factor, random)
        memory = joined(stored(new, task, random), memory)
        net.eval()
        scores = np.asarray(logits(net, test_images))
        predicted = scores[evaluator.view(task.index).rows, : len(task.seen)] > 0
        found = evaluator.add(after=task.index, predictions=predicted)
        polarbear.write_scores(folder, evaluator, after=task.index, predictions=predicted)
        print(f"task {task.index}: R_j {found['pw_jaccard']:.3f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", default="runs/own/jax-er")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--tasks", type=int)
    main(**vars(parser.parse_args()))
