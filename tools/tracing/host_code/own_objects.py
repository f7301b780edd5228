"""Which values of a text are its own objects, and which attributes those have.

What a library returns has attributes that follow the surroundings. An attribute is the text's own only where the object
is: an instance of a class of the text, the class itself, a function of the text, or a namespace that the text fills.
Nothing is known of parameters and of what libraries return.

Example: with `class Plan: block = 64`, `Plan().block` is the text's own, and `stream.block` is not.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

Owners = frozenset[str]
"""Names of classes and functions of the text, one of which an object is."""

ANY_NAMESPACE = "any namespace"
"""Stands for objects that hold nothing but what the text puts there, under whichever names."""
NAMESPACE_PATHS = frozenset({
    "types.SimpleNamespace", "types.ModuleType", "collections.namedtuple", "typing.NamedTuple",
})  # fmt: skip
STATELESS_BASES = (
    "torch.nn.", "torch.autograd.Function", "typing.", "enum.", "abc.", "collections.", "dataclasses.",
)  # fmt: skip
"""Classes whose instances have no attributes that follow the surroundings, or none under the text's own names."""
CACHES = frozenset({"functools.cache", "functools.lru_cache"})
PLAIN_CLASS_DECORATORS = frozenset({"dataclasses.dataclass", "functools.total_ordering"})
"""Decorators that return the decorated class."""
PLAIN_BASES = frozenset({"object", "dict", "list", "tuple", "set", "int", "float", "str", "type"})
REPLACING_METHODS = frozenset({"__new__", "__get__", "__getattr__", "__getattribute__"})
"""Methods that give any object in place of the instance, or of an attribute of it."""
ELEMENT_METHODS = frozenset({"__getitem__", "__iter__", "__next__", "__class_getitem__"})
"""Methods that give any object as an element of the instance."""
PASSED_CONTEXTS = frozenset({"forward", "backward", "setup_context", "jvp", "vmap"})
"""Static methods of a function with a gradient, whose first parameter holds what the text saves there."""
ADDING_METHODS = frozenset(
    {"append", "appendleft", "insert", "extend", "add", "update", "setdefault"}
)
"""Methods of containers that add elements."""
NAMING_CALLS = frozenset({"register_buffer", "register_parameter", "register_module", "add_module"})
"""Methods of a module whose first argument names an attribute."""
MAX_ROUNDS = 8
"""Rounds in which owners are passed on from name to name: a chain of more names is not followed."""
MAX_OBJECT_NESTING = 16
"""Choices within one another of which an expression may consist."""
Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
_ATTRIBUTES = -1
"""Stands for the function of a variable that is an attribute."""


class _Variable(NamedTuple):
    """A name within a function, or an attribute of whatever object."""

    scope: int
    """The number of the function; 0 for the module."""
    name: str


