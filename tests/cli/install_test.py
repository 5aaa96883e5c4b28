"""`cmake --install` into a folder of its own: the program there, run from any folder, finds what came with it."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import harness

BUILD = Path(harness.PROGRAM).parent
COMPLETE = """
source "$1"
shift
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
_expedite
printf '%s\\n' "${COMPREPLY[@]}"
"""


def run(*command, **options):
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, **options)


class Install(harness.Case):
    @classmethod
    def setUpClass(cls):
        cls.stage = Path(tempfile.mkdtemp(prefix="expedite-install-"))
        cls.addClassCleanup(shutil.rmtree, cls.stage, ignore_errors=True)
        done = run("cmake", "--install", BUILD, "--prefix", "/opt/ex", env={**os.environ, "DESTDIR": str(cls.stage)})
        assert done.returncode == 0, done.stdout + done.stderr
        # Moved, since a prefix is not built in.
        cls.prefix = cls.stage / "else where"
        (cls.stage / "opt/ex").rename(cls.prefix)
        cls.program = cls.prefix / "bin/expedite"

    def test_everything_is_there(self):
        for name in (
            "bin/expedite", "libexec/expedite/lab", "libexec/expedite/plot_trace.py", "libexec/expedite/svg.py",
            "share/expedite/configs/demo.yaml", "share/expedite/data/measured_runs.csv",
            "share/doc/expedite/README.md", "share/doc/expedite/docs/training.md", "share/man/man1/expedite.1",
            "share/bash-completion/completions/expedite", "share/zsh/site-functions/_expedite",
        ):  # fmt: skip
            self.assertTrue((self.prefix / name).is_file(), name)

    def test_configurations_are_found_from_any_folder(self):
        text = harness.make_text(self.folder / "text")
        for config in ("configs/demo.yaml", "demo.yaml"):
            process = self.start(
                "train", config, "--set", f"data.path={text}", "--set", "data.extensions=[]", "--set", "train.steps=1",
                "--set", "parallel.expert_parallel_size=1", "--set", "train.global_batch_size=1",
                "--set", "train.micro_batch_size=1", "--set", "data.seq_length=16", "--set", "train.eval_sequences=1",
                "--set", "data.validation_fraction=0.01", program=[self.program],
            )  # fmt: skip
            self.assertEqual(process.wait(), 0, process.output)
            self.assertTrue((self.run_folder("demo") / "metrics.jsonl").exists())
            shutil.rmtree(self.run_folder("demo"))
        process = self.start("train", "dmo.yaml", program=[self.program])
        self.assertEqual(process.wait(), 1)
        self.assertRegex(process.stderr, r"dmo\.yaml: .*No such file.*demo\.yaml")
        self.assertEqual(run(self.program, "validate", "data/measured_runs.csv", cwd=self.folder).returncode, 0)

    def test_lab_is_found(self):
        lab = run(self.prefix / "libexec/expedite/lab", "2x1", "true")
        if lab.returncode == 3:
            self.skipTest(f"this machine allows no lab: {lab.stderr.strip()}")
        config = self.write_config(train__steps=2)
        process = self.start("train", config, "--lab", "2x1@1gbit", program=[self.program])
        self.assertEqual(process.wait(), 0, process.output)
        self.assertIn("2 ranks on 2 nodes", process.stderr)
        self.assertEqual(len(self.metrics()), 2)

    # ---- Made from the program's own options

    def commands(self, *name):
        text = run(self.program, *name, "--help").stdout
        yield name, set(re.findall(r"(?m)^  (?:-\w,)?(--[a-z][a-z0-9-]*)", text))
        for below in re.findall(r"(?m)^  ([a-z][a-z-]*) ", text.partition("\nSubcommands:\n")[2]):
            yield from self.commands(*name, below)

    def completed(self, *words):
        script = self.prefix / "share/bash-completion/completions/expedite"
        return set(run("bash", "-c", COMPLETE, "bash", script, *words).stdout.split())

    def test_bash_completes_every_option_and_command(self):
        for name, options in self.commands():
            self.assertEqual({word for word in self.completed("expedite", *name, "--") if word[1] == "-"}, options)
        self.assertEqual(self.completed("expedite", "tr"), {"train"})
        self.assertEqual(self.completed("expedite", "bench", "ke"), {"kernels"})
        self.assertEqual(self.completed("expedite", "help", "pl"), {"plan"})
        self.assertEqual(self.completed("expedite", "bench", "train", "--dtype", ""), {"bf16", "f32"})
        self.assertEqual(self.completed("expedite", "train", "c.yaml", "--set", "optimizer.l"), {"optimizer.lr="})
        self.assertEqual(self.completed("expedite", "plan", "--json", "x"), set())  # left to the shell: files

    def test_zsh_completes_every_option(self):
        script = self.prefix / "share/zsh/site-functions/_expedite"
        text = script.read_text()
        for name, options in self.commands():
            branch = re.search(rf"(?m)^    '{' '.join(name)}'\) commands=.*$", text)
            self.assertTrue(branch, name)
            for option in options:
                self.assertIn(f"'{option}:", branch[0])
        if shutil.which("zsh") is None:
            self.skipTest("zsh is not installed: its syntax is not checked")
        self.assertEqual(run("zsh", "-n", script).returncode, 0)

    def test_manual_page_has_every_option(self):
        page = self.prefix / "share/man/man1/expedite.1"
        text = page.read_text().replace("\\-", "-")
        for name, options in self.commands():
            section = text.partition(f".SS \\fB{' '.join(('expedite', *name))}\\fR\n")[2].partition("\n.S")[0]
            self.assertTrue(section, name)
            for option in options:
                self.assertIn(f"\\fB{option}\\fR", section, name)
        if shutil.which("groff"):
            shown = run("groff", "-man", "-Tascii", "-ww", page)
            self.assertEqual((shown.returncode, shown.stderr), (0, ""))


if __name__ == "__main__":
    if shutil.which("cmake") is None:
        print("cmake is not in PATH", file=sys.stderr)
        sys.exit(77)
    harness.main()
