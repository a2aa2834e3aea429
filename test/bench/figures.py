# SPDX-License-Identifier: BSD-2-Clause
"""
figures.py: what bench.py and report.py share: what the figures are called, their medians, the files they are
in, and tables of them.

Figures are in seconds, bytes and per second everywhere but in tables and plots.
"""
import collections
import csv
import math
import os
import statistics
import subprocess

# What no program of test/bench measures: title, rows, scale, digits, whether less is better.
FOREIGN = {
    "mpi_latency": ("MPI ping-pong, one way, us", "bytes", 1e6, 3, True),
    "mpi_bandwidth": ("MPI bandwidth, windows, MB/s", "bytes", 1e-6, 1, False),
    "instructions_post": ("instructions of fi_trecv", "bytes", 1, 0, True),
    "instructions_send": ("instructions of fi_tsend", "bytes", 1, 0, True),
    "instructions_to_ring": ("of them before the message is in the ring", "bytes", 1, 0, True),
    "instructions_receive": ("instructions of the fi_cq_read that receives it", "bytes", 1, 0, True),
    "instructions_to_queue": ("of them from the ring to its completion in the queue", "bytes", 1, 0, True),
    "instructions_idle": ("instructions of a fi_cq_read that finds nothing", "bytes", 1, 0, True),
}
INSIDE = {"instructions_to_ring", "instructions_to_queue"}
FLOOR = {"line_latency", "lines_latency", "pipe_latency", "memcpy_time", "cma_read_time", "cma_write_time",
         "cma_both_time"}
UCX = {"tagged_latency", "bandwidth", "rate", "put_bandwidth_passive", "get_bandwidth_passive",
       "fetch_add_latency_passive", "compare_swap_latency_passive"}


def can_have(subject, figure):
    """Whether the figure is one of those that the subject is measured by."""
    if subject == "machine" or figure in FLOOR:
        return subject == "machine" and figure in FLOOR
    if subject.startswith("ompi:") or figure.startswith("mpi_"):
        return subject.startswith("ompi:") and figure.startswith("mpi_")
    if figure in INSIDE:
        return subject == "shmcma"
    return subject != "ucx" or figure in UCX


class Figure:
    """One row of the catalogue."""

    def __init__(self, title, rows, scale, digits, less, name=""):
        self.name = name
        self.title = title
        self.rows = rows
        self.scale = float(scale)
        self.digits = int(digits)
        self.less = bool(int(less))

    def text(self, value):
        return "-" if value is None else f"{value * self.scale:.{self.digits}f}"

    def times_faster(self, ratio):
        """
        How many times better the first is, as text: below 1 the other one is. `ratio`: of Results. An asterisk: the
        samples were not taken alike.
        """
        if not ratio or not ratio[0]:
            return "-"
        return f"{1 / ratio[0] if self.less else ratio[0]:.2f}" + ("" if ratio[1] else "*")


def catalogue(build):
    """All figures by name, in the order of tables."""
    found = {}
    for program in ("floor_bench", "fabric_bench"):
        text = subprocess.run([os.path.join(build, "test/bench", program), "-L"], check=True,
                              capture_output=True, text=True).stdout
        for line in text.splitlines():
            name, *fields = line.split("|")
            found[name] = Figure(*fields, name=name)
    for name, fields in FOREIGN.items():
        found[name] = Figure(*fields, name=name)
    return found


# `line`: what a cache line took between the two processors when this was measured, seconds (line.h); NAN: not known.
Sample = collections.namedtuple("Sample", "figure subject x turn value line")

# Lines' ways that differ by no more are alike; and so many pairs of samples with such make a ratio.
ALIKE = 0.15
PAIRS = 6


class Results:
    """All samples, asked for by figure, subject and x. A ratio is of samples that were taken alike."""

    def __init__(self, samples):
        self.samples = {}
        for sample in samples:
            self.samples.setdefault((sample.figure, sample.subject, sample.x), []).append(sample)
        self.medians = {}  # {figure: {subject: {x: median}}}
        for (figure, subject, x), of_turns in self.samples.items():
            row = self.medians.setdefault(figure, {}).setdefault(subject, {})
            row[x] = statistics.median(sample.value for sample in of_turns)

    def get(self, figure, subject, x):
        return self.medians.get(figure, {}).get(subject, {}).get(x)

    def ratio(self, figure, subject, other, x):
        """A subject's value in another's, see ratio_of()."""
        return self.ratio_of((figure, subject, x), (figure, other, x))

    def ratio_of(self, one, other):
        """
        How many times the value of the second (figure, subject, x) that of the first is, and whether the processors
        were as far apart for both: the median of all pairs of samples for which they were. Of too few pairs, or where
        nobody looked, it is that of the medians. None: there is none.
        """
        ours, theirs = self.samples.get(one, []), self.samples.get(other, [])
        pairs = [a.value / b.value for a in ours for b in theirs if b.value and are_alike(a.line, b.line)]
        if len(pairs) >= PAIRS:
            return statistics.median(pairs), True
        if not self.get(*one) or not self.get(*other):
            return None
        known = any(not math.isnan(sample.line) for sample in ours + theirs)
        return self.get(*one) / self.get(*other), not known

    def ratio_in_turns(self, one, other):
        """The same of two that were measured right after each other in each turn."""
        ours, theirs = ({sample.turn: sample.value for sample in self.samples.get(figure, [])}
                        for figure in (one, other))
        ratios = [ours[turn] / theirs[turn] for turn in ours if theirs.get(turn)]
        return (statistics.median(ratios), True) if ratios else None


