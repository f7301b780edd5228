"""The study of the reinforcement learning, in parts that each fit a time limit and go on where they stopped.

    python -m bench.rl_study throughput --work DIR          tokens a second of the running batch, beside plain generate
    python -m bench.rl_study measure NAME --work DIR --policy POLICY      held-out pass@1 at T = 1, repairs, compile
                                                            rate; or NAME=POLICY NAME=POLICY ...
    python -m bench.rl_study online --work DIR --policy POLICY --seed 0   online GRPO; --variant gamma0 | autotriton |
                                                            grpo | cispo | ...
    python -m bench.rl_study collect --work DIR --policy POLICY           a log of the policy, for what follows
    python -m bench.rl_study replay --work DIR --policy POLICY --epochs 2 GRPO from that log alone; --method rft is
                                                            the control
    python -m bench.rl_study report --work DIR              results.json, results.md, curves.png

`--minutes M` ends a part in time (its checkpoint stays, the same command goes on). What is measured lies in
DIR/measured/NAME.json.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

SPLITS = ("synth", "synth:composition", "synth:depth", "synth:family")
"""Generated with a seed that no training draws from: unseen problems of the training's own kind, and three kinds
that it never sees.
"""

VARIANTS: dict[str, dict[str, Any]] = {
    "base": {},
    "gamma0": {"gamma": 0.0},
    "autotriton": {"reward": "autotriton"},
    "grpo": {"settings": {"loss_type": "grpo"}},
    "dr_grpo": {"settings": {"loss_type": "dr_grpo"}},
    "cispo": {"settings": {"loss_type": "cispo"}},
    "gspo": {"settings": {"loss_type": "gspo"}},
    "one_turn": {"turns": 1},
    "no_lag": {"lag": 0},
    "share": {"judge": "cuda:0", "reward": "default"},
    "no_share": {"judge": "cuda:0", "reward": "kevin"},
    "strict": {"turns": 1},
    "report": {"turns": 1, "own_work": "report"},
    "report_share": {"judge": "cuda:0", "reward": "default", "own_work": "report", "turns": 1},
    "report_no_share": {
        "judge": "cuda:0",
        "reward": str(Path(__file__).with_name("no_share.json")),
        "own_work": "report",
        "turns": 1,
    },
}
"""Ablations: what differs from the base."""


def main() -> None:
    asked = _arguments()
    asked.work.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    part: Callable[[argparse.Namespace], Any] = PARTS[asked.part]
    part(asked)
    print(f"{asked.part}: {time.monotonic() - started:.0f} s", flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("part", choices=sorted(PARTS))
    add(
        "name", nargs="*", help="of a replay, or of a measurement (sft, online-0 ...); of several with NAME=POLICY each"
    )
    add("--work", type=Path, required=True)
    add("--policy", help="the policy after SFT: embedded, or a folder")
    add("--measure-policy", help="measure this one instead")
    add("--variant", default="base", choices=sorted(VARIANTS))
    add("--seed", type=int, default=0)
    add("--steps", type=int, default=60)
    add("--epochs", type=float, default=2.0)
    add("--method", default="grpo", choices=("grpo", "rft", "dpo", "kto"))
    add("--db", type=Path, help="replay: the log to train from, if not WORK/log.db")
    add("--log-rounds", type=int, default=10, help="of the log that replay trains from")
    add("--minutes", type=float, default=8.0)
    add("--prompts", type=int, default=32)
    add("--group", type=int, default=12)
    add("--reply-tokens", type=int, default=768)
    add("--problems", nargs="+", default=["synth"])
    add("--splits", nargs="+", default=list(SPLITS))
    add("--count", type=int, default=64, help="problems of each held-out split")
    add("--samples", type=int, default=4, help="drafts of each")
    add("--workers", type=int, default=None)
    add("--device", default="auto")
    add("--lag", type=int, default=1, help="online: rounds under way while one is trained on")
    add("--set", nargs="*", default=[], help="NAME=VALUE of trl's config")
    add("--batch", type=int, default=512, help="throughput: rows")
    add("--size", default="14m", help="throughput: a size of rl sft's")
    return parser.parse_args()


def options_of(asked: argparse.Namespace, output: Path, **more: Any) -> Any:
    """OnlineOptions of the study: the variant over the base, the user's settings over both."""
    from kernelwright.agent.command_line.arguments import choose_device
    from kernelwright.rl.training.online.options import OnlineOptions
    from kernelwright.rl.training.sft.presets import read_settings

    variant = dict(VARIANTS[asked.variant])
    settings = {**variant.pop("settings", {}), **read_settings(asked.set)}
    fields: dict[str, Any] = {
        "policy": _policy(asked.policy), "output": output, "problems": tuple(asked.problems), "prompts": asked.prompts,
        "group": asked.group,
        "reply_tokens": asked.reply_tokens, "seed": asked.seed, "workers": asked.workers,
        "device": choose_device(asked.device),
        "storage": "bf16", "db": str(output.with_suffix(".db")), "max_steps": asked.steps, "max_minutes": asked.minutes,
        "settings": settings,
        "lag": asked.lag,
    }  # fmt: skip
    return OnlineOptions(**{**fields, **variant, **more})


