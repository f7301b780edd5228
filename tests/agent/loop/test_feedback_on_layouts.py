"""A policy is told that its right kernel ignores strides, and what to do about it."""

from kernelwright.agent.loop.feedback import write_compact_feedback, write_feedback
from kernelwright.tools.judging.layouts.layout_checks import failure_of_layouts
from kernelwright.tools.problem import Problem
from kernelwright.tools.report import CorrectnessResult, LayoutCheck, Report, SizeOutcome
from kernelwright.tools.sizing.at_size import AtSize
from kernelwright.tools.sizing.input_layouts import InputLayout

TRANSPOSED = AtSize(
    index=1,
    problem=Problem(name="p", source=""),
    layouts=(InputLayout(strides=(1, 64), name="transposed"),),
)
WRONG = LayoutCheck(
    layouts={"input 0 (x)": "transposed (strides (1, 64))"}, outcome=SizeOutcome.WRONG
)


def report_of(**fields: object) -> Report:
    result = CorrectnessResult(device="cpu", interpreted=True, layouts=(WRONG,))
    known = {
        "problem": "p",
        "problem_hash": "h",
        "candidate_hash": "c",
        "judged_on": "cpu",
        "interpreted": result,
    }
    return Report.model_validate(known | fields)


def test_a_right_kernel_that_ignores_strides_is_told_where_and_how_to_mend_it():
    text = write_feedback(report_of(correct=True))
    assert "It ignores strides: wrong where input 0 (x) is transposed (strides (1, 64))." in text
    assert ".contiguous()" in text


def test_a_refused_one_has_the_remedy_in_the_line_for_small_policies():
    text = write_compact_feedback(report_of(failure=failure_of_layouts(TRANSPOSED, WRONG)))
    assert text.startswith("layout: ignores strides: wrong where input 0 (x) is transposed")
    assert "use .contiguous() or .stride()" in text
