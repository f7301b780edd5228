"""One module for each command: reads the command's options, calls the room that does the work,
and shows the result. Nothing heavy is imported at the top of a module.
"""
