"""Runs a function once a module of another package has been imported, without importing it."""

import importlib.abc
import importlib.machinery
import sys
import warnings
from collections.abc import Callable, Sequence
from types import ModuleType


class _Loader(importlib.abc.Loader):
    def __init__(self, inner: importlib.abc.Loader, then: Callable[[], None]) -> None:
        self.inner, self.then = inner, then

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self.inner.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self.inner.exec_module(module)
        _attempt(self.then, module.__name__)


def _attempt(then: Callable[[], None], name: str) -> None:
    """A version of the package that `then` does not know can still be imported."""
    try:
        then()
    except (ImportError, AttributeError, TypeError) as error:
        warnings.warn(f"horner does not extend {name}: {error}; transformers 5 is known to work", stacklevel=2)


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, name: str, then: Callable[[], None]) -> None:
        self.name, self.then = name, then

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self.name:
            return None
        sys.meta_path.remove(self)  # once
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, self.then)
        return spec


def after_import(name: str, then: Callable[[], None]) -> None:
    if name in sys.modules:
        _attempt(then, name)
    else:
        sys.meta_path.insert(0, _Finder(name, then))
