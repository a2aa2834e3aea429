#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""
bench.py: measures shmcma beside its peers and the machine's floor, and prints the medians.

    bench.py BUILD      (make bench)

In each turn every kind of measurement is run by every subject that has it, one after the other, so that
subjects take turns (A B A B ...). Subjects are libfabric's providers (fabric_bench), the same with another
libfabric, UCX (ucx_perftest), Open MPI over shmcma and over its own shared memory (test/mpi/bench), and
the machine itself (floor_bench). The instructions of calls are counted by callgrind (calls.py). One that is not
installed is left out with a message; only what fails for the first provider or the machine makes the status 1.

Writes BUILD/bench-results/: samples.csv, every sample of every turn in seconds, bytes and per second,
with what a cache line took between the processors at that time; figures.csv, the medians and the spread;
about.txt, on what and with what; table.txt, what is printed.

    BENCH_QUICK=1         one turn, few sizes, almost no time for each: shows that it works, no more
    BENCH_TURNS=7         of everything
    BENCH_TIME=20         milliseconds for each figure, besides warming up
    BENCH_SIZES="0 8"     bytes; default: 0 and the powers of two up to 64 MiB
    BENCH_PROVIDERS="shmcma shm tcp"
    BENCH_LIBFABRIC=DIR   another libfabric (its libfabric.so.1 is there): its shm becomes one more subject
    BENCH_KINDS="latency mpi"   only these
    BENCH_CPUS=0,1        in that order; default: all that there are
    BENCH_OUT=DIR         instead of BUILD/bench-results
"""
import math
import os
import platform
import re
import shutil
import signal
import socket
import subprocess
import sys
import time

sys.dont_write_bytecode = True  # not into the sources
import calls  # noqa: E402
import figures  # noqa: E402

KINDS = ["floor", "latency", "plain", "fragments", "bandwidth", "bidirectional", "pairs", "wakeup-fd", "wakeup-sread",
         "posted", "unexpected", "moves", "atomics", "styles", "scattered", "registration", "startup", "calls", "mpi"]
LIMIT = 600  # seconds for one kind of one subject


class Options:
    """What the environment asks for."""

    def __init__(self):
        quick = os.environ.get("BENCH_QUICK", "") not in ("", "0")
        powers = [0] + [1 << i for i in range(27)]
        sizes = [0, 8, 64, 4096, 65536, 1048576] if quick else powers
        self.quick = quick
        self.turns = int(os.environ.get("BENCH_TURNS", 1 if quick else 7))
        self.milliseconds = float(os.environ.get("BENCH_TIME", 0.5 if quick else 20))
        self.sizes = [int(size) for size in os.environ.get("BENCH_SIZES", "").split()] or sizes
        self.providers = os.environ.get("BENCH_PROVIDERS", "shmcma shm tcp").split()
        self.libfabric = os.environ.get("BENCH_LIBFABRIC")
        self.kinds = os.environ.get("BENCH_KINDS", " ".join(KINDS)).split()
        cpus = os.environ.get("BENCH_CPUS", "").split(",")
        self.cpus = [int(cpu) for cpu in cpus if cpu] or sorted(os.sched_getaffinity(0))

    def common(self):
        """The options that our programs share."""
        return ["-b", str(self.milliseconds), "-s", ",".join(map(str, self.sizes)),
                "-c", ",".join(map(str, self.cpus)), "-n", "1"]


class Failed(Exception):
    """A run without figures; its text says why, if that has not been said."""


def run(command, env=None, cpus=None):
    """What a command prints. It and all that it has started run on these processors, and end with us."""
    process = subprocess.Popen(
        command, env={**os.environ, **(env or {})}, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL, text=True, start_new_session=True,
        preexec_fn=None if cpus is None else lambda: os.sched_setaffinity(0, cpus))
    try:
        out, err = process.communicate(timeout=LIMIT)
    except subprocess.TimeoutExpired as too_long:
        raise Failed(f"it took more than {LIMIT} s") from too_long
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return process.returncode, out, err


def last_line(text):
    lines = text.strip().splitlines()
    return lines[-1].strip() if lines else "it said nothing"


def version(command, pattern):
    """What the first match in a program's output is; "-" if there is no such program."""
    try:
        text = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return "-"
    match = re.search(pattern, text.stdout + text.stderr)
    return match.group(1) if match else "-"


def api_version(directory):
    """Of the libfabric there, which another process loads: it does things when it is loaded."""
    if not directory:
        return "-"
    script = ("import ctypes, sys; v = ctypes.CDLL(sys.argv[1]).fi_version(); "
              "print(f'api {(v >> 16) & 0xffff}.{v & 0xffff}')")
    library = os.path.join(directory, "libfabric.so.1")
    return version([sys.executable, "-c", script, library], r"api ([0-9.]+)")


