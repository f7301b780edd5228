"""One round: problems, some trajectories of each by the agent's own machine, verdicts, and the samples they make.

All of it is in the store.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from kernelwright.agent.batch.runs import Batch, BatchStatus, list_jobs
from kernelwright.agent.judging.lanes import Lanes, PolicyLane
from kernelwright.agent.loop.run_verdicts import Evaluates, RunJudge
from kernelwright.agent.loop.settings import Settings
from kernelwright.agent.loop.stopping import Budgets
from kernelwright.agent.prompts import Prompts
from kernelwright.policies.base import Policy
from kernelwright.rl.credit.formula import Formula
from kernelwright.rl.log.dataset import Log, Sample, SampleRequirements, load_log
from kernelwright.rl.training.online.options import OnlineOptions
from kernelwright.store.database import Store
from kernelwright.store.records import CandidateFilter
from kernelwright.tools.problem import Problem
from kernelwright.tools.report import Cheat, Fault, InfrastructureError

if TYPE_CHECKING:
    from kernelwright.tools.evaluation.pipeline import Options

TARGET_WITHOUT_GPU = "sm_90"
ROUND_SEED_STEP = 7_368_787


class Round(NamedTuple):
    """The result of one round."""

    step: int
    log: Log
    figures: dict[str, float]


class Rounds:
    """Runs rounds one after the other, from any thread."""

    def __init__(
        self, store: Store, policy: Policy, judges: Evaluates, options: OnlineOptions, formula: Formula, name: str,
        rank: int = 0, world: int = 1,
        together: bool = False,
    ) -> None:  # fmt: skip
        """`name`: before the step's number in the names of runs.

        `together`: questions that wait are put in one call. Of `world` processes this one samples for every `world`-th
        problem.
        """
        self._store, self._policy, self._judges = store, policy, judges
        self._options, self._formula, self._name = options, formula, name
        self._rank, self._world, self._together = rank, world, together
        self._lanes: Lanes | None = None
        self._stopped = False
        self._lock = threading.Lock()

    def run(
        self, step: int, problems: Sequence[Problem], *, group: int | None = None, label: str = "step",
        watch: Callable[[Batch], None] = lambda batch: None, give_up: Callable[[], None] = lambda: None,
    ) -> Round:  # fmt: skip
        """Goes on where an earlier process stopped in this very round.

        watch: called with the round's batch ten times a second. give_up: ends the answers that are made here; called
        after Ctrl-C. Raises InfrastructureError, PolicyError, StoreError.
        """
        started, name = time.monotonic(), self.run_name(step, label)
        own = list(problems)[self._rank :: self._world]
        batch = self._open_batch(name, own, group or self._options.group, step, give_up)
        _refuse_stopped_runs(
            batch.run(max(1, len(own) * (group or self._options.group)), watch), name
        )
        log = load_log(self._store, self._wanted(), CandidateFilter(run=name))
        figures = figures_of(log.all_scored) | {
            "zero_variance": log.zero_variance / max(log.groups, 1),
            "seconds/round": time.monotonic() - started,
        }
        return Round(step, log, figures)

    def run_name(self, step: int, label: str) -> str:
        """Returns the name of a round's run in the store; each of several training processes has a run of its own."""
        rank = f"/{self._rank}" if self._world > 1 else ""
        return f"{self._name}/{label}-{step:05d}{rank}"

    def progress_in_words(self) -> str:
        """Returns in words where the runs of the round under way are."""
        with self._lock:
            lanes = self._lanes
        traffic = [] if lanes is None else [gate.traffic for gate in lanes.gates]
        return (
            "; ".join(f"{t.name}: {t.inside} inside, {t.waiting} waiting" for t in traffic)
            or "no run has begun"
        )

    def stop(self) -> None:
        """Ends the runs that wait at a lane; finished turns are in the store."""
        with self._lock:
            self._stopped = True
            if self._lanes is not None:
                self._lanes.close(KeyboardInterrupt())

    def _wanted(self) -> SampleRequirements:
        return SampleRequirements(
            formula=self._formula,
            gamma=self._options.gamma,
            baseline=self._options.baseline,
            temperature=self._options.temperature,
        )

    def _open_batch(
        self,
        name: str,
        problems: Sequence[Problem],
        group: int,
        step: int,
        give_up: Callable[[], None],
    ) -> Batch:
        options, jobs = self._options, list_jobs(problems, group)
        settings = settings_of(options, self._policy, step)
        lanes = Lanes(max(1, len(jobs)), options.judges, gpu=False)
        with self._lock:
            self._lanes = lanes
            if self._stopped:
                raise KeyboardInterrupt
        run = self._store.open_run(name, {"step": step, "group": group, "policy": options.policy})
        lane = PolicyLane(self._policy, lanes.policy, lanes.close, self._together)
        judging = RunJudge(
            self._judges,
            judge_options(
                options.judge, options.own_work, contiguous_inputs=options.contiguous_inputs
            ),
        )
        return Batch(self._store, run, jobs, lane, judging, settings, lanes, give_up=give_up)


