"""Away calls: what each driver call does while there is no memory under its address. Found out, not judged.

It decides which functions of the shim must wait at the gate (`crates/shim/gated.txt`). No rota in it: plain driver calls, one
process for each. Prints FACT lines; a FAIL means that a call which does not pass the gate would break a program.
"""

import argparse
import subprocess

import harness

HANGS_AFTER_S = 10
FREE_TO_PASS = ("kernel-launch", "cuGraphLaunch", "cuTexObjectCreate")
"""Not gated, so these must succeed, and be right once the memory is back."""

parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
parser.add_argument("--cases", default="", help="some of the cases, with commas; default: all")
given = parser.parse_args()


def outcome(binary, case):
    try:
        done = subprocess.run([binary, case], capture_output=True, text=True, timeout=HANGS_AFTER_S)
    except subprocess.TimeoutExpired:
        return "hangs", "-", "-"
    words = done.stdout.split()
    if len(words) != 6:
        return f"dies with {done.returncode}", "-", (done.stderr.strip().split("\n") or ["-"])[-1][:60]
    return words[1], words[3], words[5]


def body(run):
    binary = run.build("away_calls.cu")
    cases = given.cases.split(",") if given.cases else subprocess.run([binary], capture_output=True, text=True).stdout.split()
    rows = []
    for case in cases:
        called, then, data = outcome(binary, case)
        rows.append([case, called, then, data])
        run.fact(f"{case}: {called}, then {then}, data {data}")
        if case in FREE_TO_PASS:
            right = called == then == "CUDA_SUCCESS" and data in ("right", "-")
            run.check(f"{case}: needs no gate", right, f"{called}, data {data}")
    print(harness.table(rows, ["call while away", "answers", "stream afterwards", "data"]), flush=True)


if __name__ == "__main__":
    harness.main("away_calls", 200, body)
