# SPDX-License-Identifier: BSD-2-Clause
"""
load.py: how busy the machine is with the work of others while something is measured.

The measure is the processor time that other processes take, and that the host takes away ("steal"), as a part of all
processors. The load average is shown beside it, and judges nothing: it is high for minutes after a build.
"""
import os
import time

LOOK = 1.0  # seconds for which the measurement does nothing, before it begins
LOADED = 0.1  # of all processors: figures of two processes that spin suffer from more


def busy_seconds():
    """Processor time since boot, of all processors, that was not idle."""
    with open("/proc/stat", encoding="ascii") as file:
        user, nice, system, _, _, irq, softirq, steal = map(int, file.readline().split()[1:9])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def own_seconds():
    """Of this process and of its children that have ended."""
    return sum(os.times()[:4])


class Load:
    """Made before the first figure; end() after the last one."""

    def __init__(self, look=LOOK):
        self.average = os.getloadavg()[0]
        self.begin()
        time.sleep(look)
        self.before = self.others()
        self.meanwhile = 0.0
        self.begin()

    def begin(self):
        self.start = (time.monotonic(), busy_seconds(), own_seconds())

    def others(self):
        """The part of all processors that others have used since begin()."""
        start, busy, own = self.start
        seconds = max(time.monotonic() - start, 1e-3)
        used = busy_seconds() - busy - (own_seconds() - own)
        return min(max(used / seconds / os.cpu_count(), 0.0), 1.0)

    def end(self):
        self.meanwhile = self.others()
        return self

    def text(self):
        """One line: the verdict and the figures behind it."""
        verdict = "LOADED" if max(self.before, self.meanwhile) > LOADED else "quiet"
        return (f"{verdict}: others used {self.before:.0%} of {os.cpu_count()} processors before the figures, "
                f"{self.meanwhile:.0%} meanwhile; load average {self.average:.2f}")


def is_loaded(text):
    return not text.startswith("quiet")
