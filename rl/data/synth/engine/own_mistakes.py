"""`rl data mistakes`: a policy's own wrong drafts with the tools' messages, each beside an answer
the tools accepted.

Mistakes planted in good kernels (mistakes.py) differ from a policy's mistakes. Learning in the
policy's own states from an expert's answer is DAgger's idea (Ross et al., arXiv:1011.0686).
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from kernelwright.errors import InputError
from kernelwright.rl.data.cleaning.suites import graphs_of
from kernelwright.rl.data.rows import Kind, Row, Split, write_rows
from kernelwright.rl.data.synth.engine.tasks import Task, stream
from kernelwright.rl.data.synth.engine.verifying import FAULTS_OF_THE_MACHINE, options, row_for
from kernelwright.rl.data.worker import evaluating, evaluator
from kernelwright.tools.reference_trials.trials import reference_trials
from kernelwright.tools.reference_trials.worker import TrialOutcome
from kernelwright.tools.report import Value

if TYPE_CHECKING:
    from kernelwright.policies.base import Policy


class MistakesRequest(Value):
    """Problems and sampling settings for collecting a policy's mistakes."""

    seed: int = 0
    split: Split = Split.TRAIN
    target: str = "sm_90"
    samples: int = 4
    temperature: float = 1.0
    reply_tokens: int = 768
    against: tuple[str, ...] = ()
    """Suites whose problems are not drafted, in addition to the known benchmarks."""
    at_once: int = 16
    """Number of problems drafted together, while earlier drafts are judged."""


class MistakesProgress(Value):
    """Counts of a collection so far."""

    problems: int = 0
    drafts: int = 0
    """Number of different judged drafts."""
    right: int = 0
    repairs: int = 0
    faults: dict[str, int] = {}
    seconds: float = 0.0


class JudgedDrafts(Value):
    """The judged drafts of a problem."""

    drafts: int = 0
    rows: tuple[Row, ...] = ()
    faults: tuple[str, ...] = ()


def collect_mistakes(
    policy: Policy,
    request: MistakesRequest,
    n: int,
    folder: Path,
    workers: int,
    say: Callable[[str], None],
) -> MistakesProgress:
    """Collects mistakes until `n` repairs are written to `folder`, which must be new or empty."""
    forbidden = graphs_of(*request.against)
    if folder.exists() and any(folder.iterdir()):
        raise InputError(f"{folder} is not empty: choose another --out")
    folder.mkdir(parents=True, exist_ok=True)
    start, progress = time.monotonic(), MistakesProgress()
    with evaluating(workers) as pool:
        for judged in _judged(pool, policy, request, forbidden):
            all_rows = [row for problem in judged for row in problem.rows]
            rows = all_rows[: n - progress.repairs]
            if rows:
                write_rows(folder, rows, len(rows))
            progress = _counted(progress, judged, len(rows))
            progress = progress.with_(seconds=time.monotonic() - start)
            say(
                f"{progress.repairs} of {n} repairs, {progress.right} of {progress.drafts} drafts right, "
                f"{progress.problems} problems"
            )
            if progress.repairs >= n:
                break
    return progress


def _judged(
    pool: ProcessPoolExecutor,
    policy: Policy,
    request: MistakesRequest,
    forbidden: frozenset[str],
) -> Iterator[list[JudgedDrafts]]:
    """Yields judged rounds of problems; the policy writes the next round's drafts while the tools
    judge.
    """
    source = stream(request.split, request.seed, forbidden)
    waiting = deque[list[Future[JudgedDrafts]]]()
    while True:
        tasks = list(islice(source, request.at_once))
        futures = []
        for task, drafts in zip(tasks, draft_tasks(policy, request, tasks), strict=True):
            futures.append(pool.submit(judge_drafts, task, drafts, request.target))
        waiting.append(futures)
        if len(waiting) > 1:
            yield [future.result() for future in waiting.popleft()]


def draft_tasks(policy: Policy, request: MistakesRequest, tasks: list[Task]) -> list[list[str]]:
    """Returns the different drafts of each problem; a reply without code gives no draft."""
    from kernelwright.agent.prompts import PromptFields, Prompts
    from kernelwright.policies.base import Request, Sampling
    from kernelwright.store.models import Action
    from kernelwright.tools.markdown.fenced_code import extract_code

    prompts = Prompts(policy.prompt_form)
    sampling = Sampling(
        temperature=request.temperature, seed=request.seed, max_tokens=request.reply_tokens
    )
    policy_requests: list[Request] = []
    for task in tasks:
        messages = prompts.messages(PromptFields(problem=task.problem, action=Action.DRAFT))
        draft = Request(messages=messages, sampling=sampling)
        policy_requests += draft.repeated(request.samples)
    codes = [extract_code(completion.text) for completion in policy.sample(policy_requests)]
    drafts = []
    for start in range(0, len(codes), request.samples):
        group = codes[start : start + request.samples]
        drafts.append(list(dict.fromkeys(code for code in group if code)))
    return drafts


def judge_drafts(task: Task, drafts: list[str], target: str) -> JudgedDrafts:
    """Judges drafts in a process of `rl.data.worker`. A problem whose own answer is refused gives
    nothing.
    """
    verdict_options = options(target)
    rows: list[Row] = []
    faults: list[str] = []
    # The project's own generator wrote the reference: no separate process needs to try it.
    reference_trials().remember(task.problem, TrialOutcome(), train_mode=False)
    for code in drafts:
        report = evaluator().evaluate(task.problem, code, verdict_options)
        if report.failure is None:
            continue
        faults.append(str(report.failure.fault))
        if report.failure.fault not in FAULTS_OF_THE_MACHINE:
            provenance = "a draft of its own"
            rows.append(row_for(task, verdict_options, Kind.REPAIR, code, report, provenance))
    if rows and not evaluator().evaluate(task.problem, task.solution, verdict_options).correct:
        return JudgedDrafts()
    return JudgedDrafts(drafts=len(drafts), rows=tuple(rows), faults=tuple(faults))


def _counted(
    progress: MistakesProgress, judged: list[JudgedDrafts], repairs: int
) -> MistakesProgress:
    drafts = sum(problem.drafts for problem in judged)
    faults = Counter(progress.faults)
    wrong = 0
    for problem in judged:
        faults.update(problem.faults)
        wrong += len(problem.faults)
    return progress.with_(
        problems=progress.problems + len(judged),
        drafts=progress.drafts + drafts,
        right=progress.right + drafts - wrong,
        repairs=progress.repairs + repairs,
        faults=dict(faults.most_common()),
    )
