"""The layers round a candidate's process, one module each: namespaces and their order, files, system calls, control
groups.
"""
