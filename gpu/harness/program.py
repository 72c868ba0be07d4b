"""A program, native or under a daemon."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

from .daemon import Daemon
from .processes import end_group, spawn, where_it_stands
from .waiting import Failed, until


class Program:
    """A program that ends by printing one line of JSON. `terms` are flags of `rota run`, unused natively."""

    def __init__(self, run, label: str, argv, under: Daemon | None, env, terms=(), stdin=None, stdout=None):
        self.run = run
        self.label = label
        self.under = under
        self.out = run.logs / f"{label}.out"
        self.err = run.logs / f"{label}.err"
        environment = dict(os.environ)
        environment.update(
            {
                "TRITON_CACHE_DIR": str(run.cache / "triton"),
                "TORCHINDUCTOR_CACHE_DIR": str(run.cache / "inductor"),
                "CUDA_CACHE_PATH": str(run.cache / "cuda"),
                "CUDA_MODULE_LOADING": "LAZY",
                "PYTHONDONTWRITEBYTECODE": "1",
            }
        )
        environment.pop("LD_PRELOAD", None)
        if under:
            environment["ROTA_SOCKET"] = str(under.socket)
            argv = [run.bundled("rota"), "run", "-q", "--name", label, *terms, "--", *argv]
        environment.update(env or {})
        keywords = {"stdin": stdin} if stdin is not None else {}
        self.child = spawn(
            argv,
            stdout=open(self.out, "wb") if stdout is None else stdout,
            stderr=open(self.err, "wb"),
            env=environment,
            **keywords,
        )
        self.pid = self.child.pid

    def alive(self) -> bool:
        """Whether it still runs."""
        return self.child.poll() is None

    def must_live(self):
        """Raises Failed with the program's last words if it ended."""
        if not self.alive():
            raise Failed(f"{self.label} ended with {self.child.returncode}: {self.last_words()}")
        return self.must_be_served()

    def must_be_served(self):
        """Raises Failed if the program's daemon ended by itself: the program may then be frozen for good."""
        if self.under and not self.under.alive() and not self.under.ended_on_purpose:
            raise Failed(f"rotad ended with {self.under.child.returncode}: {self.under.log_tail()}")
        return True

    def last_words(self) -> str:
        """The end of what it wrote to stderr."""
        return " | ".join(self.err.read_text(errors="replace").strip().split("\n")[-6:])[-900:]

    def wait_file(self, path: Path, timeout_s: float = 120.0):
        """Waits for a file that the program makes."""
        try:
            until(
                f"{self.label} to make {path.name}",
                timeout_s,
                lambda: path.exists() or (self.must_live() and False),
                0.005,
            )
        except Failed:
            self.run.say(where_it_stands(self.pid)[:8000] + (self.under.listing() if self.under else ""))
            raise

    def kill(self):
        """SIGKILL to the program alone."""
        os.kill(self.pid, signal.SIGKILL)

    def result(self, timeout_s: float) -> dict:
        """Waits for its end and returns the last line of JSON it printed."""
        try:
            until(
                f"{self.label} to end", timeout_s, lambda: not self.alive() or (self.must_be_served() and False), 0.01
            )
        except Failed as reason:
            end_group(self.child)
            raise Failed(f"{reason}; its last words: {self.last_words()}") from None
        lines = [line for line in self.out.read_text(errors="replace").splitlines() if line.startswith("{")]
        if self.child.returncode or not lines:
            raise Failed(
                f"{self.label} ended with {self.child.returncode} and {len(lines)} results: {self.last_words()}"
            )
        return json.loads(lines[-1])


def touch(path: Path):
    """Makes an empty file: a signal to a program."""
    path.touch()
