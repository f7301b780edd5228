"""Groups of options shared by the commands of `rl`: frozen dataclasses of typer options. Each
group is a panel of `--help` with a method that checks the values and returns them as fields.
Options of a single command stand in its own module. No module here has heavy imports at the top.
"""