class _Scopes:
    """Notes in which function each name is used, and which functions bind it."""

    def __init__(self, tree: ast.Module) -> None:
        self.bindings: dict[_Variable, list[ast.expr | None]] = defaultdict(list)
        """What each variable is bound to; None for what no expression gives."""
        self._scope_of: dict[int, int] = {}
        self._parents = [0]
        shared: list[str] = []
        self._changed_containers: list[tuple[ast.expr, ast.expr | None]] = []
        waiting: list[tuple[ast.AST, int, bool]] = [(tree, 0, False)]
        while waiting:  # by a list: a text may be nested deeper than Python calls functions
            node, scope, is_member = waiting.pop()
            if isinstance(node, Function):
                self._parents.append(scope)
                scope = len(self._parents) - 1
                is_member = False
            elif isinstance(node, ast.ClassDef):
                is_member = True
            elif isinstance(node, ast.Global | ast.Nonlocal):
                shared += node.names
            elif isinstance(node, ast.Name):
                self._scope_of[id(node)] = scope
            self._note_bindings(node, _ATTRIBUTES if is_member else scope, scope)
            waiting += ((child, scope, is_member) for child in ast.iter_child_nodes(node))
        self._shared = frozenset(shared)
        for name in self._shared:
            self._bind_name(name, 0)
        for container, value in self._changed_containers:
            self._note_element(container, value)

    def _note_element(self, container: ast.expr, value: ast.expr | None) -> None:
        """Notes that a container has a further element, whose owners are its own."""
        match container:
            case ast.Name():
                self.bindings[self.variable(container)].append(value)
            case ast.Attribute(attr=name):
                self.bindings[_Variable(_ATTRIBUTES, name)].append(value)
            case ast.Subscript(value=outer):
                self._note_element(outer, value)

    def variable(self, node: ast.Name) -> _Variable:
        """Returns the variable that a name stands for where it is used."""
        if node.id in self._shared:
            return _Variable(0, node.id)
        scope = self._scope_of.get(id(node), 0)
        while scope and _Variable(scope, node.id) not in self.bindings:
            scope = self._parents[scope]
        return _Variable(scope, node.id)

    def hide(self, name: str) -> None:
        """Notes that a name of the module may be another object."""
        self._bind_name(name, 0)

    def attributes(self) -> set[str]:
        """Returns the names of all attributes that the text binds."""
        return {variable.name for variable in self.bindings if variable.scope == _ATTRIBUTES}

    def _note_bindings(self, node: ast.AST, scope: int, function: int) -> None:
        """Notes what a statement or an expression binds. scope: of the names that it binds.

        function: the number of the function that it lies in.
        """
        match node:
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    self._bind(target, value, scope)
            case ast.AnnAssign(target=target, value=value) | ast.NamedExpr(target, value):
                self._bind(target, value, scope)
                if scope == _ATTRIBUTES:  # a field, which an instance may be created with
                    self._bind(target, None, scope)
            case ast.Call(
                func=ast.Attribute(attr=method) | ast.Name(id="setattr" as method),
                args=[*_, ast.Constant(str(name)), value],
            ) if method in {"setattr", *NAMING_CALLS}:
                self.bindings[_Variable(_ATTRIBUTES, name)].append(value)
            case ast.Call(func=ast.Attribute(value=container, attr=method), args=args) if (
                method in ADDING_METHODS and args
            ):
                self._changed_containers.append((container, args[-1]))
            case ast.For(target=target, iter=values) | ast.comprehension(target, values):
                self._bind(target, ast.Subscript(values, ast.Constant(0), ast.Load()), scope)
            case ast.AugAssign(target=target) | ast.withitem(optional_vars=ast.expr() as target):
                self._bind(target, None, scope)
            case ast.keyword(arg=str(name), value=value):
                self.bindings[_Variable(_ATTRIBUTES, name)].append(value)
            case ast.alias(name=name, asname=other):
                self._bind_name(other or name.partition(".")[0], scope)
            case ast.arg(arg=name):
                self._bind_name(name, function)
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)):
                self._bind_name(name, scope)
            case ast.MatchStar(name=str(name)) | ast.MatchMapping(rest=str(name)):
                self._bind_name(name, scope)

    def _bind_name(self, name: str, scope: int) -> None:
        self.bindings[_Variable(scope, name)].append(None)

    def _bind(self, target: ast.AST, value: ast.expr | None, scope: int) -> None:
        match target:
            case ast.Name(id=name):
                self.bindings[_Variable(scope, name)].append(value)
            case ast.Attribute(attr=name):
                self.bindings[_Variable(_ATTRIBUTES, name)].append(value)
            case ast.Subscript(value=container):
                self._changed_containers.append((container, value))
            case _:  # of an unpacking no part has an expression
                for part in ast.walk(target):
                    if isinstance(part, ast.Name | ast.Attribute) and isinstance(
                        part.ctx, ast.Store
                    ):
                        self._bind(part, None, scope)


