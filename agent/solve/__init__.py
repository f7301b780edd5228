"""One run as the command `agent solve` asks for it: opening, running, `--dry-run`, and the file that holds the best
kernel.
"""
