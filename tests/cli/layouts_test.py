"""The same losses on any number of ranks and any expert-parallel size, and the same bits for the same command."""

import harness
from harness import bits_of, losses

# (ranks, expert-parallel size), besides one rank alone.
LAYOUTS = [(2, 1), (2, 2), (4, 1), (4, 2), (4, 4)]


class Layouts(harness.Case):
    def curve(self, ranks, ep, **changes):
        name = f"r{ranks}e{ep}"
        self.train(ranks=ranks, name=name, parallel__expert_parallel_size=ep, **changes)
        return self.metrics(name)

    def compare_layouts(self, layouts, tolerance, **changes):
        expected = self.curve(1, 1, **changes)
        self.assertEqual(len(expected), 20)
        self.assertLess(expected[-1]["loss"], expected[0]["loss"] - 0.1, "the model learns")
        for ranks, ep in layouts:
            with self.subTest(ranks=ranks, ep=ep):
                ours = self.curve(ranks, ep, **changes)
                for field in ("loss", "gradient_norm"):
                    self.assert_close(
                        [line[field] for line in ours],
                        [line[field] for line in expected],
                        tolerance if field == "loss" else 20 * tolerance,
                        f"{field} of {ranks} ranks, EP {ep}",
                    )
        return expected

    def test_sequence_loss_in_f32(self):
        metrics = self.compare_layouts(LAYOUTS, 1e-5, moe__router_load_balancing_type="seq_aux_loss")
        self.assertGreater(metrics[0]["aux_loss"], 0.0)
        self.assertGreater(metrics[0]["z_loss"], 0.0)

    def test_no_balancing_in_f32(self):
        self.compare_layouts([(4, 2)], 1e-5, moe__router_load_balancing_type="none")

    def test_bias_balancing_in_f32(self):
        self.compare_layouts([(2, 2), (4, 4)], 1e-5, moe__router_load_balancing_type="bias")

    def test_batch_loss_in_f32(self):
        # The loads of a micro-batch are those of all ranks: the same when each step is one micro-batch.
        for ranks, micro_batch in ((2, 4), (4, 2)):
            expected = self.curve(1, 1, moe__router_load_balancing_type="aux_loss", train__micro_batch_size=8)
            ours = self.curve(
                ranks, ranks, moe__router_load_balancing_type="aux_loss", train__micro_batch_size=micro_batch
            )
            self.assert_close(losses(ours), losses(expected), 1e-5, f"{ranks} ranks")

    def test_uneven_shares_in_f32(self):
        # 7 sequences and 6 experts on 4 ranks.
        self.compare_layouts(
            [(4, 4)], 1e-5, train__global_batch_size=7, model__config__num_experts=6, train__micro_batch_size=1
        )

    def test_bf16(self):
        self.compare_layouts([(2, 2), (4, 4)], 1e-2, dtype="bf16")

    def test_ways_of_multiplying_bf16_agree(self):
        expected = losses(self.curve(2, 2, dtype="bf16"))
        process = self.train(ranks=2, name="widened", dtype="bf16", runtime__bf16_products="widened")
        self.assertIn("bf16 products widened (as asked for", process.output)
        self.assert_close(losses(self.metrics("widened")), expected, 1e-2, "widened")

    def test_same_command_same_bits(self):
        for dtype in ("f32", "bf16"):
            runs = []
            for _ in range(2):
                runs.append(bits_of(self.curve(2, 2, dtype=dtype)))
            self.assertEqual(*runs)
            self.assertTrue((self.folder / "runs" / "r2e2.previous-1" / "metrics.jsonl").exists())


if __name__ == "__main__":
    harness.main()
