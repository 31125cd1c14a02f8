"""`@step` and `@workflow`: they freeze what a function is, and return a real function."""

import functools
import inspect
from collections.abc import Callable, Collection
from dataclasses import replace
from types import MethodType
from typing import ParamSpec, TypeVar, overload

from outlast.api.compensation import compensation
from outlast.api.options import (
    breaker_of,
    check_approval,
    check_options,
    cost_of,
    is_async,
    is_exception_class,
    module_of,
    name_of,
    receiver_of,
    signature_of,
)
from outlast.api.protocols import Step as Step
from outlast.api.protocols import Workflow as Workflow
from outlast.engine.calls import call_async, call_sync
from outlast.engine.children import call_child, call_child_async
from outlast.engine.history import RESERVED
from outlast.engine.run import active_runs
from outlast.engine.scope import ATTEMPT, SCOPE, Scope
from outlast.engine.spec import (
    REPEATS,
    Classify,
    Match,
    OnDoubt,
    OnFailure,
    StepSpec,
    WorkflowSpec,
)
from outlast.errors import NoRunContext, OutsideRun, UsageError
from outlast.policy.breaker import Breaker
from outlast.policy.budget import Budget
from outlast.policy.cost import Costs
from outlast.policy.retry import Retry
from outlast.records import Effect

P = ParamSpec("P")
R = TypeVar("R")


@overload
def step(fn: Callable[P, R], /) -> Step[P, R]: ...
@overload
def step(
    fn: Callable[P, R],
    /,
    *,
    name: str | None = None,
    effect: Effect | None = None,
    retry: Retry | None = None,
    timeout: float | None = None,
    in_doubt: OnDoubt = "hold",
    not_done: Collection[type[BaseException]] = (),
    ignore: Collection[str] = (),
    secret: Collection[str] = (),
    match: Match = "arguments",
    classify: Classify | None = None,
    breaker: str | Breaker | bool | None = None,
    cost: Costs | None = None,
    poll: bool = False,
    approval: bool | Callable[..., bool | str] = False,
) -> Step[P, R]: ...
@overload
def step(
    *,
    name: str | None = None,
    effect: Effect | None = None,
    retry: Retry | None = None,
    timeout: float | None = None,
    in_doubt: OnDoubt = "hold",
    not_done: Collection[type[BaseException]] = (),
    ignore: Collection[str] = (),
    secret: Collection[str] = (),
    match: Match = "arguments",
    classify: Classify | None = None,
    breaker: str | Breaker | bool | None = None,
    cost: Costs | None = None,
    poll: bool = False,
    approval: bool | Callable[..., bool | str] = False,
) -> Callable[[Callable[P, R]], Step[P, R]]: ...
def step(
    fn: Callable[..., object] | None = None,
    /,
    *,
    name: str | None = None,
    effect: Effect | None = None,
    retry: Retry | None = None,
    timeout: float | None = None,
    in_doubt: OnDoubt = "hold",
    not_done: Collection[type[BaseException]] = (),
    ignore: Collection[str] = (),
    secret: Collection[str] = (),
    match: Match = "arguments",
    classify: Classify | None = None,
    breaker: str | Breaker | bool | None = None,
    cost: Costs | None = None,
    poll: bool = False,
    approval: bool | Callable[..., bool | str] = False,
) -> object:
    """Make a function a step: in a run, its outcome is recorded and never computed again.

    Use it bare, with options, or as `step(callable, name=...)` for tools found at run time. Outside
    a run the function is what it was. A step called within another step is a part of that one.

    Args:
        fn: the function, plain or asynchronous; a method too, whose `self` is not recorded.
        name: of the step in the journal; the function's own by default.
        effect: what repeating it does outside. `read`: nothing. `idempotent`: nothing more, given
            the same `outlast.idempotency_key()`. `once`: never repeated on a guess. Undeclared
            counts as idempotent, and a repeat is shown as "may have happened twice".
        retry: how often transient faults are retried; three attempts by default.
        timeout: longest duration of one attempt, in seconds.
        in_doubt: what happens when it is unknown whether a `once` step took effect and reconcile
            cannot tell: `hold` the run for an operator, or `raise` `InDoubt` in the workflow.
        not_done: exception classes which say that a `once` step certainly did not take effect.
        ignore: parameters that are neither compared nor shown (a client object, for instance).
        secret: parameters that are compared but shown as `***`.
        match: what must be as recorded when the call is replayed: its `arguments`, or its `name`
            alone, for arguments that may change or that cannot be compared.
        classify: takes what the body raised and returns a fault class or a whole `Fault`, or None
            to leave it to the library's own table.
        breaker: which breaker guards it: its own by default, under the function's module and name,
            or under `name`. A name shares that breaker with other steps, a `Breaker` sets it, False
            switches it off.
        cost: what a call costs: US dollars, a function of the result, an `outlast.Cost`, or `llm`.
        poll: a `read` step that is asked again until the answer changes; the loop guard lets it.
        approval: a person has to approve of each call before it is made, see `outlast.ask`; a
            function of the arguments says which calls, with True and False or the question's text.
            A call that is denied raises `Denied`.

    Raises:
        UsageError: the options do not fit together or the function.
    """
    if effect not in (None, "read", "idempotent", "once", "assumed"):
        raise UsageError(f"effect={effect!r}: expected 'read', 'idempotent' or 'once'")
    if in_doubt not in ("hold", "raise"):
        raise UsageError(f"in_doubt={in_doubt!r}: expected 'hold' or 'raise'")
    if match not in ("arguments", "name"):
        raise UsageError(f"match={match!r}: expected 'arguments' or 'name'")
    check_options(retry, timeout, classify)
    check_approval(approval)
    if effect != "once" and (in_doubt != "hold" or not_done):
        raise UsageError("in_doubt= and not_done= are for steps with effect='once'")
    if poll and effect != "read":
        raise UsageError("poll=True is for steps with effect='read'")
    if isinstance(not_done, type) or not all(is_exception_class(cls) for cls in not_done):
        raise UsageError(f"not_done={not_done!r}: a list of exception classes is expected")

    def decorate(fn: Callable[..., object]) -> object:
        signature = signature_of(fn)
        for parameter in (*ignore, *secret):
            if parameter not in signature.parameters:
                raise UsageError(f"step {name_of(fn, name)} has no parameter {parameter!r}")
        unrecorded = frozenset(ignore) | receiver_of(fn, signature)
        named = name_of(fn, name)
        if named in RESERVED:
            raise UsageError(
                f"a step cannot be called {named!r}, as the library's own calls are in a run's "
                "journal; give it another name with name="
            )
        own = named if name else f"{module_of(fn)}.{named}"
        guard, declared = breaker_of(breaker, own, retry or Retry())
        spec = StepSpec(
            name=named,
            fn=fn,
            signature=signature,
            is_async=is_async(fn),
            effect=effect or "assumed",
            retry=retry or Retry(),
            timeout=timeout,
            in_doubt=in_doubt,
            not_done=tuple(not_done),
            unrecorded=unrecorded,
            secret=frozenset(secret),
            match=match,
            classify=classify,
            breaker=guard,
            breaker_declared=declared,
            cost=None if cost is None else cost_of(cost, named),
            poll=poll,
            approval=approval,
            tool=f"{module_of(fn)}.{getattr(fn, '__qualname__', named)}",
            is_method=bool(receiver_of(fn, signature)),
            place=f"{module_of(fn)}:{getattr(fn, '__qualname__', named)}",
        )
        made = _make_step(spec)
        return _StepMethod(made) if receiver_of(fn, signature) else made

    return decorate if fn is None else decorate(fn)


