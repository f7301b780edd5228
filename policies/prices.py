"""Prices of tokens: a dated file, and the user's own prices over it. An unknown price stays unknown."""

from __future__ import annotations

import datetime
import fnmatch
import tomllib
from pathlib import Path
from urllib.parse import urlsplit

from pydantic import Field, ValidationError

from kernelwright.policies.base import PolicyRefused, Trouble, Usage, Value

SHIPPED_PRICES = Path(__file__).parent / "data" / "prices.toml"
_MILLION = 1_000_000


class Price(Value):
    """Dollars for a million tokens."""

    host: str
    """The host of the server's address; `*` fits any. The same model costs otherwise elsewhere."""
    model: str
    """The model's name, with `*` for any characters."""
    input: float = Field(ge=0)
    output: float = Field(ge=0)
    cached_input: float | None = Field(default=None, ge=0)
    """Price of cached prompt tokens; None: the price of other prompt tokens."""
    as_of: datetime.date
    source: str = ""


class Prices(Value):
    """The first price that fits counts, so a user's own come first."""

    entries: tuple[Price, ...] = ()

    def of(self, url: str, model: str) -> Price | None:
        """Returns the price of a model at a server; None if no entry fits."""
        host = urlsplit(url).hostname or ""
        for price in self.entries:
            if fnmatch.fnmatchcase(host, price.host) and fnmatch.fnmatchcase(model, price.model):
                return price
        return None

    def dollars(self, url: str, model: str, usage: Usage) -> float | None:
        """Returns the dollars of a completion, with the reduced price for cached tokens; None for
        an unknown price.
        """
        price = self.of(url, model)
        if price is None:
            return None
        cached = min(usage.cached_prompt_tokens, usage.prompt_tokens)
        cached_price = price.input if price.cached_input is None else price.cached_input
        fresh = (usage.prompt_tokens - cached) * price.input
        return (fresh + cached * cached_price + usage.completion_tokens * price.output) / _MILLION


def read_prices(user_file: Path | None = None) -> Prices:
    """The shipped file, and before it the user's own in the same form."""
    files = [SHIPPED_PRICES] if user_file is None else [user_file, SHIPPED_PRICES]
    return Prices(entries=tuple(price for file in files for price in _read(file)))


def _read(file: Path) -> list[Price]:
    try:
        content = tomllib.loads(file.read_text(encoding="utf-8"))
        return [Price.model_validate(entry) for entry in content.get("price", [])]
    except OSError as error:
        raise PolicyRefused(
            f"cannot read the prices in {file}: {error.strerror or error}", Trouble.PRICES
        ) from error
    except ValidationError as error:
        first = error.errors()[0]
        field_path = ".".join(str(part) for part in first["loc"])
        raise PolicyRefused(
            f"{file} has a price that cannot be read: {field_path}: {first['msg']}", Trouble.PRICES
        ) from error
    except (ValueError, AttributeError, TypeError) as error:
        raise PolicyRefused(f"{file} is not a price file: {error}", Trouble.PRICES) from error
