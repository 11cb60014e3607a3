"""`python -m attnscope`, and the entry point of the command `attnscope`."""

from __future__ import annotations

import sys


def main() -> int:
    """Run the command line on `sys.argv` and return the exit code."""
    try:
        from attnscope.cli.boundary import run

        return run(sys.argv[1:])
    except KeyboardInterrupt:  # while the boundary itself was being imported
        return 130


if __name__ == "__main__":
    sys.exit(main())
