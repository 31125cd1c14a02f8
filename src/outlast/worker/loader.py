"""Finding a workflow by name: for the command line, and for resuming what another process began.

A process may load one program after the other. `python desk.py` finds the modules beside `desk.py`,
and two checkouts have modules of the same names; so each program sees its own folder alone, and
when another one is loaded its modules are put aside.
"""

import importlib
import importlib.util
import sys
import traceback
from collections.abc import Iterator, Sequence
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


class _Program:
    """What is imported from one folder.

    Attributes:
        path: its `sys.path`.
        before: names of the top-level modules that were there first.
        hidden: modules of the process in whose place there is one of the program.
        aside: its modules, while another program is used.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        found = any(Path(entry).resolve() == folder for entry in sys.path)
        self.path = [*sys.path] if found else [str(folder), *sys.path]
        self.before = {name for name in sys.modules if "." not in name}
        self.hidden: dict[str, ModuleType] = {}
        self.aside: dict[str, ModuleType] = {}

    def modules(self) -> dict[str, ModuleType]:
        """Those that are its own: what was installed is everybody's."""
        added = {Path(entry).resolve() for entry in sys.path if entry not in _outside}
        folders = {f for f in (self.folder, *added) if f.name not in INSTALLED}
        known = sys.modules.copy()
        own = {
            name
            for name, module in known.items()
            if name in self.hidden
            or ("." not in name and name not in self.before and _home(module) in folders)
        }
        return {name: m for name, m in known.items() if name.partition(".")[0] in own}

    def hide(self) -> None:
        """Put aside what the process has loaded from elsewhere under the name of one of ours."""
        # A folder without `__init__.py` gives way to any module of its name, for Python too.
        files = {e.stem for e in _entries(self.folder) if e.suffix == ".py"}
        files |= {e.name for e in _entries(self.folder) if (e / "__init__.py").is_file()}
        taken = {name for name in files & sys.modules.keys() if self._takes(name)}
        for name in [name for name in sys.modules if name.partition(".")[0] in taken]:
            self.hidden[name] = sys.modules.pop(name)

    def _takes(self, name: str) -> bool:
        """Not the place of Python's own modules, nor of installed ones: others need them."""
        home = _home(sys.modules[name])
        common = sys.stdlib_module_names | {"__main__", __name__.partition(".")[0]}
        installed = home is not None and home.name in INSTALLED
        return name not in common and not installed and home != self.folder


INSTALLED = ("site-packages", "dist-packages")


def _entries(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:  # not there any more, or not to be listed: whoever imports from it will say so
        return []


def _home(module: ModuleType) -> Path | None:
    """The folder in which a top-level module was found."""
    file = getattr(module, "__file__", None)
    if file is not None:
        path = Path(file).resolve()
        return path.parent.parent if path.stem == "__init__" else path.parent
    parts = list(getattr(module, "__path__", ()))  # of a package without a file of its own
    return Path(parts[0]).resolve().parent if parts else None


_programs: dict[Path, _Program] = {}
_current: _Program | None = None
_outside: list[str] = []
"""`sys.path` of the process itself."""


@contextmanager
def program_restored() -> Iterator[None]:
    """Whatever is loaded until the block ends, afterwards the process sees what it saw before."""
    former = _current
    try:
        yield
    finally:
        _enter(former)


def _enter_folder(folder: Path) -> _Program:
    """Let what is imported from now on be found in a folder, and belong to it."""
    if _current is None or _current.folder != folder:
        _enter(None)
        _enter(_programs.get(folder) or _programs.setdefault(folder, _Program(folder)))
    assert _current is not None
    return _current


def _enter(program: _Program | None) -> None:
    global _current
    if program is _current:
        return
    if _current is not None:
        _current.aside, _current.path = _current.modules(), sys.path.copy()
        for name in _current.aside:
            del sys.modules[name]
        sys.modules.update(_current.hidden)
        sys.path[:] = _outside
    if program is not None:
        _outside[:] = sys.path
        sys.path[:] = program.path
        program.hide()
        sys.modules.update(program.aside)
    _current = program


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
    _enter_folder(Path.cwd())
    return _find(_load_module(place, target), name, place)


def load_workflows(places: Sequence[str]) -> dict[str, WorkflowSpec]:
    """Import files and modules, and find all workflows in them, by name.

    Raises:
        UsageError: nothing is there, they cannot be imported together, there are no workflows, or
            two of one name.
    """
    found: dict[str, WorkflowSpec] = {}
    folders = []
    for place in places:
        module = _load_place(place)
        assert _current is not None
        folders.append(_current.folder)
        if folders[-1] != folders[0]:
            raise UsageError(
                f"{place} is in another folder than {places[0]}, and modules of the same names may "
                "be in both; start a worker for each folder"
            )
        for spec in filter(None, map(workflow_spec, list(vars(module).values()))):
            if found.setdefault(spec.name, spec).fn is not spec.fn:
                raise UsageError(
                    f"{place} has another workflow of the name {spec.name!r}; give one of them "
                    'another name: @workflow(name="...")'
                )
    if not found:
        raise UsageError(f"there are no workflows in {', '.join(places)} (@workflow)")
    return found


def _load_place(place: str) -> ModuleType:
    if place.endswith(".py") or "/" in place:
        path = Path(place).resolve()
        if not path.is_file():
            raise UsageError(f"there is no file {place}; expected FILE.py or package.module")
        return _load_file(path, path.stem)
    _enter_folder(Path.cwd())
    return _load_module(place, place)


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
    _enter_folder(Path.cwd())
    if _find_module(source.module) is None:
        raise UsageError(
            f"run {run_id} was started from {source.file or source.module}, which is not there any "
            f"more; name its new place: outlast run {FORM} --id {run_id}"
        )
    return _find(_load_module(source.module, source.module), source.name, source.module)


def _load_file(path: Path, module: str) -> ModuleType:
    """Import a file under its module name, as `python path` or `import module` would see it."""
    root = path.parent
    for _ in range(module.count(".")):
        root = root.parent
    program = _enter_folder(root)
    known = sys.modules.get(module)
    if known is not None and getattr(known, "__file__", None) == str(path):
        return known
    if "." in module:
        return _load_module(module, str(path))
    spec = importlib.util.spec_from_file_location(module, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{path} is not a Python file; expected {FORM}")
    if known is not None and module in program.before:
        program.hidden.setdefault(module, known)
    loaded = importlib.util.module_from_spec(spec)
    sys.modules[module] = loaded  # classes in it are found by this name
    try:
        with _mark(str(path)):
            spec.loader.exec_module(loaded)
    except BaseException as problem:
        del sys.modules[module]
        if module in program.hidden:
            sys.modules[module] = program.hidden.pop(module)
        raise _import_error(str(path), problem) from problem
    return loaded


def _load_module(module: str, target: str) -> ModuleType:
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
