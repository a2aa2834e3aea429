# SPDX-License-Identifier: BSD-2-Clause
#
# contract.py CONTRACT.md TESTDIR HEADER... - run by check-contract.sh.
#
# Compares the tables of CONTRACT.md with libfabric's headers and with the tests:
#  - each call, constant and field of a structure that these headers have is named in the first column of a row;
#  - each name in a first column is in the headers, so that no row is about what there is not;
#  - each test in the last column ("file: case, case; file: case") is among the cases of that program;
#  - a row without a test says so ("no test").
# Headers of a later version than the tables may have more, which is printed and no fault.
import os
import re
import sys

# What names a header or a version and is not to be called, set or read.
NOT_NAMES = re.compile(r"FI_[A-Z0-9_]+_H$|FI_DEPRECATED_FUNC$|FI_M(AJOR|INOR)_VERSION$|FI_REVISION_VERSION$")
# Structures of calls and objects: their members are the calls themselves.
NOT_STRUCTS = re.compile(r"fi_ops(_|$)|fid(_|$)")


def without_comments(text):
    text = re.sub(r"/\*.*?\*/", " ", text, flags=re.S)
    return re.sub(r"//[^\n]*", " ", text)


def blocks(text, start):
    """Text between the brace at `start` and its counterpart, both left out, and where that ends."""
    depth = 0
    for i in range(start, len(text)):
        depth += {"{": 1, "}": -1}.get(text[i], 0)
        if not depth:
            return text[start + 1 : i], i
    sys.exit("unbalanced braces in a header")


def fields(body):
    """Names of the fields of a structure; those of a union or structure in it, too."""
    names = []
    for declaration in re.split(r"[;{}]", body):
        declaration = re.sub(r"\[.*?\]", "", declaration).strip()
        pointer = re.match(r"[\w\s]*\(\*(\w+)\)", declaration)
        if pointer:
            names.append(pointer.group(1))
        elif re.search(r"\w[\s*]+\w+$", declaration) or re.match(r"\w+$", declaration):
            names.append(re.search(r"(\w+)$", declaration).group(1))
    return [name for name in names if name not in ("union", "struct")]


def names_of(header):
    text = without_comments(open(header).read())
    # constants: defined, or in an enumeration
    names = set(re.findall(r"^#define\s+(FI_[A-Z0-9_]+)", text, re.M))
    for match in re.finditer(r"\benum\b\s*\w*\s*\{", text):
        body, _ = blocks(text, match.end() - 1)
        names.update(re.findall(r"(?:^|,)\s*(FI_[A-Z0-9_]+)", body))
    # calls: declared, or defined as a static function
    names.update(re.findall(r"^(?!typedef)[a-z][\w \t*\n]*?\b(fi_\w+)\s*\(", text, re.M))
    for match in re.finditer(r"\bstruct\s+(\w+)\s*\{", text):
        if not NOT_STRUCTS.match(match.group(1)):
            body, _ = blocks(text, match.end() - 1)
            names.update(match.group(1) + "." + field for field in fields(body))
    return {name for name in names if not NOT_NAMES.match(name)}


def version_of(header):
    text = open(header).read()
    return tuple(int(re.search(r"#define FI_%s_VERSION\s+(\d+)" % part, text).group(1)) for part in ("MAJOR", "MINOR"))


def rows_of(contract):
    """(line, cells) of each row of each table, without its two head lines."""
    rows, before = [], ["", ""]
    for number, line in enumerate(open(contract), 1):
        if line.startswith("|"):
            head = not before[1].startswith("|") or not before[0].startswith("|")
            if not head:
                rows.append((number, [cell.strip() for cell in line.strip().strip("|").split("|")]))
        before = [before[1], line]
    return rows


def cases_of(program, directory):
    """
    Cases that a test program registers: macros of one argument or more, and names, in its table. Programs of
    several processes name theirs as they run: of these, functions.
    """
    path = os.path.join(directory, program if "/" in program else "fabric/" + program) + ".c"
    if not os.path.exists(path):
        return None
    text = without_comments(open(path).read())
    if "/" in program:
        return set(re.findall(r"^static (?:void|int) (\w+)\(", text, re.M))
    table = "".join(re.findall(r"CMUnitTest\s+\w+\[\]\s*=\s*\{(.*?)\s\};", text, re.S))
    for header in re.findall(r'#include "(\w+\.h)"', text):
        shared = os.path.join(directory, "fabric", header)
        if os.path.exists(shared):
            for macro, body in re.findall(r"#define (\w+_TESTS)((?:.*\\\n)*.*)", open(shared).read()):
                if re.search(r"\b%s\b" % macro, table):
                    table += body
    return set(re.findall(r"\w+\(\s*(\w+)", table)) | set(re.findall(r'"(\w+)"', table))


def check_tests(cell, directory, known):
    """What is wrong with the last cell of a row."""
    if cell.startswith("no test"):
        return []
    wrong = []
    for part in cell.split(";"):
        program, _, cases = part.strip().partition(": ")
        if program not in known:
            known[program] = cases_of(program, directory)
        if known[program] is None:
            wrong.append("there is no program '%s'" % program)
            continue
        for case in cases.split(", ") if cases else [""]:
            if case.strip() not in known[program]:
                wrong.append("%s has no case '%s'" % (program, case.strip()))
    return wrong


def main():
    contract, directory, headers = sys.argv[1], sys.argv[2], sys.argv[3:]
    declared = set()
    for header in headers:
        declared |= names_of(header)
    version = version_of(next(h for h in headers if h.endswith("/fabric.h")))
    meant = tuple(int(n) for n in re.search(r"libfabric (\d+)\.(\d+)", open(contract).read()).groups())
    named, known, failed, untested = set(), {}, 0, 0
    rows = rows_of(contract)
    for number, cells in rows:
        own = re.findall(r"`([\w.]+)`", cells[0])
        named.update(own)
        wrong = [] if own and len(cells) in (2, 3) else ["not a row of names, what is done, tests"]
        wrong += ["'%s' is not in the headers" % name for name in own if name not in declared and version == meant]
        if len(cells) == 3:
            untested += cells[2].startswith("no test")
            wrong += check_tests(cells[2], directory, known)
        for what in wrong:
            print("%s:%d: %s" % (contract, number, what))
        failed += len(wrong)
    missing = sorted(declared - named)
    if missing and version > meant:
        print("new in libfabric %d.%d:" % version, " ".join(missing))
    elif missing and version == meant:
        print("in no row:", " ".join(missing))
        failed += len(missing)
    print("%d rows, %d names, %d rows without a test" % (len(rows), len(named), untested))
    return 1 if failed else 0


sys.exit(main())
