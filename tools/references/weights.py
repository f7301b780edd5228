"""Which of the reference's weights each of a candidate's parameters is."""

from __future__ import annotations

from typing import Any

Shape = tuple[tuple[int, ...], str]


def match(model: Any, listed: Any) -> dict[str, str] | None:
    """Candidate's name -> reference's name, for all of the reference's parameters (and buffers where the names agree).

    By name and shape, tied weights by each of their names; else parameters in their order where the sequences of shapes
    are equal; else None.
    """
    theirs = _listed(listed)
    named = [*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)]
    ours = {n: _shape(t) for n, t in named}
    parameters = [n for n, p in model.named_parameters() if p.numel()]
    by_name = {n: n for n, (_, shape) in theirs.items() if ours.get(n) == shape}
    if all(n in by_name for n in parameters):
        return by_name
    candidates = [(n, shape) for n, (kind, shape) in theirs.items() if kind == "parameter"]
    if [shape for _, shape in candidates] == [ours[n] for n in parameters]:
        return {n: ours_name for (n, _), ours_name in zip(candidates, parameters, strict=True)}
    return None


def _shape(tensor: Any) -> Shape:
    return tuple(tensor.shape), str(tensor.dtype).removeprefix("torch.")


def _listed(listed: Any) -> dict[str, tuple[str, Shape]]:
    """The candidate's own list; what has not its form is left out, and then does not match."""
    found: dict[str, tuple[str, Shape]] = {}
    for entry in listed if isinstance(listed, list) else []:
        try:
            found[str(entry["name"])] = (
                str(entry["kind"]),
                (tuple(int(n) for n in entry["shape"]), str(entry["dtype"])),
            )
        except (KeyError, TypeError, ValueError):
            continue
    return found
