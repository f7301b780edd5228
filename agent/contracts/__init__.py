"""The contract of a kernel file: what it was judged on, as comments for people and as checks that run at every call.

How a kernel is judged does not belong here, nor where the file goes.
"""
