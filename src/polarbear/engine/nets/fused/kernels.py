"""Kernels for small residual networks, channels last: pixels are rows, channels are columns.

A 3×3 convolution reads, for each of its three rows of taps, runs of neighbouring pixels, whose
channels lie side by side in memory: a run times a slice of the filter is one small matrix product.
What batch norm needs to know of a whole batch (two sums for each channel, forwards and backwards)
is gathered by the kernel that writes the maps, so that no kernel reads maps only to sum them.
"""

# Triton reads the annotations of a kernel: ``tl.constexpr`` is compiled in, the rest passed.
import triton
import triton.language as tl


@triton.jit
def _runs(
    maps,
    image,
    row,
    column,
    k,
    inside,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    CHANNELS: tl.constexpr,
    RUN: tl.constexpr,
):
    """Load RUN neighbouring pixels from (row, column) on: (places, k), 0 outside the image."""
    start = ((image * HEIGHT + row) * WIDTH + column) * CHANNELS
    inside = inside & (row >= 0) & (row < HEIGHT)
    columns = column[:, None] + (k // CHANNELS)[None, :]
    mask = inside[:, None] & (columns >= 0) & (columns < WIDTH) & (k < RUN * CHANNELS)[None, :]
    return tl.load(maps + start[:, None] + k[None, :], mask=mask, other=0.0)


@triton.jit
def convolve(
    maps,
    weights,
    out,
    sums,
    added,
    activations,
    raw,
    scale,
    shift,
    running_mean,
    running_variance,
    pixels,
    epsilon,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    STRIDE: tl.constexpr,
    INPUTS: tl.constexpr,
    OUTPUTS: tl.constexpr,
    TAPS: tl.constexpr,
    RUN: tl.constexpr,
    K: tl.constexpr,
    BLOCK: tl.constexpr,
    BACKWARD: tl.constexpr,
    NORMALISE: tl.constexpr,
    ADD: tl.constexpr,
    CLIP: tl.constexpr,
    RELU: tl.constexpr,
    SUMS: tl.constexpr,
):
    """Convolve ``maps`` into ``out`` (pixels, OUTPUTS) and sum what batch norm will need.

    In evaluation that is known before, so the rest of the layer is done here too: NORMALISE is
    batch norm by the running statistics, CLIP the ReLU after what is ``added``. In training the
    sums are those of out and out². BACKWARD turns the filter round and exchanges its
    inputs and outputs: ``out`` is then the gradient of the layer below, plus the gradient
    ``added``, stopped where the ReLU gave 0 (``activations``); the sums are those of out and
    out × ``raw``, the maps before that layer's batch norm.
    """
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = place < pixels
    image = place // (HEIGHT * WIDTH)
    row = place % (HEIGHT * WIDTH) // WIDTH * STRIDE - TAPS // 2
    column = place % WIDTH * STRIDE - TAPS // 2
    k = tl.arange(0, K)
    o = tl.arange(0, OUTPUTS)
    real = (k < RUN * INPUTS)[:, None]
    total = tl.zeros((BLOCK, OUTPUTS), dtype=tl.float32)
    for y in tl.static_range(TAPS):
        for x in tl.static_range(0, TAPS, RUN):
            values = _runs(
                maps,
                image,
                row + y,
                column + x,
                k,
                inside,
                HEIGHT * STRIDE,
                WIDTH * STRIDE,
                INPUTS,
                RUN,
            )
            if BACKWARD:
                tap = (TAPS - 1 - y) * TAPS + (TAPS - 1 - x - k // INPUTS)
                at = ((k % INPUTS) * (TAPS * TAPS) + tap)[:, None] * OUTPUTS + o[None, :]
            else:
                at = (o * (TAPS * TAPS) + y * TAPS + x)[None, :] * INPUTS + k[:, None]
            taps = tl.load(weights + at, mask=real, other=0.0)
            total = tl.dot(values, taps, total, input_precision="ieee")
    at = place[:, None] * OUTPUTS + o[None, :]
    here = inside[:, None] & (o < OUTPUTS)[None, :]
    if NORMALISE:
        factor = tl.load(scale + o) * tl.rsqrt(tl.load(running_variance + o) + epsilon)
        offset = tl.load(shift + o) - tl.load(running_mean + o) * factor
        # Rounded as in training, where these maps go through memory.
        total = total.to(out.dtype.element_ty).to(tl.float32)
        total = total * factor[None, :] + offset[None, :]
    if ADD:
        total += tl.load(added + at, mask=here, other=0.0).to(tl.float32)
    if CLIP:
        total = tl.where(total < 0, 0.0, total)  # leaves what is no number: a loss must show it
    if RELU:
        total = tl.where(tl.load(activations + at, mask=here, other=0.0) > 0, total, 0.0)
    rounded = total.to(out.dtype.element_ty)
    tl.store(out + at, rounded, mask=here)
    if SUMS:
        value = tl.where(here, rounded.to(tl.float32), 0.0)
        other = value
        if BACKWARD:
            other = tl.load(raw + at, mask=here, other=0.0).to(tl.float32)
        tl.atomic_add(sums + o, tl.sum(value, 0), sem="relaxed")
        tl.atomic_add(sums + OUTPUTS + o, tl.sum(value * other, 0), sem="relaxed")


@triton.jit
def sum_gradient(
    gradient,
    raw,
    sums,
    pixels,
    CHANNELS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Sum a gradient (pixels, CHANNELS) and gradient × ``raw``, where no convolution does it."""
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    c = tl.arange(0, CHANNELS)
    at = place[:, None] * CHANNELS + c[None, :]
    here = (place < pixels)[:, None] & (c < CHANNELS)[None, :]
    value = tl.load(gradient + at, mask=here, other=0.0).to(tl.float32)
    other = tl.load(raw + at, mask=here, other=0.0).to(tl.float32)
    tl.atomic_add(sums + c, tl.sum(value, 0), sem="relaxed")
    tl.atomic_add(sums + CHANNELS + c, tl.sum(value * other, 0), sem="relaxed")


@triton.jit
def _normalised(
    raw,
    at,
    here,
    c,
    sums,
    scale,
    shift,
    running_mean,
    running_variance,
    pixels,
    momentum,
    epsilon,
    CHANNELS: tl.constexpr,
):
    """Return maps at ``at`` normed by the batch; the first program moves the statistics."""
    mean = tl.load(sums + c) / pixels
    variance = tl.load(sums + CHANNELS + c) / pixels - mean * mean
    variance = tl.maximum(variance, 0.0)
    if tl.program_id(0) == 0:
        old = tl.load(running_mean + c)
        tl.store(running_mean + c, old + momentum * (mean - old))
        old = tl.load(running_variance + c)
        unbiased = variance * (pixels / (pixels - 1.0))
        tl.store(running_variance + c, old + momentum * (unbiased - old))
    factor = tl.load(scale + c) * tl.rsqrt(variance + epsilon)
    offset = tl.load(shift + c) - mean * factor
    value = tl.load(raw + at, mask=here, other=0.0).to(tl.float32)
    return value * factor[None, :] + offset[None, :]


@triton.jit
def normalise(
    raw,
    sums,
    scale,
    shift,
    running_mean,
    running_variance,
    other,
    other_sums,
    other_scale,
    other_shift,
    other_mean,
    other_variance,
    out,
    pixels,
    momentum,
    epsilon,
    CHANNELS: tl.constexpr,
    BLOCK: tl.constexpr,
    ADD: tl.constexpr,
    ADD_NORMALISED: tl.constexpr,
    RELU: tl.constexpr,
):
    """Batch norm of ``raw`` by the batch, plus ``other`` (as it is or normed too), then ReLU."""
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    c = tl.arange(0, CHANNELS)
    at = place[:, None] * CHANNELS + c[None, :]
    here = (place < pixels)[:, None] & (c < CHANNELS)[None, :]
    count = pixels.to(tl.float32)
    total = _normalised(
        raw,
        at,
        here,
        c,
        sums,
        scale,
        shift,
        running_mean,
        running_variance,
        count,
        momentum,
        epsilon,
        CHANNELS,
    )
    if ADD:
        total += tl.load(other + at, mask=here, other=0.0).to(tl.float32)
    if ADD_NORMALISED:
        total += _normalised(
            other,
            at,
            here,
            c,
            other_sums,
            other_scale,
            other_shift,
            other_mean,
            other_variance,
            count,
            momentum,
            epsilon,
            CHANNELS,
        )
    if RELU:
        total = tl.where(total < 0, 0.0, total)  # leaves what is no number: a loss must show it
    tl.store(out + at, total.to(out.dtype.element_ty), mask=here)


@triton.jit
def filter_gradient(
    maps,
    gradient,
    raw,
    sums,
    gradient_sums,
    scale,
    unnormalised,
    weight_gradient,
    scale_gradient,
    shift_gradient,
    pixels,
    epsilon,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    STRIDE: tl.constexpr,
    INPUTS: tl.constexpr,
    OUTPUTS: tl.constexpr,
    TAPS: tl.constexpr,
    RUN: tl.constexpr,
    K: tl.constexpr,
    BLOCK: tl.constexpr,
    TILES: tl.constexpr,
    ROWS: tl.constexpr,
):
    """Take a gradient back through batch norm, into ``unnormalised``, and sum the filter's.

    Program (i, y, x) does TILES blocks of pixels, for ROWS × RUN taps from (y · ROWS, x · RUN) on.
    Where the convolution strides, ``unnormalised`` has the size of its input, with zeros between,
    so that the way further back is a convolution without a stride.
    """
    IN_HEIGHT: tl.constexpr = HEIGHT * STRIDE
    IN_WIDTH: tl.constexpr = WIDTH * STRIDE
    y, x = tl.program_id(1) * ROWS, tl.program_id(2) * RUN
    first = (tl.program_id(1) == 0) & (tl.program_id(2) == 0)
    k = tl.arange(0, K)
    o = tl.arange(0, OUTPUTS)
    count = pixels.to(tl.float32)
    mean = tl.load(sums + o) / count
    variance = tl.load(sums + OUTPUTS + o) / count - mean * mean
    inverse = tl.rsqrt(tl.maximum(variance, 0.0) + epsilon)
    summed = tl.load(gradient_sums + o)
    product = (tl.load(gradient_sums + OUTPUTS + o) - mean * summed) * inverse
    factor = tl.load(scale + o) * inverse
    slope = -factor * inverse * product / count
    offset = -factor * summed / count - slope * mean
    if first & (tl.program_id(0) == 0):
        tl.store(scale_gradient + o, product)
        tl.store(shift_gradient + o, summed)
    upper = tl.zeros((OUTPUTS, K), dtype=tl.float32)
    middle = tl.zeros((OUTPUTS, K), dtype=tl.float32)
    lower = tl.zeros((OUTPUTS, K), dtype=tl.float32)
    for tile in range(TILES):
        place = (tl.program_id(0) * TILES + tile) * BLOCK + tl.arange(0, BLOCK)
        inside = place < pixels
        image = place // (HEIGHT * WIDTH)
        row = place % (HEIGHT * WIDTH) // WIDTH * STRIDE
        column = place % WIDTH * STRIDE
        at = place[:, None] * OUTPUTS + o[None, :]
        here = inside[:, None] & (o < OUTPUTS)[None, :]
        flow = tl.load(gradient + at, mask=here, other=0.0).to(tl.float32)
        flow = flow * factor[None, :] + offset[None, :]
        flow += tl.load(raw + at, mask=here, other=0.0).to(tl.float32) * slope[None, :]
        flow = tl.where(here, flow, 0.0).to(unnormalised.dtype.element_ty)
        if first:
            spread = ((image * HEIGHT * STRIDE + row) * WIDTH * STRIDE + column) * OUTPUTS
            tl.store(unnormalised + spread[:, None] + o[None, :], flow, mask=here)
        row += y - TAPS // 2
        column += x - TAPS // 2
        turned = tl.trans(flow)
        values = _runs(maps, image, row, column, k, inside, IN_HEIGHT, IN_WIDTH, INPUTS, RUN)
        upper = tl.dot(turned, values, upper, input_precision="ieee")
        if ROWS == 3:
            values = _runs(
                maps, image, row + 1, column, k, inside, IN_HEIGHT, IN_WIDTH, INPUTS, RUN
            )
            middle = tl.dot(turned, values, middle, input_precision="ieee")
            values = _runs(
                maps, image, row + 2, column, k, inside, IN_HEIGHT, IN_WIDTH, INPUTS, RUN
            )
            lower = tl.dot(turned, values, lower, input_precision="ieee")
    at = (o * (TAPS * TAPS) + y * TAPS + x)[:, None] * INPUTS + k[None, :]
    real = (k < RUN * INPUTS)[None, :] & (o < OUTPUTS)[:, None]
    tl.atomic_add(weight_gradient + at, upper, mask=real, sem="relaxed")
    if ROWS == 3:
        at += TAPS * INPUTS
        tl.atomic_add(weight_gradient + at, middle, mask=real, sem="relaxed")
        at += TAPS * INPUTS
        tl.atomic_add(weight_gradient + at, lower, mask=real, sem="relaxed")
