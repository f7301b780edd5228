"""References that mean harm: the next verdict of another client is right, and nothing of the server is read."""

import os
import time

import pytest

import kernelwright

from ..conftest import ALICE, BOB, GOOD, RunningServer

REFERENCE = """import torch
{top}

class Model(torch.nn.Module):
    def forward(self, x):
        {statement}
        return x * torch.sigmoid(x)


def get_inputs():
    return [torch.randn(64, 128)]


def get_init_inputs():
    return []
"""
SECRET = "a-secret-of-the-environment"
TELLS = "raise ValueError('told: ' + str({value}))"
READS = {
    "the token file": "open('{folder}/tokens.txt').read()",
    "the token file's folder": "__import__('os').listdir('{folder}')",
    "the record": "open('{folder}/.kernelwright/service.db', 'rb').read(100)",
    "its environment": "dict(__import__('os').environ)",
    "the server's environment": "open('/proc/{server}/environ').read()",
    "the server's files through /proc": "open('/proc/{server}/root{folder}/tokens.txt').read()",
    "every environment": "[open(p).read() for p in __import__('glob').glob('/proc/[0-9]*/environ')]",
    "the parent's memory": "open('/proc/{server}/mem', 'rb').read(1)",
    "disks": "[open(d, 'rb').read(1) for d in __import__('glob').glob('/dev/[svn][dv]*')][0]",
    "files of root": "open('/etc/shadow').read()",
}
"""Expressions whose value would be in the error that alice is told."""
HARMS = {
    "exits": "import sys; sys.exit(3)",
    "ends its process": "import os; os._exit(0)",
    "kills the server": "import os, signal; os.kill({server}, signal.SIGKILL)",
    "kills everything": "import os, signal; os.kill(-1, signal.SIGKILL)",
    "loops": "exec('while True: pass')",
    "sleeps": "import time; time.sleep(10_000)",
    "forks": "import os; [os.fork() for _ in range(9)]",
    "forks past Python": (
        "import ctypes, time; c = ctypes.CDLL(None); "
        "[time.sleep(20) or c._exit(0) for _ in range(400) if c.fork() == 0]"
    ),
    "doubles past Python": "import ctypes, time; c = ctypes.CDLL(None); [c.fork() for _ in range(9)]; time.sleep(20)",
    "starts programs": "import subprocess as s; p = [s.Popen(['sleep', '20']) for _ in range(400)]",
    "starts threads": (
        "import threading as t, time; [t.Thread(target=time.sleep, args=(20,)).start() for _ in range(4000)]"
    ),
    "allocates": "bytearray(2**45)",
    "takes memory": "self.kept = [bytearray(b'x') * 2**28 for _ in range(100)]",
    "fills the temporary folder": (
        "import tempfile; [open(tempfile.mktemp(), 'wb').write(bytes(2**28)) for _ in range(100)]"
    ),
    "fills the temporary folder with names": (
        "import tempfile; [open(tempfile.mktemp(), 'wb') for _ in range(300_000)]"
    ),
    "uncovers the server's files": "import subprocess as s; s.run(['umount', '-a', '-l'])",
    "changes the kernel's settings": "open('/proc/sys/kernel/core_pattern', 'w').write('|/bin/false')",
    "writes to the home": "import os; open(os.path.expanduser('~{user}') + '/planted', 'w').write('x')",
    "writes into the package": "import kernelwright as k; open(k.__path__[0] + '/planted.py', 'w').write('x')",
    "writes to the record": "open('{folder}/.kernelwright/service.db', 'wb').write(b'x')",
    "changes the tokens": "open('{folder}/tokens.txt', 'w').write('mallory mallory-0123456789abc admin')",
    "recurses": "exec('def f(): f()\\nf()', {})",
    "leaves a thread": "import threading; threading.Thread(target=lambda: exec('while 1: pass')).start()",
    "closes files": "import os; os.closerange(0, 1000)",
    "changes torch": "torch.allclose = torch.equal = lambda *a, **k: True; torch.Tensor.abs = lambda x: x * 0",
    "turns gradients off and dtypes over": "torch.set_default_dtype(torch.float64); torch.set_grad_enabled(False)",
}

TAKE_MINUTES = {"loops", "sleeps", "leaves a thread", "takes memory"}
"""They end at a time limit, or fill the machine's memory."""


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shared")
    (folder / "tokens.txt").write_text(f"alice {ALICE}\nbob {BOB}\n")
    os.environ["SECRET_OF_A_TEST"] = SECRET
    server = RunningServer(folder, "--token-file", "tokens.txt", "--verdict-seconds", "120")
    del os.environ["SECRET_OF_A_TEST"]
    yield server
    server.stop()


def told(shared, statement: str):
    """The status of alice's verdict on a reference with this statement, once it has ended."""
    text = statement.replace("{server}", str(shared.process.pid)).replace(
        "{folder}", str(shared.folder)
    )
    text = text.replace("{user}", os.environ.get("USER", "root"))
    problem = kernelwright.Problem(name="mine", source=REFERENCE.format(top="", statement=text))
    with kernelwright.JudgeClient(shared.url, ALICE) as alice:
        submitted = alice.submit(problem, GOOD.read_text(), sizes=1, seconds=20.0)
        began = time.monotonic()
        while not (status := alice.status(submitted.verdict_id, wait=30.0)).state.ended:
            assert time.monotonic() - began < 400.0
    return status


@pytest.mark.parametrize("reads", READS)
def test_a_reference_reads_nothing_of_the_server(shared, reads):
    status = told(shared, TELLS.format(value=READS[reads]))
    assert status.state == "failed", status
    message = status.error.message
    assert SECRET not in message
    assert BOB not in message
    assert "SQLite" not in message


@pytest.mark.slow
@pytest.mark.parametrize(
    "harm",
    [pytest.param(harm, marks=[pytest.mark.nightly] * (harm in TAKE_MINUTES)) for harm in HARMS],
)
def test_after_a_hostile_reference_another_clients_verdicts_are_right(shared, harm, right_code):
    status = told(shared, HARMS[harm])
    assert status.state.ended
    wrong = right_code.replace("x * tl.sigmoid(x)", "x * 1.0")
    with kernelwright.JudgeClient(shared.url, BOB) as bob:
        assert bob.score("fused_silu", f"{right_code}\nHARM = {harm!r}\n", sizes=1).correct
        assert not bob.score("fused_silu", f"{wrong}\nHARM = {harm!r}\n", sizes=1).correct
    assert shared.process.poll() is None
    assert (shared.folder / "tokens.txt").read_text().startswith("alice")
