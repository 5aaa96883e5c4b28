"""The example of docs/builders.md: verified, simulated, run on two ranks and drawn, and the page shows what it prints."""

import re
import subprocess
import sys
from pathlib import Path

import harness

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = Path(harness.PROGRAM).parent / "example_two_micro_batches"


class Example(harness.Case):
    def test_two_micro_batches(self):
        process = self.start("-n", 2, EXAMPLE, "out", program=("mpirun",))
        self.assertEqual(process.wait(), 0, process.output)
        said = process.stdout
        self.assertIn("without the dependency: rank 1 task 1 'L0 mb0 dispatch forward' releases buffer 0", said)
        self.assertRegex(said, r"verified: 2 ranks, \d+ tasks each")
        self.assertRegex(said, r"trained: loss \S+, gradient norm \S+ after three steps, to the bit those of train_step")
        # Simulated times do not depend on the machine, and the page has them.
        page = (ROOT / "docs/builders.md").read_text()
        for line in re.findall(r"(?m)^(?:simulated|verified).*$", said):
            self.assertIn(line, page)
        for trace in ("simulated", "measured"):
            drawn = subprocess.run(
                [sys.executable, ROOT / "tools/plot_trace.py", f"out/{trace}.json", f"{trace}.svg", "--ranks", "0"],
                cwd=self.folder, capture_output=True, text=True,
            )  # fmt: skip
            self.assertEqual(drawn.returncode, 0, drawn.stderr)
            self.assertIn("<svg", (self.folder / f"{trace}.svg").read_text())


if __name__ == "__main__":
    harness.main()
