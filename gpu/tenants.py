"""Tenants: programs of many kinds give the same bytes natively, under rota, and frozen and moved a hundred times at random instants.

PyTorch in three modes with three allocators, shared tensors, a DataLoader, Triton, CuPy, JAX, CUDA C with a static runtime. Each
runs natively twice, which must agree; then several of them at once under rota, where there is room for all; then two and two where
there is room for one, in short turns of random length, until each was frozen and moved out so often. Each has at least 2 GiB.
"""

import argparse
import hashlib
import time

import harness
from harness import GIB, Failed, Nvml

MEMORY = "8GiB"
LIVE_MIN_BYTES = 2 * GIB
PERIOD_MAX = 3
"""Rounds in a period, at most: see programs/tenants/rounds.py."""

ALLOCATORS = {
    "default": {},
    "expandable": {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"},
    "cudaMallocAsync": {"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"},
}


class Case:
    """One kind of program. `pinned`: its memory cannot move, so it is only frozen."""

    def __init__(self, script, *arguments, env=None, expected=None, pinned=False):
        self.script, self.arguments, self.env = script, arguments, env or {}
        self.expected = expected or {}
        self.pinned = pinned


CASES = {
    **{
        f"{mode}-{allocator}": Case(
            "tenants/torch_modes.py", "--mode", mode, env=settings, expected={"allocator": allocator}
        )
        for mode in ("eager", "compile", "graphs")
        for allocator, settings in ALLOCATORS.items()
    },
    "loader": Case("tenants/torch_loader.py"),
    "triton": Case("tenants/triton_own.py"),
    "cupy": Case("tenants/cupy_async.py"),
    "jax-preallocated": Case("tenants/jax_train.py", "--preallocate", "yes", expected={"platform": "gpu"}),
    "jax-as-needed": Case("tenants/jax_train.py", "--preallocate", "no", expected={"platform": "gpu"}),
    "static-cudart": Case("tenants/static_cudart.cu"),
    "share": Case("tenants/torch_share.py", pinned=True),
}

HALVES = {
    "1": [name for name in CASES if name.startswith(("eager", "compile", "share"))],
    "2": [name for name in CASES if not name.startswith(("eager", "compile", "share"))],
}
"""All of them take more than ten minutes."""

parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
parser.add_argument("--cases", help=f"some of them, with commas; there are: {', '.join(CASES)}")
parser.add_argument("--half", choices=HALVES, help="one half of them")
parser.add_argument("--freezes", type=int, default=100, help="how often each is frozen, and moved out where it can be")
parser.add_argument("--turn", default="50ms")
parser.add_argument("--jitter", type=float, default=0.9)
parser.add_argument("--capacity", default="7600MiB", help="room for one of them, not for two")
parser.add_argument("--at-once", type=int, default=16, help="programs at a time natively and where there is room for all")
parser.add_argument("--limit-s", type=float, default=90.0, help="of turns, for one pair")
parser.add_argument("--no-moves", action="store_true", help="without the last part")
given = parser.parse_args()
names = given.cases.split(",") if given.cases else HALVES.get(given.half, list(CASES))
if unknown := [name for name in names if name not in CASES]:
    parser.error(f"no such case: {', '.join(unknown)}")

LIMIT_S = 590.0
PAIR_MIN_S = 70.0
"""No pair is begun with less time left."""
TOGETHER_S = 240.0
"""How long one program may take beside others."""


def start(run, name, label, *files, under=None):
    case = CASES[name]
    arguments = [*case.arguments, "--rounds", 2 * PERIOD_MAX, *files]
    terms = run.terms("--memory", MEMORY) if under else ()
    if case.script.endswith(".cu"):
        return run.command(label, [run.built[case.script], *arguments], under, case.env, terms)
    return run.program(label, case.script, *arguments, under=under, env=case.env, terms=terms)


def all_of(run, way, under=None, sizes=None):
    """Runs all cases, some at a time. Answers the results; what failed is said there and is None."""
    waiting, active, results = list(names), {}, {}
    nvml = Nvml() if sizes is not None else None
    while waiting or active:
        while waiting and len(active) < given.at_once:
            name = waiting.pop(0)
            active[name] = (start(run, name, f"{way}-{name}", under=under), time.monotonic())
        time.sleep(0.05)
        if nvml:
            found = nvml.processes() or {}
            for name, (program, _) in active.items():
                sizes[name] = max(sizes.get(name, 0), found.get(program.pid, 0))
        for name, (program, began) in list(active.items()):
            took = time.monotonic() - began
            if program.alive() and took < TOGETHER_S and (not under or under.alive()):
                continue
            del active[name]
            try:
                results[name] = program.result(0.1)
                run.say(f"   {way} {name}: {took:.1f} s, {results[name]['rounds']} rounds in {results[name]['gpu_phase_s']:.1f} s")
            except Failed as reason:
                results[name] = None
                run.say(f"   {way} {name}: {str(reason)[-700:]}")
            if under and results[name]:
                results[name]["joined"] = bool(under.events.of("joined", program.pid))
    return results


def pair(run, daemon, two, moving):
    """Two programs that take turns until each was frozen, and if `moving` moved out, often enough."""
    both = "+".join(two)
    stop, begin = run.work / f"stop-{both}", run.work / f"begin-{both}"
    since = daemon.events.mark()
    programs = {}
    for name in two:
        ready = run.work / f"ready-{name}-of-{both}"
        files = ("--ready-file", ready, "--start-file", begin, "--stop-file", stop)
        programs[name] = (start(run, name, f"moved-{name}-of-{both}", *files, under=daemon), ready)
    counted, results, began = {}, {}, time.monotonic()
    try:
        for program, ready in programs.values():
            program.wait_file(ready, 150)
        since = daemon.events.mark()
        harness.touch(begin)
        began = time.monotonic()
        while time.monotonic() - began < given.limit_s:
            time.sleep(0.1)
            for name, (program, _) in programs.items():
                program.must_live()
                counted[name] = [len(daemon.events.of(kind, program.pid, since)) for kind in ("freeze", "moving_out")]
            if all(
                frozen >= given.freezes and (moved >= given.freezes or not moving)
                for frozen, moved in counted.values()
            ):
                break
    except Failed as reason:
        run.say(f"   moved {both}: {str(reason)[-700:]}")
    took = time.monotonic() - began
    harness.touch(stop)
    harness.touch(begin)  # where one never got ready, the other still waits for it
    for name, (program, _) in programs.items():
        try:
            results[name] = program.result(90)
        except Failed as reason:
            run.say(f"   moved {name}: {str(reason)[-700:]}")
            results[name] = None
    run.say(f"   moved {both}: {took:.1f} s of turns, " + ", ".join(f"{n} {c}" for n, c in counted.items()))
    return {name: (results.get(name), *counted.get(name, (0, 0))) for name in two}


def same(native, found):
    return bool(found) and found["hash"] == native["hash"] and not found["wrong_rounds"]


def brief(result):
    return hashlib.sha256(result["hash"].encode()).hexdigest()[:16] if result else None


def body(run):
    began = time.monotonic()
    run.built = {
        case.script: run.build(case.script, "-arch=native", "-cudart", "static")
        for name, case in CASES.items()
        if name in names and case.script.endswith(".cu")
    }
    sizes, first, again, together, moved = {}, {}, {}, {}, {}
    try:
        first.update(all_of(run, "native", sizes=sizes))
        again.update(all_of(run, "again", sizes=sizes))
        run.say(f"   native twice: {time.monotonic() - began:.0f} s")
        daemon = run.daemon("together", capacity="96GiB", arena="1GiB", turn="100ms")
        together.update(all_of(run, "rota", under=daemon))
        daemon.check_no_errors()
        run.end_daemons()
        run.say(f"   and under rota: {time.monotonic() - began:.0f} s")
        if not given.no_moves:
            steady = [name for name in names if first[name] and again[name]]
            move_all(run, steady, began, moved)
    finally:  # what was found is said, also when time is up
        report(run, first, again, together, moved, sizes)


def move_all(run, steady, began, moved):
    """Two and two, where there is room for one; then, where there is room for both, those that can only be frozen."""
    movable = [name for name in steady if not CASES[name].pinned]
    pinned = [name for name in steady if CASES[name].pinned]
    pairs = [movable[i : i + 2] for i in range(0, len(movable), 2)]
    for label, capacity, here in (("moves", given.capacity, pairs), ("freezes", "24GiB", [[name] for name in pinned])):
        if not here:
            continue
        daemon = run.daemon(label, capacity=capacity, arena="12GiB", turn=given.turn, jitter=given.jitter)
        daemon.wait_arena()
        for two in here:
            if len(two) == 1:  # one that is left takes its turns with one that was there already
                two = two + [name for name in movable if name not in two][:1]
            if len(two) == 1:
                run.check(f"{two[0]}: has another one to take turns with", False, "name a second case")
            elif time.monotonic() - began > LIMIT_S - PAIR_MIN_S:
                run.say(f"   {'+'.join(two)}: not moved, there is no time left")
            else:
                for name, found in pair(run, daemon, two, label == "moves").items():
                    moved.setdefault(name, found)
        daemon.check_no_errors()
        run.end_daemons()


def report(run, first, again, together, moved, sizes):
    rows = []
    for name in names:
        frozen = moved.get(name, (None, None, None))
        rows.append(
            [
                name,
                sizes[name] / GIB if sizes.get(name) else None,
                *(brief(found.get(name)) for found in (first, again, together)),
                brief(frozen[0]),
                frozen[0]["rounds"] if frozen[0] else None,
                frozen[1],
                frozen[2],
            ]
        )
    header = ["program", "GiB by NVML", "native", "native again", "rota", "rota, moved", "rounds", "freezes", "moves"]
    print(harness.table(rows, header), flush=True)
    for name in names:
        judge(run, name, first.get(name), again.get(name), together.get(name), moved.get(name), sizes.get(name, 0))


def judge(run, name, first, again, together, moved, size):
    """The checks of one case."""
    if not first or not again:
        run.check(f"{name}: runs natively", False, "see above")
        return
    case = CASES[name]
    agree = same(first, first) and same(first, again)
    run.check(f"{name}: two native runs agree", agree, f"wrong rounds {first['wrong_rounds']} and {again['wrong_rounds']}" if not agree else "")
    wrong = {key: first.get(key) for key, value in case.expected.items() if first.get(key) != value}
    run.check(
        f"{name}: is what it says, with 2 GiB or more",
        not wrong and first["live_bytes"] >= LIVE_MIN_BYTES and (not size or size >= LIVE_MIN_BYTES),
        f"{first['live_bytes'] / GIB:.2f} GiB live" + (f", found {wrong}" if wrong else ""),
    )
    detail = "failed" if not together else f"wrong rounds {together['wrong_rounds']}"
    if together and not together["joined"]:
        detail = "the daemon never saw it"
    run.check(f"{name}: same bytes under rota", same(first, together) and together["joined"], detail)
    if given.no_moves:
        return
    if not moved:
        run.check(f"{name}: same bytes when moved", False, "was not run")
        return
    found, frozen, out = moved
    detail = "failed" if not found else f"{found['rounds']} rounds, wrong {found['wrong_rounds']}"
    run.check(f"{name}: same bytes when {'frozen' if case.pinned else 'frozen and moved'}", same(first, found), detail)
    enough = frozen >= given.freezes and (case.pinned or out >= given.freezes)
    run.check(f"{name}: {given.freezes} times", enough, f"{frozen} freezes, {out} moves out")


if __name__ == "__main__":
    harness.main("tenants", LIMIT_S, body)
