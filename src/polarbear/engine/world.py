"""The processes that train one run together, each with its share of every step's images.

``torchrun`` starts them; PyTorch brings them together and carries what they send. A process that
was started alone is a world of one, in which nothing is sent. A process may take its share in
parts, one after the other; what a method asks of other processes is of the other parts as well.
"""

import atexit
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import cache
from importlib import import_module
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, distributed
from torch.autograd.function import once_differentiable

from polarbear.base.errors import PolarbearError

log = logging.getLogger("polarbear")

T = TypeVar("T")

PATIENCE = timedelta(minutes=10)  # for the others: one that is gone without a word ends the rest


class WorldError(PolarbearError):
    """Another process of the run is gone."""


class World:
    """The processes of a run: this one has a ``rank`` from 0, there are ``size`` of them.

    In a step, where a method has its share of the images, or a part of it, :meth:`sum` and
    :meth:`mean` are those over all of them. Elsewhere, as in ``begin_task``, every process has all
    there is, and both return what they are given; so they do in a world of one.

    Gradients: the engine takes Σ ``portion`` · loss for the loss of a step, over all processes and
    their parts. What went through :meth:`sum` passes gradients on to all of them, so that a loss
    may be made of sums.
    """

    def __init__(self, rank: int = 0, size: int = 1) -> None:
        """Stand outside of any step."""
        self.rank, self.size = rank, size
        self.weight = 1 / size
        self.divided = False
        self.fraction = 1.0
        self._asked: Asked | None = None

    @property
    def is_first(self) -> bool:
        """Whether this is the process that writes files and speaks."""
        return self.rank == 0

    @property
    def portion(self) -> float:
        """The part of a step's images that a method has at hand: 1 where it has all of them.

        A sum over them, divided by it, counts in the loss as a sum over all images does.
        """
        return self.weight * self.fraction if self.divided else self.fraction

    def sum(self, tensor: Tensor) -> Tensor:
        """Return the sum of all processes' tensors, one of the same shape from each."""
        if not self._in_shares:
            return tensor
        return cast(Tensor, _Sum.apply(tensor, self))  # type: ignore[no-untyped-call]

    def mean(self, tensor: Tensor) -> Tensor:
        """Return the mean of all processes' tensors, each counted by its share of the images.

        Of means over a process's images it is the mean over all images.
        """
        return self.sum(tensor * self.portion) if self._in_shares else tensor

    def means(self, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Return the means of several tensors, sent as one; no gradient comes through."""
        if not self._in_shares:
            return tuple(tensors)
        return _apart(self.total(_together(tensors) * self.portion), tensors)

    def __deepcopy__(self, memo: dict[int, object]) -> "World":
        """Return itself: a copied network belongs to the same processes."""
        return self

    # What follows is for the engine. A step is ``divided`` where each process has its share of the
    # images; ``weight`` is what a process counts for in it, ``fraction`` which part of that is at
    # work.

    @property
    def _in_shares(self) -> bool:
        return self.divided or self._asked is not None

    def divides(self, images: int) -> bool:
        """Whether a batch is taken in shares; a very small one is every process's as a whole.

        Nobody is left without an image, nor with a single one, which has no variance.
        """
        return self.size > 1 and images >= 2 * self.size

    def share(self, begin: int, end: int) -> slice:
        """Return where the images of this process are in a batch that is taken in shares."""
        return slice(begin + self.rank, end, self.size)

    def share_sizes(self, images: int) -> list[int]:
        """Return how many images of such a batch each process has."""
        return [len(range(rank, images, self.size)) for rank in range(self.size)]

    def weight_of(self, images: int) -> float:
        """Return what this process counts for in a batch: its part, or that of one among equals."""
        whole = not self.divides(images)
        return 1 / self.size if whole else self.share_sizes(images)[self.rank] / images

    @contextmanager
    def step(self, images: int) -> Iterator[None]:
        """Let sums and means be over all processes while a step of ``images`` is taken in shares.

        A step that is not divided is taken by each process with all images.
        """
        if not self.divides(images):
            yield
            return
        self.divided, self.weight = True, self.weight_of(images)
        try:
            yield
        finally:
            self.divided, self.weight = False, 1 / self.size

    @contextmanager
    def part(self, fraction: float, asked: "Asked") -> Iterator[None]:
        """Let a fraction of this process's images be at work, with what the parts have asked."""
        asked.begin()
        self.fraction, self._asked = fraction, asked
        try:
            yield
        finally:
            self.fraction, self._asked = 1.0, None

    def total(self, tensor: Tensor) -> Tensor:
        """Return the sum of what all have of a step: the parts here, and all processes' shares."""
        send = self.reduce if self.divided else torch.clone
        return send(tensor) if self._asked is None else self._asked.total(tensor, send)

    def averaged(self, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Return the means of tensors over all processes, each counted by its weight."""
        return _apart(self.reduce(_together(tensors) * self.weight), tensors)

    def reduce(self, tensor: Tensor) -> Tensor:
        """Return the sum of all processes' tensors, whatever they have of them."""
        total = tensor.clone(memory_format=torch.contiguous_format)
        with self._reaching():
            distributed.all_reduce(total)
        return total

    def gather(self, tensor: Tensor, sizes: Sequence[int]) -> Tensor:
        """Return the rows of all processes, of which each has as many as ``sizes`` says."""
        room = tensor.new_zeros((max(sizes), *tensor.shape[1:]))
        room[: len(tensor)] = tensor
        sent = room.cpu() if _shares_gpus() else room  # gloo gathers from the host alone
        parts = [torch.empty_like(sent) for _ in sizes]
        with self._reaching():
            distributed.all_gather(parts, sent)
        whole = torch.cat([part[:size] for part, size in zip(parts, sizes, strict=True)])
        return whole.to(tensor.device)

    @torch.no_grad()
    def agree(self, tensors: Iterable[Tensor]) -> None:
        """Give every process the values of the first one's tensors, in place."""
        if self.size == 1:
            return
        by_kind: dict[torch.dtype, list[Tensor]] = {}
        for tensor in tensors:
            by_kind.setdefault(tensor.dtype, []).append(tensor)
        for alike in by_kind.values():
            flat = _together(alike)
            with self._reaching():
                distributed.broadcast(flat, src=0)
            for tensor, part in zip(alike, _apart(flat, alike), strict=True):
                tensor.copy_(part)

    def collect(self, totals: Mapping[str, Tensor]) -> None:
        """Bring sums, the first number of each total, to the first process; others have 0 then."""
        if self.size == 1 or not totals:
            return
        sums = self.reduce(torch.stack([totals[name][0] for name in sorted(totals)]))
        for name, total in zip(sorted(totals), sums, strict=True):
            totals[name][0] = total if self.is_first else 0

    def told(self, find: Callable[[], T]) -> T:
        """Return what the first process finds, which alone looks; what it refuses, all refuse."""
        if self.size == 1:
            return find()
        box: list[tuple[T | None, str | None]] = [(None, None)]
        failed: PolarbearError | None = None
        if self.is_first:
            try:
                box = [(find(), None)]
            except PolarbearError as error:
                failed, box = error, [(None, str(error))]
        with self._reaching():
            distributed.broadcast_object_list(box, src=0, device=torch.device("cpu"))
        found, refused = box[0]
        if refused is not None:
            raise failed or PolarbearError(refused)
        return cast(T, found)

    def any(self, *flags: bool) -> tuple[bool, ...]:
        """Return which flags are set in any process."""
        if self.size == 1:
            return flags
        found = self.reduce(torch.tensor(flags, dtype=torch.int32))
        return tuple(bool(count) for count in found.tolist())

    def meet(self) -> None:
        """Wait until all processes have come here: it may be the last thing that they do."""
        if self.size > 1:
            self.reduce(torch.zeros(1))

    @contextmanager
    def _reaching(self) -> Iterator[None]:
        """Say in our words that the others cannot be reached any more."""
        try:
            yield
        except RuntimeError as error:
            raise WorldError(
                f"process {self.rank} of {self.size} cannot reach the others any more: one of them "
                f"has ended, and its own message says why ({str(error).splitlines()[0]})"
            ) from error


class _Sum(torch.autograd.Function):
    """A sum over all processes, which passes gradients on to all of them.

    A gradient here is that of an own loss, so 1 / portion of what it is of the whole.
    """

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, world: World) -> Tensor:
        ctx.world, ctx.portion = world, world.portion
        return world.total(tensor)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return ctx.world.total(gradient * ctx.portion) / ctx.portion, None


class Asked:
    """The sums that a step's parts ask for, one part after the other.

    Where processes would wait for each other, a part is left (:class:`Later`) and begun again when
    all have said what they have: its sums are known by then. What is asked before the network is
    used costs nothing so; what is asked after it, another pass.
    """

    def __init__(self, parts: int) -> None:
        """Know nothing yet."""
        self.parts = parts
        self.known: list[Tensor] = []
        self._sum: Tensor
        self._said = self._place = 0

    def begin(self) -> None:
        """Let a part ask from the start."""
        self._place = 0

    def total(self, own: Tensor, send: Callable[[Tensor], Tensor]) -> Tensor:
        """Return the parts' sum, which is sent to other processes too, or leave this part."""
        place, self._place = self._place, self._place + 1
        if place == len(self.known):
            self._sum = self._sum + own.detach() if self.waiting else own.detach().clone()
            self._said += 1
            if self._said < self.parts:
                raise Later
            self.known.append(send(self._sum))
            self._said = 0
        return self.known[place].clone()  # it is the method's own

    @property
    def waiting(self) -> bool:
        """Whether a sum is asked for that not all parts have said theirs of."""
        return self._said > 0


class Later(BaseException):  # no method that catches every Exception may keep it
    """What a part needs is not known before the others have said theirs."""


def _together(tensors: Sequence[Tensor]) -> Tensor:
    return torch.cat([tensor.reshape(-1) for tensor in tensors])


def _apart(flat: Tensor, like: Sequence[Tensor]) -> tuple[Tensor, ...]:
    parts = torch.split(flat, [tensor.numel() for tensor in like])
    return tuple(part.view(tensor.shape) for part, tensor in zip(parts, like, strict=True))


@cache
def the_world() -> World:
    """Return the processes that train with this one: those that torchrun started, or it alone."""
    told = {name: os.environ.get(name) for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR")}
    if None in told.values() or told["WORLD_SIZE"] == "1":
        return World()
    if not distributed.is_available():
        raise PolarbearError("this PyTorch has no torch.distributed: start one process alone")
    _warn_of_hanging_restarts()
    # The group of processes is a default of this module's functions. Imported later, as optimisers
    # do, they would keep the group, so that its threads would outlive it; and one of them that lets
    # go of a tensor while Python ends aborts the process.
    import_module("torch.distributed.nn.functional")
    by_nccl = torch.cuda.is_available() and distributed.is_nccl_available() and not _shares_gpus()
    # Numbers of the host, such as a wish to stop, go their own way: no GPU waits for them.
    backend = "cpu:gloo,cuda:nccl" if by_nccl else "gloo"
    distributed.init_process_group(backend, timeout=PATIENCE)
    atexit.register(distributed.destroy_process_group)
    if torch.cuda.is_available():
        torch.cuda.set_device(own_gpu())
    world = World(distributed.get_rank(), distributed.get_world_size())
    if not world.is_first:
        log.setLevel(logging.ERROR)  # the first one warns
    return world


def own_gpu() -> int:
    """Return the number of this process's GPU; where there are too few, several have the same."""
    return int(os.environ.get("LOCAL_RANK", 0)) % max(torch.cuda.device_count(), 1)


def _shares_gpus() -> bool:
    """Whether the machine has GPUs, but fewer than processes: NCCL wants one for each."""
    return 0 < torch.cuda.device_count() < int(os.environ.get("LOCAL_WORLD_SIZE", 1))


def _warn_of_hanging_restarts() -> None:
    restarts = os.environ.get("TORCHELASTIC_MAX_RESTARTS", "0") != "0"
    apart = os.environ.get("TORCH_DISABLE_SHARE_RDZV_TCP_STORE") == "1"
    if restarts and not apart and os.environ["RANK"] == "0":
        log.warning(
            "torchrun may hang when it restarts processes (PyTorch's issue 135712): set "
            "TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 before torchrun"
        )
