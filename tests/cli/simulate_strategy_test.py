"""expedite simulate --strategy, and the finalists of expedite plan, as a user runs them."""

import json

import harness

QWEN = ("--model", "qwen3-30b-a3b", "--cluster", "h100", "--devices", 16, "--global-batch", 64)


class SimulateStrategy(harness.Case):
    def run_command(self, *arguments, status=0):
        process = self.start(*arguments)
        self.assertEqual(process.wait(limit=250), status, process.output)
        return process

    def simulate(self, strategy, *arguments):
        process = self.run_command("simulate", *QWEN, "--strategy", strategy, *arguments, "--json", "step.json")
        return process, json.loads((self.folder / "step.json").read_text())

    def test_every_pipeline(self):
        for strategy in ("ep=8", "pp=4,ep=4", "pp=4,vpp=2,ep=4", "pp=4,ep=4,pipeline=zb-h1",
                         "pp=4,ep=4,pipeline=dualpipe", "pp=4,vpp=2,ep=4,pipeline=adaptive,chunks=2"):
            with self.subTest(strategy=strategy):
                process, step = self.simulate(strategy)
                for part in ("simulated", "closed form", "memory at the peak", "EP communication hidden",
                             "compute waits for"):
                    self.assertIn(part, process.stdout)
                self.assertEqual(sum(rank["ranks_like_it"] for rank in step["ranks"]), 16)
                for rank in step["ranks"]:
                    self.assertAlmostEqual(sum(rank["seconds_by_cause"].values()), step["step_s"],
                                           delta=1e-6 * step["step_s"])
                self.assertGreater(step["memory_gib"], 0)
                self.assertLess(abs(step["difference"]), 0.5)
                self.assertAlmostEqual(step["exposed_ep_fraction"], 1 - step["ep_hidden"])

    def test_hides_exchanges_in_pairs(self):
        _, plain = self.simulate("pp=4,vpp=2,ep=4")
        _, adaptive = self.simulate("pp=4,vpp=2,ep=4,pipeline=adaptive")
        self.assertGreater(adaptive["ep_hidden_steady"], 0.9)
        self.assertLess(plain["ep_hidden_steady"], 0.1)
        self.assertLess(adaptive["step_s"], plain["step_s"])

    def test_writes_a_trace_with_memory(self):
        self.simulate("pp=2,ep=8", "--zipf", 0.5, "--trace", "step-trace.json")
        events = json.loads((self.folder / "step-trace.json").read_text())["traceEvents"]
        self.assertEqual(len({event["pid"] for event in events}), 4)  # the busiest and the others of two stages
        self.assertEqual({event["ph"] for event in events}, {"M", "X", "C"})
        categories = {name for event in events if event["ph"] == "C" for name in event["args"]}
        self.assertLessEqual({"weights", "gradients", "optimizer", "activations", "expert_activations"}, categories)

    def test_says_which_knob_is_wrong(self):
        for strategy, part in (("ep=7", "ep 7"), ("pp=2,pipeline=zb-h2", "zb-h2"), ("tp=3,ep=2", "tp 3"),
                               ("pp=4,pipeline=dualpipe,zero=3", "zero=3"), ("xx=1", "xx")):
            process = self.run_command("simulate", *QWEN, "--strategy", strategy, status=1)
            self.assertIn(part, process.stderr)

    def test_the_plan_orders_its_finalists(self):
        self.run_command("plan", *QWEN, "--top", 4, "--simulate", 3, "--json", "plan.json", "--trace", "best.json")
        strategies = json.loads((self.folder / "plan.json").read_text())["strategies"]
        self.assertEqual([strategy["simulated"] for strategy in strategies].count(True), 3)
        steps = [strategy["step_s"] for strategy in strategies]
        self.assertEqual(steps, sorted(steps))
        best = strategies[0]
        _, again = self.simulate(best["strategy"])
        if best["simulated"]:
            self.assertAlmostEqual(again["step_s"], best["step_s"])
        self.assertTrue(json.loads((self.folder / "best.json").read_text())["traceEvents"])


if __name__ == "__main__":
    harness.main()
