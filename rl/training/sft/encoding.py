"""Rows to ids: the prompt exactly as the policy will write it, then the completion and its end.

One code path for every recipe.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from jinja2 import TemplateError

from kernelwright.agent.prompts import PromptFields, Prompts
from kernelwright.errors import InputError
from kernelwright.policies.base import PromptForm, Value
from kernelwright.rl.data.rows import Kind, Row
from kernelwright.rl.training.tokenizing import FIM_TOKENS
from kernelwright.store.models import Action
from kernelwright.tools.problem import Problem, ProblemError

if TYPE_CHECKING:
    import numpy as np

ENCODING_BATCH_ROWS = 1024
_REPAIR = re.compile(
    r"\Arepair\n(?P<reference>.*)\n# candidate\n(?P<code>.*)\n# (?P<feedback>\w+: [^\n]*(?:\n# [^\n]*)?)\Z",
    re.DOTALL,
)
"""The compact repair prompt, taken apart again."""


class RowSelection(Value):
    """The selection of rows that are trained on, and the form of their prompts."""

    form: PromptForm = PromptForm.COMPACT
    kinds: tuple[Kind, ...] = tuple(Kind)
    without_message: bool = False
    """Repairs without what the tools said: for the ablation."""
    repairs: int = 1
    """Times that each repair is trained on: beside drafts that are drawn by the hundred thousand they are few."""
    share: float = 1.0
    """The share of the rows that is taken, chosen by their id."""
    fim: float = 0.0
    """Share of the rows whose completion is given once more as fill-in-the-middle."""
    longest: int = 2048
    """Tokens; longer rows are left out and counted, never cut."""
    seed: int = 0


class PromptAndAnswer(NamedTuple):
    """A prompt and its answer, as text with the special tokens written out."""

    row: Row
    prompt: str
    completion: str
    again: bool = False


class EncodedRows(NamedTuple):
    """Rows one after the other: row i is `ids[starts[i]:starts[i + 1]]`, its first `prompts[i]` ids are the prompt."""

    ids: np.ndarray
    starts: np.ndarray
    prompts: np.ndarray

    def __len__(self) -> int:
        return len(self.prompts)

    @property
    def lengths(self) -> np.ndarray:
        """The tokens of each row, an array of shape (rows,)."""
        return self.starts[1:] - self.starts[:-1]


class EncodedCorpus(NamedTuple):
    """The rows of a corpus as tokens."""

    train: EncodedRows
    held: EncodedRows
    """Training rows that are kept back for measuring the loss."""
    counts: dict[str, int]
    """Rows read, trained on by kind, left out and why."""


class EncodedRow(NamedTuple):
    """A row as ids, made in whatever process, or why it is left out."""

    id: str
    kind: Kind
    label: str
    """The label under which it is counted."""
    prompt: Sequence[int] = ()
    answer: Sequence[int] = ()
    """Token ids of the answer, without its end token. Empty where the row is left out."""
    again: bool = False
    """Whether this is the second copy of a row, with a hole in its completion."""


def encode(
    rows: Iterable[Row], tokenizer: Any, choice: RowSelection, held_rows: int = 256
) -> EncodedCorpus:
    """Rows of a held-out split are never trained on. Raises InputError where nothing is left."""
    return gather_encoded_rows(
        encode_rows(rows, tokenizer, choice), tokenizer.eos_token_id, choice, held_rows
    )


def encode_rows(rows: Iterable[Row], tokenizer: Any, choice: RowSelection) -> Iterator[EncodedRow]:
    """Yields encoded rows in the order of the corpus, a thousand at a time."""
    writer, chosen = _Writer(tokenizer, choice), iter(rows)
    while batch := list(islice(chosen, ENCODING_BATCH_ROWS)):
        found = [one for row in batch for one in writer.pairs(row)]
        texts = [pair for pair in found if isinstance(pair, PromptAndAnswer)]
        prompts = iter(_ids(tokenizer, [pair.prompt for pair in texts]))
        answers = iter(_ids(tokenizer, [pair.completion for pair in texts]))
        for one in found:
            yield (
                _ready(one, next(prompts), next(answers), choice)
                if isinstance(one, PromptAndAnswer)
                else one
            )


def _ids(tokenizer: Any, texts: list[str]) -> list[list[int]]:
    return list(tokenizer(texts, add_special_tokens=False)["input_ids"]) if texts else []


def _ready(
    pair: PromptAndAnswer, prompt: list[int], answer: list[int], choice: RowSelection
) -> EncodedRow:
    row, kind = pair.row, Kind.FIM if pair.again else pair.row.kind
    if len(prompt) + len(answer) + 1 > choice.longest:
        reason = (
            f"left out: longer than {choice.longest:,} tokens (--set max_length=N raises the limit)"
        )
        return EncodedRow(row.id, kind, reason, again=pair.again)
    return EncodedRow(
        row.id, kind, f"trained on: {kind}{_unjudged(row)}", prompt, answer, pair.again
    )


def gather_encoded_rows(
    ready: Iterable[EncodedRow], end: int, choice: RowSelection, held_rows: int = 256
) -> EncodedCorpus:
    """Rows that are ready, put together; some are kept back for the loss. Raises InputError where nothing is left."""
    counts: Counter[str] = Counter()
    train, held = _Growing(), _Growing()
    for row in ready:
        counts["read"] += not row.again
        if not row.answer:
            counts[row.label] += 1
            continue
        kept_back = len(held) < held_rows and _share(row.id, "held") < 0.02
        times = choice.repairs if row.kind is Kind.REPAIR and not kept_back else 1
        for _ in range(times):
            (held if kept_back else train).add(row.prompt, [*row.answer, end])
        counts["kept back for the loss" if kept_back else row.label] += times
    if not len(train):
        found = ", ".join(f"{name} {number}" for name, number in counts.items()) or "no rows"
        raise InputError(f"nothing to train on ({found}): choose other --kinds, or another --data")
    return EncodedCorpus(train.tokens(), held.tokens(), dict(counts))


def _unjudged(row: Row) -> str:
    return "" if row.correct else " (not judged by the tools)"


class _Growing:
    """Ids in 32-bit arrays, so that a million rows fit in memory."""

    def __init__(self) -> None:
        from array import array

        self._ids, self._ends, self._prompts = array("i"), array("q", [0]), array("i")

    def __len__(self) -> int:
        return len(self._prompts)

    def add(self, prompt: Sequence[int], answer: Sequence[int]) -> None:
        """Appends one row of prompt and answer."""
        self._ids.extend(prompt)
        self._ids.extend(answer)
        self._ends.append(len(self._ids))
        self._prompts.append(len(prompt))

    def tokens(self) -> EncodedRows:
        """Returns the rows that were added."""
        import numpy as np

        return EncodedRows(
            np.frombuffer(self._ids, dtype=np.int32) if len(self) else np.zeros(0, np.int32),
            np.array(self._ends, dtype=np.int64),
            np.array(self._prompts, dtype=np.int32),
        )


class _Writer:
    """Texts of the rows that are chosen."""

    def __init__(self, tokenizer: Any, choice: RowSelection) -> None:
        self._tokenizer, self._choice = tokenizer, choice
        self._chat = Prompts(PromptForm.CHAT)
        if choice.fim and not all(token in tokenizer.get_vocab() for token in FIM_TOKENS):
            raise InputError(
                f"--fim needs a tokenizer with {', '.join(FIM_TOKENS)}: this one has no such tokens"
            )

    def pairs(self, row: Row) -> list[PromptAndAnswer | EncodedRow]:
        """One, or two where it is given once more with a hole; without ids where it is left out."""
        if reason := self._unwanted(row):
            return [EncodedRow(row.id, row.kind, reason)]
        choice = self._choice
        found: list[PromptAndAnswer | EncodedRow] = [self._pair(row)]
        if (
            choice.fim
            and row.kind not in (Kind.FIM, Kind.TEXT)
            and _share(row.id, "fim") < choice.fim
        ):
            found.append(_with_a_hole(row, choice.seed))
        return found

    def _unwanted(self, row: Row) -> str | None:
        choice = self._choice
        if row.split != "train":
            return "left out: held-out split"
        if row.correct is False:
            return "left out: not correct"
        if row.kind not in choice.kinds:
            return "left out: other kinds"
        return (
            "left out: --share"
            if choice.share < 1.0 and _share(row.id, "share") >= choice.share
            else None
        )

    def _pair(self, row: Row) -> PromptAndAnswer | EncodedRow:
        if row.kind in (Kind.FIM, Kind.TEXT):
            return PromptAndAnswer(row, row.prompt, row.completion)
        try:
            messages, answer = self._asked(row)
        except ProblemError:
            return EncodedRow(row.id, row.kind, "left out: reference not Python")
        try:
            text = self._tokenizer.apply_chat_template(
                messages, add_generation_prompt=True, tokenize=False
            )
        except TemplateError as error:
            return EncodedRow(
                row.id, row.kind, f"left out: the chat template refuses it ({str(error)[:80]})"
            )
        return PromptAndAnswer(row, str(text), answer)

    def _asked(self, row: Row) -> tuple[list[dict[str, str]], str]:
        if row.messages:
            return [message.model_dump(mode="json") for message in row.messages], row.completion
        prompt = without_message(row) if self._choice.without_message else row.prompt
        if self._choice.form is PromptForm.COMPACT or row.kind not in (Kind.DRAFT, Kind.REPAIR):
            return [{"role": "user", "content": prompt}], row.completion
        return chat_messages(row, prompt, self._chat), f"```python\n{row.completion.rstrip()}\n```"


def without_message(row: Row) -> str:
    """Returns the prompt of a repair without the tools' message; any other prompt is returned unchanged."""
    match = _REPAIR.match(row.prompt) if row.kind is Kind.REPAIR else None
    return row.prompt if match is None else row.prompt[: match.start("feedback")] + "wrong"


