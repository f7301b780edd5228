"""`agent solve` without its options: opens the tools of a run, runs it, and summarizes its end."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from kernelwright.agent.contracts.guarded import GuardedKernel, guarded_kernel
from kernelwright.agent.export.kernel_file import verification_line, write_kernel
from kernelwright.agent.loop.gpu_turns import share_gpu
from kernelwright.agent.loop.run import Run, pause_owned
from kernelwright.agent.loop.run_verdicts import Participants, RunJudge
from kernelwright.agent.loop.settings import Settings
from kernelwright.agent.loop.stopping import Spent, StopReason
from kernelwright.agent.prompts import Prompts
from kernelwright.agent.runtime.databases import open_store, verdict_cache_folder
from kernelwright.agent.runtime.errors import Exit, exit_of_outcome
from kernelwright.agent.runtime.interrupts import defer_interrupts
from kernelwright.agent.solve.drafting import Drafter
from kernelwright.agent.solve.next_steps import NextSteps, next_steps
from kernelwright.agent.solve.own_work_choice import OwnWorkChooser
from kernelwright.agent.solve.variants import PlansTried, VariantChooser
from kernelwright.agent.tuning.turn import TuneTurn
from kernelwright.policies.base import Policy, Value
from kernelwright.tools.hardware.machine_info import version
from kernelwright.tools.problem import Problem
from kernelwright.tools.report import Report, ReportOutcome
from kernelwright.tools.timing.card_estimates import CardEstimate

if TYPE_CHECKING:
    from kernelwright.tools.evaluation.pipeline import Evaluator, Options


class Solved(Value):
    """The result of a run."""

    problem: str
    taken_for: str = ""
    """Name typed by the user, if the problem's name only resembles it."""
    policy: str
    trajectory_id: int
    stop_reason: StopReason
    message: str = ""
    goal: str
    goal_reached: bool
    correct: bool
    outcome: ReportOutcome | None = None
    """Outcome of `report`; None if nothing was judged."""
    candidate_id: int | None = None
    turn: int | None = None
    """Turn of the best candidate, counted from 0."""
    speedup: float | None = None
    """Speedup over eager PyTorch; the lowest one if the problem names several shapes."""
    mean_speedup: float | None = None
    """Geometric mean of the speedups at the shapes that the problem names; None without shapes."""
    speed_of_light: float | None = None
    judged_on: str = ""
    verified: str = ""
    """Extent of the verification in one line."""
    left_to_torch: tuple[str, ...] = ()
    """Operators that compute in torch beside the best candidate's own kernels: `cholesky`, `mm`.
    `--partial` and `--own-work share:P` permit them.
    """
    own_share: float | None = None
    """Share of the work in the candidate's own kernels, 0 to 1 (of GPU time, or on a CPU of
    counted operations); None if not measured.
    """
    own_work: str = "strict"
    """Rule behind the verdicts: `strict`, `share:P` or `report`."""
    own_work_reason: str = ""
    """Reason for the rule chosen by `--own-work auto`; empty without a choice."""
    plans: PlansTried = PlansTried()
    """Plans of the compiler's decisions that `--variants` drafted; empty for other runs."""
    output: str | None = None
    """Path of the file with the best kernel."""
    written_by: str = ""
    """Author of the best kernel: `policy NAME`, `compiler draft`, `transformation: NAME` or `your
    file`.
    """
    database: str
    resumed: bool = False
    spent: Spent
    seconds: float = 0.0
    """Seconds from the start of the command, or of the call in Python; `spent` has the seconds of
    the turns.
    """
    report: Report | None = None
    """Report of the best candidate; if none is correct, of the furthest candidate."""
    estimates: tuple[CardEstimate, ...] = ()
    """Minimum time of the problem on the target GPUs; only for a correct kernel without a GPU."""
    next_steps: NextSteps | None = None
    """Suggestions after a run without a correct kernel; None after every other run."""
    note: str = ""
    """Description of the embedded policy from its weights, in the first run of a database;
    otherwise empty.
    """

    @property
    def exit(self) -> Exit:
        """The exit status of the command `agent solve`."""
        match self.stop_reason:
            case StopReason.INTERRUPTED:
                return Exit.INTERRUPTED
            case StopReason.REFUSED | StopReason.PROBLEM | StopReason.UNPRICED:
                return Exit.BAD_INPUT
            case StopReason.INFRASTRUCTURE:
                return Exit.INFRASTRUCTURE
        if self.correct:
            return Exit.DONE
        return Exit.INCORRECT if self.outcome is None else exit_of_outcome(self.outcome)


