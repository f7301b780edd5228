"""A user's mistakes: the command, the documented exit status, and words of the line that says what to do.

`DEVELOPED` were run while the messages were written; `HELD_OUT` were written at the same time and run once they were.
"""

from __future__ import annotations

import shlex
from typing import NamedTuple


class Mistake(NamedTuple):
    """One command that a user gives by mistake, or under odd circumstances."""

    command: str
    """As typed in bash, in the folder that `bench.mistakes.write_files` fills. `hiding M` is `agent` where the package
    M is not installed.
    """
    status: int
    says: str = ""
    """Words of the one line on stderr (of a verdict: on stdout)."""
    verdict: bool = False
    """The command answers on stdout, and says nothing on stderr."""
    slow: bool = False
    """Takes seconds: something is judged, or waited for."""

    @property
    def words(self) -> list[str]:
        """The arguments of `agent`; empty where the command needs a shell or a process of its own."""
        if self.slow or set(self.command) & set("|<>&;$") or not self.command.startswith("agent"):
            return []
        return shlex.split(self.command)[1:]


OF_OPTIONS = (
    Mistake("agent slove relu.py", 2, "solve"),
    Mistake("agent solve", 2, "model.py"),
    Mistake("agent solve relu.py --turn 3", 2, "--turns"),
    Mistake("agent solve relu.py --turns 0", 2, "--turns"),
    Mistake("agent solve relu.py --turns three", 2, "--turns"),
    Mistake("agent solve relu.py --goal fast", 2, "sol:0.9"),
    Mistake("agent solve relu.py --goal sol:2", 2, "sol:0.9"),
    Mistake("agent solve relu.py --goal compile:1.1 --device cpu", 2, "--goal correct"),
    Mistake("agent solve relu.py --target sm_12", 2, "sm_90"),
    Mistake("agent check kernel.py -p relu.py --target h1000x", 2, "h200"),
    Mistake("agent solve relu.py --device gpu", 2, "cuda:N"),
    Mistake("agent solve relu.py --device cuda:7", 2, "--device"),
    Mistake("agent solve relu.py --search best", 2, "best-of-n"),
    Mistake("agent solve relu.py --own-work share:2", 2, "share:0.5"),
    Mistake("agent solve relu.py --draft nothing.py", 2, "--draft"),
    Mistake("agent solve relu.py --max-usd 1", 2, "--turns"),
    Mistake("agent solve relu.py --temperature 5", 2, "--temperature"),
    Mistake("agent solve relu.py --precision fp8", 2, "ieee"),
    Mistake("agent solve relu.py --out", 2, "--out"),
    Mistake("agent check kernel.py -p relu.py --seed -1", 2, "--seed"),
    Mistake("agent check kernel.py -p relu.py --ncu --device cpu", 2, "needs a GPU"),
    Mistake("agent check kernel.py -p relu.py --allow-import nothing_here", 2, "pip install"),
    Mistake("agent check kernel.py", 2, "--problem"),
    Mistake("agent batch --limit 0 folder", 2, "--limit"),
    Mistake("agent serve --port 70000", 2, "--port"),
    Mistake("agent serve --host 0.0.0.0 --device cpu", 2, "--token-file"),
    Mistake("agent mcp begin", 2, "serve"),
    Mistake("agent mcp install", 2, "--client"),
    Mistake("agent mcp serve --transport http --host 0.0.0.0", 2, "--token"),
    Mistake("agent export --format pdf", 2, "jsonl"),
    Mistake("agent db frobnicate", 2, "stats"),
    Mistake("agent db search", 2, "words"),
    Mistake("agent compare 1", 2, "two or more"),
    Mistake("agent report 1 --html --csv", 2, "--html"),
    Mistake("agent replay 1 --policy compiler", 2, "--fork"),
    Mistake("agent tune kernel.py -p relu.py --shape N=0", 2, "--shape"),
)
OF_POLICIES = (
    Mistake("agent solve relu.py --policy gpt-5", 2, "openai:"),
    Mistake("agent solve relu.py --policy openai:gpt-5-mini", 2, "OPENAI_API_KEY"),
    Mistake("agent solve relu.py --policy openai:m@ftp://here", 2, "http"),
    Mistake(
        "agent solve relu.py --policy openai:m@http://127.0.0.1:9/v1 --patience 0 --turns 1 --draft policy",
        3,
        "127.0.0.1:9",
        slow=True,
    ),
    Mistake("agent solve relu.py --policy transformers:nothing", 2, "nothing"),
    Mistake("agent solve relu.py --policy scripted:nothing.jsonl", 2, "nothing.jsonl"),
    Mistake("agent policies nothing", 2, "rl sft"),
)
OF_PROBLEMS = (
    Mistake('agent solve "quantum teleport"', 2, "agent problems"),
    Mistake("agent solve missing.py", 2, "missing.py"),
    Mistake("agent solve folder", 2, "agent batch"),
    Mistake("agent solve binary.py", 2, "binary.py"),
    Mistake("agent solve empty.py", 2, "Model"),
    Mistake("agent solve syntax.py", 2, "line"),
    Mistake("agent solve no_class.py", 2, "Model"),
    Mistake("agent solve no_inputs.py", 2, "get_inputs"),
    Mistake("agent check kernel.py -p wrong_inputs.py", 2, "reference", slow=True),
    Mistake("agent check kernel.py -p no_return.py", 2, "return", slow=True),
    Mistake("agent check kernel.py -p raises.py", 2, "raises.py", slow=True),
    Mistake("agent solve latin.py", 2, "UTF-8"),
    Mistake("agent solve loop.py", 2, "loop.py"),
    Mistake(f"agent solve {'n' * 300}.py", 2, "too long"),
    Mistake(f"agent solve {'word ' * 2000!r}", 2, "too long"),
    Mistake("agent solve kernelbench:1/23", 2, "--kernelbench"),
    Mistake("agent solve kernelbench:1/23 --kernelbench missing", 2, "missing"),
    Mistake("agent batch empty_folder", 2, "empty_folder"),
    Mistake("agent batch", 2, "catalogue"),
    Mistake("agent batch bad_folder", 2, "bad_folder"),
    Mistake("agent batch missing_folder", 2, "missing_folder"),
    Mistake("agent problems --manifest missing_folder", 2, "missing_folder"),
    Mistake("agent check kernel.py -p crlf.py --sizes 1", 0, "correct", verdict=True, slow=True),
    Mistake("agent check kernel.py -p bom.py --sizes 1", 0, "correct", verdict=True, slow=True),
)  # fmt: skip
OF_KERNELS = (
    Mistake("agent check missing.py -p relu.py", 2, "missing.py"),
    Mistake("agent check folder -p relu.py", 2, "folder"),
    Mistake("agent check binary.py -p relu.py", 2, "UTF-8"),
    Mistake("agent check nulls.py -p relu.py", 2, "null"),
    Mistake("agent check huge.py -p relu.py", 2, "bytes"),
    Mistake("agent check loop.py -p relu.py", 2, "loop.py"),
    Mistake("agent check empty.py -p relu.py", 1, "no code", verdict=True),
    Mistake("agent check syntax.py -p relu.py", 1, "syntax", verdict=True),
    Mistake("agent check no_class.py -p relu.py", 1, "ModelNew", verdict=True),
    Mistake(
        "agent check kernel.py -p two_inputs.py --sizes 1", 1, "forward", verdict=True, slow=True
    ),
    Mistake("agent tune no_class.py -p relu.py", 2, "tune"),
    Mistake("agent check kernel.py -p relu.py --server nowhere", 2, "http://"),
    Mistake("agent check kernel.py -p relu.py --server http://127.0.0.1:9", 3, "agent serve"),
)
OF_DATABASES = (
    Mistake("agent solve relu.py --db missing/runs.db", 2, "folder"),
    Mistake("agent solve relu.py --db folder", 2, "--db"),
    Mistake("agent inspect 1 --db foreign.db", 2, "foreign.db"),
    Mistake("agent inspect 1 --db relu.py", 2, "relu.py"),
    Mistake("agent inspect 1 --db corrupt.db", 3, "corrupt.db"),
    Mistake("agent inspect 1 --db older.db", 2, "agent db migrate"),
    Mistake("agent inspect 1 --db newer.db", 2, "newer"),
    Mistake("agent solve relu.py --db /proc/runs.db", 2, "/proc"),
    Mistake("agent inspect --db postgresql://127.0.0.1:1/runs", 3, "127.0.0.1"),
    Mistake("cd empty_folder && agent inspect", 2, "agent solve"),
    Mistake("agent inspect 99 --db one.db", 2, "99"),
    Mistake("agent replay 99 --db one.db", 2, "99"),
    Mistake("agent replay nonsense --db one.db", 2, "nonsense"),
    Mistake("agent compare 1 99 --db one.db", 2, "99"),
    Mistake("agent report nothing --db one.db", 2, "nothing"),
    Mistake("agent export --run nothing --db one.db", 2, "nothing"),
    Mistake("agent recheck --db missing.db", 2, "missing.db"),
    Mistake("agent db stats --db missing.db", 2, "missing.db"),
    Mistake("agent inspect 1 --filter fault:banana --db one.db", 2, "fault"),
)
OF_OUTPUT = (
    Mistake("agent solve relu.py --out missing/kernel.py", 2, "missing"),
    Mistake("agent solve relu.py --out folder", 2, "folder"),
    Mistake("agent solve relu.py --out relu.py", 2, "relu.py"),
    Mistake("agent solve relu.py --out /proc/kernel.py --db one.db", 2, "/proc", slow=True),
    Mistake("agent export --db one.db --format jsonl --out missing/turns.jsonl", 2, "missing"),
    Mistake("agent batch relu.py --out relu.py", 2, "--out"),
    Mistake("agent problems > /dev/full", 3, "disk is full"),
    Mistake("unshare -m bash -c 'mount -t tmpfs -o size=60k none disk; agent solve relu.py --db disk/runs.db'", 3,
            "disk is full", slow=True),
)  # fmt: skip
OF_SURROUNDINGS = (
    Mistake("agent problems | true; exit ${PIPESTATUS[0]}", 141, "", verdict=True),
    Mistake("agent version >&-", 0, "", verdict=True),
    Mistake("agent version <&-", 0, "kernelwright", verdict=True),
    Mistake("agent solve missing.py 2>&-", 2, "", verdict=True),
    Mistake("cd empty_folder && TERM=dumb agent inspect", 2, "agent solve"),
    Mistake("COLUMNS=20 agent problems", 0, "relu", verdict=True),
    Mistake("env -u HOME agent doctor --json", 0, "machine", verdict=True, slow=True),
    Mistake("LC_ALL=C PYTHONUTF8=0 agent problems", 0, "", verdict=True),
    Mistake("TMPDIR=/nothing agent check kernel.py -p relu.py --sizes 1", 0, "correct", verdict=True, slow=True),
    Mistake("PYTHONOPTIMIZE=1 agent check kernel.py -p relu.py --sizes 1", 0, "correct", verdict=True, slow=True),
    Mistake("mkdir gone; cd gone; rmdir ../gone; agent solve 'fused silu'", 2, "folder"),
    Mistake("hiding triton check kernel.py -p relu.py", 3, "pip install 'triton"),
    Mistake("hiding torch check kernel.py -p relu.py", 3, "pip install 'torch"),
    Mistake("hiding fastapi serve", 3, "kernelwright[serve]"),
    Mistake("hiding mcp mcp", 3, "kernelwright[mcp]"),
    Mistake("hiding ray batch relu.py --ray auto", 3, "kernelwright[ray]"),
    Mistake("hiding transformers solve relu.py --policy transformers:model --draft policy", 3, "pip install",
            verdict=True, slow=True),
    Mistake("timeout --preserve-status -s INT 4 agent check slow_import.py -p slow.py", 130, "interrupted", slow=True),
    Mistake("timeout --preserve-status -s TERM 4 agent solve slow.py --db new.db", 143, "interrupted", slow=True),
    Mistake("timeout --preserve-status -s INT 6 agent batch slow.py --db b.db", 130, "interrupted", slow=True),
)  # fmt: skip

