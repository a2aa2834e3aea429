#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""MPI one-sided from Python, with numpy arrays: windows, put and get, accumulate, locks.

Everybody's target is the next rank. mpi4py asks for MPI_THREAD_MULTIPLE, except where Open MPI's
osc/pt2pt would refuse to make windows then. One line on success; otherwise a message, and the
whole job ends with an error.
"""

import faulthandler
import os
import signal
import sys

import mpi4py
import numpy

if os.environ.get("OMPI_MCA_osc") == "pt2pt":
    mpi4py.rc.thread_level = "funneled"

from mpi4py import MPI

WORLD = MPI.COMM_WORLD
RANK = WORLD.Get_rank()
SIZE = WORLD.Get_size()
NEXT = (RANK + 1) % SIZE
LAST = (RANK - 1) % SIZE
DEADLINE = int(os.environ.get("MPITEST_SECTION_SECONDS", "600"))

checks = 0


def check(condition, what):
    """Count one check; end the job if it failed."""
    global checks
    checks += 1
    if not condition:
        raise AssertionError(what)


def noise(count, kind, *seed):
    """`count` numbers that only their seed decides."""
    generator = numpy.random.default_rng([count] + list(seed))
    return generator.integers(0, 100, count).astype(kind)


def settle(win):
    """Everybody's operations so far are done and seen; inside Lock_all."""
    win.Flush_all()
    win.Sync()
    WORLD.Barrier()
    win.Sync()


def windows(count, kind):
    """A window of each sort over `count` elements, and its memory here."""
    itemsize = numpy.dtype(kind).itemsize
    memory = numpy.zeros(count, kind)
    win = MPI.Win.Create(memory, itemsize, comm=WORLD)
    yield "created", win, memory
    win.Free()
    win = MPI.Win.Allocate(count * itemsize, itemsize, comm=WORLD)
    memory = numpy.frombuffer(win.tomemory(), kind)
    memory[:] = 0
    WORLD.Barrier()
    yield "allocated", win, memory
    del memory
    WORLD.Barrier()
    win.Free()


# ---- sections ----


def fences():
    for count in (1, 17, 1000, 300000):
        for name, win, memory in windows(count + 2, "f8"):
            sent = noise(count, "f8", RANK)
            win.Fence()
            win.Put(sent, NEXT, target=1)
            win.Fence()
            check((memory[1:-1] == noise(count, "f8", LAST)).all(), "put of %d, %s" % (count, name))
            check(memory[0] == 0 and memory[-1] == 0, "what is beside a put of %d" % count)
            got = numpy.zeros(count)
            win.Fence()
            win.Get(got, NEXT, target=1)
            win.Fence()
            check((got == sent).all(), "get of %d, %s" % (count, name))


def locks():
    for kind in (MPI.LOCK_SHARED, MPI.LOCK_EXCLUSIVE):
        for name, win, memory in windows(5000, "i4"):
            for turn in range(5):
                sent = noise(5000, "i4", RANK, turn)
                win.Lock(NEXT, kind)
                win.Put(sent, NEXT)
                win.Unlock(NEXT)
                WORLD.Barrier()
                win.Lock(RANK, MPI.LOCK_SHARED)
                check((memory == noise(5000, "i4", LAST, turn)).all(), "put under lock, " + name)
                win.Unlock(RANK)
                got = numpy.zeros(5000, "i4")
                win.Lock(NEXT, kind)
                win.Get(got, NEXT)
                win.Flush(NEXT)
                check((got == sent).all(), "get under lock, " + name)
                win.Unlock(NEXT)
                WORLD.Barrier()


def posts():
    group = WORLD.Get_group()
    to, origin = group.Incl([NEXT]), group.Incl([LAST])
    for name, win, memory in windows(900, "i8"):
        for turn in range(6):
            sent = noise(900, "i8", RANK, turn)
            win.Post(origin)
            win.Start(to)
            win.Put(sent, NEXT)
            win.Complete()
            if turn % 2:
                win.Wait()
            else:
                while not win.Test():
                    pass
            check((memory == noise(900, "i8", LAST, turn)).all(), "put between posts, " + name)
    for one in (to, origin, group):
        one.Free()


def accumulates():
    reductions = (
        (MPI.SUM, lambda rows: rows.sum(axis=0)),
        (MPI.PROD, lambda rows: rows.prod(axis=0)),
        (MPI.MAX, lambda rows: rows.max(axis=0)),
        (MPI.MIN, lambda rows: rows.min(axis=0)),
    )
    for kind in ("i4", "i8", "f4", "f8"):
        for name, win, memory in windows(400, kind):
            win.Lock_all()
            for op, reduce in reductions:
                memory[:] = 2
                settle(win)
                added = [noise(400, kind, RANK, to) % 5 for to in range(SIZE)]
                for to in range(SIZE):
                    win.Accumulate(added[to], to, op=op)
                settle(win)
                rows = [noise(400, kind, origin, RANK) % 5 for origin in range(SIZE)]
                rows.append(numpy.full(400, 2, kind))
                check((memory == reduce(numpy.stack(rows))).all(), "%s of %s" % (name, kind))
                settle(win)
            former, five, none = (numpy.full(400, value, kind) for value in (0, 5, 0))
            memory[:] = RANK
            settle(win)
            win.Get_accumulate(five, former, NEXT, op=MPI.SUM)
            win.Flush(NEXT)
            check((former == NEXT).all(), "former values, " + name)
            win.Get_accumulate(none, former, NEXT, op=MPI.NO_OP)
            win.Flush(NEXT)
            check((former == NEXT + 5).all(), "new values, " + name)
            settle(win)
            win.Unlock_all()