def _policy(name: str | None) -> str:
    if name is None:
        sys.exit("give --policy: the policy after SFT")
    return name if name == "embedded" or ":" in name else f"transformers:{name}"


def _line(step: int, steps: int, figures: dict[str, float]) -> None:
    from kernelwright.rl.command_line.show.training import plain_line

    print(plain_line(step, steps, figures), flush=True)


# ---------------------------------------------------------------- parts
def online(asked: argparse.Namespace) -> None:
    """Trains until the steps or the minutes are up; measures when all steps are done."""
    from kernelwright.rl.training.online.training import train_online

    name = f"online-{asked.variant}-{asked.seed}"
    output = asked.work / name
    if not output.exists():
        trained = train_online(options_of(asked, output), say=print, watch=_line)
        print(trained.model_dump_json(exclude={"plan"}), flush=True)
        if trained.paused:
            return
    print(f"{output} is there: measure it with: measure {name} --measure-policy {output}", flush=True)


def collect(asked: argparse.Namespace) -> None:
    """Rounds of the policy as it is, into the log that replay trains from. Whole rounds are not done again."""
    from kernelwright.agent.databases import open_store
    from kernelwright.rl.training.online.problem_source import ProblemSource
    from kernelwright.rl.training.online.rounds import Rounds
    from kernelwright.rl.training.online.sampler import whole_sampler
    from kernelwright.rl.training.online.training import examined_judges, formula_of
    from kernelwright.rl.training.subject import open_subject

    options, started = options_of(asked, asked.work / "log"), time.monotonic()
    problems = ProblemSource(options.problems, options.seed)
    with (
        examined_judges(options, "cpu", print) as judges,
        open_store(options.db) as store,
        closing(whole_sampler(open_subject(options.policy), options)) as sampler,
    ):
        rounds = Rounds(store, sampler.policy, judges, options, formula_of(options), f"log-{asked.seed}")
        for number in range(asked.log_rounds):
            if time.monotonic() - started > asked.minutes * 60:
                print(f"paused before round {number}: the same command goes on", flush=True)
                return
            found = rounds.run(number, problems.at(number, options.prompts))
            _line(number + 1, asked.log_rounds, found.figures)


def replay(asked: argparse.Namespace) -> None:
    """From the log alone, by method and epochs."""
    from kernelwright.rl.training.from_log import train_from_log
    from kernelwright.rl.training.options import LogOptions, Method

    name = (asked.name or [None])[0] or f"replay-{asked.method}-{asked.epochs:g}-{asked.variant}-{asked.seed}"
    output = asked.work / name
    if not output.exists():
        own = options_of(asked, output, db=str(asked.db or asked.work / "log.db"))
        fields = {field: getattr(own, field) for field in LogOptions.model_fields if field in type(own).model_fields}
        fields |= {
            "filters": (),
            "method": Method(asked.method),
            "epochs": asked.epochs,
            "max_steps": None,
            "force": True,
        }
        trained = train_from_log(
            LogOptions(**fields), show=lambda plan: print(plan.model_dump_json(), flush=True), say=print, watch=_line
        )
        assert trained is not None
        print(trained.model_dump_json(exclude={"plan"}), flush=True)
    print(f"{output} is there: measure it with: measure {name} --measure-policy {output}", flush=True)


