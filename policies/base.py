"""Interface of every policy: frozen values, one protocol, two kinds of error. Imports pydantic
and nothing heavy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Any, Protocol, Self, runtime_checkable

from pydantic import BaseModel, ConfigDict, Field, field_validator


class Value(BaseModel):
    """Base of frozen values; an unknown field name is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    def with_(self, **changes: Any) -> Self:
        """A copy with other values in some fields. They are not validated again."""
        return self.model_copy(update=changes)


class Role(StrEnum):
    """The author of a message in a conversation."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"


class Message(Value):
    """A message of a conversation with a policy."""

    role: Role
    content: str


class Sampling(Value):
    """The sampling settings of a completion. The defaults sample from the model's own distribution, which training
    needs.
    """

    temperature: float = Field(default=1.0, ge=0.0)
    """The temperature; 0 is greedy."""
    top_p: float = Field(default=1.0, gt=0.0, le=1.0)
    top_k: int | None = Field(default=None, ge=1)
    min_p: float = Field(default=0.0, ge=0.0, le=1.0)
    repetition_penalty: float = Field(default=1.0, gt=0.0)
    max_tokens: int = Field(default=2048, ge=1)
    seed: int | None = None
    """Seed of the sampling. None: the policy draws a seed if it can, and records it in the
    completion.
    """
    stop: tuple[str, ...] = ()
    """The text ends before the first of these; the token ids keep the tokens that spelt it."""
    thinking: bool | None = None
    """Whether the chat template lets the model think (`enable_thinking`); None: the template's own
    default.
    """
    thinking_tokens: int | None = Field(default=None, ge=1)
    """Maximum number of tokens of a thought. A longer one is ended, by tokens that the model did not
    draw; their log-prob is 0.
    """

    @property
    def exact(self) -> bool:
        """Whether the distribution sampled is softmax(logits / temperature) itself, so that its log-probs fit
        training.
        """
        whole = (
            self.top_p == 1.0
            and self.top_k is None
            and self.min_p == 0.0
            and self.repetition_penalty == 1.0
        )
        return whole and self.temperature > 0.0


class Request(Value):
    """Request for one completion."""

    messages: tuple[Message, ...]
    sampling: Sampling = Sampling()
    adapter: str | None = None
    """A LoRA adapter for this request alone: a folder, or the name under which a server has it."""
    thread: str | None = None
    """Name of the conversation. Only the scripted policy reads this: each thread has its own
    place in the script.
    """
    turn: int | None = None
    """Number of completions the thread has had; lets a scripted run continue after it was
    killed.
    """
    fault: str | None = None
    """Fault of the candidate to repair; None for a first draft."""
    deadline: float | None = Field(default=None, exclude=True)
    """Time of the monotonic clock of this machine at which nobody waits for the answer any more; never stored."""

    def repeated(self, count: int) -> list[Request]:
        """Returns `count` independent requests. A given seed is counted up: seed, seed + 1, ..."""
        seed = self.sampling.seed
        if seed is None:
            return [self] * count
        return [self.with_(sampling=self.sampling.with_(seed=seed + step)) for step in range(count)]


class Usage(Value):
    """Cost of a completion: tokens of prompt and answer, and dollars if the price is known."""

    prompt_tokens: int
    completion_tokens: int
    cached_prompt_tokens: int = 0
    """Number of prompt tokens the server had cached, if reported."""
    dollars: float | None = None
    """Dollars; None for an unknown price, 0 for policies that run in this process."""
    estimated: bool = False
    """The server did not count; the counts are guessed from the length of the text."""

    def plus(self, other: Usage) -> Usage:
        """Returns the sum; the dollars are unknown if either cost is."""
        dollars = (
            None if self.dollars is None or other.dollars is None else self.dollars + other.dollars
        )
        return Usage(
            prompt_tokens=self.prompt_tokens + other.prompt_tokens,
            completion_tokens=self.completion_tokens + other.completion_tokens,
            cached_prompt_tokens=self.cached_prompt_tokens + other.cached_prompt_tokens,
            dollars=dollars,
            estimated=self.estimated or other.estimated,
        )


class PaidReply(Value):
    """A paid answer without a usable reply; recorded so that its cost is counted."""

    text: str
    """Body of the answer, as text."""
    usage: Usage


class ReplyKind(StrEnum):
    """Content of a reply: text, a tool call, a refusal, or reasoning alone."""

    TEXT = "text"
    TOOL_CALL = "tool_call"
    """The model calls a tool, although none is offered."""
    REFUSAL = "refusal"
    """The model declines to answer."""
    REASONING = "reasoning"
    """Reasoning, and no answer behind it."""
    EMPTY = "empty"


class FinishReason(StrEnum):
    """The reason why a completion ends."""

    STOP = "stop"
    """The model ended, or a stop string came."""
    LENGTH = "length"
    FILTERED = "filtered"
    """The server withheld the text."""
    OTHER = "other"
    """The server said something else, or nothing."""


class Origin(StrEnum):
    """The author of a candidate's text."""

    POLICY = "policy"
    """A model, or a person who answers in its place."""
    COMPILER = "compiler"
    """torch's compiler. No model sampled the text, so GRPO cannot train on it."""
    TRANSFORMATION = "transformation"
    """A pattern of policies/transformations. The revision of its completion names the pattern."""
    FILE = "file"
    """A file of the user's."""

    @property
    def is_draft(self) -> bool:
        """Whether a program drafted the text from the problem, without any model."""
        return self in (Origin.COMPILER, Origin.TRANSFORMATION)


