"""`python -m kernelwright.rl`."""

from kernelwright.rl.cli import main

main()
