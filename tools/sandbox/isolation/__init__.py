"""Isolation layers around a candidate's process, a module each: namespaces and their order,
files, system calls, control groups.
"""