GROUPS = {
    "options": OF_OPTIONS,
    "policies": OF_POLICIES,
    "problems": OF_PROBLEMS,
    "kernels": OF_KERNELS,
    "databases": OF_DATABASES,
    "output": OF_OUTPUT,
    "surroundings": OF_SURROUNDINGS,
}
_FIRST = tuple(mistake for group in GROUPS.values() for mistake in group)
DEVELOPED, HELD_OUT = _FIRST[::2], _FIRST[1::2]
"""Every other one: the messages were written by the first half, and the second half was run when they stood."""
FIRST_RUN = (
    "Of the half that was held back 50 of 63 ended so in its first run (2026-11-28, main at 86f8e5c5): seven of the "
    "others were faults of messages or statuses, six of the table, such as a folder that an earlier row had changed."
)
OF_OUTPUT_LATER = (
    Mistake("agent export --db one.db --format jsonl --out folder", 2, "--out"),
    Mistake("agent report 1 --html --out missing/x.html --db one.db", 2, "--out"),
    Mistake("agent check kernel.py -p relu.py --cache relu.py", 2, "--cache"),
    Mistake("agent serve --store folder --device cpu", 2, "--store"),
    Mistake("agent tune kernel.py -p relu.py --picture missing/x.svg", 2, "--picture"),
    Mistake("agent problems --manifest folder --out missing/m.json", 2, "--out"),
)
"""Siblings that were tried when both halves stood: other options that name an output."""
GROUPS["output, later"] = OF_OUTPUT_LATER
MISTAKES = (*_FIRST, *OF_OUTPUT_LATER)
