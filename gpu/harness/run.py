"""One script's run: its logs, its checks, what it started, its end."""

from __future__ import annotations

import datetime
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import traceback
from pathlib import Path

from .daemon import Daemon
from .device import xids
from .processes import end_all, output_of
from .program import Program
from .waiting import Failed

HERE = Path(__file__).resolve().parent.parent
PROGRAMS = HERE / "programs"


def flags(words) -> list[list[str]]:
    """Each flag, with its value where one follows it."""
    found = []
    for word in words:
        if word.startswith("--"):
            found.append([word])
        elif found and len(found[-1]) == 1:
            found[-1].append(word)
        else:
            raise Failed(f"{word} is of no flag in: {' '.join(words)}")
    return found


class Run:
    """One script's run: its logs, its checks, what it started."""

    def __init__(self, name: str):
        self.name = name
        self.checks: list[tuple[str, bool, str]] = []
        self.facts: list[str] = []
        self.work = Path(tempfile.mkdtemp(prefix=f"rota-{name}-"))
        self.work.chmod(0o755)
        logs = os.environ.get("ROTA_LOGS")
        self.logs = Path(logs) / name if logs else self.work / "logs"
        self.logs.mkdir(parents=True, exist_ok=True)
        self.bundle = Path(os.environ.get("ROTA_BUNDLE", HERE / "bundle"))
        self.python = os.environ.get("ROTA_PYTHON", "python3")
        self.cache = Path(os.environ.get("ROTA_CACHE", Path(tempfile.gettempdir()) / f"rota-gpu-cache-{os.getuid()}"))
        self.cache.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._daemons: list[Daemon] = []
        self._ends: list[tuple[str, bool, float | None, str]] = []
        self._unknown_terms: list[list[str]] = []
        self.xids_before = xids()

    def header(self):
        """Prints what was run, where and when."""
        commit = (
            os.environ.get("ROTA_COMMIT")
            or (output_of(["git", "-C", str(HERE), "rev-parse", "HEAD"]) or "unknown").strip()
        )
        gpu = output_of(["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"])
        print(
            f"== {self.name}   {datetime.datetime.now(datetime.timezone.utc):%Y-%m-%d %H:%M:%S} UTC   commit {commit}"
        )
        print(
            f"   GPU, driver, memory: {(gpu or 'nvidia-smi does not answer').strip()}   kernel {os.uname().release}",
            flush=True,
        )

    def say(self, text: str):
        """A line of progress."""
        print(text, flush=True)

    def check(self, what: str, ok: bool, detail: str = ""):
        """Records one PASS or FAIL."""
        self.checks.append((what, bool(ok), detail))
        self.say(f"   {'PASS' if ok else 'FAIL'}  {what}" + (f": {detail}" if detail else ""))

    def fact(self, text: str):
        """Records something found out that can't fail."""
        self.facts.append(text)
        self.say(f"   FACT  {text}")

    def write(self, name: str, text: str):
        """Keeps a text among the logs."""
        (self.logs / name).write_text(text)

    def bundled(self, name: str) -> Path:
        """A file of the bundle, made executable."""
        path = self.bundle / name
        if not path.exists():
            raise Failed(f"{path} is not there: build it with `make gpu-bundle`")
        try:
            path.chmod(0o755)
        except OSError:
            pass
        return path

    def build(self, source: str, *flags: str) -> Path:
        """Builds a C program of `programs/` with nvcc, or takes what a script before this one built of the same text."""
        target = self.work / Path(source).stem
        argv = ["nvcc", "-O2", "-o", str(target), str(PROGRAMS / source), *flags, "-lcuda"]
        texts = [(output_of(["nvcc", "--version"]) or "").encode(), " ".join(flags).encode()]
        texts += (path.read_bytes() for path in (PROGRAMS / source, *sorted(PROGRAMS.glob("*.h"))))
        built = self.cache / f"{target.name}-{hashlib.sha256(b''.join(texts)).hexdigest()[:16]}"
        if built.exists():
            return Path(shutil.copy(built, target))
        try:
            done = subprocess.run(argv, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise Failed(f"{' '.join(argv)}: {error}") from error
        self.write(f"build-{target.name}.txt", done.stdout + done.stderr)
        if done.returncode:
            raise Failed(f"{' '.join(argv)} ended with {done.returncode}: {done.stderr[-1500:]}")
        target.chmod(0o755)
        try:
            # In one step: another script may be looking.
            shutil.copy(target, new := built.with_suffix(f".{os.getpid()}"))
            new.rename(built)
        except OSError as error:
            self.say(f"   {target.name} is built again by the next script: {error}")
        return target

    def daemon(self, label: str, **options) -> "Daemon":
        """Starts a rotad that is stopped with the script."""
        daemon = Daemon(self, label, **options)
        self._daemons.append(daemon)
        return daemon

    def program(
        self, label: str, script: str, *arguments, under: "Daemon | None" = None, env=None, terms=()
    ) -> "Program":
        """Starts a Python program of `programs/`, natively or under a daemon."""
        return self.command(label, [self.python, "-u", PROGRAMS / script, *arguments], under, env, terms)

    def command(self, label: str, argv, under: "Daemon | None" = None, env=None, terms=(), **pipes) -> "Program":
        """Starts any program, natively or under a daemon, there on `terms`: flags of `rota run`."""
        return Program(self, label, argv, under, env, terms, **pipes)

    def terms(self, *wanted: str) -> list[str]:
        """Flags of `rota run`, with their values where they have one, as in `--memory 8GiB --reserve`; a FAIL where this rota does
        not know one of them."""
        known = output_of([str(self.bundled("rota")), "run", "--help"]) or ""
        found = []
        for words in flags(wanted):
            if words[0] in known:
                found += words
            elif words not in self._unknown_terms:
                self._unknown_terms.append(words)
                self.check(f"rota run knows {words[0]}", False, f"this rota does not: measured without {' '.join(words)}")
        return found

    def end_programs(self):
        """Ends everything but the daemons."""
        end_all(but=[daemon.child for daemon in self._daemons])

    def end_daemons(self):
        """Stops the daemons that still run."""
        for daemon in self._daemons:
            daemon.stop()
        self._daemons.clear()

    def daemon_ended(self, label: str, well: bool, took_s: float | None, said: str):
        """A daemon was told to end, or had ended by itself: whether it did so well and in time, and how long it took if so."""
        self._ends.append((label, well, took_s, said))
        if not well:
            self.say(f"   rotad {label} {said}")

    def check_ends(self):
        """One check of all daemons that were told to end. Their programs have ended then: one that stays holds memory of the GPU and of
        the host that nobody uses."""
        wrong = [f"{label} {said}" for label, well, _, said in self._ends if not well]
        slowest = max((took_s for _, _, took_s, _ in self._ends if took_s is not None), default=0.0)
        if self._ends:
            self.check("each rotad ends in time after SIGTERM", not wrong, "; ".join(wrong) or f"{len(self._ends)}, after {slowest:.2f} s at most")

    def close(self):
        """Stops everything, looks for Xids and error events, packs the logs, prints the table. Returns the exit status."""
        self.end_programs()  # a daemon ends only after its tenants
        self.end_daemons()
        self.check_ends()
        end_all()
        after = xids()
        if after is None or self.xids_before is None:
            self.fact("the kernel log can't be read here: Xids were not looked for")
        else:
            new = after[len(self.xids_before) :] if len(after) >= len(self.xids_before) else after
            self.check("no Xid in the kernel log", not new, "; ".join(new[:3]))
        print(f"== {self.name}: result")
        for what, ok, detail in self.checks:
            print(f"{'PASS' if ok else 'FAIL'}  {what}" + (f": {detail}" if detail else ""))
        for text in self.facts:
            print(f"FACT  {text}")
        failed = sum(not ok for _, ok, _ in self.checks)
        print(
            f"{'FAIL' if failed else 'PASS'}  {self.name}: {len(self.checks) - failed} of {len(self.checks)} checks hold",
            flush=True,
        )
        self._pack()
        return 1 if failed else 0

    def _pack(self):
        if os.environ.get("ROTA_LOGS"):
            shutil.rmtree(self.work, ignore_errors=True)
            return
        out = os.environ.get("OUT")
        if not out:
            print(f"logs: {self.logs}", flush=True)
            return
        with tarfile.open(Path(out) / f"{self.name}.tar.gz", "w:gz") as archive:
            archive.add(self.logs, arcname=self.name)
        shutil.rmtree(self.work, ignore_errors=True)


def main(name: str, limit_s: float, body):
    """Runs a script's body within `limit_s`, prints its result whatever happens, and exits 0 only if all checks hold."""

    class Stopped(BaseException):
        pass

    signals = (signal.SIGALRM, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

    def ignore():
        for number in signals:
            signal.signal(number, signal.SIG_IGN)

    def stop(number, _frame):
        ignore()  # the first one is enough: a second must not break the clean-up
        raise Stopped(
            f"the script's own limit of {limit_s:g} s was reached"
            if number == signal.SIGALRM
            else f"stopped by signal {number}"
        )

    for number in signals:
        signal.signal(number, stop)
    signal.setitimer(signal.ITIMER_REAL, limit_s)
    run = Run(name)
    began = time.monotonic()
    try:
        run.header()
        body(run)
    except (Failed, Stopped) as reason:
        run.check("the script ran to its end", False, str(reason))
    except Exception as error:
        traceback.print_exc()
        run.check("the script ran to its end", False, f"{type(error).__name__}: {error}")
    ignore()
    status = run.close()
    print(f"took {time.monotonic() - began:.0f} s", flush=True)
    sys.stdout.flush()
    os._exit(status)
