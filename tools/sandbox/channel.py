"""Length-prefixed JSON over a Unix socket, with file descriptors beside it, for both sides of the
sandbox.

Nothing is unpickled. A message is a 4-byte little-endian length and that many bytes of UTF-8
JSON, with an object at the top (messages.py lists what is refused).
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
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from kernelwright.tools.sandbox.messages import BadMessage, Message, decode

__all__ = [
    "MAX_MESSAGE_BYTES",
    "BadMessage",
    "Channel",
    "ChannelClosed",
    "ChannelTimeout",
    "Message",
    "channel_pair",
]

MAX_MESSAGE_BYTES = 32 << 20
"""Default maximum number of bytes of a received message."""
MAX_DESCRIPTORS = 253
"""Maximum number of descriptors which Linux sends beside a piece of a message (SCM_MAX_FD,
unix(7)).
"""

SEND_SECONDS = 60.0
"""Seconds within which the other side must receive a message sent without deadline; afterwards
the channel counts as closed.
"""


class ChannelClosed(EOFError):
    """The other side is gone."""


class ChannelTimeout(TimeoutError):
    """Nothing whole arrived, or was taken, before the deadline."""


class Channel:
    """End of a channel. `receive` returns the message; descriptors that came with it are in
    `descriptors`.

    longest: maximum number of bytes of a received message. takes_descriptors: if false, the
    kernel closes received descriptors, so that a candidate cannot fill the receiver's table of
    open files.
    """

    def __init__(
        self,
        sock: socket.socket,
        *,
        longest: int = MAX_MESSAGE_BYTES,
        takes_descriptors: bool = True,
    ) -> None:
        self._sock = sock
        self._sock.setblocking(True)
        self.longest = longest
        self._takes_descriptors = takes_descriptors
        self.descriptors: list[int] = []

    def fileno(self) -> int:
        """Returns the socket's descriptor, so that `select` accepts a channel."""
        return self._sock.fileno()

    @contextmanager
    def die_when_closed(self, last: Callable[[], object]) -> Iterator[None]:
        """Ends this process during the block as soon as the other side closes, whatever the
        process is doing: calls `last`, then dies by SIGIO.

        The signal is handled when the interpreter runs next: an import of a large library is not
        interrupted.
        """

        def die(*_: object) -> None:
            last()
            signal.signal(signal.SIGIO, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGIO)

        flags = fcntl.fcntl(self._sock, fcntl.F_GETFL)
        signal.signal(signal.SIGIO, die)
        fcntl.fcntl(self._sock, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(self._sock, fcntl.F_SETFL, flags | os.O_ASYNC)
        waiting = select.poll()
        waiting.register(self._sock, select.POLLIN)
        if waiting.poll(0):  # it had closed before
            die()
        yield
        fcntl.fcntl(self._sock, fcntl.F_SETFL, flags)
        signal.signal(signal.SIGIO, signal.SIG_DFL)

    def send(
        self, message: Message, fds: Sequence[int] = (), deadline: float | None = None
    ) -> None:
        """Sends a message. Raises ChannelClosed when the other side does not listen, and
        ChannelTimeout when the message is not taken before `deadline`, a time.monotonic().
        """
        body = json.dumps(message, separators=(",", ":"), allow_nan=False).encode()
        data = struct.pack("<I", len(body)) + body
        try:
            self._sock.settimeout(
                SEND_SECONDS if deadline is None else max(deadline - time.monotonic(), 1e-4)
            )
            # The first byte carries the first of them, and so on; the rest of the message those that are left.
            for first in range(MAX_DESCRIPTORS, len(fds), MAX_DESCRIPTORS):
                self._sock.sendmsg([data[:1]], _rights(fds[first - MAX_DESCRIPTORS : first]))
                data = data[1:]
            last = (len(fds) - 1) // MAX_DESCRIPTORS * MAX_DESCRIPTORS
            if unsent := data[self._sock.sendmsg([data], _rights(fds[last:])) :]:
                # Not for nothing: even an empty `sendall` asks whether anybody listens, and who has read it all may
                # have answered and gone.
                self._sock.sendall(unsent)
        except (BrokenPipeError, ConnectionResetError) as error:
            raise ChannelClosed(str(error)) from error
        except TimeoutError as error:
            if deadline is None:
                raise ChannelClosed(str(error)) from error
            raise ChannelTimeout("the message was not taken in time") from error

    def receive(self, deadline: float | None = None) -> Message:
        """Returns the next message; `deadline` is a time.monotonic(). Raises ChannelClosed,
        ChannelTimeout, BadMessage.
        """
        (length,) = struct.unpack("<I", self._read(4, deadline))
        if length > self.longest:
            raise BadMessage(f"a message of {length} bytes, and {self.longest} are read at most")
        return decode(self._read(length, deadline))

    def _read(self, count: int, deadline: float | None) -> bytes:
        parts: list[bytes] = []
        while count:
            self._sock.settimeout(
                None if deadline is None else max(deadline - time.monotonic(), 1e-4)
            )
            try:
                data = self._piece(min(count, 1 << 20))
            except TimeoutError as error:
                raise ChannelTimeout("no answer in time") from error
            except ConnectionResetError as error:
                raise ChannelClosed(str(error)) from error
            if not data:
                raise ChannelClosed("the other side closed")
            parts.append(data)
            count -= len(data)
        return b"".join(parts)

    def _piece(self, count: int) -> bytes:
        if not self._takes_descriptors:
            return self._sock.recv(count)
        data, extra, _, _ = self._sock.recvmsg(count, socket.CMSG_SPACE(4 * MAX_DESCRIPTORS))
        self._keep(extra)
        return data

    def _keep(self, extra: Sequence[tuple[int, int, bytes]]) -> None:
        for level, kind, data in extra:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                fds = array.array("i")
                fds.frombytes(data[: len(data) - len(data) % fds.itemsize])
                self.descriptors.extend(fds)

    def take_descriptors(self) -> list[int]:
        """Returns the descriptors received so far; the caller closes them."""
        received, self.descriptors = self.descriptors, []
        return received

    def close(self) -> None:
        """Closes this end; the other end then raises ChannelClosed."""
        self._sock.close()


def _rights(fds: Sequence[int]) -> list[tuple[int, int, array.array[int]]]:
    return [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []


def channel_pair(longest: int = MAX_MESSAGE_BYTES) -> tuple[Channel, socket.socket]:
    """A channel for this side, which takes no descriptors, and a bare socket to hand over."""
    ours, theirs = socket.socketpair()
    return Channel(ours, longest=longest, takes_descriptors=False), theirs
