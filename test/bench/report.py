#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""
report.py: one page of what bench.py has measured: the figures that are to be reached, plots with the
machine's floor drawn in, and all tables.

    report.py BUILD      (make bench-report)

Reads BUILD/bench-results/ (or BENCH_OUT) and writes report.md there, and plots as SVG beside it if there is
gnuplot (Debian: gnuplot-nox).
"""
import os
import shutil
import subprocess
import sys

sys.dont_write_bytecode = True  # not into the sources
import figures  # noqa: E402

KIB, MIB = 1 << 10, 1 << 20

# ---- plots -------------------------------------------------------------------------------------------

# File, figure, title of y, what the floor is: (figure of the machine, its name, from seconds to this).
COLOURS = {"shmcma": "#c02020", "shm": "#2060c0", "tcp": "#e0a000", "shm:new": "#20a0c0", "ucx": "#208040",
           "ompi:shmcma": "#c02020", "ompi:vader": "#8040a0", "ompi:sm": "#8040a0"}
COPIES = [("memcpy_time", "memcpy"), ("cma_read_time", "process_vm_readv"), ("cma_both_time", "CMA by both at once")]
PLOTS = [
    ("tagged_latency", "us", "time"), ("plain_latency", "us", "time"),
    ("bandwidth", "MB/s", "speed"), ("bidirectional", "MB/s", "speed"),
    ("rate", "million/s", None), ("stream_cpu", "us", None),
    ("pairs_rate", "million/s", None), ("pairs_bandwidth", "MB/s", None),
    ("posted_in_order", "us", None), ("posted_reverse", "us", None),
    ("unexpected_in_order", "us", None), ("unexpected_reverse", "us", None),
    ("put_latency_passive", "us", "time"), ("get_latency_passive", "us", "time"),
    ("put_bandwidth_passive", "MB/s", "speed"), ("get_bandwidth_passive", "MB/s", "speed"),
    ("put_bandwidth", "MB/s", "speed"), ("get_bandwidth", "MB/s", "speed"),
    ("put_pingpong", "us", None), ("put_data_pingpong", "us", None),
    ("put_injected_rate", "million/s", None), ("put_data_rate", "million/s", None),
    ("put_both_ways", "MB/s", None), ("get_both_ways", "MB/s", None),
    ("put_scattered_rate", "million/s", None), ("sum_scattered_rate", "million/s", None),
    ("mpi_latency", "us", "time"), ("mpi_bandwidth", "MB/s", "speed"),
]


def floor_lines(kind, sizes, found):
    """What the machine does, as lines of a plot: [(name, [(x, value)])], seconds or bytes per second."""
    def row(figure):
        return found.get(figure, {}).get("machine", {})

    lines = []
    line = row("line_latency").get(64)
    if kind == "time" and line:
        lines.append(("one cache line one way", [(x, line) for x in sizes]))
    for figure, name in COPIES if kind else []:
        points = [(x, seconds if kind == "time" else x / seconds) for x, seconds in row(figure).items()
                  if x in sizes]
        lines.append((name, points))
    return [(name, points) for name, points in lines if points]


def plot(directory, name, figure, unit, kind, found):
    """One SVG; zero, which a logarithmic axis does not have, is left out."""
    sizes = sorted({x for row in found[name].values() for x in row if x})
    lines = [(subject, sorted(row.items())) for subject, row in found[name].items()]
    floor = floor_lines(kind, sizes, found)
    script = [
        f'set terminal svg size 800,500 background "white" noenhanced; set output "{name}.svg"',
        f'set title "{figure.title}"; set xlabel "{figure.rows}"; set ylabel "{unit}"',
        f'set xrange [*:{1.05 * max(sizes, default=1):.0f}]',
        'set logscale xy; set key outside right; set grid; set format x "%.0f"',
    ]
    if sizes and sizes[-1] > 100000:
        script.append("set logscale x 2; set xtics (" + ", ".join(f'"{human(x)}" {x}' for x in sizes[::-max(1, -(-len(sizes) // 9))]) + ")")
    data, curves = [], []
    for index, (title, points) in enumerate(lines + floor):
        style = f'linespoints lw 2 pt {index + 1} lc rgb "{COLOURS.get(title, "#000000")}"'
        if index >= len(lines):
            style = f'lines lw 1.5 dt {index - len(lines) + 2} lc rgb "#707070"'
        curves.append(f'"-" using 1:2 with {style} title "{title}"')
        data += [f"{x} {value * figure.scale:.9g}" for x, value in points if x and value > 0] + ["e"]
    script.append("plot " + ", ".join(curves))
    subprocess.run(["gnuplot"], input="\n".join(script + data) + "\n", text=True, check=True, cwd=directory)


def human(x):
    for unit, name in ((MIB, "M"), (KIB, "K")):
        if x >= unit and x % unit == 0:
            return f"{x // unit}{name}"
    return str(x)


def plots(directory, names, found):
    """The names that have a plot now."""
    if not shutil.which("gnuplot"):
        print("report: no plots: no gnuplot (Debian: gnuplot-nox)", file=sys.stderr)
        return set()
    drawn = set()
    for name, unit, kind in PLOTS:
        if name in found:
            plot(directory, name, names[name], unit, kind, found)
            drawn.add(name)
    return drawn


# ---- figures to reach --------------------------------------------------------------------------------


# What could bring the figures further that are not reached.
IDEAS = {
    "message": "within a last cache 0.06 us of 0.097 are the line's two ways (taken from the reader that looks at it, and "
               "taken back). Of what is between a record and its answer the stores count, which the answer waits for, some "
               "60 of them: 30 more take 0.011 us, 100 instructions without a store, or a chain of 60 cycles that nothing "
               "waits for, none; two words in one store at eight places brought nothing any more. A line that both directions "
               "write is better where the two are far apart "
               "(0.145 and 0.240 us), and worse within a last cache once an answer takes 15 ns, as who waits looks at it and "
               "takes it back before it can be answered (0.062 and 0.050 us). Rings of 8 lines instead of 119: 0.97 of the time.",
    "rate": "two lines a message. The sender fetches those of the third record ahead (PREFETCHW), the reader twelve "
            "lines; a reader that waits a while before it looks again brought nothing. Fewer instructions of either; "
            "a message of up to 48 B without data in one line.",
    "medium": "within a last cache a message is answered in the buffers that it came in, whose lines are where they are "
              "written; what is left is their way to the reader, one by one, 5 ns each, and some 350 instructions more "
              "than for 8 B: a short way for what takes several buffers. Past the caches each side writes to its own.",
    "bandwidth": "a stream goes by CMA, chunks of up to 16 messages in one call, by both processes from 16 KiB on; what is "
                 "left is copying, pages and permission, and four records for each message. One SHARE for several "
                 "messages would save half of these. Memory that both map needs none of that.",
    "windows": "of less than 8 KiB (64 KiB where the two share a cache) a stream goes through bounce buffers, at what a "
               "processor copies; who is slower, writer or reader, decides. Of less than 4 KiB past the caches the "
               "time is that until a few lines have left the writer: one fence for several records. Larger messages by "
               "CMA.",
    "onesided": "windows of up to 256 KiB are copied several in one call; of what is larger, and of one at a time, all but "
                "0.2 us are the kernel's, which shm calls as well, in its target: pages pinned and permission asked for "
                "each call. Memory "
                "that both map needs none of that.",
    "assisted": "what takes 16 us alone as a put, 7 us as a get, is copied by both; smaller ones of a stream several in one call "
                "by the initiator alone: one record for several of them, so that these are copied by both, too. A put's "
                "last bytes are a call of their own: let them be the target's.",
    "matching": "more receives than the caches hold: smaller entries, with what a search reads side by side.",
    "mpi": "Open MPI's own has no library between: fewer instructions of both calls, as for 8 B alone.",
    "startup": "of a connection mmap, the memory of its ring and the page faults are two thirds, in the kernel, and a sixth "
               "is the look at the name when its address is inserted: memory for several rings in one call. A quarter of "
               "shm's takes one file for all endpoints of a process.",
}


class Goal:
    """
    One condition: a ratio, or a number, and what it is to be; of several sizes the worst counts. `idea` is of IDEAS.
    `alone`: what it is compared with does not come to an end. Without a limit it is for comparison.
    """

    def __init__(self, what, at_most=None, at_least=None, unit=" ×", *, idea=None):
        self.what = what
        self.unit = unit
        self.idea = idea
        self.alone = False
        self.at_most = at_most
        self.at_least = at_least
        self.ratios = []  # (size, ratio, whether of samples that were taken alike)

    def add(self, x, ratio):
        """`ratio`: of Results, or None."""
        if ratio:
            self.ratios.append((x, *ratio))
        return self

    def worst(self):
        pick = max if self.at_most else min
        return pick(self.ratios, key=lambda ratio: ratio[1]) if self.ratios else None

    def reached(self):
        if self.alone:
            return True
        if not self.ratios or not (self.at_least or self.at_most):
            return None
        ratio = self.worst()[1]
        return ratio >= self.at_least if self.at_least else ratio <= self.at_most

    def limit(self):
        if not (self.at_least or self.at_most):
            return "-"
        sign, limit = ("≥", self.at_least) if self.at_least else ("≤", self.at_most)
        return f"{sign} {limit:g}{self.unit}"

    def measured(self):
        if self.alone:
            return "none of theirs ends"
        if not self.ratios:
            return "-"
        x, ratio, alike = self.worst()
        return f"{ratio:.{2 if self.unit else 0}f}{self.unit}" + ("" if alike else "*") \
            + (f" ({human(x)})" if len(self.ratios) > 1 else "")

    def row(self):
        verdict = {None: "-", True: "reached", False: "**not reached**"}[self.reached()]
        return f"| {self.what} | {self.limit()} | {self.measured()} | {verdict} |"


def measured_sizes(results, figure, low, high):
    return [x for x in sorted(results.medians.get(figure, {}).get("shmcma", {})) if low <= x <= high]


def of_medians(ours, theirs):
    """A ratio of what is not one figure of two subjects, or does not depend on where the processors are."""
    return (ours / theirs, True) if ours and theirs else None


def of_best(results, figure, others, x, worst):
    """The ratio to the best of the others: the `worst` (max or min) of those to each."""
    ratios = [ratio for ratio in (results.ratio(figure, "shmcma", other, x) for other in others) if ratio]
    return worst(ratios) if ratios else None


SHM = ("shm", "shm:new")
NAMES = {"shm": "Debian's shm", "shm:new": "the newest release's shm", "ucx": "UCX", "tcp": "tcp",
         "ompi:vader": "Open MPI's vader", "ompi:sm": "Open MPI's sm"}


def against(results, figure, other, at, what, **limit):
    """A goal on one figure, ours against another subject's, at these sizes."""
    goal = Goal(f"{what}: of {NAMES[other]}", **limit)
    for x in at:
        goal.add(x, results.ratio(figure, "shmcma", other, x))
    return goal


