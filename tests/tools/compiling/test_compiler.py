"""The compiler over hostile kernels: what crashes, hangs or asks for too much costs that kernel, and no other."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kernelwright.tools.compiling.cache import Cache
from kernelwright.tools.compiling.compiled import CompileOutcome
from kernelwright.tools.compiling.compiler import Compiler
from kernelwright.tools.compiling.text.closure import Contents
from kernelwright.tools.report import Fault
from kernelwright.tools.sandbox import Process, Zygote
from kernelwright.tools.trace.trace import Function, Json, Kernel, Traced

NAMES: dict[str, Json] = {"tl": {"triton": "triton.language"}}
ASSEMBLY = (
    "tl.store(x + a, tl.inline_asm_elementwise('no.s32 $0, $1, $7;', '=r,r', [a], dtype=tl.int32, "
    "is_pure=True, "
    "pack=1))"
)
BODIES = {
    "fine": "a = tl.arange(0, BLOCK)\ntl.store(x + a, tl.load(x + a) + 1)",
    "hangs": "for i in tl.static_range(1000000000):\n    a = i",
    "aborts": f"a = tl.arange(0, BLOCK)\n{ASSEMBLY}",
    "computes_for_ever": "a: tl.constexpr = 10 ** 10 ** 10",
    "eats_memory": "a: tl.constexpr = 'a' * 10 ** 12",
    "fine_as_well": "a = tl.arange(0, BLOCK)\ntl.store(x + a, tl.load(x + a) * 2)",
}


def function(name: str, body: str, **changes: object) -> Function:
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    made = Function(
        name=name, text=f"def {name}(x, BLOCK: tl.constexpr):\n{lines}", names=NAMES, line=5
    )
    return made.with_(**changes)


def kernel(name: str, **changes: object) -> Kernel:
    made = Kernel(
        function=name, signature={"x": "*fp32", "BLOCK": "constexpr"}, constants=(((1,), 128),)
    )
    return made.with_(**changes)


def traced(bodies: dict[str, str]) -> Traced:
    return Traced(
        functions={n: function(n, b) for n, b in bodies.items()},
        kernels={n: kernel(n) for n in bodies},
    )


@pytest.mark.slow
@pytest.mark.nightly
def test_a_kernel_that_ends_the_compiler_costs_only_itself(zygote: Zygote) -> None:
    compiler = Compiler(zygote, kernel_seconds=15.0)
    made = compiler.compile(traced(BODIES), list(BODIES), "sm_90", source="", seconds=500)
    assert list(made) == list(BODIES)
    faults = {name: compiled.failure and compiled.failure.fault for name, compiled in made.items()}
    assert faults == {
        "fine": None, "hangs": Fault.TIMEOUT, "aborts": Fault.CRASH, "computes_for_ever": Fault.TIMEOUT,
        "eats_memory": Fault.MEMORY, "fine_as_well": None,
    }  # fmt: skip
    failure = made["aborts"].failure
    assert failure is not None
    assert (
        "SIGABRT while compiling kernel aborts for sm_90: LLVM ERROR: Invalid $ operand number"
        in failure.message
    )


@pytest.mark.slow
def test_what_is_out_of_time_is_said_so_for_every_kernel(zygote: Zygote) -> None:
    begun = time.monotonic()
    made = Compiler(zygote, processes=1).compile(
        traced({n: BODIES[n] for n in ("hangs", "fine")}),
        ["hangs", "fine"],
        "sm_90",
        source="",
        seconds=2,
    )
    assert time.monotonic() - begun < 400
    assert [c.failure and c.failure.fault for c in made.values()] == [Fault.TIMEOUT, Fault.TIMEOUT]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (
            {"signature": {"x": "tensordesc<fp16[16],__import__('os')>", "BLOCK": "constexpr"}},
            "not a type of a parameter",
        ),
        ({"signature": {"y": "*fp32", "BLOCK": "constexpr"}}, "does not name the parameters"),
        ({"options": {"ir_override": "/etc/passwd"}}, "the option ir_override of a launch"),
        ({"options": {"extern_libs": {"a": "/etc/passwd"}}}, "the option extern_libs of a launch"),
        ({"options": {"num_warps": 3}}, "num_warps must be a power of 2"),
        ({"constants": (((1,), {"nothing": 1}),)}, "not a constant that a kernel can have"),
        ({"constants": (((1,), float("inf")),)}, "not a constant that a kernel can have: inf"),
        ({"constants": (((1,), {"function": [1]}),)}, "a device function without a key"),
        ({"constants": (((7, 3), 1),)}, "list index out of range"),
        ({"constants": (((1,), {"function": "gone"}),)}, "no device function gone"),
        ({"attributes": (((0,), [["tt.nothing", "x"]]),)}, "incompatible function arguments"),
    ],
)
def test_a_malformed_kernel_does_not_compile_and_says_why(
    changes: dict[str, object], says: str, zygote: Zygote
) -> None:
    trace = Traced(
        functions={"fine": function("fine", BODIES["fine"])},
        kernels={"k": kernel("fine", **changes)},
    )
    (made,) = Compiler(zygote).compile(trace, ["k"], "sm_90", source="", seconds=60).values()
    assert made.failure is not None
    assert made.failure.fault is Fault.COMPILE
    assert made.failure.message.startswith("kernel fine does not compile: ")
    assert says in made.failure.message


def test_the_second_candidate_with_the_same_text_finds_it_compiled_at_its_own_lines(
    zygote: Zygote,
) -> None:
    body = "helper(x)\ntl.store(x, nothing)"
    helper = function("helper", "y = x").with_(text="def helper(x):\n    return x\n")

    def trace(line: int, key: str) -> Traced:
        names = NAMES | {"helper": {"function": key}}
        return Traced(
            functions={
                "k": function("broken", body, line=line, names=names),
                key: helper.with_(line=line + 40),
            },
            kernels={f"kernel.{line}": kernel("k")},
        )

    compiler = Compiler(zygote)
    (first,) = compiler.compile(
        trace(5, "helper.1"), ["kernel.5"], "sm_90", source="", seconds=60
    ).values()
    (second,) = compiler.compile(
        trace(70, "helper.9"), ["kernel.70"], "sm_90", source="", seconds=60
    ).values()
    assert (first.cached, second.cached) == (False, True)
    assert first.key == second.key
    assert first.failure is not None
    assert first.failure.where is not None
    assert first.failure.where.line == 7
    assert second.failure is not None
    assert second.failure.where is not None
    assert second.failure.where.line == 72
    assert (
        first.failure.message
        == second.failure.message
        == "kernel broken does not compile: NameError('nothing is not defined')"
    )


def test_an_address_follows_everything_that_a_binary_depends_on() -> None:
    base, other = function("fine", BODIES["fine"]), function("helper", "return x")
    named = base.with_(names=NAMES | {"n": {"value": 3}, "helper": {"function": "h"}})
    functions = {"fine": named, "h": other}
    variants = [
        (functions, kernel("fine"), "sm_90", "1"),
        (functions | {"fine": named.with_(names=NAMES | {"n": {"value": 4}, "helper": {"function": "h"}})},
        kernel("fine"), "sm_90", "1"),
        (functions | {"h": other.with_(text=other.text + "    pass\n")}, kernel("fine"), "sm_90", "1"),
        (functions | {"fine": named.with_(noinline=True)}, kernel("fine"), "sm_90", "1"),
        (functions, kernel("fine", constants=(((1,), 256),)), "sm_90", "1"),
        (functions, kernel("fine", attributes=(((0,), [["tt.divisibility", 16]]),)), "sm_90", "1"),
        (functions, kernel("fine", options={"num_warps": 8}), "sm_90", "1"),
        (functions, kernel("fine", constants=(((1,), None),)), "sm_90", "1"),
        (functions, kernel("fine", constants=(((1,), float("inf")),)), "sm_90", "1"),
        (functions, kernel("fine"), "sm_80", "1"),
        (functions, kernel("fine"), "sm_90", "2"),
    ]  # fmt: skip
    assert len({Contents(f).address(k, t, v) for f, k, t, v in variants}) == len(variants)
    moved = {
        "fine": named.with_(
            line=99, indent=4, names=NAMES | {"n": {"value": 3}, "helper": {"function": "g"}}
        ),
        "g": other,
    }
    assert Contents(moved).address(kernel("fine"), "sm_90", "1") == Contents(functions).address(
        kernel("fine"), "sm_90", "1"
    )


def test_addresses_of_many_kernels_over_large_texts_take_no_time() -> None:
    """Each text is read once: 256 functions that all name each other, and 512 kernels of all of them."""
    names: dict[str, Json] = {f"f{n}": {"function": f"f{n}"} for n in range(256)}
    functions = {
        f"f{n}": Function(
            name=f"f{n}", text=f"def f{n}(x):\n    return '{'a' * 100_000}'\n", names=names
        )
        for n in range(256)
    }
    begun = time.thread_time()
    contents = Contents(functions)
    addresses = {
        contents.address(
            Kernel(function=f"f{n % 8}", signature={}, constants=(((n,), n),)), "sm_90", "1"
        )
        for n in range(512)
    }
    assert len(addresses) == 512
    assert time.thread_time() - begun < 20


def test_a_folder_keeps_what_was_compiled_for_the_next_run(zygote: Zygote, tmp_path: Path) -> None:
    trace = traced({"fine": BODIES["fine"]})
    first, second = (
        Compiler(zygote, folder=tmp_path).compile(trace, ["fine"], "sm_90", source="", seconds=60)[
            "fine"
        ]
        for _ in range(2)
    )
    assert (first.cached, second.cached) == (False, True)
    assert first.binary == second.binary
    assert first.binary
    (file,) = tmp_path.rglob("*.json")
    file.write_text("{")
    third = Compiler(zygote, folder=tmp_path).compile(
        trace, ["fine"], "sm_90", source="", seconds=60
    )["fine"]
    assert third.binary == first.binary
    assert not third.cached


def test_a_kernel_may_ask_for_its_target(zygote: Zygote) -> None:
    body = (
        "tl.static_assert(tl.target_info.cuda_capability_geq(9, 0) == (BLOCK == "
        "128))\ntl.static_assert(tl.target_info.is_cuda())"
    )
    trace = Traced(
        functions={"asks": function("asks", body)},
        kernels={"new": kernel("asks"), "old": kernel("asks", constants=(((1,), 64),))},
    )
    for key, target in (("new", "sm_90"), ("old", "sm_80")):
        assert (
            Compiler(zygote).compile(trace, [key], target, source="", seconds=60)[key].failure
            is None
        )


def test_a_constexpr_function_decides_a_block(zygote: Zygote) -> None:
    names: dict[str, Json] = {"lanes": {"constexpr_function": "lanes"}}
    body = (
        "W: tl.constexpr = lanes(BLOCK)\ntl.static_assert(W == 19)\na = tl.arange(0, lanes(32) - "
        "3)\ntl.store(x + a, "
        "1.0)"
    )
    lanes = Function(
        name="lanes",
        text="def lanes(block):\n    n = 0\n    for i in range(3):\n        n += i\n    return max(16, block // "
        "8) + n\n",
    )
    trace = Traced(
        functions={"k": function("decides", body, names=NAMES | names), "lanes": lanes},
        kernels={"k": kernel("k")},
    )
    assert (
        Compiler(zygote).compile(trace, ["k"], "sm_90", source="", seconds=60)["k"].failure is None
    )


def test_texts_of_stages_come_where_they_are_asked_for(zygote: Zygote) -> None:
    compiler, trace = Compiler(zygote), traced({"fine": BODIES["fine"]})
    without = compiler.compile(trace, ["fine"], "sm_90", source="", seconds=60)["fine"]
    with_them = compiler.compile(trace, ["fine"], "sm_90", source="", seconds=60, texts=("ptx",))[
        "fine"
    ]
    again = compiler.compile(trace, ["fine"], "sm_90", source="", seconds=60, texts=("ptx",))[
        "fine"
    ]
    assert without.texts == {}
    assert ".visible .entry fine" in with_them.texts["ptx"]
    assert again.cached


def test_a_full_cache_forgets_texts_before_binaries() -> None:
    cache = Cache(most_bytes=30_000)
    for n in range(5):
        cache.put(
            str(n),
            CompileOutcome(binary=b"0" * 1000, metadata={"name": "k"}, texts={"ptx": "x" * 6000}),
        )
    assert all(cache.get(str(n)) is not None for n in range(5))
    assert cache.get("0", ("ptx",)) is None
    assert cache.get("4", ("ptx",)) is not None


def test_a_folder_of_compiled_kernels_stays_within_its_bound(tmp_path: Path) -> None:
    first = Cache(tmp_path)
    for n in range(20):
        first.put(f"{n:04}", CompileOutcome(binary=b"0" * 3000, metadata={"name": "k"}))
    whole = sum(path.stat().st_size for path in tmp_path.glob("*/*"))
    assert Cache(tmp_path, most_bytes_on_disk=whole).get("0000") is not None
    Cache(tmp_path, most_bytes_on_disk=whole - 1)
    left = sum(path.stat().st_size for path in tmp_path.glob("*/*"))
    assert 0 < left <= whole // 2


def test_a_full_cache_forgets_what_was_used_least_lately() -> None:
    cache = Cache(most_bytes=30_000)
    for n in range(20):
        cache.put(str(n), CompileOutcome(binary=b"0" * 3000, metadata={"name": "k"}))
        assert cache.get("0") is not None
    assert cache.get("1") is None
    assert cache.get("19") is not None


@pytest.mark.slow
def test_warming_leaves_no_thread_and_no_environment() -> None:
    import os
    import subprocess
    import sys

    script = (
        "import os, threading\nfrom tools.compiling import worker\nbefore = "
        "dict(os.environ)\nworker.warm()\nworker.warm()\n"
        "assert dict(os.environ) == before\nassert threading.active_count() == "
        "1\nprint(len(os.listdir('/proc/self/task')))\n"
    )
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
    }
    told = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
    )
    assert told.stdout.strip() == "1"


def processes_begun(zygote: Zygote, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Fills with the entries of the processes that the zygote starts from now on."""
    begun: list[str] = []
    start = zygote.start

    def noted(entry: str, payload: dict[str, object]) -> Process:
        begun.append(entry)
        return start(entry, payload)

    monkeypatch.setattr(zygote, "start", noted)
    return begun


def test_a_kernel_that_two_candidates_ask_for_at_once_is_compiled_once(
    zygote: Zygote, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, compiler = processes_begun(zygote, monkeypatch), Compiler(zygote)
    asked = traced({"fine": BODIES["fine"]})
    with ThreadPoolExecutor(4) as pool:
        found = list(
            pool.map(
                lambda _: compiler.compile(asked, ["fine"], "sm_90", source="", seconds=60),
                range(4),
            )
        )
    assert all(one["fine"].failure is None for one in found)
    assert len({one["fine"].binary for one in found}) == 1
    assert len(begun) == 1


def test_who_waits_for_a_thread_that_runs_out_of_time_compiles_the_kernel_itself(
    zygote: Zygote,
) -> None:
    compiler = Compiler(zygote)
    asked = traced({"hangs": BODIES["hangs"], "fine": BODIES["fine"]})
    with ThreadPoolExecutor(1) as pool:
        late = pool.submit(
            compiler.compile, asked, ["hangs", "fine"], "sm_90", source="", seconds=2.0
        )
        time.sleep(0.5)
        found = compiler.compile(asked, ["fine"], "sm_90", source="", seconds=60)
        assert late.result()["hangs"].failure is not None
    assert found["fine"].failure is None
