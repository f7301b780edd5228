"""Groups of options shared by the commands of `rl`: frozen dataclasses of typer options. Each group
is a panel of `--help`, with a method for checking the values and returning them as fields. Options
of a single command are in its own module. No module here has heavy imports at its top.
"""
