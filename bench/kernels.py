"""The fused kernels beside PyTorch's own, on a GPU: agreement, time a step, time of each kernel.

python bench/kernels.py
python bench/kernels.py --ways fused  # alone
python bench/kernels.py --search      # other tile shapes, for a new kind of GPU
"""

import argparse
import copy
import time
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from itertools import product

import torch
from torch import Tensor, nn

from polarbear.engine.nets.fused import features as fused
from polarbear.engine.nets.fused import launch, whole_images
from polarbear.engine.nets.fused.backward import room_for
from polarbear.engine.nets.networks import build_backbone

BATCH = 128


def network() -> nn.Module:
    return build_backbone("resnet32", 0).cuda().to(memory_format=torch.channels_last)


def images(count: int = BATCH) -> Tensor:
    torch.manual_seed(0)
    return torch.randn(count, 3, 32, 32, device="cuda").to(memory_format=torch.channels_last)


def plain(net: nn.Module, batch: Tensor) -> Tensor:
    with torch.autocast("cuda", torch.bfloat16):
        return net(batch)


def layers(net: nn.Module, batch: Tensor) -> Tensor:
    """Triton's kernels alone, a layer in two: what GPUs with less shared memory use."""
    work, whole_images.work = whole_images.work, lambda *size: False
    try:
        return ours(net, batch)
    finally:
        whole_images.work = work


def ours(net: nn.Module, batch: Tensor) -> Tensor:
    with torch.autocast("cuda", torch.bfloat16):
        assert fused.suits(net, batch)
        return fused.features(net, batch)


Way = Callable[[nn.Module, Tensor], Tensor]
WAYS: dict[str, Way] = {"plain": plain, "layers": layers, "fused": ours}


def apart(a: Tensor, b: Tensor) -> float:
    return float((a.detach().float() - b.detach()).norm() / b.detach().norm())


def show_agreement(ways: dict[str, Way]) -> None:
    """Errors of the bf16 ways against fp32: the fused one's should not be larger."""
    exact, goal = network(), torch.randn(BATCH, 64, device="cuda")
    nets = {name: copy.deepcopy(exact) for name in ways}
    batch = images()
    torch.backends.cudnn.allow_tf32 = False
    truth = exact(batch)
    (truth * goal).sum().backward()
    for name, net in nets.items():
        found = ways[name](net, batch)
        (found.float() * goal).sum().backward()
        pairs = list(zip(net.parameters(), exact.parameters(), strict=True))
        errors = torch.tensor([apart(p.grad, q.grad) for p, q in pairs])
        moved = max(
            apart(p, q)
            for p, q in zip(net.buffers(), exact.buffers(), strict=True)
            if p.is_floating_point()
        )
        print(
            f"{name}: features off by {apart(found, truth):.4f}, statistics by {moved:.4f}, "
            f"gradients by {errors.median():.4f} (median) and {errors.max():.4f} (worst)"
        )
        net.eval()
    exact.eval()
    with torch.no_grad():
        for name, net in nets.items():
            net.load_state_dict(exact.state_dict())
            print(f"{name}: in evaluation off by {apart(ways[name](net, batch), exact(batch)):.4f}")


def graph_of(work: Callable[[], None]) -> torch.cuda.CUDAGraph:
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            work()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=side):
        work()
    return graph


def step(way: Way) -> Callable[[], None]:
    net, batch = network(), images()

    def work() -> None:
        for p in net.parameters():
            p.grad = None
        way(net, batch).float().square().sum().backward()

    return work


def evaluation(way: Way) -> Callable[[], None]:
    net, batch = network().eval(), images()

    @torch.no_grad()
    def work() -> None:
        way(net, batch)

    return work


def rate(
    way: Way,
    runs: int,
    seconds: float = 1.0,
    of: Callable[..., Callable[[], None]] = step,
) -> float:
    """Images per second, by default of forward and backward passes, ``runs`` side by side."""
    works = [of(way) for _ in range(runs)]
    graphs = [(graph_of(work), torch.cuda.Stream()) for work in works]
    torch.cuda.synchronize()
    began, count = time.perf_counter(), 0
    while time.perf_counter() - began < seconds:
        for _ in range(8):
            for graph, stream in graphs:
                with torch.cuda.stream(stream):
                    graph.replay()
        count += 8 * runs
        torch.cuda.synchronize()
    return count * BATCH / (time.perf_counter() - began)


