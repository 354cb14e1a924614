"""A view as a ``tf.data.Dataset`` of batches."""

from typing import Any

from polarbear.adapters.samples import Samples
from polarbear.base.missing import needing
from polarbear.benchmark.stream import Stream, View


def dataset(stream: Stream, view: View, batch_size: int = 128, *, seed: int | None = None) -> Any:
    """Return batches of images (n, h, w, 3) uint8 and labels (n, s) float32.

    In the order of the rows, or with a ``seed`` shuffled anew each time it is gone through; the
    last batch may be smaller. tf.data's autotuning is off, since to start it takes longer than a
    task's epoch: ``.with_options`` turns it on again for a pipeline that does much after this.

    >>> from polarbear import load
    >>> stream = load("iirc-shapes")
    >>> dataset(stream, stream[0].train).element_spec[0].shape
    TensorShape([None, 32, 32, 3])
    """
    with needing("TensorFlow", "tensorflow"):
        import tensorflow as tf
    samples = Samples.of(stream, view)
    if samples.in_memory:
        elements = tf.data.Dataset.from_tensor_slices(samples[:])
    else:
        elements = tf.data.Dataset.range(len(samples))
    if seed is not None:
        elements = elements.shuffle(len(samples), seed=seed)
    batches = elements.batch(batch_size)
    if not samples.in_memory:
        batches = batches.map(lambda index: _read(tf, samples, index))
    options = tf.data.Options()
    options.autotune.enabled = False
    return batches.prefetch(2).with_options(options)


def _read(tf: Any, samples: Samples, index: Any) -> tuple[Any, Any]:
    """Let the source read or decode a batch, for images that are not in memory."""
    images, labels = tf.numpy_function(samples.__getitem__, [index], (tf.uint8, tf.float32))
    return (
        tf.ensure_shape(images, (None, None, None, 3)),
        tf.ensure_shape(labels, (None, samples.table.shape[1])),
    )
