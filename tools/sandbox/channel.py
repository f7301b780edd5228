"""Length-prefixed JSON over a Unix socket, with file descriptors beside it. Used on both sides; nothing is ever unpickled.

A message is a 4-byte little-endian length and that many bytes of UTF-8 JSON, an object at the top.
"""

from __future__ import annotations

import array
import fcntl
import json
import os
import select
import signal
import socket
import struct
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

LONGEST = 32 << 20
"""Bytes of the largest message that is read."""
MOST_DESCRIPTORS = 253
"""That Linux sends beside one piece of a message (SCM_MAX_FD, unix(7))."""

Message = dict[str, Any]


class ChannelClosed(EOFError):
    """The other side is gone."""


class ChannelTimeout(TimeoutError):
    """Nothing whole arrived before the deadline."""


class BadMessage(ValueError):
    """What arrived is not a message."""


class Channel:
    """One end. `receive` gives the message; descriptors that came with it wait in `descriptors`."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._sock.setblocking(True)
        self.descriptors: list[int] = []

    def fileno(self) -> int:
        return self._sock.fileno()

    @contextmanager
    def or_die(self) -> Iterator[None]:
        """While nothing is awaited: this process dies (SIGIO) as soon as the other side closes, whatever it is at."""
        flags = fcntl.fcntl(self._sock, fcntl.F_GETFL)
        fcntl.fcntl(self._sock, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(self._sock, fcntl.F_SETFL, flags | os.O_ASYNC)
        if select.select([self._sock], [], [], 0)[0]:  # it had closed before
            os.kill(os.getpid(), signal.SIGIO)
        yield
        fcntl.fcntl(self._sock, fcntl.F_SETFL, flags)

    def send(self, message: Message, fds: Sequence[int] = ()) -> None:
        """Raises ChannelClosed when nobody listens."""
        body = json.dumps(message, separators=(",", ":"), allow_nan=False).encode()
        data = struct.pack("<I", len(body)) + body
        try:
            self._sock.settimeout(60)
            # The first byte carries the first of them, and so on; the rest of the message those that are left.
            for first in range(MOST_DESCRIPTORS, len(fds), MOST_DESCRIPTORS):
                self._sock.sendmsg([data[:1]], _rights(fds[first - MOST_DESCRIPTORS : first]))
                data = data[1:]
            last = (len(fds) - 1) // MOST_DESCRIPTORS * MOST_DESCRIPTORS
            if rest := data[self._sock.sendmsg([data], _rights(fds[last:])) :]:
                # Not for nothing: even an empty `sendall` asks whether anybody listens, and who has read it all may have answered and gone.
                self._sock.sendall(rest)
        except (BrokenPipeError, ConnectionResetError, TimeoutError) as error:
            raise ChannelClosed(str(error)) from error

    def receive(self, deadline: float | None = None) -> Message:
        """The next message; `deadline` is a time.monotonic(). Raises ChannelClosed, ChannelTimeout, BadMessage."""
        (length,) = struct.unpack("<I", self._read(4, deadline))
        if length > LONGEST:
            raise BadMessage(f"a message of {length} bytes")
        try:
            message = json.loads(self._read(length, deadline))
        except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
            raise BadMessage(f"not JSON: {error}") from error
        if not isinstance(message, dict):
            raise BadMessage("not an object")
        return message

    def _read(self, count: int, deadline: float | None) -> bytes:
        parts: list[bytes] = []
        while count:
            self._sock.settimeout(None if deadline is None else max(deadline - time.monotonic(), 1e-4))
            try:
                data, extra, _, _ = self._sock.recvmsg(min(count, 1 << 20), socket.CMSG_SPACE(4 * MOST_DESCRIPTORS))
            except TimeoutError as error:
                raise ChannelTimeout("no answer in time") from error
            except ConnectionResetError as error:
                raise ChannelClosed(str(error)) from error
            self._keep(extra)
            if not data:
                raise ChannelClosed("the other side closed")
            parts.append(data)
            count -= len(data)
        return b"".join(parts)

    def _keep(self, extra: Sequence[tuple[int, int, bytes]]) -> None:
        for level, kind, data in extra:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                fds = array.array("i")
                fds.frombytes(data[: len(data) - len(data) % fds.itemsize])
                self.descriptors.extend(fds)

    def take_descriptors(self) -> list[int]:
        """The descriptors that came so far; the caller closes them."""
        taken, self.descriptors = self.descriptors, []
        return taken

    def close(self) -> None:
        self._sock.close()


def _rights(fds: Sequence[int]) -> list[tuple[int, int, array.array[int]]]:
    return [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []


def pair() -> tuple[Channel, socket.socket]:
    """A channel for this side and a bare socket to hand over."""
    ours, theirs = socket.socketpair()
    return Channel(ours), theirs