def _make_step(spec: StepSpec) -> Callable[..., object]:
    fn = spec.fn
    call = call_async if spec.is_async else call_sync

    def stepped(*args: object, **kwargs: object) -> object:
        scope = _scope_for(spec.name)
        if scope is None:
            return fn(*args, **kwargs)
        return call(specs[0], scope, args, kwargs)

    specs = [spec]  # replaced as a whole when reconcile or undo is registered
    _dress(stepped, fn, spec.name, spec.is_async)

    def reconcile(check: Callable[..., object]) -> Callable[..., object]:
        if spec.effect != "once":
            raise UsageError(f"step {spec.name}: only a step with effect='once' is reconciled")
        if is_async(check) and not spec.is_async:
            raise UsageError(f"step {spec.name} is a plain function, so its reconcile must be too")
        specs[0] = replace(specs[0], reconcile=check)
        return check

    def undo(
        compensate: Callable[..., object] | None = None,
        /,
        *,
        retry: Retry | None = None,
        effect: Effect = "idempotent",
        timeout: float | None = None,
    ) -> object:
        def register(compensate: Callable[..., object]) -> Callable[..., object]:
            made = compensation(specs[0], compensate, retry, effect, timeout)
            specs[0] = replace(specs[0], undo=made)
            return compensate

        return register if compensate is None else register(compensate)

    stepped.plain = fn  # type: ignore[attr-defined]
    stepped.reconcile = reconcile  # type: ignore[attr-defined]
    stepped.undo = undo  # type: ignore[attr-defined]
    stepped.__outlast_step__ = specs  # type: ignore[attr-defined]
    return stepped