class OwnObjects:
    """The objects of one text, by the expressions that give them."""

    def __init__(self, tree: ast.Module, path: Callable[[ast.expr], str]) -> None:
        """path: returns the dotted path of an expression from an import, or nothing."""
        self._path = path
        self._classes: dict[str, ast.ClassDef] = {}
        self._results: dict[str, list[ast.expr | None]] = {}
        """What the functions of the text return, by their names."""
        self._instances: dict[int, str] = {}
        """Classes by the `id` of each node that names the first parameter of a method of theirs."""
        self._scopes = _Scopes(tree)
        self._hide_fields(tree)
        self._collect_definitions(tree)
        self._collect_instances(tree)
        classes = self._classes.items()
        self._not_plain = self._with_heirs(n for n, c in classes if not self._is_plain(c))
        self._element_givers = self._with_heirs(
            n for n, c in classes if ELEMENT_METHODS & {*_names_bound_in(c)}
        )
        self._known: dict[_Variable | str, Owners | None] = {}
        """Owners of variables, and of the results of functions by their names."""
        self._pass_owners_on()
        self._of_class = self._attributes_by_class(tree)
        families = {id(names): names for names in self._of_class.values()}
        self._all = frozenset[str]().union(*families.values())

    def has(self, owner: ast.expr, attribute: str) -> bool:
        """Returns whether an object is the text's own, and the text gives it this attribute."""
        owners = self._owners(owner) or ()
        return bool(owners) and all(attribute in self._attributes_of(name) for name in owners)

    def _attributes_of(self, owner: str) -> frozenset[str] | set[str]:
        if owner == ANY_NAMESPACE:
            return self._all | self._scopes.attributes()
        return frozenset() if owner in self._not_plain else self._of_class[owner]

    def _is_plain(self, definition: ast.ClassDef) -> bool:
        """Returns whether the instances of a class have nothing but what the text gives them.

        Bases may be the text's own, modules, functions with a gradient, or Python's.
        """
        if definition.keywords or not all(map(self._keeps_class, definition.decorator_list)):
            return False
        if REPLACING_METHODS & {*_names_bound_in(definition)}:
            return False
        return all(map(self._is_plain_base, definition.bases))

    def _is_plain_base(self, base: ast.expr) -> bool:
        """Returns whether a base adds no attributes of a library; the text's own bases are looked at by themselves."""
        base = _without_parameters(base)
        if path := self._path(base):
            return path.startswith(STATELESS_BASES)
        match base:
            case ast.Name(id=name):
                is_exception = name.endswith(("Error", "Exception", "Warning"))
                return name in self._classes or name in PLAIN_BASES or is_exception
            case ast.Call(func=function):
                return self._path(function) in NAMESPACE_PATHS
        return False

    def _keeps_class(self, decorator: ast.expr) -> bool:
        function = decorator.func if isinstance(decorator, ast.Call) else decorator
        return self._path(function) in PLAIN_CLASS_DECORATORS

    def _own_bases(self, definition: ast.ClassDef) -> list[str]:
        bases = map(_without_parameters, definition.bases)
        return [b.id for b in bases if isinstance(b, ast.Name) and b.id in self._classes]

    def _with_heirs(self, names: Iterable[str]) -> frozenset[str]:
        """Returns these classes and all that inherit from them."""
        heirs: dict[str, list[str]] = defaultdict(list)
        for name, definition in self._classes.items():
            for base in self._own_bases(definition):
                heirs[base].append(name)
        return _reached(names, heirs)

    # -------------------------------------------------------------- which object
    def _pass_owners_on(self) -> None:
        """Finds the owners of all variables: first of those bound to an object, then of those bound to these."""
        sources: dict[_Variable | str, list[ast.expr | None]] = {}
        for variable, values in self._scopes.bindings.items():
            sources[variable] = values
        for function, values in self._results.items():
            sources[function] = values
        self._known = {each: frozenset() for each in sources}
        for _ in range(MAX_ROUNDS):
            now = {each: _joined([*map(self._owners, values)]) for each, values in sources.items()}
            if now == self._known:
                return
            self._known = now
        self._known = dict.fromkeys(sources)

    def _owners(self, value: ast.expr | None, nesting: int = MAX_OBJECT_NESTING) -> Owners | None:
        """Returns the owners of an expression's value; None where it may be another object."""
        parts: list[ast.expr] = []
        if instance := self._instances.get(id(value)):
            return frozenset({instance})
        match value:
            case ast.Name(id=name):
                variable = self._scopes.variable(value)
                if variable in self._known:
                    return self._known[variable]
                is_defined = name in self._classes or name in self._results
                return frozenset({name}) if is_defined else None
            case ast.Attribute(attr=name):
                return self._known.get(_Variable(_ATTRIBUTES, name))
            case ast.Call():
                return self._owners_of_call(value)
            case ast.IfExp(body=body, orelse=other):
                parts = [body, other]
            case ast.BoolOp(values=parts) | ast.List(elts=parts) | ast.Tuple(elts=parts):
                pass
            case ast.Dict(values=parts):
                pass
            case ast.Subscript(value=ast.expr() as container) if _is_container(container):
                owners = self._owners(container, nesting - 1) if nesting else None
                return None if owners is None or owners & self._element_givers else owners
        if not parts or not nesting:
            return None
        return _joined([self._owners(part, nesting - 1) for part in parts])

    def _owners_of_call(self, call: ast.Call) -> Owners | None:
        function = call.func
        if self._path(function) in NAMESPACE_PATHS:
            is_named = all(keyword.arg for keyword in call.keywords)
            return frozenset({ANY_NAMESPACE}) if is_named else None
        owners = self._owners(function)
        match function:
            case ast.Name(id=name) if owners == {name}:
                return owners if name in self._classes else self._known[name]
        return owners if owners in (frozenset(), {ANY_NAMESPACE}) else None

    # -------------------------------------------------------------- what is defined
    def _collect_definitions(self, tree: ast.Module) -> None:
        for node in ast.walk(tree):
            match node:
                case ast.ClassDef(name=name):
                    self._hide_if_known(name)
                    self._classes[name] = node
                case ast.FunctionDef(name=name, decorator_list=decorators):
                    self._hide_if_known(name)
                    results = [*_returned(node)]
                    is_plain = all(map(self._keeps_results, decorators)) and not _yields(node)
                    self._results[name] = results if is_plain else [None]

    def _is_property(self, decorator: ast.expr) -> bool:
        is_builtin = isinstance(decorator, ast.Name) and decorator.id == "property"
        return is_builtin or self._path(decorator) == "functools.cached_property"

    def _keeps_results(self, decorator: ast.expr) -> bool:
        """Returns whether a decorated function returns what the function itself does, as of a cache."""
        function = decorator.func if isinstance(decorator, ast.Call) else decorator
        return self._path(function) in CACHES

    def _hide_if_known(self, name: str) -> None:
        """A name that is defined twice may be either."""
        if name in self._classes or name in self._results:
            self._scopes.hide(name)

    def _hide_fields(self, tree: ast.Module) -> None:
        """Notes that the fields of a named tuple, whose names are texts, may be any object."""
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and self._path(node.func) in NAMESPACE_PATHS:
                for part in (p for argument in node.args for p in ast.walk(argument)):
                    if isinstance(part, ast.Constant) and isinstance(part.value, str):
                        for name in part.value.replace(",", " ").split():
                            self._scopes.bindings[_Variable(_ATTRIBUTES, name)].append(None)

    def _collect_instances(self, tree: ast.Module) -> None:
        """Notes the nodes in the methods of classes that stand for an instance.

        A method that is looked up in its class by name may be called on any object: `Plan.size(stream)`.
        """
        unbound = {
            node.attr
            for node in ast.walk(tree)
            if isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id in self._classes
        }
        for owner in self._classes.values():
            self._collect_instances_in(owner, unbound)

    def _has_instance(
        self, method: ast.FunctionDef, owner: ast.ClassDef, unbound: set[str]
    ) -> bool:
        """Returns whether the first parameter of a method is an instance of its class, or the class."""
        names = {getattr(d, "id", "") for d in method.decorator_list}
        if "staticmethod" in names:
            paths = map(self._path, owner.bases)
            has_gradient = any(path.startswith("torch.autograd.Function") for path in paths)
            return has_gradient and method.name in PASSED_CONTEXTS - unbound
        return method.name not in unbound or "classmethod" in names

    def _collect_instances_in(self, owner: ast.ClassDef, unbound: set[str]) -> None:
        """Notes the nodes in the methods of a class that name their first parameter, and the calls of `super()`."""
        for member in owner.body:
            if not isinstance(member, ast.FunctionDef) or not member.args.args:
                continue
            first = member.args.args[0].arg
            if any(map(self._is_property, member.decorator_list)):
                self._scopes.bindings[_Variable(_ATTRIBUTES, member.name)] += _returned(member)
            nodes = [*ast.walk(member)]
            uses = [n for n in nodes if isinstance(n, ast.Name) and n.id == first]
            is_unchanged = all(isinstance(use.ctx, ast.Load) for use in uses)
            if is_unchanged and self._has_instance(member, owner, unbound):
                self._instances.update((id(use), owner.name) for use in uses)
            for node in nodes:
                match node:
                    case ast.Call(func=ast.Name(id="super"), args=[]):
                        self._instances[id(node)] = owner.name

    # -------------------------------------------------------------- which attributes
    def _attributes_by_class(self, tree: ast.Module) -> dict[str, set[str]]:
        """Returns the attributes that the text gives to instances of each class, its relatives' among them."""
        names: dict[str, set[str]] = defaultdict(set)
        for name, definition in self._classes.items():
            names[name] |= {*_names_bound_in(definition)}
        for owner, attribute in _attributes_set(tree):
            for each in self._owners(owner) or ():
                names[each].add(attribute)
        relatives: dict[str, list[str]] = defaultdict(list)
        for name, definition in self._classes.items():
            for base in self._own_bases(definition):
                relatives[name].append(base)
                relatives[base].append(name)
        shared: dict[str, set[str]] = {}
        for name in self._classes:
            if name not in shared:
                family = _reached([name], relatives)
                shared |= dict.fromkeys(family, set[str]().union(*(names[n] for n in family)))
        return defaultdict(set, names | shared)


