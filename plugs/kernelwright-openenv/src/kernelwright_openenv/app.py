"""The FastAPI application that OpenEnv serves."""

from __future__ import annotations

import argparse

from openenv.core.env_server.http_server import create_app

from kernelwright_openenv.environment import KernelEnvironment
from kernelwright_openenv.models import KernelAction, KernelObservation

SESSIONS = 64

app = create_app(
    KernelEnvironment,
    KernelAction,
    KernelObservation,
    env_name="kernelwright",
    max_concurrent_envs=SESSIONS,
)


def main() -> None:
    """Serves it: `server --host 127.0.0.1 --port 8000`."""
    import uvicorn

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    asked = parser.parse_args()
    uvicorn.run(app, host=asked.host, port=asked.port)


if __name__ == "__main__":
    main()
