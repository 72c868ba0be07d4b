"""Worker killed: four programs that do not fit together, and the worker of rotad killed at random instants.

Each program rewrites all its bytes in every step and knows at its end what every word must be. They run together under rota
while the worker is killed by SIGKILL again and again; when they have ended they are started anew, until there were enough kills.
PASS if nobody ended early, no word was ever wrong, every result is the native one, and each new worker served within 2 s.
"""

import argparse
import json
import os
import random
import signal
import time

import harness
from harness import GIB, Failed, crowd
from harness.processes import output_of

SEED = 23
SERVED_WITHIN_S = 2.0
UNDER_WAY = {
    "freeze": "frozen",
    "thaw": "running",
    "turn_begin": "running",
    "turn_end": "between turns",
    "moving_out": "moving",
    "moving_in": "moving",
    "move_begin": "moving",
    "move_end": "moved",
    "away": "moved",
    "resident": "moved",
    "worker": "starting",
    "rejoined": "taking over",
    "gathered": "taking over",
}
"""What was under way, by the worker's last event."""

parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
parser.add_argument("--kills", type=int, default=50)
parser.add_argument("--programs", type=int, default=4)
parser.add_argument("--gib", type=float, default=12.0)
parser.add_argument("--alloc-mib", type=int, default=1024)
parser.add_argument("--capacity", default="16GiB")
parser.add_argument("--arena", default="48GiB")
parser.add_argument("--turn", default="1.5s", help="short, so that many kills hit moves")
parser.add_argument("--seconds", type=float, default=12.0, help="of work of each program, natively")
parser.add_argument("--step-s", type=float, default=0.04)
parser.add_argument("--pause", type=float, nargs=2, default=(0.6, 4.0), help="seconds between a worker's first service and its death")
parser.add_argument("--seed", type=int, default=SEED)


def status(run, daemon):
    """What `rota status` says. It waits while there is no worker."""
    argv = ["env", f"ROTA_SOCKET={daemon.socket}", str(run.bundled("rota")), "status", "--json"]
    try:
        return json.loads(output_of(argv) or "null")
    except ValueError:
        return None


def kill_one(run, daemon, chance, pause, rows):
    """Kills the worker after a random while, and waits for the next. False if the programs ended meanwhile."""
    before = status(run, daemon)
    if not before:
        raise Failed(f"rota status says nothing: {daemon.log_tail()}")
    time.sleep(chance.uniform(*pause))
    daemon.events.read()
    events = daemon.events.all
    last = next((e["event"] for e in reversed(events) if e["event"] in UNDER_WAY), "")
    os.kill(before["worker_pid"], signal.SIGKILL)
    killed_ns = harness.now_ns()
    after = status(run, daemon)
    served_s = (harness.now_ns() - killed_ns) / 1e9
    if not after or after["worker_pid"] == before["worker_pid"]:
        raise Failed(f"no new worker answers: {daemon.log_tail()}")
    if (after["pid"], after["keeper_pid"]) != (before["pid"], before["keeper_pid"]):
        raise Failed(f"supervisor or keeper changed: {before} then {after}")
    rows.append((UNDER_WAY.get(last, last or "nothing"), served_s))


def crowd_survives(run, daemon, binary, shape, seeds, steps, number, chance, given, rows, native):
    """One run of all programs, with kills until they have ended or there were enough."""
    start = run.work / f"start-{number}"
    labels = {f"{name}{number}": seed for name, seed in seeds.items()}
    programs = crowd.gathered(run, daemon, binary, shape, labels, dict.fromkeys(labels, steps), start)
    harness.touch(start)
    while len(rows) < given.kills and all(turner.program.alive() for turner in programs.values()):
        kill_one(run, daemon, chance, given.pause, rows)
    limit_s = steps * shape.step_s * len(labels) * 2 + 60
    for label, turner in programs.items():
        crowd.check_right(run, label, turner.result(limit_s), native[label[: -len(str(number))]])
    run.say(f"   run {number}: {len(rows)} kills so far")


def body(run):
    given = parser.parse_args()
    chance = random.Random(given.seed)
    names = [chr(ord("A") + n) for n in range(given.programs)]
    seeds = {name: SEED * (n + 1) for n, name in enumerate(names)}
    binary = run.build("turns.cu", "-arch=native")
    shape = crowd.calibrated(run, binary, given.gib, given.alloc_mib, given.step_s)
    steps = max(1, round(given.seconds / shape.step_s))
    native = {
        name: crowd.Turner(run, f"native-{name}", binary, shape, seed, steps).result(given.seconds * 2 + 60)
        for name, seed in seeds.items()
    }
    daemon = run.daemon(run.name, capacity=given.capacity, arena=given.arena, turn=given.turn)
    daemon.wait_arena(120)
    run.say(f"   {given.programs} programs of {given.gib:g} GiB, room for {daemon.room_bytes() / GIB:.2f} GiB; {given.kills} kills")
    rows, number = [], 0
    try:
        while len(rows) < given.kills:
            number += 1
            crowd_survives(run, daemon, binary, shape, seeds, steps, number, chance, given, rows, native)
    finally:
        show(run, rows, number)
    daemon.events.read()
    errors = [str(event.get("what", event)) for event in daemon.events.of("error")]
    run.check("no error event", not errors, "; ".join(errors[:3]))
    run.check(f"the worker was killed {given.kills} times", len(rows) >= given.kills, f"{len(rows)}")
    slowest = max((served for _, served in rows), default=0.0)
    run.check(f"a new worker serves within {SERVED_WITHIN_S:g} s", slowest <= SERVED_WITHIN_S, f"{slowest:.2f} s at most")
    left = json.loads(daemon.listing())
    clean = not left["tenants"] and all(gpu["arena_used_bytes"] == 0 for gpu in left["gpus"])
    run.check("nothing is left in the arena", clean, f"{left}")


def show(run, rows, runs):
    """Kills by what they hit, and how soon the next worker served."""
    table = []
    for phase in sorted({phase for phase, _ in rows}):
        times = [1e3 * served for hit, served in rows if hit == phase]
        table.append([phase, len(times), harness.percentile(times, 0.5), max(times)])
    times = [1e3 * served for _, served in rows]
    if times:
        table.append([f"all, in {runs} runs", len(times), harness.percentile(times, 0.5), max(times)])
    print(harness.table(table, ["killed while", "kills", "served after ms p50", "most"]), flush=True)


if __name__ == "__main__":
    harness.main("worker_killed", 590, body)
