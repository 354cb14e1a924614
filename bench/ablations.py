"""Methods with one thing changed, to find out what a result depends on.

    PYTHONPATH=bench python bench/run.py ablations:ERLast:0-2 --root data --out runs/ablations

Other changes are settings: ``bench/run.py er:0 --settings '{"precision": "fp32"}'``.
"""

from polarbear.methods.er import ER


class ERLast(ER):
    """ER that goes on from its last weights, not from those of the best in-task validation."""

    summary = "ER with the last weights"
    keep = "last"