def show_kernels(way: Way, top: int = 40) -> None:
    work = step(way)
    graph = graph_of(work)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(10):
            graph.replay()
        torch.cuda.synchronize()
    spent: dict[str, list[float]] = defaultdict(list)
    for event in profile.events():
        if event.device_type == torch.autograd.DeviceType.CUDA:
            spent[event.name].append(event.device_time)
    total = sum(map(sum, spent.values())) / 10
    count = sum(map(len, spent.values())) / 10
    print(f"a step: {total:.0f} us in {count:.0f} kernels")
    for name, times in sorted(spent.items(), key=lambda pair: -sum(pair[1]))[:top]:
        each = sorted(times)
        print(
            f"  {sum(times) / 10:7.1f} us  {len(times) // 10:4} x "
            f" {each[0]:5.1f} to {each[-1]:5.1f}  {name[:90]}"
        )


def time_of(work: Callable[[], None]) -> float:
    """Microseconds of a kernel in a graph of twenty."""

    def twenty() -> None:
        for _ in range(20):
            work()

    graph = graph_of(twenty)
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    best = float("inf")
    for _ in range(5):
        start.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        best = min(best, start.elapsed_time(end))
    return best / 20 * 1000


def search() -> None:
    """Print the fastest tiles of the convolution, forwards and backwards, and of its filter."""
    for inputs, outputs, side in ((16, 16, 32), (32, 32, 16), (64, 64, 8), (4, 16, 32)):
        case = Case(inputs, outputs, side)
        shapes = product((64, 128, 256), (1, 3), (4, 8))
        for backward in (False, True) if inputs == outputs else (False,):
            tried = {
                tiles: partial(case.convolve, tiles, backward=backward)
                for tiles in (launch.Tiles(block, run, warps=warps) for block, run, warps in shapes)
            }
            show_fastest(f"convolve {inputs} {'backward' if backward else ''}", tried)
        shapes = product((64, 128), (1, 3), (1, 3), (4, 8, 16), (4, 8))
        tried = {
            tiles: partial(case.filter_gradient, tiles)
            for tiles in (
                launch.Tiles(block, run, blocks, rows, warps, stages=3)
                for block, run, rows, blocks, warps in shapes
            )
        }
        show_fastest(f"filter {inputs}", tried)


def show_fastest(name: str, tried: dict[launch.Tiles, Callable[[], None]], top: int = 4) -> None:
    found = []
    for tiles, work in tried.items():
        try:
            found.append((time_of(work), str(tiles)))
        except Exception as error:  # too large for the GPU
            print(f"   {type(error).__name__}: {tiles}")
    for spent, shown in sorted(found)[:top]:
        print(f"{name} {spent:6.2f} us {shown}", flush=True)


class Case:
    """A layer with made-up maps."""

    def __init__(self, inputs: int, outputs: int, side: int) -> None:
        conv = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False).cuda()
        layer = launch.Layer(conv, nn.BatchNorm2d(outputs).cuda())
        bf16 = {"dtype": torch.bfloat16, "device": "cuda"}
        source = torch.randn(BATCH, side, side, inputs, **bf16)
        maps = torch.randn(BATCH, side, side, outputs, **bf16)
        weights = torch.randn(outputs, 3, 3, inputs, **bf16)
        sums = torch.full((2 * outputs,), float(BATCH * side * side), device="cuda")
        self.maps, self.gradient = torch.empty_like(maps), torch.randn_like(maps)
        self.passed = launch.Passed(layer, source, maps, weights, sums)
        self.into = room_for([self.passed])[id(self.passed)]

    def convolve(self, tiles: launch.Tiles, *, backward: bool) -> None:
        p = self.passed
        launch.CONVOLVE[p.layer.inputs] = tiles
        more = {"activations": p.raw, "raw": p.raw, "added": p.raw} if backward else {}
        launch.convolve(p.source, p.weights, self.maps, sums=p.sums, backward=backward, **more)

    def filter_gradient(self, tiles: launch.Tiles) -> None:
        launch.FILTER[self.passed.layer.inputs] = tiles
        launch.filter_gradient(self.passed, self.gradient, self.into)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--search", action="store_true")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=[*WAYS])
    parser.add_argument("--fleets", nargs="*", type=int, default=[1, 4, 10])
    args = parser.parse_args()
    if not torch.cuda.is_available():
        parser.error("this needs a GPU")
    began = time.perf_counter()
    print(torch.cuda.get_device_name(), torch.__version__)
    ways = {name: WAYS[name] for name in args.ways}
    show_agreement(ways)
    print(f"({time.perf_counter() - began:.0f} s)")
    for runs in args.fleets:
        for of in (step, evaluation):
            rates = {name: rate(way, runs, of=of) for name, way in ways.items()}
            shown = ", ".join(f"{name} {found:9,.0f}" for name, found in rates.items())
            print(f"{runs:2} runs, {of.__name__}: {shown} images/s", flush=True)
    for way in ways.values():
        show_kernels(way, 25)
    print(f"({time.perf_counter() - began:.0f} s)", flush=True)
    if args.search:
        search()
        print(f"({time.perf_counter() - began:.0f} s)")


if __name__ == "__main__":
    main()
