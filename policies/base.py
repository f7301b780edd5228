"""What every policy takes and gives: frozen values, one protocol, two errors. Imports pydantic and nothing heavy."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, Protocol, Self, runtime_checkable

from pydantic import BaseModel, ConfigDict, Field, field_validator


class Value(BaseModel):
    """A frozen value that knows all its fields: a misspelt one is an error, not ignored."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    def with_(self, **changes: Any) -> Self:
        """A copy with other values in some fields. They are not validated again."""
        return self.model_copy(update=changes)


class Role(StrEnum):
    """Who says a message of a conversation."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"


class Message(Value):
    """One message of a conversation with a policy."""

    role: Role
    content: str


class Sampling(Value):
    """How to draw a completion. The defaults draw from the model's own distribution, which is what training needs."""

    temperature: float = Field(default=1.0, ge=0.0)
    """0 is greedy."""
    top_p: float = Field(default=1.0, gt=0.0, le=1.0)
    top_k: int | None = Field(default=None, ge=1)
    min_p: float = Field(default=0.0, ge=0.0, le=1.0)
    repetition_penalty: float = Field(default=1.0, gt=0.0)
    max_tokens: int = Field(default=2048, ge=1)
    seed: int | None = None
    """None: the policy draws one where it can, and writes it into the completion."""
    stop: tuple[str, ...] = ()
    """The text ends before the first of these; the token ids keep the tokens that spelt it."""

    @property
    def exact(self) -> bool:
        """Whether the distribution sampled is softmax(logits / temperature) itself, so that its log-probs fit
        training.
        """
        whole = self.top_p == 1.0 and self.top_k is None and self.min_p == 0.0 and self.repetition_penalty == 1.0
        return whole and self.temperature > 0.0


class Request(Value):
    """One completion that is asked for."""

    messages: tuple[Message, ...]
    sampling: Sampling = Sampling()
    adapter: str | None = None
    """A LoRA adapter for this request alone: a folder, or the name under which a server has it."""
    thread: str | None = None
    """Which conversation this belongs to. Only the scripted policy looks: each thread starts the script anew."""
    turn: int | None = None
    """How many completions the thread has had. A scripted run that was killed goes on at the exact answer."""
    fault: str | None = None
    """The fault of the candidate that is to be repaired; None where there is none."""

    def repeated(self, count: int) -> list[Request]:
        """`count` independent draws: seed, seed + 1, ... where a seed was given."""
        seed = self.sampling.seed
        if seed is None:
            return [self] * count
        return [self.with_(sampling=self.sampling.with_(seed=seed + step)) for step in range(count)]


class Usage(Value):
    """What one completion cost: tokens of the prompt and of the answer, and dollars where the price is known."""

    prompt_tokens: int
    completion_tokens: int
    cached_prompt_tokens: int = 0
    """How many of the prompt tokens the server had cached, where it says so."""
    dollars: float | None = None
    """None where the price is unknown. In-process policies are billed by nobody: 0."""
    estimated: bool = False
    """The server did not count; the counts are guessed from the length of the text."""


class FinishReason(StrEnum):
    """Why a completion ends."""

    STOP = "stop"
    """The model ended, or a stop string came."""
    LENGTH = "length"
    FILTERED = "filtered"
    """The server withheld the text."""
    OTHER = "other"
    """The server said something else, or nothing."""


class Origin(StrEnum):
    """Who wrote a candidate's text."""

    POLICY = "policy"
    """A model, or a person behind one."""
    COMPILER = "compiler"
    """torch's compiler: no model sampled it, so nothing of it trains one by GRPO."""
    FILE = "file"
    """The user."""


class Completion(Value):
    """What a policy said, with all that exact training needs."""

    text: str
    finish: FinishReason
    usage: Usage
    policy: str
    """The name that `open_policy` opens."""
    origin: Origin = Origin.POLICY
    prompt_token_ids: tuple[int, ...] | None = None
    token_ids: tuple[int, ...] | None = None
    """Every token drawn, with the end token and the stop string's. These are never made by tokenising the text again.
    """
    logprobs: tuple[float, ...] | None = None
    """One for each token drawn (natural logarithm). Of the distribution really sampled where `exact` says so."""
    exact: bool = False
    """Ids and log-probs are here, and are those of softmax(logits / temperature): fit for GRPO."""
    revision: str | None = None
    """Fingerprint of the weights, or what the server says of itself."""
    adapter_revision: str | None = None
    tokenizer_hash: str | None = None
    chat_template_hash: str | None = None
    seed: int | None = None
    """The seed that was used, also where the policy drew it."""
    latency: float = Field(default=0.0, ge=0.0)
    """Seconds from the question to this answer."""

    @field_validator("text")
    @classmethod
    def _storable(cls, text: str) -> str:
        """Lone surrogates and NUL, which a server can send and no database takes, become U+FFFD."""
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").replace("\0", "\ufffd")


