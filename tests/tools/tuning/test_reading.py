"""Numbers of kernel files are found by their syntax, and changed with the rest of the text left alone."""

from pathlib import Path

import pytest

from kernelwright.tools.tuning.kernel_text.parameters import ParameterRole
from kernelwright.tools.tuning.kernel_text.reading import read_file
from kernelwright.tools.tuning.kernel_text.rewriting import rewrite
from kernelwright.tools.tuning.kernel_text.writing_lists import with_list

GOOD = Path(__file__).parents[2] / "kernels" / "good"

KERNEL = """import triton, triton.language as tl
@triton.jit
def double(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, 2 * tl.load(x + at, at < n), at < n)
"""


def text_of(name):
    return (GOOD / f"{name}.py").read_text(encoding="utf-8")


def test_every_tile_option_and_precision_of_a_matmul_is_found():
    space = read_file(text_of("matmul")).space
    roles = {p.name.removeprefix("matmul_kernel."): p.role for p in space.parameters}
    assert roles == {
        "BLOCK_M": ParameterRole.TILE, "BLOCK_N": ParameterRole.TILE, "BLOCK_K": ParameterRole.TILE,
        "GROUP_M": ParameterRole.COUNT, "num_warps": ParameterRole.WARPS, "num_stages": ParameterRole.STAGES,
        "num_ctas": ParameterRole.CTAS, "input_precision": ParameterRole.PRECISION,
    }  # fmt: skip
    assert min(space.named("matmul_kernel.BLOCK_K").values) == 16


def test_a_grid_that_repeats_the_number_is_changed_with_it_and_nothing_else_is():
    source = text_of("matmul")
    file = read_file(source)
    changed = rewrite(file.source, file.space, {"matmul_kernel.BLOCK_N": 128})
    assert changed == source.replace("triton.cdiv(N, 64)", "triton.cdiv(N, 128)").replace(
        "BLOCK_N=64", "BLOCK_N=128"
    )


@pytest.mark.slow
@pytest.mark.parametrize("path", sorted(GOOD.glob("*.py")), ids=lambda path: path.stem)
def test_changing_any_parameter_and_taking_it_back_gives_the_same_bytes(path):
    source = path.read_text(encoding="utf-8")
    file = read_file(source)
    for parameter in file.space.parameters:
        for value in parameter.values:
            changed = rewrite(file.source, file.space, {parameter.name: value})
            compile(changed, str(path), "exec")
            assert (changed == file.source) == (value == parameter.start)
    assert rewrite(file.source, file.space, file.space.start()) == file.source


@pytest.mark.parametrize("ending", ["\r\n", "\n"])
def test_line_ends_umlauts_and_comments_stay_as_they_are(ending):
    host = (
        "BLOCK = 256  # größe, 256\n"
        "def forward(x, out):\n"
        '    """ä 256"""\n'
        "    double[(triton.cdiv(x.numel(), BLOCK),)](x, out, x.numel(), BLOCK=BLOCK,)  # 256\n"
    )
    source = (KERNEL + host).replace("\n", ending)
    file = read_file(source)
    changed = rewrite(file.source, file.space, {"double.BLOCK": 512, "double.num_warps": 8})
    assert changed == source.replace("BLOCK = 256", "BLOCK = 512").replace(
        "BLOCK=BLOCK,)", "BLOCK=BLOCK, num_warps=8,)"
    )


def test_a_rounded_up_division_without_cdiv_follows_too():
    file = read_file(
        KERNEL + "def f(x, out, n):\n    double[((n + 127) // 128,)](x, out, n, BLOCK=128)\n"
    )
    changed = rewrite(file.source, file.space, {"double.BLOCK": 64})
    assert "double[((n + (64 - 1)) // 64,)](x, out, n, BLOCK=64)" in changed


@pytest.mark.parametrize(
    ("host", "start"),
    [
        ("def f(x, out, n, b=512):\n    double[lambda m: (triton.cdiv(n, m['BLOCK']),)](x, out, n, BLOCK=b)", 512),
        ("T = dict(BLOCK=64)\ndef f(x, out, n):\n    double[(triton.cdiv(n, T['BLOCK']),)](x, out, n, **T)", 64),
        ("class M:\n    block = 32\n    def f(self, x, out, n):\n        double[(triton.cdiv(n, self.block),)]"
         "(x, out, n, self.block)", 32),
        ("def f(x, out, n):\n    a, b = 128, 3\n    double[(triton.cdiv(n, a),)](x, out, n, BLOCK=a)", 128),
        ("def f(x, out, n):\n    b = min(1024, triton.next_power_of_2(n))\n    double[(triton.cdiv(n, b),)]"
         "(x, out, n, BLOCK=b)", 1024),
    ],
)  # fmt: skip
def test_numbers_are_found_where_they_are_written(host, start):
    found = read_file(KERNEL + host + "\n").space.named("double.BLOCK")
    assert found.start == start
    assert found.places_programs


def test_a_size_that_a_shape_decides_is_left_alone_with_the_reason():
    space = read_file(text_of("layer_norm")).space
    assert [r.name for r in space.refused] == ["layer_norm_kernel.BLOCK"]


def test_blocks_without_masks_are_not_made_larger():
    source = (
        KERNEL + "def f(x, out, n):\n    double[(n // 256,)](x, out, n, BLOCK=256)\n"
    ).replace(", at < n)", ")")
    assert max(read_file(source).space.named("double.BLOCK").values) == 256


def test_an_autotune_list_is_read_as_starts_and_one_of_it_is_left():
    file = read_file(text_of("matmul_autotune"))
    assert len(file.starts) == 3
    assert file.starts[1]["matmul_kernel.BLOCK_M"] == 128
    assert file.source.count("triton.Config(") == 1


def test_products_with_a_constexpr_or_an_allow_tf32_have_a_precision():
    source = text_of("matmul").replace('input_precision="ieee"', "allow_tf32=False")
    parameter = read_file(source).space.named("matmul_kernel.input_precision")
    assert parameter.start == "ieee"
    changed = rewrite(source, read_file(source).space, {parameter.name: "bf16x3"})
    assert 'tl.dot(a, b, acc, input_precision="bf16x3")' in changed


def test_several_winners_become_the_autotune_list_of_a_file_that_has_one():
    file = read_file(text_of("matmul_autotune"))
    start = file.space.start()
    other = start | {"matmul_kernel.BLOCK_M": 256, "matmul_kernel.num_warps": 8}
    text = with_list(file, file.space, [start, other])
    again = read_file(text)
    assert text.count("triton.Config(") == 2
    assert again.starts[1]["matmul_kernel.BLOCK_M"] == 256
    assert again.starts[1]["matmul_kernel.num_warps"] == 8
    after = text[text.index("key=[") :]
    assert file.original.endswith(after), "the rest of the file stays as it is"


def test_a_file_without_a_list_is_given_none():
    file = read_file(text_of("matmul"))
    other = file.space.start() | {"matmul_kernel.BLOCK_M": 128}
    assert with_list(file, file.space, [file.space.start(), other]) == ""