def measure(asked: argparse.Namespace) -> None:
    """pass@1 at T = 1 on held-out problems, a split at a time, so that a short sitting brings some."""
    from kernelwright.agent.databases import open_store
    from kernelwright.rl.training.online.problem_source import held_out
    from kernelwright.rl.training.online.training import examined_judges

    if not asked.name:
        sys.exit("give the measurement a name: measure sft")
    asked.policy = asked.policy or asked.name[0].partition("=")[2]
    options, started = options_of(asked, asked.work / "measure"), time.monotonic()
    splits = held_out(asked.splits, asked.count, 0)
    with examined_judges(options, "cpu", print) as judges, open_store(options.db) as store:
        for entry in asked.name:
            name, _, given = entry.partition("=")
            policy = _policy(given or asked.measure_policy or asked.policy)
            for split, problems in splits.items():
                if time.monotonic() - started < asked.minutes * 60:
                    _measured(asked, options, name, policy, {split: problems}, judges, store)


def _measured(
    asked: argparse.Namespace, options: Any, name: str, policy: str, problems: dict[str, Any], judges: Any, store: Any
) -> None:
    """One split, into the policy's file, where it is not in it already."""
    from kernelwright.rl.training.online.looping import measure_policy

    path, [split] = asked.work / "measured" / f"{name}.json", problems
    path.parent.mkdir(exist_ok=True)
    done = json.loads(path.read_text()) if path.is_file() else {"policy": policy, "machine": machine(), "splits": {}}
    if split in done["splits"]:
        return
    before = time.monotonic()
    [found] = measure_policy(options, policy, problems, judges, store, f"measure-{name}", asked.samples)
    done["splits"][split] = found.model_dump() | {"seconds": time.monotonic() - before}
    path.write_text(json.dumps(done, indent=1))
    print(
        f"{name} {split}: pass@1 {found.pass_at_1:.1%}, solved {found.solved:.1%}, compiles {found.compile_rate:.1%}",
        flush=True,
    )


def throughput(asked: argparse.Namespace) -> None:
    """Tokens a second of the running batch, of the plain batch and of transformers' generate: rows of mixed
    lengths, as a policy's are.
    """
    import random

    from kernelwright.agent.command_line.arguments import choose_device
    from kernelwright.policies.base import Message, Request, Role, Sampling
    from kernelwright.policies.local.in_process_policy import InProcessPolicy
    from kernelwright.policies.local.transformers_policy import TransformersPolicy

    device, folder = choose_device(asked.device), _random_model(asked)
    dice = random.Random(0)
    messages = [
        (Message(role=Role.USER, content="x = torch.relu(x) " * dice.randint(10, 40)),) for _ in range(asked.batch * 2)
    ]
    # Lengths as replies have them: most short, a few long. The weights are random, so no row ends by itself.
    limits = [min(asked.reply_tokens, max(8, round(dice.lognormvariate(5.0, 0.5)))) for _ in messages]
    requests = [
        Request(messages=m, sampling=Sampling(max_tokens=limit, seed=place))
        for place, (m, limit) in enumerate(zip(messages, limits, strict=True))
    ]
    results: dict[str, Any] = {
        "machine": machine(),
        "device": device,
        "size": asked.size,
        "rows": len(requests),
        "batch": asked.batch,
    }
    kinds = {
        "running batch": InProcessPolicy(str(folder), device=device, places=asked.batch, continuous=True),
        "plain batch": TransformersPolicy(str(folder), device=device, at_once=asked.batch),
    }
    for kind, policy in kinds.items():
        policy.sample([requests[0].with_(sampling=Sampling(max_tokens=asked.reply_tokens, seed=1)), *requests[1:8]])
        before = time.monotonic()
        drawn = sum(len(completion.token_ids or ()) for completion in policy.sample(requests))
        results[kind] = {
            "tokens": drawn,
            "seconds": time.monotonic() - before,
            "tokens_a_second": drawn / (time.monotonic() - before),
        }
        print(kind, results[kind], flush=True)
        policy.close()
    results["generate"] = _generate(folder, device, asked.batch, min(64, asked.reply_tokens))
    print("generate", results["generate"], flush=True)
    (asked.work / "throughput.json").write_text(json.dumps(results, indent=1))