class PromptForm(StrEnum):
    """How a policy wants to be asked."""

    CHAT = "chat"
    """Full instructions in sentences."""
    COMPACT = "compact"
    """Reference, code and trimmed message only: what small policies are trained on."""


class Capabilities(Value):
    """What a policy can do beside sampling text: the agent and the training ask before they rely on it."""

    token_ids: bool = False
    logprobs: bool = False
    adapters: bool = False
    seeds: bool = False
    """The same request with the same seed gives the same completion."""
    at_once: int = 1
    """How many requests a call of `sample` works on together."""
    context: int | None = None
    """Prompt and completion together, in tokens; None where it is not known."""
    device: str = ""
    """Where it computes, in this process: cpu, cuda or cuda:N. Empty: elsewhere."""


@runtime_checkable
class Policy(Protocol):
    """Something that answers. `sample` gives one completion for each request, in their order."""

    @property
    def name(self) -> str:
        """The policy as the user named it; stored with each trajectory."""
        ...

    @property
    def capabilities(self) -> Capabilities:
        """What its completions hold (token ids, log-probs), and where and how many at once it computes."""
        ...

    @property
    def prompt_form(self) -> PromptForm:
        """Whether it is asked in sentences or in the short form of the small policy."""
        ...

    def sample(self, requests: Sequence[Request]) -> list[Completion]:
        """Raises PolicyUnavailable or PolicyRefused; what was finished by then is in the error's `finished`."""
        ...

    def close(self) -> None:
        """Gives back processes, memory and connections. A second call does nothing."""
        ...


@runtime_checkable
class StopsAnswering(Protocol):
    """A policy that computes here, whose answers under way can be given up: nobody is billed for them."""

    def stop_answering(self) -> None:
        """Nobody is answered any more: who waits gets KeyboardInterrupt, within a step of the model. For good."""
        ...


class Trouble(StrEnum):
    """What kept a policy from answering."""

    BUSY = "busy"
    """429: too many requests for now."""
    SERVER = "server"
    """5xx."""
    TIMEOUT = "timeout"
    """Too slow, or an answer without an end."""
    CONNECTION = "connection"
    """Refused, reset, or no such host."""
    CUT_OFF = "cut_off"
    """The answer stopped in the middle."""
    NONSENSE = "nonsense"
    """It answered, but not in the form of the protocol."""
    NOT_THE_PROTOCOL = "not_the_protocol"
    """The address serves something else."""
    KEY = "key"
    QUOTA = "quota"
    """No credit left."""
    MODEL = "model"
    """Missing, or not a model, adapter or tokenizer that fits."""
    REQUEST = "request"
    """The server will not have this request."""
    CONTEXT = "context"
    """The prompt does not fit the model."""
    MEMORY = "memory"
    NAME = "name"
    """No such form of policy."""
    SCRIPT = "script"
    """A script that cannot be read, or has no answer left."""
    PRICES = "prices"
    NOT_INSTALLED = "not_installed"


class PolicyError(Exception):
    """No answer. The message is one line and says what to do."""

    def __init__(self, message: str, trouble: Trouble, *, finished: Mapping[int, Completion] | None = None) -> None:
        super().__init__(" ".join(message.split()))
        self.trouble = trouble
        self.finished: dict[int, Completion] = dict(finished or {})
        """Completions that were there before the trouble, by their place in the list of requests."""


class PolicyUnavailable(PolicyError):
    """Worth asking again, after `retry_after` seconds where the server says so."""

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


class PolicyRefused(PolicyError):
    """The policy cannot be used: it is not worth asking again until the user has changed something."""


def sound_logprobs(logprobs: Sequence[float] | None, count: int) -> tuple[float, ...] | None:
    """The log-probs if there is one for each token, finite and at most 0 (up to rounding); else None."""
    if (
        logprobs is None
        or len(logprobs) != count
        or not all(math.isfinite(value) and value <= 1e-6 for value in logprobs)
    ):
        return None
    return tuple(min(float(value), 0.0) for value in logprobs)
