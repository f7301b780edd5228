"""Writes a report as feedback for the policy.

Text from programs is capped, stripped of control characters and quoted as data.
"""

from __future__ import annotations

from kernelwright.agent.loop.advice import suggestion
from kernelwright.agent.loop.tuning_feedback import tuning_lines
from kernelwright.policies.base import Origin
from kernelwright.tools.report import CompileResult, Failure, Mismatch, Report, clean_text

MAX_MESSAGE_CHARACTERS = 1200
"""Maximum number of characters quoted from a failure's message."""
MAX_TRACE_CHARACTERS = 1500
"""Maximum number of characters quoted from a traceback."""
MAX_FEEDBACK_OUTPUT_CHARACTERS = 800
"""Maximum number of characters quoted from the candidate's printed output."""
MAX_COMPACT_CHARACTERS = 300
"""Maximum number of characters of a message in the compact form."""
MAX_LISTED_LAUNCHES = 8
"""Maximum number of launches whose times are listed."""


COMPILER_DRAFT_NOTE = (
    "torch's compiler (Inductor) drafted it: operators that follow each other are fused already, block sizes are not "
    "tuned. It keeps the order of operations that the reference has, stores every result that a product or a second "
    "reduction reads, and knows one way to tile each. Do what it cannot: compute attention and normalisation online, "
    "in one pass without storing scores; keep a small product's operand in registers; merge products that read the "
    "same input; choose tiles, warps, stages and input_precision for these sizes; use what is true of the numbers."
)
"""Note on the compiler's draft in a policy's prompt."""


def write_feedback(
    report: Report, tried: int = 0, origin: Origin = Origin.POLICY, tuned: bool = False
) -> str:
    """Writes a report in full, for a policy that reads sentences.

    tried: number of refinements so far, so each gets another suggestion. origin: author of the
    candidate.
    tuned: whether the kernel's numbers were searched on this GPU.
    """
    if report.failure is not None:
        parts = [
            _headline(report, report.failure),
            *_failure(report.failure),
            _program_output(report),
        ]
    else:
        by = COMPILER_DRAFT_NOTE if origin is Origin.COMPILER else ""
        parts = [
            _correctness(report), _strides(report), by, *_speed(report), _launches(report), _resources(report.compile),
            *(tuning_lines(report) if tuned else []), suggestion(report, tried),
        ]  # fmt: skip
    return "\n".join(part for part in parts if part)


def write_compact_feedback(report: Report) -> str:
    """Writes one or two lines for a small policy: the fault, the message and the source line."""
    failure = report.failure
    if failure is None:
        return " ".join(["correct", *_speed(report)])
    location = failure.where
    line = f"\n# line {location.line}: {clean_text(location.text.strip(), 120)}" if location else ""
    hint = failure.mismatch.pattern.value if failure.mismatch and failure.mismatch.pattern else ""
    message = clean_text(failure.message, MAX_COMPACT_CHARACTERS).splitlines() or [""]
    return f"{failure.fault}: {hint or message[0]}{line}"


def quote_as_data(text: str, limit: int) -> str:
    """Quotes a text as data. The middle of a long text is cut, with a note of how much, and the
    text cannot close its quotation.
    """
    data = clean_text(text.strip(), limit).replace("</data", "< /data").replace("```", "` ` `")
    return f"<data>\n{data}\n</data>"


def _headline(report: Report, failure: Failure) -> str:
    kind = f"{failure.fault} ({failure.cheat})" if failure.cheat else failure.fault.value
    return f"It failed at the rung `{report.rung}` with the fault `{kind}`:"


def _failure(failure: Failure) -> list[str]:
    parts = [quote_as_data(failure.message, MAX_MESSAGE_CHARACTERS)]
    if failure.where:
        parts.append(f"At line {failure.where.line}:\n{_with_caret(failure)}")
    if failure.trace:
        parts.append(
            f"The last frames in the candidate:\n{quote_as_data(failure.trace, MAX_TRACE_CHARACTERS)}"
        )
    if failure.mismatch:
        parts.append(_mismatch(failure.mismatch))
    return parts


def _with_caret(failure: Failure) -> str:
    assert failure.where is not None
    location = failure.where
    text = location.text.replace("\t", " ")
    caret = "" if location.column is None else f"\n{' ' * min(location.column, len(text))}^"
    return f"<data>\n{clean_text(text, 400)}{caret}\n</data>"


