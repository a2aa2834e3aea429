#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""MPI from Python: pickled objects, buffers, collectives, probes, splits and threads.

mpi4py asks for MPI_THREAD_MULTIPLE, so this is also the run in which the provider is opened
for use by several threads. Buffers are numpy arrays where numpy is there, else the array
module's. One line on success; otherwise a message, and the whole job ends with an error.
"""

import array
import faulthandler
import os
import signal
import sys
import threading
import zlib

from mpi4py import MPI

try:
    if os.environ.get("MPITEST_NO_NUMPY"):
        raise ImportError
    import numpy
except ImportError:
    numpy = None

WORLD = MPI.COMM_WORLD
RANK = WORLD.Get_rank()
SIZE = WORLD.Get_size()
NEXT = (RANK + 1) % SIZE
LAST = (RANK - 1) % SIZE
DEADLINE = int(os.environ.get("MPITEST_SECTION_SECONDS", "600"))

checks = 0
checks_lock = threading.Lock()


def check(condition, what):
    """Count one check; end the job if it failed."""
    global checks
    with checks_lock:
        checks += 1
    if not condition:
        raise AssertionError(what)


def noise(length, *seed):
    """`length` bytes that only their seed decides."""
    state = zlib.crc32(repr(seed).encode()) or 1
    piece = bytearray()
    while len(piece) < min(length, 4096):
        state = (state * 1103515245 + 12345) & 0xFFFFFFFF
        piece += state.to_bytes(4, "little")
    out = bytearray()
    block = 0
    while len(out) < length:
        out += (zlib.crc32(bytes(piece), block)).to_bytes(4, "little")
        out += piece
        block += 1
    return bytes(out[:length])


def ints(count, *seed):
    """An array of `count` C ints below 1000."""
    values = [b % 251 * 3 for b in noise(count, *seed)]
    if numpy is not None:
        return numpy.array(values, dtype="i")
    return array.array("i", values)


def blank(count, kind="i"):
    """A zeroed array to receive into."""
    if numpy is not None:
        return numpy.zeros(count, dtype=kind)
    return array.array(kind, [0]) * count


def same(a, b):
    return bytes(memoryview(a).cast("B")) == bytes(memoryview(b).cast("B"))


# ---- sections ----


def an_object(rank, size):
    return {
        "rank": rank,
        "text": "message of %d" % rank * (size // 20 + 1),
        "bytes": noise(size, rank, size),
        "nested": [(rank, i, {"even": i % 2 == 0}) for i in range(20)],
        "none": None,
        "number": 3.25 * rank,
    }


def objects():
    """Pickled objects, whose length the receiver learns by a matched probe."""
    for size in (0, 10, 1000, 5000, 70000, 2000000):
        request = WORLD.isend(an_object(RANK, size), dest=NEXT, tag=size % 97)
        got = WORLD.recv(source=LAST, tag=size % 97)
        request.wait()
        check(got == an_object(LAST, size), "object with %d bytes" % size)
        got = WORLD.sendrecv(an_object(RANK, size), dest=LAST, source=NEXT)
        check(got == an_object(NEXT, size), "exchanged object with %d bytes" % size)
    # Open MPI 4.1 never ends a synchronous send to a matched receive (see p2p.c), and recv() is
    # one unless it is given a buffer.
    request = WORLD.irecv(bytearray(100000), source=LAST, tag=5)
    send = WORLD.ssend if RANK % 2 else WORLD.send
    send(an_object(RANK, 50000), dest=NEXT, tag=5)
    check(request.wait() == an_object(LAST, 50000), "object into a buffer of its own")


def object_collectives():
    for root in range(SIZE):
        data = WORLD.bcast(an_object(root, 3000) if RANK == root else None, root=root)
        check(data == an_object(root, 3000), "bcast of an object")
        data = WORLD.gather(an_object(RANK, 100 * RANK), root=root)
        expected = [an_object(i, 100 * i) for i in range(SIZE)] if RANK == root else None
        check(data == expected, "gather of objects")
        data = WORLD.scatter(
            [an_object(i, 9000) for i in range(SIZE)] if RANK == root else None, root=root
        )
        check(data == an_object(RANK, 9000), "scatter of objects")
        total = WORLD.reduce([RANK], op=MPI.SUM, root=root)
        check(total == (list(range(SIZE)) if RANK == root else None), "reduce of lists")
    check(
        WORLD.allgather("rank %d" % RANK) == ["rank %d" % i for i in range(SIZE)],
        "allgather of strings",
    )
    got = WORLD.alltoall([(RANK, i) for i in range(SIZE)])
    check(got == [(i, RANK) for i in range(SIZE)], "alltoall of tuples")
    check(WORLD.allreduce({RANK}, op=lambda a, b: a | b) == set(range(SIZE)), "union of sets")
    check(WORLD.scan(RANK + 1) == sum(range(1, RANK + 2)), "scan of numbers")
    if RANK > 0:
        check(WORLD.exscan(RANK + 1) == sum(range(1, RANK + 1)), "exscan of numbers")
    else:
        WORLD.exscan(RANK + 1)
    WORLD.barrier()


def buffers():
    for count in (0, 1, 15, 16, 17, 250, 1024, 2049, 4100, 30000, 400000):
        sent, got = ints(count, RANK, count), blank(count)
        WORLD.Sendrecv(sent, dest=NEXT, recvbuf=got, source=LAST)
        check(same(got, ints(count, LAST, count)), "%d ints" % count)
        got = blank(count + 3)
        status = MPI.Status()
        requests = [WORLD.Irecv(got, source=MPI.ANY_SOURCE, tag=MPI.ANY_TAG)]
        WORLD.Barrier()  # the wildcard must not meet the next count's message
        requests.append(WORLD.Issend(sent, dest=NEXT, tag=count % 50))
        requests[0].Wait(status)
        requests[1].Wait()
        check(status.Get_source() == LAST and status.Get_tag() == count % 50, "status")
        check(status.Get_count(MPI.INT) == count, "count %d" % status.Get_count(MPI.INT))
        check(same(memoryview(got)[:count], ints(count, LAST, count)), "%d ints, wild" % count)
        check(list(got[count:]) == [0, 0, 0], "ints behind the message")
        WORLD.Barrier()


def buffer_collectives():
    for count in (1, 100, 5000, 60000):
        root = count % SIZE
        data = ints(count, root) if RANK == root else blank(count)
        WORLD.Bcast(data, root=root)
        check(same(data, ints(count, root)), "Bcast of %d" % count)
        data = blank(count * SIZE)
        WORLD.Allgather(ints(count, RANK, 1), data)
        for i in range(SIZE):
            check(
                same(memoryview(data)[i * count : (i + 1) * count], ints(count, i, 1)),
                "Allgather of %d" % count,
            )
        got = blank(count * SIZE)
        mine = blank(0)
        for i in range(SIZE):
            mine = concatenate(mine, ints(count, RANK, i))
        WORLD.Alltoall(mine, got)
        for i in range(SIZE):
            check(
                same(memoryview(got)[i * count : (i + 1) * count], ints(count, i, RANK)),
                "Alltoall of %d" % count,
            )
        total = blank(count)
        WORLD.Allreduce(ints(count, RANK, 2), total, op=MPI.SUM)
        expected = [sum(column) for column in zip(*(list(ints(count, i, 2)) for i in range(SIZE)))]
        check(list(total) == expected, "Allreduce of %d" % count)
        doubles, mine = blank(count, "d"), ones(count) if RANK == root else blank(count, "d")
        # mpi4py 3.1 keeps no reference to the buffers of a collective: `mine` does.
        request = WORLD.Iallreduce(mine, doubles, op=MPI.MAX)
        request.Wait()
        check(list(doubles) == [1.0] * count, "Iallreduce of %d" % count)
    # Of different lengths: rank i contributes i + 1 ints.
    lengths = [i + 1 for i in range(SIZE)]
    got = blank(sum(lengths))
    WORLD.Gatherv(ints(RANK + 1, RANK, 3), (got, lengths) if RANK == 0 else None, root=0)
    if RANK == 0:
        at = 0
        for i in range(SIZE):
            check(same(memoryview(got)[at : at + i + 1], ints(i + 1, i, 3)), "Gatherv")
            at += i + 1


def concatenate(a, b):
    return numpy.concatenate([a, b]) if numpy is not None else a + b


def ones(count):
    return numpy.ones(count, dtype="d") if numpy is not None else array.array("d", [1.0] * count)


def strided():
    """Columns of a matrix, by a vector datatype."""
    rows, columns = 60, 70
    matrix = ints(rows * columns, RANK, 4)
    column = MPI.INT.Create_vector(rows, 1, columns)
    column.Commit()
    got = blank(rows)
    WORLD.Sendrecv([matrix, 1, column], dest=NEXT, recvbuf=got, source=LAST)
    check(list(got) == list(ints(rows * columns, LAST, 4))[::columns], "a column")
    column.Free()


def probes():
    status = MPI.Status()
    check(not WORLD.Iprobe(MPI.ANY_SOURCE, MPI.ANY_TAG), "a message that nobody sent")
    WORLD.Barrier()
    for size in (0, 3, 900, 20000, 500000):
        sent = noise(size, RANK)
        request = WORLD.Isend([sent, MPI.BYTE], dest=NEXT, tag=11)
        WORLD.Probe(source=MPI.ANY_SOURCE, tag=11, status=status)
        check(status.Get_source() == LAST, "source %d" % status.Get_source())
        check(status.Get_count(MPI.BYTE) == size, "probe of %d bytes" % size)
        got = bytearray(size)
        message = WORLD.Mprobe(source=LAST, tag=MPI.ANY_TAG, status=status)
        check(not WORLD.Iprobe(LAST, 11), "a message that a matched probe had taken")
        message.Recv([got, MPI.BYTE])
        request.Wait()
        check(bytes(got) == noise(size, LAST), "matched receive of %d bytes" % size)
        request = WORLD.isend(sent, dest=NEXT, tag=12)
        message = None
        while message is None:
            message = WORLD.improbe(source=LAST, tag=12)
        check(message.recv() == noise(size, LAST), "matched object of %d bytes" % size)
        request.wait()
        WORLD.Barrier()


def splits():
    for colors in range(1, SIZE + 1):
        part = WORLD.Split(RANK % colors, key=-RANK)
        ranks = [i for i in range(SIZE - 1, -1, -1) if i % colors == RANK % colors]
        check(part.allgather(RANK) == ranks, "ranks of a split into %d" % colors)
        total = blank(1000)
        part.Allreduce(ints(1000, RANK, 6), total)
        expected = [sum(c) for c in zip(*(list(ints(1000, i, 6)) for i in ranks))]
        check(list(total) == expected, "sum over a split into %d" % colors)
        part.Free()
    copies = [WORLD.Dup() for _ in range(30)]
    requests = [c.isend((i, RANK), dest=NEXT, tag=1) for i, c in enumerate(copies)]
    for i, c in reversed(list(enumerate(copies))):
        check(c.recv(source=LAST, tag=1) == (i, LAST), "message of another communicator")
    MPI.Request.waitall(requests)
    for c in copies:
        c.Free()


def flood():
    """Many unexpected objects, received in the order of sending."""
    requests = [WORLD.isend((RANK, i, noise(i % 3000, i)), dest=NEXT, tag=2) for i in range(500)]
    WORLD.Barrier()
    for i in range(500):
        check(WORLD.recv(source=LAST, tag=2) == (LAST, i, noise(i % 3000, i)), "object %d" % i)
    MPI.Request.waitall(requests)


def threads():
    """Two threads at once, each on its own communicator, both in blocking calls."""
    if MPI.Query_thread() < MPI.THREAD_MULTIPLE:
        return
    comms = [WORLD.Dup() for _ in range(2)]
    failures = []

    def work(which):
        try:
            comm = comms[which]
            for i in range(150):
                size = (10, 3000, 50000)[i % 3]
                got = bytearray(size)
                comm.Sendrecv(
                    [noise(size, RANK, which), MPI.BYTE],
                    dest=NEXT,
                    recvbuf=[got, MPI.BYTE],
                    source=LAST,
                )
                check(bytes(got) == noise(size, LAST, which), "bytes of thread %d" % which)
        except BaseException as failure:  # handed to the main thread
            failures.append(failure)

    workers = [threading.Thread(target=work, args=(i,)) for i in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    if failures:
        raise failures[0]
    for comm in comms:
        comm.Free()


SECTIONS = (
    objects,
    object_collectives,
    buffers,
    buffer_collectives,
    strided,
    probes,
    splits,
    flood,
    threads,
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
