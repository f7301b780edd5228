"""One module a command: reads its options, calls what does the work, shows the result.

Nothing heavy is imported at the top.
"""
