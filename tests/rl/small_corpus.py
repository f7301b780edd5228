"""A corpus of this repository's own kernels, for the tests of training: drafts, and repairs of one broken line.

Imported as `tests.rl.small_corpus`.
"""

from __future__ import annotations

import random
import re
from pathlib import Path

from kernelwright.agent.problems.finding import find_by_name
from kernelwright.agent.prompts import PromptFields, Prompts
from kernelwright.policies.base import PromptForm
from kernelwright.rl.data.rows import Kind, Row, Split, row_of, write_rows
from kernelwright.store.models import Action

GOOD = Path(__file__).parents[1] / "kernels" / "good"
NAMES = (
    "vector_add",
    "fused_silu",
    "leaky_relu_bias",
    "row_sum",
    "row_max",
    "fused_softmax",
    "rms_norm",
    "mish",
)


def small_corpus(folder: Path, copies: int = 4) -> Path:
    """`copies` drafts and one repair of each kernel, at other sizes; and one row of a held-out split, which must
    never be trained on.
    """
    dice, prompts = random.Random(0), Prompts(PromptForm.COMPACT)
    rows: list[Row] = []
    for name in NAMES:
        text = (GOOD / f"{name}.py").read_text(encoding="utf-8")
        answer = (
            "\n".join(
                line for line in text.splitlines() if not re.match(r"# (problem|odd):", line)
            ).strip()
            + "\n"
        )
        broken = answer.replace("tl.store(", "tl.put(", 1)
        for _ in range(copies):
            problem = find_by_name(name).with_sizes(
                {"rows": 2 ** dice.randint(3, 12)} if "rows =" in find_by_name(name).source else {}
            )
            asked = PromptFields(problem=problem, action=Action.DRAFT)
            facts = {
                "problem": name,
                "reference": problem.source,
                "family": find_by_name(name).family,
                "correct": True,
            }
            rows.append(row_of(Kind.DRAFT, prompts.messages(asked)[-1].content, answer, **facts))
        asked = asked.with_(
            action=Action.REPAIR,
            code=broken,
            feedback="compile_error: no attribute put\n# line 3: tl.put(",
        )
        rows.append(row_of(Kind.REPAIR, prompts.messages(asked)[-1].content, answer, **facts))
    rows = list({row.id: row for row in rows}.values())
    held = rows[0].model_copy(
        update={"split": Split.HELD_OUT_DEPTH, "id": "held", "completion": "never to be seen"}
    )
    write_rows(folder, [*rows, held])
    return folder
