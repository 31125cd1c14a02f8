"""`python -m outlast` is the command `outlast`."""

import sys


def main() -> int:
    """Carry out this process's command line. Ctrl-C counts while it is imported, too."""
    try:
        from outlast.cli.main import main as command

        return command()
    except KeyboardInterrupt:
        sys.stderr.write("outlast: interrupted\n")
        return 130


if __name__ == "__main__":
    sys.exit(main())
