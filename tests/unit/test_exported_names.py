"""The public names, and that package files hold nothing but names."""

import ast
from pathlib import Path

import pytest

import outlast

ROOT = Path(outlast.__file__).parent

PUBLIC = """
    BodyCancelled Breaker BreakerOpen BreakerView Budget Client Cost Current Done Failed Fault
    InDoubt LogFilter LostRun NoRunContext NotDone NotStorable Outcome OutlastError OutlastWarning
    OutsideRun Pending Retry RunFailed RunHeld RunKilled RunMismatch RunOwned RunReleased RunStopped
    RunView RunWaiting Settings Step StepFailed StepTimeout StepView StopRun StoreError StoredEvent
    Terminal Transient Turns Unknown UnknownRun Unreadable Usage UsageError Verdict Workflow
    as_completed charge current execute idempotency_key now patched random run sleep step submit
    turns uuid4 workflow
""".split()


def test_public_names_change_only_on_purpose() -> None:
    assert sorted(outlast.__all__) == sorted(PUBLIC)
    assert list(outlast.__all__) == sorted(outlast.__all__)


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_exists_and_is_documented(name: str) -> None:
    assert hasattr(outlast, name)
    if name != "Outcome":  # a type alias has no docstring of its own
        assert getattr(outlast, name).__doc__


def test_nothing_public_is_missing_from_all() -> None:
    tree = ast.parse((ROOT / "__init__.py").read_text())
    imported = {
        alias.asname or alias.name
        for node in tree.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert imported == set(outlast.__all__)


@pytest.mark.parametrize(
    "file", sorted(ROOT.rglob("__init__.py")), ids=lambda file: file.parent.name
)
def test_package_files_hold_names_only(file: Path) -> None:
    for node in ast.parse(file.read_text()).body:
        docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        exports = (
            isinstance(node, ast.Assign)
            and isinstance(node.targets[0], ast.Name)
            and node.targets[0].id == "__all__"
        )
        assert docstring or exports or isinstance(node, ast.Import | ast.ImportFrom), (
            f"{file.parent.name}/__init__.py line {node.lineno} is more than a name"
        )
