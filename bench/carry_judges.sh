#!/usr/bin/env bash
# Fetches what bench.attack needs into the ignored folder .judges: the needed part of each judge at the commit that was
# last tried, and wheels for a GPU machine with Python 3.12 and no network. pygpubench is compiled here: nvcc 13, CMake
# 3.26, ninja, the headers of libseccomp and OpenSSL, and PYTHON312 (an interpreter with its headers) are needed.
# There: python3 -m pip install -q --no-index --no-deps --no-compile --upgrade --target /tmp/site .judges/wheels/*.whl
#        PYTHONPATH=/tmp/site python3 -m bench.attack --judges .judges
# JUDGE_SOURCES replaces https://github.com by a folder of clones.
set -euo pipefail
cd "$(dirname "$0")/.."
sources="${JUDGE_SOURCES:-https://github.com}" python="${PYTHON312:-python3.12}" out="$PWD/.judges" work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
part() { # folder, repository, commit, paths
  local folder="$1" repository="$2" commit="$3"
  shift 3
  git clone -q --bare "$sources/$repository" "$work/$folder.git"
  mkdir -p "$out/$folder"
  git --git-dir="$work/$folder.git" archive "$commit" "$@" | tar -x -C "$out/$folder"
  git --git-dir="$work/$folder.git" log -1 --format='%H %cs' "$commit" >"$out/$folder/COMMIT"
}
rm -rf "$out"
mkdir -p "$out/wheels"
part kernelbench ScalingIntelligence/KernelBench 423217d9fda91e0c2d67e4a43bf62f96f6d104f1 src LICENSE
part sol-execbench NVIDIA/SOL-ExecBench 8d2237d2012cba81f64905b273b592653623abf9 src LICENSE
part flashinfer-bench flashinfer-ai/flashinfer-bench 40e6ca7844b514eb4b1c7edba6d6a7377df57870 flashinfer_bench LICENCE
part flashinfer flashinfer-ai/flashinfer f1e6fdcb8 flashinfer LICENSE # 0.6.4: its clock; later ones need CUTLASS's DSL
part pygpubench gpu-mode/pygpubench 87bb46dfef7f1c5d596c12b2e3ec14664b9f2319 python csrc CMakeLists.txt
git clone -q "$sources/wjakob/nanobind" "$work/nanobind"
git -C "$work/nanobind" checkout -q v2.9.2
"$python" -m pip download -q --no-deps -d "$work" nanobind==2.9.2 # its wheel holds the submodule robin_map
unzip -qo "$work"/nanobind-*.whl 'nanobind/ext/*' -d "$work/wheel"
mkdir -p "$work/nanobind/ext/robin_map"
cp -r "$work/wheel/nanobind/ext/robin_map/." "$work/nanobind/ext/robin_map/"
cmake -G Ninja -S "$out/pygpubench" -B "$work/build" -DCMAKE_BUILD_TYPE=Release -DPython_EXECUTABLE="$(command -v "$python")" \
  -DFETCHCONTENT_SOURCE_DIR_NANOBIND="$work/nanobind" -DSKBUILD_SABI_COMPONENT=Development.SABIModule \
  -DSKBUILD_SABI_VERSION=3.12 >/dev/null
cmake --build "$work/build" --target _pygpubench >/dev/null
mv "$out/pygpubench/python/pygpubench" "$out/pygpubench/pygpubench"
cp "$work/build/_pygpubench.abi3.so" "$out/pygpubench/pygpubench/"
rm -r "$out/pygpubench/python" "$out/pygpubench/csrc" "$out/pygpubench/CMakeLists.txt"
names=(pydantic pydantic_core annotated-types typing-inspection openai httpx2 jiter nvidia-ml-py anyio idna sniffio) # as constraints.txt pins
for name in "${names[@]}"; do wanted+=("$(grep -i "^${name//_/[-_]}==" constraints.txt | head -1)"); done
wanted+=('litellm<1.60' python-dotenv jsonschema jsonschema-specifications referencing rpds-py 'importlib-metadata<9') # KernelBench
wanted+=('cupti-python<13.1' pyelftools apache-tvm-ffi==0.1.9 docstring-parser tabulate) # SOL-ExecBench, flashinfer-bench
wanted+=('cryptography<3.5' cffi pycparser) # pygpubench
for one in "${wanted[@]}"; do
  python3 -m pip download -q --no-deps --only-binary=:all: --python-version 3.12 --implementation cp --platform any \
    --platform manylinux_2_28_x86_64 --platform manylinux_2_27_x86_64 --platform manylinux_2_24_x86_64 \
    --platform manylinux_2_17_x86_64 --platform manylinux2014_x86_64 -d "$out/wheels" "$one"
done
du -sh "$out"