def _is_container(value: ast.expr) -> bool:
    """Returns whether an expression may be a list, a tuple or a dictionary, whose elements' owners are its own."""
    return isinstance(value, ast.Name | ast.Attribute | ast.List | ast.Tuple | ast.Dict)


def _without_parameters(base: ast.expr) -> ast.expr:
    """Returns `Stack` of `Stack[int]`."""
    return base.value if isinstance(base, ast.Subscript) else base


def _reached(names: Iterable[str], followers: Mapping[str, Sequence[str]]) -> frozenset[str]:
    """Returns these names and all that follow from them, in linear time."""
    reached: set[str] = set()
    waiting = [*names]
    while waiting:
        if (name := waiting.pop()) not in reached:
            reached.add(name)
            waiting += followers.get(name, ())
    return frozenset(reached)


def _joined(owners: list[Owners | None]) -> Owners | None:
    known = [each for each in owners if each is not None]
    return frozenset[str]().union(*known) if len(known) == len(owners) else None


def _returned(function: ast.FunctionDef) -> Iterator[ast.expr | None]:
    """Yields what a function itself returns, not what functions inside of it do."""
    waiting: list[ast.AST] = [*function.body]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Return):
            yield node.value
        elif not isinstance(node, Function | ast.ClassDef):
            waiting += ast.iter_child_nodes(node)


def _yields(function: ast.FunctionDef) -> bool:
    """Returns whether a function, or one inside of it, is a generator."""
    return any(isinstance(node, ast.Yield | ast.YieldFrom) for node in ast.walk(function))


def _attributes_set(tree: ast.Module) -> Iterator[tuple[ast.expr, str]]:
    """Yields each object that a statement or a call gives an attribute, and the attribute's name."""
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=owner, attr=name, ctx=ast.Store()):
                yield owner, name
            case ast.Call(
                func=ast.Attribute(value=owner, attr=method), args=[ast.Constant(str(name)), *_]
            ) if method in NAMING_CALLS:
                yield owner, name
            case ast.Call(func=ast.Name(id="setattr"), args=[owner, ast.Constant(str(name)), *_]):
                yield owner, name


def _names_bound_in(definition: ast.ClassDef) -> Iterator[str]:
    """Yields the attributes that the body of a class binds."""
    for node in definition.body:
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.AnnAssign(target=ast.Name(id=name)):
                yield name
            case ast.Assign(targets=targets):
                for target in targets:
                    yield from (n.id for n in ast.walk(target) if isinstance(n, ast.Name))
