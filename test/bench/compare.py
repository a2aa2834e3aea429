#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""
compare.py: latency and bandwidth of shmcma beside another libfabric provider, by default shm, both from one run.

    compare.py [-b BUILD] [-n TURNS] [-t MILLISECONDS] [-s SIZE,SIZE...] [-o FILE] [PROVIDER [OTHER]]

The providers take turns. Each figure is the median of all turns, with the least and the most behind it; "times faster"
is how many times better the first provider is: below 1 the other one is. It compares samples for which the processors were
equally far apart (figures.py), so it is not always the quotient of the medians. The second line says how busy the machine
is with the work of others (load.py).

-o FILE also writes all samples, for plot.py. A provider may have a variant of fabric_bench (shmcma:strict:auto).
"""
import argparse
import os
import platform
import re
import signal
import subprocess
import sys
import time

sys.dont_write_bytecode = True  # not into the sources
import figures  # noqa: E402
import load  # noqa: E402

FIGURES = ("tagged_latency", "bandwidth")
TITLES = {"tagged_latency": "latency: half of a tagged ping-pong, us",
          "bandwidth": "bandwidth: tagged messages, several under way, MB/s"}


def options():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("-b", dest="build", default="build")
    parser.add_argument("-n", dest="turns", type=int, default=7)
    parser.add_argument("-t", dest="milliseconds", type=float, default=20)
    parser.add_argument("-s", dest="sizes", default="8,64,1024,4096,16384,65536,1048576,4194304")
    parser.add_argument("-o", dest="file")
    parser.add_argument("providers", nargs="*", default=["shmcma", "shm"])
    found = parser.parse_args()
    if len(found.providers) == 1:
        found.providers.append("shm")
    return found


def measure(asked):
    """All samples of all turns."""
    command = [os.path.join(asked.build, "test/bench/fabric_bench"), "-C", "-n", "1", "-k", "latency,bandwidth",
               "-b", str(asked.milliseconds), "-s", asked.sizes]
    env = {"FI_PROVIDER_PATH": os.path.abspath(os.path.join(asked.build, "lib")), **os.environ}
    samples = []
    for turn in range(asked.turns):
        # another one comes first in each turn
        order = asked.providers[::-1] if turn % 2 else asked.providers
        text = subprocess.run(command + order, env=env, check=True, stdout=subprocess.PIPE, text=True).stdout
        for line in text.splitlines():
            figure, subject, x, value, way = line.split(",")
            if figure in FIGURES:
                samples.append(figures.Sample(figure, subject, int(x), turn, float(value), float(way)))
    return samples


def first_match(command, pattern):
    try:
        text = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    except OSError:
        return "unknown"
    match = re.search(pattern, text)
    return match.group(1).strip() if match else "unknown"


def about(asked, busy):
    """On what, with what and how all was measured: "what: value"."""
    return [
        f"date: {time.strftime('%Y-%m-%d')}",
        f"machine: {first_match(['lscpu'], r'Model name:(.*)')}, {os.cpu_count()} processors, "
        f"Linux {platform.release().split('-')[0]}",
        f"libfabric: {first_match(['fi_info', '--version'], r'libfabric: ([0-9.]+)')}",
        f"load: {busy.text()}",
        f"turns: {asked.turns}",
        f"subjects: {' '.join(asked.providers)}",
    ]


def with_spread(results, figure, subject, x):
    """"median (least - most)" of all turns."""
    values = [sample.value * figure.scale for sample in results.samples.get((figure.name, subject, x), [])]
    if not values:
        return "-"
    median = results.get(figure.name, subject, x) * figure.scale
    digits = 0 if median >= 100 else 1 if median >= 10 else 3
    return f"{median:.{digits}f} ({min(values):.{digits}f} - {max(values):.{digits}f})"


def table(results, figure, subjects):
    rows = [["bytes"] + [f"{subject} (spread)" for subject in subjects] + ["times faster"]]
    for x in sorted({x for row in results.medians.get(figure.name, {}).values() for x in row}):
        rows.append([str(x)] + [with_spread(results, figure, subject, x) for subject in subjects]
                    + [figure.times_faster(results.ratio(figure.name, *subjects, x))])
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return ["", TITLES[figure.name]] + ["  ".join(cell.rjust(width) for cell, width in zip(row, widths)) for row in rows]


def main():
    asked = options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that subprocess.run() ends what runs
    catalogue = figures.catalogue(asked.build)
    busy = load.Load()
    samples = measure(asked)
    busy.end()
    results = figures.Results(samples)
    lines = about(asked, busy)
    if asked.file:
        figures.write_run(asked.file, lines, samples)
    print(f"medians of {asked.turns} turns, with the least and the most; libfabric {lines[2].split()[1]}")
    print(f"the machine is {busy.text()}")
    text = [line for name in FIGURES for line in table(results, catalogue[name], asked.providers)]
    print("\n".join(text))
    if any(line.endswith("*") for line in text):
        print("* the processors were not equally far apart for both: the quotient of the medians, to be taken with care")
    if load.is_loaded(busy.text()):
        print("CAUTION: the machine is loaded; these figures say little. Run it again on a quiet machine.")
    sys.exit(not all(results.get(name, subject, x) for name in FIGURES for subject in asked.providers
                     for x in map(int, asked.sizes.split(","))))


main()