def message_goals(results):
    what = "8 B tagged ping-pong, one way"
    goals = []
    for figure, floor in (("line_latency", "of one cache line's way"),
                          ("lines_latency", "of that with a line for each direction, as rings have")):
        goals.append(Goal(f"{what}: {floor}", at_most=1.35, idea="message").add(
            8, results.ratio_of(("tagged_latency", "shmcma", 8), (figure, "machine", 64))))
    for other, limit in (("shm:new", 0.65), ("shm", 0.35), ("ucx", 0.8)):
        goals.append(against(results, "tagged_latency", other, [8], what, at_most=limit, idea="message"))
    for other, limit in (("shm", 2), ("shm:new", 2), ("ucx", 1.2)):
        goals.append(against(results, "rate", other, [64], "64 B tagged rate, one pair", at_least=limit,
                             idea="rate"))
    medium = Goal("256 B to 16 KiB latency: of the better of shm and UCX, at the worst size", at_most=0.75,
                  idea="medium")
    for figure, what in (("instructions_to_ring", "from the entry of fi_tsend to the store in the ring"),
                         ("instructions_to_queue", "from the ring to the completion in its queue")):
        goals.append(Goal(f"8 B tagged, instructions {what}", at_most=99, unit="",
                          idea="message").add(8, of_medians(results.get(figure, "shmcma", 8), 1)))
    for x in measured_sizes(results, "tagged_latency", 256, 16 * KIB):
        medium.add(x, of_best(results, "tagged_latency", SHM + ("ucx",), x, max))
    return goals + [medium]


