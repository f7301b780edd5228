"""What a report looks like to a kernel engineer. The reports are built by hand, of real values."""

import math
from pathlib import Path

import pytest
from rich.console import Console

from kernelwright.agent.reporting.verdicts.measurements import matrix_view
from kernelwright.agent.reporting.verdicts.verdict import headline, ladder, report_view
from kernelwright.agent.reporting.words import (
    format_bytes,
    format_interval,
    format_milliseconds,
    format_percent,
    format_rate,
    format_ratio,
)
from kernelwright.tools.report import (
    Census,
    Cheat,
    Check,
    Clocks,
    CompileResult,
    CorrectnessResult,
    Environment,
    Failure,
    Fault,
    Isolation,
    KernelResources,
    LaunchTime,
    Mismatch,
    OwnWork,
    Pattern,
    ProfileResult,
    Report,
    Roofline,
    Rung,
    SizeOutcome,
    SourceLine,
    Timing,
    Tried,
    WrongElement,
)

GPU = "NVIDIA H200"
KERNEL = KernelResources(
    name="softmax_kernel",
    config={"BLOCK": 4096, "num_warps": 8},
    registers=48,
    spills=16,
    shared=32768,
    occupancy=0.75,
    occupancy_limit="registers",
    tensor_core="wgmma",
    mma_types=("bf16",),
    vector_bits=128,
    launches=1,
)
COMPILED = CompileResult(target="sm_90", kernels=(KERNEL,), tensors="fake", mode="jit", seconds=0.4)
WORK = OwnWork(
    accepted=True,
    share=0.998,
    share_of="gpu_time",
    needed=True,
    census=Census(launches={"softmax_kernel": 1}),
)


def timing(median: float) -> Timing:
    return Timing(
        median=median,
        low=median * 0.99,
        high=median * 1.01,
        mean=median,
        std=0.001,
        minimum=median * 0.98,
        calls=250,
    )


def good_report() -> Report:
    return Report(
        problem="fused_softmax",
        problem_hash="a" * 64,
        candidate_hash="b" * 64,
        rung=Rung.PROFILE,
        correct=True,
        correct_kb=True,
        judged_on=GPU,
        compiles=(COMPILED,),
        interpreted=CorrectnessResult(
            device="cpu", interpreted=True, checks=(Check(draw="own", passed=True),)
        ),
        correctness=CorrectnessResult(
            device=GPU,
            interpreted=False,
            checks=(
                Check(draw="own", passed=True, error_ratio=1.25),
                Check(draw="large", passed=True, error_ratio=0.8),
            ),
            deterministic=True,
        ),
        profile=ProfileResult(
            device=GPU,
            candidate=timing(0.123),
            eager=timing(0.224),
            compiled=timing(0.129),
            speedup=1.82,
            speedup_low=1.8,
            speedup_compiled=1.05,
            roofline=Roofline(
                bytes=2**29, bytes_per_second=4.8e12, milliseconds=0.1118, bound="memory"
            ),
            speed_of_light=0.909,
            clocks=Clocks(
                sm_mhz=1980,
                memory_mhz=3201,
                temperature=54,
                power_watts=512.0,
                throttle=("sw_power_cap",),
            ),
            gpu_kernels={"softmax_kernel": 0.122},
        ),
        own_work=WORK,
        isolation=Isolation(
            active=("landlock", "seccomp"), missing=("user namespace: not permitted",)
        ),
        environment=Environment(
            evaluator="1", torch="2.11.0", triton="3.6.0", python="3.12.3", gpu=GPU
        ),
        seconds=2.5,
    )


def failed_report(failure: Failure | None, **changes) -> Report:
    return Report(
        problem="fused_softmax",
        problem_hash="a" * 64,
        candidate_hash="b" * 64,
        failure=failure,
        **changes,
    )


def text(view, width: int = 160) -> str:
    console = Console(width=width, color_system=None, force_terminal=False)
    with console.capture() as capture:
        console.print(view)
    return capture.get()


def test_a_correct_kernel_shows_time_speedups_and_speed_of_light():
    shown = text(report_view(good_report()))
    for part in (
        "correct  fused_softmax, judged on NVIDIA H200",
        "source ok > compile ok > interpreted ok > correctness ok > profile ok",
        "0.123 ms (0.1218 ms to 0.1242 ms, 95 %, 250 calls)",
        "1.82x over eager (0.224 ms), at least 1.8x; 1.05x over torch.compile (0.129 ms)",
        "90.9 % of 0.1118 ms (memory bound: 512 MiB at 4.8 TB/s)",
        "2 of 2 passed, error at most 1.25 of eager's own, two calls equal bit for bit",
        "throttled: sw_power_cap",
    ):
        assert part in shown, f"{part!r} is not in\n{shown}"


