"""Whether the driver counts: a kernel that was frozen twice, and thawed once; and thawed more often than it was frozen.

    freeze_twice.py FOREIGN_FREEZE      the built gpu/programs/foreign_freeze.c, which obeys here as its own attacker
"""

import subprocess
import sys
import time

program = subprocess.Popen([sys.argv[1], "attacker", "1", "1", "1"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
program.stdout.readline()  # its handles


def say(line):
    program.stdin.write(line + "\n")
    program.stdin.flush()
    words = program.stdout.readline().split()
    return words[3], int(words[-1])


def runs():
    """Whether the kernel counts on."""
    before = say("count")[1]
    time.sleep(0.1)
    return say("count")[1] != before


def after(*orders):
    """What is so after these freezes (1) and thaws (0), all of which the driver has to take."""
    statuses = [say(f"own {order}")[0] for order in orders]
    if any(status != "0x0" for status in statuses):
        print(f"FAIL  the driver says {statuses} to {orders}")
    return "runs" if runs() else "is frozen"


print(f"FACT  before anything the kernel {after()}")
print(f"FACT  frozen once it {after(1)}, thawed once it {after(0)}")
print(f"FACT  frozen twice it {after(1, 1)}, thawed once it {after(0)}, twice it {after(0)}")
print(f"FACT  frozen three times it {after(1, 1, 1)}, thawed twice it {after(0, 0)}, three times it {after(0)}")
print(f"FACT  thawed twice more it {after(0, 0)}, frozen once then it {after(1)}, thawed once it {after(0)}")
program.kill()
