"""A cluster in a box: nodes, two labs side by side, and that nothing is left of one, however it ends."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import harness

LAB = Path(harness.PROGRAM).with_name("lab")
NO_LAB = 3
SKIPPED = 77  # as ctest is told
FOR_EVER = 1_000_000


def members(supervisor):
    """Ids, by this process's count, of all that live in the lab of a supervisor."""
    ours = os.readlink("/proc/self/ns/pid")
    theirs = os.readlink(f"/proc/{supervisor}/ns/pid_for_children")
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if os.readlink(entry / "ns/pid") == theirs != ours:
                    found.append(int(entry.name))
    return found


def lives(pid):
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    return False


class Lab(harness.Case):
    def lab(self, *arguments, status=0):
        """Runs to the end."""
        process = self.start(*arguments, program=(LAB,))
        self.assertEqual(process.wait(), status, process.output)
        return process

    def start_waiting(self, spec, script="sleep 1000"):
        """A lab whose command has made the file `ready-<pid of this test's process>`."""
        ready = self.folder / f"ready-{len(list(self.folder.glob('ready-*')))}"
        process = self.start(spec, "sh", "-c", f"{script} & touch {ready}; wait", program=(LAB,))
        self.wait_until(process, ready.exists, "its command")
        return process

    def assert_gone(self, process, pids):
        self.assertGreaterEqual(len(pids), 3)  # process 1, the shell, its child
        begin = time.monotonic()
        while (left := [pid for pid in pids if lives(pid)]) and time.monotonic() - begin < harness.LIMIT_S:
            time.sleep(0.01)
        self.assertEqual(left, [], process.output)


class Nodes(Lab):
    def test_mpirun_spreads_ranks_over_nodes(self):
        script = 'mpirun -n 6 sh -c "echo \\$OMPI_COMM_WORLD_RANK \\$(hostname)"'
        process = self.lab("3x2", "sh", "-c", f"hostname; {script}")
        lines = process.stdout.split("\n")[:-1]
        self.assertEqual(lines[0], "control")
        self.assertEqual(sorted(lines[1:]), [f"{rank} node{rank // 2}" for rank in range(6)])

    def test_a_batch_systems_nodes_are_not_the_labs(self):
        allocation = {"SLURM_JOBID": "7", "SLURM_NODELIST": "elsewhere", "SLURM_TASKS_PER_NODE": "2"}
        environment = harness.ENVIRONMENT | allocation
        process = self.start("2x1", "mpirun", "-n", "2", "hostname", program=(LAB,), environment=environment)
        self.assertEqual(process.wait(), 0, process.output)
        self.assertEqual(sorted(process.stdout.split()), ["node0", "node1"])

    def test_each_tells_ranks_where_they_are(self):
        script = "echo $RANK $LOCAL_RANK $WORLD_SIZE $MASTER_ADDR $EXPEDITE_LAB $(hostname)"
        process = self.lab("2x2@1gbit", "--each", "sh", "-c", script)
        expected = [f"{rank} {rank % 2} 4 10.77.0.1 2x2@1gbit node{rank // 2}" for rank in range(4)]
        self.assertEqual(sorted(process.stdout.splitlines()), expected)

    def test_nodes_share_the_cores(self):
        code = "import os; print(os.uname().nodename, *sorted(os.sched_getaffinity(0)))"
        available = sorted(os.sched_getaffinity(0))
        for spec, nodes in (("1x1", 1), ("2x1", 2), ("5x1", 5)):
            lines = self.lab(spec, "--each", sys.executable, "-c", code).stdout.splitlines()
            names, cores = zip(*(line.split(" ", 1) for line in sorted(lines)), strict=True)
            self.assertEqual(list(names), [f"node{i}" for i in range(nodes)])
            used = [set(map(int, text.split())) for text in cores]
            self.assertLessEqual(set().union(*used), set(available))
            if nodes <= len(available):
                self.assertEqual(sum(map(len, used)), len(set().union(*used)), "nodes overlap")

    def test_links_have_their_rate(self):
        # What the kernel has been told; how fast data then moves is a matter of timing.
        show = "tc qdisc show dev eth0; ip -o link show eth0"
        shaped = self.lab("1x1@500mbit", "--each", "sh", "-c", show).stdout
        self.assertIn("tbf", shaped)
        self.assertIn("rate 500Mbit", shaped)
        self.assertNotIn("tbf", self.lab("1x1@none", "--each", "sh", "-c", show).stdout)

    def test_two_labs_side_by_side(self):
        first, second = self.start_waiting("2x1@1gbit"), self.start_waiting("2x1@2gbit")
        one, other = members(first.pid), members(second.pid)
        self.assertTrue(one and other and not set(one) & set(other), (one, other))
        process = self.lab("2x1@500mbit", "mpirun", "-n", "2", "hostname")  # a third
        self.assertEqual(sorted(process.stdout.split()), ["node0", "node1"])
        first.child.terminate()
        self.assert_gone(first, one)
        self.assertEqual(members(second.pid), other)


