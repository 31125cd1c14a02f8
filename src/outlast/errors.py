"""Every exception outlast raises, in one tree.

Exception
└── OutlastError                 catch this to catch everything below
    ├── UsageError               the call was wrong; nothing was written
    │   ├── OutsideRun           a workflow was called without a run
    │   ├── NoRunContext         a step was called in a bare thread while a run is active
    │   ├── UnknownRun           no run has that id
    │   └── RunMismatch          the run id belongs to another workflow or other arguments
    ├── StoreError               the store could not be opened, read or written
    ├── StoreStopped             the emergency stop is in force: nothing begins until `allow`
    ├── NotStorable              a value cannot be stored exactly
    ├── Unreadable               stored bytes cannot be turned back into their value
    ├── RunStopped               a run did not return a result
    │   ├── RunFailed            the workflow raised
    │   ├── RunHeld              the run needs somebody
    │   ├── RunKilled            an operator killed it
    │   ├── RunWaiting           the run sleeps until a time (only with wait=False)
    │   ├── RunOwned             another live process has it
    │   ├── RunReleased          this process gave it up (SIGTERM); it can be resumed
    │   └── LostRun              this process had it and another one took it over
    ├── StepFailed               a step's recorded error whose class cannot be rebuilt
    ├── InDoubt                  a `once` step may or may not have happened
    ├── StepTimeout              an attempt took longer than its timeout
    ├── BodyCancelled            something that a step awaited was cancelled by somebody else
    ├── BreakerOpen              a step was not called, since its breaker is open
    ├── AskTimeout               nobody answered a question, or sent a signal, in time
    ├── Denied                   somebody did not approve of a step, which was not called
    ├── ChildFailed              a child run's recorded error whose class cannot be rebuilt
    ├── ChildKilled              an operator killed a child run
    ├── NotDone                  raised *by a tool*: "this certainly did not happen"
    ├── Terminal                 raised *by a tool*: "trying again is of no use"
    └── Transient                raised *by a tool*: "try again, perhaps after so many seconds"

UserWarning
└── OutlastWarning               something works, and probably not as it was meant

BaseException
└── StopRun                      unwinds a workflow that must stop; never catch it
"""

from typing import Literal


class OutlastError(Exception):
    """Base class of all errors of outlast."""


class UsageError(OutlastError):
    """The call itself was wrong. Nothing was run and nothing was written. Texts behind the first
    one are lines of their own, such as a list or a command to paste."""

    def __str__(self) -> str:
        return "\n".join(map(str, self.args))


class OutsideRun(UsageError):
    """A workflow was called as a plain function. Use `outlast.run` or `.plain`."""


class NoRunContext(UsageError):
    """A step was called where its run cannot be told (a bare thread, for instance)."""


class UnknownRun(UsageError):
    """No run, or more than one, matches the given id."""


class RunMismatch(UsageError):
    """The run id is taken by another workflow, or by the same one with other arguments."""


StoreProblem = Literal[
    "full", "read-only", "not-a-store", "gone", "busy", "newer", "damaged", "forked", "closed", "io"
]


class StoreError(OutlastError):
    """The store could not be opened, read or written. Never counted as a tool's fault.

    Attributes:
        problem: what kind of trouble it is, one of `StoreProblem`.
    """

    def __init__(self, message: str, problem: StoreProblem = "io") -> None:
        super().__init__(message, problem)
        self.problem: StoreProblem = problem

    def __str__(self) -> str:
        return str(self.args[0])


class StoreStopped(OutlastError):
    """The emergency stop of the store is in force, so nothing was begun.

    Attributes:
        since: when it was called for, in seconds since the epoch.
        by, why: who did, and what they said.
    """

    def __init__(self, since: float, by: str, why: str) -> None:
        super().__init__(since, by, why)
        self.since, self.by, self.why = since, by, why

    def __str__(self) -> str:
        who = f" by {self.by}" if self.by else ""
        reason = f": {self.why}" if self.why else ""
        return (
            f"everything in this store is stopped{who}{reason}. No attempt opens and no run is "
            "taken up until: outlast allow"
        )


class NotStorable(OutlastError):
    """A value cannot be stored so that it reads back exactly as it was."""


class Unreadable(OutlastError):
    """Stored bytes cannot be turned back into their value; the bytes are kept."""


class RunStopped(OutlastError):
    """A run ended or paused without a result for the caller.

    Attributes:
        run_id: the run.
    """

    def __init__(self, run_id: str, message: str) -> None:
        super().__init__(run_id, message)
        self.run_id = run_id
        self.message = message

    def __str__(self) -> str:
        return self.message


class RunFailed(RunStopped):
    """The workflow raised. `__cause__` is the workflow's own exception where it can be rebuilt."""


class RunHeld(RunStopped):
    """The run needs somebody before it can go on.

    Attributes:
        reason: why it is held, one of `records.HoldReason`.
        fix: the command or the change that lets it go on.
    """

    def __init__(self, run_id: str, reason: str, detail: str, fix: str) -> None:
        super().__init__(run_id, f"run {run_id} is held ({reason}): {detail}\n{fix}")
        self.args = (run_id, reason, detail, fix)
        self.reason = reason
        self.detail = detail
        self.fix = fix


class RunKilled(RunStopped):
    """An operator killed the run."""


