"""KernelBench with a policy, in parts that each fit where they run: all problems counted, whatever was not judged
counts as not solved.

    python -m bench.kernelbench draw  --work DIR --kernelbench CHECKOUT --policy P     ten drafts a problem of levels 1
    and 2 python -m bench.kernelbench sift  --work DIR --kernelbench CHECKOUT                compiles them, and runs the
    small ones under the interpreter python -m bench.kernelbench judge --work DIR --kernelbench CHECKOUT --device cuda:0
    --seconds 300 python -m bench.kernelbench report --work DIR python -m bench.kernelbench forms  --work DIR
    --kernelbench CHECKOUT        drafts that are Python and take what the reference's constructor takes python -m
    bench.kernelbench union --work U --of DIR DIR2        the drafts of several policies: what two wrote is judged once;
    then report --work DIR --verdicts U

What `sift` refuses was refused by the same tools, on a CPU and at small sizes; only what is not refused there is worth
a GPU's time. What counts as right is right on the GPU, at the problem's own sizes, with every check. Each part goes on
where it was stopped.
"""

from __future__ import annotations

import argparse
import ast
import json
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from datetime import date
from itertools import islice
from pathlib import Path
from typing import Any

LEVELS = (1, 2)
UNSURE = ("timeout",)
"""Faults of the sift that say nothing: too slow for the interpreter."""
KS = (1, 4, 10)
FAMILIES = {
    "matrix products": range(1, 19), "activations": (*range(19, 33), 88), "norms": range(33, 41),
    "pooling": range(41, 47),
    "reductions": (47, 48, 49, 51, 52, 53), "convolutions": (50, *range(54, 88)), "scans": range(89, 94),
    "losses, attention": range(94, 101),
}  # fmt: skip
"""Level 1's problems by their numbers."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("part", choices=sorted(PARTS))
    add("--work", type=Path, required=True)
    add("--kernelbench", type=Path)
    add("--of", type=Path, nargs="+", default=[], help="union: folders of drafts")
    add("--verdicts", type=Path, help="report: where they lie, if not beside the drafts")
    add("--policy", default="embedded")
    add("--samples", type=int, default=10)
    add("--temperature", type=float, default=0.8)
    add("--seed", type=int, default=0)
    add("--device", default="cpu")
    add("--workers", type=int, default=2)
    add(
        "--together",
        type=int,
        default=1,
        help="draw: problems that the policy is asked about at once",
    )
    add("--seconds", type=float, default=1e9, help="when to stop")
    add("--untimed", action="store_true", help="judge: whether it is right, and no speed")
    add(
        "--each",
        type=float,
        default=12.0,
        help="sift: seconds for one candidate under the interpreter",
    )
    asked = parser.parse_args()
    asked.work.mkdir(parents=True, exist_ok=True)
    PARTS[asked.part](asked)


def problems_of(asked: argparse.Namespace) -> dict[str, Any]:
    from kernelwright.rl.evaluating.suites import open_suite

    found = [
        p
        for level in LEVELS
        for p in open_suite(f"kernelbench:{asked.kernelbench}", level=level).problems
    ]
    return {problem.name: problem for problem in found}


# ---------------------------------------------------------------- draw
def draw(asked: argparse.Namespace) -> None:
    from kernelwright.agent.prompts import PromptFields, Prompts
    from kernelwright.policies.base import Request, Sampling
    from kernelwright.policies.opening.open_policy import open_policy
    from kernelwright.store.models import Action
    from kernelwright.tools.markdown.fenced_code import extract_code

    path, policy, started = asked.work / "drafts.json", open_policy(asked.policy), time.monotonic()
    told = {
        "policy": policy.name,
        "samples": asked.samples,
        "temperature": asked.temperature,
        "seed": asked.seed,
    }
    drafts = json.loads(path.read_text())["drafts"] if path.is_file() else {}
    prompts = Prompts(policy.prompt_form)
    left = [problem for problem in problems_of(asked).values() if problem.name not in drafts]
    sampling = Sampling(temperature=asked.temperature, seed=asked.seed, max_tokens=1024)
    for start in range(0, len(left), asked.together):
        some = left[start : start + asked.together]
        asks = [
            Request(
                messages=prompts.messages(PromptFields(problem=problem, action=Action.DRAFT)),
                sampling=sampling,
            )
            for problem in some
        ]
        answers = iter(policy.sample([one for ask in asks for one in ask.repeated(asked.samples)]))
        for problem in some:
            texts = [completion.text for completion in islice(answers, asked.samples)]
            drafts[problem.name] = [extract_code(text) or None for text in texts]
        path.write_text(json.dumps({**told, "drafts": drafts}))
        print(f"{len(drafts)} problems, {time.monotonic() - started:.0f} s", flush=True)


def union(asked: argparse.Namespace) -> None:
    told = [json.loads((folder / "drafts.json").read_text()) for folder in asked.of]
    joined = {
        name: [s for one in told for s in one["drafts"].get(name, [])] for name in told[0]["drafts"]
    }
    (asked.work / "drafts.json").write_text(
        json.dumps({**told[0], "policy": "several", "drafts": joined})
    )


def forms(asked: argparse.Namespace) -> None:
    """Before any tool: is it Python, and does its constructor take what the reference's takes, under the same names."""
    problems, counts = problems_of(asked), defaultdict(Counter)  # type: ignore[var-annotated]
    for name, sources in _drafts(asked).items():
        wanted = _constructor(problems[name].source, "Model")
        counts[name.split("/")[0]].update(_form(source, wanted) for source in sources)
    for level, found in sorted(counts.items()):
        print(
            f"{level}: of {found.total():,} drafts {', '.join(f'{form} {n:,}' for form, n in found.most_common())}"
        )


