"""Names, prices and totals: what a user writes, and what it comes to."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kernelwright.policies.base import (
    Message,
    Policy,
    PolicyRefused,
    Request,
    Role,
    Sampling,
    Trouble,
    Usage,
)
from kernelwright.policies.opening.open_policy import POLICY_FORMS, open_policy
from kernelwright.policies.prices import SHIPPED_PRICES, Prices, read_prices

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    "name", ["", "gpt", "openai", "openai:", "vllm:", "mock", "scripted:", "embedded:x", "claude:x"]
)
def test_an_unknown_name_lists_the_forms(name):
    with pytest.raises(
        PolicyRefused, match="the forms are embedded, compiler, openai:MODEL@URL"
    ) as caught:
        open_policy(name)
    assert caught.value.trouble is Trouble.NAME


@pytest.mark.parametrize(
    ("name", "opens"),
    [
        ("openai:gpt-4.1", "openai:gpt-4.1@https://api.openai.com/v1"),
        ("openai:org/m@v2@http://127.0.0.1:8000/v1/", "openai:org/m@v2@http://127.0.0.1:8000/v1"),
    ],
)
def test_a_server_is_named_by_model_and_address(name, opens):
    policy = open_policy(name)
    assert policy.name == opens
    assert isinstance(policy, Policy)
    assert open_policy(policy.name).name == opens


@pytest.mark.parametrize("name", ["openai:m@ftp://host", "openai:@http://host/v1"])
def test_an_address_of_another_kind_is_refused(name):
    with pytest.raises(PolicyRefused, match="openai:MODEL@http"):
        open_policy(name)


def test_folders_and_files_open_by_name(tiny_model: Path, tiny_adapter: Path, tmp_path: Path):
    (tmp_path / "s.json").write_text('["x"]')
    for name in (
        f"transformers:{tiny_model}",
        f"vllm:{tiny_model}",
        f"scripted:{tmp_path / 's.json'}",
    ):
        policy = open_policy(name)
        assert policy.name == name
        assert isinstance(policy, Policy)
    adapted = open_policy(f"transformers:{tiny_model}", adapter=str(tiny_adapter), device="cpu")
    request = Request(
        messages=(Message(role=Role.USER, content="add"),), sampling=Sampling(max_tokens=2)
    )
    assert adapted.sample([request])[0].adapter_revision
    with pytest.raises(PolicyRefused, match="takes no adapter"):
        open_policy("embedded", adapter=str(tiny_adapter))
    with pytest.raises(PolicyRefused, match="no model at"):
        open_policy(f"vllm:{tmp_path / 'none'}")


def test_vllm_that_is_not_installed_says_how_to_install_it(tiny_model: Path):
    pytest.importorskip("transformers")
    if _has_vllm():
        pytest.skip("vllm is installed here")
    request = Request(messages=(Message(role=Role.USER, content="add"),))
    with pytest.raises(PolicyRefused, match=r"kernelwright\[vllm\]") as caught:
        open_policy(f"vllm:{tiny_model}").sample([request])
    assert caught.value.trouble is Trouble.NOT_INSTALLED


def _has_vllm() -> bool:
    import importlib.util

    return importlib.util.find_spec("vllm") is not None


def test_naming_policies_pays_for_no_heavy_library():
    code = (
        "import sys, kernelwright.policies.opening.open_policy; "
        "print([name for name in ('torch', 'transformers', 'vllm', 'openai', 'tenacity', 'httpx') if name "
        "in sys.modules])"
    )
    said = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert said.stdout.strip() == "[]"


def test_shipped_prices_are_dated_and_sourced():
    prices = read_prices()
    assert len(prices.entries) >= 10
    assert all(price.source and price.as_of.year >= 2025 for price in prices.entries)
    usage = Usage(prompt_tokens=1_000_000, completion_tokens=100_000)
    assert prices.dollars("https://api.openai.com/v1", "gpt-4.1", usage) == pytest.approx(2.8)


def test_an_unknown_model_or_another_host_has_no_price():
    usage = Usage(prompt_tokens=1, completion_tokens=1)
    assert read_prices().dollars("https://api.openai.com/v1", "gpt-99", usage) is None
    assert read_prices().dollars("http://127.0.0.1:8000/v1", "gpt-4.1", usage) is None
    assert Prices().dollars("https://api.openai.com/v1", "gpt-4.1", usage) is None


def test_a_users_own_price_goes_first(tmp_path: Path):
    own = tmp_path / "own.toml"
    own.write_text(SHIPPED_PRICES.read_text().replace("input = 2.00", "input = 5.00"))
    usage = Usage(prompt_tokens=1_000_000, completion_tokens=0)
    assert read_prices(own).dollars("https://api.openai.com/v1", "gpt-4.1", usage) == pytest.approx(
        5.0
    )


@pytest.mark.parametrize(
    "content",
    [
        "[[price",
        "price = 3\n",
        '[[price]]\nhost = "h"\n',
        '[[price]]\nhost="h"\nmodel="m"\ninput=-1\noutput=1\nas_of=2026-01-01\n',
    ],
)
def test_a_price_file_that_cannot_be_read_is_refused_in_one_line(tmp_path: Path, content):
    own = tmp_path / "own.toml"
    own.write_text(content)
    with pytest.raises(PolicyRefused, match=str(own)) as caught:
        read_prices(own)
    assert caught.value.trouble is Trouble.PRICES
    with pytest.raises(PolicyRefused, match="cannot read the prices"):
        read_prices(tmp_path / "none.toml")


def test_every_form_is_described():
    assert list(POLICY_FORMS) == [
        "embedded",
        "compiler",
        "openai:MODEL@URL",
        "anthropic:MODEL",
        "vllm:PATH",
        "transformers:PATH",
        "scripted:FILE",
    ]


def test_repeated_requests_have_seeds_of_their_own():
    request = Request(messages=(Message(role=Role.USER, content="add"),), sampling=Sampling(seed=5))
    assert [one.sampling.seed for one in request.repeated(3)] == [5, 6, 7]
    with pytest.raises(ValueError, match="Extra inputs"):
        Sampling(temperatur=1.0)
