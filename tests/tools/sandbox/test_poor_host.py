"""A host that allows no namespace and no mount (as a container of others often does not): played by our own
system-call filter round the judge.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

SCRIPT = """
import json, os, sys, time
from kernelwright.tools.sandbox.isolation.system_call_bindings import no_new_privileges
from kernelwright.tools.sandbox.isolation.seccomp_filter import refuse_system_calls
no_new_privileges()
refuse_system_calls(memory_files=True, sockets=True)
from kernelwright.tools.sandbox import ProcessKind, Limits, ProcessDied, Zygote

PROBE = "kernelwright.tools.sandbox.inside.probe:serve"
AWAY = '''
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        open("mark", "w").close()
        time.sleep(600)
    os._exit(0)
while not os.path.exists("mark"):
    time.sleep(0.01)
result = 1
'''
BIG = "import time\\nfor i in range(12): open(f'b{i}', 'wb').write(b'x' * (20 << 20))\\ntime.sleep(60)"
CLOSED = "open('/etc/passwd').read()"

def at(folder):
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            found += [entry] if os.readlink(f"/proc/{entry}/cwd").startswith(str(folder)) else []
        except OSError:
            pass
    return found

said = {}
with Zygote(ProcessKind.INTERPRET, private_scratch=True, limits=Limits(disk=64 << 20)) as zygote:
    with zygote.start(PROBE, {"code": AWAY}) as process:
        said["answer"] = process.receive(30)
        said["missing"] = process.isolation.missing
        said["there"] = len(at(process.scratch))
    process.gone()
    said["left"] = len(at(process.scratch))
    with zygote.start(PROBE, {"code": BIG}) as process:
        try:
            process.receive(60)
        except ProcessDied as death:
            said["death"] = death.describe()
    with zygote.start(PROBE, {"code": CLOSED}) as process:
        said["closed"] = process.receive(30)["error"]
said["folder"] = zygote.folder.exists()
print(json.dumps(said))
"""


@pytest.fixture(scope="module")
def said():
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


def test_what_is_missing_is_named(said):
    names = {text.partition(":")[0] for text in said["missing"]}
    assert {"network namespace", "mount namespace", "ipc namespace", "pid namespace"} <= names


def test_a_candidate_is_served_and_what_it_leaves_behind_is_ended(said):
    assert said["answer"] == {"result": 1}
    assert said["there"] >= 2
    assert said["left"] == 0


def test_its_folder_is_watched_and_removed(said):
    assert "wrote more than 0.0625 GiB of files" in said["death"]
    assert said["folder"] is False


def test_files_are_closed_all_the_same(said):
    assert said["closed"] == "PermissionError"
