"""Requests, hints that they come, and phases in which a program gives way."""

from __future__ import annotations

import ctypes
import functools
import inspect
from types import TracebackType
from typing import Any, Callable, Optional, Type, TypeVar, cast

from ._durations import Duration, nanoseconds
from ._library import OK, RawRequest, library

_Function = TypeVar("_Function", bound=Callable[..., Any])


def hint(*, in_ms: float = 0.0) -> bool:
    """A request arrived, and its kernels follow in about this time: best-effort work makes room just before.

    Returns whether the daemon hears it. A hint that nothing follows has a price: after a few, hints are not listened to for a
    while. Whatever else goes to the GPU before them, as a copy of the input, is taken for the request: hint then for that.
    """
    if not 0 <= in_ms <= 1e12:
        raise ValueError(f"a time to come is not negative: {in_ms!r}")
    found = library()
    return found is not None and bool(found.rota_hint(round(in_ms * 1_000_000)) == OK)


class Request:
    """A request that is being served, in a ``with`` or an ``async with`` statement.

    One object is one request: it can be entered again only after it has ended.
    """

    __slots__ = ("_hint_ns", "_open", "_raw", "_slo_ns")

    def __init__(self, slo: Optional[Duration] = None, hint: Optional[Duration] = None) -> None:
        self._slo_ns = nanoseconds(slo)
        self._hint_ns = nanoseconds(hint)
        self._raw = RawRequest()
        self._open = False

    def begin(self) -> bool:
        """It begins. Returns whether the daemon hears it."""
        if self._open:
            raise RuntimeError("this request is being served already")
        self._open = True
        found = library()
        if found is None:
            return False
        return bool(found.rota_request_begin(ctypes.byref(self._raw), self._hint_ns, self._slo_ns) == OK)

    def end(self) -> None:
        """It is served: its results are there. Again, this does nothing."""
        if not self._open:
            return
        self._open = False
        found = library()
        if found is not None:
            found.rota_request_end(ctypes.byref(self._raw))

    def __enter__(self) -> "Request":
        self.begin()
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self.end()

    async def __aenter__(self) -> "Request":
        return self.__enter__()

    async def __aexit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self.end()


def request(*, slo: Optional[Duration] = None, hint: Optional[Duration] = None) -> Request:
    """A request, for a ``with`` or an ``async with`` statement.

    ``slo``: within which time it is to be served, as in ``"10ms"``; its job's SLO if it is not given. ``hint``: in which time
    its kernels follow; at once if it is not given.
    """
    return Request(slo, hint)


def serves(*, slo: Optional[Duration] = None, hint: Optional[Duration] = None) -> Callable[[_Function], _Function]:
    """Makes every call of a function a request; it may be a coroutine function, but no generator."""
    # What is wrong is said where it is written, not at the first call.
    Request(slo, hint)

    def decorate(function: _Function) -> _Function:
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise TypeError(f"{function!r} yields, so a call of it does no work yet: use `with rota.request()` in it")
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def serve_later(*arguments: Any, **named: Any) -> Any:
                async with Request(slo, hint):
                    return await function(*arguments, **named)

            return cast(_Function, serve_later)

        @functools.wraps(function)
        def serve(*arguments: Any, **named: Any) -> Any:
            with Request(slo, hint):
                return function(*arguments, **named)

        return cast(_Function, serve)

    return decorate


class Phase:
    """A phase in which the program gives way, in a ``with`` or an ``async with`` statement."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> "Phase":
        found = library()
        if found is not None:
            found.rota_phase_begin(self.name.encode())
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        found = library()
        if found is not None:
            found.rota_phase_end()

    async def __aenter__(self) -> "Phase":
        return self.__enter__()

    async def __aexit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self.__exit__(kind, error, trace)


def phase(name: str) -> Phase:
    """A phase in which the program gives way to others as soon as it has no work for the GPU: ``"checkpoint"``, say."""
    return Phase(name)