# ---- subjects: has(kind), run(kind), which returns [(figure, x, value, line)] ------------------------


class Program:
    """
    One of ours that prints CSV: a provider in fabric_bench, or the machine in floor_bench. They look themselves how
    far the processors are apart.
    """

    def __init__(self, name, command, options, kinds, env):
        self.name = name
        self.command = command
        self.options = options
        self.kinds = kinds
        self.env = env

    def has(self, kind):
        return kind in self.kinds

    def run(self, kind):
        command = [word.replace("KIND", kind) for word in self.command]
        status, out, err = run(command[:1] + self.options.common() + command[1:], self.env)
        samples = [line.split(",") for line in out.splitlines()]
        for line in err.splitlines():
            say(f"{self.name}: {line.removeprefix('fabric_bench: ').removeprefix(self.command[-1] + ', ')}")
        if status or not samples:
            raise Failed("" if err else f"status {status}")
        return [(figure, int(x), float(value), float(line)) for figure, _, x, value, line in samples]


class Calls:
    """The instructions of a provider's calls. They are the same in each turn: counted in the first."""

    def __init__(self, name, command, env, directory):
        self.name = name
        self.command = command
        self.env = env
        self.file = os.path.join(directory, "callgrind.out")
        self.due = True

    def has(self, kind):
        return kind == "calls" and self.due

    def run(self, _):
        self.due = False
        try:
            return [(figure, 8, value, math.nan)
                    for figure, value in calls.count(self.command, self.env, self.file)]
        except subprocess.CalledProcessError as failed:
            raise Failed(last_line(failed.stderr)) from failed


class Ucx:
    """
    ucx_perftest: a pair of processes, tests from a batch file that both read; a pair for each size where it
    counts how far the processors are apart, which floor_bench looks at before and after.
    """

    name = "ucx"
    tests = {
        "latency": [("tag_lat", "")],
        "bandwidth": [("tag_bw", "-O 64")],
        "moves": [("ucp_put_bw", "-o -O 64"), ("ucp_get", "-o -O 64")],
        "atomics": [("ucp_fadd", "-o"), ("ucp_cswap", "-o")],
    }

    def __init__(self, options, directory, floor):
        self.options = options
        self.floor = floor
        self.batch = os.path.join(directory, "ucx.batch")
        self.env = {"UCX_TLS": os.environ.get("UCX_TLS", "posix,cma"), "UCX_LOG_LEVEL": "error"}

    def has(self, kind):
        return kind in self.tests

    def count(self, size):
        """So many that they take about the time of one of our figures."""
        guess = 0.2e-6 + size / 10e9
        return int(min(1e6, max(8, self.options.milliseconds / 1e3 / guess)))

    def line(self):
        """What a cache line takes now, seconds."""
        status, out, err = run([self.floor, "-l", "-c", ",".join(map(str, self.options.cpus))])
        if status:
            raise Failed(last_line(err))
        return float(out)

    def run(self, kind):
        sizes = [8] if kind == "atomics" else [s for s in self.options.sizes if s or kind == "latency"]
        if kind in ("moves", "atomics"):
            return [sample + (math.nan,) for sample in self.measure(kind, sizes)]
        found, before = [], self.line()
        for size in sizes:
            samples = self.measure(kind, [size])
            after = self.line()
            found += [sample + (figures.line_of_sample(before, after),) for sample in samples]
            before = after
        return found

    def write_batch(self, kind, sizes):
        with open(self.batch, "w", encoding="ascii") as file:
            for test, more in self.tests[kind]:
                for size in sizes:
                    count = self.count(size)
                    print(f"{test}.{size} -t {test} {more} -s {size} -n {count} -w {count // 8 + 2}",
                          file=file)

    def measure(self, kind, sizes):
        self.write_batch(kind, sizes)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        command = ["ucx_perftest", "-p", str(port), "-b", self.batch, "-v", "-f"]
        cpus = self.options.cpus
        server = subprocess.Popen(
            command, env={**os.environ, **self.env}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            preexec_fn=lambda: os.sched_setaffinity(0, [cpus[0]]))
        try:
            wait_for_port(port, server)
            status, out, err = run(command + ["127.0.0.1"], self.env, [cpus[1 % len(cpus)]])
            if status:
                raise Failed(last_line(err))
        finally:
            server.kill()
            server.wait()
            os.unlink(self.batch)
        return [sample for text in out.splitlines() for sample in self.samples(text)]

    @staticmethod
    def samples(text):
        """Of "test.size,iterations,percentile,average,overall latency,..., average rate, overall rate"."""
        fields = text.split(",")
        if len(fields) != 9 or not fields[1].strip().isdigit():
            return []  # the head
        test, size = fields[0].rsplit(".", 1)
        size, latency, rate = int(size), float(fields[4]) * 1e-6, float(fields[8])
        return {
            "tag_lat": [("tagged_latency", size, latency)],
            "tag_bw": [("bandwidth", size, rate * size)] + [("rate", size, rate)] * (size <= 4096),
            "ucp_put_bw": [("put_bandwidth_passive", size, rate * size)],
            "ucp_get": [("get_bandwidth_passive", size, rate * size)],
            "ucp_fadd": [("fetch_add_latency_passive", size, latency)],
            "ucp_cswap": [("compare_swap_latency_passive", size, latency)],
        }[test]


