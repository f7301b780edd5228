"""Checks the connection to a policy's server before a run starts."""

from __future__ import annotations

import socket
import threading
from urllib.parse import urlsplit

CONNECT_SECONDS = 4.0
"""Seconds for resolving the host's address and connecting."""


def check_server(policy: str, key: str | None) -> None:
    """Connects to the servers of the policy's name, and hangs up. Other policies need no server.

    A host behind a proxy is not checked: the connection would be the proxy's.

    Raises:
        InputError: The hosted service was named without a key.
        PolicyUnavailable: There is no connection to any of the servers within CONNECT_SECONDS each.
    """
    from kernelwright.errors import InputError
    from kernelwright.policies.base import PolicyUnavailable, Trouble
    from kernelwright.policies.server_names import server_name

    name = server_name(policy)
    if name is None:
        return
    advice = f"--policy {name.form}:{name.model}@http://HOST:PORT/v1"
    if name.is_hosted and not key:
        raise InputError(
            f"{policy} asks {name.urls[0]} and no key is set: set {name.key_variable}, or name your own server with "
            f"{advice}"
        )
    troubles = []
    for url in name.urls:
        trouble = _connection_trouble(url)
        if trouble:
            troubles.append(f"{url} ({trouble})")
    # A single reachable server is enough: the others are its fallbacks.
    if len(troubles) == len(name.urls):
        raise PolicyUnavailable(
            f"no connection to {' or '.join(troubles)}: check that the server runs and the network is up, or name "
            f"another with {advice}",
            Trouble.CONNECTION,
        )


def _connection_trouble(url: str) -> str:
    """Returns the reason why no connection can be made; empty if the connection works."""
    from urllib.request import getproxies, proxy_bypass

    parts = urlsplit(url)
    host = parts.hostname or ""
    if parts.scheme in getproxies() and not proxy_bypass(host):
        return ""
    troubles = [f"no answer within {CONNECT_SECONDS:g} s"]

    def connect() -> None:
        try:
            port = parts.port or (443 if parts.scheme == "https" else 80)
            with socket.create_connection((host, port), timeout=CONNECT_SECONDS):
                troubles.append("")
        except OSError as error:
            troubles.append(error.strerror or str(error))

    # The resolver has no time limit, so the wait happens outside, in this thread.
    thread = threading.Thread(target=connect, name="server-check", daemon=True)
    thread.start()
    thread.join(CONNECT_SECONDS)
    return troubles[-1]
