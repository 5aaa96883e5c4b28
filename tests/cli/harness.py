"""Runs the program as a user does: as a process, with files, signals and a terminal. Standard library only.

Each test case has a folder of its own. A program is started as the leader of a session of its own, so that all it
started can be found (mpirun and the ranks stay in the session), and ended, without touching anything else.
"""

import contextlib
import json
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

PROGRAM = os.environ["EXPEDITE_PROGRAM"]
FIXTURES = Path(os.environ["EXPEDITE_FIXTURES"])

# Nothing here takes this long on an idle machine; it bounds a hang on a busy one.
LIMIT_S = 90.0
ENVIRONMENT = dict(
    os.environ,
    OMPI_ALLOW_RUN_AS_ROOT="1",
    OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
    OMPI_MCA_rmaps_base_oversubscribe="1",
    OMPI_MCA_mpi_yield_when_idle="1",
    OMPI_MCA_hwloc_base_binding_policy="none",
    # Ranks that share cores: a waiting OpenMP team must not keep one.
    OMP_WAIT_POLICY="passive",
)

MODEL = {
    "model_type": "qwen3_moe",
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 16,
    "intermediate_size": 48,
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 16,
    "norm_topk_prob": True,
    "max_position_embeddings": 128,
    "rope_theta": 10000.0,
}


def settings(text, **changes):
    """A configuration for a tiny model; `changes` are "section__key" names. The learning rate is constant, so that
    a run is the beginning of a longer one."""
    config = {
        "name": "tiny",
        "seed": 7,
        "dtype": "f32",
        "model": {"config": dict(MODEL)},
        "parallel": {},
        "moe": {"aux_loss_coeff": 0.01, "z_loss_coeff": 0.001},
        "data": {"path": str(text), "seq_length": 32, "validation_fraction": 0.1},
        "train": {
            "steps": 20,
            "global_batch_size": 8,
            "micro_batch_size": 2,
            "log_interval": 1,
            "eval_interval": 0,
            "eval_sequences": 8,
        },
        "optimizer": {"lr": 2.0e-3, "min_lr": 2.0e-3, "warmup_steps": 5},
        "trace": {"steps": 0},
        "runtime": {"collective_timeout_s": 60},
    }
    for name, value in changes.items():
        at = config
        *sections, key = name.split("__")
        for section in sections:
            at = at.setdefault(section, {})
        at[key] = value
    return config


def make_text(folder, size=24_000):
    """Made-up words in three files: text that a tiny model can learn something of."""
    draw = random.Random(1)
    syllables = [a + b for a in "bdfgklmnprst" for b in "aeiou"]
    words = ["".join(draw.choices(syllables, k=draw.randint(1, 3))) for _ in range(150)]
    folder.mkdir(parents=True, exist_ok=True)
    for index in range(3):
        lines = []
        while sum(map(len, lines)) < size // 3:
            lines.append(" ".join(draw.choices(words, k=draw.randint(3, 9))) + ".\n")
        (folder / f"part{index}.txt").write_text("".join(lines))
    return folder


