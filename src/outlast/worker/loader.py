"""Finding a workflow by name: for the command line, and for resuming what another process began."""

import importlib
import importlib.util
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

from outlast.engine.spec import WorkflowSpec, workflow_spec
from outlast.errors import UsageError
from outlast.records import Source

FORM = "FILE.py:WORKFLOW or package.module:WORKFLOW"

_importing: ContextVar[str | None] = ContextVar("outlast_importing", default=None)


def module_being_imported() -> str | None:
    """The user's module that is being imported for its workflows; it must not start runs then."""
    return _importing.get()


@contextmanager
def _mark(target: str) -> Iterator[None]:
    token = _importing.set(target)
    try:
        yield
    finally:
        _importing.reset(token)


def load_target(target: str) -> WorkflowSpec:
    """Import the workflow that `FILE_OR_MODULE:WORKFLOW` names.

    Raises:
        UsageError: the text is not of that form, nothing is there, or it is not a workflow.
    """
    place, colon, name = target.rpartition(":")
    if not colon or not place or not name:
        raise UsageError(f"{target!r} does not name a workflow; expected {FORM}")
    if place.endswith(".py") or "/" in place:
        path = Path(place).resolve()
        if not path.is_file():
            raise UsageError(f"{target!r}: there is no file {place}; expected {FORM}")
        return _find(_load_file(path, path.stem), name, place)
    return _find(_load_module(place, target), name, place)


def load_source(source: Source | None, run_id: str) -> WorkflowSpec:
    """Import the workflow that a run was created from.

    Raises:
        UsageError: it is not there any more, or never had a place of its own.
    """
    if source is None:
        raise UsageError(
            f"run {run_id} does not know where its workflow is defined (inside a function); "
            "resume it from the program that started it"
        )
    if source.file is not None and Path(source.file).is_file():
        return _find(_load_file(Path(source.file), source.module), source.name, source.file)
    if _find_module(source.module) is None:
        raise UsageError(
            f"run {run_id} was started from {source.file or source.module}, which is not there any "
            f"more; name its new place: outlast run {FORM} --id {run_id}"
        )
    return _find(_load_module(source.module, source.module), source.name, source.module)


def _load_file(path: Path, module: str) -> ModuleType:
    """Import a file under its module name, as `python path` or `import module` would see it."""
    known = sys.modules.get(module)
    if known is not None and getattr(known, "__file__", None) == str(path):
        return known
    root = path.parent
    for _ in range(module.count(".")):
        root = root.parent
    if str(root) not in sys.path:
        sys.path.insert(0, str(root))
    if "." in module:
        return _load_module(module, str(path))
    spec = importlib.util.spec_from_file_location(module, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{path} is not a Python file; expected {FORM}")
    loaded = importlib.util.module_from_spec(spec)
    sys.modules[module] = loaded  # classes in it are found by this name
    try:
        with _mark(str(path)):
            spec.loader.exec_module(loaded)
    except BaseException as problem:
        del sys.modules[module]
        raise _import_error(str(path), problem) from problem
    return loaded


def _load_module(module: str, target: str) -> ModuleType:
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    if _find_module(module) is None:
        raise UsageError(f"{target!r}: there is no module {module}; expected {FORM}")
    try:
        with _mark(module):
            return importlib.import_module(module)
    except BaseException as problem:
        raise _import_error(module, problem) from problem


def _find_module(module: str) -> ModuleSpec | None:
    """Where a module is. Looking for it imports the packages that it is in."""
    try:
        with _mark(module):
            return importlib.util.find_spec(module)
    except (ModuleNotFoundError, ValueError):
        return None
    except BaseException as problem:
        raise _import_error(module, problem) from problem


def _import_error(place: str, problem: BaseException) -> BaseException:
    """What a failed import says in one line: the error, and where in the user's code."""
    if isinstance(problem, KeyboardInterrupt):
        return problem
    if isinstance(problem, UsageError):
        return problem
    if isinstance(problem, SyntaxError):
        return UsageError(f"{place} has a syntax error in line {problem.lineno}: {problem.msg}")
    frames = traceback.extract_tb(problem.__traceback__)
    where = f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""
    return UsageError(f"{place} cannot be imported: {type(problem).__name__}: {problem}{where}")


def _find(module: ModuleType, name: str, place: str) -> WorkflowSpec:
    found: object = module
    for part in name.split("."):
        found = getattr(found, part, None)
    spec = workflow_spec(found)
    if spec is not None:
        return spec
    workflows = [n for n, v in vars(module).items() if workflow_spec(v) is not None]
    known = f"it has: {', '.join(workflows)}" if workflows else "it has no workflows"
    what = f"has no {name!r}" if found is None else f"{name!r} is not a workflow (@workflow)"
    raise UsageError(f"{place}: {what}; {known}")