def _random_model(asked: argparse.Namespace) -> Path:
    from kernelwright.rl.training.sft.base_model import SIZES, load_base, load_tokenizer
    from kernelwright.rl.training.sft.presets import PRESETS, PresetName

    folder = asked.work / f"random-{asked.size}"
    if not (folder / "config.json").is_file():
        assert asked.size in SIZES
        tokenizer = load_tokenizer(str(Path(__file__).parents[1] / "policies" / "weights"))
        base = load_base(f"new:{asked.size}", tokenizer, PRESETS[PresetName.SCRATCH], "cpu", 0)
        base.model.generation_config.eos_token_id = None
        base.model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    return folder


def _generate(folder: Path, device: str, rows: int, tokens: int) -> dict[str, float]:
    """Plain `generate`, all rows as long: which is bound by the host."""
    import torch
    from transformers import AutoModelForCausalLM

    model: Any = (
        AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16 if device != "cpu" else torch.float32)
        .to(device)
        .eval()
    )
    ids = torch.randint(10, 1000, (rows, 128), device=device)
    model.generate(input_ids=ids[:2], max_new_tokens=4, do_sample=True, min_new_tokens=4, pad_token_id=0)
    before = time.monotonic()
    model.generate(
        input_ids=ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=tokens,
        min_new_tokens=tokens,
        do_sample=True,
        pad_token_id=0,
    )
    if device != "cpu":
        torch.cuda.synchronize()
    seconds = time.monotonic() - before
    return {"tokens": rows * tokens, "seconds": seconds, "tokens_a_second": rows * tokens / seconds}


# ---------------------------------------------------------------- report
def report(asked: argparse.Namespace) -> None:
    """All that was measured, as JSON, as a table, as curves."""
    measured = {path.stem: json.loads(path.read_text()) for path in sorted((asked.work / "measured").glob("*.json"))}
    histories = {
        path.parent.name.removesuffix(".training"): json.loads(path.read_text())
        for path in sorted(asked.work.glob("*/history.json"))
    }
    throughput_path = asked.work / "throughput.json"
    results = {
        "made": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()), "measured": measured,
        "training": {name: summary(history) for name, history in histories.items()},
        "throughput": json.loads(throughput_path.read_text()) if throughput_path.is_file() else None,
    }  # fmt: skip
    (asked.work / "results.json").write_text(json.dumps(results, indent=1))
    (asked.work / "results.md").write_text(_markdown(results))
    _draw(asked.work / "curves.png", histories)
    print((asked.work / "results.md").read_text(), flush=True)