def line_of_sample(before, after):
    """As in line.h."""
    return math.nan if max(before, after) > 1.4 * min(before, after) else (before + after) / 2


def are_alike(one, other):
    return not math.isnan(one) and not math.isnan(other) and abs(math.log(one / other)) <= ALIKE


# ---- files -------------------------------------------------------------------------------------------


def write_samples(directory, samples):
    with open(os.path.join(directory, "samples.csv"), "w", encoding="ascii", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(Sample._fields)
        writer.writerows(samples)


def read_samples(directory):
    with open(os.path.join(directory, "samples.csv"), encoding="ascii", newline="") as file:
        return [Sample(figure, subject, int(x), int(turn), float(value), float(line))
                for figure, subject, x, turn, value, line in list(csv.reader(file))[1:]]


def write_run(path, about, samples):
    """One run in one file: lines "# what: value", then the samples."""
    with open(path, "w", encoding="utf-8", newline="") as file:
        file.write("# SPDX-License-Identifier: BSD-2-Clause\n")
        file.writelines(f"# {line}\n" for line in about)
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(Sample._fields)
        writer.writerows(sample._replace(value=f"{sample.value:.5g}", line=f"{sample.line:.3g}") for sample in samples)


def read_run(path):
    """What write_run() wrote: ({what: value}, samples)."""
    with open(path, encoding="utf-8", newline="") as file:
        lines = file.read().splitlines()
    about = dict(line[2:].split(": ", 1) for line in lines if line.startswith("# "))
    rows = list(csv.reader(line for line in lines if not line.startswith("#")))[1:]
    return about, [Sample(figure, subject, int(x), int(turn), float(value), float(line))
                   for figure, subject, x, turn, value, line in rows]


def write_medians(directory, results):
    """The medians, and how far the turns are apart."""
    with open(os.path.join(directory, "figures.csv"), "w", encoding="ascii", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["figure", "subject", "x", "turns", "least", "median", "most"])
        for (figure, subject, x), of_turns in results.samples.items():
            values = [sample.value for sample in of_turns]
            row = [min(values), statistics.median(values), max(values)]
            writer.writerow([figure, subject, x, len(values)] + [f"{value:.9g}" for value in row])


def write_lines(directory, name, lines):
    with open(os.path.join(directory, name), "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")


def read_lines(directory, name):
    with open(os.path.join(directory, name), encoding="utf-8") as file:
        return file.read().splitlines()


# ---- tables ------------------------------------------------------------------------------------------


def cells(name, figure, results, names):
    """Head and rows of one figure: these subjects side by side, then how many times better the first is."""
    head = [figure.rows] + names + [f"times faster than {other}" for other in names[1:]]
    rows = []
    for x in sorted({x for row in results.medians[name].values() for x in row}):
        rows.append([str(x)] + [figure.text(results.get(name, subject, x)) for subject in names]
                    + [figure.times_faster(results.ratio(name, names[0], other, x)) for other in names[1:]])
    return head, rows


def worst(name, figure, results, columns):
    """The row in which the first subject is the least fast beside another, as a line; None: nothing is beside it."""
    faster = []
    for other in columns[1:]:
        for x in results.medians[name].get(columns[0], {}):
            ratio = results.ratio(name, columns[0], other, x)
            if ratio and ratio[0]:
                faster.append((1 / ratio[0] if figure.less else ratio[0], other, x))
    if not faster:
        return None
    times, other, x = min(faster)
    return f"worst: {times:.2f} times as fast as {other}, {figure.rows}: {x}"


def tables(names, results, subjects):
    """Lines to print. A subject that has not a figure which it could have is shown as "-"."""
    lines = []
    for name, figure in names.items():
        if name not in results.medians:
            continue
        columns = [subject for subject in subjects if can_have(subject, name)]
        head, rows = cells(name, figure, results, columns)
        widths = [max(len(row[i]) for row in [head] + rows) for i in range(len(head))]
        lines += ["", f"{figure.title}; last columns: how many times the first is faster" if len(columns) > 1
                  else figure.title]
        least = worst(name, figure, results, columns)
        lines += [least] if least else []
        lines += ["  ".join(cell.rjust(width) for cell, width in zip(row, widths))
                  for row in [head] + rows]
    return lines
