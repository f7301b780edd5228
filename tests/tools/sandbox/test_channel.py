"""What a hostile process may write on its channel, and what the judge's end makes of it."""

import json
import os
import resource
import socket
import struct
import threading
import time

import pytest

from kernelwright.tools.sandbox.channel import (
    BadMessage,
    Channel,
    ChannelClosed,
    ChannelTimeout,
    channel_pair,
)

MALFORMED = {
    "a number of 5,000 digits": b'{"a": %s}' % (b"7" * 5000),
    "a number of 4,000 digits": b'{"a": %s}' % (b"7" * 4000),
    "a number of 21 digits": b'{"a": -123456789012345678901}',
    "a fraction with a whole part of 400 digits": b'{"a": %s.5}' % (b"7" * 400),
    "1e999": b'{"a": 1e999}',
    "-1E+0400": b'{"a": [-1E+0400]}',
    "NaN": b'{"a": NaN}',
    "Infinity": b'{"a": [-Infinity]}',
    "200 nested arrays": b'{"a": %s%s}' % (b"[" * 200, b"]" * 200),
    "200 nested objects": b'{"a":' * 200 + b"1" + b"}" * 200,
    "a million open brackets": b"[" * 1_000_000,
    "a million escaped quotes": b'{"a": "' + b'\\"' * 1_000_000,
    "an array at the top": b"[1]",
    "a string at the top": b'"text"',
    "nothing": b"",
    "half an object": b'{"a": ',
    "two objects": b'{"a": 1}{"a": 2}',
    "half a surrogate pair": b'{"a": "\\ud800"}',
    "half a surrogate pair in a key": b'{"\\uDFFF": 1}',
    "a raw surrogate": b'{"a": "\xed\xa0\x80"}',
    "bytes that are no UTF-8": b'{"a": "\xff\xfe"}',
    "UTF-16": '{"a": 1}'.encode("utf-16"),
    "a raw control character": b'{"a": "\x1b[31m"}',
}


def heard(body, **settings):
    ours, theirs = socket.socketpair()
    with ours, theirs:
        writer = threading.Thread(
            target=theirs.sendall, args=(struct.pack("<I", len(body)) + body,)
        )
        writer.start()
        try:
            return Channel(ours, **settings).receive(time.monotonic() + 200)
        finally:
            ours.close()
            writer.join()


@pytest.mark.parametrize("what", MALFORMED)
def test_what_is_malformed_is_a_bad_message_within_a_second(what):
    begun = time.thread_time()
    with pytest.raises(BadMessage):
        heard(MALFORMED[what])
    assert time.thread_time() - begun < 1.0


@pytest.mark.parametrize(
    "message",
    [
        {},
        {
            "a": [
                1,
                2.5,
                -3e-300,
                1.7976931348623157e308,
                18446744073709551615,
                -9223372036854775808,
            ]
        },
        {"a": 'quotes " and \\ and [[[[ {{{{ 123456789012345678901234567890 1e999 NaN'},
        {"\U0001f600": "\U0001f600 \u00e9 \ud7ff", "none": None, "true": True},
        {"a": json.loads("[" * 60 + "]" * 60)},
    ],
)
def test_what_is_well_formed_arrives_as_it_was_sent(message):
    ours, theirs = channel_pair()
    other = Channel(theirs)
    ours.send(message)
    assert other.receive(time.monotonic() + 200) == message
    other.send(message)
    assert ours.receive(time.monotonic() + 200) == message
    ours.close()
    other.close()


def test_a_bound_on_the_length_is_the_listeners_choice():
    body = json.dumps({"a": "x" * 1000}).encode()
    assert heard(body, longest=len(body))
    with pytest.raises(BadMessage):
        heard(body, longest=len(body) - 1)


def test_a_message_of_four_gigabytes_is_refused_by_its_length_alone():
    ours, theirs = channel_pair()
    theirs.sendall(struct.pack("<I", 0xFFFFFFFF))
    with pytest.raises(BadMessage):
        ours.receive(time.monotonic() + 200)
    theirs.close()
    ours.close()


def test_a_message_that_trickles_meets_the_deadline():
    ours, theirs = channel_pair()

    def trickle():
        for byte in struct.pack("<I", 10_000) + b"{" * 9_000:
            try:
                theirs.send(bytes([byte]))
            except OSError:
                return
            time.sleep(0.05)

    writer = threading.Thread(target=trickle)
    writer.start()
    begun = time.monotonic()
    with pytest.raises(ChannelTimeout):
        ours.receive(begun + 0.3)
    assert writer.is_alive(), "not when all of it has come, minutes later"
    ours.close()
    writer.join()
    theirs.close()


def test_whoever_does_not_read_holds_nobody_up():
    ours, theirs = channel_pair()
    begun = time.monotonic()
    with pytest.raises(ChannelTimeout):
        ours.send({"a": "x" * 4_000_000}, deadline=begun + 0.3)
    theirs.close()
    with pytest.raises(ChannelClosed):
        ours.send({"a": 1})
    ours.close()


def test_descriptors_that_a_candidate_sends_are_closed_unseen():
    ours, theirs = channel_pair()
    other = Channel(theirs)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        other.send({"a": 1}, [0] * 200)
        assert ours.receive(time.monotonic() + 200) == {"a": 1}
    assert (
        len(os.listdir("/proc/self/fd"))
        <= before + 1
        < resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    )
    assert ours.take_descriptors() == []
    ours.close()
    other.close()