def _form(source: str | None, wanted: list[str]) -> str:
    try:
        return (
            "as the reference"
            if _constructor(source or "", "ModelNew") == wanted
            else "other arguments"
        )
    except SyntaxError:
        return "no Python"


def _constructor(source: str, name: str) -> list[str]:
    """Names of what it takes besides `self`; a class that is not there takes "?". Raises SyntaxError."""
    body = next(
        (n.body for n in ast.parse(source).body if isinstance(n, ast.ClassDef) and n.name == name),
        None,
    )
    if body is None:
        return ["?"]
    made = next((n for n in body if isinstance(n, ast.FunctionDef) and n.name == "__init__"), None)
    return [a.arg for a in made.args.args[1:]] if made else []


# ---------------------------------------------------------------- judge
def sift(asked: argparse.Namespace) -> None:
    from kernelwright.tools.evaluation.pipeline import Options

    options = Options(profile=False, torch_compile=False, sizes=0, seconds=asked.each)
    todo = (
        (name, source) for name, sources in _drafts(asked).items() for source in _different(sources)
    )
    _judged(asked, "sifted.json", todo, options, "cpu")


def judge(asked: argparse.Namespace) -> None:
    """Every problem's most frequent candidate before any problem's second: a short sitting solves as many problems
    as it can.
    """
    from kernelwright.tools.evaluation.pipeline import Options

    options = Options(torch_compile=False, profile=not asked.untimed)
    _judged(asked, "judged.json", _worth_a_gpu(asked), options, asked.device)


def _judged(
    asked: argparse.Namespace, name: str, todo: Iterator[tuple[str, str]], options: Any, device: str
) -> None:
    from kernelwright.tools.evaluation.pipeline import Evaluator
    from kernelwright.tools.problem import ProblemError
    from kernelwright.tools.report import InfrastructureError

    path, problems, started = asked.work / name, problems_of(asked), time.monotonic()
    known: dict[str, Any] = json.loads(path.read_text()) if path.is_file() else {}
    waiting = [(problem, source) for problem, source in todo if _key(problem, source) not in known]
    with (
        Evaluator(device, workers=asked.workers) as evaluator,
        ThreadPoolExecutor(asked.workers) as pool,
    ):

        def one(problem: str, source: str) -> tuple[str, dict[str, Any] | None]:
            if time.monotonic() - started > asked.seconds:
                return _key(problem, source), None
            begun = time.monotonic()
            try:
                report = evaluator.evaluate(problems[problem], source, options)
            except (InfrastructureError, ProblemError) as trouble:
                print(f"{problem}, not judged: {trouble}", flush=True)
                return _key(problem, source), None
            return _key(problem, source), facts_of(problem, report, time.monotonic() - begun)

        for done in as_completed([pool.submit(one, *pair) for pair in waiting]):
            key, facts = done.result()
            if facts is not None:
                known[key] = facts
                path.write_text(json.dumps(known, indent=0))
                print(
                    f"{len(known)} of {len(waiting)}",
                    {k: facts[k] for k in ("problem", "fault", "speedup", "seconds")},
                    flush=True,
                )


