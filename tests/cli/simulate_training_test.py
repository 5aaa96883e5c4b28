"""`expedite simulate CONFIG`: predicts a training step from what a quick probe measured, alone and beside a run."""

import json

import harness


class SimulateTraining(harness.Case):
    def start_and_wait(self, *arguments, status=0):
        process = self.start(*arguments)
        self.assertEqual(process.wait(), status, process.output)
        return process

    def probed(self, ranks):
        self.start_and_wait("probe", "--quick", "--ranks", ranks, "--threads", 1, "--out", "cluster.yaml")
        return self.folder / "cluster.yaml"

    def test_predicts_every_task_of_a_run(self):
        first, steps = 2, 3
        changes = {
            "parallel": {"expert_parallel_size": 2, "ep_plan": {"moe_num_chunks": 2, "dispatcher": "zero_redundancy"}},
            "trace": {"first_step": first, "steps": steps},
            "runtime": {"threads_per_rank": 1},
            "train__steps": 6,
        }
        cluster = self.probed(2)
        self.train(ranks=2, **changes)
        config = self.folder / "config.yaml"
        self.start_and_wait("simulate", config, "--cluster", cluster, "--measured", self.run_folder(), "--json",
                            "compared.json", "--trace", "simulated.json")  # fmt: skip
        compared = json.loads((self.folder / "compared.json").read_text())
        self.assertEqual(compared["measured"]["steps"], steps)
        for times in (compared, compared["measured"]):
            self.assertGreater(times["step_s"], 0)
            self.assertTrue(0 <= times["exposed_fraction"] <= 1)
        measured = json.loads((self.run_folder() / "trace.json").read_text())["traceEvents"]
        simulated = json.loads((self.folder / "simulated.json").read_text())["traceEvents"]
        names = [{(e["pid"], e["tid"], e["name"]) for e in events if e["ph"] == "X"} for events in (measured, simulated)]
        self.assertEqual(*names)
        classes = {(e["op"], e["pass"]) for e in compared["classes"]}
        self.assertEqual(classes, {(e["cat"], e["args"]["pass"]) for e in measured if e["ph"] == "X"})
        for entry in compared["classes"]:
            self.assertGreaterEqual(entry["seconds"], 0)
            self.assertGreaterEqual(entry["measured_s"], 0)

        alone = self.start_and_wait("simulate", config, "--cluster", cluster)
        self.assertRegex(alone.stdout, r"step, ms +[0-9.]+\n")
        beside = ("--set", "parallel.schedule=overlapped_1f1b", "--set", "parallel.ep_plan.moe_num_chunks=1")
        self.start_and_wait("simulate", config, *beside, "--cluster", cluster, "--trace", "beside.json")
        self.start_and_wait("schedule", config, *beside, "--ranks", 2, "--json", "beside_tasks.json")
        events = json.loads((self.folder / "beside.json").read_text())["traceEvents"]
        (schedule,) = json.loads((self.folder / "beside_tasks.json").read_text())["schedules"]
        self.assertEqual(sorted(e["name"] for e in events if e["ph"] == "X" and e["pid"] == 0),
                         sorted(task["label"] for task in schedule["tasks"]))  # fmt: skip
        other = self.start_and_wait("simulate", config, "--set", "model.config.num_hidden_layers=3", "--cluster", cluster,
                                    "--measured", self.run_folder(), status=1)  # fmt: skip
        self.assertIn("expert", other.stderr)

    def test_says_what_is_missing(self):
        config = self.write_config()
        for arguments, expected, status in (
            ((config,), "--cluster", 2),
            ((config, "--cluster", "absent.yaml"), "absent.yaml", 1),
            ((config, "--cluster", harness.FIXTURES.parent / "plan" / "gh200_slingshot.yaml"), "holds no measured products", 1),
            (("--cluster", "h100"), "--model", 2),
        ):
            process = self.start_and_wait("simulate", *arguments, status=status)
            self.assertIn(expected, process.stderr)

    def test_options_of_the_other_kind_are_refused(self):
        config = self.write_config()
        strategy = ("--model", "mixtral-8x22b", "--cluster", "h100", "--devices", 8, "--global-batch", 8, "--strategy", "ep=8")
        for arguments, expected in (
            ((config, "--cluster", "absent.yaml", "--strategy", "tp=2"), "--strategy"),
            ((config, "--cluster", "absent.yaml", "--zipf", 1.2), "--zipf"),
            ((config, "--cluster", "absent.yaml", "--devices", 8), "--devices"),
            ((*strategy, "--measured", "runs/tiny"), "--measured"),
            ((*strategy, "--set", "train.steps=2"), "--set"),
        ):
            process = self.start("simulate", *arguments)
            self.assertNotIn(process.wait(), (0, 134, 139), process.output)
            self.assertIn(expected, process.stderr)
            self.assertEqual(process.stdout, "")


if __name__ == "__main__":
    harness.main()
