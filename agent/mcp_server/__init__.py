"""The Model Context Protocol server: tools of the judge for a coding agent, over stdio or
streamable HTTP.

Belongs here: the tools, their answers, the budget of a server, its history of verdicts, the
configuration of clients. Does not belong here: the making of a verdict (`kernelwright.tools`), the
HTTP service for trainers (agent/serving/).
"""
