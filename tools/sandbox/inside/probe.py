"""Runs a snippet in the sandbox and sends `result`, or the name of its exception, for `agent
doctor` and the tests of the isolation layers.
"""

from __future__ import annotations

from typing import Any

from kernelwright.tools.sandbox.channel import Channel


def serve(channel: Channel, payload: dict[str, Any]) -> None:
    """Runs a text and sends its `result`, for tests of the isolation layers."""
    names: dict[str, Any] = {}
    try:
        exec(payload["code"], names)
    except Exception as error:
        channel.send({"error": type(error).__name__, "text": str(error)[:500]})
        return
    channel.send({"result": names.get("result")})