def facts_of(problem: str, report: Any, seconds: float) -> dict[str, Any]:
    profile = report.profile
    return {
        "problem": problem, "correct": report.correct, "correct_kb": report.correct_kb, "rung": str(report.rung),
        "fault": str(report.failure.fault) if report.failure else "",
        "message": report.failure.message[:160] if report.failure else "", "speedup": report.speedup,
        "seconds": round(seconds, 2),
        "ms": profile.candidate.median if profile and profile.candidate else None, "judged_on": report.judged_on,
    }  # fmt: skip


def _key(problem: str, source: str) -> str:
    from kernelwright.tools.source import candidate_hash

    return f"{problem} {candidate_hash(source)[:16]}"


def _drafts(asked: argparse.Namespace) -> dict[str, list[str | None]]:
    found: dict[str, list[str | None]] = json.loads((asked.work / "drafts.json").read_text())[
        "drafts"
    ]
    return found


def _different(sources: list[str | None]) -> list[str]:
    """The most frequent first."""
    return [source for source, _ in Counter(s for s in sources if s is not None).most_common()]


def _worth_a_gpu(asked: argparse.Namespace) -> Iterator[tuple[str, str]]:
    sifted = json.loads((asked.work / "sifted.json").read_text())
    queues = []
    for name, sources in _drafts(asked).items():
        seen = [(source, sifted.get(_key(name, source))) for source in _different(sources)]
        good = [(name, s) for s, facts in seen if facts and facts["correct"]]
        unsure = [
            (name, s)
            for s, facts in seen
            if facts and not facts["correct"] and _says_nothing(facts)
        ]
        queues.append(good + unsure)
    for place in range(max(map(len, queues), default=0)):
        yield from (queue[place] for queue in queues if place < len(queue))


def _says_nothing(facts: dict[str, Any]) -> bool:
    """Compiled, and not refused by the interpreter: it timed out there, or the problem was too large to be tried."""
    return (facts["fault"] in UNSURE and facts["rung"] == "interpreted") or (
        not facts["fault"] and not facts["correct"]
    )


# ---------------------------------------------------------------- report
def report(asked: argparse.Namespace) -> None:
    told, drafts = json.loads((asked.work / "drafts.json").read_text()), _drafts(asked)
    sifted, judged = (
        _own(drafts, (asked.verdicts or asked.work) / name)
        for name in ("sifted.json", "judged.json")
    )
    lines = [
        f"Policy {told['policy']}, {told['samples']} drafts a problem at temperature "
        f"{told['temperature']}, no repairs, {date.today().isoformat()}.", "",
        *_table("Right on the GPU at the problem's own sizes; what was not judged there counts as wrong", drafts,
        sifted, judged), "",
        *_table("Right under the interpreter at small sizes (a CPU; what timed out counts as wrong)", drafts, sifted,
        sifted), "",
    ]  # fmt: skip
    refused = sum(not facts["correct"] for facts in judged.values())
    left = sum(
        _waiting(n, s, sifted, judged) for n, sources in drafts.items() for s in _different(sources)
    )
    lines += [
        f"Judged on the GPU: {len(judged)} different candidates, of which it refused {refused}; worth "
        "judging and not judged: "
        f"{left}."
    ]
    lines += [
        "",
        *_solved(drafts, judged),
        "",
        *_families(drafts, sifted, judged),
        "",
        *_faults(drafts, sifted, judged),
    ]
    text = "\n".join(lines) + "\n"
    print(text)
    (asked.work / "report.md").write_text(text)


def _own(drafts: dict[str, list[str | None]], path: Path) -> dict[str, Any]:
    """Verdicts of these drafts; others may lie beside them."""
    known: dict[str, Any] = json.loads(path.read_text()) if path.is_file() else {}
    keys = {
        _key(name, source) for name, sources in drafts.items() for source in _different(sources)
    }
    return {key: facts for key, facts in known.items() if key in keys}


def _table(
    title: str,
    drafts: dict[str, list[str | None]],
    sifted: dict[str, Any],
    verdicts: dict[str, Any],
) -> list[str]:
    head = [f"{title}:", "",
        "| level | problems | compiled | pass@1 | pass@4 | pass@10 | solved | at least as fast as eager (fast_1) |",
        "|---|---|---|---|---|---|---|---|"]  # fmt: skip
    levels = {
        level: {n: s for n, s in drafts.items() if n.startswith(f"kernelbench:{level}/")}
        for level in LEVELS
    }
    return head + [_row(level, own, sifted, verdicts) for level, own in levels.items()]