def wait_for_port(port, server):
    """Until the process listens there; 20 s at most."""
    listens = re.compile(rf"^ *\d+: [0-9A-F]+:{port:04X} [0-9A-F:]+ 0A", re.M)
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and server.poll() is None:
        with open("/proc/net/tcp", encoding="ascii") as file:
            if listens.search(file.read()):
                return
        time.sleep(0.01)
    raise Failed("the server does not listen")


class Mpi:
    """One MPI program, by one of Open MPI's ways."""

    ways = {
        "ompi:shmcma": "--mca pml cm --mca mtl ofi --mca opal_common_ofi_provider_include shmcma",
        "ompi:vader": "--mca pml ob1 --mca btl self,vader",
        "ompi:sm": "--mca pml ob1 --mca btl self,sm",  # what vader is called since 5.0
    }

    def __init__(self, name, mpirun, program, options, env):
        self.name = name
        self.cpus = options.cpus[:2]  # of which each rank takes one
        self.command = [mpirun, "--oversubscribe", "--bind-to", "none", "-n", "2"]
        self.command += self.ways[name].split()
        self.command += [program, str(options.milliseconds), ",".join(map(str, options.sizes))]
        self.env = {**env, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        if name == "ompi:shmcma":
            self.env["FI_PROVIDER"] = "shmcma"  # makes it offer what Open MPI asks for
            self.env["FI_LOG_LEVEL"] = "info"
            self.env["FI_LOG_PROV"] = "shmcma"

    def has(self, kind):
        return kind == "mpi"

    def run(self, kind):
        status, out, err = run(self.command, self.env, self.cpus)
        if status:
            raise Failed(last_line(err))
        # Open MPI goes another way without a word.
        if self.name == "ompi:shmcma" and not re.search(r"shmcma: counters: tx_msgs=[1-9]", err):
            raise Failed("nothing went through shmcma")
        return [(fields[0], int(fields[1]), float(fields[2]), float(fields[3]))
                for fields in (line.split(",") for line in out.splitlines()) if len(fields) == 4]


class Absent:
    """What is not installed."""

    def __init__(self, name):
        self.name = name

    def has(self, _):
        return False


def open_mpi():
    """The first of a program's names that is Open MPI's."""
    for candidate in (os.environ.get("MPIRUN"), "mpirun.openmpi", "mpirun"):
        if candidate and version([candidate, "--version"], r"(Open MPI)") != "-":
            return candidate
    return None


def mpi_subjects(build, options, env):
    program = os.path.join(build, "test/mpi/bench")
    mpirun = open_mpi()
    if not mpirun:
        say("ompi: no Open MPI (Debian: openmpi-bin)")
        return [Absent("ompi:shmcma"), Absent("ompi:vader")]
    own = "ompi:vader" if version([mpirun, "--version"], r"\) ([1-4])\.") != "-" else "ompi:sm"
    if not os.access(program, os.X_OK):
        say("ompi: no test/mpi/bench: make mpi-programs, with an MPI compiler (Debian: libopenmpi-dev)")
        return [Absent("ompi:shmcma"), Absent(own)]
    return [Mpi(name, mpirun, program, options, env) for name in ("ompi:shmcma", own)]


def call_subjects(build, directory, fabrics):
    """`fabrics`: name, provider and environment of those who are measured by fabric_bench."""
    missing = [program for program in ("valgrind", "objdump") if not shutil.which(program)]
    if missing:
        say(f"calls: no {missing[0]} (Debian: valgrind, binutils)")
        return []
    program = os.path.join(build, "test/bench/call_bench")
    return [Calls(name, [program, provider], env, directory) for name, provider, env in fabrics]


def all_subjects(build, options, directory):
    fabric, floor = (os.path.join(build, "test/bench", name) for name in ("fabric_bench", "floor_bench"))
    env = {"FI_PROVIDER_PATH": os.path.join(build, "lib")}
    kinds = [kind for kind in KINDS if kind not in ("floor", "calls", "mpi")]
    fabrics = [(name, name, env) for name in options.providers]
    if options.libfabric:
        fabrics.append(("shm:new", "shm", {"LD_LIBRARY_PATH": options.libfabric, "FI_PROVIDER_PATH": ""}))
    else:
        say("shm:new: no other libfabric than the system's; BENCH_LIBFABRIC names the directory of one")
    subjects = [Program(name, [fabric, "-C", "-k", "KIND", provider], options, kinds, environment)
                for name, provider, environment in fabrics]
    subjects += [] if options.libfabric else [Absent("shm:new")]
    if shutil.which("ucx_perftest"):
        subjects.append(Ucx(options, directory, floor))
    else:
        say("ucx: no ucx_perftest (Debian: ucx-utils)")
        subjects.append(Absent("ucx"))
    subjects += call_subjects(build, directory, fabrics) + mpi_subjects(build, options, env)
    subjects.append(Program("machine", [floor, "-C"], options, ["floor"], {}))
    return subjects


# ---- all turns ---------------------------------------------------------------------------------------

said = []


def say(message):
    """Once, however many turns repeat it; it is part of the results."""
    if message not in said:
        said.append(message)
        print(f"bench: {message}", file=sys.stderr, flush=True)


def measure(subjects, options):
    """All samples; and what has failed. That is not tried in later turns."""
    samples, failed = [], set()
    for turn in range(options.turns):
        # another comes first in each turn: a virtual machine may take seconds to get used to a new load
        first = turn % len(subjects)
        for kind in options.kinds:
            for subject in subjects[first:] + subjects[:first]:
                if not subject.has(kind) or (subject.name, kind) in failed:
                    continue
                try:
                    found = subject.run(kind)
                except Failed as why:
                    failed.add((subject.name, kind))
                    if str(why):
                        say(f"{subject.name}: {kind}: {why}")
                    continue
                samples += [figures.Sample(figure, subject.name, x, turn, value, line)
                            for figure, x, value, line in found]
        if not options.quick:
            print(f"bench: turn {turn + 1} of {options.turns} done", file=sys.stderr, flush=True)
    return samples, failed


def about(options, names, before, seconds):
    """Lines "what: value" for the report."""
    model = version(["lscpu"], r"Model name:\s*(.*)")
    lines = [
        f"date: {time.strftime('%Y-%m-%d %H:%M %Z')}",
        f"processor: {model}, {os.cpu_count()} of them; used: {','.join(map(str, options.cpus))}",
        f"kernel: {platform.release()}",
        f"libfabric: {version(['fi_info', '--version'], r'libfabric: ([0-9.]+)')}",
        f"API of shm:new's libfabric: {api_version(options.libfabric)}",
        f"UCX: {version(['ucx_info', '-v'], r'[Vv]ersion[ =:]+([0-9.]+)')}",
        f"Open MPI: {version([os.environ.get('MPIRUN', 'mpirun.openmpi'), '--version'], r'([0-9]+[.][0-9.]+)')}",
        f"turns: {options.turns}, {options.milliseconds:g} ms for each figure",
        f"load average before and after: {before:.2f}, {os.getloadavg()[0]:.2f}",
        f"time taken: {seconds:.0f} s",
        f"subjects: {' '.join(names)}",
    ]
    return lines + [f"note: {message}" for message in said]


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that run() ends what runs
    build = os.path.abspath(sys.argv[1])
    options = Options()
    directory = os.environ.get("BENCH_OUT", os.path.join(build, "bench-results"))
    os.makedirs(directory, exist_ok=True)
    before, start = os.getloadavg()[0], time.monotonic()

    subjects = all_subjects(build, options, directory)
    names = list(dict.fromkeys(subject.name for subject in subjects))
    samples, failed = measure(subjects, options)
    catalogue = figures.catalogue(build)
    figures.write_samples(directory, samples)
    results = figures.Results(samples)
    figures.write_medians(directory, results)
    figures.write_lines(directory, "about.txt", about(options, names, before, time.monotonic() - start))
    text = figures.tables(catalogue, results, names)
    figures.write_lines(directory, "table.txt", text)
    print("\n".join(text))
    print(f"\nbench: results are in {directory}; make bench-report writes a page with them")
    # valgrind does not read what each compiler writes
    sys.exit(any(name in (options.providers[0], "machine") and kind != "calls" for name, kind in failed))


main()
