#!/usr/bin/env bash
# Fetches the wheels that a lent GPU machine (Python 3.12, no network) lacks into the ignored folder .whl. Versions are those of constraints.txt.
# There: python3 -m pip install -q --no-index --no-deps --no-compile --upgrade --target /tmp/site .whl/*.whl; export PYTHONPATH=/tmp/site:$PWD/src
set -euo pipefail
cd "$(dirname "$0")/.."
names=(pydantic pydantic_core annotated-types typing-inspection sqlmodel SQLAlchemy tenacity trl datasets dill multiprocess
  RapidFuzz textual mdit-py-plugins linkify-it-py platformdirs openai jiter nvidia-ml-py datasketch
  fastapi starlette anyio idna annotated-doc uvicorn click h11 prometheus_client httpx2 httpcore2 truststore psutil
  opentelemetry-api typing_extensions typer sniffio)
mkdir -p .whl
for name in "${names[@]}"; do
  version="$(grep -iE "^${name//[-_]/[-_]}==" constraints.txt | head -1)"
  [ -n "$version" ] || { echo "constraints.txt does not pin $name" >&2; exit 1; }
  python3 -m pip download -q --no-deps --only-binary=:all: --python-version 3.12 --implementation cp \
    --platform manylinux_2_28_x86_64 --platform manylinux_2_27_x86_64 --platform manylinux_2_17_x86_64 \
    --platform manylinux2014_x86_64 --platform manylinux1_x86_64 -d .whl "$version"
done
du -sh .whl
