"""Memory of the judge in a replaying process on a GPU: it stays mapped for as long as anything there may read it. The
driver's mappings are stood in for by arrays of the host.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

from kernelwright.tools.hardware import cuda_driver
from kernelwright.tools.references.shared_tensors import Buffers, SharedTensor
from kernelwright.tools.replaying.mapped_memory import Mapped
from kernelwright.tools.replaying.replayer import MAX_MAPPED_ALLOCATIONS, Replayer

SIZE = 64


class Bytes(np.ndarray):
    """An array that may lie in a set, as what stands for it on a GPU may."""

    __hash__ = object.__hash__  # type: ignore[assignment]


class Driver:
    """Which handles are mapped, at what addresses."""

    def __init__(self) -> None:
        self.mapped: dict[int, str] = {}
        self._next = 1 << 20

    def map_handle(self, raw: bytes) -> int:
        self._next += 1 << 20
        self.mapped[self._next] = raw.decode()
        return self._next

    def unmap(self, address: int) -> None:
        del self.mapped[address]

    def lend(self, address: int, nbytes: int) -> tuple[Any, Any]:
        assert any(begin <= address <= begin + (1 << 20) - nbytes for begin in self.mapped)
        array = np.zeros(nbytes, dtype=np.uint8).view(Bytes)
        return torch.from_numpy(array), array

    @property
    def names(self) -> set[str]:
        return set(self.mapped.values())


@pytest.fixture
def driver(monkeypatch):
    made = Driver()
    for name in ("map_handle", "unmap", "lend"):
        monkeypatch.setattr(cuda_driver, name, getattr(made, name))
    return made


def handle(name: str) -> str:
    return base64.b64encode(name.encode()).decode()


def spec(name: str) -> dict[str, Any]:
    form = {
        "shape": [4],
        "stride": [1],
        "dtype": "float32",
        "size": SIZE,
        "start": 16,
        "span": 16,
        "offset": 0,
    }
    return form | {"ipc": handle(name)}


def test_an_allocation_is_unmapped_when_no_tensor_lies_in_it_any_more(driver):
    mapped = Mapped()
    mapped.receive([handle("x")], [])
    view = mapped.tensor(spec("x"))[1:3].unsqueeze(0)
    mapped.forget([handle("x")])
    assert driver.names == {"x"}
    del view
    mapped.forget([])
    assert driver.names == set()


def test_an_allocation_without_tensors_is_unmapped_at_once(driver):
    mapped = Mapped()
    mapped.receive([handle("x"), handle("y")], [])
    mapped.tensor(spec("x"))
    mapped.forget([handle("x")])
    assert driver.names == {"y"}


def test_an_allocation_that_is_let_go_of_and_lent_again_is_mapped_once_and_stays(driver):
    mapped = Mapped()
    mapped.receive([handle("x")], [])
    kept = mapped.tensor(spec("x"))
    mapped.forget([handle("x")])
    mapped.receive([handle("x")], [])
    again = mapped.tensor(spec("x"))
    del kept, again
    mapped.forget([])
    assert list(driver.mapped.values()) == ["x"]


def lent(name: str) -> SharedTensor:
    nothing = torch.empty(0)
    return SharedTensor(nothing, nothing, 0, spec(name))


@pytest.mark.parametrize(
    "weights", [MAX_MAPPED_ALLOCATIONS // 2, MAX_MAPPED_ALLOCATIONS - 2, 2 * MAX_MAPPED_ALLOCATIONS]
)
def test_what_the_clock_is_timed_on_stays_mapped_however_many_weights_a_model_has(driver, weights):
    replayer, mapped = Replayer("cuda:0", None), Mapped()  # type: ignore[arg-type]

    def message(*shared: SharedTensor) -> list[Any]:
        blocks, forgotten, _ = replayer._allocations_for(shared)
        mapped.forget(forgotten)
        mapped.receive(blocks, [])
        return [mapped.tensor(one.spec) for one in shared]

    state = message(*(lent(f"weight {i}") for i in range(weights)))
    replayer._pinned = [handle(f"weight {i}") for i in range(weights)]
    message(lent("input"), lent("place"))
    timed_on = message(lent("first set"), lent("second set"))
    message()
    message(lent("place"))
    assert driver.names >= {"first set", "second set", *(f"weight {i}" for i in range(weights))}
    del timed_on, state
    message(*(lent(f"later {i}") for i in range(MAX_MAPPED_ALLOCATIONS)))
    message()
    assert not driver.names & {"input", "first set", "second set"}


def test_weights_that_could_not_be_unmapped_stay_mapped_once_they_are_lent_again(
    driver, monkeypatch
):
    """Their allocation waits for the next candidate while the trace of the last one still has it."""
    replayer, mapped = Replayer("cuda:0", None), Mapped()  # type: ignore[arg-type]

    def exchange(message: dict[str, Any], shared: Sequence[SharedTensor], doing: str = "") -> Any:
        blocks, forgotten, _ = replayer._allocations_for(shared)
        mapped.forget([*forgotten, *message.get("names", ())])
        mapped.receive(blocks, [])
        return {"mapped": mapped.held(message.get("names", ()))}

    monkeypatch.setattr(replayer, "_process", object())
    monkeypatch.setattr(replayer, "_allow", lambda seconds: None)
    monkeypatch.setattr(replayer, "_exchange", exchange)
    exchange({}, [lent("weight")])
    replayer._pinned = [handle("weight")]
    weight = mapped.tensor(spec("weight"))
    assert replayer.unmap([handle("weight")]) == []
    exchange({}, [])
    exchange({}, [lent("weight")])
    del weight
    exchange({}, [])
    assert driver.names == {"weight"}


def test_waiting_memory_is_freed_only_once_the_other_process_has_unmapped_it(driver, monkeypatch):
    """Freed while it was mapped elsewhere, it ended a judge's process with an illegal memory access."""
    mapped, freed, addresses = Mapped(), [], iter(range(1 << 20, 1 << 30, 1 << 20))

    def unmap(handles: Sequence[str]) -> list[str]:
        mapped.forget(handles)
        return [one for one in handles if one not in mapped.held(handles)]

    monkeypatch.setattr(cuda_driver, "allocate", lambda size: next(addresses))
    monkeypatch.setattr(cuda_driver, "export", lambda address: str(address).encode())
    monkeypatch.setattr(
        cuda_driver, "as_bytes", lambda address, size: torch.zeros(size, dtype=torch.uint8)
    )
    monkeypatch.setattr(cuda_driver, "free", freed.append)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)
    buffers = Buffers("cuda:0", margin=16, keep=1 << 20, unmap=unmap)
    specs = [buffers.new((n,), (1,), torch.uint8).spec for n in (100, 5000)]
    mapped.receive([spec["ipc"] for spec in specs], [])
    in_use = mapped.tensor(specs[0] | {"dtype": "uint8"})
    buffers.release()
    buffers.trim()
    assert len(freed) == 1
    assert len(driver.names) == 1
    del in_use
    buffers.trim()
    assert len(freed) == 2
    assert not driver.names
    assert buffers.waiting == 0
