"""The names of policies behind servers: `openai:MODEL@URL`, `openai:MODEL@URL1,URL2`, `anthropic:MODEL`."""

from __future__ import annotations

import re

from kernelwright.policies.base import PolicyRefused, Trouble, Value

OPENAI_URL = "https://api.openai.com/v1"
ANTHROPIC_URL = "https://api.anthropic.com"
_URLS = {"openai": OPENAI_URL, "anthropic": ANTHROPIC_URL}
_KEY_VARIABLES = {"openai": "OPENAI_API_KEY", "anthropic": "ANTHROPIC_API_KEY"}
_ADDRESS = re.compile(r"@(?=[a-z]+://)")


class ServerName(Value):
    """The parts of a policy's name."""

    form: str
    """Protocol of the server: `openai` or `anthropic`."""
    model: str
    urls: tuple[str, ...]
    """The addresses in the order in which they are asked."""

    @property
    def key_variable(self) -> str:
        """Returns the environment variable that holds the key."""
        return _KEY_VARIABLES[self.form]

    @property
    def is_hosted(self) -> bool:
        """Whether the name has no address of its own, so that the service of the form's maker is meant."""
        return self.urls == (_URLS[self.form],)


def server_name(policy: str) -> ServerName | None:
    """Returns the parts of a policy name; None for a policy without a server.

    Raises PolicyRefused for a name without a model, or with an invalid address.
    """
    form, _, target = policy.partition(":")
    if form not in _URLS or not target:
        return None
    model, *addresses = _ADDRESS.split(target, maxsplit=1)
    urls = [url.strip() for url in addresses[0].split(",")] if addresses else [_URLS[form]]
    if (
        not model
        or "://" in model
        or not all(url.startswith(("http://", "https://")) for url in urls)
    ):
        raise PolicyRefused(
            f"{policy} has no model and address: write {form}:MODEL@http://HOST:PORT/v1 (several addresses: URL1,URL2)",
            Trouble.NAME,
        )
    return ServerName(form=form, model=model, urls=tuple(urls))


def model_and_url(target: str) -> tuple[str, str]:
    """Returns the model and the address of `openai:TARGET`. Raises PolicyRefused for several
    addresses.
    """
    name = server_name(f"openai:{target}")
    if name is None or len(name.urls) > 1:
        raise PolicyRefused(
            f"openai:{target} must name one server: openai:MODEL@http://HOST:PORT/v1", Trouble.NAME
        )
    return name.model, name.urls[0]


def key_variable(policy: str) -> str:
    """Returns the environment variable that holds the key for a policy by its name. Raises PolicyRefused."""
    name = server_name(policy)
    return _KEY_VARIABLES["openai"] if name is None else name.key_variable
