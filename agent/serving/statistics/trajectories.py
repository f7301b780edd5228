"""Trajectories of the server's database (`--db`), for the web page."""

from __future__ import annotations

from kernelwright.agent.serving.content import RequestRefused
from kernelwright.agent.serving.wire import Code, WireValue


class TrajectoryEntry(WireValue):
    """Trajectory in a list."""

    id: int
    problem: str
    policy: str
    sample: int
    created: float
    stop_reason: str | None


class TrajectoryList(WireValue):
    """The newest trajectories of a database."""

    trajectories: tuple[TrajectoryEntry, ...]


class Trajectories:
    """Opened for each request and read only: whoever writes the database is never in its way."""

    def __init__(self, database: str | None) -> None:
        self._database = database

    def newest(self, limit: int) -> TrajectoryList:
        """Returns the newest trajectories; empty without `--db`."""
        if self._database is None:
            return TrajectoryList(trajectories=())
        from kernelwright.agent.runtime.databases import open_store

        with open_store(self._database, readonly=True) as store:
            rows = store.trajectories(limit=limit)
        return TrajectoryList(
            trajectories=tuple(
                TrajectoryEntry(
                    id=row.id, problem=row.problem, policy=row.policy, sample=row.sample, created=row.created,
                    stop_reason=row.stop_reason,
                )
                for row in rows
            )
        )  # fmt: skip

    def page(self, trajectory_id: int) -> str:
        """Returns a trajectory as HTML. Raises RequestRefused for an unknown id."""
        from kernelwright.agent.reporting.files import trajectory_page
        from kernelwright.agent.reporting.trajectory_report import report_trajectory
        from kernelwright.agent.runtime.databases import open_store
        from kernelwright.store.connection.errors import StoreError

        if self._database is None:
            raise RequestRefused(
                Code.NOT_FOUND, "this server was started without --db: it has no trajectories"
            )
        with open_store(self._database, readonly=True) as store:
            try:
                return trajectory_page(report_trajectory(store, trajectory_id))
            except StoreError as error:
                raise RequestRefused(Code.NOT_FOUND, " ".join(str(error).split())) from None
