"""A rotad of one script."""

from __future__ import annotations

import json
import signal
import subprocess
import time

from .events import Events
from .processes import end_group, output_of, spawn
from .waiting import Failed, until

GIB = 1 << 30
ENDS_WITHIN_S = 8.0
"""How long a rotad may take to end after SIGTERM, once its programs have, before it is killed: a FAIL then."""


class Daemon:
    """A rotad of this script."""

    def __init__(
        self,
        run,
        label: str,
        capacity: str | None = None,
        turn: str | None = None,
        jitter: float = 0.0,
        arena: str = "32GiB",
        ready_s: float = 60.0,
        gap_max: str | None = None,
        moving_share: str | None = None,
        oversize_max: str | None = None,
        cellar: str | None = None,
        cellar_limit: str | None = None,
        ends_within_s: float = ENDS_WITHIN_S,
        more=(),
    ):
        """Without a capacity the GPU is as large as it is; without a turn rota chooses, within `gap_max` and `moving_share`. `more`
        are other flags, with their values."""
        self.run = run
        self.label = label
        self.ended_on_purpose = False
        self.ends_within_s = ends_within_s
        self.end_said = "was not told to end"
        self.socket = run.work / f"{label}.sock"
        self.log = run.logs / f"{label}.rotad.log"
        events = run.logs / f"{label}.events.jsonl"
        wanted = {"--capacity": capacity, "--arena": arena, "--turn": turn, "--gap-max": gap_max, "--moving-share": moving_share, "--oversize-max": oversize_max}
        wanted |= {"--cellar": cellar, "--cellar-limit": cellar_limit}
        settings = [word for flag, value in wanted.items() if value is not None for word in (flag, value)]
        settings += ["--turn-jitter", f"{jitter:g}"] if jitter else []
        settings += more
        argv = [run.bundled("rotad"), "--socket", self.socket, *settings, "--events", events]
        run.bundled("rota"), run.bundled("librota_shim.so"), run.bundled("librota_nvml.so")
        run.say(f"   rotad {' '.join(settings)}" + ("" if turn else " (turns as rota chooses)"))
        self.child = spawn(argv, stdout=open(self.log, "wb"), stderr=subprocess.STDOUT)
        self.events = Events(events)

        def ready():
            if self.child.poll() is not None:
                raise Failed(f"rotad ended with {self.child.returncode} before it was ready: {self.log_tail()}")
            return "rotad: ready" in self.log.read_text(errors="replace")

        until(f"rotad to be ready ({self.log_tail()})", ready_s, ready, 0.02)

    def log_tail(self, size: int = 800) -> str:
        """The end of its log, on one line."""
        try:
            return " | ".join(self.log.read_text(errors="replace")[-size:].split("\n"))
        except OSError:
            return ""

    def listing(self) -> str:
        """What `rota ps` says."""
        return self.rota("ps", "-o", "json") or "rota ps does not answer"

    def rota(self, *words: str) -> str | None:
        """What `rota` with these words prints; None where it fails."""
        return output_of(["env", f"ROTA_SOCKET={self.socket}", str(self.run.bundled("rota")), *words])

    def describe(self, what) -> dict | None:
        """What `rota describe` says of a job or a process; None where it says nothing."""
        try:
            return json.loads(self.rota("describe", str(what), "-o", "json") or "null")
        except ValueError:
            return None

    def workers(self) -> dict:
        """Its processes that serve tenants, and what to call them."""
        return {event["pid"]: "rotad" for event in self.events.of("worker")[-1:] if "pid" in event}

    def room_bytes(self) -> int:
        """What of the GPU is left for programs' memory once the daemon and all contexts have theirs."""
        found = self.describe("gpu0") or {}
        gpu = found.get("gpu")
        if not gpu:
            raise Failed("rota describe gpu0 says nothing")
        contexts = sum(tenant["context_bytes"] for job in found["jobs"] for tenant in job["tenants"])
        return gpu["capacity_bytes"] - gpu["reserve_bytes"] - gpu["unmanaged_bytes"] - contexts

    def wait_arena(self, timeout_s: float = 90.0):
        """Waits until the arena is pinned."""
        event = self.events.wait("arena_ready", timeout_s=timeout_s)
        self.run.say(f"   arena ready: {event.get('bytes', 0) / GIB:.1f} GiB in {event.get('took_ns', 0) / 1e9:.1f} s")

    def alive(self) -> bool:
        """Whether it still runs."""
        return self.child.poll() is None

    def kill(self):
        """SIGKILL, as a crash would be."""
        self.ended_on_purpose = True
        end_group(self.child)
        self.child.wait(10)

    def stop(self):
        """SIGTERM, then SIGKILL. The run is told how it ended, for its check of all daemons; one that was killed on purpose, or is
        stopped a second time, counts no more."""
        if not self.ended_on_purpose:
            well, took_s = False, None
            if self.child.poll() is not None:
                self.end_said = f"ended with {self.child.returncode} before it was told to"
            else:
                began = time.monotonic()
                end_group(self.child, signal.SIGTERM)
                try:
                    self.child.wait(self.ends_within_s)
                    took_s = time.monotonic() - began
                    well = self.child.returncode == 0
                    self.end_said = f"ended {took_s:.2f} s after SIGTERM, of {self.ends_within_s:g}" + ("" if well else f", with {self.child.returncode}")
                except subprocess.TimeoutExpired:
                    end_group(self.child)
                    self.end_said = f"did not end {self.ends_within_s:g} s after SIGTERM, and was killed"
            self.run.daemon_ended(self.label, well, took_s, self.end_said)
        self.ended_on_purpose = True
        self.events.stop()

    def check_no_errors(self, but=()):
        """One check: the daemon is alive and reported no error event, except about the processes in `but`."""
        events = self.events.of("error")
        for event in [e for e in events if e.get("pid") in but]:
            self.run.fact(f"error about process {event['pid']}, killed on purpose: {event.get('what', 'no text')}")
        errors = [str(e.get("what", e)) for e in events if e.get("pid") not in but]
        self.run.check(
            f"rotad {self.label}: running, no error event",
            self.alive() and not errors and not self.events.bad_lines,
            "; ".join(errors[:3])
            + ("" if self.alive() else " ended: " + self.log_tail(300))
            + (f" {self.events.bad_lines} unreadable lines" if self.events.bad_lines else ""),
        )
