"""`rl data mistakes`: a policy's own wrong drafts with what the tools said of them, each beside an answer that the
tools found right.

Mistakes that are planted in good kernels (mistakes.py) are not those that a policy makes. Learning from the states that
it brings itself into, with an expert's answer there, is DAgger's idea (Ross et al., arXiv:1011.0686).
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
    """The problems and the sampling settings of a collection of a policy's mistakes."""

    seed: int = 0
    split: Split = Split.TRAIN
    target: str = "sm_90"
    samples: int = 4
    temperature: float = 1.0
    reply_tokens: int = 768
    at_once: int = 16
    """Problems that the policy is asked about together, while the drafts of those before are judged."""


class MistakesProgress(Value):
    """The counts of such a collection so far."""

    problems: int = 0
    drafts: int = 0
    """Number of different drafts that were judged."""
    right: int = 0
    repairs: int = 0
    faults: dict[str, int] = {}
    seconds: float = 0.0


class JudgedDrafts(Value):
    """The drafts of one problem."""

    drafts: int = 0
    rows: tuple[Row, ...] = ()
    faults: tuple[str, ...] = ()


def collect_mistakes(
    policy: Policy, wanted: MistakesRequest, n: int, folder: Path, workers: int, say: Callable[[str], None],
    forbidden: frozenset[str] | None = None,
) -> MistakesProgress:  # fmt: skip
    """Collects mistakes until `n` repairs are written to `folder`, which has to be new.

    forbidden: dataflow graphs that are not asked about; None: every known benchmark's.
    """
    if folder.exists() and any(folder.iterdir()):
        raise InputError(f"{folder} is not empty: choose another --out")
    folder.mkdir(parents=True, exist_ok=True)
    start, found = time.monotonic(), MistakesProgress()
    with evaluating(workers) as pool:
        for judged in _judged(pool, policy, wanted, forbidden):
            rows = [row for one in judged for row in one.rows][: n - found.repairs]
            if rows:
                write_rows(folder, rows, len(rows))
            found = _counted(found, judged, len(rows)).with_(seconds=time.monotonic() - start)
            say(
                f"{found.repairs} of {n} repairs, {found.right} of {found.drafts} drafts right, "
                f"{found.problems} "
                "problems"
            )
            if found.repairs >= n:
                break
    return found


def _judged(
    pool: ProcessPoolExecutor,
    policy: Policy,
    wanted: MistakesRequest,
    forbidden: frozenset[str] | None,
) -> Iterator[list[JudgedDrafts]]:
    """A round of problems after another; the policy writes the next one's drafts while the tools judge."""
    source, waiting = (
        stream(wanted.split, wanted.seed, forbidden),
        deque[list[Future[JudgedDrafts]]](),
    )
    while True:
        tasks = list(islice(source, wanted.at_once))
        drafts = draft_tasks(policy, wanted, tasks)
        waiting.append(
            [
                pool.submit(judge_drafts, *pair, wanted.target)
                for pair in zip(tasks, drafts, strict=True)
            ]
        )
        if len(waiting) > 1:
            yield [future.result() for future in waiting.popleft()]


def draft_tasks(policy: Policy, wanted: MistakesRequest, tasks: list[Task]) -> list[list[str]]:
    """The different drafts of each problem; a reply without code is none."""
    from kernelwright.agent.prompts import PromptFields, Prompts
    from kernelwright.policies.base import Request, Sampling
    from kernelwright.store.models import Action
    from kernelwright.tools.markdown.fenced_code import extract_code

    prompts = Prompts(policy.prompt_form)
    sampling = Sampling(
        temperature=wanted.temperature, seed=wanted.seed, max_tokens=wanted.reply_tokens
    )
    requests = [
        request
        for task in tasks
        for request in Request(
            messages=prompts.messages(PromptFields(problem=task.problem, action=Action.DRAFT)),
            sampling=sampling,
        ).repeated(wanted.samples)
    ]
    codes = [extract_code(completion.text) for completion in policy.sample(requests)]
    grouped = [
        codes[place : place + wanted.samples] for place in range(0, len(codes), wanted.samples)
    ]
    return [list(dict.fromkeys(code for code in group if code)) for group in grouped]


def judge_drafts(task: Task, drafts: list[str], target: str) -> JudgedDrafts:
    """Judges drafts in a process of `rl.data.worker`. A problem whose own answer the tools refuse gives nothing."""
    asked, rows, faults = options(target), [], []
    # Our own generator wrote the reference: it needs no process of its own.
    reference_trials().remember(task.problem, TrialOutcome(), train_mode=False)
    for code in drafts:
        said = evaluator().evaluate(task.problem, code, asked)
        if said.failure is not None:
            faults.append(str(said.failure.fault))
            if said.failure.fault not in FAULTS_OF_THE_MACHINE:
                rows.append(row_for(task, asked, Kind.REPAIR, code, said, "a draft of its own"))
    if rows and not evaluator().evaluate(task.problem, task.solution, asked).correct:
        return JudgedDrafts()
    return JudgedDrafts(drafts=len(drafts), rows=tuple(rows), faults=tuple(faults))


def _counted(found: MistakesProgress, judged: list[JudgedDrafts], repairs: int) -> MistakesProgress:
    drafts, wrong = sum(one.drafts for one in judged), sum(len(one.faults) for one in judged)
    faults = Counter(found.faults) + Counter(fault for one in judged for fault in one.faults)
    return found.with_(
        problems=found.problems + len(judged), drafts=found.drafts + drafts, right=found.right + drafts - wrong,
        repairs=found.repairs + repairs, faults=dict(faults.most_common()),
    )  # fmt: skip
