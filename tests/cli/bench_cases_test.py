"""Any kernel and shape from a line: checked, measured, and refused where the line says nothing."""

import json

import harness


class BenchCases(harness.Case):
    def bench(self, *arguments, status=0):
        process = self.start("bench", "kernels", *arguments)
        self.assertEqual(process.wait(), status, process.output)
        return process

    def test_cases_are_checked_and_measured(self):
        cases = self.folder / "cases.txt"
        cases.write_text("# rotary\n\nrotary backward f32 7x2x8 R=4  # half of a head\n")
        results = self.folder / "results.json"
        process = self.bench("--case", "matmul f32 5x7x9", "--case", "add_bias f32 0x3", "--cases", cases, "--json", results)
        lines = json.loads(results.read_text())
        self.assertEqual(
            [(line["name"], line["shape"]) for line in lines],
            [("matmul", "f32 5x7x9"), ("add_bias", "f32 0x3"), ("rotary backward", "f32 7x2x8 R=4")],
        )
        for line in lines:
            self.assertEqual(line["failure"], "")
            self.assertLessEqual(line["error"], line["tolerance"])
        self.assertRegex(process.stdout, r"(?m)^matmul +f32 5x7x9 .*GFLOP/s .*dst: error \S+ of \S+$")

    def test_a_bad_line_is_an_error_before_anything_runs(self):
        process = self.bench("--case", "matmul f32 5x7x9", "--case", "matmul f64 5x7x9", status=1)
        self.assertIn("'f64' where a direction (forward, input_grad, weight_grad) or a type", process.output)
        self.assertIn("an example: matmul ", process.output)
        self.assertNotIn("GFLOP/s", process.output)

    def test_help_lists_the_kernels(self):
        process = self.bench("--case", "help")
        for kernel in ("grouped_matmul", "attention", "router", "cross_entropy", "adamw"):
            self.assertRegex(process.stdout, rf"(?m)^{kernel} ")


if __name__ == "__main__":
    harness.main()
