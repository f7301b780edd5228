"""Options spelt alike in every command of `rl`."""

from __future__ import annotations

from typing import Annotated

import typer

AsJson = Annotated[
    bool, typer.Option("--json", help="Print the result as one JSON object and nothing else.")
]
Debug = Annotated[bool, typer.Option("--debug", help="Show a traceback when something goes wrong.")]
StorageName = Annotated[
    str, typer.Option("--storage", help="How a whole model is written: fp32, bf16 or int8.")
]
Against = Annotated[
    list[str] | None,
    typer.Option(
        "--against",
        help="A suite that no row or problem may be of, besides the known benchmarks and the catalogue's held-out "
        "problems: kernelbench:DIR, tritonbench-t:DIR or a folder of problems. May be repeated.",
        show_default=False,
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        help="NAME=VALUE: a field of trl's config of the method. May be repeated.",
        show_default=False,
    ),
]
Adapter = Annotated[
    str | None, typer.Option(help="A LoRA adapter to go on with.", show_default=False)
]
Gpus = Annotated[
    int | None,
    typer.Option(
        "--gpus",
        min=1,
        help="Train in so many processes, a GPU each, with weights, gradients and optimizer sharded (FSDP2). With "
        "--device cpu: processes on the cores, to rehearse.",
        show_default=False,
        rich_help_panel="Trainer",
    ),
]
TargetName = Annotated[
    str, typer.Option("--target", help="GPU to compile for: sm_80 ... sm_120, gfx942.")
]
SplitName = Annotated[
    str,
    typer.Option("--split", help="train, held_out_composition, held_out_depth or held_out_family."),
]
PolicyDevice = Annotated[
    str, typer.Option("--policy-device", help="Where the policy computes: auto, cpu or cuda:N.")
]
JudgingProcesses = Annotated[
    int, typer.Option("--workers", min=1, help="Processes that judge; about 1 GB each.")
]
