"""A check for whoever writes a method: everything that is wrong with it, all at once.

Needs PyTorch, unlike the checks of data in :mod:`polarbear.benchmark.checks`.
"""

from typing import Any

from polarbear.base.findings import CheckError, Finding, report
from polarbear.engine.contract.check_class import check_class
from polarbear.engine.contract.method import Method
from polarbear.launch.check.training import check_training
from polarbear.methods.registry import find_class

__all__ = ["CheckError", "Finding", "check_learner"]


def check_learner(
    method: type[Method] | str, options: Any = None, *, strict: bool = True
) -> tuple[Finding, ...]:
    """Return everything odd about a method (a class, a name or a path); errors are raised.

    Looks at the class, then trains it for a few seconds on a tiny stream: the first task, a later
    one, with memory and teacher, on batches of one image, and once more from a checkpoint. With
    ``options``, it is tried with these instead of its defaults. Without ``strict``, errors are
    given back too.

    >>> check_learner("finetune")
    ()
    """
    chosen = find_class(method) if isinstance(method, str) else method
    found = tuple(check_class(chosen))
    if not any(finding.level == "error" for finding in found):
        found += check_training(chosen, options)
    return report(f"the method {getattr(chosen, '__name__', chosen)!r}", found, strict=strict)
