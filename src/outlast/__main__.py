"""`python -m outlast` is the command `outlast`."""

import sys

from outlast.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
