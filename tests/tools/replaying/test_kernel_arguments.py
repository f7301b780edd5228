"""Arguments of a launch, byte by byte, as Triton's launcher packs them."""

import struct
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest

from kernelwright.tools.gpu.kernel_arguments import ArgumentError, Parameters, cell
from kernelwright.tools.trace.reinterpreted import Descriptor, Reinterpreted

GPU = SimpleNamespace(type="cuda")


@dataclass
class OnGpu:
    """Stands for a tensor on a GPU: an address and a device."""

    address: int
    device: object = field(default_factory=lambda: GPU)

    def data_ptr(self) -> int:
        return self.address


def packed(kind, value):
    return bytes(cell(kind, value, "x"))


def no_map(wanted):
    raise AssertionError("no tensor map is wanted here")


@pytest.mark.parametrize(
    ("kind", "value", "wanted"),
    [
        ("i1", True, struct.pack("<?", True)),
        ("i8", -3, struct.pack("<b", -3)),
        ("i32", -(2**31), struct.pack("<i", -(2**31))),
        ("i64", -(2**40), struct.pack("<q", -(2**40))),
        ("u64", 2**64 - 1, struct.pack("<Q", 2**64 - 1)),
        ("fp16", 1 / 3, struct.pack("<e", 1 / 3)),
        ("bf16", 1 / 3, struct.pack("<f", 1 / 3)[2:]),
        ("fp32", 1 / 3, struct.pack("<f", 1 / 3)),
        ("fp32", 1e300, struct.pack("<f", float("inf"))),
        ("fp64", 1 / 3, struct.pack("<d", 1 / 3)),
        ("fp32", 7, struct.pack("<f", 7.0)),
        ("*fp32", OnGpu(2**47), struct.pack("<Q", 2**47)),
        ("*fp32", None, struct.pack("<Q", 0)),
        ("*i8", Reinterpreted(OnGpu(64), "int8"), struct.pack("<Q", 64)),
    ],
)
def test_a_value_is_packed_as_triton_packs_it(kind, value, wanted):
    assert packed(kind, value)[: len(wanted)] == wanted


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("i32", 1.5),
        ("i32", None),
        ("fp16", 1e9),
        ("fp32", "1"),
        ("fp64", 10**400),
        ("*fp32", 1234),
        ("*fp32", OnGpu(8, SimpleNamespace(type="cpu"))),
        ("nvTmaDesc", 0),
    ],
)
def test_what_does_not_fit_is_refused(kind, value):
    with pytest.raises(ArgumentError, match="x is"):
        cell(kind, value, "x")


def test_constants_are_left_out_and_tuples_flattened():
    signature = {
        "a": "*fp32",
        "block": "constexpr",
        "pair": ["i32", "constexpr", ["*fp16", "i64"]],
        "n": "i32",
    }
    wanted = [64, 1, 128, 3, 9]
    for pair in ((1, (OnGpu(128), 3)), (1, "constant", (OnGpu(128), 3))):
        args = {"a": OnGpu(64), "pair": pair, "n": 9}
        assert [c.value for c in Parameters(signature, None, 1).cells(args, no_map)] == wanted


@pytest.mark.parametrize("args", [{}, {"pair": 5}, {"pair": (1, 2, 3)}])
def test_arguments_that_are_missing_or_misshapen_are_refused(args):
    with pytest.raises(ArgumentError):
        Parameters({"pair": ["i32", "i32"]}, None, 1).cells(args, no_map)


@pytest.mark.parametrize("flags", [1, 2])
def test_a_descriptor_without_a_tensor_map_is_its_parts_and_its_shape_again(flags):
    descriptor = Descriptor(OnGpu(256), (8, 16), (16, 1), (4, 16), "nan")
    cells = Parameters({"d": "tensordesc<fp16[4, 16]>"}, [], flags).cells({"d": descriptor}, no_map)
    assert [c.value for c in cells] == [256, 8, 16, 16, 1, *[1, 0][:flags], 8, 16, 16, 1]


def test_a_descriptor_with_a_tensor_map_is_encoded_innermost_first():
    meta = {
        "swizzle": 3,
        "elem_size": 2,
        "elem_type": 8,
        "block_size": [4, 64],
        "fp4_padded": False,
    }
    descriptor = Descriptor(OnGpu(256), (8, 128), (128, 1), (4, 64), "zero")
    seen = []
    cells = Parameters({"d": "tensordesc<bf16[4, 64]>"}, [meta], 1).cells(
        {"d": descriptor}, seen.append
    )
    assert (seen[0].sizes, seen[0].strides, seen[0].box, seen[0].element_type) == (
        (128, 8),
        (256,),
        (64, 4),
        10,
    )
    assert [c.value for c in cells[1:]] == [8, 128, 128, 1]


def test_a_binary_of_other_descriptors_is_refused():
    meta = {
        "swizzle": 3,
        "elem_size": 2,
        "elem_type": 8,
        "block_size": [4, 64],
        "fp4_padded": False,
    }
    with pytest.raises(ArgumentError, match="0 descriptors"):
        Parameters({"x": "*fp32"}, [meta], 1)
