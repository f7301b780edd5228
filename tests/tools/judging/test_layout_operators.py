"""Which of torch's operators only lay elements out: a list by name, of what a tape can record."""

from __future__ import annotations

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from kernelwright.tools.judging.own_work import kind_of
from kernelwright.tools.operators.operators import VIEWING_OPERATORS, only_moves_data
from kernelwright.tools.trace.trace import Operator

PYTHON_VIEWS = {
    "adjoint of real numbers": lambda x: x.adjoint(),
    "broadcast": lambda x: x[:1].broadcast_to(4, 6),
    "chunk": lambda x: x.chunk(2),
    "contiguous": lambda x: x.t().contiguous(),
    "diagonal": lambda x: x.diagonal(),
    "expand_as": lambda x: x[:1].expand_as(x),
    "flatten": lambda x: x.flatten(),
    "index by slices": lambda x: x[1:, ::2],
    "mT": lambda x: x.mT,
    "movedim": lambda x: x.movedim(0, 1),
    "narrow": lambda x: x.narrow(0, 1, 2),
    "parts of complex numbers": lambda x: torch.view_as_complex(x.view(4, 3, 2)).real,
    "ravel": lambda x: x.t().ravel(),
    "reshape": lambda x: x.t().reshape(-1),
    "split of several sizes": lambda x: x.split([1, 3]),
    "squeeze": lambda x: x[None].squeeze(0),
    "swapaxes": lambda x: x.swapaxes(0, 1),
    "tensor_split": lambda x: x.tensor_split(3),
    "unbind": lambda x: x.unbind(),
    "unflatten": lambda x: x.unflatten(1, (2, 3)),
    "unfold": lambda x: x.unfold(1, 2, 1),
    "view of another type": lambda x: x.view(torch.int32),
}


class Seen(TorchDispatchMode):
    """Notes every operator that a dispatch mode meets."""

    def __init__(self):
        super().__init__()
        self.operators = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.operators.append(func)
        return func(*args, **(kwargs or {}))


def overload(name: str):
    packet, _, last = name.partition(".")
    return getattr(getattr(torch.ops.aten, packet), last)


@pytest.mark.parametrize("name", sorted(PYTHON_VIEWS))
def test_every_way_to_lay_out_anew_is_recorded_as_an_operator_that_only_moves(name):
    with Seen() as seen:
        PYTHON_VIEWS[name](torch.arange(24.0).view(4, 6))
    assert seen.operators
    assert [f for f in seen.operators if not only_moves_data(f)] == []


@pytest.mark.parametrize("name", sorted(VIEWING_OPERATORS))
def test_a_listed_view_is_one_that_a_dispatch_mode_meets(name):
    func = overload(name)
    assert not torch._C._dispatch_has_kernel_for_dispatch_key(
        func.name(), "CompositeImplicitAutograd"
    )


def operators_that_alias_their_input():
    for schema in torch._C._jit_get_all_schemas():
        namespace, _, name = schema.name.partition("::")
        packet = getattr(torch.ops.aten, name, None) if namespace == "aten" else None
        func = getattr(packet, schema.overload_name or "default", None)
        if isinstance(func, torch._ops.OpOverload) and func.is_view:
            yield func


def test_no_operator_moves_data_because_its_schema_aliases():
    aliasing = list(operators_that_alias_their_input())
    moving = {
        f"{f.overloadpacket.__name__}.{f._overloadname}" for f in aliasing if only_moves_data(f)
    }
    by_name = {"contiguous.default", "pin_memory.default"}
    assert len(aliasing) > 70
    assert moving <= VIEWING_OPERATORS | by_name


@pytest.mark.parametrize(
    "op", ["_conj.default", "conj.default", "mH.default", "adjoint.default", "_neg_view.default"]
)
def test_a_view_that_changes_values_computes(op):
    assert kind_of(Operator(op=f"aten.{op}", args=({"t": 0},), out={"t": 1})) == "compute"


@pytest.mark.parametrize(
    ("op", "args"),
    [
        ("narrow.Tensor", ({"t": 0}, 0, {"t": 1}, 8)),
        ("tensor_split.tensor_indices_or_sections", ({"t": 0}, {"t": 1})),
    ],
)
def test_a_tensor_that_says_where_a_view_lies_is_read_by_the_host(op, args):
    assert kind_of(Operator(op=f"aten.{op}", args=args, out={"t": 2})) == "read"


@pytest.mark.parametrize(
    ("dtype", "kind"),
    [
        ("float8_e8m0fnu", "compute"),
        ("int8", "compute"),
        ("bool", "compute"),
        ("float8_e5m2", "layout"),
        ("bfloat16", "layout"),
        ("complex64", "layout"),
        ("no_such_type", "compute"),
    ],
)
def test_a_conversion_is_layout_where_a_mantissa_remains(dtype, kind):
    step = Operator(
        op="aten._to_copy.default",
        args=({"t": 0},),
        kwargs={"dtype": {"dtype": dtype}},
        out={"t": 1},
    )
    assert kind_of(step) == kind
