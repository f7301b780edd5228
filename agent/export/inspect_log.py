"""Exports a run as an Inspect log (UK AI Security Institute's inspect_ai, log format 2) for its
viewer.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from kernelwright.agent.reporting.figures import by_problem, compute_figures
from kernelwright.agent.reporting.samples import ReportedSample
from kernelwright.store.database import Store
from kernelwright.store.records import Turn

SCORER = "kernelwright"


def inspect_log(store: Store, name: str, samples: Sequence[ReportedSample]) -> dict[str, Any]:
    """Returns the log with a sample per trajectory.

    The sample's number is the epoch; prompts and answers of all turns are its messages.
    """
    rows = [store.trajectory(sample.trajectory_id) for sample in samples]
    begun = _when(min((row.created for row in rows), default=0.0))
    ended = _when(max((row.updated for row in rows), default=0.0))
    done = all(sample.finished for sample in samples)
    policies = list(dict.fromkeys(sample.policy for sample in samples))
    shown = {
        "eval_id": f"kernelwright-{name}",
        "run_id": name,
        "created": begun,
        "task": "write_a_triton_kernel",
        "task_id": f"kernelwright-{name}",
        "task_version": 1,
        "task_attribs": {},
        "task_args": {},
        "dataset": {
            "name": samples[0].suite if samples else "",
            "samples": len({s.problem for s in samples}),
        },
        "model": ", ".join(policies) or "none",
        "model_args": {},
        "config": {"epochs": 1 + max((s.number for s in samples), default=0)},
        "metadata": {"database": store.where},
    }
    return {
        "version": 2,
        "status": "success" if done else "cancelled",
        "eval": shown,
        "plan": {"name": "plan", "steps": [], "config": {}},
        "results": _results(samples),
        "stats": {"started_at": begun, "completed_at": ended, "model_usage": {}},
        "samples": [_sample(store, sample) for sample in samples],
    }


def _results(samples: Sequence[ReportedSample]) -> dict[str, Any]:
    figures = compute_figures(by_problem(samples))
    values = {
        "correct": figures.correct,
        **{f"fast_{p:g}": estimate for p, estimate in figures.fast.items()},
    }
    metrics: dict[str, dict[str, Any]] = {}
    for key, estimate in values.items():
        if estimate.value is not None:
            metrics[key] = {"name": key, "value": estimate.value, "params": {}}
    score = {"name": SCORER, "scorer": SCORER, "params": {}, "metrics": metrics}
    return {
        "total_samples": len(samples),
        "completed_samples": sum(s.finished for s in samples),
        "scores": [score],
    }


def _sample(store: Store, sample: ReportedSample) -> dict[str, Any]:
    turns = store.turns(sample.trajectory_id)
    messages = [message for turn in turns for message in _messages(turn)]
    last = turns[-1].completion if turns else None
    answer = messages[-1] if last else {"role": "assistant", "content": "", "id": "none"}
    output = {
        "model": sample.policy,
        "choices": [{"message": answer, "stop_reason": "stop"}],
        "completion": answer["content"],
    }
    score = {
        "value": "C" if sample.correct else "N" if sample.unjudgeable else "I",
        "answer": None if sample.candidate_id is None else f"candidate {sample.candidate_id}",
        "explanation": sample.stop_message if sample.unjudgeable else sample.fault or None,
        "metadata": {
            "speedup": sample.timed,
            "judged_on": sample.judged_on,
            "compiled": sample.compiled,
        },
    }
    return {
        "id": sample.problem,
        "epoch": sample.number + 1,
        "input": store.problem(sample.trajectory_id).source,
        "target": "",
        "messages": messages,
        "output": output,
        "scores": {SCORER: score},
        "metadata": {"trajectory": sample.trajectory_id, "stop_reason": sample.stop_reason},
        "store": {},
        "events": [],
        "model_usage": {},
        "attachments": {},
    }


def _messages(turn: Turn) -> list[dict[str, str]]:
    messages: list[dict[str, str]] = []
    for index, message in enumerate(turn.messages):
        id = f"{turn.candidate_id}-{index}"
        messages.append({"id": id, "role": message.role.value, "content": message.content})
    if turn.completion is not None:
        id = f"{turn.candidate_id}-answer"
        messages.append({"id": id, "role": "assistant", "content": turn.completion.text})
    return messages


def _when(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()
