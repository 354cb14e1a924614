"""Writes the tables of docs/methods/index.md, from the methods' classes and results/.

python bench/methods_page.py; a test compares the page with what this would write. It also writes
the results of methods that are not in the paper into their own pages, where these have a place.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from statistics import mean

import torch
from torch import Tensor

from class_incremental import LAST, MEAN, PUBLISHED, accuracies
from pages import DASH, DOCS, RESULTS, filled, groups_in, last_and_over_all, shown, table
from polarbear.engine.contract.batch import Batch, TaskContext
from polarbear.engine.contract.method import Method, frozen_copy
from polarbear.engine.nets.heads import build_head
from polarbear.engine.nets.model import Model
from polarbear.engine.nets.networks import build_backbone
from polarbear.launch.workload import stored_images, work_of
from polarbear.methods.catalogue import METHODS
from polarbear.methods.presets import settings_for
from polarbear.methods.registry import resolve
from polarbear.named.registry import nominal_stream
from polarbear.report.read.groups import Group
from polarbear.report.read.words import of_fewer, spans

PAGES = DOCS / "methods"
PAGE = PAGES / "index.md"
BEGIN = "<!-- made by bench/methods_page.py -->"
BENCHMARK, WIDTH, CLASSES, IMAGE_BYTES = "iirc-cifar", 64, 115, 32 * 32 * 3
#: Scores after the last task, and what the page calls them.
IN_THE_END = {
    "pw_jaccard": "R_21",
    "label_ratio": "labels",
    "pw_jaccard/superclass": "superclasses",
    "pw_jaccard/subclass": "subclasses",
    "pw_jaccard/top1": "likeliest class alone",
    "pw_jaccard/expected-tree": "with the true hierarchy",
}
IN_FIVES = "cil-cifar-b0-5"  # the class-incremental benchmark most have published figures on
AFTER_FIFTY = "cil-cifar"
#: Published for IIRC; made from the authors' code and from an abstract.
UNREAD = ("hcv", "mtkd")


def tables(results: Path = RESULTS) -> str:
    """Return the page's tables, in Markdown."""
    found = Found(results)
    reaches = ["IIRC-CIFAR, orders", "after the last task", "over all tasks"]
    reaches += ["class-incremental, %", "published, %", "verdict"]
    what = ["method", "images kept", "networks kept", "MB in all", "told", "million images passed"]
    return "\n\n".join(
        [
            table(["method", "in one line"], [[linked(n), METHODS[n].summary] for n in METHODS]),
            "## What each keeps, is told and costs",
            "After the last task of IIRC-CIFAR, with a ResNet-32 and the settings of the preset "
            "`paper`. *MB in all* are stored images (3,072 bytes each), what is stored with "
            "them, networks, each counted at the size of the last, and the method's own "
            "tensors, SI's and RWalk's with those that each task gathers anew; the network itself "
            "and, while a task is learnt, the previous one are not counted. "
            "*Told* is what its own lines ask for: task borders to know which classes are new, "
            "or all labels, which no learner has. *Passed* are images in training, forward and "
            "backward, in the main phases: of a task, of memory, and beside a step. What teachers "
            "pass forward is not counted, nor that GEM goes backward once per earlier task; "
            "BiC's, 0.4 million fewer, are counted with the images that it holds out.",
            table(what, [[linked(name), *costs(name)] for name in METHODS]),
            "## What each reaches",
            "Means of $R_j$ (pw-JS on test) on IIRC-CIFAR, with 95 % intervals where there are "
            "several class orders; [the results](../results.md) have the paper's beside them. "
            "*Class-incremental* is the accuracy after the last of [20 tasks of 5 classes]"
            "(../explanation/class-incremental.md), beside published ones. *Verdicts* are the "
            "sentences with which the pages begin their results.",
            table(["method", *reaches], [[linked(n), *found.reached(n)] for n in METHODS]),
            "## What each predicts in the end",
            "After the last task of IIRC-CIFAR, means over the same orders. *Labels* are those "
            "predicted, divided by the true ones: far above 1 a method says too much, far below "
            "it too little. *Superclasses* and *subclasses* are pw-JS of each level alone. The "
            "last two columns are $R_j$ of the same raw scores by other rules: the likeliest "
            "class alone, and the expected best set where the true hierarchy is known, which no "
            "learner is told ([what the rules are](../explanation/scores.md)); that one means "
            "nothing of scores that are no probabilities, as iCaRL-NME's, NCM's and RanPAC's, and "
            "is no upper bound of any.",
            table(
                ["method", *IN_THE_END.values()],
                [[linked(n), *found.in_the_end(n)] for n in METHODS],
            ),
        ]
    )


