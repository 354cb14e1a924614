"""What both sides of a comparison work on."""

import random
from dataclasses import dataclass

Listing = dict[str, dict[str, list[str]]]


@dataclass(frozen=True)
class Workload:
    """Where CIFAR-100 lies, how many ImageNet files there are, how many tasks are evaluated."""

    cifar_root: str
    imagenet_files: int = 1_281_167
    evaluated_tasks: int = 22

    def imagenet_listing(self) -> Listing:
        """Make up ImageNet's files: split → wnid → names, in no order, as folders list them."""
        # Late, so that the authors' side does not carry polarbear in its memory; and read here, so
        # that nothing of the benchmark is remembered when the timing begins.
        from polarbear import Hierarchy
        from polarbear.named.shipped import LEFT_OUT, PUBLISHED

        shuffle = random.Random(0).shuffle
        wnids = sorted({*Hierarchy.read(PUBLISHED / "iirc-imagenet.toml").leaves, *LEFT_OUT})
        share, rest = divmod(self.imagenet_files, len(wnids))
        listing: Listing = {"train": {}, "val": {}}
        for i, wnid in enumerate(wnids):
            train = [f"{wnid}_{k:05d}.JPEG" for k in range(share + (i < rest))]
            val = [f"ILSVRC2012_val_{50 * i + k:08d}.JPEG" for k in range(50)]
            shuffle(train)
            shuffle(val)
            listing["train"][wnid], listing["val"][wnid] = train, val
        return listing
