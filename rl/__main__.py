"""`python -m rl`."""

from rl.cli import main

main()
