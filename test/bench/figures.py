# SPDX-License-Identifier: BSD-2-Clause
"""
figures.py: what bench.py and report.py share: what the figures are called, their medians, the files they are
in, and tables of them.

Figures are in seconds, bytes and per second everywhere but in tables and plots.
"""
import csv
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
FLOOR = {"line_latency", "pipe_latency", "memcpy_time", "cma_read_time", "cma_write_time"}
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

    def __init__(self, title, rows, scale, digits, less):
        self.title = title
        self.rows = rows
        self.scale = float(scale)
        self.digits = int(digits)
        self.less = bool(int(less))

    def text(self, value):
        return "-" if value is None else f"{value * self.scale:.{self.digits}f}"

    def times_better(self, first, other):
        """How many times better the first is; None: one is missing, or nothing."""
        if not first or not other:
            return None
        return other / first if self.less else first / other


def catalogue(build):
    """All figures by name, in the order of tables."""
    found = {}
    for program in ("floor_bench", "fabric_bench"):
        text = subprocess.run([os.path.join(build, "test/bench", program), "-L"], check=True,
                              capture_output=True, text=True).stdout
        for line in text.splitlines():
            name, *fields = line.split("|")
            found[name] = Figure(*fields)
    for name, fields in FOREIGN.items():
        found[name] = Figure(*fields)
    return found


def by_turn(samples):
    """{(figure, subject, x): [the value of each turn]}, in the order in which they were measured."""
    values = {}
    for figure, subject, x, _, value in samples:
        values.setdefault((figure, subject, x), []).append(value)
    return values


def medians(samples):
    """{figure: {subject: {x: median}}}"""
    found = {}
    for (figure, subject, x), values in by_turn(samples).items():
        found.setdefault(figure, {}).setdefault(subject, {})[x] = statistics.median(values)
    return found


# ---- files -------------------------------------------------------------------------------------------


def write_samples(directory, samples):
    with open(os.path.join(directory, "samples.csv"), "w", encoding="ascii", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["figure", "subject", "x", "turn", "value"])
        writer.writerows(samples)


def read_samples(directory):
    with open(os.path.join(directory, "samples.csv"), encoding="ascii", newline="") as file:
        return [(figure, subject, int(x), int(turn), float(value))
                for figure, subject, x, turn, value in list(csv.reader(file))[1:]]


def write_medians(directory, samples):
    """The medians, and how far the turns are apart."""
    with open(os.path.join(directory, "figures.csv"), "w", encoding="ascii", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["figure", "subject", "x", "turns", "least", "median", "most"])
        for (figure, subject, x), values in by_turn(samples).items():
            row = [min(values), statistics.median(values), max(values)]
            writer.writerow([figure, subject, x, len(values)] + [f"{value:.9g}" for value in row])


def write_lines(directory, name, lines):
    with open(os.path.join(directory, name), "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")


def read_lines(directory, name):
    with open(os.path.join(directory, name), encoding="utf-8") as file:
        return file.read().splitlines()


# ---- tables ------------------------------------------------------------------------------------------


def cells(figure, row_of, names):
    """Head and rows of one figure: these subjects side by side, then how many times better the first is."""
    head = [figure.rows] + names + [f"{names[0]}/{name}" for name in names[1:]]
    rows = []
    for x in sorted({x for row in row_of.values() for x in row}):
        values = [row_of.get(name, {}).get(x) for name in names]
        ratios = [figure.times_better(values[0], value) for value in values[1:]]
        rows.append([str(x)] + [figure.text(value) for value in values]
                    + ["-" if ratio is None else f"{ratio:.2f}x" for ratio in ratios])
    return head, rows


def tables(names, found, subjects):
    """Lines to print. A subject that has not a figure which it could have is shown as "-"."""
    lines = []
    for name, figure in names.items():
        if name not in found:
            continue
        columns = [subject for subject in subjects if can_have(subject, name)]
        head, rows = cells(figure, found[name], columns)
        widths = [max(len(row[i]) for row in [head] + rows) for i in range(len(head))]
        lines += ["", f"{figure.title}; last columns: how many times better" if len(columns) > 1
                  else figure.title]
        lines += ["  ".join(cell.rjust(width) for cell, width in zip(row, widths))
                  for row in [head] + rows]
    return lines
