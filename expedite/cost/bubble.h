// What a pipeline's bubble is in the uniform case, in closed form: equal stages, messages that take no time.
#pragma once

#include "expedite/schedule/pipeline_order.h"

namespace expedite::cost {

/// Of one whole stage (all its virtual stages) and one micro-batch; seconds, or any other unit.
struct StageTimes {
  double forward = 0.0;      // F
  double input_grad = 0.0;   // B - W
  double weight_grad = 0.0;  // W
  /// F&B: a forward and a whole backward that overlap each other. 0: their sum.
  double pair = 0.0;

  [[nodiscard]] double backward() const { return input_grad + weight_grad; }
  [[nodiscard]] double paired() const { return pair > 0.0 ? pair : forward + backward(); }
};

/// The time in a step in which the stage with the least to do does nothing. All stages have the same to do,
/// but where pairs take less than what they are made of, those with more pairs have less: of dualpipe the two
/// or four in the middle, of adaptive_pipe the last.
/// - 1f1b: (p - 1)(F + B). Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters
///   Using Megatron-LM", SC 2021, section 2.2.1.
/// - interleaved_1f1b: (p - 1)(F + B) / v. The same, section 2.2.2.
/// - zero_bubble_h1: (p - 1)(F + B - 2W). Qi et al., "Zero Bubble Pipeline Parallelism", ICLR 2024, table 1
///   (whose B is our B - W). For W at most F and at most B - W. With fewer micro-batches than stages there
///   are fewer weight gradients to fill it with: (p - 1)(F + B - W) - (m - 1) W.
/// - dualpipe: (p/2 - 1)(F&B + B - 3W). DeepSeek-AI, "DeepSeek-V3 Technical Report", 2024, table 2. For
///   F = B - W and W at most F.
/// - adaptive_pipe: ((p - 1)(F + 2B - F&B) + F&B - B + (p - 2) max(0, F&B - B - W)) / v, for p >= 2 and m >=
/// 2p.
///   Our own, of the order as it is; with F&B = F + B it is ((p - 1) B + F + (p - 2) max(0, F - W)) / v.
/// Throws Error for shapes that problem_of() rejects, and for shapes and times that the formula is not for.
[[nodiscard]] double bubble(const schedule::PipelineShape& shape, const StageTimes& times);

/// What the stage with the least to do has to do: m (F + B), less what its pairs save.
[[nodiscard]] double least_busy(const schedule::PipelineShape& shape, const StageTimes& times);

}  // namespace expedite::cost