def test_a_correct_kernel_shows_its_resources_and_its_own_work():
    shown = text(report_view(good_report()))
    row = next(line for line in shown.splitlines() if "BLOCK=4096" in line)
    assert (
        " ".join(row.split())
        == "softmax_kernel BLOCK=4096 num_warps=8 48 16 32 KiB 75 % (registers) wgmma bf16 128 bit"
    )
    assert "its own (strict), 99.8 % of gpu time in its own kernels" in shown


def test_isolation_layers_are_named_and_so_are_the_missing_ones():
    said = ("isolation layers missing: user namespace: not permitted", "the clock was changed")
    shown = text(report_view(good_report().with_(warnings=said)))
    assert "landlock, seccomp" in shown
    assert shown.count("user namespace: not permitted") == 1
    assert "the clock was changed" in shown


def test_a_compile_error_shows_its_line_with_the_caret_under_the_column():
    where = SourceLine(line=12, column=8, text="    x = tl.laod(p)")
    failure = Failure(
        fault=Fault.COMPILE, message="module 'triton.language' has no attribute 'laod'", where=where
    )
    result = CompileResult(target="sm_90", failure=failure)
    lines = text(
        report_view(failed_report(failure, rung=Rung.COMPILE, compiles=(result,)))
    ).splitlines()
    line = next(i for i, shown in enumerate(lines) if "tl.laod(p)" in shown)
    assert lines[line + 1].index("^") == lines[line].index("tl.laod")
    assert "source ok > compile fails" in lines[1]
    assert lines[0].startswith("compile  fused_softmax")


def test_a_mismatch_shows_its_pattern_the_first_and_the_worst_elements():
    mismatch = Mismatch(
        draw="signed",
        wrong=67,
        total=335,
        first=WrongElement(index=(4, 0), expected=0.25, got=math.nan),
        worst=(WrongElement(index=(4, 1), expected=0.5, got=math.inf),),
        pattern=Pattern.LAST_BLOCK,
        hint="Mask the last block of the rows.",
        max_error=math.inf,
        error_ratio=512.0,
    )
    failure = Failure(fault=Fault.MISMATCH, message="67 of 335 elements differ", mismatch=mismatch)
    result = CorrectnessResult(device="cpu", interpreted=True, failure=failure)
    report = failed_report(
        failure, rung=Rung.INTERPRETED, compiles=(COMPILED,), interpreted=result, judged_on="cpu"
    )
    shown = text(report_view(report))
    for part in (
        "67 of 335 elements (20.000%), inputs `signed`",
        "last block",
        "Mask the last block",
        "4, 1",
        "inf",
        "nan",
    ):
        assert part in shown, f"{part!r} is not in\n{shown}"
    assert "judged on a CPU, interpreted, at small sizes" in shown


def test_whose_work_it_is_is_not_said_of_a_kernel_that_failed_for_another_reason():
    def shown(fault: Fault) -> str:
        report = failed_report(
            Failure(fault=fault, message="why"),
            own_work=OwnWork(census=Census(compute_ops={"aten.mm": 2})),
        )
        return text(report_view(report))

    assert "not judged (strict)" in shown(Fault.MISMATCH)
    assert "not its own (strict)" in shown(Fault.FALLBACK)
    assert "torch computes: aten.mm x2" in shown(Fault.FALLBACK)


def test_a_hint_is_said_once():
    mismatch = Mismatch(wrong=1, total=2, hint="Mask the last block.")
    failure = Failure(
        fault=Fault.MISMATCH, message="1 of 2 wrong: Mask the last block.", mismatch=mismatch
    )
    assert text(report_view(failed_report(failure))).count("Mask the last block.") == 1


TRIED = (
    Tried(why="the problem's own"),
    Tried(sizes={"rows": 5, "columns": 67}, why="rows prime"),
    Tried(
        sizes={"rows": 65},
        why="rows one more than 64",
        outcome=SizeOutcome.WRONG,
        message="3 of 335 differ",
    ),
    Tried(
        sizes={"rows": 7},
        why="rows 7",
        outcome=SizeOutcome.REFUSED,
        message="AssertionError: even rows only",
    ),
    Tried(sizes={"rows": 1}, why="rows 1", outcome=SizeOutcome.UNUSED),
)


def test_every_size_that_was_tried_has_its_line_with_its_reason_and_outcome():
    checked = CorrectnessResult(device=GPU, interpreted=False, tried=TRIED, seed=123)
    lines = [
        " ".join(line.split())
        for line in text(report_view(good_report().with_(correctness=checked))).splitlines()
    ]
    for line in (
        "sizes the problem's own right",
        "rows=5 columns=67 rows prime right",
        "rows=65 rows one more than 64 wrong 3 of 335 differ",
        "rows=7 rows 7 refused AssertionError: even rows only",
        "rows=1 rows 1 unused",
    ):
        assert line in lines, f"{line!r} is not in {lines}"


