"""torchrun for jobs, with an exit code that says whether another try may help.

Its own is 1, whatever its processes ended with. ``python -m polarbear.cli.shared.torchrun`` takes
the same words.
"""

import signal
import sys
from collections.abc import Collection

from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure
from torch.distributed.run import main

from polarbear.cli.shared.exit_code import TRY_AGAIN


def code_of(failures: Collection[ProcessFailure]) -> int:
    """Return 75 if a process said so or was killed, else the code of the first that failed.

    A signal's is 128 more than its number, as shells have it: 143 where it was asked to end.
    """
    # One that fails takes others with it at once; torchrun kills whoever is left half a minute on.
    began = min(one.timestamp for one in failures)
    codes = [one.exitcode for one in failures if one.timestamp == began]
    if {TRY_AGAIN, -signal.SIGKILL} & {*codes}:
        return TRY_AGAIN
    return codes[0] if codes[0] >= 0 else 128 - codes[0]


if __name__ == "__main__":
    try:
        main()
    except ChildFailedError as error:
        print(error, file=sys.stderr)
        sys.exit(code_of(error.failures.values()))
