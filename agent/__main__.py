"""`python -m kernelwright.agent`, the same as the command `agent`."""

import sys

INTERRUPTED = 130
"""Exit status of `agent.errors.Exit`, which is not imported yet."""


def run() -> None:
    """Runs the command `agent`. Ctrl-C during its imports ends it with one line, as Ctrl-C does
    later.
    """
    try:
        from kernelwright.agent.cli import main
    except KeyboardInterrupt:
        print("agent: interrupted", file=sys.stderr)
        sys.exit(INTERRUPTED)
    main()


if __name__ == "__main__":
    run()
