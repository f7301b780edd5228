"""A round: problems, trajectories of each by the agent's batch runner, verdicts, and the
resulting samples.

Everything is written to the store.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from kernelwright.agent.batch.runs import Batch, BatchStatus, list_jobs
from kernelwright.agent.judging.lanes import Lanes, PolicyLane
from kernelwright.agent.loop.run_verdicts import RunJudge
from kernelwright.agent.loop.settings import Settings
from kernelwright.agent.loop.stopping import Budgets
from kernelwright.agent.prompts import Prompts
from kernelwright.agent.rewards.formula import Formula
from kernelwright.policies.base import Policy
from kernelwright.rl.log.dataset import Log, Sample, SampleRequirements, load_log
from kernelwright.rl.training.online.options import OnlineOptions
from kernelwright.rl.training.online.pooled_judges import Judges
from kernelwright.store.database import Store
from kernelwright.store.records import CandidateFilter
from kernelwright.tools.problem import Problem
from kernelwright.tools.report import Cheat, Fault, InfrastructureError

if TYPE_CHECKING:
    from kernelwright.tools.evaluation.pipeline import Options

TARGET_WITHOUT_GPU = "sm_90"
ROUND_SEED_STEP = 7_368_787
"""Difference between the seeds of consecutive rounds."""


class Round(NamedTuple):
    """The result of a round."""

    step: int
    log: Log
    figures: dict[str, float]


class RoundContext(NamedTuple):
    """The parts of a training shared by all its rounds."""

    store: Store
    judges: Judges
    options: OnlineOptions
    formula: Formula
    """The reward of the samples."""


class Rounds:
    """Runs rounds in turn, from any thread."""

    def __init__(
        self,
        context: RoundContext,
        policy: Policy,
        name: str,
        *,
        rank: int = 0,
        world: int = 1,
        together: bool = False,
    ) -> None:
        """Takes `name`, the prefix of run names before the step's number.

        `together`: waiting requests are sent in one call. Of `world` processes this process
        samples every `world`-th problem.
        """
        self._store, self._judges, self._options, self._formula = context
        self._policy = policy
        self._name = name
        self._rank = rank
        self._world = world
        self._together = together
        self._lanes: Lanes | None = None
        self._stopped = False
        self._lock = threading.Lock()

    def run(
        self,
        step: int,
        problems: Sequence[Problem],
        *,
        group: int | None = None,
        label: str = "step",
        watch: Callable[[Batch], None] = lambda batch: None,
        give_up: Callable[[], None] = lambda: None,
    ) -> Round:
        """Runs a round, or continues an interrupted run of the same round.

        watch: called with the round's batch ten times a second. give_up: abandons answers
        computed here; called after Ctrl-C. Raises InfrastructureError, PolicyError, StoreError.
        """
        started, name = time.monotonic(), self.run_name(step, label)
        group = group or self._options.group
        # Each process samples every `world`-th problem.
        share = list(problems)[self._rank :: self._world]
        batch = self._open_batch(name, share, group, step, give_up)
        status = batch.run(max(1, len(share) * group), watch)
        _refuse_stopped_runs(status, name)
        log = load_log(self._store, self._requirements(), CandidateFilter(run=name))
        figures = figures_of(log.all_scored) | {
            "zero_variance": log.zero_variance / max(log.groups, 1),
            "seconds/round": time.monotonic() - started,
        }
        return Round(step, log, figures)

    def run_name(self, step: int, label: str) -> str:
        """Returns the name of a round's run in the store; each training process has its own run."""
        rank = f"/{self._rank}" if self._world > 1 else ""
        return f"{self._name}/{label}-{step:05d}{rank}"

    def progress_in_words(self) -> str:
        """Describes the progress of the round under way."""
        with self._lock:
            lanes = self._lanes
        gates = [] if lanes is None else lanes.gates
        counts = []
        for gate in gates:
            traffic = gate.traffic
            counts.append(f"{traffic.name}: {traffic.inside} inside, {traffic.waiting} waiting")
        return "; ".join(counts) or "no run has begun"

    def stop(self) -> None:
        """Ends the runs waiting at a lane; finished turns are in the store."""
        with self._lock:
            self._stopped = True
            if self._lanes is not None:
                self._lanes.close(KeyboardInterrupt())

    def _requirements(self) -> SampleRequirements:
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
        verdict_options = judge_options(
            options.judge, options.own_work, contiguous_inputs=options.contiguous_inputs
        )
        judging = RunJudge(self._judges, verdict_options)
        return Batch(self._store, run, jobs, lane, judging, settings, lanes, give_up=give_up)


def _refuse_stopped_runs(counts: BatchStatus, name: str) -> None:
    if counts.jobs and counts.paused > counts.jobs // 2:
        raise InfrastructureError(
            f"{counts.paused} of {counts.jobs} trajectories of {name} were stopped by this "
            "machine's trouble: see agent db"
        )


