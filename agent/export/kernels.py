"""The best kernels as Python files, each with its provenance in the header."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence

from agent.kernel_file import MARK, verified
from agent.samples import Sample
from store.database import Store
from tools.results import clean_text


def kernel_files(store: Store, samples: Sequence[Sample]) -> Iterator[tuple[str, str]]:
    """Name and text of each sample's best candidate; samples without a correct one have none."""
    for sample in samples:
        if sample.correct and sample.candidate_id is not None:
            stem = re.sub(r"\W+", "_", sample.problem.removesuffix(".py")).strip("_") or "kernel"
            name = f"{stem}_sample_{sample.number}_trajectory_{sample.trajectory_id}.py"
            yield name, kernel_text(store, sample.candidate_id)


def kernel_text(store: Store, candidate_id: int) -> str:
    turn = store.turn(candidate_id)
    assert turn.source is not None
    assert turn.report is not None
    environment = turn.report.environment
    header = [
        f"{MARK}, {time.strftime('%Y-%m-%d %H:%M:%S', time.gmtime(turn.created))} UTC.",
        f"# problem    {turn.problem} ({turn.problem_hash[:16]})",
        f"# policy     {turn.completion.policy if turn.completion else ''}",
        f"# candidate  {candidate_id}, turn {turn.turn + 1}, {turn.action}, of trajectory {turn.trajectory_id} in {store.where}",
        f"# verified   {verified(turn.report)}",
        f"# judged by  evaluator {environment.evaluator}, torch {environment.torch}, triton {environment.triton}",
        "",
    ]
    lines = [" ".join(clean_text(line, 300).split()) for line in header]
    return "\n".join(lines) + "\n" + turn.source.strip() + "\n"