def summary(history: list[dict[str, Any]]) -> dict[str, Any]:
    """First and last third of a training, and where its time went."""
    steps = [entry for entry in history if "loss" in entry]
    third = max(1, len(steps) // 3)
    names = (
        "reward",
        "pass_at_1",
        "compile_rate",
        "repair_rate",
        "solved",
        "entropy",
        "drift/kl",
        "zero_variance",
        "completion_length",
        "cheats",
        "drift/effective_sample_size",
        "reward/correct",
        "reward/checks",
        "reward/compile",
    )
    found: dict[str, Any] = {"steps": len(steps)}
    for name in names:
        values = [entry[name] for entry in steps if name in entry]
        if values:
            found[name] = {"first": _mean(values[:third]), "last": _mean(values[-third:])}
    for name in (
        "seconds",
        "seconds/round",
        "seconds/generation",
        "seconds/training",
        "seconds/waiting",
        "sampled_tokens_a_second",
        "samples",
        "seconds/judging",
        "verdicts",
        "verdicts_a_second",
        "known_verdicts",
    ):
        found[name] = _mean([entry[name] for entry in steps if name in entry])
    found["parts"] = (
        {
            n.removeprefix("reward/"): _mean([e[n] for e in steps[-third:] if n in e])
            for n in steps[-1]
            if n.startswith("reward/")
        }
        if steps
        else {}
    )
    return found


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _markdown(results: dict[str, Any]) -> str:
    splits = sorted({split for one in results["measured"].values() for split in one["splits"]})
    lines = [f"| policy | {' | '.join(splits)} | measured on |", f"|---|{'---|' * (len(splits) + 1)}"]
    for name, one in results["measured"].items():
        cells = [_cell(one["splits"].get(split)) for split in splits]
        lines.append(f"| {name} | {' | '.join(cells)} | {one['machine']} |")
    lines += ["", "Each cell: pass@1 at T = 1 (solved with repairs), problems x drafts.", ""]
    before = results["measured"].get("sft")
    for name, one in results["measured"].items() if before else ():
        if name != "sft":
            gains = [f"{split} {_gain(before['splits'], one['splits'], split)}" for split in splits]
            lines.append(
                f"- {name} against sft, points of pass@1 with 95 % bootstrap intervals over the same "
                f"problems: {', '.join(gains)}"
            )
    lines += [
        "",
        "| training | steps | pass@1 | repairs | flat groups | entropy | effective sample size | reward: "
        "correct | checks | compile |",
        f"|{'---|' * 10}",
    ]
    for name, one in results["training"].items():
        cells = [_change(one.get(key)) for key in SHOWN]
        lines.append(f"| {name} | {one['steps']} | {' | '.join(cells)} |")
    lines += [
        "",
        "First and last third of the steps, on the training's own problems.",
        "",
        *_times(results["training"]),
    ]
    return "\n".join(lines) + "\n"


SHOWN = ("pass_at_1", "repair_rate", "zero_variance", "entropy", "drift/effective_sample_size", "reward/correct",
    "reward/checks", "reward/compile")  # fmt: skip


def _times(trainings: dict[str, Any]) -> list[str]:
    """Where a step's time goes: the next round is sampled and judged while one is trained on."""
    names = ("seconds", "seconds/round", "seconds/generation", "seconds/judging", "seconds/training", "samples",
        "verdicts", "verdicts_a_second", "sampled_tokens_a_second", "known_verdicts")  # fmt: skip
    lines = ["| a step, means | " + " | ".join(trainings) + " |", f"|---|{'---|' * len(trainings)}"]
    for name in names:
        values = [one.get(name) for one in trainings.values()]
        lines.append(f"| {name} | {' | '.join('' if v is None else f'{v:,.3g}' for v in values)} |")
    return lines


def _gain(before: dict[str, Any], after: dict[str, Any], split: str) -> str:
    """Paired over the problems that both were measured on."""
    from kernelwright.rl.training.online.measuring import bootstrap_interval

    if split not in before or split not in after:
        return "not measured"
    was, now = before[split]["by_problem"], after[split]["by_problem"]
    changes = [100 * (now[problem] - was[problem]) for problem in sorted(was.keys() & now.keys())]
    low, high = bootstrap_interval(changes)
    return f"{sum(changes) / len(changes):+.1f} ({low:+.1f} to {high:+.1f})"


def _cell(found: dict[str, Any] | None) -> str:
    if found is None:
        return ""
    return (
        f"{found['pass_at_1']:.1%} ({found['solved']:.1%}), {found['problems']} x "
        f"{found['samples'] // max(found['problems'], 1)}"
    )


def _change(found: dict[str, float] | None) -> str:
    return "" if not found else f"{found['first']:.3f} -> {found['last']:.3f}"


def _draw(path: Path, histories: dict[str, list[dict[str, Any]]]) -> None:
    """A curve a training in each picture."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    from kernelwright.rl.training.report import series_of

    shown = ("pass_at_1", "repair_rate", "reward", "entropy", "zero_variance", "drift/effective_sample_size")
    figure = Figure(figsize=(13, 6), layout="constrained")
    FigureCanvasAgg(figure)
    for place, name in enumerate(shown):
        axes = figure.add_subplot(2, 3, place + 1)
        for training, history in histories.items():
            steps, values = series_of(history, name)
            if steps:
                axes.plot(steps, values, label=training, linewidth=1.2)
        axes.set_title(name, fontsize=9)
        axes.grid(alpha=0.25)
    if histories:
        figure.axes[0].legend(fontsize=7)
    figure.savefig(path, dpi=110)


def machine() -> str:
    import torch

    gpu = torch.cuda.get_device_name(0) if torch.cuda.is_available() else "no GPU"
    return f"{gpu}, {os.cpu_count()} cores, torch {torch.__version__}, Python {platform.python_version()}"


PARTS: dict[str, Callable[[argparse.Namespace], Any]] = {
    "online": online, "collect": collect, "replay": replay, "measure": measure, "throughput": throughput,
    "report": report,
}  # fmt: skip

if __name__ == "__main__":
    main()