class Ends(Lab):
    def test_exit_status_is_the_commands(self):
        self.lab("1x1", "sh", "-c", "exit 42", status=42)
        self.lab("1x1", "sh", "-c", "kill -9 $$", status=128 + 9)
        self.lab("2x1", "--each", "sh", "-c", "if [ $RANK = 1 ]; then exit 5; fi; sleep 1000", status=5)

    def test_errors_say_what_is_legal(self):
        for spec in ("", "2", "2x", "0x2", "2x0", "2x2@", "2x2@fast", "2x2@2g", "2x2@2", "251x1", "2x2@1bit"):
            self.assertIn("NODESxRANKS@RATE", self.lab(spec, "true", status=2).stderr, spec)
        self.assertIn("what command", self.lab("2x2", status=2).stderr)
        self.assertIn("cannot start no-such", self.lab("1x1", "no-such-command", status=127).stderr)

    def test_says_what_a_machine_without_labs_lacks(self):
        # A user namespace that may have no other in it, and its root without the right to make any.
        script = f"echo 0 > /proc/sys/user/max_user_namespaces; setpriv --bounding-set -sys_admin {LAB} 2x1 true"
        process = self.start("-Ur", "sh", "-c", script, program=("unshare",))
        self.assertEqual(process.wait(), NO_LAB, process.output)
        self.assertIn("sysctl -w user.max_user_namespaces", process.stderr)

    def test_killed_supervisor_takes_all_with_it(self):
        # `setsid nohup`: even what has left the session and ignores signals.
        process = self.start_waiting("2x2", "setsid nohup sleep 1000 > sleep.out 2>&1")
        pids = members(process.pid)
        os.kill(process.pid, signal.SIGKILL)
        self.assertEqual(process.wait(), -signal.SIGKILL)
        self.assert_gone(process, pids)

    def test_signals_end_it(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            with self.subTest(signal=number.name):
                process = self.start_waiting("2x1")
                pids = members(process.pid)
                os.kill(process.pid, number)
                self.assertEqual(process.wait(), 128 + number)
                self.assert_gone(process, pids)

    def test_signals_reach_the_command_once(self):
        # The trap counts; the command ends by itself when it has had each.
        traps = "trap 'n=$((n+1)); echo $n' TERM; trap 'echo last; exit 7' USR1"
        script = f"n=0; {traps}; touch ready; while :; do sleep 0.02; done"
        process = self.start("1x1", "bash", "-c", script, program=(LAB,))
        self.wait_until(process, (self.folder / "ready").exists, "its command")
        os.kill(process.pid, signal.SIGTERM)
        self.wait_until(process, lambda: "1" in process.stdout, "the first signal")
        os.kill(process.pid, signal.SIGUSR1)
        self.assertEqual(process.wait(), 7)
        self.assertEqual(process.stdout.split(), ["1", "last"])


class Training(Lab):
    def test_a_lab_changes_no_result(self):
        self.train(ranks=4, name="plain", train__steps=2)
        config = self.write_config(name="lab", train__steps=2)
        process = self.start("train", config, "--lab", "2x2")
        self.assertEqual(process.wait(), 0, process.output)
        plain, lab = (harness.losses(self.metrics(name)) for name in ("plain", "lab"))
        self.assertEqual(len(plain), 2)
        self.assert_close(lab, plain, 1e-6, "loss in a lab")

    def test_ctrl_c_saves(self):
        config = self.write_config(train__steps=FOR_EVER)
        process = self.start("train", config, "--lab=2x1@1gbit")
        self.wait_for_steps(process, 3)
        pids = members(process.pid)
        os.kill(process.pid, signal.SIGINT)
        self.assertEqual(process.wait(), 0, process.output)
        done = self.metrics()[-1]["step"]
        self.assertIn(f"stopped after {done} of {FOR_EVER} steps", process.stdout)
        self.assertIn(f"step-{done:06}", self.checkpoints()[-1].name)
        self.assert_gone(process, pids)

    def test_ranks_must_agree_with_the_lab(self):
        config = self.write_config(train__steps=1)
        for arguments, text in (
            (("--lab", "2x2", "--ranks", "3"), "--ranks 3 beside --lab 2x2, which has 4 ranks"),
            (("--lab", "two"), "--lab two: expected NODESxRANKS"),
            (("--lab", "2x1@fast"), "'2x1@fast' describes no lab"),
        ):
            process = self.start("train", config, *arguments)
            self.assertNotEqual(process.wait(), 0)
            self.assertIn(text, process.stderr)
        process = self.start("train", config, "--lab", "2x1", "--ranks", "2")
        self.assertEqual(process.wait(), 0, process.output)


if __name__ == "__main__":
    trial = subprocess.run([LAB, "2x1@1gbit", "true"], capture_output=True, text=True)
    if trial.returncode == NO_LAB:
        print(f"skipped, this machine allows no lab: {trial.stderr}", file=sys.stderr)
        sys.exit(SKIPPED)
    harness.main()
