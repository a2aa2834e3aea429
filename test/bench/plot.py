#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""
plot.py: README's table of results and its two plots, from a file that compare.py -o has written.

    plot.py FILE DOCUMENT              (make readme-results)
    plot.py --check FILE DOCUMENT

Writes latency.svg and bandwidth.svg beside FILE, and the table between the lines "<!-- results -->" and
"<!-- end of results -->" of DOCUMENT. Each says on which machine, when, and beside which load it was measured. --check
writes nothing: the status is 1 if something would change.
"""
import math
import os
import sys
from xml.sax.saxutils import escape

sys.dont_write_bytecode = True  # not into the sources
import figures  # noqa: E402
import load  # noqa: E402

KIB, MIB = 1 << 10, 1 << 20
COLOURS = ("#c02020", "#2060c0")  # of the two subjects
WIDTH, HEIGHT = 760, 440
LEFT, RIGHT, TOP, BOTTOM = 70, 20, 50, 85  # the margins around the axes

# Name of the plot, figure, title, unit.
PLOTS = [("latency", figures.Figure("latency, one way", "bytes", 1e6, 3, 1, name="tagged_latency"), "us"),
         ("bandwidth", figures.Figure("bandwidth", "bytes", 1e-9, 2, 0, name="bandwidth"), "GB/s")]
# Rows of the table: of which plot, and sizes.
ROWS = [("latency", (8, 1024, 16 * KIB)), ("bandwidth", (4 * KIB, 64 * KIB, MIB, 4 * MIB))]


def human(size):
    for unit, name in ((MIB, "MiB"), (KIB, "KiB")):
        if size >= unit and size % unit == 0:
            return f"{size // unit} {name}"
    return f"{size} B"


def loaded_words(about):
    """What stands behind figures that were measured on a loaded machine."""
    return " MACHINE LOADED: these figures say little." if load.is_loaded(about["load"]) else ""


def caption(about):
    return [f"{about['machine']}; libfabric {about['libfabric']}; {about['date']}",
            f"medians and spread of {about['turns']} turns; {about['load'].split(';')[0]}"]


# ---- plots -------------------------------------------------------------------------------------------


class Axis:
    """A logarithmic axis: from values to positions."""

    def __init__(self, values, base, begin, end):
        self.least = math.floor(math.log(min(values), base) + 1e-9)
        self.most = math.ceil(math.log(max(values), base) - 1e-9)
        self.base, self.begin, self.end = base, begin, end

    def at(self, value):
        part = (math.log(value, self.base) - self.least) / max(self.most - self.least, 1)
        return self.begin + part * (self.end - self.begin)

    def ticks(self, step=1):
        return [self.base ** power for power in range(self.least, self.most + 1, step)]


def text(x, y, words, anchor="middle", more=""):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{more}>{escape(words)}</text>'


def axes(x_axis, y_axis, title, unit):
    bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    lines = []
    for tick in y_axis.ticks():
        y = y_axis.at(tick)
        lines.append(f'<path d="M{LEFT} {y:.1f}H{right}" stroke="#dddddd"/>')
        lines.append(text(LEFT - 8, y + 4, f"{tick:g}", "end"))
    for tick in x_axis.ticks(2):
        x = x_axis.at(tick)
        lines.append(f'<path d="M{x:.1f} {TOP}V{bottom}" stroke="#eeeeee"/>')
        lines.append(text(x, bottom + 18, human(int(tick)), more=' font-size="11"'))
    lines.append(f'<path d="M{LEFT} {TOP}V{bottom}H{right}" fill="none" stroke="#404040"/>')
    lines.append(text(LEFT, TOP - 25, f"{title}, {unit}", "start", ' font-size="16" font-weight="bold"'))
    return lines


def curve(points, x_axis, y_axis, colour):
    """`points`: (x, least, median, most). A band from the least to the most, and a line with dots."""
    upper = " ".join(f"{x_axis.at(x):.1f},{y_axis.at(most):.1f}" for x, _, _, most in points)
    lower = " ".join(f"{x_axis.at(x):.1f},{y_axis.at(least):.1f}" for x, least, _, _ in reversed(points))
    middle = [(x_axis.at(x), y_axis.at(median)) for x, _, median, _ in points]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in middle)
    return [f'<polygon points="{upper} {lower}" fill="{colour}" fill-opacity="0.15"/>',
            f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>'] + \
           [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in middle]


def points_of(results, figure, subject):
    found = []
    for x, median in sorted(results.medians[figure.name][subject].items()):
        values = [sample.value * figure.scale for sample in results.samples[(figure.name, subject, x)]]
        found.append((x, min(values), median * figure.scale, max(values)))
    return found


def svg(figure, unit, results, about):
    """A whole picture as text."""
    subjects = about["subjects"].split()
    curves = [points_of(results, figure, subject) for subject in subjects]
    every = [point for points in curves for point in points]
    x_axis = Axis([point[0] for point in every], 2, LEFT, WIDTH - RIGHT)
    y_axis = Axis([value for point in every for value in point[1:]], 10, HEIGHT - BOTTOM, TOP)
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" '
             f'viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">',
             "<!-- SPDX-License-Identifier: BSD-2-Clause -->",
             f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>']
    lines += axes(x_axis, y_axis, figure.title, unit)
    for index, (subject, points) in enumerate(zip(subjects, curves)):
        lines += curve(points, x_axis, y_axis, COLOURS[index])
        lines.append(text(WIDTH - RIGHT, TOP - 25 + 16 * index, subject, "end",
                          f' fill="{COLOURS[index]}" font-weight="bold"'))
    for index, words in enumerate(caption(about)):
        lines.append(text(LEFT, HEIGHT - 38 + 15 * index, words, "start", ' font-size="11" fill="#404040"'))
    if loaded_words(about):
        lines.append(text(LEFT, HEIGHT - 8, loaded_words(about).strip(), "start", ' font-size="11" fill="#c00000"'))
    return "\n".join(lines + ["</svg>", ""])


# ---- the table ---------------------------------------------------------------------------------------


def table(results, about):
    subjects = about["subjects"].split()
    lines = [f"| | {subjects[0]} | {subjects[1]} | times faster |", "|---|---:|---:|---:|"]
    plots = {name: (figure, unit) for name, figure, unit in PLOTS}
    for name, sizes in ROWS:
        figure, unit = plots[name]
        for x in sizes:
            cells = [figure.text(results.get(figure.name, subject, x)) for subject in subjects]
            lines.append(f"| {figure.title}, {human(x)}, {unit} | {cells[0]} | {cells[1]} | "
                         f"{figure.times_faster(results.ratio(figure.name, *subjects, x))} |")
    words = "; ".join(caption(about)) + ". \"Times faster\" compares samples for which the two processors were equally " \
        "far apart, so it is not always the quotient of the medians."
    if any("*" in line for line in lines):
        words += " *: there were too few of them, and it is the quotient."
    words += loaded_words(about)
    return lines + ["", words]


def with_table(document, lines):
    begin, end = "<!-- results -->\n", "<!-- end of results -->\n"
    head, rest = document.split(begin, 1)
    tail = rest.split(end, 1)[1]
    return head + begin + "\n" + "\n".join(lines) + "\n\n" + end + tail


def main():
    words = [word for word in sys.argv[1:] if word != "--check"]
    if len(words) != 2:
        sys.exit(__doc__)
    source, document = words
    about, samples = figures.read_run(source)
    results = figures.Results(samples)
    wanted = {os.path.join(os.path.dirname(source), f"{name}.svg"): svg(figure, unit, results, about)
              for name, figure, unit in PLOTS}
    with open(document, encoding="utf-8") as file:
        wanted[document] = with_table(file.read(), table(results, about))
    status = 0
    for path, content in wanted.items():
        if "--check" not in sys.argv:
            with open(path, "w", encoding="utf-8") as file:
                file.write(content)
            print(f"plot: {path}")
        elif not os.path.exists(path) or open(path, encoding="utf-8").read() != content:
            print(f"{path} is not what {source} says: make readme-results, or test/bench/plot.py {source} {document}")
            status = 1
    sys.exit(status)


main()
