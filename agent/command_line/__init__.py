"""Commands of `agent`, one module each: a module reads the command's options, calls the room for
the work, and shows the result. No module has heavy imports at its top.
"""