def processes_of_session(session):
    """Ids of the living processes of a session, zombies left out."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError, IndexError, ValueError):
            fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
            if int(fields[3]) == session and fields[0] not in "ZX":
                found.append(int(entry.name))
    return found


class Process:
    """A started program. Leave it as a context: whatever is left of its session is ended."""

    def __init__(self, command, cwd, environment=None, stdout=None):
        self.folder = Path(tempfile.mkdtemp(prefix="output-", dir=cwd))
        with open(self.folder / "stdout", "wb") as out, open(self.folder / "stderr", "wb") as err:
            self.child = subprocess.Popen(
                [str(part) for part in command],
                cwd=cwd,
                env=environment or ENVIRONMENT,
                stdin=subprocess.DEVNULL,
                stdout=stdout if stdout is not None else out,
                stderr=err,
                start_new_session=True,
            )
        self.pid = self.child.pid

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()

    @property
    def stdout(self):
        return (self.folder / "stdout").read_text(errors="replace")

    @property
    def stderr(self):
        return (self.folder / "stderr").read_text(errors="replace")

    @property
    def output(self):
        return f"---- stdout\n{self.stdout}---- stderr\n{self.stderr}----"

    def wait(self, limit=LIMIT_S):
        """The exit status. A program that does not end is an error, and is ended."""
        try:
            return self.child.wait(limit)
        except subprocess.TimeoutExpired:
            self.end()
            raise AssertionError(f"no end after {limit} s\n{self.output}") from None

    def end(self):
        for _ in range(50):
            left = processes_of_session(self.pid)
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            if not left:
                break
            time.sleep(0.02)
        self.child.wait()

    def left_over(self, limit=10.0):
        """What of the session still lives, after waiting at most `limit` seconds for it to be gone."""
        begin = time.monotonic()
        while (left := processes_of_session(self.pid)) and time.monotonic() - begin < limit:
            time.sleep(0.05)
        return [(pid, Path(f"/proc/{pid}/cmdline").read_bytes()) for pid in left if Path(f"/proc/{pid}").exists()]

    def rank_pids(self):
        """Process ids by rank."""
        ranks = {}
        for pid in processes_of_session(self.pid):
            with contextlib.suppress(OSError):
                environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
                if os.path.basename(os.readlink(f"/proc/{pid}/exe")) != os.path.basename(PROGRAM):
                    continue
                for entry in environment:
                    if entry.startswith(b"OMPI_COMM_WORLD_RANK="):
                        ranks[int(entry.split(b"=")[1])] = pid
        return ranks


class Case(unittest.TestCase):
    """A test with a folder of its own that holds a text, data/."""

    maxDiff = None

    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="expedite-e2e-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.data = make_text(self.folder / "data")
        begin = time.monotonic()
        self.addCleanup(lambda: print(f"{time.monotonic() - begin:.1f} s ", end="", file=sys.stderr, flush=True))

    # ---- Running

    def write_config(self, file="config.yaml", **changes):
        """JSON is YAML."""
        path = self.folder / file
        path.write_text(json.dumps(settings(self.data, **changes), indent=1))
        return path

    def start(self, *arguments, program=(PROGRAM,), **options):
        process = Process([*program, *arguments], self.folder, **options)
        self.addCleanup(process.end)
        return process

    def train(self, *arguments, ranks=1, status=0, **changes):
        """Trains to the end; the run's folder is runs/<name>."""
        config = self.write_config(**changes)
        process = self.start("train", config, "--ranks", ranks, *arguments)
        self.assertEqual(process.wait(), status, process.output)
        return process

    def run_folder(self, name="tiny"):
        return self.folder / "runs" / name

    def metrics(self, name="tiny"):
        with contextlib.suppress(FileNotFoundError):
            lines = (self.run_folder(name) / "metrics.jsonl").read_text().splitlines(keepends=True)
            return [json.loads(line) for line in lines if line.endswith("\n")]
        return []

    def checkpoints(self, name="tiny"):
        return sorted((self.run_folder(name) / "checkpoints").glob("step-*"))

    def wait_for_steps(self, process, steps, name="tiny"):
        """Until the run has done so many steps."""
        self.wait_until(
            process, lambda: (m := self.metrics(name)) and m[-1]["step"] >= steps, f"{steps} steps of {name}"
        )

    def wait_until(self, process, condition, what):
        begin = time.monotonic()
        while not condition():
            if (process.child.poll() is not None and not condition()) or time.monotonic() - begin > LIMIT_S:
                self.fail(f"the program did not get to {what}\n{process.output}")
            time.sleep(0.01)

    # ---- Judging

    def assert_close(self, ours, theirs, tolerance, what=""):
        self.assertEqual(len(ours), len(theirs), what)
        for step, (a, b) in enumerate(zip(ours, theirs, strict=True), start=1):
            self.assertLessEqual(abs(a - b), tolerance * abs(b), f"{what}: step {step}: {a} against {b}")

    def assert_nothing_left(self, process, limit=10.0):
        self.assertEqual(process.left_over(limit), [], process.output)

    def assert_same_files(self, ours, theirs):
        def contents(folder):
            return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}

        a, b = contents(ours), contents(theirs)
        self.assertEqual(sorted(a), sorted(b))
        self.assertTrue(any("optimizer" in name for name in a), sorted(a))
        for name, content in a.items():
            self.assertTrue(content == b[name], f"{name} differs between {ours} and {theirs}")

    def assert_said_once(self, process, text):
        lines = [line for line in process.stderr.splitlines() if text in line]
        self.assertEqual(len(lines), 1, f"'{text}' in one line of stderr\n{process.output}")


def losses(metrics):
    return [line["loss"] for line in metrics]


def bits_of(metrics):
    """What must be the same in two runs of one layout."""
    fields = ("step", "loss", "aux_loss", "z_loss", "gradient_norm", "load_imbalance", "lr", "validation_bits_per_byte")
    return [[line.get(field) for field in fields] for line in metrics]


def read_safetensors(path):
    """{name: (dtype, shape, bytes)}."""
    content = Path(path).read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    header.pop("__metadata__", None)
    data = content[8 + length :]
    return {
        name: (entry["dtype"], entry["shape"], data[slice(*entry["data_offsets"])]) for name, entry in header.items()
    }


def write_safetensors(path, tensors):
    header, data = {}, b""
    for name, (dtype, shape, content) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    Path(path).write_bytes(struct.pack("<Q", len(text)) + text + data)


def floats(tensor):
    dtype, _, content = tensor
    assert dtype == "F32", dtype
    return list(struct.unpack(f"<{len(content) // 4}f", content))


def main():
    # Ended from outside, as by an impatient user, the cleanups still run.
    def end(*_):
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, end)
    unittest.main(verbosity=2)
