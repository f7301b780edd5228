"""Groups of options that the commands of `rl` share: frozen dataclasses of typer options, each group a panel of
`--help`, each with a method that checks what was asked for and gives it as fields. What a single command alone takes
stands in its own module. Nothing heavy is imported at the top of a module here.
"""
