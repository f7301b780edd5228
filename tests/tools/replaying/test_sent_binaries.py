"""A replaying process is sent each binary of a candidate once, and a fresh process all of them again."""

from types import SimpleNamespace

from kernelwright.tools.replaying import replayer as replaying
from kernelwright.tools.replaying.messages import kernels_to_send
from kernelwright.tools.replaying.replayer import Replayer
from kernelwright.tools.replaying.service import Service
from kernelwright.tools.trace.trace import Function, Kernel, Launch, Trace, Traced


class KeepsKernels:
    """Stands for the device: it notes what it would load."""

    def __init__(self):
        self.opened = []

    def open(self, traced, binaries):
        self.opened.append({key: (one["binary"], one["reversed"]) for key, one in binaries.items()})


def traced() -> Traced:
    kernels = {
        name: Kernel(function="f", signature={}) for name in ("one", "same", "other", "unused")
    }
    steps = tuple(Launch(kernel=name, grid=(1, 1, 1), args={}) for name in ("one", "same", "other"))
    return Traced(
        functions={"f": Function(name="f", text="def f(): pass")},
        kernels=kernels,
        traces=(Trace(first=steps),),
    )


def compiled(binary: bytes, reverse: bytes = b"") -> SimpleNamespace:
    return SimpleNamespace(binary=binary, reversed=reverse, metadata={}, failure=None)


BINARIES = {
    "one": compiled(b"\x7fELF 1", b"\x7fELF -1"), "same": compiled(b"\x7fELF 1"),
    "other": compiled(b"\x7fELF 2"), "unused": compiled(b"\x7fELF 3"),
}  # fmt: skip


def message() -> dict:
    whole = traced()
    kernels, images = kernels_to_send(whole, whole.traces[0], BINARIES)
    return {"binaries": kernels, "images": images}


def test_equal_binaries_are_one_image_and_what_nothing_launches_is_not_sent():
    sent = message()
    assert len(sent["images"]) == 3
    assert sent["binaries"]["one"]["binary"] == sent["binaries"]["same"]["binary"]
    assert "unused" not in sent["binaries"]


def test_a_binary_is_sent_once_and_the_process_finds_it_again_by_its_name():
    judge, service = Replayer("cuda:0", None), Service(None, "cuda:0", KeepsKernels())
    for _ in range(2):
        new = judge._new_images(message())
        found = service._with_images({**message(), **new})
        assert {key: (one["binary"], one["reversed"]) for key, one in found.items()} == {
            "one": (b"\x7fELF 1", b"\x7fELF -1"), "same": (b"\x7fELF 1", b""), "other": (b"\x7fELF 2", b""),
        }  # fmt: skip
    assert new == {"images": {}}, "the second time nothing travels"
    assert judge._new_images({"do": "call"}) == {}


def test_a_process_keeps_so_many_binaries_and_lets_go_of_all_before_it_is_sent_more(monkeypatch):
    monkeypatch.setattr(replaying, "MAX_SENT_IMAGES", 4)
    judge, service = Replayer("cuda:0", None), Service(None, "cuda:0", KeepsKernels())
    for number in range(9):
        images = {f"{number} {place}": "AAAA" for place in range(3)}
        service._with_images(
            {"binaries": {}, "images": images, **judge._new_images({"images": images})}
        )
        assert set(images) <= set(service._images), "what this message needs is there"
        assert set(service._images) == judge._sent
        assert len(service._images) <= 4
