r"""Encodes rows to ids: the prompt exactly as the policy receives it, then the completion and its
end token.

All recipes use this path.

    Row(prompt="draft\nx = 1", completion="y = 2")
    -> "<|im_start|>user\ndraft\nx = 1<|im_end|>\n<|im_start|>assistant\n" + "y = 2" + "<|im_end|>"
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

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
"""Splits a compact repair prompt into reference, candidate and feedback."""


class RowSelection(Value):
    """The selection of training rows, and the form of their prompts."""

    form: PromptForm = PromptForm.COMPACT
    kinds: tuple[Kind, ...] = tuple(Kind)
    without_message: bool = False
    """Whether repairs omit the tools' message, for the ablation."""
    repairs: int = 1
    """Number of copies of each repair: repairs are few beside hundreds of thousands of drawn
    drafts.
    """
    share: float = 1.0
    """Share of the rows, chosen by their id."""
    fim: float = 0.0
    """Share of the rows with a second copy as fill-in-the-middle."""
    longest: int = 2048
    """Largest number of tokens; longer rows are left out and counted, never cut."""
    seed: int = 0


class RowTokenizer(Protocol):
    """The part of a tokenizer that encodes rows: transformers' own, or a LightTokenizer."""

    def __call__(self, texts: list[str], /, *, add_special_tokens: bool) -> Any:
        """Returns the ids of each text under `input_ids`."""

    def get_vocab(self) -> dict[str, int]:
        """Returns every token with its id."""
        ...

    def apply_chat_template(
        self, messages: list[dict[str, str]], /, *, add_generation_prompt: bool, tokenize: bool
    ) -> Any:
        """Returns the text of a conversation."""


class PromptAndAnswer(NamedTuple):
    """A prompt and its answer as text, special tokens included."""

    row: Row
    prompt: str
    completion: str
    again: bool = False


class EncodedRows(NamedTuple):
    """Concatenated rows: row i is `ids[starts[i]:starts[i + 1]]`, and its first `prompts[i]` ids
    are the prompt.
    """

    ids: np.ndarray
    starts: np.ndarray
    prompts: np.ndarray

    def __len__(self) -> int:
        return len(self.prompts)

    @property
    def lengths(self) -> np.ndarray:
        """Number of tokens of each row, of shape (rows,)."""
        return self.starts[1:] - self.starts[:-1]


class EncodedCorpus(NamedTuple):
    """The rows of a corpus as tokens."""

    train: EncodedRows
    held: EncodedRows
    """Training rows reserved for measuring the loss."""
    counts: dict[str, int]
    """Number of rows read, of rows trained on by kind, and of rows left out by reason."""


class EncodedRow(NamedTuple):
    """A row as ids, from any process, or the reason against it."""

    id: str
    kind: Kind
    label: str
    """The label of the row in the counts."""
    prompt: Sequence[int] = ()
    answer: Sequence[int] = ()
    """Token ids of the answer, without its end token. Empty if the row is left out."""
    again: bool = False
    """Whether this is the second copy of a row, with a hole in its completion."""


def encode(
    rows: Iterable[Row],
    tokenizer: Any,
    choice: RowSelection,
    held_rows: int = 256,
) -> EncodedCorpus:
    """Encodes rows; rows of a held-out split are never trained on. Raises InputError if no row
    remains.
    """
    encoded = encode_rows(rows, tokenizer, choice)
    return gather_encoded_rows(encoded, tokenizer.eos_token_id, choice, held_rows)


def encode_rows(
    rows: Iterable[Row], tokenizer: RowTokenizer, choice: RowSelection
) -> Iterator[EncodedRow]:
    """Yields encoded rows in the order of the corpus, encoded a thousand at a time."""
    writer, remaining = _Writer(tokenizer, choice), iter(rows)
    while batch := list(islice(remaining, ENCODING_BATCH_ROWS)):
        results: list[PromptAndAnswer | EncodedRow] = []
        for row in batch:
            results += writer.pairs(row)
        pairs = [result for result in results if isinstance(result, PromptAndAnswer)]
        # One call for many texts: the tokenizer works on them in parallel.
        prompts = iter(_ids(tokenizer, [pair.prompt for pair in pairs]))
        answers = iter(_ids(tokenizer, [pair.completion for pair in pairs]))
        for result in results:
            if isinstance(result, PromptAndAnswer):
                yield _ready(result, next(prompts), next(answers), choice)
            else:
                yield result


