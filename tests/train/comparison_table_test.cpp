#include "expedite/train/comparison_table.h"

#include <gtest/gtest.h>

#include <limits>

namespace expedite::train {
namespace {

using schedule::Dispatcher;

/// Five steps, of which the last three count; the overlapped one is 2, 1.5 and 3 times as fast in these.
Comparison example() {
  Comparison comparison{.dtype = DType::bf16, .tokens = 1000, .warm_up = 2};
  comparison.baseline.plan.pipeline = schedule::ChunkPipeline::none;
  comparison.overlapped.plan = {.dispatcher = Dispatcher::hierarchical_dedup, .chunking = {.chunks = 4}};
  const double baseline_s[] = {9.0, 8.0, 0.4, 0.3, 0.6};
  const double overlapped_s[] = {7.0, 0.1, 0.2, 0.2, 0.2};
  for (int i = 0; i < 5; ++i) {
    const double loss = 5.0 - 0.5 * i;
    comparison.baseline.steps.push_back({.loss = loss,
                                         .gradient_norm = 1.5,
                                         .seconds = baseline_s[i],
                                         .exposed_communication = 0.1 * i,
                                         .rows = {.intra_node = 2'000'000, .inter_node = 30'000'000}});
    comparison.overlapped.steps.push_back({.loss = loss,
                                           .gradient_norm = 1.5,
                                           .seconds = overlapped_s[i],
                                           .exposed_communication = 0.01 * i,
                                           .rows = {.intra_node = 4'000'000, .inter_node = 12'340'000}});
  }
  comparison.baseline.validation_bits_per_byte = 4.0;
  comparison.overlapped.validation_bits_per_byte = 4.0;
  return comparison;
}

TEST(ComparisonTable, ShowsMediansOfTheStepsThatCount) {
  EXPECT_EQ(
      comparison_table(example()),
      "baseline against overlapped: 5 steps each of a new model, by turns, same seed and text; medians of "
      "the last 3\n"
      "                                            baseline          overlapped\n"
      "  dispatcher                                alltoall  hierarchical_dedup\n"
      "  chunks, pipeline                           1, none       4, continuous\n"
      "  tokens/s                                      2500                5000\n"
      "  step, ms                                     400.0               200.0\n"
      "  exposed communication, %                      30.0                 3.0\n"
      "  rows between nodes, MB/step                   30.0                12.3\n"
      "  rows inside nodes, MB/step                     2.0                 4.0\n"
      "  training loss, last step                    3.0000              3.0000\n"
      "  validation, bits/byte                       4.0000              4.0000\n"
      "overlapped is 2.00 times as fast (middle half of the steps: 1.75 to 2.50)\n"
      "first step: loss the same, gradient norm the same\n"
      "all steps: loss the same\n");
}

TEST(ComparisonTable, LeavesOutWhatThereIsNot) {
  Comparison comparison = example();
  comparison.baseline.validation_bits_per_byte.reset();
  comparison.overlapped.validation_bits_per_byte.reset();
  EXPECT_EQ(comparison_table(comparison).find("validation"), std::string::npos);
  comparison.baseline.steps.resize(2);
  comparison.overlapped.steps.resize(2);
  EXPECT_EQ(comparison_table(comparison), "baseline against overlapped: stopped before a step that counts\n");
  EXPECT_EQ(comparison_table({}), comparison_table(comparison));
  EXPECT_TRUE(losses_agree({}));
}

TEST(ComparisonTable, ChunksMayBeGivenByTheirSize) {
  Comparison comparison = example();
  comparison.overlapped.plan.chunking = {.chunks = 1, .chunk_size = 512};
  EXPECT_NE(comparison_table(comparison).find("of 512 tokens, continuous"), std::string::npos);
}

TEST(LossDifference, IsOfTheFirstStepAndTheMeanOfAll) {
  Comparison comparison = example();
  comparison.overlapped.steps[0].loss = 5.0 * 1.0005;
  comparison.overlapped.steps[0].gradient_norm = 1.5 * 0.995;
  comparison.overlapped.steps[3].loss = 3.5 * 0.99;
  EXPECT_NEAR(loss_difference(comparison).first_loss, 5e-4, 1e-12);
  EXPECT_NEAR(loss_difference(comparison).first_gradient, 5e-3, 1e-12);
  EXPECT_NEAR(loss_difference(comparison).curve, (5e-4 + 1e-2) / 5.0, 1e-12);
  EXPECT_TRUE(losses_agree(comparison));
  EXPECT_NE(comparison_table(comparison)
                .find("first step: loss 0.0500 % apart (rounding: up to 0.1 %), gradient norm 0.5000 % apart "
                      "(rounding: up to 1 %)\nall steps: loss 0.2100 % apart (rounding: up to 2 %)\n"),
            std::string::npos)
      << comparison_table(comparison);
  comparison.overlapped.steps[0].loss = 5.0 * (1.0 + 1e-8);
  EXPECT_NE(comparison_table(comparison).find("first step: loss less than 0.0001 % apart"),
            std::string::npos);
}

TEST(LossDifference, HasALimitForEach) {
  Comparison loss = example();
  loss.overlapped.steps[0].loss *= 1.002;
  EXPECT_FALSE(losses_agree(loss));
  EXPECT_NE(comparison_table(loss).find("BEYOND TOLERANCE"), std::string::npos);
  Comparison gradient = example();
  gradient.overlapped.steps[0].gradient_norm *= 0.98;
  EXPECT_FALSE(losses_agree(gradient));
  Comparison curve = example();
  for (std::size_t step = 1; step < 5; ++step) {
    curve.overlapped.steps[step].loss *= step % 2 == 0 ? 1.03 : 0.97;  // does not cancel
  }
  EXPECT_FALSE(losses_agree(curve));
}

TEST(LossDifference, OneDispatcherHasTheSameBitsInTheFirstStep) {
  Comparison comparison = example();
  comparison.overlapped.plan.dispatcher = comparison.baseline.plan.dispatcher;
  EXPECT_TRUE(losses_agree(comparison));
  comparison.overlapped.steps[0].loss += 1e-9;
  EXPECT_FALSE(losses_agree(comparison));
}

TEST(LossDifference, IsSmallerInTheFirstStepOfF32) {
  Comparison comparison = example();
  comparison.overlapped.steps[0].loss *= 1.0001;
  comparison.overlapped.steps[0].gradient_norm *= 1.001;
  EXPECT_TRUE(losses_agree(comparison));
  comparison.dtype = DType::f32;
  EXPECT_FALSE(losses_agree(comparison));
  comparison.overlapped.steps[0].loss = comparison.baseline.steps[0].loss;
  EXPECT_FALSE(losses_agree(comparison));
}

TEST(LossDifference, WhatIsNotFiniteAgreesWithNothing) {
  for (const double bad :
       {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    for (const std::size_t step : {0U, 2U}) {  // later steps, which are finite, must not hide it
      Comparison comparison = example();
      comparison.baseline.steps[step].loss = bad;
      comparison.overlapped.steps[step].loss = bad;
      EXPECT_FALSE(losses_agree(comparison)) << bad << " in step " << step;
    }
  }
}

}  // namespace
}  // namespace expedite::train
