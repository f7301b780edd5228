"""Analyses each row of a corpus independently, shard by shard, in any number of processes; a
finished shard is not analysed twice.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kernelwright.rl.data.cleaning.near_duplicates import minhash_signature
from kernelwright.rl.data.cleaning.suites import Benchmarks
from kernelwright.rl.data.dataflow import graph_hash
from kernelwright.rl.data.rows import Kind, Row, normalise_text, read_rows, row_of
from kernelwright.tools.problem import Problem

ANALYSIS_FORM = 2
"""Version of the files written by `analyse_shard`; an interrupted run's files of another version
are not used.
"""
_worker_state: dict[str, Any] = {}
"""The benchmarks of a worker process."""


def open_worker(problems: Sequence[dict[str, Any]]) -> None:
    """Prepares a worker; called once in each process."""
    _worker_state["benchmarks"] = Benchmarks(Problem(**p) for p in problems)


def analyse_shard(shard: Path, target: Path) -> Path:
    """Writes a signature (128 uint32), a group and a comparison for each row of the shard into
    `target`, atomically.
    """
    import numpy as np

    benchmarks: Benchmarks = _worker_state["benchmarks"]
    signatures, facts = [], []
    for row in map(normalise_row, read_rows(shard)):
        comparison = benchmarks.compare(row)
        graph = graph_hash(row.reference) if row.reference else ""
        signatures.append(minhash_signature(f"{row.prompt}\n{row.completion}"))
        facts.append(
            [
                row.prompt_hash + row.completion_hash,
                group_of(row, graph),
                graph,
                comparison.model_dump(),
            ]
        )
    partial = target.with_name(f".{target.name}")
    with partial.open("wb") as file:
        stacked = np.stack(signatures) if signatures else np.zeros((0, 128), np.uint32)
        np.savez_compressed(
            file, signatures=stacked, facts=np.frombuffer(json.dumps(facts).encode(), np.uint8)
        )
    partial.replace(target)
    return target


def read_analysis(path: Path) -> tuple[Any, list[list[Any]]]:
    """Returns signatures of shape (rows, 128), and for each row the hash of its texts, its group,
    its graph, its comparison.
    """
    import numpy as np

    with np.load(path) as held:
        return held["signatures"], json.loads(held["facts"].tobytes().decode())


def normalise_row(row: Row) -> Row:
    """Returns the row with normalised texts, and hashes and id to match."""
    facts = row.model_dump(
        exclude={"id", "kind", "prompt", "completion", "prompt_hash", "completion_hash"}
    )
    reference = normalise_text(row.reference) if row.reference else ""
    return row_of(
        row.kind,
        normalise_text(row.prompt).rstrip("\n"),
        normalise_text(row.completion),
        **facts | {"reference": reference},
    )


def group_of(row: Row, graph: str) -> str:
    """Returns the key of a row: only rows with equal keys can be near duplicates."""
    feedback = row.prompt.rsplit("\n# ", 2)[-2:] if row.kind is Kind.REPAIR else ()
    return "\0".join([row.kind, graph, *(text[:120] for text in feedback)])
