"""Finds a file's parameters by its syntax, without declarations.

The tracer answers questions beyond syntax (whether a grid follows a tile, which kernels are
launched): tools/tuning/tunable_space.py.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from kernelwright.tools.parsing import parse_module
from kernelwright.tools.tuning.kernel_text.autotune_lists import (
    AutotuneList,
    lists_of,
    without_all_but_first,
)
from kernelwright.tools.tuning.kernel_text.dot_precision import precision_parameters
from kernelwright.tools.tuning.kernel_text.kernel_syntax import KernelSyntax, kernels_of
from kernelwright.tools.tuning.kernel_text.launches import (
    GridDivision,
    LaunchSyntax,
    divisions_of,
    launches_of,
)
from kernelwright.tools.tuning.kernel_text.parameters import (
    LAUNCH_OPTION_ROLES,
    FixedNumber,
    Parameter,
    ParameterRole,
    ParameterSpace,
    Setting,
    Site,
)
from kernelwright.tools.tuning.kernel_text.places import Text
from kernelwright.tools.tuning.kernel_text.resolving import Resolved, Scopes, resolve
from kernelwright.tools.tuning.kernel_text.rewriting import joined_sites
from kernelwright.tools.tuning.legal_values import (
    TRITON_DEFAULTS,
    counts_work,
    option_values,
    tile_values,
)


@dataclass
class TunableFile:
    """File with its tunable parameters."""

    source: str
    """Source with a single configuration per autotune list; the user's text if there is no such
    list.
    """
    space: ParameterSpace
    starts: list[dict[str, Setting]] = field(default_factory=list)
    """Configurations listed in the file's autotune lists, in the order of the text."""
    original: str = ""
    """Unchanged text of the user."""


def read_file(source: str) -> TunableFile:
    """The parameters of a file.

    Raises SyntaxError and ValueError as `ast.parse` does.
    """
    base = without_all_but_first(source)
    reader = _Reader(base)
    space = reader.space()
    named = {p.name for p in space.parameters}
    starts: list[dict[str, Setting]] = []
    for autotune_list in lists_of(parse_module(source), Scopes(parse_module(source))):
        for config in autotune_list.configs:
            settings = {
                f"{autotune_list.kernel}.{name}": value for name, value in config.values.items()
            }
            starts.append({name: value for name, value in settings.items() if name in named})
    return TunableFile(base, space, [s for s in starts if s], source)


@dataclass
class _Group:
    """Constexprs of launches which are determined by the same number in the text."""

    literals: list[ast.Constant]
    capped: bool
    uses: list[tuple[KernelSyntax, str]] = field(default_factory=list)
    config: int | None = None
    divisions: list[GridDivision] = field(default_factory=list)