class Found:
    """The results of every method, by benchmark and method."""

    def __init__(self, results: Path) -> None:
        """Read them all."""
        self.groups = {name: groups_in(results / name) for name in (BENCHMARK, *PUBLISHED)}

    def reached(self, method: str) -> list[str]:
        """Return a method's scores and its verdict."""
        mine = self.groups[BENCHMARK].get(method)
        means = [DASH] * 3 if mine is None else scores_of(mine)
        _, last, _ = accuracies(self.groups[IN_FIVES].get(method))
        return [*means, last, LAST.get(method, DASH), self.verdict(method)]

    def in_the_end(self, method: str) -> list[str]:
        """Return what a method's predictions are like after the last task, means over orders."""
        mine = self.groups[BENCHMARK].get(method)
        return [DASH if mine is None else mean_of_last(mine, name) for name in IN_THE_END]

    def verdict(self, method: str) -> str:
        """Return the sentence in bold with which a page's result begins."""
        page = self.with_results(method, (PAGES / f"{method}.md").read_text(encoding="utf-8"))
        said = re.search(rf"^## Result\n\n(?:{BEGIN}\n\n)?\*\*(.+?)\.?\*\*", page, re.M)
        return said[1] if said else DASH

    def with_results(self, method: str, page: str) -> str:
        """Return a method's page with its results, where it has a place for them."""
        return filled(page, BEGIN, "\n\n".join(self.parts(method))) if BEGIN in page else page

    def parts(self, method: str) -> Iterator[str]:
        """Yields the verdict and the table of a method's own page."""
        ran = {name: groups[method] for name, groups in self.groups.items() if method in groups}
        if not ran:
            yield "**Not run on real data yet.**"
            return
        in_fives, after_fifty = (ran.get(name) for name in (IN_FIVES, AFTER_FIFTY))
        if in_fives and method in LAST:
            last = accuracies(in_fives)[1]
            yield f"**{last} % after 20 tasks of 5 classes, {LAST[method]} % published.**"
        elif after_fifty and method in MEAN:
            over_all = accuracies(after_fifty)[2]
            published = f"{MEAN[method]} % published, with more training images"
            yield f"**{over_all} % over the tasks of `{AFTER_FIFTY}`, {published}.**"
        elif method in LAST:
            yield f"**Not compared yet: {LAST[method]} % are published for `{IN_FIVES}`.**"
        elif method in UNREAD:
            yield "**Not compared: its paper has figures on IIRC, and we could not read it.**"
        else:
            yield "**Nothing to compare with: we know no published figure in these settings.**"
        heads = ["benchmark", "orders", "after the last task", "over all tasks"]
        rows = [
            [name, spans(g.orders), *map(shown, last_and_over_all(g))] for name, g in ran.items()
        ]
        yield table(heads, rows)


def mean_of_last(group: Group, name: str) -> str:
    """Return the mean of a score after the last task, of the runs whose files have it."""
    found = [float(run.scores[name][-1]) for run in group.runs if name in run.scores]
    known = [score for score in found if score == score]  # NaN is not itself
    return f"{mean(known):.3f}{of_fewer(len(known), group.count)}" if known else DASH


def scores_of(group: Group) -> list[str]:
    """Return the orders that ran, and the means after the last task and over all tasks."""
    return [spans(group.orders), *map(shown, last_and_over_all(group))]


def linked(name: str) -> str:
    """Return a method's title, with a link to its page."""
    return f"[{METHODS[name].title}]({name}.md)"