def test_the_seed_is_shown_with_the_command_that_repeats_the_verdict():
    checked = CorrectnessResult(device=GPU, interpreted=False, seed=123)
    report = good_report().with_(correctness=checked)
    assert "agent check k.py --problem 'fused softmax' --seed 123" in text(
        report_view(report, "agent check k.py --problem 'fused softmax'")
    )
    assert "123, which repeats this verdict: agent check ... --seed 123" in text(
        report_view(report)
    )
    assert "repeats" not in text(report_view(good_report())), (
        "a report of another judge has no seed"
    )


def test_a_ratio_over_torch_compile_that_is_not_comparable_is_marked():
    report = good_report()
    profile = report.profile.with_(speedup_compiled=None, speedup_compiled_estimate=1.05)
    shown = text(report_view(report.with_(profile=profile)), width=200)
    assert "about 1.05x over torch.compile (not comparable: timed by another method)" in shown


def test_set_up_host_precision_and_launches_are_shown_apart_from_the_time():
    launches = (
        LaunchTime(kernel="max_kernel", grid=(512, 1, 1), ms=0.04, share=0.325),
        LaunchTime(kernel="softmax_kernel", grid=(512, 4, 1), ms=0.083, share=0.675),
    )
    profile = good_report().profile.with_(
        setup_ms=1.25,
        host_ms=0.0213,
        eager_host_ms=0.034,
        compiled_host_ms=0.0565,
        precision="tf32",
        eager_precision="fp32",
        launches=launches,
    )
    lines = [
        " ".join(line.split())
        for line in text(report_view(good_report().with_(profile=profile))).splitlines()
    ]
    for line in (
        "host candidate + 21.3 us, eager + 34 us, torch.compile + 56.5 us on the host per call "
        "(measured apart, no part of the time or the speedup)",
        "set-up 1.25 ms, once (measured apart, no part of the time or the speedup)",
        "precision tf32, eager fp32",
        "launch grid time share",
        "max_kernel 512 x 1 x 1 40 us 32.5 %",
        "softmax_kernel 512 x 4 x 1 83 us 67.5 %",
    ):
        assert line in lines, f"{line!r} is not in {lines}"


def test_many_launches_are_cut_and_counted():
    launches = (LaunchTime(kernel="k", ms=0.001, share=0.01),) * 100
    profile = good_report().profile.with_(launches=launches)
    shown = text(report_view(good_report().with_(profile=profile)))
    assert "and 88 more launches (--json lists all)" in shown


def test_where_and_why_a_candidate_ended_is_one_line_and_part_of_the_json():
    failure = Failure(fault=Fault.RESOURCES, message="shared memory 131072\nover 101376")
    compiled = CompileResult(target="sm_90", failure=failure)
    report = failed_report(failure, rung=Rung.COMPILE, compiles=(compiled,))
    assert report.explanation == "ended at compile: resources: shared memory 131072 over 101376"
    assert report.model_dump()["explanation"] == report.explanation
    assert Report.model_validate_json(report.model_dump_json()) == report
    assert "ended at compile: resources: shared memory 131072" in text(report_view(report))
    assert good_report().explanation == ""
    cheat = failed_report(
        Failure(fault=Fault.CHEAT, cheat=Cheat.DECOY, message="decoys"), rung=Rung.CORRECTNESS
    )
    assert cheat.explanation == "ended at correctness: cheat (decoy): decoys"
    unasked = failed_report(None, rung=Rung.COMPILE, compiles=(COMPILED,))
    assert "ended at compile: its answers were not checked: no more was asked for" in text(
        report_view(unasked)
    )
    needs = unasked.with_(warnings=("not interpreted: needs a GPU (inline assembly)",))
    assert needs.explanation.endswith("not checked: not interpreted: needs a GPU (inline assembly)")


def test_an_explanation_is_one_line_however_long_the_message():
    report = failed_report(Failure(fault=Fault.RUNTIME, message="a\n\tb " * 10_000))
    assert "\n" not in report.explanation
    assert len(report.explanation) < 500


def test_a_cheat_is_called_by_its_kind():
    failure = Failure(
        fault=Fault.CHEAT, cheat=Cheat.CACHE, message="the answer belongs to other inputs"
    )
    assert headline(failed_report(failure)).plain.startswith("cheat (cache)  fused_softmax")


def test_a_kernel_judged_on_a_cpu_says_that_nothing_is_known_of_its_speed():
    report = good_report().with_(
        correctness=None, profile=None, judged_on="cpu", rung=Rung.INTERPRETED
    )
    shown = text(report_view(report))
    assert "nothing is known of its speed" in shown
    assert "over eager" not in shown


