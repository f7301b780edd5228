"""Attention over windows of a ring: what torch computes for each row's own columns, under Triton's interpreter and
on a GPU; and the ring with it.
"""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")
pytest.importorskip("transformers")

from kernelwright.policies.base import Message, Request, Role, Sampling  # noqa: E402
from kernelwright.policies.local.in_process_policy import InProcessPolicy  # noqa: E402
from kernelwright.policies.local.transformers_policy import TransformersPolicy  # noqa: E402
from tests.tiny_model import save_tiny_model  # noqa: E402

ERRORS = '''
def errors(device, dtype, heads, kept, head, length=96, rows=7):
    """Largest error of each row against torch's attention in float32 over the row's own columns, in order."""
    import torch
    from kernelwright.policies.local.continuous_batch_attention import attend

    dice = torch.Generator().manual_seed(heads * head)
    def some(*shape):
        return torch.randn(shape, generator=dice).to(device, dtype)
    queries = some(rows, 1, heads, head).transpose(1, 2)
    keys, values = some(rows, kept, length, head), some(rows, kept, length, head)
    counts = torch.tensor([1, 2, 17, 64, length - 1, length, 33])
    ends = torch.tensor([0, 0, 90, 63, 5, 40, 12])  # some windows go round the end of the ring
    windows = torch.stack((ends, counts), 1).view(rows, 1, 1, 2).int().to(device)
    found, worst = attend(queries, keys, values, windows, head**-0.5), []
    for row in range(rows):
        own = [(int(ends[row]) - n) % length for n in range(int(counts[row]))]
        wanted = torch.nn.functional.scaled_dot_product_attention(
            *(tensor.float().cpu() for tensor in (queries[row], keys[row][:, own], values[row][:, own])),
            enable_gqa=True,
        )
        worst.append((found[row].transpose(0, 1).float().cpu() - wanted).abs().max().item())
    return worst
'''
SHAPES = [
    ("float32", 4, 2, 32),
    ("float32", 3, 3, 16),
    ("bfloat16", 6, 3, 64),
    ("float16", 34, 1, 32),
]
SMALL = {"float32": 1e-5, "bfloat16": 3e-2, "float16": 4e-3}

RING = """
import json, sys, torch
from kernelwright.policies.base import Sampling
from kernelwright.policies.local.decoding import SequenceInDecoding
from kernelwright.policies.local.continuous_batch import ContinuousBatch
from transformers import AutoModelForCausalLM

def answers(model, windows):
    dice = torch.Generator().manual_seed(1)
    rows = [
        SequenceInDecoding(prompt=torch.randint(5, 200, (1 + 2 * (n % 3),), generator=dice).tolist(), seed=n,
            limit=4 + n % 4, sampling=Sampling(max_tokens=64, temperature=(1.0, 0.0)[n % 2]))
        for n in range(6)
    ]
    ring, waiting = ContinuousBatch(model, 2, 12, 8, frozenset({2}), windows=windows), list(rows)
    while waiting or ring.busy:
        now = min(ring.free, len(waiting))
        if now:
            ring.admit(waiting[:now])
        waiting = waiting[now:]
        ring.launch()
        ring.ended()
    assert (ring._attention is not None) == windows and ring.steps > ring.length
    return [(row.token_ids, row.logprobs) for row in rows]

model = AutoModelForCausalLM.from_pretrained(sys.argv[1]).eval()
before = model.config._attn_implementation
result = [answers(model, True), answers(model, False)]
assert model.config._attn_implementation == before
print(json.dumps(result))
"""


def interpreted(script: str, *arguments: str) -> object:
    """What the script prints, with Triton interpreted: that is chosen when triton is imported."""
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments], capture_output=True, text=True, timeout=500, check=False,
        env={"PYTHONPATH": "src", "TRITON_INTERPRET": "1", "PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
def test_an_interpreted_window_gives_what_torch_gives_for_its_columns():
    head = (
        "import json, torch\n"
        "from kernelwright.tools.replaying.interpreter.patches.repairs import repair_dot\n"
        "repair_dot()\n"
    )
    calls = f"print(json.dumps([errors('cpu', getattr(torch, s[0]), *s[1:]) for s in {SHAPES}]))"
    for (dtype, *_), worst in zip(SHAPES, interpreted(head + ERRORS + calls), strict=True):
        assert max(worst) < SMALL[dtype], (dtype, worst)


@pytest.mark.slow
@pytest.mark.nightly
def test_a_ring_of_windows_says_what_a_ring_of_masks_says(tmp_path):
    windowed, masked = interpreted(RING, str(save_tiny_model(tmp_path / "tiny")))
    for (tokens, logprobs), (wanted, other) in zip(windowed, masked, strict=True):
        assert tokens == wanted
        assert logprobs == pytest.approx(other, abs=2e-5)


# ---------------------------------------------------------------- on a GPU
@pytest.mark.gpu
@pytest.mark.parametrize(
    "shape", [*SHAPES, ("bfloat16", 8, 2, 128), ("float32", 4, 1, 256)], ids=str
)
def test_a_compiled_window_gives_what_torch_gives_for_its_columns(shape):
    scope: dict = {}
    exec(ERRORS, scope)
    worst = scope["errors"]("cuda", getattr(torch, shape[0]), *shape[1:])
    assert max(worst) < SMALL[shape[0]], worst


def asked(count: int, temperature: float) -> list[Request]:
    return [
        Request(
            messages=(Message(role=Role.USER, content="x = torch.relu(x) " * (1 + n % 9)),),
            sampling=Sampling(max_tokens=5 + 7 * (n % 11), seed=n, temperature=temperature),
        )
        for n in range(count)
    ]


def differences(one, other) -> list[float]:
    """Of the log-probs, up to the first word that differs and with it: two words that are as likely as each other
    have one log-prob.
    """
    pairs = zip(one.token_ids, other.token_ids, strict=False)
    until = next(
        (place + 1 for place, (mine, yours) in enumerate(pairs) if mine != yours),
        len(one.token_ids),
    )
    return [
        abs(mine - yours)
        for mine, yours in zip(one.logprobs[:until], other.logprobs[:until], strict=True)
    ]


@pytest.mark.gpu
@pytest.mark.parametrize(("dtype", "same", "near"), [("float32", 46, 1e-4), ("bfloat16", 24, 2e-2)])
def test_on_a_gpu_the_ring_of_windows_says_greedily_what_the_plain_batch_says(
    tmp_path, dtype, same, near
):
    folder, questions = str(save_tiny_model(tmp_path / "tiny")), asked(48, 0.0)
    policy = InProcessPolicy(folder, device="cuda", dtype=dtype, places=16)
    running = policy.sample(questions)
    assert policy._batch._attention is not None
    plain = TransformersPolicy(folder, device="cuda", dtype=dtype).sample(questions)
    pairs = list(zip(running, plain, strict=True))
    assert sum(one.token_ids == other.token_ids for one, other in pairs) >= same
    apart = sorted(apart for pair in pairs for apart in differences(*pair))
    # A step between two bf16 numbers of a logit's size is 0.016: two such steps are rare (1 in 100 on a CPU, masks on
    # both sides).
    assert apart[len(apart) * 95 // 100] < near
    assert apart[-1] < (near if dtype == "float32" else 3 * near)
