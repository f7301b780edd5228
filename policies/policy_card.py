"""What a model's folder says about itself: one value, read and written here alone.

It lies beside the weights as `kernelwright.json`. Whoever opens a policy reads from it how the model wants to be asked;
whoever trains one writes what it was trained from, on what and how, and which revisions led to it. `README.md` is for
people; its front matter is written by `huggingface_hub` from the same value.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import ConfigDict, ValidationError

from kernelwright.policies.base import PolicyRefused, PromptForm, Trouble, Value

CARD_FILE = "kernelwright.json"


class AveragedPolicy(Value):
    """One of several policies whose weights' mean a model is."""

    policy: str
    """The policy as it was named then: `transformers:FOLDER`."""
    revision: str
    step: int | None = None
    """Training steps that it had seen."""


TRAINING_FACTS = (
    "base", "method", "formula", "seed", "loss", "rows", "steps", "step", "trained_on", "trained_from", "created",
)  # fmt: skip
"""Fields of a card that are facts of one training: a later training has its own."""
MAX_ANCESTORS = 8
"""Earlier trainings that a card keeps, the latest ones."""


class Training(Value):
    """The facts of one training that led to a model."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    base: str | None = None
    method: str | None = None
    formula: str | None = None
    seed: int | None = None
    loss: float | None = None
    rows: dict[str, int] = {}
    steps: int | None = None
    trained_on: tuple[str, ...] = ()
    trained_from: str | None = None
    created: int | None = None


class PolicyCard(Value):
    """The card. A folder that says nothing has the defaults; a fact that is not known here is kept as it is."""

    model_config = ConfigDict(frozen=True, extra="allow")

    prompt_form: PromptForm = PromptForm.CHAT
    """The form of prompts: a chat, or the compact form of the small policies."""
    parameters: int | None = None
    """Weights, all of them counted, an adapter's with its base's."""
    base: str | None = None
    """The model that its last training began with: a folder, a hub name, or `new:14m` for random weights."""
    seed: int | None = None
    loss: float | None = None
    """The last loss of its last training; of `sft` and `rft` in nats a token."""
    rows: dict[str, int] = {}
    """Rows of its last training, by what became of them."""
    method: str | None = None
    """The method of its last training: `sft`, `grpo`, `rft`, `dpo`, `kto`."""
    formula: str | None = None
    """The formula of the reward: `execution@1`."""
    steps: int | None = None
    """Steps of its last training, which has ended."""
    step: int | None = None
    """The step at which a checkpoint was kept, where its training had not ended."""
    trained_on: tuple[str, ...] = ()
    """Problem sets of that training."""
    trained_from: str | None = None
    """The corpus or the log of that training."""
    ancestors: tuple[Training, ...] = ()
    """The trainings before the last one, the oldest first."""
    created: int | None = None
    """Seconds since 1970, UTC."""
    lineage: tuple[str, ...] = ()
    """Revisions of the weights that led to it, the oldest first."""
    averaged: tuple[AveragedPolicy, ...] = ()
    note: str = ""
    """One sentence that is shown with what the model writes."""


def read_card(folder: Path) -> PolicyCard:
    """Reads the card of a folder; without a folder or a card it has the defaults. Raises PolicyRefused where the file
    cannot be read, or is not a card.
    """
    path = folder / CARD_FILE
    if not path.is_file():
        return PolicyCard()
    try:
        return PolicyCard.model_validate_json(path.read_bytes())
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        words = f"{place}: {first['msg']}" if place else first["msg"]
        raise PolicyRefused(
            f"{path} cannot be read ({words}): correct or delete it", Trouble.MODEL
        ) from error
    except OSError as error:
        raise PolicyRefused(
            f"{path} cannot be read ({error}): correct or delete it", Trouble.MODEL
        ) from error


def read_cards(folder: Path, adapter: str | Path | None = None) -> PolicyCard:
    """The model's card; with an adapter the adapter's own, with what it does not say of itself from the model's: never
    the facts of the model's training. Raises PolicyRefused.
    """
    card = read_card(folder)
    if adapter is None:
        return card
    own = read_card(Path(adapter).expanduser()).model_dump(mode="json", exclude_unset=True)
    shared = card.model_dump(mode="json", exclude_unset=True, exclude={*TRAINING_FACTS})
    return PolicyCard.model_validate({**shared, **own})


def trainings_of(card: PolicyCard) -> tuple[Training, ...]:
    """Returns the trainings of a model, the oldest first: those before the last one, and the last one where the card
    tells of any.
    """
    last = Training.model_validate(card.model_dump(exclude_unset=True, include={*TRAINING_FACTS}))
    return (*card.ancestors, *([last] if last.model_fields_set else []))[-MAX_ANCESTORS:]


def write_card(folder: Path, card: PolicyCard) -> None:
    """Writes the card beside the weights, without what nobody has said. The folder exists."""
    text = card.model_dump_json(indent=2, exclude_unset=True)
    (folder / CARD_FILE).write_text(text + "\n", encoding="utf-8")


def front_matter(card: PolicyCard) -> str:
    """The head of a README.md as model hubs read it: base model, tags, library. Ends with an empty line."""
    from huggingface_hub import ModelCardData

    base = card.base if card.base and _is_hub_name(card.base) else None
    tags = ["triton", "gpu-kernels", "kernelwright", *filter(None, [card.method])]
    data = ModelCardData(
        base_model=base, library_name="transformers", pipeline_tag="text-generation", tags=tags
    )
    return f"---\n{data.to_yaml()}\n---\n\n"


def _is_hub_name(base: str) -> bool:
    """Whether a base is `OWNER/NAME` on a model hub, and neither a folder nor `new:SIZE`."""
    return ":" not in base and base.count("/") == 1 and not Path(base).exists()