def _ids(tokenizer: RowTokenizer, texts: list[str]) -> list[list[int]]:
    return list(tokenizer(texts, add_special_tokens=False)["input_ids"]) if texts else []


def _ready(
    pair: PromptAndAnswer, prompt: list[int], answer: list[int], choice: RowSelection
) -> EncodedRow:
    row = pair.row
    kind = Kind.FIM if pair.again else row.kind
    if len(prompt) + len(answer) + 1 > choice.longest:
        reason = (
            f"left out: longer than {choice.longest:,} tokens (--set max_length=N raises the limit)"
        )
        return EncodedRow(row.id, kind, reason, again=pair.again)
    label = f"trained on: {kind}{_unjudged(row)}"
    return EncodedRow(row.id, kind, label, prompt, answer, pair.again)


def gather_encoded_rows(
    ready: Iterable[EncodedRow], end: int, choice: RowSelection, held_rows: int = 256
) -> EncodedCorpus:
    """Concatenates encoded rows and reserves some for the loss. Raises InputError if no row
    remains.
    """
    counts: Counter[str] = Counter()
    train, held = _Growing(), _Growing()
    for row in ready:
        counts["read"] += not row.again
        if not row.answer:
            counts[row.label] += 1
            continue
        # About 2 % of the rows, chosen by their id, measure the loss.
        kept_back = len(held) < held_rows and _share(row.id, "held") < 0.02
        times = choice.repairs if row.kind is Kind.REPAIR and not kept_back else 1
        for _ in range(times):
            (held if kept_back else train).add(row.prompt, [*row.answer, end])
        counts["kept back for the loss" if kept_back else row.label] += times
    if not len(train):
        listed = ", ".join(f"{name} {number}" for name, number in counts.items()) or "no rows"
        raise InputError(f"nothing to train on ({listed}): choose other --kinds, or another --data")
    return EncodedCorpus(train.tokens(), held.tokens(), dict(counts))


def _unjudged(row: Row) -> str:
    return "" if row.correct else " (not judged by the tools)"


class _Growing:
    """Grows ids in 32-bit arrays, so a million rows fit in memory."""

    def __init__(self) -> None:
        from array import array

        self._ids, self._ends, self._prompts = array("i"), array("q", [0]), array("i")

    def __len__(self) -> int:
        return len(self._prompts)

    def add(self, prompt: Sequence[int], answer: Sequence[int]) -> None:
        """Appends a row of prompt and answer."""
        self._ids.extend(prompt)
        self._ids.extend(answer)
        self._ends.append(len(self._ids))
        self._prompts.append(len(prompt))

    def tokens(self) -> EncodedRows:
        """Returns all appended rows."""
        import numpy as np

        # frombuffer refuses an empty buffer.
        ids = np.frombuffer(self._ids, dtype=np.int32) if len(self) else np.zeros(0, np.int32)
        ends = np.array(self._ends, dtype=np.int64)
        return EncodedRows(ids, ends, np.array(self._prompts, dtype=np.int32))