def solve_problem(
    problem: Problem,
    policy: Policy,
    settings: Settings,
    *,
    db: str | None = None,
    output: Path,
    watch: Callable[[Run, str], None],
    say: Callable[[str], None],
    forked_from: int | None = None,
) -> Solved:
    """Starts or continues a run, runs it until it stops, and writes the best kernel.

    Raises ProblemError if the reference fails; StoreError and InfrastructureError before the
    first turn only.

    forked_from: candidate of another trajectory; the new trajectory continues after that
    candidate.
    """
    from kernelwright.tools.evaluation.pipeline import Evaluator, Options
    from kernelwright.tools.reference_trials.trials import reference_trials

    start = time.monotonic()
    settings = settings.with_(prompt_version=Prompts(policy.prompt_form, settings.prompts).version)
    program_version = version("kernelwright") or "(not installed)"
    options = Options(targets=settings.targets, train_mode=settings.train_mode)
    with open_store(db) as store, Drafter(say) as drafter:
        say("starting the tools")
        reference_trials().begin()
        with defer_interrupts():
            # Imported here: at the first verdict, Ctrl-C could come in the middle of the import.
            import torch  # noqa: F401
        cache = verdict_cache_folder(db)
        with Evaluator(device=settings.device, workers=1, cache_dir=cache) as evaluator:
            say("running the reference")
            # Before the row is written: a row would end the same command for good.
            reference_trials().require_working(problem, train_mode=settings.train_mode)
            choice = OwnWorkChooser(drafter, evaluator, options, say).choose(problem, settings)
            settings = settings.with_(own_work=choice.rule)
            options = options.with_(own_work=choice.rule)
            chooser = None
            if settings.variants:
                chooser = VariantChooser(evaluator, options, settings.variants, say)
            trajectory = None
            try:
                # Ctrl-C between the row and its number would leave a row owned by this process for ever.
                with defer_interrupts():
                    first_row = settings.start(problem, program_version)
                    trajectory = store.begin(first_row, forked_from=forked_from)
                resumed = bool(store.turns(trajectory.id))
                participants = Participants(
                    drafter.policy_for(share_gpu(policy, evaluator), problem, settings, chooser),
                    RunJudge(evaluator, options),
                    tuner=TuneTurn(evaluator, settings, store, cache) if settings.tune else None,
                )
                run = Run(store, trajectory, problem, participants, settings, watch)
                run.run()
                kernel = _guarded_best(run, evaluator, options, say)
            except BaseException as error:
                if trajectory is not None:
                    pause_owned(store, trajectory.id, error)
                raise
        withheld = _reason_to_withhold(run, kernel)
        if run.best is not None and kernel is not None and not withheld:
            write_kernel(output, problem, run.best, store.where, program_version, kernel)
        solved = _solved(run, output, resumed, drafter.refused, time.monotonic() - start)
        plans = chooser.tried if chooser is not None else PlansTried()
        solved = solved.with_(own_work=choice.rule, own_work_reason=choice.reason, plans=plans)
        return _without_kernel(solved, withheld) if withheld else solved


def _without_kernel(solved: Solved, reason: str) -> Solved:
    """Returns the result of a run whose best kernel is withheld."""
    return solved.with_(
        correct=False,
        goal_reached=False,
        outcome=ReportOutcome.INCORRECT,
        output=None,
        message=reason,
    )