class Completion(Value):
    """The answer of a policy, with all data for exact training."""

    text: str
    finish: FinishReason
    usage: Usage
    policy: str
    """The name `open_policy` opens."""
    kind: ReplyKind = ReplyKind.TEXT
    """Content of the reply, for the message about a turn without code. Not stored."""
    origin: Origin = Origin.POLICY
    prompt_token_ids: tuple[int, ...] | None = None
    token_ids: tuple[int, ...] | None = None
    """Every token drawn, with the end token and the stop string's. These are never made by tokenising the text again.
    """
    logprobs: tuple[float, ...] | None = None
    """Log-probability of each token drawn (natural logarithm), under the distribution sampled if
    `exact` is true.
    """
    exact: bool = False
    """Ids and log-probs are here, and are those of softmax(logits / temperature): fit for GRPO."""
    revision: str | None = None
    """Fingerprint of the weights, the server's own version string, or the name of a
    transformation.
    """
    adapter_revision: str | None = None
    tokenizer_hash: str | None = None
    chat_template_hash: str | None = None
    seed: int | None = None
    """Seed used, including a seed drawn by the policy."""
    latency: float = Field(default=0.0, ge=0.0)
    """Seconds from the question to this answer."""

    @field_validator("text", "revision")
    @classmethod
    def _storable(cls, text: str | None) -> str | None:
        """Lone surrogates and NUL, which a server can send and no database takes, become U+FFFD."""
        return None if text is None else storable_text(text)


def storable_text(text: str) -> str:
    """Returns the text with lone surrogates and NUL, which databases refuse, replaced by U+FFFD."""
    return (
        text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").replace("\0", "\ufffd")
    )


class PromptForm(StrEnum):
    """The form of the prompt a policy was trained on."""

    CHAT = "chat"
    """Full instructions in sentences, as a chat."""
    COMPACT = "compact"
    """Reference, code and trimmed message only; the training form of small policies."""


class Capabilities(Value):
    """Abilities of a policy besides sampling text. Callers check these before they rely on an
    ability.
    """

    token_ids: bool = False
    logprobs: bool = False
    adapters: bool = False
    seeds: bool = False
    """Whether the same request with the same seed gives the same completion."""
    at_once: int = 1
    """Number of requests a call of `sample` works on in parallel."""
    context: int | None = None
    """Context length in tokens, prompt and completion together; None if unknown."""
    device: str = ""
    """Computing device in this process: cpu, cuda or cuda:N. Empty: the policy computes
    elsewhere.
    """


