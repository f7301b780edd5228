"""`rl loop`: collect, train, measure, promote only what is better on problems that were held out; then again."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from kernelwright.agent.runtime.databases import open_store
from kernelwright.rl.training.from_log import train_from_log
from kernelwright.rl.training.online.loop_folder import (
    POLICY,
    RECORD,
    Cycle,
    begin,
    champion,
    loop_id,
    promote,
    refuse_other_loop,
)
from kernelwright.rl.training.online.loop_report import write_loop_report
from kernelwright.rl.training.online.measuring import (
    HeldOutFigures,
    RolloutProgress,
    compare,
    is_better,
    measure,
)
from kernelwright.rl.training.online.options import LoopOptions, OnlineOptions
from kernelwright.rl.training.online.pooled_judges import Judges
from kernelwright.rl.training.online.problem_source import ProblemSource, held_out
from kernelwright.rl.training.online.rounds import Rounds, judge_device
from kernelwright.rl.training.online.sampler import whole_sampler
from kernelwright.rl.training.online.training import examined_judges, formula_of, train_online
from kernelwright.rl.training.options import LogOptions, Method
from kernelwright.rl.training.subject import open_subject
from kernelwright.rl.training.watching import Watch, ignore_step
from kernelwright.store.database import Store
from kernelwright.tools.problem import Problem

Say = Callable[[str], None]


def run_loop(
    options: LoopOptions, *, say: Say = lambda step: None, watch: Watch = ignore_step
) -> list[Cycle]:
    """Begins or goes on: a cycle that is in the record is not done again. Raises as `train_online` does."""
    refuse_other_loop(options)
    open_subject(options.policy)
    done = begin(options)
    write_loop_report(options.output, done)
    splits = held_out(
        options.held_out or ("synth:composition", "synth:depth", "synth:family"),
        options.held_out_count,
        options.seed,
    )
    if len(done) >= options.cycles:
        return done
    with examined_judges(options, judge_device(options.judge), say) as judges:
        return _cycles(options, done, splits, judges, say, watch)


def _cycles(
    options: LoopOptions,
    done: list[Cycle],
    splits: dict[str, list[Problem]],
    judges: Judges,
    say: Say,
    watch: Watch,
) -> list[Cycle]:
    current, base = champion(options, done), None
    for number in range(len(done), options.cycles):
        started = time.monotonic()
        base = base or _measured(options, current, splits, judges, say)
        candidate = _trained(options, current, number, judges, say, watch)
        found = _measured(options, candidate, splits, judges, say)
        pairs = [compare(before, after) for before, after in zip(base, found, strict=True)]
        promoted, why = is_better(pairs)
        cycle = Cycle(
            cycle=number, policy=current, candidate=candidate, measured=tuple(found), compared=tuple(pairs),
            promoted=promoted, why=why,
            seconds=time.monotonic() - started,
        )  # fmt: skip
        if promoted:
            promote(Path(candidate.removeprefix("transformers:")), options.output / POLICY)
            current, base = candidate, found
        with (options.output / RECORD).open("a", encoding="utf-8") as file:
            file.write(cycle.model_dump_json() + "\n")
        done.append(cycle)
        write_loop_report(options.output, done)
        say(f"cycle {number + 1} of {options.cycles}: {why}")
    return done


def _trained(
    options: LoopOptions, current: str, number: int, judges: Judges, say: Say, watch: Watch
) -> str:
    """Gives the candidate's name. One that is there already was trained before the loop was stopped."""
    output = options.output / f"cycle-{number + 1:02d}"
    if not output.exists():
        fields = {name: getattr(options, name) for name in OnlineOptions.model_fields}
        fields |= {
            "policy": current,
            "output": output,
            "max_steps": options.steps,
            "seed": options.seed + number,
            "method": None,
        }
        own = OnlineOptions(**fields)
        if options.how == "online":
            train_online(own, say=say, watch=watch, judges=judges)
        else:
            _from_its_log(own, f"{number}-{loop_id(options)}", judges, say, watch, options.method)
    return f"transformers:{output}"


def _from_its_log(
    own: OnlineOptions, name: str, judges: Judges, say: Say, watch: Watch, method: Method | None
) -> None:
    say(f"collecting with {own.policy}")
    subject = open_subject(own.policy)
    with open_store(own.db) as store, closing(whole_sampler(subject, own)) as sampler:
        label = f"collect-{own.output.parent.name}-{name}-{subject.revision[:8]}"
        rounds = Rounds(store, sampler.policy, judges, own, formula_of(own), label)
        rounds.run(0, ProblemSource(own.problems, own.seed, own.against).at(0, own.prompts))
        run, where = rounds.run_name(0, "step"), store.address
    fields = {
        name: getattr(own, name)
        for name in LogOptions.model_fields
        if name in OnlineOptions.model_fields
    }
    fields |= {"db": where, "filters": (f"run={run}",), "method": method}
    train_from_log(
        LogOptions(**fields),
        show=lambda plan: say(f"{plan.method}: {plan.why}"),
        say=say,
        watch=watch,
    )


def _measured(
    options: LoopOptions, policy: str, splits: dict[str, list[Problem]], judges: Judges, say: Say
) -> list[HeldOutFigures]:
    """Measures a policy on the same problems with the same seeds, under the loop's own names."""
    rollouts = options.samples * sum(map(len, splits.values()))
    progress = RolloutProgress(f"measuring {policy}", rollouts, say)
    with open_store(options.db) as store:
        name = f"{options.output.name}-{loop_id(options)}"
        return measure_policy(
            options, policy, splits, judges, store, name, options.samples, progress
        )


def measure_policy(
    options: OnlineOptions, policy: str, splits: dict[str, list[Problem]], judges: Judges, store: Store, name: str,
    samples: int = 1, progress: RolloutProgress | None = None,
) -> list[HeldOutFigures]:  # fmt: skip
    """Measures one policy by its name, its weights whole. Ctrl-C gives up the answers under way."""
    subject = open_subject(policy)
    own = options.model_copy(update={"policy": policy, "temperature": 1.0})
    name = f"{name}-{subject.revision[:8]}"
    with closing(whole_sampler(subject, own)) as sampler:
        rounds = Rounds(store, sampler.policy, judges, own, formula_of(own), name)
        return measure(
            rounds, splits, samples, 0, progress=progress, give_up=sampler.stop_answering
        )
