"""`expedite schedule`: the tasks of a step printed, as JSON, and verified, without ranks; of runs and of strategies."""

import json
import re

import harness

STRATEGY = ("--model", "qwen3-30b-a3b", "--cluster", "h100", "--devices", 32, "--global-batch", 64)


class Schedule(harness.Case):
    def schedule(self, *arguments, status=0):
        process = self.start("schedule", *arguments)
        self.assertEqual(process.wait(), status, process.output)
        return process

    def test_prints_the_steps_tasks(self):
        plan = {"ep_plan": {"moe_num_chunks": 2, "dispatcher": "zero_redundancy"}}
        config = self.write_config(parallel=plan)
        process = self.schedule(config, "--ranks", 2, "--rank", 1, "--json", "schedule.json")
        printed = process.stdout
        self.assertIn("2 ranks on 1 node, expert parallel 2, schedule train_step, zero_redundancy, 2 chunks", printed)
        self.assertIn("rank 1: ", printed)
        self.assertIn("group ep: ranks 0-1", printed)
        (read,) = json.loads((self.folder / "schedule.json").read_text())["schedules"]
        tasks, buffers = read["tasks"], read["buffers"]
        lines = re.findall(r"(?m)^ +(\d+)  (\w+) (\w+)  ", printed)
        self.assertEqual(sorted(int(number) for number, _, _ in lines), list(range(len(tasks))))
        for number, operation, pass_name in lines:
            task = tasks[int(number)]
            self.assertEqual((task["operation"], task["pass"]), (operation, pass_name))
            self.assertTrue(all(earlier < len(tasks) for earlier in task["after"]))
        dispatch = next(task for task in tasks if task["operation"] == "dispatch")
        self.assertEqual((dispatch["collective"], dispatch["group"], dispatch["piece"]), ("all_to_all", "ep", "chunk"))
        held = [buffers[each] for each in dispatch["acquires"]]
        self.assertEqual([each["role"] for each in held], ["dispatch_recv"])
        self.assertGreater(held[0]["expected_bytes"], 0)
        self.assertRegex(printed, r"(?m)^ +\d+  dispatch forward .*L0 mb0 chunk 1 .*all_to_all ep, after \d+")
        # What runs is what is printed: on two ranks, with a trace of one step.
        self.train(ranks=2, parallel=plan, trace={"first_step": 2, "steps": 1}, train__steps=3)
        events = json.loads((self.run_folder() / "trace.json").read_text())["traceEvents"]
        ran = sorted(event["name"] for event in events if event["ph"] == "X" and event["pid"] == 1)
        self.assertEqual(ran, sorted(task["label"] for task in tasks))

    def test_checks_the_schedules_of_all_ranks(self):
        config = self.write_config(parallel={"ep_plan": {"dispatcher": "hierarchical_dedup"}})
        checked = self.schedule(config, "--ranks", 4, "--nodes", 2, "--check").stdout
        self.assertRegex(checked, r"\Asound: 4 ranks, \d+ tasks, \d+ of them communication, \d+ buffers: no deadlock.*\n\Z")
        both = self.schedule(config, "--ranks", 4, "--nodes", 2, "--check", "--rank", "all").stdout
        self.assertTrue(both.endswith(checked), both)
        self.assertEqual(len(re.findall(r"(?m)^rank \d: ", both)), 4)
        self.assertIn("inter, ", both)
        self.assertNotIn("inter, ", self.schedule(config, "--ranks", 4).stdout)
        overlapped = self.schedule(config, "--ranks", 2, "--set", "parallel.schedule=overlapped_1f1b", "--check").stdout
        self.assertIn("sound: 2 ranks", overlapped)

    def test_of_strategies(self):
        checked = self.schedule(*STRATEGY, "--strategy", "pp=4,ep=8", "--check", "--zipf", 1.0).stdout
        self.assertIn("sound: 8 unlike ranks of 32, ", checked)
        printed = self.schedule(*STRATEGY, "--strategy", "pp=4,ep=8", "--rank", 8).stdout
        self.assertIn("receive_previous, ", printed)
        self.assertRegex(printed, r"receive forward +mb0 part 1 +receive pp rank 0")
        refused = self.schedule(*STRATEGY, "--strategy", "pp=4,ep=8", "--rank", 1, status=2)
        self.assertIn("all or one of 0, 8, 16, 24", refused.stderr)

    def test_says_what_is_wrong(self):
        config = self.write_config(parallel={"expert_parallel_size": 2})
        chunks = ("--set", "parallel.ep_plan.moe_num_chunks=4", "--set", "parallel.schedule=overlapped_1f1b")
        for arguments, expected, status in (
            ((), "--model", 2),
            ((config, "--strategy", "ep=8"), "--strategy", 2),
            (("--ranks", 2), "CONFIG", 2),
            ((config, "--ranks", 3), "expert", 1),
            ((config, "--ranks", 4, "--nodes", 3), "--nodes 3", 2),
            ((config, "--ranks", 2, "--rank", 2), "--rank 2", 2),
            ((config, "--ranks", 2, *chunks), "take one chunk (moe_num_chunks: 1), not 4", 1),
            ((config, "--ranks", 2, "--set", "parallel.schedule=1f1b"), "train_step or overlapped_1f1b", 1),
        ):
            process = self.schedule(*arguments, status=status)
            self.assertIn(expected, process.stderr)
            self.assertEqual(len(process.stderr.splitlines()), 1, process.output)

    def test_trains_by_the_name_of_the_schedule(self):
        """The same losses to the bit, with a forward beside each backward."""
        layout = {"train__steps": 4, "train__global_batch_size": 12, "trace": {"first_step": 2, "steps": 1}}
        self.train(ranks=2, name="in_order", **layout)
        self.train(ranks=2, name="beside", parallel={"schedule": "overlapped_1f1b"}, **layout)
        ours, theirs = (harness.bits_of(self.metrics(name)) for name in ("beside", "in_order"))
        self.assertEqual(len(ours), 4)
        self.assertEqual(ours, theirs)
        events = json.loads((self.run_folder("beside") / "trace.json").read_text())["traceEvents"]
        order = [event["args"]["micro_batch"] for event in sorted(events, key=lambda each: each.get("ts", 0))
                 if event["ph"] == "X" and event["pid"] == 0 and event["tid"] == 0 and "micro_batch" in event["args"]]
        self.assertGreater(sum(a != b for a, b in zip(order, order[1:], strict=False)), 6)  # by turns

    def test_ranks_of_unlike_configurations_are_told(self):
        config = self.write_config()
        unlike = ("train", config, "--set", "parallel.ep_plan.moe_num_chunks=2")
        process = self.start("-n", 1, harness.PROGRAM, "train", config, ":", "-n", 1, harness.PROGRAM, *unlike,
                             program=("mpirun",))  # fmt: skip
        self.assertNotEqual(process.wait(), 0)
        self.assertRegex(process.stderr, r"number 2 among the collectives of group ep on stream intra is task \d+ 'L0 mb0 "
                                         r"dispatch forward' \(all_to_all\) on rank 0, but task \d+ 'L0 mb0 c0 dispatch")  # fmt: skip
        self.assertEqual(self.metrics(), [])  # no step has run
        self.assert_nothing_left(process)


if __name__ == "__main__":
    harness.main()
