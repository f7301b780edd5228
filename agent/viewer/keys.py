"""The viewer's keys: bound, and shown by `?`, from one table."""

from __future__ import annotations

from textual.binding import Binding

KEYS: tuple[tuple[str, str, str, str], ...] = (
    ("h,left", "step(-1)", "h, left", "previous turn"),
    ("l,right", "step(1)", "l, right", "next turn"),
    ("0,home", "end(0)", "0", "first turn"),
    ("dollar_sign,end", "end(-1)", "$", "last turn"),
    ("j,down", "scroll(1)", "j, down", "scroll down"),
    ("k,up", "scroll(-1)", "k, up", "scroll up"),
    ("space,pagedown", "page(1)", "space", "a page down"),
    ("b,pageup", "page(-1)", "b", "a page up"),
    ("g", "top", "g", "to the top"),
    ("G", "bottom", "G", "to the bottom"),
    ("H", "trajectory(-1)", "H", "previous trajectory"),
    ("L", "trajectory(1)", "L", "next trajectory"),
    ("v,escape", "view('turn')", "v, esc", "verdict and answer"),
    ("p", "view('prompt')", "p", "the prompt as it was sent"),
    ("c", "view('code')", "c", "code"),
    ("d", "view('diff')", "d", "diff to the parent"),
    ("o", "view('ptx')", "o", "PTX, compiled again offline"),
    ("f", "filter", "f", "filter: fault:mismatch, action:repair, correct ..."),
    ("slash", "search", "/", "search this text; // searches the whole database"),
    ("n", "again(1)", "n", "next match"),
    ("N", "again(-1)", "N", "previous match"),
    ("t", "list", "t", "list of trajectories"),
    ("x", "export", "x", "export the kernel to a file"),
    ("r", "refresh", "r", "read the database again"),
    ("F", "follow", "F", "follow what a batch writes"),
    ("question_mark", "help", "?", "this help"),
    ("q,ctrl+c", "quit", "q", "quit"),
)
"""Keys, action, how the key is written, what it does."""
BINDINGS: list[Binding | tuple[str, str] | tuple[str, str, str]] = [
    Binding(keys, action, text, key_display=written) for keys, action, written, text in KEYS
]
HINTS = (
    "h l turn  H L trajectory  c code  d diff  p prompt  o PTX  f filter  / search  t list  x export  ? help  q quit"
)
