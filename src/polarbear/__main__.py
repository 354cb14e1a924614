"""``python -m polarbear``."""

import sys

from polarbear.cli import main

if __name__ == "__main__":
    sys.exit(main())