class _Writer:
    """Writes the texts of selected rows."""

    def __init__(self, tokenizer: RowTokenizer, choice: RowSelection) -> None:
        self._tokenizer, self._choice = tokenizer, choice
        self._chat = Prompts(PromptForm.CHAT)
        if choice.fim and not set(FIM_TOKENS) <= set(tokenizer.get_vocab()):
            raise InputError(
                f"--fim needs a tokenizer with {', '.join(FIM_TOKENS)}: this one has no such tokens"
            )

    def pairs(self, row: Row) -> list[PromptAndAnswer | EncodedRow]:
        """Returns the row's text, and a second text with a hole if selected; an EncodedRow
        without ids if left out.
        """
        if reason := self._unwanted(row):
            return [EncodedRow(row.id, row.kind, reason)]
        choice = self._choice
        pairs: list[PromptAndAnswer | EncodedRow] = [self._pair(row)]
        may_have_hole = bool(choice.fim) and row.kind not in (Kind.FIM, Kind.TEXT)
        if may_have_hole and _share(row.id, "fim") < choice.fim:
            pairs.append(_with_a_hole(row, choice.seed))
        return pairs

    def _unwanted(self, row: Row) -> str | None:
        """Returns the reason against a row, or None."""
        choice = self._choice
        if row.split != "train":
            return "left out: held-out split"
        if row.correct is False:
            return "left out: not correct"
        if row.kind not in choice.kinds:
            return "left out: other kinds"
        if choice.share < 1.0 and _share(row.id, "share") >= choice.share:
            return "left out: --share"
        return None

    def _pair(self, row: Row) -> PromptAndAnswer | EncodedRow:
        if row.kind in (Kind.FIM, Kind.TEXT):
            return PromptAndAnswer(row, row.prompt, row.completion)
        try:
            messages, answer = self._messages_and_answer(row)
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

    def _messages_and_answer(self, row: Row) -> tuple[list[dict[str, str]], str]:
        if row.messages:
            return [message.model_dump(mode="json") for message in row.messages], row.completion
        prompt = without_message(row) if self._choice.without_message else row.prompt
        if self._choice.form is PromptForm.COMPACT or row.kind not in (Kind.DRAFT, Kind.REPAIR):
            return [{"role": "user", "content": prompt}], row.completion
        return chat_messages(row, prompt, self._chat), f"```python\n{row.completion.rstrip()}\n```"


def without_message(row: Row) -> str:
    """Returns the prompt of a repair without the tools' message; any other prompt is unchanged."""
    match = _REPAIR.match(row.prompt) if row.kind is Kind.REPAIR else None
    return row.prompt if match is None else row.prompt[: match.start("feedback")] + "wrong"


def chat_messages(row: Row, prompt: str, prompts: Prompts) -> list[dict[str, str]]:
    """Returns a draft or a repair as the agent's messages to a chat policy.

    Raises ProblemError if the reference is not Python.
    """
    match = _REPAIR.match(prompt) if row.kind is Kind.REPAIR else None
    reference = row.reference or prompt.partition("\n")[2].partition("\n# candidate\n")[0]
    fields = PromptFields(
        problem=Problem(name=row.problem or "problem", source=reference),
        action=Action.REPAIR if row.kind is Kind.REPAIR else Action.DRAFT,
        target="an NVIDIA H100 or H200 (sm_90)",
        code=match["code"] if match else "",
        feedback=match["feedback"] if match else "",
    )
    return [{"role": str(m.role), "content": m.content} for m in prompts.messages(fields)]


def _with_a_hole(row: Row, seed: int) -> PromptAndAnswer:
    """Returns a fill-in-the-middle text: lines before and after a hole in the completion as
    prompt, the hole's lines as answer (Bavarian et al. 2022).
    """
    dice = random.Random(f"{row.id}{seed}")
    lines = row.completion.splitlines(keepends=True)
    begin = dice.randrange(len(lines))
    # A hole of at most twelve lines.
    end = begin + dice.randint(1, max(1, min(12, len(lines) - begin)))
    before, middle, after = "".join(lines[:begin]), "".join(lines[begin:end]), "".join(lines[end:])
    return PromptAndAnswer(
        row, f"{FIM_TOKENS[0]}{before}{FIM_TOKENS[1]}{after}{FIM_TOKENS[2]}", middle, again=True
    )


def _share(id: str, salt: str) -> float:
    """Returns a number in [0, 1) determined by the row's id."""
    return random.Random(f"{salt}{id}").random()