class _Reader:
    def __init__(self, source: str) -> None:
        self._text, self._tree = Text(source), parse_module(source)
        self._scopes = Scopes(self._tree)
        self._kernels = kernels_of(self._tree)
        self._launches = launches_of(self._tree, self._kernels, self._scopes)
        self._lists = {
            autotune_list.kernel: autotune_list
            for autotune_list in lists_of(self._tree, self._scopes)
        }
        self._groups: dict[int, _Group] = {}
        """Groups by the identity of the number's node."""
        self._refused: list[FixedNumber] = []

    def space(self) -> ParameterSpace:
        """Returns the parameters of the file, and the fixed numbers with the reason."""
        for launch in self._launches:
            self._constexprs(launch)
            self._outside(launch)
        for launch in self._launches:
            self._link_grid(launch)
        parameters = [p for group in self._unique() if (p := self._parameter(group)) is not None]
        parameters += self._options()
        launched = {launch.kernel.name: launch.kernel for launch in self._launches}
        parameters += precision_parameters(
            self._text, self._scopes, self._launches, launched.values()
        )
        return ParameterSpace(
            parameters=tuple(_distinct(parameters)), refused=tuple(dict.fromkeys(self._refused))
        )

    # -------------------------------------------------------------- constexprs
    def _constexprs(self, launch: LaunchSyntax) -> None:
        kernel = launch.kernel
        listed = self._lists.get(kernel.name)
        config = listed.configs[0] if listed is not None else None
        for name in kernel.constexprs:
            value = (
                config.nodes.get(name)
                if config is not None and name in config.nodes
                else launch.bound.get(name)
            )
            if value is None or not (name in kernel.tiles or counts_work(name)):
                continue
            resolved = resolve(self._scopes, value)
            if resolved is None:
                self._refuse(
                    f"{kernel.name}.{name}",
                    value,
                    "a shape decides it, or more than one place of the text",
                )
            elif type(resolved.literal.value) is int:
                self._group(resolved, config is not None and name in config.nodes).uses.append(
                    (kernel, name)
                )

    def _outside(self, launch: LaunchSyntax) -> None:
        """Adds constants of the module which determine extents in the kernel."""
        for name in sorted(launch.kernel.outside):
            assigned: list[ast.expr] = []
            for node in self._tree.body:
                if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
                    targets = {t.id for t in _targets(node) if isinstance(t, ast.Name)}
                    if name in targets:
                        assigned.append(node.value)
            resolved = resolve(self._scopes, assigned[0]) if len(assigned) == 1 else None
            if resolved is not None and type(resolved.literal.value) is int:
                launch.kernel.tiles.add(name)
                self._group(resolved, False).uses.append((launch.kernel, name))

    def _group(self, resolved: Resolved, listed: bool) -> _Group:
        key = id(resolved.literal)
        if key not in self._groups:
            self._groups[key] = _Group(
                [resolved.literal], resolved.capped, config=0 if listed else None
            )
        group = self._groups[key]
        group.capped |= resolved.capped
        return group

    def _refuse(self, name: str, node: ast.expr, why: str) -> None:
        self._refused.append(FixedNumber(name=name, line=node.lineno, why=why))

    # -------------------------------------------------------------- the grid follows
    def _link_grid(self, launch: LaunchSyntax) -> None:
        """Adds numbers repeated in a grid to the tile which they repeat."""
        divisions = [
            d for d in divisions_of(launch, self._scopes) if id(d.literal) not in self._groups
        ]
        # Step 1: tiles of this kernel whose own number is not the grid's divisor already.
        unlinked: list[tuple[_Group, str]] = []
        for group in self._unique():
            if _follows_already(group, launch, self._scopes):
                continue
            for kernel, name in group.uses:
                if kernel is launch.kernel and name in kernel.placed:
                    unlinked.append((group, name))
        # Step 2: each divisor of the grid belongs to the tiles of its value, if possible to those
        # which surely divide the same extent.
        for division in divisions:
            fitting: list[_Group] = []
            certain: list[_Group] = []
            for group, name in unlinked:
                if group.literals[0].value == division.literal.value:
                    fitting.append(group)
                    if _certain(launch, name, division):
                        certain.append(group)
            groups = certain or fitting
            if not groups:
                continue
            first = groups[0]
            for other in groups[1:]:
                self._tie(first, other)
            first.divisions.append(division)
            if id(division.literal) in self._groups:
                self._tie(self._groups[id(division.literal)], first)
            self._groups[id(division.literal)] = first

    def _tie(self, first: _Group, other: _Group) -> None:
        """Ties two groups together: both are changed together from now on."""
        if first is other:
            return
        first.literals += [n for n in other.literals if n not in first.literals]
        first.uses += [u for u in other.uses if u not in first.uses]
        first.divisions += other.divisions
        first.capped |= other.capped
        for key, group in self._groups.items():
            if group is other:
                self._groups[key] = first

    def _unique(self) -> list[_Group]:
        return list({id(g): g for g in self._groups.values()}.values())

    # -------------------------------------------------------------- as values
    def _parameter(self, group: _Group) -> Parameter | None:
        kernel, constexpr = group.uses[0]
        start = int(group.literals[0].value)  # type: ignore[arg-type]
        tile = any(name in k.tiles for k, name in group.uses)
        in_product = any(name in k.dot_tiles for k, name in group.uses)
        unmasked = any(k.unmasked and name in k.tiles for k, name in group.uses)
        values = (
            tile_values(start, in_product, unmasked)
            if tile
            else option_values(ParameterRole.COUNT, start)
        )
        if tile and start & (start - 1):
            self._refuse(
                f"{kernel.name}.{constexpr}", group.literals[0], f"{start} is no power of two"
            )
            return None
        less = [
            self._text.site(d.less_one, "({} - 1)")
            for d in group.divisions
            if d.less_one is not None
        ]
        nodes = [*group.literals, *(d.literal for d in group.divisions)]
        return Parameter(
            name=f"{kernel.name}.{constexpr}", role=ParameterRole.TILE if tile else ParameterRole.COUNT, start=start,
            values=values, sites=joined_sites((self._text.site(n) for n in nodes), less),
            kernels=tuple(dict.fromkeys(k.name for k, _ in group.uses)),
            constexprs=tuple(dict.fromkeys(n for _, n in group.uses)), line=group.literals[0].lineno,
            capped=group.capped, places_programs=any(n in k.placed for k, n in group.uses), config=group.config,
        )  # fmt: skip

    def _options(self) -> list[Parameter]:
        """Returns num_warps, num_stages and num_ctas of every launch; launches of the same kernel
        share them.
        """
        parameters_found: list[Parameter] = []
        for name in dict.fromkeys(launch.kernel.name for launch in self._launches):
            launches = [launch for launch in self._launches if launch.kernel.name == name]
            listed = self._lists.get(name)
            kernel = self._kernels[name]
            roles = {
                ParameterRole.WARPS: True,
                ParameterRole.STAGES: kernel.loops,
                ParameterRole.CTAS: bool(kernel.dots),
            }
            parameters_found += [
                self._option(name, role, launches, listed)
                for role in LAUNCH_OPTION_ROLES
                if roles[role]
            ]
        return parameters_found

    def _option(
        self,
        kernel: str,
        role: ParameterRole,
        launches: list[LaunchSyntax],
        listed: AutotuneList | None,
    ) -> Parameter:
        calls = (
            [listed.configs[0].call] if listed is not None else [launch.call for launch in launches]
        )
        sites: list[Site] = []
        starts: list[int] = []
        for call in calls:
            option = next((k.value for k in call.keywords if k.arg == role.value), None)
            if option is None:
                sites.append(self._text.argument(call, role.value))
                starts.append(int(TRITON_DEFAULTS[role]))
                continue
            resolved = resolve(self._scopes, option)
            value = None if resolved is None or resolved.capped else resolved.literal.value
            plain = type(value) is int
            sites.append(
                self._text.site(resolved.literal if plain and resolved is not None else option)
            )
            starts.append(value if isinstance(value, int) and plain else 0)
        start = starts[0]
        return Parameter(
            name=f"{kernel}.{role.value}", role=role, start=start, values=option_values(role, start) if start else (),
            sites=joined_sites(sites), kernels=(kernel,), line=calls[0].lineno,
            config=0 if listed is not None else None,
        )  # fmt: skip


