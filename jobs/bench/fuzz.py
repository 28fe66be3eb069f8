"""Fuzz tests: damaged and crafted files of every format; each must give a named error, or the result of the intact
file.

    python jobs/bench/fuzz.py [--inputs 10000] [--seed 0] [--formats model,checkpoint,hdf5] [--keep FOLDER]

Inputs are made from small files written by the package: bits are flipped, bytes replaced by extremes, parts cut,
doubled or taken from another file; headers of archives and JSON files get wrong values in any field, and archives get a
new, valid checksum. Readers run in separate processes. Their outcomes are counted:

    refused      an error of the package, on one line, without control characters
    same         the result of the intact file
    other        another result: for formats without a checksum, where a changed digit is another number; for crafted
                 files, where a field may have another value
    traceback    any other exception, or an error that is not one line
    hang         more than 10 s
    memory       more than 400 MB for a file of some kilobytes
    crash        the process ended

The last four are failures, and so is another result of a damaged file with a checksum. Writes results/fuzz.json, and
exits with 1 after a failure; --keep saves the inputs that failed.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import random
import select
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from common import write
from fuzz_formats import Format, make_formats

from mllkm_scale.base.files.archive import read_archive, write_archive
from mllkm_scale.errors import MLLKMError

HANG_S = 10.0
MEMORY_BYTES = 400_000_000
BATCH = 20  # inputs of a process
FAILURES = ("traceback", "hang", "memory", "crash", "changed")
EXTREMES = (
    b"\x00",
    b"\xff",
    b"\x7f",
    b"\x80",
    b"\xff\xff\xff\xff",
    b"\x7f\xff\xff\xff",
    b"\xff" * 8,
    b"\n",
    b'"',
    b"[" * 3000,
)
WRONG: tuple[Any, ...] = (
    None, True, -1, 0, 1.5, 1e308, float("nan"), float("inf"), 10**400, 2**63, "", "text", "a\x1b[2J\n", "*/\\", "\x00",
    "é" * 5000, [], {}, [[]], [None], {"a": {"b": [{}]}},
)  # fmt: skip


def main() -> None:
    np.seterr(all="ignore")  # overflow is intended here
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--formats", default="")
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--results", default="fuzz", help="name of the file in results/; nothing for none")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="mllkm-fuzz-") as folder:
        formats = make_formats(Path(folder))
        if options.formats:
            formats = {name: formats[name] for name in options.formats.split(",")}
        counts, failures = fuzz(formats, options.inputs, options.seed, Path(folder), options.keep)
    print(table(counts))
    for name, outcome, why in failures[:40]:
        print(f"{name}: {outcome}: {why}", file=sys.stderr)
    if options.results:
        write(options.results, {"inputs": options.inputs, "seed": options.seed, "counts": counts, "failures": failures})
    sys.exit(1 if failures else 0)


def table(counts: dict[str, Counter[str]]) -> str:
    """Outcomes by format, as in docs/reliability.md."""
    columns = ("refused", "same", "other", *FAILURES)
    lines = [f"| {' | '.join(('format', 'inputs', *columns))} |", f"| --- |{' ---: |' * (len(columns) + 1)}"]
    for name, found in (*counts.items(), ("all", sum(counts.values(), Counter()))):
        numbers = [found.total(), *(found[column] for column in columns)]
        lines.append(f"| {name} | {' | '.join(f'{number:,}' for number in numbers)} |")
    return "\n".join(lines)


def fuzz(
    formats: dict[str, Format], inputs: int, seed: int, folder: Path, keep: Path | None
) -> tuple[dict[str, Counter[str]], list[tuple[str, str, str]]]:
    """Counts by format and outcome, and the failures."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    failures: list[tuple[str, str, str]] = []
    wholes = {name: known.path.read_bytes() for name, known in formats.items()}
    for number, (name, known) in enumerate(formats.items()):
        made = -(-inputs * (number + 1) // len(formats)) - -(-inputs * number // len(formats))
        work = folder / "work" / name
        (work / "whole").mkdir(parents=True)
        expected = known.read(Path(shutil.copy(known.path, work / "whole")))
        for first in range(0, made, BATCH):
            rng = random.Random(f"{seed}/{name}/{first}")
            shutil.rmtree(work, ignore_errors=True)
            work.mkdir(parents=True)
            paths, crafted = [], []
            for at in range(min(BATCH, made - first)):
                content, is_crafted = changed(known, wholes[name], rng.choice(list(wholes.values())), rng, work)
                path = work / str(at) / known.path.name
                path.parent.mkdir()
                path.write_bytes(content)
                paths.append(path)
                crafted.append(is_crafted)
            for path, is_crafted, (outcome, told) in zip(paths, crafted, read_all(known.read, paths), strict=True):
                if outcome == "read":
                    outcome = "same" if told == expected else "changed" if known.checked and not is_crafted else "other"
                counts[name][outcome] += 1
                if outcome in FAILURES:
                    failures.append((name, outcome, told))
                    if keep is not None:
                        keep.mkdir(parents=True, exist_ok=True)
                        shutil.copy(path, keep / f"{name}-{len(failures)}-{path.name}")
    return counts, failures


# ---- damage to a file


def changed(known: Format, whole: bytes, other: bytes, rng: random.Random, work: Path) -> tuple[bytes, bool]:
    """A damaged or crafted file, and whether it is a crafted one."""
    if known.archive and rng.random() < 0.5:
        return crafted_seal(known, rng, work), True
    if known.is_json and rng.random() < 0.7:
        return crafted_json(whole, rng), True
    content = bytearray(whole)
    for _ in range(rng.choice((1, 1, 1, 2, 5, 20))):
        at = rng.randrange(len(content)) if content else 0
        match rng.randrange(6):
            case 0 | 1 if content:
                content[at] ^= 1 << rng.randrange(8)
            case 2:
                extreme = rng.choice(EXTREMES)
                content[at : at + len(extreme)] = extreme
            case 3:
                del content[at : at + rng.choice((1, 4, 100, len(content)))]
            case 4:
                content[at:at] = content[at : at + rng.choice((1, 8, 200))]
            case _:
                start = rng.randrange(max(1, len(other)))
                piece = other[start : start + rng.choice((4, 64, 1000))]
                content[at : at + len(piece)] = piece
    return bytes(content), False


def crafted_seal(known: Format, rng: random.Random, work: Path) -> bytes:
    """An archive file with a valid checksum, and another header or other arrays."""
    header, arrays = read_archive(known.path, kind=known.archive, version=99, error=MLLKMError)
    for _ in range(rng.choice((1, 1, 2))):
        if rng.random() < 0.5 or not arrays:
            header = with_wrong_field(header, rng)
        else:
            name = rng.choice(sorted(arrays))
            changed_array = wrong_array(arrays[name], rng)
            arrays = {key: values for key, values in arrays.items() if key != name}
            if changed_array is not None:
                arrays[name] = changed_array
    target = work / "archive"
    try:
        write_archive(target, kind=known.archive, version=1, header=header, arrays=arrays)
    except MLLKMError:  # the writer has refused it
        return known.path.read_bytes()
    return target.read_bytes()


def wrong_array(values: np.ndarray, rng: random.Random) -> np.ndarray | None:
    """An array of other numbers, shape or type; None for none."""
    flat = values.copy()
    match rng.randrange(8):
        case 0:
            return None
        case 1 if values.ndim:
            return values[:-1]
        case 2:
            return values[None]
        case 3 if values.dtype.kind in "iuf":
            return -flat
        case 4:
            return flat.astype(rng.choice(["f4", "i8", "U5", "b1"])) if values.dtype.kind != "U" else flat.astype("S")
        case 5 if values.dtype.kind == "f" and values.size:
            flat.reshape(-1)[rng.randrange(values.size)] = rng.choice([np.nan, np.inf, -1.0, 1e308, 0.0])
        case 6 if values.dtype.kind in "iu" and values.size:
            flat.reshape(-1)[rng.randrange(values.size)] = rng.choice([-1, 2**31, 2**62, 0])
        case _ if values.size and values.dtype.kind in "iufb":
            flat = np.roll(flat, 1)
    return flat


def with_wrong_field(value: Any, rng: random.Random) -> Any:
    """A JSON value in which a field is changed, missing or added."""
    paths = list(fields(value))
    changed_value = copy.deepcopy(value)
    if not paths:
        return rng.choice(WRONG)
    path, inner = rng.choice(paths), changed_value
    for key in path[:-1]:
        inner = inner[key]
    match rng.randrange(5):
        case 0:
            del inner[path[-1]]
        case 1 if isinstance(inner, dict):
            inner[rng.choice(("extra", "", "\x1b", "__class__"))] = rng.choice(WRONG)
        case _:
            inner[path[-1]] = rng.choice(WRONG)
    return changed_value


def crafted_json(whole: bytes, rng: random.Random) -> bytes:
    """A JSON file, or a file with a JSON object per line, with a wrong field."""
    lines = whole.decode().splitlines()
    try:
        found, at = json.loads(whole), None
    except ValueError:
        at = rng.randrange(len(lines))
        found = json.loads(lines[at])
    text = json.dumps(with_wrong_field(found, rng))
    if at is None:
        return text.encode()
    return "\n".join([*lines[:at], text, *lines[at + 1 :], ""]).encode()


def fields(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Paths of all fields of a JSON value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield (*path, key)
        yield from fields(item, (*path, key))


# ---- readers in processes


def read_all(read: Callable[[Path], str], paths: list[Path]) -> list[tuple[str, str]]:
    """The outcome for each path; a process that hangs or ends is replaced."""
    outcomes: list[tuple[str, str]] = []
    while len(outcomes) < len(paths):
        outcomes += _by_a_process(read, paths[len(outcomes) :])
    return outcomes


def _by_a_process(read: Callable[[Path], str], paths: list[Path]) -> list[tuple[str, str]]:
    """Outcomes of the first paths: of all, or up to one at which the process hung or ended."""
    receiving, sending = os.pipe()
    sys.stdout.flush()
    child = os.fork()
    if not child:
        os.close(receiving)
        with os.fdopen(sending, "w") as told, open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), 1)
            os.dup2(nowhere.fileno(), 2)
            for path in paths:
                told.write(json.dumps(_outcome(read, path)) + "\n")
                told.flush()
        os._exit(0)
    os.close(sending)
    outcomes: list[tuple[str, str]] = []
    with os.fdopen(receiving) as told:
        while len(outcomes) < len(paths):
            if not select.select([told], [], [], HANG_S)[0]:
                outcomes.append(("hang", f"{paths[len(outcomes)].name}: no answer after {HANG_S:.0f} s"))
                os.kill(child, signal.SIGKILL)
                break
            line = told.readline()
            if not line:
                outcomes.append(("crash", f"{paths[len(outcomes)].name}: the process ended"))
                break
            outcome, text = json.loads(line)
            outcomes.append((outcome, text))
    os.waitpid(child, 0)
    return outcomes


def _outcome(read: Callable[[Path], str], path: Path) -> tuple[str, str]:
    before = _reset_peak()
    started = time.monotonic()
    try:
        outcome, told = "read", read(path)
    except MLLKMError as error:
        lines = str(error).split("\n")
        plain = all(line.isprintable() and line.strip() for line in lines) and len(lines) <= 25
        outcome, told = ("refused", "") if plain else ("traceback", f"not one plain line: {str(error)!r}"[:300])
    except BaseException:
        outcome, told = "traceback", " | ".join(traceback.format_exc().splitlines()[-5:])[:600]
    if _peak_bytes() - before > MEMORY_BYTES:
        return "memory", f"{(_peak_bytes() - before) / 1e6:.0f} MB for {path.stat().st_size:,} bytes"
    if time.monotonic() - started > HANG_S:
        return "hang", f"{time.monotonic() - started:.1f} s"
    return outcome, told


def _reset_peak() -> int:
    """Reset the peak memory if the system allows it; returns the resident bytes."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    return _status_bytes("VmRSS")


def _peak_bytes() -> int:
    return _status_bytes("VmHWM")


def _status_bytes(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return 1024 * int(line.split()[1])
    return 0


if __name__ == "__main__":
    main()
