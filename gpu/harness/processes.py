"""Processes: each in its own group, each ended when the script ends, however it ends."""

from __future__ import annotations

import atexit
import os
import signal
import subprocess
import time
from pathlib import Path

_children: list[subprocess.Popen] = []


def spawn(argv, **keywords) -> subprocess.Popen:
    """Starts a process in its own group and remembers it for the end of the script."""
    child = subprocess.Popen(
        [str(a) for a in argv], start_new_session=True, stdin=keywords.pop("stdin", subprocess.DEVNULL), **keywords
    )
    _children.append(child)
    return child


def end_group(child: subprocess.Popen, sig=signal.SIGKILL):
    """Sends a signal to the group of a process started by `spawn`."""
    try:
        os.killpg(child.pid, sig)
    except (ProcessLookupError, PermissionError):
        pass


def end_all(but=()):
    """Kills every process that is left, except those in `but`."""
    ending = [child for child in _children if child not in but]
    for child in ending:
        if child.poll() is None:
            end_group(child)
    deadline = time.monotonic() + 5
    for child in ending:
        try:
            child.wait(max(0.05, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            print(f"warning: process {child.pid} did not end after SIGKILL", flush=True)


atexit.register(end_all)


def output_of(argv, timeout_s: float = 20.0) -> str | None:
    """The output of a short command, None if it fails or takes too long."""
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=timeout_s, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def where_it_stands(pid: int) -> str:
    """What each thread of a process waits for: for a program that stands still."""
    lines = []
    for task in sorted(Path(f"/proc/{pid}/task").glob("*"), key=lambda path: int(path.name)):
        words = []
        for name in ("comm", "wchan", "syscall", "stack"):
            try:
                words.append(f"{name} " + " < ".join((task / name).read_text().split("\n")).strip(" <"))
            except OSError as reason:
                words.append(f"{name} ({reason.strerror})")
        lines.append(f"thread {task.name}: " + ", ".join(words))
    frames = output_of(["gdb", "-p", str(pid), "-batch", "-ex", "thread apply all bt 25"], 30.0)
    return "\n".join(lines + ([frames] if frames else []))