def bandwidth_goals(results):
    at = [64 * KIB, 256 * KIB, MIB, 4 * MIB, 16 * MIB]
    goals = [against(results, "bandwidth", other, at, "bandwidth, 64 KiB to 16 MiB", at_least=limit,
                     idea="bandwidth")
             for other, limit in (("shm", 1.5), ("shm:new", 1.5), ("ucx", 1.3))]
    every = Goal("bandwidth: of the better of shm and UCX, at the worst of all sizes", at_least=1.0,
                 idea="windows")
    for x in measured_sizes(results, "bandwidth", 1, 64 * MIB):
        every.add(x, of_best(results, "bandwidth", SHM + ("ucx",), x, min))
    return goals + [every]


def onesided_goals(results):
    """
    With the target passive: shm's do not end then, so ours are compared with shm's of a target that polls, too, which is
    no goal. And both with a target that polls.
    """
    goals = []
    for move, floor in (("put", "cma_write_bandwidth"), ("get", "cma_read_bandwidth")):
        figure = f"{move}_bandwidth_passive"
        at = measured_sizes(results, figure, 64 * KIB, 4 * MIB)
        for other in SHM:
            goal = against(results, figure, other, at, f"{move}, 64 KiB to 4 MiB, target passive", at_least=1.2,
                           idea="onesided")
            aside = Goal(f"{move}, 64 KiB to 4 MiB, ours with the target passive: of {NAMES[other]} with one that polls")
            for x in at:
                aside.add(x, of_medians(results.get(figure, "shmcma", x),
                                        results.get(f"{move}_bandwidth", other, x)))
            goal.alone = bool(aside.ratios) and not goal.ratios
            goals += [goal, aside]
            goals.append(against(results, f"{move}_bandwidth", other, at, f"{move}, 64 KiB to 4 MiB, target polls",
                                 at_least=1.2, idea="assisted"))
        cma = Goal(f"{move}, 64 KiB to 4 MiB, target passive: of CMA's own speed", at_least=0.97,
                   idea="onesided")
        for x in at:
            cma.add(x, results.ratio_in_turns((figure, "shmcma", x), (floor, "shmcma", x)))
        goals.append(cma)
    return goals


