"""Makes a trained policy ready for others: an adapter merged into its base, a folder uploaded to a
model hub.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from kernelwright.errors import InputError
from kernelwright.policies.base import Value
from kernelwright.policies.policy_card import CARD_FILE
from kernelwright.rl.training.checkpoints import refuse_existing_output, write_policy
from kernelwright.rl.training.grpo.padding import without_adapter
from kernelwright.rl.training.online.sampler import whole_weights
from kernelwright.rl.training.options import Storage
from kernelwright.rl.training.subject import load_weights, open_subject, parameters

UPLOADED_FILES = (
    *("*.safetensors", "*.safetensors.index.json", "config.json", "generation_config.json"),
    *("adapter_config.json", "tokenizer*", "special_tokens_map.json", "chat_template.jinja"),
    *("README.md", CARD_FILE, "training.json", "history.json", "*.png"),
)
"""Files of a policy's folder; checkpoints and logs stay."""
FORBIDDEN = (401, 403)


class MergedPolicy(Value):
    """A policy with its adapter merged into the weights."""

    output: str
    base: str
    adapter: str
    parameters: int


class PushedPolicy(Value):
    """A policy on a model hub."""

    url: str
    commit: str
    files: tuple[str, ...]


def merge_adapter(policy: str, adapter: str, output: Path, storage: Storage) -> MergedPolicy:
    """Writes the base's weights plus the adapter's product as a model of their own.

    The sum is computed in float32. Raises InputError and PolicyRefused.
    """
    refuse_existing_output(output)
    subject = open_subject(policy, adapter)
    model: Any = load_weights(subject, "cpu", lora=False)
    weights = whole_weights(model)
    base = without_adapter(model.float())
    output.parent.mkdir(parents=True, exist_ok=True)
    # peft leaves its layers in the model, so a plain one of the same config is written.
    plain = type(base)._from_config(base.config)
    write_policy(
        output, plain, weights, subject, storage, base=subject.base, merged_adapter=str(adapter)
    )
    return MergedPolicy(
        output=str(output), base=subject.base, adapter=adapter, parameters=parameters(plain)
    )


def push_policy(
    folder: Path, repository: str, *, private: bool, say: Callable[[str], None]
) -> PushedPolicy:
    """Uploads a policy's folder as a model repository `OWNER/NAME`, which is made where it is missing.

    Address and token of the hub are huggingface_hub's own (HF_ENDPOINT, HF_TOKEN or a login). Raises
    InputError.
    """
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalTokenNotFoundError

    files = files_to_push(folder)
    api = HfApi()
    try:
        api.create_repo(repository, private=private, exist_ok=True)
        say(f"uploading {len(files)} files of {folder}")
        commit = api.upload_folder(
            repo_id=repository,
            folder_path=folder,
            allow_patterns=list(UPLOADED_FILES),
            commit_message=f"Add {folder.name}",
        )
    except (HFValidationError, LocalTokenNotFoundError) as error:
        raise InputError(f"cannot push to {repository}: {_first_line(error)}") from error
    except HfHubHTTPError as error:
        if error.response is not None and error.response.status_code in FORBIDDEN:
            raise InputError(
                f"the hub refuses {repository}: log in as its owner (hf auth login, or HF_TOKEN)"
            ) from error
        raise InputError(f"the hub refuses {repository}: {_first_line(error)}") from error
    except OSError as error:
        raise InputError(f"cannot reach the hub: {_first_line(error)}") from error
    return PushedPolicy(url=f"{api.endpoint}/{repository}", commit=commit.oid, files=files)


def files_to_push(folder: Path) -> tuple[str, ...]:
    """Returns the names of a policy's files that are uploaded. Raises InputError for a folder that
    is no policy of this project: nothing would say how its weights were made.
    """
    names = {path.name for pattern in UPLOADED_FILES for path in folder.glob(pattern)}
    if CARD_FILE not in names or "README.md" not in names:
        raise InputError(
            f"{folder} has no {CARD_FILE} and README.md: name a folder that rl sft, rl train or rl merge wrote"
        )
    if not any(name.endswith(".safetensors") for name in names):
        raise InputError(f"{folder} has no weights (*.safetensors): train to the end first")
    return tuple(sorted(names))


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:200] if lines else type(error).__name__
