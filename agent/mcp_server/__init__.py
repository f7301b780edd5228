"""The Model Context Protocol server: what a coding agent may ask of the judge, over stdio or streamable HTTP.

Here belong the tools, their answers, the budget of a server, its history of verdicts and how a client is set up. The
verdict itself belongs to `kernelwright.tools`, and the HTTP service for trainers has a room of its own.
"""
