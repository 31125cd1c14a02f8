"""The public names, and that package files hold nothing but names."""

import ast
from pathlib import Path

import pytest

import outlast

ROOT = Path(outlast.__file__).parent

PUBLIC = """
    Approval AskTimeout BodyCancelled Breaker BreakerOpen BreakerView Budget ChildFailed ChildHandle
    ChildKilled ChildView Client Cost Current Denied Done Emitted Events Failed Fault Handle InDoubt
    KillView Killed LogFilter LostRun MapView NoRunContext NotDone NotStorable Outcome OutlastError
    OutlastWarning OutsideRun Pending QuestionView Retry RunFailed RunHeld RunKilled RunMismatch
    RunOwned RunReleased RunStopped RunView RunWaiting Settings SignalView Step StepFailed
    StepTimeout StepView StopRun StopView StoreError StoreStopped StoredEvent Terminal Transient
    Turns Unknown UnknownRun Unreadable Usage UsageError Verdict Workflow as_completed ask charge
    current emit execute idempotency_key map now patched random run serving sleep start start_child
    step submit turns uuid4 wait_signal workflow
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