def counters():
    """Tickets from a counter on rank 0: everybody's together are 0, 1, 2 ..."""
    turns = 100
    for name, win, memory in windows(4, "i8"):
        one = numpy.ones(1, "i8")
        ticket = numpy.zeros(1, "i8")
        mine = []
        win.Lock_all()
        for _ in range(turns):
            win.Fetch_and_op(one, ticket, 0, 1, MPI.SUM)
            win.Flush(0)
            mine.append(int(ticket[0]))
        win.Unlock_all()
        check(mine == sorted(mine), "tickets out of order, " + name)
        everybody = sorted(sum(WORLD.allgather(mine), []))
        check(everybody == list(range(turns * SIZE)), "tickets, " + name)
        check(RANK or list(memory) == [0, turns * SIZE, 0, 0], "the counter, " + name)


def swaps():
    """Only one of all ranks wins a word. Rank 0 looks on: see can_swap() in osc.c."""
    memory = numpy.zeros(50, "i8")
    win = MPI.Win.Create(memory, 8, comm=WORLD)
    former = numpy.zeros(1, "i8")
    won = []
    win.Lock_all()
    for at in range(50):
        if RANK:
            value, free = numpy.array([RANK], "i8"), numpy.zeros(1, "i8")
            win.Compare_and_swap(value, free, former, 0, at)
            win.Flush(0)
            if former[0] == 0:
                won.append(at)
    win.Unlock_all()
    every = WORLD.gather(won)
    if RANK == 0:
        check(sorted(sum(every, [])) == list(range(50)), "each word is won once")
        for rank, places in enumerate(every):
            check(all(memory[at] == rank for at in places), "words of rank %d" % rank)
    WORLD.Barrier()
    win.Free()


def requests():
    for name, win, memory in windows(8 * 3000, "i4"):
        win.Lock_all()
        parts = [noise(3000, "i4", RANK, i) for i in range(8)]
        puts = [win.Rput(part, NEXT, 3000 * i) for i, part in enumerate(parts)]
        MPI.Request.Waitall(puts)
        settle(win)
        for i in range(8):
            part = memory[3000 * i : 3000 * (i + 1)]
            check((part == noise(3000, "i4", LAST, i)).all(), "put %d with request, %s" % (i, name))
        got = [numpy.zeros(3000, "i4") for _ in range(8)]
        gets = [win.Rget(part, NEXT, 3000 * i) for i, part in enumerate(got)]
        MPI.Request.Waitall(gets)
        for i in range(8):
            check((got[i] == parts[i]).all(), "get %d with request, %s" % (i, name))
        settle(win)
        ones = numpy.ones(3000, "i4")
        win.Raccumulate(ones, NEXT, op=MPI.SUM).Wait()
        settle(win)
        check((memory[:3000] == noise(3000, "i4", LAST, 0) + 1).all(), "sum with request, " + name)
        win.Unlock_all()


def strided():
    """A column of the next rank's matrix, by a vector datatype on the target's side."""
    matrix = noise(60 * 70, "i4", RANK)
    win = MPI.Win.Create(matrix, 4, comm=WORLD)
    column = MPI.INT.Create_vector(60, 1, 70).Commit()
    got = numpy.zeros(60, "i4")
    win.Fence()
    win.Get([got, 60, MPI.INT], NEXT, (5, 1, column))
    win.Fence()
    check((got == noise(60 * 70, "i4", NEXT)[5::70]).all(), "a column")
    sent = got + 1
    win.Put([sent, 60, MPI.INT], NEXT, (6, 1, column))
    win.Fence()
    check((matrix[6::70] == matrix[5::70] + 1).all(), "a column that was put")
    column.Free()
    win.Free()


def dynamic():
    win = MPI.Win.Create_dynamic(comm=WORLD)
    for turn in range(5):
        memory = numpy.zeros(1000 << turn, "u1")
        sent = noise(len(memory), "u1", RANK)
        win.Attach(memory)
        there = WORLD.sendrecv(MPI.Get_address(memory), dest=LAST, source=NEXT)
        win.Lock(NEXT)
        win.Put(sent, NEXT, there)
        win.Unlock(NEXT)
        WORLD.Barrier()
        win.Lock(RANK)
        check((memory == noise(len(memory), "u1", LAST)).all(), "put into attached memory")
        win.Unlock(RANK)
        WORLD.Barrier()
        win.Detach(memory)
    WORLD.Barrier()
    win.Free()


SECTIONS = (
    fences,
    locks,
    posts,
    accumulates,
    counters,
    swaps,
    requests,
    strided,
    dynamic,
)


def say(text):
    print("mpi4py: rank %d of %d, %s" % (RANK, SIZE, text), file=sys.stderr, flush=True)


def main():
    for section in SECTIONS:
        # A rank that hangs in a call prints where; then SIGALRM ends it, and mpirun the rest.
        faulthandler.dump_traceback_later(DEADLINE)
        signal.alarm(DEADLINE + 2)
        WORLD.Barrier()
        if os.environ.get("MPITEST_VERBOSE") and RANK == 0:
            say("%.3f %s" % (MPI.Wtime(), section.__name__))
        try:
            section()
        except BaseException as failure:
            say('section "%s": FAILED: %s: %s' % (section.__name__, type(failure).__name__, failure))
            WORLD.Abort(1)
    faulthandler.cancel_dump_traceback_later()
    total = WORLD.reduce(checks, root=0)
    if RANK == 0:
        print("mpi4py: %d checks passed" % total, flush=True)


main()
