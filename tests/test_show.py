"""What a report looks like to a kernel engineer. The reports are built by hand, of real values."""

import math

import pytest
from rich.console import Console

from agent.show.kernels import matrix_view
from agent.show.verdict import headline, ladder, report_view
from agent.show.words import interval, milliseconds, percent, rate, size, times
from tools.results import (
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
    Mismatch,
    OwnWork,
    Pattern,
    ProfileResult,
    Report,
    Roofline,
    Rung,
    SourceLine,
    Timing,
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
    accepted=True, share=0.998, share_of="gpu_time", needed=True, census=Census(launches={"softmax_kernel": 1})
)


def timing(median: float) -> Timing:
    return Timing(
        median=median, low=median * 0.99, high=median * 1.01, mean=median, std=0.001, minimum=median * 0.98, calls=250
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
        interpreted=CorrectnessResult(device="cpu", interpreted=True, checks=(Check(draw="own", passed=True),)),
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
            roofline=Roofline(bytes=2**29, bytes_per_second=4.8e12, milliseconds=0.1118, bound="memory"),
            speed_of_light=0.909,
            clocks=Clocks(sm_mhz=1980, memory_mhz=3201, temperature=54, power_watts=512.0, throttle=("sw_power_cap",)),
            gpu_kernels={"softmax_kernel": 0.122},
        ),
        own_work=WORK,
        isolation=Isolation(active=("landlock", "seccomp"), missing=("user namespace: not permitted",)),
        environment=Environment(evaluator="1", torch="2.11.0", triton="3.6.0", python="3.12.3", gpu=GPU),
        seconds=2.5,
    )


def failed_report(failure: Failure, **changes) -> Report:
    return Report(problem="fused_softmax", problem_hash="a" * 64, candidate_hash="b" * 64, failure=failure, **changes)


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
        "2 of 2 passed, error at most 1.25 of eager's own, bitwise repeatable",
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
    failure = Failure(fault=Fault.COMPILE, message="module 'triton.language' has no attribute 'laod'", where=where)
    result = CompileResult(target="sm_90", failure=failure)
    lines = text(report_view(failed_report(failure, rung=Rung.COMPILE, compiles=(result,)))).splitlines()
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
    report = failed_report(failure, rung=Rung.INTERPRETED, compiles=(COMPILED,), interpreted=result, judged_on="cpu")
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
    assert "judged on a CPU, interpreted, at shrunk shapes" in shown


def test_whose_work_it_is_is_not_said_of_a_kernel_that_failed_for_another_reason():
    def shown(fault: Fault) -> str:
        report = failed_report(
            Failure(fault=fault, message="why"), own_work=OwnWork(census=Census(compute_ops={"aten.mm": 2}))
        )
        return text(report_view(report))

    assert "not judged (strict)" in shown(Fault.MISMATCH)
    assert "not its own (strict)" in shown(Fault.FALLBACK)
    assert "torch computes: aten.mm x2" in shown(Fault.FALLBACK)


def test_a_hint_is_said_once():
    mismatch = Mismatch(wrong=1, total=2, hint="Mask the last block.")
    failure = Failure(fault=Fault.MISMATCH, message="1 of 2 wrong: Mask the last block.", mismatch=mismatch)
    assert text(report_view(failed_report(failure))).count("Mask the last block.") == 1


def test_a_cheat_is_called_by_its_kind():
    failure = Failure(fault=Fault.CHEAT, cheat=Cheat.CACHE, message="the answer belongs to other inputs")
    assert headline(failed_report(failure)).plain.startswith("cheat (cache)  fused_softmax")


def test_a_kernel_judged_on_a_cpu_says_that_nothing_is_known_of_its_speed():
    report = good_report().with_(correctness=None, profile=None, judged_on="cpu", rung=Rung.INTERPRETED)
    shown = text(report_view(report))
    assert "nothing is known of its speed" in shown
    assert "over eager" not in shown


def test_text_of_a_candidate_is_never_markup_nor_a_control_code():
    failure = Failure(fault=Fault.RUNTIME, message="[red]not red[/red] \x1b[31mnor this", trace="[bold]tail[/bold]")
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
    assert [line.split()[:2] for line in shown[1:]] == [["sm_90", "ok"], ["sm_89", "fails"], ["gfx942", "ok"]]
    assert "resources: shared memory 131072 over 101376" in shown[2]
    assert "softmax_kernel" not in text(report_view(good_report().with_(compiles=results, own_work=None, profile=None)))


def test_a_degenerate_problem_and_advice_are_said():
    shown = text(report_view(good_report().with_(degenerate=("zeros", "identity"), advice=("starts threads",))))
    assert "cannot tell a right answer from: zeros, identity" in shown
    assert "starts threads" in shown


@pytest.mark.parametrize("fault", list(Fault))
def test_every_fault_can_be_shown(fault):
    failure = Failure(fault=fault, message="why", cheat=Cheat.TAMPER if fault is Fault.CHEAT else None)
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
        (milliseconds(0.0312), "31.2 us"),
        (milliseconds(1.2044), "1.204 ms"),
        (milliseconds(2100.0), "2.1 s"),
        (milliseconds(None), "-"),
        (percent(0.5), "50 %"),
        (times(12.345), "12.3x"),
        (times(math.inf), "infx"),
        (size(0), "0 B"),
        (size(3 * 2**30), "3 GiB"),
        (rate(4.8e12, "B"), "4.8 TB/s"),
        (rate(900.0, "B"), "900 B/s"),
        (interval(timing(2.0)), "2 ms (1.98 ms to 2.02 ms, 95 %, 250 calls)"),
    ],
)
def test_numbers_are_said_as_people_say_them(said, meant):
    assert said == meant