def other_goals(results):
    goals = []
    for few in (10, 100):
        goals.append(Goal(f"10,000 receives matched in reverse order: of the time with {few}", at_most=1.2,
                          idea="matching").add(
            10000, of_medians(results.get("posted_reverse", "shmcma", 10000),
                              results.get("posted_reverse", "shmcma", few))))
    own = "ompi:sm" if "ompi:sm" in results.medians.get("mpi_latency", {}) else "ompi:vader"
    latency = Goal(f"Open MPI over shmcma, latency at 8 B: of {NAMES[own]}", at_most=1.0, idea="mpi")
    latency.add(8, results.ratio("mpi_latency", "ompi:shmcma", own, 8))
    bandwidth = Goal(f"Open MPI over shmcma, bandwidth from 64 KiB: of {NAMES[own]}", at_least=1.2, idea="bandwidth")
    for x in sorted(results.medians.get("mpi_bandwidth", {}).get(own, {})):
        if x >= 64 * KIB:
            bandwidth.add(x, results.ratio("mpi_bandwidth", "ompi:shmcma", own, x))
    goals += [latency, bandwidth]
    for other in SHM:
        goals.append(against(results, "startup_time", other, [63], "endpoint + first message to 63 peers, time",
                             at_most=0.25, idea="startup"))
        goals.append(against(results, "total_shm", other, [63],
                             "endpoint + first message to 63 peers, /dev/shm", at_most=0.125, idea="startup"))
    return goals


def goal_lines(results):
    goals = (message_goals(results) + bandwidth_goals(results) + onesided_goals(results)
             + other_goals(results))
    lines = ["| what | figure | measured | |", "|---|---|---|---|"] + [goal.row() for goal in goals]
    short = [goal for goal in goals if goal.reached() is False]
    if short:
        lines += ["", "Short of, and what could bring it further:", ""]
    for idea in dict.fromkeys(goal.idea for goal in short):
        where = [f"{goal.what}: {goal.measured()}, to be {goal.limit()}" for goal in short if goal.idea == idea]
        lines.append(f"- {'; '.join(where)}. Next: {IDEAS[idea]}")
    lines += ["", "Of several sizes the worst one counts, which is named. \"None of theirs ends\": not one in half a second "
              "while the target computes; beside it what shm's take if the target polls, which is no goal. UCX's go to "
              "memory that UCX has allocated, which both processes map, and are no goal either."]
    return lines


