"""Files that `agent solve` wrote, called in ways in which they were not judged: right, or an error of one line."""

import pytest

from bench.contract_problems import DEVELOPED, PICKED
from bench.contracts import call_file, write_kernel

CASES = {case.name: case for case in (*DEVELOPED, *PICKED)}
MUST_BE_RIGHT = ("as judged", "as judged, grad mode on", "transposed strides, all inputs", "sliced [::2], all inputs",
                 "storage offset, all inputs", "expanded, all inputs")  # fmt: skip
MUST_RAISE = ("float16, all inputs", "float64, all inputs", "one dimension more, all inputs",
              "requires grad, all inputs", "empty, all inputs")  # fmt: skip


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize(
    "name", ["scaled_sum", "fused_softmax", "causal_attention", "convolution_block"]
)
def test_no_call_of_a_written_file_gives_a_wrong_answer(name, tmp_path):
    case = CASES[name]
    kernel = write_kernel(case, tmp_path)
    assert kernel is not None
    problem = str(tmp_path / f"{case.name}.py") if case.source else case.problem
    outcomes = call_file(kernel, problem)
    assert {
        call: outcome for call, outcome in outcomes.items() if outcome.startswith("wrong")
    } == {}
    assert {outcomes[call] for call in MUST_BE_RIGHT if call in outcomes} == {"right"}
    assert all(outcomes[call].startswith("raises: ") for call in MUST_RAISE)
