#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
#
# coverage.py [-v] OBJECTS FILE... - what coverage.sh has counted, against what coverage.md explains.
#
# OBJECTS: the directory of gcov's notes and counts; FILE: sources, as in src/os/shmfile.c or src/shm/ring.h. Run where the
# paths of the sources start. Prints for each file the branches that were taken, then each that was not and
# that coverage.md does not explain. -v: also those that it explains. An entry there is
#
#	- `function`: `text` (2): reason
#
# below a heading that names the file: at most two branches (without a number: one) were not taken, on the lines
# of that function that contain the text (white space does not count). gcov does not name the function of a line that is
# always inlined: the text alone says which line it is.
#
# Exit code: 1 if a branch is not explained, or if an entry is of a line that is not in the source any more.
# An entry whose branches were taken does no harm: what a race decides may come or not. -v names it.
import collections
import glob
import gzip
import json
import os
import re
import subprocess
import sys
import tempfile

ENTRY = re.compile(r'- `(?P<function>\w+)`: `(?P<text>[^`]+)`(?: \((?P<most>\d+)\))?: \S')


def squeeze(text):
    return ' '.join(text.split())


class Entry:
    def __init__(self, found):
        self.function = found['function']
        self.text = squeeze(found['text'])
        self.most = int(found['most'] or 1)
        self.stands = False  # in the source
        self.missing = 0

    def names(self, function, line):
        return self.function == (function or self.function) and self.text in line

    def __str__(self):
        return '`%s`: `%s`' % (self.function, self.text)


def read_explanations(path):
    """Entries by the name of the file, without its directory."""
    entries = collections.defaultdict(list)
    names = []
    with open(path) as text:
        for line in text:
            if line.startswith('## '):
                names = re.findall(r'\w+\.[ch]\b', line)
            elif names and line.startswith('- '):
                found = ENTRY.match(line)
                if not found:
                    sys.exit('%s: not an entry: %s' % (path, line.strip()))
                for name in names:
                    entries[name].append(Entry(found))
    return entries


def read_counts(objects):
    """{file: {(line, function, number of the branch in the line): times taken}}, of all objects together."""
    counts = collections.defaultdict(collections.Counter)
    gcov = os.environ.get('GCOV', 'gcov').split()
    with tempfile.TemporaryDirectory() as out:
        notes = [os.path.abspath(note) for note in glob.glob(objects + '/*.gcno')]
        subprocess.run(gcov + ['-b', '-j'] + notes, cwd=out, check=True, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL)
        for path in glob.glob(out + '/*.gcov.json.gz'):
            with gzip.open(path) as report:
                for source in json.load(report)['files']:
                    for line in source['lines']:
                        for number, branch in enumerate(line['branches']):
                            place = line['line_number'], line.get('function_name', ''), number
                            counts[source['file']][place] += branch['count']
    return counts


def explain(entries, function, text):
    """Is one more branch that was not taken on that line explained?"""
    for entry in entries:
        if entry.names(function, text) and entry.missing < entry.most:
            entry.missing += 1
            return True
    return False


def judge(path, counts, entries, verbose):
    """The number of complaints about one file."""
    with open(path) as source:
        lines = [squeeze(line) for line in source]
    for line, function, _ in counts:
        for entry in entries:
            entry.stands |= entry.names(function, lines[line - 1])
    missing = [place for place in sorted(counts) if not counts[place]]
    unexplained = []
    explained = []
    for place in missing:
        line, function, number = place
        known = explain(entries, function, lines[line - 1])
        (explained if known else unexplained).append(
            '  %s:%d: %s: branch %d of: %s' % (path, line, function, number, lines[line - 1]))
    gone = [entry for entry in entries if not entry.stands]
    print('%-16s %4d of %4d branches, %5.1f %%; %d explained, %d not' %
          (path, len(counts) - len(missing), len(counts),
           100 * (1 - len(missing) / len(counts)) if counts else 100, len(explained), len(unexplained)))
    for line in unexplained:
        print(line)
    for line in explained if verbose else []:
        print(line, '(explained)')
    for entry in gone:
        print('  %s: coverage.md explains what has no branch: %s' % (path, entry))
    for entry in entries if verbose else []:
        if entry.stands and entry.missing < entry.most:
            print('  %s: explained, but %d of %d taken: %s' %
                  (path, entry.most - entry.missing, entry.most, entry))
    return len(unexplained) + len(gone)


def main(args):
    verbose = args[:1] == ['-v']
    objects, *paths = args[verbose:]
    entries = read_explanations(os.path.join(os.path.dirname(__file__), 'coverage.md'))
    counts = read_counts(objects)
    complaints = 0
    for path in paths:
        complaints += judge(path, counts[path], entries[os.path.basename(path)], verbose)
    if complaints:
        print('coverage: %d complaints' % complaints)
    return 1 if complaints else 0


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
