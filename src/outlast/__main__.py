"""`python -m outlast` is the command `outlast`."""

import os
import sys


def main() -> int:
    """Carry out this process's command line. Ctrl-C counts while it is imported, too."""
    _open_closed_streams()
    try:
        from outlast.cli.main import main as command

        return command()
    except KeyboardInterrupt:
        sys.stderr.write("outlast: interrupted\n")
        return 130


def _open_closed_streams() -> None:
    """A shell's `>&-` closes a stream. Without this, the next file that is opened, the store say,
    would take its number and be written to."""
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(number, True)
    os.close(number)
    # Python has left out the streams that it found closed.
    sys.stdin = sys.stdin or open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stdout = sys.stdout or open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115


if __name__ == "__main__":
    sys.exit(main())