def _refuse_stopped_runs(counts: BatchStatus, name: str) -> None:
    if counts.jobs and counts.paused > counts.jobs // 2:
        raise InfrastructureError(
            f"{counts.paused} of {counts.jobs} trajectories of {name} were stopped by this "
            "machine's trouble: see agent db"
        )


def settings_of(options: OnlineOptions, policy: Policy, step: int) -> Settings:
    """Returns the settings as the agent would be told on the command line: sampled from the policy's own distribution,
    repaired up to the number of turns.
    """
    return Settings(
        policy=policy.name, targets=(TARGET_WITHOUT_GPU,), device="cpu", budgets=Budgets(turns=options.turns),
        temperature=options.temperature,
        reply_tokens=options.reply_tokens, seed=(options.seed * 1_000_003 + step * ROUND_SEED_STEP) % 2**31,
        prompt_version=Prompts(policy.prompt_form).version, own_work=options.own_work,
    )  # fmt: skip


def judge_options(
    judge: str, own_work: str = "strict", *, contiguous_inputs: bool = True
) -> Options:
    """interpreted: shrunk shapes under the interpreter; compiled: every launch compiled for the target first;
    cuda:N: on that GPU, timed.
    """
    from kernelwright.tools.evaluation.pipeline import Options

    on_cpu = judge in ("interpreted", "compiled")
    targets = () if judge == "interpreted" else (TARGET_WITHOUT_GPU,)
    return Options(
        targets=targets, profile=not on_cpu, torch_compile=on_cpu, own_work=own_work,
        contiguous_inputs=contiguous_inputs,
    )  # fmt: skip


def judge_device(judge: str, elsewhere: bool = False) -> str:
    """Raises InputError for a judge that is not known, or a GPU that is not there.

    elsewhere: on other machines, whose GPUs are not looked for here.
    """
    from kernelwright.agent.runtime.arguments import choose_device
    from kernelwright.errors import InputError

    if judge in ("interpreted", "compiled"):
        return "cpu"
    if not judge.startswith("cuda"):
        raise InputError(f"--judge {judge!r}: choose interpreted, compiled or cuda:N")
    return "cuda:0" if elsewhere else choose_device(judge)


def figures_of(samples: Sequence[Sample]) -> dict[str, float]:
    """Means over every sample of a round, those without a gradient among them."""
    drafts, repairs = [s for s in samples if s.depth == 0], [s for s in samples if s.depth > 0]
    if not drafts:
        return {}
    programs = {(s.problem_hash, s.source_hash) for s in samples}
    figures = {
        "reward": _mean([s.reward for s in samples]), "return": _mean([s.value for s in drafts]),
        "pass_at_1": _mean([s.correct for s in drafts]),
        "compile_rate": _mean([s.compiled for s in drafts]),
        "completion_length": _mean([len(s.completion_ids) for s in samples]),
        "cut_off": _mean([s.finish == "length" for s in samples]), "solved": solved(samples),
        "distinct_programs": len(programs) / len(samples), "samples": float(len(samples)),
    }  # fmt: skip
    if repairs:
        figures["repair_rate"] = _mean([s.correct for s in repairs])
    figures |= {
        f"reward/{part}": _mean([s.parts[part] for s in samples]) for part in samples[0].parts
    }
    return figures


def solved(samples: Sequence[Sample]) -> float:
    """Share of trajectories with a correct turn, the last repair among them."""
    root: dict[int, int] = {}
    found: dict[int, bool] = {}
    for sample in sorted(samples, key=lambda s: s.candidate_id):
        own = (
            sample.candidate_id
            if sample.parent_id is None
            else root.get(sample.parent_id, sample.candidate_id)
        )
        root[sample.candidate_id] = own
        found[own] = found.get(own, False) or sample.correct
    return sum(found.values()) / len(found) if found else 0.0


def _mean(values: Sequence[Any]) -> float:
    return sum(values) / len(values) if values else 0.0


class RoundFaults(NamedTuple):
    """Facts of a round's runs that alarms check besides the samples."""

    cheats: frozenset[int]
    """Number of candidates that cheated."""
    light: dict[int, float]
    """Speed of light by candidate."""


def faults_of(store: Store, run: str) -> RoundFaults:
    """Returns which candidates of a run are cheats, and their shares of the speed of light."""
    entries = store.candidates(CandidateFilter(run=run), limit=None)
    judged = [(entry.candidate.id, entry.verdict) for entry in entries if entry.verdict is not None]
    return RoundFaults(
        cheats=frozenset(
            id
            for id, verdict in judged
            if verdict.fault is Fault.CHEAT or isinstance(verdict.cheat, Cheat)
        ),
        light={
            id: verdict.speed_of_light
            for id, verdict in judged
            if verdict.speed_of_light is not None
        },
    )
