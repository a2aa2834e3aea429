# SPDX-License-Identifier: BSD-2-Clause
"""
calls.py: how many instructions the calls of a small message take, as callgrind counts them in call_bench.

Whole calls are counted for any provider, from its first instruction to its last. For shmcma, whose sources are
known, two parts of them as well: from the entry of fi_tsend to the store that shows the record to its reader,
and from the look at the ring that finds one to its completion in the queue. Callgrind says how often each
instruction was executed and each jump taken; following what was taken mostly gives the way of a message.

Format: https://valgrind.org/docs/manual/cl-format.html
"""
import functools
import os
import re
import subprocess

# The functions of call_bench, by figure, in the order of its runs. What is received is one message, however often
# that was tried.
CALLS = {"messages": {"instructions_post": "call_post", "instructions_send": "call_send",
                      "instructions_receive": "call_receive"},
         "idle": {"instructions_idle": "call_idle"}}
LONGEST = 10000  # instructions of one call


class Profile:
    """
    What callgrind has counted, with --dump-instr=yes --collect-jumps=yes. A place is (object file, address in it).
    """

    def __init__(self, path):
        self.executed = {}  # place: times
        self.source = {}    # place: the file that it was compiled from
        self.jumps = {}     # place: (times, target)
        self.calls = {}     # place: [(target, times, instructions in it)]
        self.callers = {}   # function: places of the calls in it
        self.entries = {}   # function: where it was called
        self.names = {}     # objects, files and functions are named once, then numbered
        self.address = 0
        with open(path, encoding="utf-8", errors="replace") as file:
            self.read(file)

    def name(self, space, text):
        number, _, name = text.partition(" ")
        if name:
            self.names[space + number] = name
        return self.names.get(space + number)

    def at(self, word):
        """An address: absolute, or relative to the last one."""
        if word.startswith("0x"):
            return int(word, 16)
        return self.address + (0 if word == "*" else int(word))

    def read(self, lines):
        here = there = source = function = callee = None
        for line in lines:
            key, _, text = line.rstrip("\n").partition("=")
            words = text.split()
            if key == "ob":
                here = there = self.name("object", text)
            elif key == "cob":
                there = self.name("object", text)
            elif key in ("fl", "fi", "fe"):
                source = self.name("file", text)
            elif key in ("cfi", "cfl", "jfi"):
                self.name("file", text)
            elif key == "fn":
                function = self.name("function", text).partition(".")[0]  # the compiler's variants, too
            elif key == "cfn":
                callee = self.name("function", text)
            elif key == "calls":
                target = (there, self.at(words[1]))
                there = here
                place, _, cost = next(lines).split()
                self.address = self.at(place)
                self.calls.setdefault((here, self.address), []).append((target, int(words[0]), int(cost)))
                self.callers.setdefault(function, set()).add((here, self.address))
                self.entries[callee] = target
            elif key in ("jump", "jcnd"):
                self.jumps[here, self.address] = (int(words[0].split("/")[0]), (here, self.at(words[1])))
                next(lines)  # where the jump is
            elif re.match(r"0x|[+*-]", key):
                place, _, cost = key.split()
                self.address = self.at(place)
                step = (here, self.address)
                self.executed[step] = self.executed.get(step, 0) + int(cost)
                self.source[step] = os.path.basename(source or "")

    def called(self, function):
        """All that a function calls: times, instructions, where the first of it begins."""
        calls = [call for place in self.callers.get(function, ()) for call in self.calls[place]]
        return sum(call[1] for call in calls), sum(call[2] for call in calls), calls[0][0] if calls else None


@functools.lru_cache(maxsize=1)
def disassemble(path):
    """{place: (mnemonic, operands, the next place)}"""
    text = subprocess.run(["objdump", "-d", "--no-show-raw-insn", path], check=True, capture_output=True,
                          text=True).stdout
    found = [((path, int(offset, 16)), mnemonic, operands) for offset, mnemonic, operands in
             re.findall(r"^ *([0-9a-f]+):\t(?:(?:lock|rep|cs|bnd) )*(\S+) *(.*)$", text, re.M)]
    return {here[0]: (here[1], here[2], after[0]) for here, after in zip(found, found[1:])}


def way(profile, code, place, messages):
    """
    The instructions of a message from there on until it returns: [(file, stores?)]. A jump that is taken once and not
    another time is one of a loop: taken first, if it goes back, else last.
    """
    steps, returns, visits = [], [], {}
    while len(steps) < LONGEST:
        mnemonic, operands, following = code[place]
        visits[place] = visits.get(place, 0) + 1
        stores = mnemonic.startswith("mov") and re.search(r",\S*\(\S*\)$", operands)
        steps.append((profile.source.get(place), bool(stores)))
        call = max(profile.calls.get(place, ()), key=lambda call: call[1], default=None)
        if mnemonic.startswith("ret"):
            if not returns:
                return steps
            place = returns.pop()
        elif call and call[0] in code and round(call[1] / messages):
            if mnemonic.startswith("call"):
                returns.append(following)
            place = call[0]
        else:
            times, target = profile.jumps.get(place, (0, following))
            taken = round(times / messages)
            passed = round(profile.executed.get(place, 0) / messages) - taken
            first = taken if target[1] <= place[1] else 0
            place = target if visits[place] <= first or visits[place] > first + passed else following
    raise ValueError("the way of a message does not end")


def way_to_ring(profile, code):
    """From the entry of fi_tsend: atomic.h has what stores to shared memory, the last is the record's ctl."""
    messages, _, entry = profile.called("call_send")
    steps = way(profile, code, entry, messages)
    return 1 + max(i for i, step in enumerate(steps) if step == ("atomic.h", True))


def way_to_queue(profile, code):
    """
    From where a poll looks into the ring, in ring.h, to the end of the completion in its queue, or in the entry that
    the reader has handed in, in comp_ring.h or rxop.h. fi_cq_read itself is called for the sender's completions as well.
    """
    messages = profile.called("call_receive")[0]
    files = [file for file, _ in way(profile, code, profile.entries["sc_ep_poll"], messages)]
    last = max(i for i, file in enumerate(files) if file in ("comp_ring.h", "rxop.h"))
    return 1 + last - files.index("ring.h")


PARTS = {"instructions_send": ("instructions_to_ring", way_to_ring),
         "instructions_receive": ("instructions_to_queue", way_to_queue)}


def count(command, env, path):
    """[(figure, instructions)] of what the command calls; callgrind's file is to be `path`."""
    found = []
    for what, functions in CALLS.items():
        subprocess.run(["valgrind", "-q", "--tool=callgrind", f"--callgrind-out-file={path}", "--dump-instr=yes",
                        "--collect-jumps=yes"] + command + [what],
                       check=True, env={**os.environ, **env}, capture_output=True)
        profile = Profile(path)
        os.unlink(path)
        for figure, function in functions.items():
            times, instructions, entry = profile.called(function)
            messages = profile.called("call_post")[0]
            found.append((figure, instructions / (messages if figure == "instructions_receive" else times)))
            if figure in PARTS and os.path.basename(entry[0]) == "libshmcma-fi.so":
                part, way_of = PARTS[figure]
                try:
                    found.append((part, way_of(profile, disassemble(entry[0]))))
                except (KeyError, ValueError):
                    pass  # a build that does not say what is compiled from where
    return found
