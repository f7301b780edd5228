"""Which model, tokenizer and template answered: short fingerprints that survive saving and loading again."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, Protocol, cast

from kernelwright.policies.base import PolicyRefused, Trouble, Value
from kernelwright.policies.hub_models import check_reachable

_DIGITS = 16
_BLOCK = 1 << 16
_BLOCKS_A_FILE = 64


class Tokenizer(Protocol):
    """The part of a tokenizer that is fingerprinted."""

    @property
    def chat_template(self) -> Any:
        """Jinja template of a conversation, or several by name; None for models without chat."""


class ChatTokenizer(Protocol):
    """The part of a tokenizer that prompts need."""

    @property
    def chat_template(self) -> Any:
        """Jinja template of a conversation; None for models without chat."""

    def apply_chat_template(
        self,
        messages: list[dict[str, str]],
        /,
        *,
        add_generation_prompt: bool,
        tokenize: bool,
        return_dict: bool,
    ) -> Any:
        """Returns the token ids of a conversation."""


class Identity(Value):
    """Fingerprints of a model's tokenizer and chat template."""

    tokenizer_hash: str | None = None
    chat_template_hash: str | None = None


def identity_of(tokenizer: Tokenizer) -> Identity:
    """Returns the identity of a loaded transformers tokenizer."""
    template = tokenizer.chat_template
    return Identity(
        tokenizer_hash=_digest(_tokenizer_text(tokenizer)),
        chat_template_hash=None
        if template is None
        else _digest(json.dumps(template, sort_keys=True)),
    )


def _tokenizer_text(tokenizer: Tokenizer) -> str:
    """Returns the tokenizer's content that decides token ids, without the caller's padding and
    truncation settings.
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        return json.dumps(
            sorted(cast(Any, tokenizer).get_vocab().items(), key=lambda pair: (pair[1], pair[0]))
        )
    content = json.loads(backend.to_str())
    content.pop("padding", None)
    content.pop("truncation", None)
    return json.dumps(content, sort_keys=True)


def weights_revision(folder: Path) -> str | None:
    """Returns a fingerprint of a folder's weights; None for a folder without weights.

    Reads names, sizes and 64 blocks of each file, so that 16 GB take milliseconds. Training moves
    every weight, so a
    sample of blocks is enough to notice.
    """
    files = sorted(path for pattern in ("*.safetensors", "*.bin") for path in folder.glob(pattern))
    if not files:
        return None
    digest = hashlib.sha256()
    for path in files:
        size = path.stat().st_size
        digest.update(f"{path.name}:{size}\n".encode())
        # Blocks spread evenly over the file.
        step = max(_BLOCK, size // _BLOCKS_A_FILE)
        with path.open("rb") as file:
            for start in range(0, size, step):
                file.seek(start)
                digest.update(file.read(_BLOCK))
    return digest.hexdigest()[:_DIGITS]


def model_config(path: str) -> dict[str, Any] | None:
    """Returns `config.json` of a local folder; None for a model on the hub. Raises PolicyRefused
    for anything else.
    """
    folder = Path(path).expanduser()
    if not folder.exists():
        if _reads_like_a_hub_name(path):
            check_reachable(path)
            return None
        raise PolicyRefused(
            f"no model at {path}: give a folder with a config.json, or a hub name", Trouble.MODEL
        )
    file = folder / "config.json"
    if not file.is_file():
        hint = (
            "a LoRA adapter: give it as --adapter"
            if (folder / "adapter_config.json").is_file()
            else "not a model"
        )
        raise PolicyRefused(f"{path} is {hint} (it has no config.json)", Trouble.MODEL)
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise PolicyRefused(
            f"{file} is not JSON: download or save the model again", Trouble.MODEL
        ) from error
    if not isinstance(config, dict) or "model_type" not in config:
        raise PolicyRefused(
            f"{file} names no model_type: this is not a transformers model", Trouble.MODEL
        )
    return config


def adapter_folder(adapter: str) -> Path:
    """Returns the folder of a LoRA adapter. Raises PolicyRefused if the folder holds none."""
    folder = Path(adapter).expanduser()
    if not (folder / "adapter_config.json").is_file():
        raise PolicyRefused(
            f"{adapter} is not a LoRA adapter (it has no adapter_config.json)", Trouble.MODEL
        )
    return folder


def _reads_like_a_hub_name(path: str) -> bool:
    return path.count("/") == 1 and path[0] not in "/.~" and not path.endswith("/")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]
