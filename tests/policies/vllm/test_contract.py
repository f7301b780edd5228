"""What is sent to vLLM by name: methods of its workers, arguments, addresses, variables. These tests start no vLLM.

The first ones dispatch what our policies send as vLLM's workers do: the extension class is imported by its name, the
method is looked up by its name, and called with the arguments. The others read vLLM's sources, where the environment
for the tests of real servers is there (docs/reference/policies.md).
"""

from __future__ import annotations

import ast
import re
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from kernelwright.policies.model_identity import weights_revision
from kernelwright.policies.openai.openai_policy import OpenAIPolicy
from kernelwright.policies.vllm import server, worker
from kernelwright.policies.vllm.engine_policy import VLLMPolicy
from kernelwright.policies.vllm.server import VLLMServerPolicy
from tests.policies.servers import ROOT, vllm_python

OURS = ROOT / "policies" / "vllm"


class Worker:
    """The two methods of vLLM's worker that our extension calls."""

    def __init__(self) -> None:
        self.read: list[str] = []

    def reload_weights(self, weights_path: str) -> None:
        self.read.append(weights_path)

    def get_model(self) -> Any:
        import torch

        return torch.nn.Linear(2, 2)


class Engine:
    """Dispatches as vLLM does: `worker_extension_cls` becomes a base of the worker's class, a method has a name."""

    def __init__(self, extension: str) -> None:
        module, _, name = extension.rpartition(".")
        self.worker = type("ExtendedWorker", (Worker, getattr(import_module(module), name)), {})()

    def collective_rpc(self, method: str, kwargs: dict[str, Any]) -> list[Any]:
        return [getattr(self.worker, method)(**kwargs)]

    def reset_prefix_cache(self) -> bool:
        return True


def test_the_engine_policy_loads_weights_through_the_extension_that_it_names(tiny_model):
    policy = VLLMPolicy(str(tiny_model))
    engine = Engine(policy._arguments()["worker_extension_cls"])
    policy._engine = engine
    policy.take_weights(tiny_model)
    assert engine.worker.read == [str(tiny_model)]


def test_the_server_policy_loads_weights_through_the_extension_that_its_help_names(
    tiny_model, monkeypatch
):
    engine = Engine(server.WEIGHT_SETTINGS.split("--worker-extension-cls ")[1])
    bodies = []

    def tell(path: str, body: dict[str, Any], needs: str) -> dict[str, Any]:
        bodies.append(path)
        if path == "/reset_prefix_cache":
            return {"success": True}
        return {"results": engine.collective_rpc(body["method"], body["kwargs"])}

    url = "http://127.0.0.1:9/v1"
    policy = VLLMServerPolicy(OpenAIPolicy("m", url), url, None, tiny_model)
    monkeypatch.setattr(policy, "_tell", tell)
    policy.take_weights(tiny_model)
    assert bodies == ["/collective_rpc", "/reset_prefix_cache"]
    assert engine.worker.load_trained_weights(str(tiny_model)) == weights_revision(tiny_model)


def test_the_documented_server_command_names_the_extension_class():
    page = (ROOT / "docs" / "reference" / "policies.md").read_text(encoding="utf-8")
    assert set(re.findall(r"--worker-extension-cls (\S+)", page)) == {worker.EXTENSION_CLASS}


# ------------------------------------------------------------------ vLLM's own sources, where they are installed


@pytest.fixture(scope="module")
def sources() -> Path:
    [folder] = vllm_python().parent.parent.glob("lib/python3*/site-packages/vllm")
    return folder


def definition(file: Path, *path: str) -> ast.ClassDef | ast.FunctionDef:
    """A class, or a method of a class, by its name."""
    node: Any = ast.parse(file.read_text(encoding="utf-8"))
    for name in path:
        node = next(
            child for child in node.body
            if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and child.name == name
        )  # fmt: skip
    return node


def parameters(file: Path, *path: str) -> set[str]:
    """Names of the parameters of a method, or of the annotated fields of a class."""
    node = definition(file, *path)
    if isinstance(node, ast.ClassDef):
        return {
            item.target.id
            for item in node.body
            if isinstance(item, ast.AnnAssign) and hasattr(item.target, "id")
        }
    return {argument.arg for argument in (*node.args.args, *node.args.kwonlyargs)}


def keywords(callee: str) -> set[str]:
    """Names of the keyword arguments that our modules pass to a function of this name."""
    calls = [
        node
        for file in OURS.glob("*.py")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == callee
    ]
    assert calls, f"nothing calls {callee} any more: take it out of this test"
    return {keyword.arg for call in calls for keyword in call.keywords if keyword.arg is not None}


@pytest.mark.parametrize("method", ["generate", "collective_rpc", "reset_prefix_cache"])
def test_a_method_of_the_engine_takes_what_is_passed(sources, method):
    assert keywords(method) <= parameters(sources / "entrypoints" / "llm.py", "LLM", method)


@pytest.mark.parametrize(
    ("value", "file"),
    [("SamplingParams", "sampling_params.py"), ("LoRARequest", "lora/request.py")],
)
def test_a_value_of_a_request_has_the_fields_that_are_passed(sources, value, file):
    assert keywords(value) <= parameters(sources / file, value)


def test_the_arguments_of_the_engine_are_fields_of_its_engine_arguments(sources, tiny_model):
    passed = set(
        VLLMPolicy(str(tiny_model), engine={"gpu_memory_utilization": 0.4})._arguments()
    ) | keywords("LLM")
    assert passed <= parameters(sources / "engine" / "arg_utils.py", "EngineArgs")


def test_the_methods_of_the_worker_that_the_extension_calls_exist(sources):
    called = {
        node.func.attr: {keyword.arg for keyword in node.keywords}
        for node in ast.walk(definition(OURS / "worker.py", "WeightReloading"))
        if isinstance(node, ast.Call) and ast.unparse(node.func).startswith("worker.")
    }
    assert set(called) == {"reload_weights", "get_model"}
    for method in called:
        assert definition(sources / "v1" / "worker" / "gpu_worker.py", "Worker", method)
    reload = parameters(
        sources / "v1" / "worker" / "gpu_model_runner.py", "GPUModelRunner", "reload_weights"
    )
    assert called["reload_weights"] <= reload


def test_the_variables_that_we_set_are_vllms(sources):
    files = [
        *OURS.glob("*.py"),
        ROOT / "docs" / "reference" / "policies.md",
        ROOT / "tests" / "policies" / "servers.py",
    ]
    texts = "\n".join(file.read_text(encoding="utf-8") for file in files)
    named = set(re.findall(r"\bVLLM_[A-Z_]+[A-Z]\b", texts))
    known = set(re.findall(r'"(VLLM_[A-Z_]+)"', (sources / "envs.py").read_text(encoding="utf-8")))
    assert len(named) >= 5
    assert named <= known


def test_the_addresses_that_we_post_to_are_vllms(sources):
    addresses = set(
        re.findall(r'_tell\(\s*"([^"]+)"', (OURS / "server.py").read_text(encoding="utf-8"))
    )
    routes = "\n".join(
        file.read_text(encoding="utf-8") for file in (sources / "entrypoints").rglob("*.py")
    )
    assert len(addresses) == 5
    assert {address for address in addresses if f'"{address}"' in routes} == addresses
