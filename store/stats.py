"""How much there is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sqlalchemy import func, select
from sqlmodel import Session, col

from store.engine import Engines
from store.migrations import CURRENT
from store.models import BatchRun, Blob, Candidate, Reward, State, Trajectory, Verdict
from store.records import Stats


def count_everything(session: Session, engines: Engines) -> Stats:
    unfinished = session.execute(select(func.count()).select_from(Trajectory).where(col(Trajectory.finished).is_(None)))
    states = select(col(Candidate.state), func.count()).group_by(col(Candidate.state))
    correct = select(func.count()).select_from(Candidate).join(Verdict, col(Candidate.verdict_id) == col(Verdict.id))
    sizes = select(func.sum(col(Blob.size)), func.sum(func.length(col(Blob.body))))
    blob_bytes, stored_bytes = session.execute(sizes).one()
    return Stats(
        version=CURRENT,
        where=engines.where,
        bytes=None if engines.path is None else _file_size(engines.path),
        runs=_count(session, BatchRun),
        trajectories=_count(session, Trajectory),
        unfinished=unfinished.scalar_one(),
        candidates={State(state): number for state, number in session.execute(states)},
        verdicts=_count(session, Verdict),
        correct=session.execute(correct.where(col(Verdict.correct))).scalar_one(),
        rewards=_count(session, Reward),
        blobs=_count(session, Blob),
        blob_bytes=int(blob_bytes or 0),
        stored_bytes=int(stored_bytes or 0),
    )


def _count(session: Session, table: Any) -> int:
    return session.execute(select(func.count()).select_from(table)).scalar_one()


def _file_size(path: Path) -> int:
    files = (path, path.with_name(path.name + "-wal"))
    return sum(file.stat().st_size for file in files if file.exists())
