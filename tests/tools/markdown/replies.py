"""Replies of models, and the program in each: the table that the judge's reader and the plugs' reader share."""

from __future__ import annotations

KERNEL = """import triton
import triton.language as tl


@triton.jit
def scale_kernel(x, y, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + offsets, tl.load(x + offsets, mask=offsets < n) * 2, mask=offsets < n)
"""
MODEL = """import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        scale_kernel[(triton.cdiv(x.numel(), 64),)](x, y, x.numel(), BLOCK=64)
        return y
"""
WHOLE = f"{KERNEL}\n\n{MODEL}"
IMPORTS = "import triton\nimport triton.language as tl\n"
BARE_KERNEL = KERNEL.removeprefix(IMPORTS).lstrip()
MENTION = "# class ModelNew is above\nprint(1)"
QUOTE = 'text = """\nclass ModelNew: pass\n"""'
FUTURE = "from __future__ import annotations\n"
OLD = WHOLE.replace("* 2", "* 3")
DOCSTRING = f'"""Scales.\n\n```python\nclass ModelNew: "example"\n```\n"""\n{WHOLE}'


def fenced(code: str, fence: str = "```", info: str = "python") -> str:
    return f"{fence}{info}\n{code}{fence}\n"


def indented(text: str, prefix: str) -> str:
    return "".join(f"{prefix}{line}\n" for line in text.splitlines())


REPLIES: dict[str, tuple[str, str]] = {
    "a program alone": (WHOLE, WHOLE),
    "a program with a mark of Windows": ("\ufeff" + WHOLE.replace("\n", "\r\n"), WHOLE),
    "a program whose docstring holds a block": (DOCSTRING, DOCSTRING),
    "a program whose string closes a thought": (WHOLE + 'TAG = "</think>"\n', WHOLE + 'TAG = "</think>"\n'),
    "a block": (f"Here it is.\n\n{fenced(WHOLE)}\nIt doubles x.", WHOLE),
    "a block behind a label of triton": (fenced(WHOLE, info="triton"), WHOLE),
    "a block behind a label of python3": (fenced(WHOLE, info="python3"), WHOLE),
    "a block behind a label of py": (fenced(WHOLE, info="py"), WHOLE),
    "a block with a title": (fenced(WHOLE, info='python title="kernel.py"'), WHOLE),
    "a block with a label in braces": (fenced(WHOLE, info="{.python .numberLines}"), WHOLE),
    "a block behind a label of another language": (fenced(WHOLE, info="cuda"), WHOLE),
    "a block without a label": (fenced(WHOLE, info=""), WHOLE),
    "a block in tildes": (fenced(WHOLE, fence="~~~"), WHOLE),
    "a block in tildes without an end": (f"~~~python\n{WHOLE}", WHOLE),
    "a block in four backticks that holds three": (fenced(DOCSTRING, fence="````"), DOCSTRING),
    "a block in three backticks that holds three": (fenced(DOCSTRING), DOCSTRING),
    "a block that a shorter fence does not close": (f"`````python\n{WHOLE}```\n`````\n", WHOLE + "```\n"),
    "a block with lines of Windows": (fenced(WHOLE).replace("\n", "\r\n"), WHOLE),
    "a block with lines of old Macs": (fenced(WHOLE).replace("\n", "\r"), WHOLE),
    "a block in a list": (f"1. The kernel:\n\n{indented(fenced(WHOLE), '   ')}", WHOLE),
    "a block behind a bullet": (f"- ```python\n{indented(WHOLE, '  ')}  ```\n", WHOLE),
    "a block in a quotation": (indented(fenced(WHOLE), "> "), WHOLE),
    "a block behind prose": (f"**Answer:** {fenced(WHOLE)}", WHOLE),
    "a block closed behind its last line": (f"```python\n{WHOLE.rstrip()}```", WHOLE),
    "a block closed with spaces": (f"```python\n{WHOLE}```   \nDone.", WHOLE),
    "a block without an end": (f"Sure:\n```python\n{WHOLE}", WHOLE),
    "a block that is cut off": (f"```python\n{WHOLE[:-30]}", WHOLE[:-30].rstrip() + "\n"),
    "a draft and a better block": (f"{fenced(OLD)}Better:\n{fenced(WHOLE)}", WHOLE),
    "a block and one that runs it": (f"{fenced(WHOLE)}Try it:\n{fenced('model = ModelNew()')}", WHOLE),
    "a block and one that mentions it": (f"{fenced(WHOLE)}{fenced(MENTION)}", WHOLE),
    "a block and one that quotes it": (f"{fenced(WHOLE)}{fenced(QUOTE)}", WHOLE),
    "a block and a plan in words": (f"{fenced('class ModelNew calls the kernel', info='text')}{fenced(WHOLE)}", WHOLE),
    "a whole block and one that is cut off": (f"{fenced(WHOLE)}Shorter:\n```python\n{OLD[:-30]}", WHOLE),
    "kernel and module in two blocks": (f"{fenced(KERNEL, info='triton')}and\n{fenced(MODEL)}", WHOLE),
    "module and kernel in two blocks": (f"{fenced(MODEL)}and\n{fenced(KERNEL)}", WHOLE),
    "the corrected kernel of three blocks": (
        f"{fenced(KERNEL.replace('* 2', '* 3'))}Wait:\n{fenced(KERNEL)}and\n{fenced(MODEL, fence='~~~')}", WHOLE),
    "imports in a block of their own": (
        f"{fenced(IMPORTS)}{fenced(BARE_KERNEL)}{fenced(MODEL)}", f"{IMPORTS}\n\n{BARE_KERNEL}\n\n{MODEL}"),
    "two blocks with a future import": (f"{fenced(KERNEL)}{fenced(FUTURE + MODEL)}", f"{FUTURE}{WHOLE}"),
    "a block behind a shell command": (f"{fenced('pip install triton', info='bash')}{fenced(WHOLE)}", WHOLE),
    "a block behind a thought": (f"<think>\n{fenced(OLD)}</think>\n{fenced(WHOLE)}", WHOLE),
    "a block behind the end of a thought": (f"{fenced(OLD)}</think>{fenced(WHOLE)}", WHOLE),
    "a block behind a thought of Mistral": (f"[THINK]{fenced(OLD)}[/THINK]{fenced(WHOLE)}", WHOLE),
    "a block behind an analysis": (
        f"<|channel|>analysis<|message|>{fenced(OLD)}<|end|><|start|>assistant<|channel|>final<|message|>\n"
        f"{fenced(WHOLE)}", WHOLE),
    "a program behind a thought": (f"<think>a plan</think>\n\n{WHOLE}", WHOLE),
    "a thought that is cut off": (f"<think>\nPerhaps:\n{fenced(OLD)}but then", ""),
    "a thought that is cut off in its code": (f"<think>\n```python\n{OLD[:-30]}", ""),
    "a thought in capitals that is cut off": (f"\n<Thinking>\n{fenced(OLD)}", ""),
    "a second thought that is cut off": (f"<think>a</think>\n<think>\n{fenced(OLD)}", ""),
    "nothing": ("", ""),
    "a refusal": ("I cannot write this kernel.", ""),
    "words of Python": ("import is a word, and so is class.", ""),
    "a block of text": (fenced("nothing", info="text"), ""),
    "a block without the module": (fenced(KERNEL), KERNEL),
}  # fmt: skip
"""By what the reply is: its text, and the program (empty: there is none)."""
