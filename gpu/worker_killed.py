"""Worker killed: four programs that do not fit together, and the worker of rotad killed at random instants.

`kills`: each program rewrites all its bytes in every step and knows at its end what every word must be. They run together under rota
while the worker is killed by SIGKILL again and again, as long as two of them are left; when all have ended they are started anew,
until there were enough kills. Then they do the rest. PASS if all of them do all their steps, no word was ever wrong, everybody has the
native result, each new worker served within 2 s, and used memory stayed under 16 GiB by NVML, all the time. It serves before the
arena is registered with the driver again, which its first move has to wait for: how soon after a worker's start its first turn began
is said too.

`together`: three of them, of which one is on the GPU, and the keeper of what is away is killed together with the worker. PASS if the one
goes on, joins the next worker and has the native result, and the others end soon, with 125 and a message that says why; and used
memory stayed under 16 GiB here too. NVML may keep a look at that waiting for some seconds, as the driver takes back the arena of a dead
keeper: that is no gap where somebody beside it who asks for memory all the time was kept waiting as well.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import time

import harness
from harness import GIB, Failed, MemorySampler, crowd
from harness.processes import output_of
from harness.waiting import until

SEED = 23
SERVED_WITHIN_S = 2.0
GOES_ON_WITHIN_S = 5.0
"""After keeper and worker were killed, for the next step of a program that is on the GPU."""
LOST_WITHIN_S = 10.0
"""For the end of one that is not: the next worker has to be there to say that nobody has its memory."""
BURIED_WITHIN_S = 5.0
ASKS_S = 120.0
"""Longer than the part with that lasts: who asks for memory is told when to stop."""
HELD_WITHIN_S, HELD_MAX_S = 5.0, 8.0
"""The driver takes back what a dead keeper had: so soon after its death it begins to keep others waiting, and for so long at most. What
lies elsewhere, or lasts longer, is a gap."""
LOST_EXIT = 125
LOST_WORDS = ("the keeper of its memory is gone", "the memory of this program that was not on the GPU is lost")
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
parser.add_argument("--parts", default="kills,together", help="some of them, with commas")
parser.add_argument("--kills", type=int, default=50)
parser.add_argument("--programs", type=int, default=4)
parser.add_argument("--gib", type=float, default=12.0)
parser.add_argument("--alloc-mib", type=int, default=1024)
parser.add_argument("--capacity", default="16GiB")
parser.add_argument("--arena", default="40GiB")
parser.add_argument("--turn", default="800ms", help="short, so that many kills hit moves")
parser.add_argument("--seconds", type=float, default=7.5, help="of work of each program, natively")
parser.add_argument("--step-s", type=float, default=0.04)
parser.add_argument("--pause", type=float, nargs=2, default=(0.1, 4.0), help="seconds between a worker's first service and its death")
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
    while len(rows) < given.kills and sum(turner.program.alive() for turner in programs.values()) >= 2:
        kill_one(run, daemon, chance, given.pause, rows)
    limit_s = steps * shape.step_s * len(labels) * 2 + 60
    for label, turner in programs.items():
        crowd.check_right(run, label, turner.result(limit_s), native[label[: -len(str(number))]])
    run.say(f"   run {number}: {len(rows)} kills so far")


def kills(run, given, binary, shape, seeds, steps, native):
    """The part of that name."""
    chance = random.Random(given.seed)
    memory = MemorySampler()
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
    memory.stop()
    daemon.events.read()
    show_turns(run, daemon)
    errors = [str(event.get("what", event)) for event in daemon.events.of("error")]
    run.check("no error event", not errors, "; ".join(errors[:3]))
    run.check(f"the worker was killed {given.kills} times", len(rows) >= given.kills, f"{len(rows)}")
    for wanted in ("moving", "running"):
        hits = sum(phase == wanted for phase, _ in rows)
        run.check(f"some hit what was {wanted}", hits > 0, f"{hits} of {len(rows)}")
    slowest = max((served for _, served in rows), default=0.0)
    run.check(f"a new worker serves within {SERVED_WITHIN_S:g} s", slowest <= SERVED_WITHIN_S, f"{slowest:.2f} s at most")
    memory.check_under(run, given.capacity)
    check_empty(run, daemon)
    run.end_daemons()


def check_empty(run, daemon):
    """One check: nobody is left, nor anything of anybody. The dead are buried a moment after their end."""
    until_s = time.monotonic() + BURIED_WITHIN_S
    while True:
        left = json.loads(daemon.listing())
        empty = not left["tenants"] and all(gpu["arena_used_bytes"] == gpu["used_bytes"] == 0 for gpu in left["gpus"])
        if empty or time.monotonic() > until_s:
            break
        time.sleep(0.05)
    run.check("nothing is left on the GPU and in the arena", empty, f"{left}")


def one_is_there(daemon, programs):
    """The name of the program that has all its memory on the GPU while all others have some away and nothing moves; else None."""
    daemon.events.read()
    moves = [event["event"] for event in daemon.events.all if event["event"] in ("move_begin", "move_end")]
    away = {tenant["pid"]: tenant["away_bytes"] for tenant in json.loads(daemon.listing())["tenants"] if tenant["state"] != "moving"}
    there = [name for name, turner in programs.items() if away.get(turner.pid) == 0]
    others = [name for name, turner in programs.items() if away.get(turner.pid, 0) > 0]
    settled = moves[-1:] != ["move_begin"] and len(there) == 1 and len(others) == len(programs) - 1
    return there[0] if settled else None


def asking_for_memory(run):
    """A process that asks for GPU memory again and again, once it has begun to."""
    asks = harness.spawn([run.build("noise.c"), "asking", f"{ASKS_S:g}"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    said = asks.stdout.readline()
    if said.strip() != "ready":
        raise Failed(f"noise asking: {said}{asks.stdout.read()}")
    return asks


def together(run, given, binary, shape, seeds, steps, native):
    """The part of that name. The turn is longer than all work, so that nothing moves when it is not to."""
    asks = asking_for_memory(run)
    memory = MemorySampler()
    daemon = run.daemon("together", capacity=given.capacity, arena="32GiB", turn="60s")
    daemon.wait_arena(120)
    start = run.work / "start-together"
    labels = {f"{name}-together": seed for name, seed in list(seeds.items())[:3]}
    programs = crowd.gathered(run, daemon, binary, shape, labels, dict.fromkeys(labels, steps), start)
    harness.touch(start)
    until("the first steps", 30, lambda: any(len(turner.step_times()) >= 3 for turner in programs.values()), 0.02)
    stays = until("one program to be on the GPU and the others away", 20, lambda: one_is_there(daemon, programs), 0.05)
    before = status(run, daemon)
    os.kill(before["keeper_pid"], signal.SIGKILL)
    os.kill(before["worker_pid"], signal.SIGKILL)
    killed, killed_ns = time.monotonic(), harness.now_ns()
    done = len(programs[stays].step_times())
    lost = {name: turner.program for name, turner in programs.items() if name != stays}
    step_s, ended_s = None, {}
    while time.monotonic() - killed < LOST_WITHIN_S and (step_s is None or len(ended_s) < len(lost)):
        now_s = time.monotonic() - killed
        if step_s is None and len(programs[stays].step_times()) > done:
            step_s = now_s
        ended_s.update({name: now_s for name, program in lost.items() if name not in ended_s and not program.alive()})
        time.sleep(0.005)
    run.check(
        f"keeper and worker killed: {stays}, which is on the GPU, goes on within {GOES_ON_WITHIN_S:g} s",
        step_s is not None and step_s <= GOES_ON_WITHIN_S,
        f"its next step was done after {harness.fmt(step_s)} s",
    )
    for name, program in lost.items():
        said = program.last_words()
        clear = program.child.poll() == LOST_EXIT and all(words in said for words in LOST_WORDS)
        after = f"after {ended_s[name]:.2f} s" if name in ended_s else "not at all"
        run.check(f"{name}, which is away, ends within {LOST_WITHIN_S:g} s and says why", clear, f"{after}, with {program.child.poll()}: {said}")
    after = status(run, daemon)
    pids = [tuple((said or {}).get(key) for key in ("pid", "keeper_pid", "worker_pid")) for said in (before, after)]
    anew = pids[0][0] == pids[1][0] and all(new not in (None, old) for old, new in zip(pids[0][1:], pids[1][1:]))
    run.check("the same supervisor has a new keeper and a new worker", anew, f"{pids[0]} then {pids[1]}")

    def is_back():
        return not programs[stays].program.alive() or any(t["pid"] == programs[stays].pid for t in json.loads(daemon.listing())["tenants"])

    until(f"{stays} to be with the next worker", 20, is_back, 0.05)
    crowd.check_right(run, stays, programs[stays].result(steps * shape.step_s * 2 + 60), native[stays.removesuffix("-together")])
    memory.stop()
    asks.send_signal(signal.SIGTERM)
    said = asks.communicate(timeout=10)[0].split()
    if asks.returncode != 0 or len(said) != 3:
        raise Failed(f"noise asking ended with {asks.returncode}: {' '.join(said)}")
    times, *held = said
    held = [round(float(at) * 1e9) for at in held]
    after_s, lasted_s = (held[0] - killed_ns) / 1e9, (held[1] - held[0]) / 1e9
    is_the_keepers = -lasted_s <= after_s <= HELD_WITHIN_S and lasted_s <= HELD_MAX_S
    memory.check_under(run, given.capacity, "together", held=held if is_the_keepers else None)
    waited = [f"{(ended - begun) / 1e9:.2f} s, from {(begun - killed_ns) / 1e9:+.2f} s" for begun, ended in (held, memory.longest_look())]
    run.fact(f"who asked for 2 MiB of GPU memory, {times} times, waited at most {waited[0]} of the kill on; NVML {waited[1]}")
    check_empty(run, daemon)
    run.end_daemons()


PARTS = {"kills": kills, "together": together}


def body(run):
    given = parser.parse_args()
    parts = [part for part in given.parts.split(",") if part]
    if set(parts) - set(PARTS):
        raise Failed(f"no such part: {set(parts) - set(PARTS)}")
    names = [chr(ord("A") + n) for n in range(given.programs)]
    seeds = {name: SEED * (n + 1) for n, name in enumerate(names)}
    binary = run.build("turns.cu", "-arch=native")
    shape = crowd.calibrated(run, binary, given.gib, given.alloc_mib, given.step_s)
    steps = max(1, round(given.seconds / shape.step_s))
    native = {
        name: crowd.Turner(run, f"native-{name}", binary, shape, seed, steps).result(given.seconds * 2 + 60)
        for name, seed in seeds.items()
    }
    for part in parts:
        PARTS[part](run, given, binary, shape, seeds, steps, native)


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


def show_turns(run, daemon):
    """How soon the next turn began under workers that lived to see it, and how long their first move took."""
    begun, turns, moves = None, [], []
    for event in daemon.events.all:
        kind = event["event"]
        if kind == "worker":
            begun, moved = (event["t_ns"] if event["restarts"] else None), False
        elif begun is not None and kind == "move_end" and not moved:
            moved = True
            moves.append((event["took_ns"] / 1e6, (event["bytes_out"] + event["bytes_in"]) / GIB))
        elif begun is not None and kind == "turn_begin":
            turns.append((event["t_ns"] - begun) / 1e9)
            begun = None
    if turns and moves:
        run.fact(f"{len(turns)} new workers lived to see a turn begin: after {harness.percentile(turns, 0.5):.2f} s, {max(turns):.2f} at most")
        most_ms, most_gib = max(moves)
        run.fact(f"the first moves of new workers took {harness.percentile([ms for ms, _ in moves], 0.5):.0f} ms, at most {most_ms:.0f} for {most_gib:.1f} GiB, as they wait for the arena to be registered")


if __name__ == "__main__":
    harness.main("worker_killed", 450, body)
