"""Answers given beforehand: for tests, for replay, and for judging a kernel at hand through the whole loop."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from kernelwright.policies.base import (
    Capabilities,
    Completion,
    FinishReason,
    PolicyRefused,
    PromptForm,
    Request,
    Trouble,
    Usage,
    Value,
)
from kernelwright.policies.deadlines import check_deadline, latest_deadline, seconds_until


class ScriptPart(Value):
    """Answers for the prompts that hold `when`; the empty string fits every prompt."""

    when: str = ""
    answers: tuple[str | Completion, ...]


class Script(Value):
    """The parts are tried in order; in a part, a thread's n-th turn gets the n-th answer."""

    parts: tuple[ScriptPart, ...]
    seconds: float = Field(default=0.0, ge=0.0)
    """Seconds each answer takes."""
    again: bool = False
    """Start from the first answer when the last has been given."""
    prompt_form: PromptForm = PromptForm.CHAT


class ScriptedPolicy:
    """Returns the answers of a script in order, and raises PolicyRefused at the script's end."""

    def __init__(self, script: Script | Sequence[str | Completion], name: str = "scripted") -> None:
        self._script = (
            script
            if isinstance(script, Script)
            else Script(parts=(ScriptPart(answers=tuple(script)),))
        )
        self._name = name
        self._answer_counts: dict[tuple[str | None, int], int] = {}
        self._lock = threading.Lock()

    @property
    def name(self) -> str:
        """The name given; `scripted` otherwise."""
        return self._name

    @property
    def capabilities(self) -> Capabilities:
        """Returns token ids and log-probs as capabilities if every answer was recorded with them."""
        whole = [answer for part in self._script.parts for answer in part.answers]
        recorded = bool(whole) and all(
            isinstance(answer, Completion) and answer.token_ids for answer in whole
        )
        return Capabilities(token_ids=recorded, logprobs=recorded, seeds=True, at_once=1_000_000)

    @property
    def prompt_form(self) -> PromptForm:
        """The form the script says."""
        return self._script.prompt_form

    def close(self) -> None:
        """Does nothing: a script holds no resources."""

    def sample(self, requests: Sequence[Request]) -> list[Completion]:
        """Returns the next answer of the first part that fits each prompt. Raises PolicyRefused
        at the end of the script.
        """
        started = time.monotonic()
        finished: dict[int, Completion] = {}
        for index, request in enumerate(requests):
            try:
                finished[index] = self._answer(request)
            except PolicyRefused as error:
                error.finished = finished
                raise
        if self._script.seconds:
            deadline = latest_deadline(requests)
            remaining = seconds_until(deadline)
            time.sleep(
                self._script.seconds if remaining is None else min(self._script.seconds, remaining)
            )
            check_deadline(deadline)
        latency = time.monotonic() - started
        return [completion.with_(latency=latency) for completion in finished.values()]

    def _answer(self, request: Request) -> Completion:
        prompt = "\n".join(message.content for message in request.messages)
        for part_index, part in enumerate(self._script.parts):
            if part.when in prompt:
                return self._completion(self._pick(part_index, part, request), prompt, request)
        raise PolicyRefused(
            f"{self._name} has no part for this prompt: add one without `when` to answer every prompt",
            Trouble.SCRIPT,
        )

    def _pick(self, part_index: int, part: ScriptPart, request: Request) -> str | Completion:
        turn = request.turn
        if turn is None:
            with self._lock:
                turn = self._answer_counts.get((request.thread, part_index), 0)
                self._answer_counts[(request.thread, part_index)] = turn + 1
        if self._script.again and part.answers:
            turn %= len(part.answers)
        if turn >= len(part.answers):
            raise PolicyRefused(
                f"{self._name} has {len(part.answers)} answer{'s' * (len(part.answers) != 1)}, and turn {turn + 1} was "
                "asked for: "
                "add answers, or set `again` to true",
                Trouble.SCRIPT,
            )
        return part.answers[turn]

    def _completion(self, answer: str | Completion, prompt: str, request: Request) -> Completion:
        if isinstance(answer, Completion):
            return answer
        # Words are counted as tokens, so that token budgets can be tested; they cost nothing.
        usage = Usage(
            prompt_tokens=len(prompt.split()), completion_tokens=len(answer.split()), dollars=0.0
        )
        return Completion(
            text=answer,
            finish=FinishReason.STOP,
            usage=usage,
            policy=self._name,
            seed=request.sampling.seed,
        )


def open_scripted(path: Path) -> ScriptedPolicy:
    """Opens a script file.

    `.json` holds a list of answers, or an object with `parts` or `answers`; `.jsonl` an answer
    per line; `.py` a kernel.
    Any other file is a single answer. An answer is a text, or an object with `text` (or a
    recorded `Completion`).
    """
    try:
        text = path.read_text(encoding="utf-8")
        script = _read(path, text)
    except OSError as error:
        raise PolicyRefused(
            f"cannot read the script {path}: {error.strerror or error}", Trouble.SCRIPT
        ) from error
    except (ValueError, ValidationError) as error:
        raise PolicyRefused(
            f"{path} is not a script: {_first_line(error)}", Trouble.SCRIPT
        ) from error
    return ScriptedPolicy(script, name=f"scripted:{path}")


def _read(path: Path, text: str) -> Script:
    if path.suffix == ".jsonl":
        return _script([json.loads(line) for line in text.splitlines() if line.strip()])
    if path.suffix == ".json":
        return _script(json.loads(text))
    return _script([f"```python\n{text.rstrip()}\n```" if path.suffix == ".py" else text])


def _script(content: object) -> Script:
    if isinstance(content, list):
        content = {"answers": content}
    if not isinstance(content, dict):
        raise ValueError("expected a list of answers, or an object with `answers` or `parts`")
    content = dict(content)
    if "answers" in content:
        content["parts"] = [*content.get("parts", []), {"answers": content.pop("answers")}]
    content["parts"] = [_part(part) for part in content.get("parts", [])]
    script = Script.model_validate(content)
    if not any(part.answers for part in script.parts):
        raise ValueError("it holds no answer")
    return script


def _part(part: object) -> Any:
    if not isinstance(part, dict) or not isinstance(part.get("answers"), list):
        raise ValueError("a part is an object with a list `answers`")
    return {**part, "answers": [_plain(answer) for answer in part["answers"]]}


def _plain(answer: object) -> Any:
    """`{"text": ...}` alone is the text; with more it must be a whole completion."""
    return answer["text"] if isinstance(answer, dict) and set(answer) == {"text"} else answer


def _first_line(error: Exception) -> str:
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        return f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}"
    return str(error).splitlines()[0]