@runtime_checkable
class Policy(Protocol):
    """Source of completions. `sample` returns one completion per request, in order."""

    @property
    def name(self) -> str:
        """The policy as the user named it; stored with each trajectory."""
        ...

    @property
    def capabilities(self) -> Capabilities:
        """Returns which fields the completions hold (token ids, log-probs), the device, and the
        number of parallel requests.
        """
        ...

    @property
    def prompt_form(self) -> PromptForm:
        """Whether it is asked in sentences or in the short form of the small policy."""
        ...

    def sample(self, requests: Sequence[Request]) -> list[Completion]:
        """Answers the requests. Raises PolicyUnavailable or PolicyRefused; completions finished
        by
        then are in the error's `finished`.
        """
        ...

    def close(self) -> None:
        """Gives back processes, memory and connections. A second call does nothing."""
        ...


@runtime_checkable
class StopsAnswering(Protocol):
    """A policy that computes on this machine and can abandon unfinished answers."""

    def stop_answering(self) -> None:
        """Nobody is answered any more: who waits gets KeyboardInterrupt, within a step of the model. For good."""
        ...


@runtime_checkable
class HasSeveralAuthors(Protocol):
    """A policy whose completions are written by several authors."""

    on_author: Callable[[Origin], None]
    """Called with the author of a completion when that author begins to write it."""


class Trouble(StrEnum):
    """The cause of a policy's error."""

    BUSY = "busy"
    """HTTP 429: too many requests for now."""
    SERVER = "server"
    """HTTP 5xx: the server failed."""
    TIMEOUT = "timeout"
    """Too slow, or an answer without an end."""
    CONNECTION = "connection"
    """Refused, reset, or no such host."""
    CUT_OFF = "cut_off"
    """The answer stopped in the middle."""
    NONSENSE = "nonsense"
    """The answer does not have the form of the protocol."""
    NOT_THE_PROTOCOL = "not_the_protocol"
    """The address serves something else."""
    KEY = "key"
    QUOTA = "quota"
    """The account has no credit left."""
    MODEL = "model"
    """Missing, or no matching model, adapter or tokenizer."""
    REQUEST = "request"
    """The server will not have this request."""
    CONTEXT = "context"
    """The prompt does not fit the model."""
    MEMORY = "memory"
    NAME = "name"
    """There is no such form of policy."""
    SCRIPT = "script"
    """A script that cannot be read, or has no answer left."""
    PRICES = "prices"
    NOT_INSTALLED = "not_installed"


class PolicyError(Exception):
    """Failure of a policy to answer. The message is one line and says what to do."""

    def __init__(
        self, message: str, trouble: Trouble, *, finished: Mapping[int, Completion] | None = None
    ) -> None:
        super().__init__(" ".join(message.split()))
        self.trouble = trouble
        self.finished: dict[int, Completion] = dict(finished or {})
        """Completions before the error, by index in the list of requests."""
        self.paid: dict[int, tuple[PaidReply, ...]] = {}
        """Paid answers without a reply, by the place of their request in the list."""

    def add(self, words: str) -> None:
        """Adds words to the message."""
        self.args = (f"{self.args[0]}; {words}",)


class PolicyUnavailable(PolicyError):
    """Temporary failure: the request may be repeated, after `retry_after` seconds if the server
    names a wait.
    """

    def __init__(
        self,
        message: str,
        trouble: Trouble,
        *,
        retry_after: float | None = None,
        finished: Mapping[int, Completion] | None = None,
    ) -> None:
        super().__init__(message, trouble, finished=finished)
        self.retry_after = retry_after


class AskingInterrupted(KeyboardInterrupt):
    """Ctrl-C while a policy was to be asked again; `paid` as in PolicyError."""

    def __init__(self, paid: Mapping[int, tuple[PaidReply, ...]]) -> None:
        super().__init__()
        self.paid = dict(paid)


class PolicyRefused(PolicyError):
    """The policy cannot be used: it is not worth asking again until the user has changed something."""


def valid_logprobs(logprobs: Sequence[float] | None, count: int) -> tuple[float, ...] | None:
    """Returns the log-probs if there are `count` of them, finite and at most 0 (up to rounding);
    else None.
    """
    if (
        logprobs is None
        or len(logprobs) != count
        or not all(math.isfinite(value) and value <= 1e-6 for value in logprobs)
    ):
        return None
    return tuple(min(float(value), 0.0) for value in logprobs)