class _StepMethod(staticmethod):  # type: ignore[type-arg]
    """A step in a class body. The class has it as the function that it is; on an object, `plain` is
    bound to the object too.

    It derives from staticmethod since pydantic's models, for one, take nothing but functions and
    the built-in descriptors for a method.
    """

    def __init__(self, step: Callable[..., object]) -> None:
        super().__init__(step)
        vars(self).update(vars(step))  # for what else the class body does with it

    def __get__(self, instance: object, owner: type | None = None) -> Callable[..., object]:
        step = self.__func__
        if instance is None:
            return step

        @functools.wraps(step)
        def bound(*args: object, **kwargs: object) -> object:
            return step(*args, **kwargs)

        bound.plain = MethodType(step.plain, instance)  # type: ignore[attr-defined]
        return MethodType(bound, instance)


def _scope_for(name: str) -> Scope | None:
    """Where a step is called; None if it is to be the plain function."""
    scope = SCOPE.get()
    if scope is not None:
        return None if ATTEMPT.get() is not None else scope
    if active_runs():
        raise NoRunContext(
            f"step {name} was called where its run cannot be told, probably in a bare thread. "
            "Use asyncio.to_thread, or contextvars.copy_context().run there, or "
            f"{name}.plain(...) to call it outside any run"
        )
    return None


@overload
def workflow(fn: Callable[P, R], /) -> Workflow[P, R]: ...
@overload
def workflow(
    *,
    name: str | None = None,
    budget: Budget | None = None,
    max_repeats: int | None = REPEATS,
    on_failure: OnFailure = "leave",
) -> Callable[[Callable[P, R]], Workflow[P, R]]: ...
def workflow(
    fn: Callable[..., object] | None = None,
    /,
    *,
    name: str | None = None,
    budget: Budget | None = None,
    max_repeats: int | None = REPEATS,
    on_failure: OnFailure = "leave",
) -> object:
    """Make a function a workflow, to be started with `outlast.run` and its kin.

    Its own code must be repeatable: everything that has an effect, takes long or may turn out
    differently the next time belongs into steps.

    Args:
        fn: the function, plain or asynchronous.
        name: of the workflow in the store; the function's own by default.
        budget: what each of its runs may spend; no limits by default, and no money.
        max_repeats: how often in a row a tool may be called with the same arguments and end in the
            same way; then the run is held. None for as often as it likes.
        on_failure: what becomes of its completed steps when it raises: `leave` them as they are, or
            `undo` them, in reverse order.

    Raises:
        UsageError: the options are not what they should be.
    """
    if budget is not None and not isinstance(budget, Budget):
        raise UsageError(f"budget={budget!r}: an outlast.Budget is expected")
    if max_repeats is not None and (
        isinstance(max_repeats, bool) or not isinstance(max_repeats, int) or max_repeats < 1
    ):
        raise UsageError(f"max_repeats={max_repeats!r}: a whole number above 0 or None is expected")
    if on_failure not in ("leave", "undo"):
        raise UsageError(f"on_failure={on_failure!r}: expected 'leave' or 'undo'")

    def decorate(fn: Callable[..., object]) -> object:
        spec = WorkflowSpec(
            name=name_of(fn, name),
            fn=fn,
            signature=signature_of(fn),
            is_async=is_async(fn),
            module=fn.__module__ or "",  # none for code that was compiled without a name
            budget=budget,
            max_repeats=max_repeats,
            on_failure=on_failure,
        )

        call = call_child_async if spec.is_async else call_child

        def started(*args: object, **kwargs: object) -> object:
            scope = SCOPE.get()
            if scope is None:
                raise OutsideRun(
                    f"workflow {spec.name} was called outside a run; start it with "
                    f"outlast.run({spec.name}, ...), or call {spec.name}.plain(...)"
                )
            if ATTEMPT.get() is not None:  # a part of the step
                return fn(*args, **kwargs)
            return call(spec, scope, args, kwargs)

        _dress(started, fn, spec.name, spec.is_async)
        started.plain = fn  # type: ignore[attr-defined]
        started.__outlast_workflow__ = spec  # type: ignore[attr-defined]
        return started

    return decorate if fn is None else decorate(fn)


def _dress(
    wrapper: Callable[..., object], fn: Callable[..., object], name: str, is_async: bool
) -> None:
    """Make a wrapper look like what it wraps, to people and to `inspect`."""
    functools.update_wrapper(wrapper, fn)
    if not hasattr(fn, "__name__"):  # a functools.partial or another callable object
        wrapper.__name__ = wrapper.__qualname__ = name
    if is_async:
        _mark_coroutine_function(wrapper)


def _mark_coroutine_function(wrapper: Callable[..., object]) -> None:
    if hasattr(inspect, "markcoroutinefunction"):
        inspect.markcoroutinefunction(wrapper)
    else:  # Python 3.11 has a private mark for the same purpose
        import asyncio.coroutines

        wrapper._is_coroutine = asyncio.coroutines._is_coroutine  # type: ignore[attr-defined]