# ---- the page ----------------------------------------------------------------------------------------


def wakeup_lines(results):
    """The wake-up beside tcp's, and beside the kernel's own."""
    rows = [("poll(2) on FI_WAIT_FD", "wakeup_fd"), ("fi_cq_sread", "wakeup_sread")]
    pipe = results.get("pipe_latency", "machine", 1)
    lines = ["| asleep in | shmcma, us | tcp, us | of tcp | of a pipe |", "|---|---|---|---|---|"]
    for title, figure in rows:
        ours, tcp = (results.get(figure, subject, 8) for subject in ("shmcma", "tcp"))
        numbers = ["-" if value is None else f"{value * 1e6:.1f}" for value in (ours, tcp)]
        ratios = [f"{ours / other:.2f} ×" if ours and other else "-" for other in (tcp, pipe)]
        lines.append("| " + " | ".join([title] + numbers + ratios) + " |")
    return lines


def large_lines(results):
    """Large messages beside what the two processes can do without any."""
    lines = ["| bytes | shmcma, MB/s | CMA by one process | CMA by both at once, a half each | of both |",
             "|---:|---:|---:|---:|---:|"]
    for x in measured_sizes(results, "bandwidth", 64 * KIB, 64 * MIB):
        ours, *floors = (results.get("bandwidth", "shmcma", x),
                         *(results.get(figure, "machine", x) for figure in ("cma_read_time", "cma_both_time")))
        if all(floors):
            one, both = (x / seconds for seconds in floors)
            speeds = [f"{speed / 1e6:.0f}" for speed in (ours, one, both)]
            lines.append("| " + " | ".join([human(x)] + speeds + [f"{ours / both:.2f} ×"]) + " |")
    return lines


def table_lines(name, figure, results, columns):
    head, rows = figures.cells(name, figure, results, columns)
    lines = ["| " + " | ".join(head) + " |", "|" + "---:|" * len(head)]
    return lines + ["| " + " | ".join(row) + " |" for row in rows]


def page(names, results, about, drawn):
    notes = [line[len("note: "):] for line in about if line.startswith("note: ")]
    subjects = next(line for line in about if line.startswith("subjects: ")).split()[1:]
    lines = ["# shmcma: benchmark", ""]
    lines += [f"- {line}" for line in about if not line.startswith("note: ")]
    lines += ["", "All figures are medians of turns that the subjects took one after the other in this run, "
              "pinned; ratios of columns say how many times better the first is. `samples.csv` has every sample.",
              "", "Where a virtual machine's processors are is its owner's choice, and may change within a second, "
              "and times of two processes by two or three times with it. So what a cache line takes from one to the other is "
              "looked at right before and after each sample, and a ratio is the median of those of all pairs of "
              "samples for which that was alike, within 15 %. Where there were not enough of them it is that of the "
              "medians, and has an asterisk. Of one-sided operations, matching and start-up nobody looks."]
    if notes:
        lines += ["", "Not measured, or not all:", ""] + [f"- {note}" for note in notes]
    lines += ["", "## Figures to reach", ""] + goal_lines(results)
    lines += ["", "## Large messages beside the machine's limit", ""] + large_lines(results)
    lines += ["", "## Wake-up beside tcp", ""] + wakeup_lines(results)
    lines += ["", "## All figures"]
    for name, figure in names.items():
        if name not in results.medians:
            continue
        lines += ["", f"### {figure.title}", ""]
        columns = [subject for subject in subjects if figures.can_have(subject, name)]
        least = figures.worst(name, figure, results, columns)
        lines += [f"The {least}.", ""] if least else []
        if name in drawn:
            lines += [f"![{figure.title}]({name}.svg)", ""]
        lines += table_lines(name, figure, results, columns)
    return lines


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    build = os.path.abspath(sys.argv[1])
    directory = os.environ.get("BENCH_OUT", os.path.join(build, "bench-results"))
    if not os.path.exists(os.path.join(directory, "samples.csv")):
        sys.exit(f"report: no results in {directory}: make bench")
    names = figures.catalogue(build)
    results = figures.Results(figures.read_samples(directory))
    drawn = plots(directory, names, results.medians)
    about = figures.read_lines(directory, "about.txt")
    figures.write_lines(directory, "report.md", page(names, results, about, drawn))
    print(f"report: {directory}/report.md")


main()
