"""NVIDIA's own server for several processes on one GPU, as something to compare with."""

from __future__ import annotations

import os
import subprocess

from .waiting import Failed, until


class Mps:
    """A server of this script, with folders of its own. `env` is what a program needs to use it."""

    def __init__(self, run):
        pipes, logs = run.work / "mps", run.logs / "mps"
        for folder in (pipes, logs):
            folder.mkdir(parents=True, exist_ok=True)
        self.env = {"CUDA_MPS_PIPE_DIRECTORY": str(pipes), "CUDA_MPS_LOG_DIRECTORY": str(logs)}
        (pipes / "control").unlink(missing_ok=True)  # of one before
        self._say(["nvidia-cuda-mps-control", "-d"])
        until("the MPS server's control pipe", 10.0, (pipes / "control").exists, 0.05)

    def _say(self, argv, text: str | None = None):
        try:
            done = subprocess.run(argv, input=text, capture_output=True, text=True, timeout=20, env=os.environ | self.env)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise Failed(f"{argv[0]}: {error}") from error
        if done.returncode:
            raise Failed(f"{' '.join(argv)} ended with {done.returncode}: {(done.stdout + done.stderr).strip()[-300:]}")

    def stop(self):
        """Ends it; nobody may use it any more."""
        self._say(["nvidia-cuda-mps-control"], "quit -t 5\n")
