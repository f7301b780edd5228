"""Runs the command `rl` as `python -m kernelwright.rl`."""

import sys

INTERRUPTED = 130
"""Exit status of `agent.errors.Exit`, which is not imported yet."""


def run() -> None:
    """Runs the command `rl`. Ctrl-C during imports ends it as later: with a single line."""
    try:
        from kernelwright.rl.cli import main
    except KeyboardInterrupt:
        print("rl: interrupted", file=sys.stderr)
        sys.exit(INTERRUPTED)
    main()


if __name__ == "__main__":
    run()
