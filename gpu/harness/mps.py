"""NVIDIA's own server for several processes on one GPU, as something to compare with."""

from __future__ import annotations

import contextlib
import itertools
import os
import subprocess

from .waiting import Failed, until


class Mps:
    """A server of this script, with folders of its own. `env` is what a program needs to use it."""

    _numbers = itertools.count(1)

    def __init__(self, run):
        name = f"mps{next(self._numbers)}"
        pipes, logs = run.work / name, run.logs / name
        for folder in (pipes, logs):
            folder.mkdir(parents=True, exist_ok=True)
        self.env = {"CUDA_MPS_PIPE_DIRECTORY": str(pipes), "CUDA_MPS_LOG_DIRECTORY": str(logs)}
        self._told = logs / "told.txt"
        try:
            self._say("-d")
            until("the MPS server's control pipe", 10.0, (pipes / "control").exists, 0.05)
        except BaseException:
            with contextlib.suppress(Failed):
                self.stop()
            raise

    def _say(self, *flags: str, text: str = ""):
        argv = ["nvidia-cuda-mps-control", *flags]
        try:
            # To a file: a server that stays would keep a pipe open, and whoever reads it would wait.
            with open(self._told, "ab") as told:
                done = subprocess.run(argv, input=text.encode(), stdout=told, stderr=told, timeout=20, env=os.environ | self.env)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise Failed(f"{argv[0]}: {error}") from error
        if done.returncode:
            raise Failed(f"{' '.join(argv)} ended with {done.returncode}: {self._told.read_text(errors='replace').strip()[-300:]}")

    def stop(self):
        """Ends it; nobody may use it any more."""
        self._say(text="quit -t 5\n")