class RunWaiting(RunStopped):
    """The run sleeps and no process needs to hold it.

    Attributes:
        due: when it can go on, in seconds since the epoch; None if it does not wait for a time.
    """

    def __init__(self, run_id: str, due: float | None, message: str) -> None:
        super().__init__(run_id, message)
        self.args = (run_id, due, message)
        self.due = due


class RunOwned(RunStopped):
    """Another live process executes the run.

    Attributes:
        owner: that process, such as `process 11827 on vm`.
    """

    def __init__(self, run_id: str, owner: str) -> None:
        text = f"run {run_id} is being executed by {owner}"
        super().__init__(run_id, f'{text}; if_owned="wait" waits for its result')
        self.args = (run_id, owner)
        self.owner = owner


class RunReleased(RunStopped):
    """This process gave the run up before its end. Nothing is lost; resume it."""


class LostRun(RunStopped):
    """Another process took the run over, so this one may write nothing more to it."""


class StepFailed(OutlastError):
    """The recorded error of a step, where the original exception cannot be rebuilt.

    Attributes:
        type: qualified name of the original exception class.
        fault: the fault class it was given, see `outlast.policy.faults`.
        message: text of the original exception.
    """

    def __init__(self, type: str, fault: str, message: str) -> None:
        super().__init__(type, fault, message)
        self.type = type
        self.fault = fault
        self.message = message

    def __str__(self) -> str:
        return f"{self.type}: {self.message}"


class InDoubt(OutlastError):
    """A `once` step was started and its outcome is unknown (with `in_doubt="raise"`).

    Attributes:
        step: key of the step.
        why: what happened to the attempt.
    """

    def __init__(self, step: str, why: str) -> None:
        super().__init__(step, why)
        self.step = step
        self.why = why

    def __str__(self) -> str:
        return f"step {self.step} may or may not have happened: {self.why}"


class StepTimeout(OutlastError):
    """An attempt did not end within the step's `timeout`."""


class BodyCancelled(OutlastError):
    """A step failed since something it awaited was cancelled, though nobody cancelled the step."""


class AskTimeout(OutlastError, TimeoutError):
    """Nobody answered a question, or sent a signal, in time.

    Attributes:
        key: of the wait, such as `ask#3`.
    """

    def __init__(self, message: str, key: str = "") -> None:
        super().__init__(message, key)
        self.key = key

    def __str__(self) -> str:
        return str(self.args[0])


class Denied(OutlastError):
    """Somebody did not approve of a step, which was therefore not called.

    Attributes:
        key: of the step. by: who it was. note: what they said. asked: what they were asked.
    """

    def __init__(self, key: str, by: str = "", note: str = "", asked: str = "") -> None:
        super().__init__(key, by, note, asked)
        self.key, self.by, self.note, self.asked = key, by, note, asked

    def __str__(self) -> str:
        what = f" ({self.asked})" if self.asked else ""
        who = f" by {self.by}" if self.by else ""
        said = f": {self.note}" if self.note else ""
        return f"step {self.key}{what} was denied{who}{said}"


class ChildFailed(OutlastError):
    """A child run failed, with an error whose class cannot be rebuilt.

    Attributes:
        run_id: the child. type: qualified name of the error's class. message: its text.
    """

    def __init__(self, run_id: str, type: str, message: str) -> None:
        super().__init__(run_id, type, message)
        self.run_id, self.type, self.message = run_id, type, message

    def __str__(self) -> str:
        return f"child run {self.run_id} failed: {self.type}: {self.message}"


class ChildKilled(OutlastError):
    """An operator killed a child run, so that it has no result.

    Attributes:
        run_id: the child. why: what the operator said.
    """

    def __init__(self, run_id: str, why: str = "") -> None:
        super().__init__(run_id, why)
        self.run_id, self.why = run_id, why

    def __str__(self) -> str:
        return f"child run {self.run_id} was killed" + (f": {self.why}" if self.why else "")


class BreakerOpen(OutlastError):
    """A step was not called: its breaker is open, since the tool failed too often lately.

    Attributes:
        name: of the breaker.
        until: when the tool may be tried again, in seconds since the epoch.
        fault: what the tool's last failure was.
    """

    def __init__(self, name: str, until: float, fault: str) -> None:
        super().__init__(name, until, fault)
        self.name = name
        self.until = until
        self.fault = fault

    def __str__(self) -> str:
        return f"breaker {self.name} is open, the call was not made; last fault: {self.fault}"


class Terminal(OutlastError):
    """A tool raises it to say that trying again is of no use."""


class Transient(OutlastError):
    """A tool raises it to say that trying again may help.

    Attributes:
        retry_after: seconds to leave it alone; None if it does not matter.
    """

    def __init__(self, message: str = "", *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class NotDone(OutlastError):
    """ "This certainly did not happen."

    A `once` step raises it to say that its effect did not take place; a reconcile function
    returns it to say so afterwards.
    """


class OutlastWarning(UserWarning):
    """Something works, and probably not as it was meant."""


class StopRun(BaseException):
    """Unwinds the workflow of a run that must stop here.

    It derives from BaseException so that `except Exception` in workflow code lets it pass. The
    engine does not rely on its arrival: a workflow that swallows it still runs no further step.
    """