def _follows_already(group: _Group, launch: LaunchSyntax, scopes: Scopes) -> bool:
    """Whether the grid divides by the very number of the text."""
    return any(d.literal in group.literals for d in divisions_of(launch, scopes))


def _certain(launch: LaunchSyntax, constexpr: str, division: GridDivision) -> bool:
    """Returns whether a division of the grid surely belongs to a tile: by the extent divided by
    the tile in the kernel, else by the axis.
    """
    counted = launch.kernel.counted.get(constexpr)
    if counted is not None and counted in launch.bound:
        return ast.dump(launch.bound[counted]) == ast.dump(division.extent)
    return division.axis is not None and launch.kernel.placed.get(constexpr) == {division.axis}


def _targets(node: ast.Assign | ast.AnnAssign) -> list[ast.expr]:
    return node.targets if isinstance(node, ast.Assign) else [node.target]


def _distinct(parameters: list[Parameter]) -> list[Parameter]:
    """Merges parameters which share a site; keeps the first, with the kernels of all."""
    distinct: list[Parameter] = []
    for parameter in parameters:
        same = next((k for k in distinct if set(k.sites) & set(parameter.sites)), None)
        if same is None:
            distinct.append(parameter)
        else:
            kernels = tuple(dict.fromkeys((*same.kernels, *parameter.kernels)))
            distinct[distinct.index(same)] = same.with_(
                kernels=kernels, sites=joined_sites(same.sites, parameter.sites)
            )
    return distinct