def _reason_to_withhold(run: Run, kernel: GuardedKernel | None) -> str:
    """Returns why the best kernel is not written; empty if it may be written.

    A kernel is withheld if it ignores strides and its file neither copies such an input nor
    raises.
    """
    report = run.best.report if run.best is not None else None
    if report is None or kernel is None or kernel.is_enforced or not report.ignores_strides:
        return ""
    return f"the best kernel ignores strides ({report.ignores_strides}), and the judge refused it with its checks"


def _guarded_best(
    run: Run, evaluator: Evaluator, options: Options, say: Callable[[str], None]
) -> GuardedKernel | None:
    """Returns the best kernel with its contract; None if none is correct.

    The judge checks the guarded kernel once more, with the seed of the first verdict, so only the
    guard differs. Its speed is not measured again. After an interrupt the guard is not judged.
    """
    best = run.best
    if best is None or best.source is None or best.report is None:
        return None
    stage = best.report.correctness or best.report.interpreted
    seed = stage.seed if stage else None
    repeated = options.with_(seed=seed, profile=False, torch_compile=False, contiguous_inputs=False)

    def judge(text: str) -> Report:
        say("judging the kernel with its contract")
        return evaluator.evaluate(run.problem, text, repeated)

    if run.stop_reason is not StopReason.INTERRUPTED:
        # After Ctrl-C the kernel is written without a judged guard, and the command ends.
        with contextlib.suppress(KeyboardInterrupt):
            return guarded_kernel(run.problem, best.source, best.report, judge)
    return guarded_kernel(run.problem, best.source, best.report)


def _solved(run: Run, output: Path, resumed: bool, refused: str, seconds: float) -> Solved:
    best = run.best
    furthest = max(run.attempts, key=lambda attempt: attempt.rank, default=None)
    shown = best or furthest
    report = shown.report if shown is not None else None
    profile = report.profile if best is not None and report is not None else None
    assert run.stop_reason is not None
    return Solved(
        problem=run.problem.name,
        taken_for=run.problem.taken_for,
        policy=run.settings.policy,
        trajectory_id=run.trajectory_id,
        stop_reason=run.stop_reason,
        message=run.message,
        goal=str(run.settings.goal),
        goal_reached=any(run.settings.goal.reached(attempt) for attempt in run.attempts),
        correct=best is not None,
        outcome=report.outcome if report else None,
        candidate_id=best.candidate_id if best else None,
        turn=best.turn if best else None,
        speedup=best.speedup if best else None,
        mean_speedup=report.mean_speedup if best and report else None,
        speed_of_light=profile.speed_of_light if profile else None,
        judged_on=report.judged_on if report else "",
        verified=verification_line(report) if report else "nothing was judged",
        left_to_torch=torch_operators_used(report) if best and report else (),
        own_share=report.own_work.share if best and report and report.own_work else None,
        output=str(output) if best else None,
        written_by=best.author if best else "",
        database=run.store.where,
        resumed=resumed,
        spent=run.spent,
        seconds=seconds,
        report=report,
        next_steps=next_steps(
            run.problem, run.settings, run.attempts, run.stop_reason, run.store, refused
        ),
        note=embedded_policy_note(run.settings.policy) if run.trajectory_id == 1 else "",
    )


def torch_operators_used(report: Report) -> tuple[str, ...]:
    """Returns the aten operators beside a candidate's kernels, short, the most frequent first."""
    counted = report.own_work.census.compute_ops if report.own_work else {}
    names = sorted(counted, key=lambda name: -counted[name])
    return tuple(dict.fromkeys(name.removeprefix("aten.").partition(".")[0] for name in names))


def embedded_policy_note(policy: str) -> str:
    """Returns the embedded policy's description of its weights; empty for other policies."""
    if policy != "embedded":
        return ""
    from kernelwright.policies.policy_card import read_card
    from kernelwright.policies.small.embedded import EMBEDDED_WEIGHTS

    return read_card(EMBEDDED_WEIGHTS).note
