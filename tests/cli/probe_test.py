"""The probe measures, prints and writes a file that is whole or not there."""

import re

import harness


class Probe(harness.Case):
    def probe(self, *arguments, status=0):
        process = self.start("probe", "--quick", *arguments)
        self.assertEqual(process.wait(), status, process.output)
        self.assert_nothing_left(process)
        return process

    def numbers(self, text, key):
        return [float(number) for number in re.findall(rf"\b{key}: ([-+.0-9e]+)", text)]

    def test_writes_what_it_measures(self):
        for ranks in (1, 2):
            with self.subTest(ranks=ranks):
                process = self.probe("--ranks", ranks, "--out", "found.yaml")
                text = (self.folder / "found.yaml").read_text()
                self.assertEqual(self.numbers(text, "nodes")[0], 1)
                self.assertEqual(self.numbers(text, "ranks_per_node")[0], ranks)
                self.assertEqual(len(self.numbers(text, "latency_s")), ranks - 1)
                rates = [rate for key in (r"\w+_per_s", r"latency_s") for rate in self.numbers(text, key)]
                self.assertGreater(len(rates), 6)
                for rate in rates:
                    self.assertGreater(rate, 0)
                self.assertRegex(process.stdout, rf"1 node of {ranks} rank")
                self.assertIn("wrote found.yaml", process.stdout)
                self.assertEqual("intra_node" in process.stdout, ranks > 1)
                self.assert_said_once(process, "measuring bf16 products")
                self.assertEqual(sorted(p.name for p in self.folder.glob("found*")), ["found.yaml"])

    def test_says_before_it_measures_where_it_cannot_write(self):
        for out in ("nowhere/cluster.yaml", "data"):
            process = self.probe("--ranks", 2, "--out", out, status=1)
            self.assert_said_once(process, f"--out {out}")
            self.assertNotIn("measuring", process.stderr)
            self.assertFalse((self.folder / "nowhere").exists())


if __name__ == "__main__":
    harness.main()