def test_text_of_a_candidate_is_never_markup_nor_a_control_code():
    failure = Failure(
        fault=Fault.RUNTIME,
        message="[red]not red[/red] \x1b[31mnor this",
        trace="[bold]tail[/bold]",
    )
    shown = text(report_view(failed_report(failure, output="[link=x]printed[/link]\x07")))
    assert "[red]not red[/red]" in shown
    assert "[bold]tail[/bold]" in shown
    assert "[link=x]printed[/link]" in shown
    assert "\x1b" not in shown
    assert "\x07" not in shown


def test_several_targets_make_a_matrix_with_the_reason_for_each_that_fails():
    failure = Failure(fault=Fault.RESOURCES, message="shared memory 131072 over 101376")
    results = (
        COMPILED,
        CompileResult(target="sm_89", failure=failure),
        CompileResult(target="gfx942", kernels=(KERNEL,)),
    )
    shown = text(matrix_view(results), width=200).splitlines()
    assert [line.split()[:2] for line in shown[1:]] == [
        ["sm_90", "ok"],
        ["sm_89", "fails"],
        ["gfx942", "ok"],
    ]
    assert "resources: shared memory 131072 over 101376" in shown[2]
    assert "softmax_kernel" not in text(
        report_view(good_report().with_(compiles=results, own_work=None, profile=None))
    )


@pytest.mark.parametrize("width", [46, 60, 78, 100, 160])
def test_no_word_of_a_compile_table_is_broken_at_any_width(width):
    failure = Failure(fault=Fault.RESOURCES, message="shared memory 131072 over 101376")
    several = (
        COMPILED,
        CompileResult(target="sm_89", failure=failure, tensors="fake", mode="offline", seconds=0.2),
    )
    for compiles, parts in (
        ((COMPILED,), ("num_warps=8", "softmax_kernel")),
        (several, ("sm_90", "fails", "101376")),
    ):
        shown = text(report_view(good_report().with_(compiles=compiles)), width)
        for part in (*parts, "wgmma", "registers", "occupancy", "32 KiB"):
            assert part in shown, part
        assert max(map(len, shown.splitlines())) <= width


def test_a_degenerate_problem_and_advice_are_said():
    shown = text(
        report_view(
            good_report().with_(degenerate=("zeros", "identity"), advice=("starts threads",))
        )
    )
    assert "cannot tell a right answer from: zeros, identity" in shown
    assert "starts threads" in shown


@pytest.mark.parametrize("fault", list(Fault))
def test_every_fault_can_be_shown(fault):
    failure = Failure(
        fault=fault, message="why", cheat=Cheat.TAMPER if fault is Fault.CHEAT else None
    )
    assert fault.value.replace("_", " ") in text(report_view(failed_report(failure)))


@pytest.mark.parametrize("rung", list(Rung))
def test_the_ladder_ends_at_the_rung_that_failed(rung):
    failure = Failure(fault=Fault.TIMEOUT, message="over its time")
    assert ladder(failed_report(failure, rung=rung)).plain.endswith(f"{rung} fails")


def test_a_report_survives_a_narrow_terminal():
    assert "correct" in text(report_view(good_report()), width=40)


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        (format_milliseconds(0.0312), "31.2 us"),
        (format_milliseconds(1.2044), "1.204 ms"),
        (format_milliseconds(2100.0), "2.1 s"),
        (format_milliseconds(None), "-"),
        (format_percent(0.5), "50 %"),
        (format_ratio(12.345), "12.3x"),
        (format_ratio(math.inf), "infx"),
        (format_bytes(0), "0 B"),
        (format_bytes(3 * 2**30), "3 GiB"),
        (format_rate(4.8e12, "B"), "4.8 TB/s"),
        (format_rate(900.0, "B"), "900 B/s"),
        (format_interval(timing(2.0)), "2 ms (1.98 ms to 2.02 ms, 95 %, 250 calls)"),
    ],
)
def test_numbers_are_said_as_people_say_them(said, meant):
    assert said == meant


def test_every_field_and_every_word_of_a_report_is_documented():
    """In docs/reference/report.md, by its name in backticks."""
    from pydantic import BaseModel

    from kernelwright.tools import faults
    from kernelwright.tools import report as results

    page = (Path(__file__).parents[3] / "docs/reference/report.md").read_text()
    values = [
        found
        for found in vars(results).values()
        if isinstance(found, type) and issubclass(found, BaseModel)
    ]
    fields = {
        name for value in values for name in (*value.model_fields, *value.model_computed_fields)
    }
    words = {
        member.value
        for kind in (faults.Fault, faults.Cheat, faults.Pattern, SizeOutcome, Rung)
        for member in kind
    }
    missing = {name for name in fields | words if f"`{name}`" not in page}
    assert not missing, sorted(missing)
    assert f"| `schema_version` | integer | {results.SCHEMA_VERSION} |" in page
