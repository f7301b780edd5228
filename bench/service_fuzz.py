"""The judge service fuzzed from its own schema by schemathesis: no answer may be a server error.

    python -m bench.service_fuzz --schemathesis VENV/bin/schemathesis [--examples 50]
        [--out bench/results/service_fuzz.md]

Starts `agent serve --device cpu` on loopback and gives schemathesis its OpenAPI schema and a token. schemathesis has
pins of its own: install it in an environment of its own (`pip install schemathesis`). Exit code 1 where an answer was a
server error, or the server did not survive.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import subprocess
import sys
from datetime import date
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx2

from bench.service_load import Served

CHECKS = ("not_a_server_error", "status_code_conformance", "response_schema_conformance")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--schemathesis", default="schemathesis")
    parser.add_argument("--examples", type=int, default=50)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    with TemporaryDirectory() as folder:
        served = Served(Path(folder), workers=1, clients=1)
        address = f"http://127.0.0.1:{served.port}"
        done = subprocess.run(
            [
                given.schemathesis, "run", f"{address}/openapi.json", "--checks", ",".join(CHECKS), "--max-examples",
                str(given.examples), "--header", "Authorization: Bearer token-of-client-00000000", "--seed", "1",
                "--request-timeout", "70", "--continue-on-failure", "--no-color", "--phases",
                "examples,coverage,fuzzing",
            ],
            capture_output=True, text=True, cwd=folder,
        )  # fmt: skip
        health = httpx2.get(f"{address}/v1/health").json()["status"]
        served.stop()
    told = re.sub(r"\x1b\[[0-9;]*m", "", done.stdout)
    summary = told[told.rfind("SUMMARY") :] if "SUMMARY" in told else told[-3000:]
    errors = len(re.findall(r"Server error|\[5\d\d\]", told))
    lines = [
        "# The judge service, fuzzed",
        "",
        f"Server errors: {errors}. Health afterwards: {health}.",
        "",
        "```",
    ]
    command = "python -m bench.service_fuzz " + " ".join(sys.argv[1:])
    lines += [
        summary.strip(),
        done.stderr.strip()[-500:],
        "```",
        "",
        f"`{command}`, {platform.machine()}, ",
    ]
    print(
        text := "\n".join(lines) + f"{os.cpu_count()} cores, no GPU, {date.today().isoformat()}\n"
    )
    if given.out:
        given.out.write_text(text, encoding="utf-8")
    return 1 if errors or health != "ok" else 0


if __name__ == "__main__":
    raise SystemExit(main())
