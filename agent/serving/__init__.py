"""The judge service: verdicts over HTTP, and its client.

Belongs here: values of the protocol (wire.py, documented in docs/reference/service.md), the record
of verdicts (record.py), the order of judging (service.py, queueing/), the routes, the web page, and
`JudgeClient`. Does not belong here: the making of a verdict (tools/), the processes behind it
(agent/judging/), and adapters of other frameworks, which are clients of the routes.

Packages of the extra `serve` (FastAPI, uvicorn, prometheus_client) are imported only to build a
server.
"""
