"""Recognizes licences by the words of their texts, and classifies them as permissive: training is
allowed if the notice is included.
"""

from __future__ import annotations

import re
from pathlib import Path

PERMISSIVE = frozenset(
    {
        "MIT",
        "Apache-2.0",
        "BSD-2-Clause",
        "BSD-3-Clause",
        "ISC",
        "0BSD",
        "Unlicense",
        "CC0-1.0",
        "Zlib",
        "BSL-1.0",
    }
)
LICENCE_FILE_NAMES = re.compile(r"^(licen[cs]e|copying|unlicense)", re.IGNORECASE)
_MARKS: tuple[tuple[str, str], ...] = (
    ("AGPL-3.0", r"gnu affero general public license"),
    ("LGPL-3.0", r"gnu lesser general public license"),
    ("GPL-3.0", r"gnu general public license"),
    ("MPL-2.0", r"mozilla public license"),
    ("Apache-2.0", r"apache license,?\s+version 2\.0"),
    ("BSL-1.0", r"boost software license"),
    ("CC0-1.0", r"cc0 1\.0 universal"),
    ("Unlicense", r"free and unencumbered software released into the public domain"),
    ("BSD-3-Clause", r"redistribution and use in source and binary forms.*neither the name"),
    ("BSD-2-Clause", r"redistribution and use in source and binary forms"),
    (
        "ISC",
        r"permission to use, copy, modify, and(?:/or)? distribute this software for any purpose",
    ),
    ("MIT", r"permission is hereby granted, free of charge"),
    ("Zlib", r"altered source versions must be plainly marked"),
)
_TAG = re.compile(
    r"SPDX-License-Identifier:[ \t]*([\w.+()-]+(?:(?:[ \t]*,[ \t]*|[ \t]+(?:AND|OR|WITH)[ \t]+)[\w.+()-]+)*)"
)
_SAME = {
    "apache 2.0": "Apache-2.0",
    "apache license 2.0": "Apache-2.0",
    "bsd-3": "BSD-3-Clause",
    "bsd-2": "BSD-2-Clause",
    "bsd": "BSD-3-Clause",
}


def licence_of_text(text: str) -> str:
    """Returns the SPDX name of a licence's text; empty if unknown."""
    plain = " ".join(text.lower().split())
    return next((name for name, mark in _MARKS if re.search(mark, plain)), "")


def licence_of_tag(text: str) -> str:
    """Returns the licence declared by a file's SPDX tag."""
    match = _TAG.search(text[:4000])
    return match[1] if match else ""


def licence_of_folder(folder: Path, top: Path) -> str:
    """Returns the licence of the nearest licence file, from `folder` up to `top`."""
    for directory in (folder, *folder.parents):
        for file in sorted(directory.iterdir()):
            if file.is_file() and LICENCE_FILE_NAMES.match(file.name):
                return licence_of_text(file.read_text(encoding="utf-8", errors="replace"))
        if directory == top:
            break
    return ""


def is_permissive(name: str) -> bool:
    """Returns whether a licence is permissive: for `A OR B` either suffices, for `A AND B` and
    `A, B` all must be.

    An exception (`A WITH B`) only extends the permissions of A.
    """
    # Innermost parentheses first: each is replaced by a permissive or an unknown licence.
    while inner := re.search(r"\(([^()]*)\)", name):
        name = f"{name[: inner.start()]} {'MIT' if _all_parts(inner[1]) else 'none'} {name[inner.end() :]}"
    return _all_parts(name)


def _all_parts(name: str) -> bool:
    """Returns whether an expression without parentheses is permissive. AND binds tighter than OR,
    a comma looser than both.
    """
    parts = [part for part in name.split(",") if part.strip()]
    return bool(parts) and all(map(_is_permissive_choice, parts))


def _is_permissive_choice(part: str) -> bool:
    """Returns whether any alternative of an OR is permissive in all its AND terms."""
    alternatives = _split("OR", part)
    return any(
        all(map(_is_permissive_name, _split("AND", alternative))) for alternative in alternatives
    )


def _split(word: str, name: str) -> list[str]:
    return re.split(rf"\s+{word}\s+", name, flags=re.IGNORECASE)


def _is_permissive_name(name: str) -> bool:
    plain = _split("WITH", name)[0].strip().lower()
    return _SAME.get(plain, plain).lower() in {p.lower() for p in PERMISSIVE}