def costs(name: str) -> list[str]:
    """Return images and networks kept, their bytes, what is told, and images passed in training."""
    method, settings = resolve(name), settings_for(name, BENCHMARK)
    stream = nominal_stream(BENCHMARK)
    if method.joint:
        stream = replace(stream, schedule=stream.schedule.joint())
    instance = method(new_model(method))
    work, stored = work_of(instance, settings, stream), stored_images(instance, settings, stream)
    everything = method.complete or method.keep_everything
    networks, own, beside = kept(method, tasks=len(stream))
    megabytes = (stored * (IMAGE_BYTES + beside) + own) / 1e6
    per_class = f"{settings.memory_per_class} per class"
    of_part = f"{stored:,} in all" if method.selection == "reservoir" else per_class
    said = "all" if everything else of_part if method.replay != "none" else DASH
    passed = sum(task.passes for task in work)
    return [said, str(networks or DASH), f"{megabytes:.1f}", told(method), f"{passed / 1e6:.1f}"]


def told(method: type[Method]) -> str:
    """Return what a method's own lines ask for beyond images with the labels they came with."""
    if method.oracle:
        return "the hierarchy"
    if method.complete:
        return "all labels"
    own = [vars(one) for one in method.__mro__ if one not in Method.__mro__]
    functions = {name: what for names in own for name, what in names.items() if callable(what)}
    borders = {"begin_task", "end_task", "phases", "trains_in"} & functions.keys()
    looks = any("context" in f.__code__.co_names for f in functions.values() if is_function(f))
    return "task borders" if borders or looks or method.wants_teacher else DASH


def is_function(value: object) -> bool:
    """Whether a value has lines of its own."""
    return hasattr(value, "__code__")


def kept(method: type[Method], tasks: int) -> tuple[int, int, int]:
    """Return a method's networks after all tasks, its bytes of these and of its tensors, and those
    that it stores with an image.

    Found by leading it through three tasks without training; one network of every task counts as
    one of all of them.
    """
    learner, old = method(new_model(method)), 0
    sizes = [CLASSES] if method.joint else [10, 5, 100]
    for task, size in enumerate(sizes):
        learner.teacher = frozen_copy(learner.model) if method.wants_teacher and task else None
        learner.model.head.grow(old + size)
        learner.context = place(task, old, old + size)
        learner.begin_task(learner.context)
        learner.end_task()
        old += size
    count = len(learner.networks)
    networks = tasks if count == len(sizes) > 1 else count
    (example,) = learner.context.batches("task")
    beside = bytes_of(learner.store(example.images, example.targets)) // len(example.images)
    own = networks * bytes_of(learner.model.state_dict()) + bytes_of(learner.state())
    return networks, own, beside


def bytes_of(tensors: Mapping[str, Tensor]) -> int:
    """Return how many bytes tensors have."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())


def new_model(method: type[Method]) -> Model:
    """Return a ResNet-32 with a method's head."""
    return Model(build_backbone("resnet32", 0), build_head(method.head, WIDTH, CLASSES, 0))


def place(task: int, old: int, seen: int) -> TaskContext:
    """Return a place in a stream, where two small images of every class can be looked up."""
    images = torch.randn((2, 3, 8, 8), generator=torch.Generator().manual_seed(task))
    targets = torch.zeros(2, seen)
    targets[:, old] = 1
    batch = Batch(images, targets, torch.zeros(2, dtype=torch.bool), torch.arange(2))

    def look_up(column: int, limit: int | None = None) -> Tensor:
        return images[:limit]

    return TaskContext(
        *(task, old, seen, tuple(f"class {c}" for c in range(seen))),
        settings=settings_for("er", BENCHMARK),
        class_counts=torch.ones(seen),
        epoch=torch.tensor(0),
        step=torch.tensor(0),
        class_images=look_up,
        stored_images=look_up,
        batches=lambda which: iter([batch]),
        rows_in_all=2,
    )


def written(page: str) -> str:
    """Return a page with its tables as they should be."""
    return filled(page, BEGIN, tables())


if __name__ == "__main__":
    found = Found(RESULTS)
    for name in METHODS:
        own = PAGES / f"{name}.md"
        page = found.with_results(name, own.read_text(encoding="utf-8"))
        own.write_text(page, encoding="utf-8")
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
