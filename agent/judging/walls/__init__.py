"""The walls of a judge that runs the references of a service's clients: mounts, processes, a user and bounds of its
own. Not here: the sandbox of candidates (tools/sandbox), which such a judge starts inside its walls.
"""