def _mismatch(mismatch: Mismatch) -> str:
    share = f" ({mismatch.wrong / mismatch.total:.2%})" if mismatch.total else ""
    lines = [
        f"{mismatch.wrong:,} of {mismatch.total:,} elements of output {mismatch.output} are wrong{share}."
    ]
    if mismatch.first:
        first = mismatch.first
        lines.append(
            f"The first is at {list(first.index)}: expected {first.expected:.6g}, got {first.got:.6g}."
        )
    if mismatch.worst:
        lines.append("The worst:")
        lines += [
            f"  {list(w.index)}: expected {w.expected:.6g}, got {w.got:.6g}"
            for w in mismatch.worst[:5]
        ]
    if mismatch.pattern:
        lines.append(
            f"Pattern: {mismatch.pattern.replace('_', ' ')}. {clean_text(mismatch.hint, 300)}".rstrip()
        )
    elif mismatch.hint:
        lines.append(clean_text(mismatch.hint, 300))
    return "\n".join(lines)


def _program_output(report: Report) -> str:
    if not report.output.strip():
        return ""
    return f"It printed:\n{quote_as_data(report.output, MAX_FEEDBACK_OUTPUT_CHARACTERS)}"


def _correctness(report: Report) -> str:
    if report.judged_on == "cpu":
        return (
            "It is right on a CPU, interpreted, at small shapes. Its speed has not been measured."
        )
    return f"It is right on {clean_text(report.judged_on, 80)}."


def _strides(report: Report) -> str:
    if not report.ignores_strides:
        return ""
    evidence = clean_text(report.ignores_strides, MAX_COMPACT_CHARACTERS)
    return (
        f"It ignores strides: {evidence}. Call .contiguous() on its inputs, or use their strides."
    )


def _speed(report: Report) -> list[str]:
    profile = report.profile
    if profile is None or profile.candidate is None:
        return []
    lines = [f"A call takes {profile.candidate.median:.4g} ms"]
    if profile.speedup is not None:
        lines[0] += f", {profile.speedup:.2f}x the speed of eager PyTorch"
    if profile.speedup_compiled is not None:
        lines[0] += f" and {profile.speedup_compiled:.2f}x that of torch.compile"
    elif profile.speedup_compiled_estimate is not None:
        lines[0] += f" and about {profile.speedup_compiled_estimate:.2f}x that of torch.compile"
    lines[0] += "."
    if profile.speed_of_light is not None and profile.roofline is not None:
        bound = profile.roofline.bound or "unknown"
        lines.append(
            f"That is {profile.speed_of_light:.0%} of the speed of light; the bottleneck is {bound}."
        )
    return lines


def _launches(report: Report) -> str:
    """Lists the launches of a call, the longest first."""
    launches = report.profile.launches if report.profile else ()
    timed = [launch for launch in launches if launch.ms is not None]
    if not timed:
        return ""
    timed.sort(key=lambda launch: launch.ms or 0.0, reverse=True)
    lines = []
    for launch in timed[:MAX_LISTED_LAUNCHES]:
        share = f", {launch.share:.0%}" if launch.share is not None else ""
        lines.append(f"  {clean_text(launch.kernel, 80)}: {launch.ms:.4g} ms{share}")
    omitted = ""
    if len(timed) > MAX_LISTED_LAUNCHES:
        omitted = f"\n  and {len(timed) - MAX_LISTED_LAUNCHES} more"
    return f"Its {len(timed)} launches, timed each by itself:\n" + "\n".join(lines) + omitted


def _resources(compiled: CompileResult | None) -> str:
    if compiled is None or not compiled.kernels:
        return ""
    lines = []
    for kernel in compiled.kernels[:4]:
        facts = [
            ("registers a thread", kernel.registers),
            ("bytes spilled", kernel.spills),
            ("bytes of shared memory", kernel.shared),
            ("warps", kernel.warps),
            ("bits a load", kernel.vector_bits),
        ]
        resources = ", ".join(f"{value} {name}" for name, value in facts if value is not None)
        occupancy = f", occupancy {kernel.occupancy:.0%}" if kernel.occupancy is not None else ""
        limit = f" (held by {kernel.occupancy_limit})" if kernel.occupancy_limit else ""
        lines.append(f"  {clean_text(kernel.name, 80)}: {resources}{occupancy}{limit}")
    omitted = f"\n  and {len(compiled.kernels) - 4} more" if len(compiled.kernels) > 4 else ""
    return f"Compiled for {compiled.target}:\n" + "\n".join(lines) + omitted
