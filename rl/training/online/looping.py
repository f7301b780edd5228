"""`rl loop`: cycles of collecting, training and measuring; a candidate is promoted only if better
on held-out problems.
"""

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
from kernelwright.rl.training.online.options import HELD_OUT_SPLITS, LoopOptions, OnlineOptions
from kernelwright.rl.training.online.pooled_judges import Judges
from kernelwright.rl.training.online.problem_source import ProblemSource, held_out
from kernelwright.rl.training.online.rounds import RoundContext, Rounds, judge_device
from kernelwright.rl.training.online.sampler import whole_sampler
from kernelwright.rl.training.online.training import examined_judges, formula_of, train_online
from kernelwright.rl.training.options import LogOptions, Method
from kernelwright.rl.training.subject import open_subject
from kernelwright.rl.training.watching import Watch, ignore_step
from kernelwright.tools.problem import Problem

Say = Callable[[str], None]


def run_loop(
    options: LoopOptions, *, say: Say = lambda step: None, watch: Watch = ignore_step
) -> list[Cycle]:
    """Starts or continues a loop; recorded cycles are not repeated. Raises as `train_online`
    does.
    """
    refuse_other_loop(options)
    open_subject(options.policy)
    done = begin(options)
    write_loop_report(options.output, done)
    splits = held_out(
        options.held_out or HELD_OUT_SPLITS,
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
        # After a promotion the candidate's figures are the next cycle's base.
        base = base or _measured(options, current, splits, judges, say)
        candidate = _trained(options, current, number, judges, say, watch)
        figures = _measured(options, candidate, splits, judges, say)
        pairs = [compare(before, after) for before, after in zip(base, figures, strict=True)]
        promoted, why = is_better(pairs)
        cycle = Cycle(
            cycle=number,
            policy=current,
            candidate=candidate,
            measured=tuple(figures),
            compared=tuple(pairs),
            promoted=promoted,
            why=why,
            seconds=time.monotonic() - started,
        )
        if promoted:
            promote(Path(candidate.removeprefix("transformers:")), options.output / POLICY)
            current, base = candidate, figures
        with (options.output / RECORD).open("a", encoding="utf-8") as file:
            file.write(cycle.model_dump_json() + "\n")
        done.append(cycle)
        write_loop_report(options.output, done)
        say(f"cycle {number + 1} of {options.cycles}: {why}")
    return done


def _trained(
    options: LoopOptions, current: str, number: int, judges: Judges, say: Say, watch: Watch
) -> str:
    """Trains the candidate of a cycle and returns its name. An existing output was trained before
    an interruption of the loop.
    """
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
        cycle_options = OnlineOptions(**fields)
        if options.how == "online":
            train_online(cycle_options, say=say, watch=watch, judges=judges)
        else:
            _from_its_log(
                cycle_options, f"{number}-{loop_id(options)}", judges, say, watch, options.method
            )
    return f"transformers:{output}"


def _from_its_log(
    cycle_options: OnlineOptions,
    name: str,
    judges: Judges,
    say: Say,
    watch: Watch,
    method: Method | None,
) -> None:
    """Collects a round of the policy, and trains on its log."""
    say(f"collecting with {cycle_options.policy}")
    subject = open_subject(cycle_options.policy)
    with (
        open_store(cycle_options.db) as store,
        closing(whole_sampler(subject, cycle_options)) as sampler,
    ):
        label = f"collect-{cycle_options.output.parent.name}-{name}-{subject.revision[:8]}"
        context = RoundContext(store, judges, cycle_options, formula_of(cycle_options))
        rounds = Rounds(context, sampler.policy, label)
        problems = ProblemSource(cycle_options.problems, cycle_options.seed, cycle_options.against)
        rounds.run(0, problems.at(0, cycle_options.prompts))
        run, address = rounds.run_name(0, "step"), store.address
    # Fields that both kinds of options have.
    shared = LogOptions.model_fields.keys() & OnlineOptions.model_fields.keys()
    fields = {name: getattr(cycle_options, name) for name in shared}
    fields |= {"db": address, "filters": (f"run={run}",), "method": method}
    train_from_log(
        LogOptions(**fields),
        show=lambda plan: say(f"{plan.method}: {plan.why}"),
        say=say,
        watch=watch,
    )


def _measured(
    options: LoopOptions, policy: str, splits: dict[str, list[Problem]], judges: Judges, say: Say
) -> list[HeldOutFigures]:
    """Measures a policy on the same problems with the same seeds, with run names of this loop."""
    rollouts = options.samples * sum(map(len, splits.values()))
    progress = RolloutProgress(f"measuring {policy}", rollouts, say)
    own_options = options.model_copy(update={"policy": policy, "temperature": 1.0})
    with open_store(options.db) as store:
        context = RoundContext(store, judges, own_options, formula_of(own_options))
        name = f"{options.output.name}-{loop_id(options)}"
        return measure_policy(context, splits, name, options.samples, progress)


def measure_policy(
    context: RoundContext,
    splits: dict[str, list[Problem]],
    name: str,
    samples: int,
    progress: RolloutProgress | None = None,
) -> list[HeldOutFigures]:
    """Measures the policy of the context's options, with whole weights. Ctrl-C abandons the open
    requests.
    """
    subject = open_subject(context.options.policy)
    with closing(whole_sampler(subject, context.options)) as sampler:
        rounds = Rounds(context, sampler.policy, f"{name}-{subject.revision[:8]}")
        return measure(rounds, splits, samples, progress=progress, give_up=sampler.stop_answering)
