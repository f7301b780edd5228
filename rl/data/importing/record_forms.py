r"""Recognizes the form of a record by its fields, and converts it to rows: chats, pairs of texts,
preferences, plain text.

Worked example: the Alpaca record `{"instruction": "Write", "input": "softmax", "output": "import
triton"}` becomes a row of the kind `instruct` with the prompt `Write\nsoftmax` and the completion
`import triton`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from kernelwright.errors import InputError
from kernelwright.policies.base import Message, Role
from kernelwright.rl.data.importing.containers import ACCEPTED_FORMS, ImportedRecord
from kernelwright.rl.data.importing.formats import ImportOptions
from kernelwright.rl.data.rows import Kind, Row, row_of

CONVERSATION_FIELDS = ("messages", "conversations", "conversation")
TEXT_PAIR_FIELDS = (
    ("prompt", "completion"), ("prompt", "response"), ("prompt", "chosen"), ("instruction", "output"),
    ("instruction", "response"), ("question", "answer"), ("query", "response"), ("input", "output"),
)  # fmt: skip
"""Field names of prompt and answer: of trl, OpenAI's completions, preference data, Alpaca, Dolly,
question answering.
"""
GROUP_FIELD = "completions"
"""Several replies to the same prompt, each with its verdict, as written by `agent export --format
grpo`.
"""
CHAT_ROLES = {
    "system": Role.SYSTEM, "developer": Role.SYSTEM, "user": Role.USER, "human": Role.USER,
    "assistant": Role.ASSISTANT, "gpt": Role.ASSISTANT, "model": Role.ASSISTANT, "bot": Role.ASSISTANT,
    "chatgpt": Role.ASSISTANT,
}  # fmt: skip
"""Roles of messages by their names in OpenAI's chats, ShareGPT and Gemma's template."""
FIM_MARKS = ("<|fim_prefix|>", "<fim_prefix>", "<PRE>")
"""First tokens of fill-in-the-middle prompts, as named by several models."""
KNOWN_FIELDS = frozenset(
    {*CONVERSATION_FIELDS, *(name for pair in TEXT_PAIR_FIELDS for name in pair), GROUP_FIELD, "text", "system",
     "label", "license", "licence", "report", *Row.model_fields}
)  # fmt: skip
"""All fields of a record with a meaning here."""


class UnusableRecord(Exception):
    """A record of a known form without a row. The text is the counted reason."""


class _Example(NamedTuple):
    """A prompt and its answer before conversion to a row."""

    prompt: Sequence[Message]
    completion: str
    is_correct: bool | None


def rows_of_record(
    record: ImportedRecord, kind: Kind | None, source: str, options: ImportOptions
) -> Iterator[Row]:
    """Yields the rows of a record. `kind`: the task of all rows, if fixed by the corpus.

    Raises InputError for an unknown form, and UnusableRecord for a record of a known form without
    a row.
    """
    fields = record.fields
    if _is_row(fields):
        yield Row(**_filled(fields))
        return
    if "text" in fields and not _has_pair(fields):
        yield _text_row(record, source, options)
        return
    licence = fields.get("license") or fields.get("licence")
    facts = {
        "problem": _text(fields.get("problem")), "source": source, "provenance": record.location,
        "licence": licence if isinstance(licence, str) else options.licence,
    }  # fmt: skip
    for example in _examples(record):
        yield _row_of_example(example, kind, facts)


def _is_row(fields: Mapping[str, Any]) -> bool:
    """Returns whether a record is a row written by Kernelwright."""
    return {"id", "kind", "prompt", "completion", "split"} <= fields.keys() and fields[
        "kind"
    ] in list(Kind)


def _filled(fields: Mapping[str, Any]) -> dict[str, Any]:
    cells = {
        name: value
        for name, value in fields.items()
        if name in Row.model_fields and value is not None
    }
    return {**cells, "compile": dict(cells.get("compile") or ())}


def _has_pair(fields: Mapping[str, Any]) -> bool:
    names = fields.keys()
    if any(name in names for name in CONVERSATION_FIELDS):
        return True
    return any({*pair} <= names for pair in TEXT_PAIR_FIELDS)


def _text_row(record: ImportedRecord, source: str, options: ImportOptions) -> Row:
    text = _text(record.fields["text"])
    if not text.strip():
        raise UnusableRecord("empty")
    return row_of(
        Kind.TEXT, "", text, source=source, licence=options.licence, provenance=record.location,
        correct=_verdict(record.fields),
    )  # fmt: skip


def _row_of_example(example: _Example, kind: Kind | None, facts: Mapping[str, Any]) -> Row:
    prompt = "\n\n".join(message.content for message in example.prompt)
    if not prompt.strip() or not example.completion.strip():
        raise UnusableRecord("empty")
    # A single user message needs no stored conversation.
    is_single = len(example.prompt) == 1 and example.prompt[0].role is Role.USER
    chosen = kind or (Kind.FIM if prompt.startswith(FIM_MARKS) else Kind.INSTRUCT)
    messages = () if is_single else tuple(example.prompt)
    return row_of(
        chosen, prompt, example.completion, messages=messages, correct=example.is_correct, **facts
    )


def _examples(record: ImportedRecord) -> Iterator[_Example]:
    fields = record.fields
    opening = _opening(fields)
    for name in CONVERSATION_FIELDS:
        if isinstance(fields.get(name), list):
            yield _conversation(record, [*opening, *_messages(fields[name])])
            return
    if "prompt" in fields and isinstance(fields.get(GROUP_FIELD), list):
        prompt = [*opening, *_messages(fields["prompt"])]
        for reply in fields[GROUP_FIELD]:
            yield _Example(prompt, _text(reply.get("text")), _verdict(reply))
        return
    if isinstance(fields.get("chosen"), list) and "prompt" not in fields:
        yield _answered([*opening, *_messages(fields["chosen"])], _verdict(fields))
        return
    yield _pair(record, opening)


def _conversation(record: ImportedRecord, messages: Sequence[Message]) -> _Example:
    """Returns the example of a conversation; a logged turn (`agent export --format jsonl`) has
    its reply and verdict in other fields.
    """
    reply, report = record.fields.get("completion"), record.fields.get("report")
    if not isinstance(reply, dict):
        return _answered(messages, _verdict(record.fields))
    return _Example(
        messages, _text(reply.get("text")), _verdict(report) if isinstance(report, dict) else None
    )


def _pair(record: ImportedRecord, opening: Sequence[Message]) -> _Example:
    fields = record.fields
    for prompt_name, answered in TEXT_PAIR_FIELDS:
        if _is_text_or_chat(fields.get(prompt_name)) and _is_text_or_chat(fields.get(answered)):
            prompt = [*opening, *_messages(fields[prompt_name])]
            # Alpaca's input belongs to the instruction.
            if prompt_name == "instruction" and _text(fields.get("input")).strip():
                prompt[-1] = Message(
                    role=Role.USER, content=f"{prompt[-1].content}\n{fields['input']}"
                )
            return _answered(
                [*prompt, *_messages(fields[answered], Role.ASSISTANT)], _verdict(fields)
            )
    names = ", ".join(map(str, list(fields)[:8])) or "none"
    raise InputError(
        f"{record.location} is of no known form (its fields: {names}): {ACCEPTED_FORMS}"
    )


def _opening(fields: Mapping[str, Any]) -> list[Message]:
    """Returns the system message beside a conversation, if there is one."""
    system = _text(fields.get("system"))
    return [Message(role=Role.SYSTEM, content=system)] if system.strip() else []


def _answered(messages: Sequence[Message], is_correct: bool | None) -> _Example:
    """Splits a conversation at its last answer: the answer is learnt, all earlier messages are
    the prompt.
    """
    answers = [index for index, message in enumerate(messages) if message.role is Role.ASSISTANT]
    if not answers:
        raise UnusableRecord("conversations without an answer of the assistant")
    return _Example(messages[: answers[-1]], messages[answers[-1]].content, is_correct)


def _messages(value: Any, author: Role = Role.USER) -> list[Message]:
    """Reads a text, or a list of messages with role and content (ShareGPT: from and value)."""
    if isinstance(value, str):
        return [Message(role=author, content=value)]
    return [_message(entry) for entry in value]


def _message(entry: object) -> Message:
    if not isinstance(entry, dict):
        raise UnusableRecord("conversations with a message that has no role")
    name = str(entry.get("role") or entry.get("from") or "").lower()
    if name not in CHAT_ROLES:
        raise UnusableRecord(
            f"conversations with a message of {name or 'nobody'}: system, user and assistant are read"
        )
    content = entry["content"] if entry.get("content") is not None else entry.get("value")
    return Message(role=CHAT_ROLES[name], content=_text(content))


def _text(value: object) -> str:
    """Returns a text, or the joined texts of content in parts; anything else is empty."""
    if isinstance(value, list):
        return "".join(_text(part.get("text")) for part in value if isinstance(part, dict))
    return value if isinstance(value, str) else ""


def _is_text_or_chat(value: object) -> bool:
    return isinstance(value, str) or (isinstance(value, list) and bool(value))


def _verdict(fields: Mapping[str, Any]) -> bool | None:
    """Returns whether a record declares its answer correct: by `correct`, or by trl's `label` of
    a good reply.
    """
    for name in ("correct", "label"):
        if isinstance(fields.get(name), bool):
            return bool(fields[name])
    return None
