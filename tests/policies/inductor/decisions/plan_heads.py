"""Reads the plan that a draft names in its head."""

from kernelwright.policies.inductor.decisions.plan import Plan
from kernelwright.policies.inductor.decisions.session import PLAN_MARK


def plan_of_source(source: str) -> Plan:
    """The plan of a draft; the default plan of one that names none."""
    for line in source.splitlines():
        if line.startswith(PLAN_MARK):
            return Plan.parse(line.removeprefix(PLAN_MARK))
    return Plan()
