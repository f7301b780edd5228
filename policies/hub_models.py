"""A model asked for by its hub name: whether it can be had, said at once."""

from __future__ import annotations

import functools
import logging

from kernelwright.policies.base import PolicyRefused, Trouble

log = logging.getLogger(__name__)

CONFIG_FILE = "config.json"
HUB_SECONDS = 10.0
"""Seconds the hub may take to answer."""


@functools.lru_cache
def check_reachable(name: str) -> None:
    """Asks the model hub once whether a model can be downloaded.

    Without a network, a cached download is used and this process stays offline. transformers
    itself would ask six times
    per file, for fifty seconds, and print each refusal. Raises PolicyRefused (one line) if the
    hub does not know the
    model or denies access, or if the hub is unreachable and the model is not cached.
    """
    from huggingface_hub import get_hf_file_metadata, hf_hub_url
    from huggingface_hub.errors import (
        EntryNotFoundError,
        GatedRepoError,
        HFValidationError,
        RepositoryNotFoundError,
    )

    try:
        get_hf_file_metadata(hf_hub_url(name, CONFIG_FILE), timeout=HUB_SECONDS)
    except GatedRepoError as error:
        raise _refused(
            f"the hub gives {name} only to those who agreed to its terms: agree on its page, then `hf auth login`"
        ) from error
    except (RepositoryNotFoundError, HFValidationError) as error:
        raise _refused(
            f"no model {name} here or on the hub: check the name (a private one needs `hf auth login`)"
        ) from error
    except EntryNotFoundError as error:
        raise _refused(f"{name} is not a model (it has no {CONFIG_FILE} on the hub)") from error
    except (
        Exception
    ) as error:  # the network's errors are of one HTTP library or another, by the hub's version
        _from_the_cache(name, error)


def _from_the_cache(name: str, error: Exception) -> None:
    from huggingface_hub import constants, try_to_load_from_cache

    if not isinstance(try_to_load_from_cache(name, CONFIG_FILE), str):
        offline = (
            "HF_HUB_OFFLINE is set"
            if constants.HF_HUB_OFFLINE
            else str(error).partition("\n")[0][:120]
        )
        why = offline or type(error).__name__
        raise _refused(
            f"no model {name} here, and the hub cannot be reached ({why}): check the name and the network, "
            "or give a model's "
            "folder"
        ) from error
    if not constants.HF_HUB_OFFLINE:
        log.warning("the hub cannot be reached: %s is taken from what was downloaded before", name)
        constants.HF_HUB_OFFLINE = True


def _refused(message: str) -> PolicyRefused:
    return PolicyRefused(message, Trouble.MODEL)