def chat_messages(row: Row, prompt: str, prompts: Prompts) -> list[dict[str, str]]:
    """A draft or a repair as the agent asks a policy that reads sentences.

    Raises ProblemError where the reference is not Python.
    """
    match = _REPAIR.match(prompt) if row.kind is Kind.REPAIR else None
    reference = row.reference or prompt.partition("\n")[2].partition("\n# candidate\n")[0]
    asked = PromptFields(
        problem=Problem(name=row.problem or "problem", source=reference),
        action=Action.REPAIR if row.kind is Kind.REPAIR else Action.DRAFT,
        target="an NVIDIA H100 or H200 (sm_90)",
        code=match["code"] if match else "",
        feedback=match["feedback"] if match else "",
    )
    return [{"role": str(m.role), "content": m.content} for m in prompts.messages(asked)]


def _with_a_hole(row: Row, seed: int) -> PromptAndAnswer:
    """Some lines out of the middle of the completion are asked for, between what comes before and after them
    (Bavarian et al. 2022).
    """
    dice = random.Random(f"{row.id}{seed}")
    lines = row.completion.splitlines(keepends=True)
    begin = dice.randrange(len(lines))
    end = begin + dice.randint(1, max(1, min(12, len(lines) - begin)))
    before, middle, after = "".join(lines[:begin]), "".join(lines[begin:end]), "".join(lines[end:])
    return PromptAndAnswer(
        row, f"{FIM_TOKENS[0]}{before}{FIM_TOKENS[1]}{after}{FIM_TOKENS[2]}", middle, again=True
    )


def _share(id: str, salt: str) -> float:
    """A number in [0, 1) that the row's id decides."""
    return random.Random(f"{salt}{id}").random()
