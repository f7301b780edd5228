"""`python -m kernelwright.agent`, the same as the command `agent`."""

from kernelwright.agent.cli import main

if __name__ == "__main__":
    main()
