"""Modules of a checkout, loaded beside each other and edited in memory.

Research code names its modules `utils`, `wan` or `attention`, asks for a GPU while it is imported, and has its sizes
as numbers in the text. So an engine's modules are found by a finder that reads that one checkout, are changed as a
tree of syntax before they are compiled, and are gone from `sys.modules` afterwards: two engines of one process never
meet. Nothing is written into the checkout, no byte code either.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import io
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import resolve_name, spec_from_file_location, spec_from_loader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import blake3

from worldline.errors import BadValue, MissingExtra
from worldline.worlds.checkouts.find import Checkout
from worldline.worlds.told import FAULTS, told

_LOADING = threading.RLock()
"""`sys.modules` and the finders are the process's: one engine is loaded at a time."""


@dataclass(frozen=True, slots=True)
class Edits:
    """What is changed as a module is read.

    `modules`: the name of an imported module -> the one that is imported in its place, or None: as if it were absent.
    `values`: an int or a text that stands in the code -> another. `constants`: a call by its dotted name, such as
    `torch.cuda.current_device` -> the value that stands in its place. `plain`: calls by name that are replaced by their
    first argument, and decorators of that name that are left out (`torch.compile`). `bare`: packages whose `__init__`
    is not run.
    """

    modules: Mapping[str, str | None] = field(default_factory=dict)
    values: Mapping[int | str, int | str] = field(default_factory=dict)
    constants: Mapping[str, str] = field(default_factory=dict)
    plain: frozenset[str] = frozenset()
    bare: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Engine:
    """Loaded modules by name, and the BLAKE3-256 (hex) of every source file that was read for them."""

    modules: Mapping[str, ModuleType]
    digest: str

    def __getitem__(self, name: str) -> Any:
        return self.modules[name]


def load_engine(checkout: Checkout, names: Sequence[str], edits: Edits, first: Sequence[str] = ()) -> Engine:
    """The modules `names` of the checkout. `first` are packages that are imported before, so that what they keep in
    mind of this process's packages is true.

    What an engine prints while it is imported is dropped. Raises `MissingExtra` for a package that it needs or a module
    that the checkout should have, and `BadValue` for a checkout whose code can't be run.
    """
    finder = _Finder(checkout.root, edits)
    try:
        for package in first:
            importlib.import_module(package)
        with _LOADING, _alone(finder), contextlib.redirect_stdout(io.StringIO()):
            modules = {name: importlib.import_module(name) for name in names}
    except ModuleNotFoundError as error:
        if error.name is not None and finder.owns(error.name):
            raise MissingExtra(
                f"the checkout {checkout.root.name} is not whole: it has no module {error.name!r}; clone it again",
                module=error.name,
            ) from error
        raise MissingExtra(
            f"the engine in {checkout.root.name} needs the package {error.name!r}: pip install 'worldline[engines]'",
            package=str(error.name),
        ) from error
    except FAULTS as error:
        raise BadValue(f"the code in the checkout {checkout.root.name} can't be run: {told(error)}") from error
    digest = blake3.blake3()
    for path in sorted(finder.read):
        digest.update(f"{path.relative_to(checkout.root)}\0".encode())
        digest.update(path.read_bytes())
    return Engine(modules, digest.hexdigest())


@contextlib.contextmanager
def _alone(finder: _Finder) -> Iterator[None]:
    """Imports find the checkout's modules first; afterwards `sys.modules` is without them."""
    hidden = {name: module for name, module in sys.modules.items() if finder.owns(name)}
    for name in hidden:
        del sys.modules[name]
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        for name in [name for name in sys.modules if finder.owns(name)]:
            del sys.modules[name]
        sys.modules.update(hidden)


class _Finder:
    """Finds the modules of one checkout. `read` are the files it has loaded."""

    def __init__(self, root: Path, edits: Edits) -> None:
        self._root = root
        self._edits = edits
        self._tops = {
            path.stem
            for path in root.iterdir()
            if path.suffix == ".py" or (path.is_dir() and any(path.glob("**/*.py")))
        }
        self.read: set[Path] = set()

    def owns(self, name: str) -> bool:
        return name.partition(".")[0] in self._tops

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if not self.owns(name):
            return None
        place = self._root.joinpath(*name.split("."))
        if place.is_dir():
            start = place / "__init__.py"
            if not start.is_file() or name in self._edits.bare:
                bare = spec_from_loader(name, None, is_package=True)
                assert bare is not None
                bare.submodule_search_locations = [str(place)]
                return bare
            return self._spec(name, start, [str(place)])
        file = place.with_suffix(".py")
        return self._spec(name, file, None) if file.is_file() else None

    def _spec(self, name: str, file: Path, inside: list[str] | None) -> ModuleSpec | None:
        self.read.add(file)
        loader = _Loader(name, str(file), self._edits)
        return spec_from_file_location(name, file, loader=loader, submodule_search_locations=inside)


class _Loader(SourceFileLoader):
    def __init__(self, name: str, path: str, edits: Edits) -> None:
        super().__init__(name, path)
        self._edits = edits

    def get_code(self, fullname: str) -> CodeType:
        """Always from the source: byte code that lies there is of the text as it was, and none is left behind."""
        path = self.get_filename(fullname)
        tree = ast.parse(self.get_data(path), path)
        package = fullname if Path(path).name == "__init__.py" else fullname.rpartition(".")[0]
        edited = ast.fix_missing_locations(_Editor(self._edits, package).visit(tree))
        return compile(edited, path, "exec", dont_inherit=True)


class _Editor(ast.NodeTransformer):
    def __init__(self, edits: Edits, package: str) -> None:
        self._edits = edits
        self._package = package

    def visit_Import(self, node: ast.Import) -> ast.AST | list[ast.stmt]:
        made: list[ast.stmt] = []
        for alias in node.names:
            instead = self._edits.modules.get(alias.name, alias.name)
            if instead is None:
                made.append(_absent(alias.name))
            elif instead == alias.name:
                made.append(ast.Import([alias]))
            else:
                made.append(ast.Import([ast.alias(instead, alias.asname or alias.name.partition(".")[0])]))
        return made

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST:
        name = resolve_name("." * node.level + (node.module or ""), self._package)
        if name not in self._edits.modules:
            return node
        instead = self._edits.modules[name]
        return _absent(name) if instead is None else ast.ImportFrom(instead, node.names, 0)

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        value = node.value
        if isinstance(value, int | str) and not isinstance(value, bool) and value in self._edits.values:
            return ast.Constant(self._edits.values[value])
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        name = _dotted(node.func)
        if name in self._edits.constants:
            return ast.Constant(self._edits.constants[name])
        return node.args[0] if name in self._edits.plain and node.args else node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.decorator_list = [
            decorator
            for decorator in node.decorator_list
            if _dotted(decorator.func if isinstance(decorator, ast.Call) else decorator) not in self._edits.plain
        ]
        self.generic_visit(node)
        return node


def _dotted(node: ast.expr) -> str:
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=value, attr=name):
            return f"{_dotted(value)}.{name}"
        case _:
            return ""


def _absent(name: str) -> ast.stmt:
    [raised] = ast.parse(f"raise ModuleNotFoundError('absent here: {name}', name={name!r})").body
    return raised
