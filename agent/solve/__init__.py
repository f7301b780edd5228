"""The command `agent solve` without its options: opening and running a single run, `--dry-run`,
and the file of the best kernel.
"""
