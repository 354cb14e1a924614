"""``polarbear fetch``: download a data set."""

from typing import Annotated

from polarbear.base.errors import PolarbearError, unknown_name
from polarbear.cli.shared.console import console
from polarbear.cli.shared.options import Root, flag
from polarbear.cli.shared.progress import progress
from polarbear.data.fetch import CIFAR100_URL, fetch_cifar100
from polarbear.named.registry import data_root


def fetch(
    data: Annotated[str, flag("The data set: cifar100.", "DATA")],
    /,
    *,
    root: Root = None,
    url: Annotated[str | None, flag("Another address of the same archive.", "URL")] = None,
) -> None:
    """Download a data set, checked; what a broken download left is taken up where it ended."""
    if "imagenet" in data.lower():
        raise PolarbearError(
            f"{data} cannot be fetched: get ImageNet (ILSVRC 2012) from image-net.org, which asks "
            "you to accept its terms, then `polarbear pack imagenet --root DIR --out DIR`"
        )
    if data != "cifar100":
        raise unknown_name("data set to fetch", data, ["cifar100"])
    with progress(data, in_bytes=True) as report:
        folder = fetch_cifar100(data_root(root), url or CIFAR100_URL, progress=report)
    console().print(f"{data} is complete and verified in {folder}", soft_wrap=True)
