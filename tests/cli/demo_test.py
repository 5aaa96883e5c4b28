"""demo.sh: in a lab where there may be one, with a word where not, twice, and stopped."""

import os
import shutil
import signal
import subprocess
from pathlib import Path

import harness

SOURCE = Path(__file__).resolve().parents[2]
LAB = Path(harness.PROGRAM).with_name("lab")
NO_LAB = 3
# A small model of the demo's kind, on little text.
QUICK = (
    "model.config.hidden_size=32 model.config.num_hidden_layers=1 model.config.num_experts=8 data.path=data "
    "data.extensions=[] data.seq_length=16 data.validation_fraction=0.1 train.global_batch_size=4 "
    "train.micro_batch_size=1 train.eval_interval=0 train.eval_sequences=4"
).split()


class Demo(harness.Case):
    def setUp(self):
        super().setUp()
        # The script with what it needs, but nothing to install or to build.
        shutil.copy(SOURCE / "demo.sh", self.folder)
        (self.folder / "configs").mkdir()
        shutil.copy(SOURCE / "configs/demo.yaml", self.folder / "configs")
        (self.folder / "tools").mkdir()
        for name in ("install.sh", "build.sh"):
            self.replace_tool(name, "")
        (self.folder / "build/release").mkdir(parents=True)
        for program in (Path(harness.PROGRAM), LAB):
            (self.folder / "build/release" / program.name).symlink_to(program)

    def replace_tool(self, name, body):
        script = self.folder / "tools" / name
        script.write_text(f"#!/bin/sh\n{body}\n")
        script.chmod(0o755)

    def demo(self, *arguments, steps=2, before=()):
        settings = [word for setting in (*QUICK, f"train.steps={steps}") for word in ("--set", setting)]
        return self.start(*before, "./demo.sh", *arguments, *settings, program=())

    def check(self, process, nodes, name="demo"):
        self.assertEqual(process.wait(), 0, process.output)
        self.assertIn(f"4 ranks on {nodes} nodes", process.stderr)
        self.assertRegex(process.stdout, r"(?m)^done after 2 of 2 steps")
        self.assertRegex(process.stdout, r"(?m)^overlapped is \d+\.\d\d times as fast")
        self.assertEqual(len(self.metrics(name)), 2)
        self.assert_nothing_left(process)

    def test_plain_ranks(self):
        process = self.demo("--ranks", "4")
        self.check(process, nodes=1)
        self.assertNotIn("allows no", process.stdout)
        # How long it will take comes first.
        first = process.stdout.splitlines()[0]
        self.assertRegex(first, r"^About [\d.]+ (min|s) on \d+ cores: .*training and comparing")
        self.assertNotIn("packages", first)
        # Again: the first run is kept.
        self.check(self.demo("--long", "--ranks", "4"), nodes=1, name="demo-long")
        self.check(self.demo("--ranks", "4"), nodes=1)
        self.assertEqual(len(self.metrics("demo.previous-1")), 2)

    def test_in_a_lab(self):
        trial = subprocess.run([LAB, "2x2@1gbit", "true"], capture_output=True, text=True)
        if trial.returncode == NO_LAB:
            self.skipTest(f"this machine allows no lab: {trial.stderr}")
        process = self.demo()
        self.check(process, nodes=2)
        self.assertIn("hierarchical_dedup", process.stdout)

    def test_says_why_there_is_no_lab(self):
        script = "echo 0 > /proc/sys/user/max_user_namespaces; exec setpriv --bounding-set -sys_admin \"$@\""
        process = self.demo(before=("unshare", "-Ur", "sh", "-c", script, "sh"))
        self.check(process, nodes=1)
        said = [line for line in process.stdout.splitlines() if "allows no nodes" in line]
        self.assertEqual(len(said), 1, process.output)
        self.assertIn("sysctl -w user.max_user_namespaces", said[0])

    def test_counts_packages_and_stops_where_they_cannot_be_installed(self):
        self.replace_tool("install.sh", '[ "$1" = --missing ] && { echo ninja-build libdnnl-dev "$2"; exit; }; exit 1')
        process = self.demo()
        self.assertEqual(process.wait(), 1, process.output)
        self.assertEqual(len(process.stdout.splitlines()), 1, process.output)
        self.assertIn("installing 3 packages (30 s)", process.stdout)

    def test_mistakes_are_told_once(self):
        process = self.demo("--set", "train.stpes=3", "--ranks", "4")
        self.assertNotEqual(process.wait(), 0)
        self.assert_said_once(process, "train.stpes")

    def test_ctrl_c_saves(self):
        process = self.demo("--ranks", "4", steps=1_000_000)
        self.wait_for_steps(process, 3, "demo")
        os.kill(process.pid, signal.SIGINT)
        self.assertEqual(process.wait(), 0, process.output)
        self.assertIn("stopped after", process.stdout)
        self.assertTrue(self.checkpoints("demo"))
        self.assert_nothing_left(process)


if __name__ == "__main__":
    harness.main()
