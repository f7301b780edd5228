"""Drafts as `rl sft --drawn N` draws them, written as a corpus that `rl data report` reads.

python -m bench.drawn --n 20000 --out DIR [--seed 0] [--workers 2]
"""

from __future__ import annotations

import argparse
from pathlib import Path

from kernelwright.rl.data.rows import write_rows
from kernelwright.rl.training.sft.drawn_rows import drawn_rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--n", type=int, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2)
    asked = parser.parse_args()
    write_rows(asked.out, drawn_rows(asked.n, asked.seed, asked.workers))
    print(f"{asked.n:,} drafts in {asked.out}")


if __name__ == "__main__":
    main()
