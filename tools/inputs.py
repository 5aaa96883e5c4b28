"""What the plot tools share besides drawing: reading their input, and ending with one line instead of a traceback."""

import json
import math
import os
import sys


class InputError(Exception):
    """What is wrong with which file."""


def read_text(path):
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except UnicodeDecodeError:
        raise InputError(f"{path}: not text: it has bytes that are not UTF-8") from None
    except OSError as error:
        raise InputError(f"{path}: cannot read: {error.strerror}") from None


def parse_json(text, where):
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        what = "nothing in it" if not text.strip() else f"not JSON: {error}"
        raise InputError(f"{where}: {what}") from None


def field(entry, name, kinds, where):
    """A field of a JSON object, of one of some types; numbers are finite."""
    value = entry.get(name) if isinstance(entry, dict) else None
    wanted = kinds if isinstance(kinds, tuple) else (kinds,)
    fits = isinstance(value, wanted) and (not isinstance(value, bool) or bool in wanted)
    if not fits or (isinstance(value, (int, float)) and not abs(value) < 1e300):
        found = "missing" if value is None else f"{json.dumps(value)[:40]}"
        names = " or ".join({str: "text", int: "a number", float: "a number", dict: "an object", list: "a list",
                             bool: "true or false"}[kind] for kind in wanted[:1])
        raise InputError(f"{where}: {name} is {found}; expected {names}")
    return value


NUMBER = (float, int)


def positive(text):
    """argparse's type for a number above 0."""
    value = float(text)
    if not 0 < value < math.inf:
        raise ValueError
    return value


def finite(text):
    value = float(text)
    if not math.isfinite(value):
        raise ValueError
    return value


def run(main):
    """Runs a tool's main(). Exit status 1 and one line on standard error for what a user can meet."""
    name = os.path.basename(sys.argv[0])
    try:
        try:
            main()
        finally:  # while an error of it can still be told; --help comes here as well
            if sys.stdout is not None:
                sys.stdout.flush()
    except InputError as error:
        sys.exit(f"{name}: {error}")
    except BrokenPipeError:
        # Who read our output has gone; the interpreter would complain once more while it flushes.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.exit(f"{name}: the reader of the output has gone")
    except OSError as error:
        sys.exit(f"{name}: {error.filename or 'output'}: cannot write: {error.strerror}")
    except KeyboardInterrupt:
        sys.exit(f"{name}: interrupted")
