"""The daemon's event file, followed while it grows."""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path

from .waiting import POLL_S, now_ns, until

KEPT_FREE: set[int] = set()
"""Cores that nobody follows events on."""


class Events:
    """Follows the daemon's event file. `t_ns` of an event counts from the daemon's start; `at_ns` is put beside it: the
    same instant on this script's clock, known to about POLL_S through the shortest delay seen between write and read."""

    def __init__(self, path: Path):
        self.path = path
        self.all: list[dict] = []
        self.pid_of_tenant: dict = {}
        self.bad_lines = 0
        self._rest = b""
        self._file = None
        self._offset_ns: int | None = None
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def _follow(self):
        # Programs that are measured have their cores to themselves.
        if rest := os.sched_getaffinity(0) - KEPT_FREE:
            os.sched_setaffinity(0, rest)
        while not self._stop.is_set():
            self.read()
            time.sleep(POLL_S)

    def read(self):
        """Takes in what was written since."""
        with self._lock:
            if self._file is None:
                try:
                    self._file = open(self.path, "rb")
                except FileNotFoundError:
                    return
            data = self._file.read()
            if not data:
                return
            seen_ns = now_ns()
            lines = (self._rest + data).split(b"\n")
            self._rest = lines.pop()
            for line in lines:
                try:
                    event = json.loads(line)
                    event["t_ns"], event["event"]
                except (ValueError, KeyError, TypeError):
                    self.bad_lines += 1
                    continue
                offset = seen_ns - event["t_ns"]
                if self._offset_ns is None or offset < self._offset_ns:
                    self._offset_ns = offset
                if event["event"] == "joined" and "pid" in event:
                    self.pid_of_tenant[event.get("tenant")] = event["pid"]
                if "pid" not in event and event.get("tenant") in self.pid_of_tenant:
                    event["pid"] = self.pid_of_tenant[event["tenant"]]
                self.all.append(event)

    def stop(self):
        """Ends following."""
        self._stop.set()
        self._thread.join(2)
        self.read()

    def offset_ns(self) -> int:
        """From the daemon's clock to this script's: what it is, and the shortest delay seen."""
        return self._offset_ns or 0

    def at_ns(self, event) -> int:
        """When it happened, on this script's clock."""
        return event["t_ns"] + self.offset_ns()

    def mark(self) -> int:
        """How many events there are: a place to look on from."""
        return len(self.all)

    def of(self, kind: str, pid: int | None = None, since: int = 0) -> list[dict]:
        """The events of a kind, of one process if it is named."""
        return [e for e in self.all[since:] if e["event"] == kind and (pid is None or e.get("pid") == pid)]

    def of_process(self, pid: int) -> list[dict]:
        """Everything that concerns one process."""
        return [e for e in self.all if e.get("pid") == pid]

    def wait(self, kind: str, pid: int | None = None, since: int = 0, timeout_s: float = 30.0) -> dict:
        """The first such event at or after place `since`."""
        place = since

        def look():
            nonlocal place
            end = len(self.all)
            for event in self.all[place:end]:
                if event["event"] == kind and (pid is None or event.get("pid") == pid):
                    return event
            place = end
            return None

        return until(f"event {kind}" + (f" of process {pid}" if pid else ""), timeout_s, look, 0.0005)