def _row(
    level: int,
    drafts: dict[str, list[str | None]],
    sifted: dict[str, Any],
    verdicts: dict[str, Any],
) -> str:
    from kernelwright.agent.reporting.figures import pass_at

    facts = {
        n: [verdicts.get(_key(n, s)) if s else None for s in sources]
        for n, sources in drafts.items()
    }
    right = {n: sum(bool(f and f["correct"]) for f in found) for n, found in facts.items()}
    size = len(next(iter(drafts.values())))
    offline = [sifted.get(_key(n, s)) for n, sources in drafts.items() for s in sources if s]
    built = sum(bool(f and _compiled(f)) for f in offline)
    fast = sum(
        any(f and f["correct"] and (f["speedup"] or 0) >= 1 for f in found)
        for found in facts.values()
    )
    timed = any(f["speedup"] for f in verdicts.values())
    percent = {
        k: 100 * sum(pass_at(size, c, k) for c in right.values()) / len(drafts)
        for k in KS
        if k <= size
    }
    share = [f"{percent[k]:.1f} %" if k in percent else "" for k in KS]
    solved = sum(c > 0 for c in right.values())
    return (
        f"| {level} | {len(drafts)} | {100 * built / (size * len(drafts)):.0f} % | {' | '.join(share)} | "
        f"**{solved}** | {fast if timed else 'not timed'} |"
    )


def _compiled(facts: dict[str, Any]) -> bool:
    return not facts["fault"] or facts["rung"] not in ("source", "compile")


def _waiting(name: str, source: str, sifted: dict[str, Any], judged: dict[str, Any]) -> bool:
    facts = sifted.get(_key(name, source))
    return _key(name, source) not in judged and (
        facts is None or facts["correct"] or _says_nothing(facts)
    )


def _solved(drafts: dict[str, list[str | None]], judged: dict[str, Any]) -> list[str]:
    best: dict[str, float] = {}
    for facts in judged.values():
        if facts["correct"]:
            best[facts["problem"]] = max(best.get(facts["problem"], 0.0), facts["speedup"] or 0.0)
    speeds = {name: f" ({speed:.2f})" if speed else "" for name, speed in best.items()}
    shown = [
        f"{name.removeprefix('kernelbench:')}{speeds[name]}" for name in drafts if name in best
    ]
    return [f"Solved, with the speedup over eager of the fastest: {', '.join(shown) or 'none'}."]


def _faults(
    drafts: dict[str, list[str | None]], sifted: dict[str, Any], judged: dict[str, Any]
) -> list[str]:
    """What stopped the drafts of problems that are not solved, and the tools' words that most of these problems
    have in common.
    """
    solved = {facts["problem"] for facts in judged.values() if facts["correct"]}
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    words: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for facts in [*sifted.values(), *judged.values()]:
        if facts["problem"] not in solved and facts["fault"]:
            level = facts["problem"].split("/")[0]
            counts[level][facts["fault"]] += 1
            words[level][facts["message"]].add(facts["problem"])
    lines = [f"- {level}, different drafts of unsolved problems: "
        f"{', '.join(f'{f} {n}' for f, n in c.most_common())}" for level, c in sorted(counts.items())]  # fmt: skip
    for level, said in sorted(words.items()):
        text, problems = max(said.items(), key=lambda pair: len(pair[1]))
        lines.append(f"- {level}, in {len(problems)} unsolved problems: {text}")
    return lines


def _families(
    drafts: dict[str, list[str | None]], sifted: dict[str, Any], judged: dict[str, Any]
) -> list[str]:
    """Level 1 by what its problems are."""
    solved = {facts["problem"] for facts in judged.values() if facts["correct"]}
    lines = [
        "| level 1 | solved | what stopped the different drafts of the others |",
        "|---|---|---|",
    ]
    for family, numbers in FAMILIES.items():
        names = {f"kernelbench:1/{number}" for number in numbers} & drafts.keys()
        told = [
            f
            for f in [*sifted.values(), *judged.values()]
            if f["problem"] in names - solved and f["fault"]
        ]
        faults = Counter(facts["fault"] for facts in told).most_common(3)
        lines.append(
            f"| {family} | {len(names & solved)} of {len(names)} | {', '.join(f'{f} {n}' for f, n in faults)} |"
        )
    return lines


PARTS: dict[str, Callable[[argparse.Namespace], None]] = {
    "draw": draw,
    "sift": sift,
    "judge": judge,
    "report": report,
    "union": union,
    "forms": forms,
}

if __name__ == "__main__":
    main()
