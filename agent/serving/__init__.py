"""The judge service: verdicts over HTTP, and its client.

Belongs here: what travels (wire.py, documented in docs/reference/service.md), the record of verdicts (record.py), who
is judged next (service.py, queueing/), the routes, the page for people, and `JudgeClient`. Does not belong here: how a
verdict is made (tools/), where (agent/judging/), and adapters of other frameworks, which speak to the routes from
outside.
Everything of the extra `serve` (FastAPI, uvicorn, prometheus_client) is imported where the server is built.
"""
