"""`agent batch` without its options: opens the tools of a batch, runs it, and writes its report
to a folder.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from kernelwright.agent.batch.runs import Batch, BatchStatus, list_jobs
from kernelwright.agent.batch.tuning_lane import TuningLane
from kernelwright.agent.export.kernelbench import write_layout
from kernelwright.agent.export.kernels import kernel_files
from kernelwright.agent.judging.lanes import JudgingLane, Lanes, PolicyLane, RemoteLane
from kernelwright.agent.loop.gpu_turns import share_gpu
from kernelwright.agent.loop.run_verdicts import Evaluates, RunJudge, Tunes
from kernelwright.agent.loop.settings import Settings
from kernelwright.agent.prompts import Prompts
from kernelwright.agent.reporting.files import write_report, write_text
from kernelwright.agent.reporting.run_report import RunReport, report_run
from kernelwright.agent.reporting.samples import ReportedSample, read_samples
from kernelwright.agent.reporting.selecting import candidate_filter
from kernelwright.agent.runtime.databases import open_store, verdict_cache_folder
from kernelwright.agent.runtime.errors import Exit
from kernelwright.agent.runtime.interrupts import defer_interrupts
from kernelwright.agent.solve.drafting import Drafter
from kernelwright.agent.solve.solving import embedded_policy_note
from kernelwright.agent.tuning.turn import TuneTurn
from kernelwright.policies.base import Policy, Value
from kernelwright.policies.inductor.draft import SUITE_DRAFT_SECONDS
from kernelwright.store.database import Store
from kernelwright.store.records import TrajectoryFilter
from kernelwright.tools.hardware.machine_info import version
from kernelwright.tools.problem import Problem

if TYPE_CHECKING:
    from kernelwright.tools.evaluation.pipeline import Evaluator, Options

MAX_RUNS_AT_ONCE = 32
"""Largest number of parallel runs: enough to keep the tools busy while most runs wait for text."""


class BatchResult(Value):
    """The result of a batch, with its report and the written files."""

    run: str
    standing: BatchStatus
    report: RunReport
    folder: str
    files: tuple[str, ...]
    interrupted: bool = False
    seconds: float = 0.0
    """Seconds since the start of the command; `standing` has the seconds of the runs."""
    taken_for: dict[str, str] = {}
    """Names that the user typed, by the names of the problems that only resemble them."""
    note: str = ""

    @property
    def nothing_judged(self) -> bool:
        """Whether no problem could be judged: every reference fails, or is random."""
        return all(group.figures.nothing_judged for group in self.report.groups)

    @property
    def exit(self) -> Exit:
        """The exit status of the command `agent batch`."""
        if self.interrupted:
            return Exit.INTERRUPTED
        if self.standing.done < self.standing.jobs:
            return Exit.INFRASTRUCTURE
        return Exit.BAD_INPUT if self.nothing_judged else Exit.DONE


def run_batch(
    problems: Sequence[Problem], policy: Policy, settings: Settings, *, name: str, samples: int, folder: Path,
    db: str | None = None, at_once: int = MAX_RUNS_AT_ONCE, workers: int = 2, against: str | None = None,
    judges: Evaluates | None = None,
    watch: Callable[[Batch], None] = lambda batch: None, say: Callable[[str], None] = lambda step: None,
    tell: Callable[[str], None] = lambda line: None,
) -> BatchResult:  # fmt: skip
    """Starts or continues a batch until all runs are done or Ctrl-C; the report is written in
    both cases.

    judges: remote judges, with at most `workers` verdicts at a time. None: this process judges.
    say: shows the current step. tell: prints a line for each written kernel. Raises errors that
    concern every run.
    """
    settings = settings.with_(prompt_version=Prompts(policy.prompt_form, settings.prompts).version)
    interrupted = False
    with open_store(db) as store:
        if against is not None:
            candidate_filter(store, None, against)  # raises before hours of work, not after
        run = store.open_run(
            name, {"problems": [problem.name for problem in problems], "samples": samples}
        )
        lanes = _lanes(policy, settings, at_once, workers, judges_locally=judges is None)
        with (
            Drafter(say, SUITE_DRAFT_SECONDS) as drafter,
            _open_judging(judges, policy, settings, lanes, db, say) as (
                evaluates,
                shared_policy,
                evaluator,
            ),
        ):
            judging = RunJudge(evaluates, _options(settings))
            lane = PolicyLane(
                shared_policy, lanes.policy, lanes.close, computes_locally(settings.policy)
            )
            jobs = list_jobs(problems, samples)
            batch = Batch(
                store, run, jobs, lane, judging, settings, lanes, version("kernelwright") or "", drafter.policy_for,
                _tuner(evaluator, settings, store, lanes, db), lambda: _give_up(drafter, lane),
            )  # fmt: skip
            try:
                batch.run(at_once, watch)
            except KeyboardInterrupt:
                interrupted = True
            standing = batch.standing
        say("writing the report")
        report, files = write_everything(
            store, name, folder, against, {p.name: p.title for p in problems if p.title}, tell
        )
    return BatchResult(
        run=name, standing=standing, report=report, folder=str(folder), files=tuple(map(str, files)),
        interrupted=interrupted, taken_for={p.name: p.taken_for for p in problems if p.taken_for},
        note=embedded_policy_note(settings.policy) if run.id == 1 else "",
    )  # fmt: skip


def _give_up(drafter: Drafter, policy: PolicyLane) -> None:
    policy.stop_answering()
    drafter.stop_drafting()


def computes_locally(policy: str) -> bool:
    """Returns whether a policy computes in this process, by its name. Such a policy receives many
    requests in one call; a server or a script is called by each run itself.
    """
    return policy.partition(":")[0].partition(" ")[0] in ("embedded", "transformers", "vllm")


def _lanes(
    policy: Policy, settings: Settings, at_once: int, workers: int, judges_locally: bool
) -> Lanes:
    # A policy in this process takes all waiting requests in one call, so one call at a time.
    capacity = 1
    if not computes_locally(settings.policy):
        # A server or script is called by each run, up to its own limit.
        capacity = max(1, min(at_once, policy.capabilities.at_once))
    return Lanes(
        capacity,
        workers,
        gpu=judges_locally and settings.device != "cpu",
        tunes=judges_locally and settings.tune,
    )


@contextmanager
def _open_judging(
    judges: Evaluates | None, policy: Policy, settings: Settings, lanes: Lanes, db: str | None,
    say: Callable[[str], None],
) -> Iterator[tuple[Evaluates, Policy, Evaluator | None]]:  # fmt: skip
    """Opens the judge. Yields the source of verdicts, the policy (which shares the GPU with the
    judge), and this process's evaluator.
    """
    if judges is not None:
        yield RemoteLane(judges, lanes), policy, None
        return
    with _evaluator(settings, lanes, db, say) as evaluator:
        yield JudgingLane(evaluator, lanes), share_gpu(policy, evaluator), evaluator


def _tuner(
    evaluator: Evaluator | None, settings: Settings, store: Store, lanes: Lanes, db: str | None
) -> Tunes | None:
    """Returns the tuner for the turns of TUNE; None if the settings do not tune."""
    if evaluator is None or lanes.tuning is None:
        return None
    return TuningLane(TuneTurn(evaluator, settings, store, verdict_cache_folder(db)), lanes.tuning)


def _options(settings: Settings) -> Options:
    from kernelwright.tools.evaluation.pipeline import Options

    return Options(
        targets=settings.targets, own_work=settings.own_work, train_mode=settings.train_mode
    )


def _evaluator(
    settings: Settings, lanes: Lanes, db: str | None, say: Callable[[str], None]
) -> Evaluator:
    from kernelwright.tools.evaluation.pipeline import Evaluator

    say("starting the tools")
    threads = JudgingLane.threads(lanes.workers, gpu=settings.device != "cpu")
    with defer_interrupts():
        import torch  # noqa: F401 (in the main thread, before others need it)

        return Evaluator(
            device=settings.device, workers=threads, cache_dir=verdict_cache_folder(db), lane=lanes
        )


def write_everything(
    store: Store, name: str, folder: Path, against: str | None, titles: Mapping[str, str],
    tell: Callable[[str], None] = lambda line: None,
) -> tuple[RunReport, list[Path]]:  # fmt: skip
    """Writes report.md, .csv, .json and .html, the best kernel of each sample under kernels/, and
    KernelBench's layout for problems of KernelBench (a folder for each policy if there are
    several).

    The returned files name no kernel, only the folder of the kernels.
    """
    report = report_run(store, name, against)
    files = write_report(report, folder)
    all_samples = read_samples(store, TrajectoryFilter(run=name))
    kernels = folder / "kernels"
    for file_name, text in kernel_files(store, all_samples, tell):
        kernels.mkdir(exist_ok=True)
        write_text(kernels / file_name, text)
    if kernels.is_dir():
        # The folder exists only if a kernel was written.
        files.append(kernels)
    groups: dict[tuple[str, str], list[ReportedSample]] = {}
    for sample in all_samples:
        groups.setdefault((sample.policy, sample.options), []).append(sample)
    for index, samples in enumerate(groups.values()):
        slug = re.sub(r"\W+", "_", samples[0].policy).strip("_")[:60]
        policy_folder = folder if len(groups) == 1 else folder / f"{index + 1}_{slug}"
        layouts = write_layout(store, samples, policy_folder, titles)
        files += [layout / "eval_results.json" for layout in layouts]
    return report, files
