"""The table of kernels of public libraries: every row makes a problem that runs on a CPU and a candidate that only
calls its library.
"""

from __future__ import annotations

import ast

import pytest

from bench.library_kernels import missing, pairs
from kernelwright.tools.problem import check_form, module_integers
from kernelwright.tools.references.reference import Reference
from tests.library_kernels.library import LIBRARIES, all_rows
from tests.library_kernels.table import LibraryKernel, rows

ROWS = all_rows()
REFERENCE_SECONDS = 60


def test_the_table_holds_at_least_350_honest_kernels_of_four_libraries() -> None:
    assert len(ROWS) >= 350
    assert {kernel.library.name for kernel in ROWS} == {"flag_gems", "liger_kernel", "fla", "conch"}


@pytest.mark.parametrize("kernel", ROWS, ids=lambda kernel: kernel.title)
def test_a_row_makes_a_problem_and_a_candidate_that_defines_no_kernel_of_its_own(
    kernel: LibraryKernel,
) -> None:
    check_form(kernel.problem.source)
    assert (
        set(kernel.problem.cpu_sizes)
        == set(kernel.sizes)
        <= set(module_integers(kernel.problem.source))
    )
    tree = ast.parse(kernel.source)
    imported = {
        name.split(".")[0]
        for node in ast.walk(tree)
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    assert (
        kernel.library.name
        in imported
        <= {"torch", "math", "os", "sys", "tempfile", kernel.library.name}
    )
    assert "@triton" not in kernel.source


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_every_reference_runs_at_its_small_sizes_and_gives_numbers() -> None:
    import torch

    for kernel in ROWS:
        reference = Reference(kernel.problem.with_sizes(kernel.problem.cpu_sizes), "cpu")
        outputs = reference.run(reference.model(0), reference.inputs(1), 1)
        assert outputs, kernel.title
        assert all(isinstance(o, torch.Tensor) and o.numel() for o in outputs), kernel.title


def test_a_size_at_which_the_library_is_not_defined_is_refused_by_the_reference() -> None:
    kernel = next(k for k in ROWS if k.title == "flag_gems.scaled_softmax")
    reference = Reference(kernel.problem.with_sizes({"length": 33}), "cpu")
    with pytest.raises(Exception, match="not defined at these sizes"):
        reference.inputs(1)


def test_names_and_libraries_pick_pairs_and_an_unknown_name_is_refused() -> None:
    assert [kernel.title for kernel in pairs(["fla.swish"])] == ["fla.swish"]
    assert {kernel.library.name for kernel in pairs(["conch"])} == {"conch"}
    with pytest.raises(ValueError, match="no kernel or library"):
        list(pairs(["no such kernel"]))


def test_what_needs_a_gpu_or_an_older_triton_is_left_out_on_a_cpu() -> None:
    titles = {kernel.title for kernel in pairs(device="cpu")}
    assert "flag_gems.exp" in titles
    assert "conch.scaled_fp8_quant" not in titles


def test_what_is_left_out_says_why() -> None:
    assert all(kernel.left_out for kernel in all_rows(left_out=True))


def test_a_row_with_an_unknown_option_is_refused() -> None:
    with pytest.raises(ValueError, match="no option and no size"):
        rows(LIBRARIES[0], "exp | . | . | . | colour=red")


@pytest.mark.skipif(bool(missing()), reason="the bench extra is not installed")
def test_the_libraries_are_those_that_the_table_was_made_for() -> None:
    assert missing() == []