def settings_of(options: OnlineOptions, policy: Policy, step: int) -> Settings:
    """Returns the agent's settings for a round: sampled from the policy's own distribution,
    repaired up to the number of turns.
    """
    return Settings(
        policy=policy.name,
        targets=(TARGET_WITHOUT_GPU,),
        device="cpu",
        budgets=Budgets(turns=options.turns),
        temperature=options.temperature,
        reply_tokens=options.reply_tokens,
        thinking=options.thinking,
        thinking_tokens=options.thinking_tokens,
        seed=(options.seed * 1_000_003 + step * ROUND_SEED_STEP) % 2**31,
        prompt_version=Prompts(policy.prompt_form).version,
        own_work=options.own_work,
    )


def judge_options(
    judge: str, own_work: str = "strict", *, contiguous_inputs: bool = True
) -> Options:
    """Returns the options of a judge by name.

    interpreted: reduced shapes under the interpreter. compiled: every launch compiled for the
    target first. cuda:N: on this GPU, timed.
    """
    from kernelwright.tools.evaluation.pipeline import Options

    on_cpu = judge in ("interpreted", "compiled")
    targets = () if judge == "interpreted" else (TARGET_WITHOUT_GPU,)
    return Options(
        targets=targets,
        profile=not on_cpu,
        torch_compile=on_cpu,
        own_work=own_work,
        contiguous_inputs=contiguous_inputs,
    )


def judge_device(judge: str, elsewhere: bool = False) -> str:
    """Returns the device of a judge. Raises InputError for an unknown judge, or an absent GPU.

    elsewhere: on other machines, whose GPUs are not checked here.
    """
    from kernelwright.agent.runtime.arguments import choose_device
    from kernelwright.errors import InputError

    if judge in ("interpreted", "compiled"):
        return "cpu"
    if not judge.startswith("cuda"):
        raise InputError(f"--judge {judge!r}: choose interpreted, compiled or cuda:N")
    return "cuda:0" if elsewhere else choose_device(judge)


def figures_of(samples: Sequence[Sample]) -> dict[str, float]:
    """Returns means over every sample of a round, including samples without a gradient."""
    drafts = [sample for sample in samples if sample.depth == 0]
    repairs = [sample for sample in samples if sample.depth > 0]
    if not drafts:
        return {}
    programs = {(sample.problem_hash, sample.source_hash) for sample in samples}
    figures = {
        "reward": _mean([sample.reward for sample in samples]),
        "return": _mean([sample.value for sample in drafts]),
        "pass_at_1": _mean([sample.correct for sample in drafts]),
        "compile_rate": _mean([sample.compiled for sample in drafts]),
        "completion_length": _mean([len(sample.completion_ids) for sample in samples]),
        "cut_off": _mean([sample.finish == "length" for sample in samples]),
        "solved": solved(samples),
        "distinct_programs": len(programs) / len(samples),
        "samples": float(len(samples)),
    }
    if repairs:
        figures["repair_rate"] = _mean([sample.correct for sample in repairs])
    for part in samples[0].parts:
        figures[f"reward/{part}"] = _mean([sample.parts[part] for sample in samples])
    return figures


def solved(samples: Sequence[Sample]) -> float:
    """Returns the share of trajectories with a correct turn, the last repair included."""
    # A trajectory is named by the id of its draft; a parent has a smaller id than its repairs.
    trajectory_of: dict[int, int] = {}
    has_correct: dict[int, bool] = {}
    for sample in sorted(samples, key=lambda sample: sample.candidate_id):
        trajectory = sample.candidate_id
        if sample.parent_id is not None:
            trajectory = trajectory_of.get(sample.parent_id, sample.candidate_id)
        trajectory_of[sample.candidate_id] = trajectory
        has_correct[trajectory] = has_correct.get(trajectory, False) or sample.correct
    return sum(has_correct.values()) / len(has_correct) if has_correct else 0.0


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


class RoundFaults(NamedTuple):
    """Facts of a round's runs checked by alarms, in addition to the samples."""

    cheats: frozenset[int]
    """Ids of the cheating candidates."""
    light: dict[int, float]
    """Share of the speed of light by candidate id."""


def faults_of(store: Store, run: str) -> RoundFaults:
    """Returns the cheating candidates of a run, and the candidates' shares of the speed of light."""
    cheats: set[int] = set()
    light: dict[int, float] = {}
    for entry in store.candidates(CandidateFilter(run=run), limit=None):
        verdict, candidate_id = entry.verdict, entry.candidate.id
        if verdict is None:
            continue
        if verdict.fault is Fault.CHEAT or isinstance(verdict.cheat, Cheat):
            cheats.add(candidate_id)
        if verdict.speed_of_light is not None:
            light[candidate_id] = verdict.speed_of_light
    return RoundFaults(frozenset(cheats), light)
