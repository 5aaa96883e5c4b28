"""The command line: help, mistakes in one line with exit status 2, numbers outside of their limits, versions, colour."""

import os
import pty
import re
import subprocess

import harness

ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}


def run(*arguments, cwd="/", environment=None):
    return subprocess.run(
        [harness.PROGRAM, *map(str, arguments)],
        cwd=cwd, env=environment or ENVIRONMENT, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=60,
    )  # fmt: skip


def commands(*name):
    """Every command with its help, those below included."""
    text = run(*name, "--help").stdout
    yield name, text
    listed = text.partition("\nSubcommands:\n")[2]
    for below in re.findall(r"(?m)^  ([a-z][a-z-]*) ", listed):
        yield from commands(*name, below)


def options(text):
    """(name, what it takes) of the options that a help shows."""
    return re.findall(r"(?m)^  (?:-\w,)?(--[a-z][a-z0-9-]*)(?: (INT \S+|NUMBER \S+|\S+))?", text)


class CommandLine(harness.Case):
    def refuse(self, *arguments, texts=(), status=2):
        process = run(*arguments, cwd=self.folder)
        said = f"{arguments}: {process.returncode}\n{process.stdout}{process.stderr}"
        self.assertEqual(process.returncode, status, said)
        self.assertEqual(process.stdout, "", said)
        self.assertEqual(len(process.stderr.splitlines()), 1, said)
        for text in texts:
            self.assertIn(text, process.stderr)
        return process.stderr

    def test_help_and_no_arguments(self):
        shown = run("--help")
        self.assertEqual((shown.returncode, shown.stderr), (0, ""))
        for same in (("help",), ("-h",)):
            self.assertEqual(run(*same).stdout, shown.stdout)
        alone = run()
        self.assertEqual((alone.returncode, alone.stdout, alone.stderr), (2, "", shown.stdout))
        for name in (("train",), ("bench",), ("bench", "layer"), ("help",)):
            shown = run(*name, "--help")
            self.assertEqual(shown.returncode, 0)
            asked = run("help", *name)
            self.assertEqual((asked.returncode, asked.stdout), (0, shown.stdout))
        self.assertEqual(run("bench").returncode, 2)

    def test_unknown_commands_and_options_name_the_nearest(self):
        self.refuse("trian", texts=["'trian'", "train"])
        self.refuse("help", "trian", texts=["'trian'", "train"])
        self.refuse("finetune", "x.yaml", texts=["train"])
        self.refuse("bench", "layers", texts=["'layers'", "layer"])
        self.refuse("train", "x.yaml", "--rnks", "2", texts=["--rnks", "--ranks"])
        self.refuse("train", "x.yaml", "--nproc_per_node=2", texts=["--ranks"])
        self.refuse("train", "x.yaml", "--lr", "1e-3", texts=["--set optimizer.lr=VALUE"])
        self.refuse("plan", "--modle", "x", texts=["--modle", "--model"])
        self.refuse("plan", "--gpus", 8, texts=["--devices"])
        self.refuse("--verison", texts=["--version"])
        self.refuse("train", "x.yaml", "y.yaml", texts=["'y.yaml'"])

    def test_missing_and_contradicting(self):
        self.refuse("train", texts=["expedite train", "CONFIG"])
        self.refuse("plan", texts=["--model"])
        self.refuse("train", "x.yaml", "--ranks", texts=["--ranks needs a value", "1..1024"])
        self.refuse("train", "x.yaml", "--ranks", 1, "--ranks", 2, texts=["--ranks", "keep one"])
        self.refuse("train", "x.yaml", "--resume=perhaps", texts=["--resume"])
        self.refuse("bench", "layer", "--dtype", "f16", texts=["--dtype", "bf16 or f32", "f16"])
        self.refuse("bench", "layer", "--topk", 8, "--experts", 4, texts=["--topk 8"])
        self.refuse("probe", "--ranks", 2, "--lab", "2x2", texts=["--ranks 2", "--lab 2x2"])
        self.refuse("simulate", "x.yaml", "--model", "y", texts=["CONFIG", "--model", "together"])

    def test_numbers_outside_of_their_limits(self):
        """Every option with a number, of every command."""
        wrong = ("0x10", "-1", "99999999999999999999999", "1e400", "nan", "inf", "", "many", "1,000", "3 ")
        tried = 0
        for name, text in commands():
            for option, takes in options(text):
                found = re.fullmatch(r"(INT|NUMBER) ([^.]\S*?)\.\.(\S+?)(?:\|\w+)?", takes)
                if not found:
                    self.assertNotRegex(takes, "INT|NUMBER|FLOAT", f"{name} {option}")
                    continue
                kind, low, high = found.groups()
                outside = [f"{2 * float(high):.0f}", f"{float(low) - 1:.0f}"] + (["1.5", "1e2"] if kind == "INT" else [])
                for value in (*wrong, *outside):
                    if value == "1,000" and "..." in text:
                        continue  # of an option that takes several
                    said = self.refuse(*name, f"{option}={value}", texts=[option])
                    if value:
                        self.assertIn(f"from {low} to {high}", said)
                        self.assertIn(value.strip(), said)
                    tried += 1
        self.assertGreater(tried, 300)

    def test_training_run_needs_a_probed_cluster(self):
        config = self.write_config()
        self.refuse("simulate", config, texts=["--cluster FILE", "expedite probe"])
        self.refuse("simulate", config, "--cluster", "h100", texts=["h100", "built in", "expedite probe"])
        said = self.refuse("simulate", "--cluster", "h100", texts=["--model", "--strategy", "--devices", "CONFIG"])
        self.assertNotIn("needs --cluster", said)
        self.refuse("simulate", config, "--cluster", "absent.yaml", texts=["absent.yaml"], status=1)

    def test_output_that_cannot_be_written(self):
        with open("/dev/full", "w") as full:
            process = subprocess.run([harness.PROGRAM, "config"], stdout=full, stderr=subprocess.PIPE, text=True)
        self.assertEqual(process.returncode, 1)
        self.assertIn("No space left", process.stderr)
        self.assertEqual(len(process.stderr.splitlines()), 1)

    def test_version(self):
        process = run("--version")
        self.assertEqual((process.returncode, process.stderr), (0, ""))
        lines = dict(line.split(None, 1) for line in process.stdout.splitlines())
        self.assertRegex(lines["expedite"], r"^\d+\.\d+\.\d+$")
        self.assertRegex(lines["commit"], r"^([0-9a-f]{12}(-dirty)?|unknown)$")
        self.assertRegex(lines["compiler"], r"\d+\.\d+")
        for library in ("Open MPI", "oneDNN", "Highway", "hwloc", "SentencePiece", "zlib", "CLI11"):
            self.assertRegex(process.stdout, rf"{library} v?\d")
        self.assertRegex(process.stdout, r"(?m)^CPU path   Highway \w+, oneDNN \w+; bf16 dot product (yes|no), AMX (yes|no); \S")

    def stderr_on_terminal(self, **environment):
        """What a run that warns writes to a terminal as standard error."""
        config = self.write_config(train__steps=1)
        controller, terminal = pty.openpty()
        process = subprocess.Popen(
            [harness.PROGRAM, "train", config], cwd=self.folder, env={**ENVIRONMENT, "TERM": "xterm", **environment},
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=terminal,
        )  # fmt: skip
        os.close(terminal)
        shown = b""
        try:
            while part := os.read(controller, 65536):
                shown += part
        except OSError:
            pass  # how Linux says that nobody has the terminal open any more
        os.close(controller)
        self.assertEqual(process.wait(60), 0, shown)
        return shown.decode()

    def test_colour(self):
        self.assertIn("\x1b[", self.stderr_on_terminal())
        self.assertIn("\x1b[", self.stderr_on_terminal(NO_COLOR=""))
        plain = self.stderr_on_terminal(NO_COLOR="1")
        self.assertIn("info: ", plain)
        self.assertNotIn("\x1b", plain)


if __name__ == "__main__":
    harness.main()
