// In which order a pipeline stage takes its micro-batches forward and backward: the kinds of schedules there
// are, each a pure function. The builders of steps turn an order into tasks.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace expedite::schedule {

enum class PipelineKind : std::uint8_t {
  one_f_one_b,     // PipeDream-flush, Megatron-LM (Narayanan et al., 2021)
  interleaved,     // virtual stages by turns, Megatron-LM's order (Narayanan et al., 2021)
  zero_bubble_h1,  // input and weight gradients apart, memory of 1F1B (Qi et al., 2023)
  dualpipe,        // micro-batches from both ends, two copies of the weights (DeepSeek-V3, 2024)
  adaptive_pipe,   // interleaved, a forward beside each backward, one copy (Pangu Ultra MoE, 2025)
};
inline constexpr std::array kPipelineKinds = {PipelineKind::one_f_one_b, PipelineKind::interleaved,
                                              PipelineKind::zero_bubble_h1, PipelineKind::dualpipe,
                                              PipelineKind::adaptive_pipe};

/// As users write it: "1f1b", "interleaved_1f1b", "zero_bubble_h1", "dualpipe" or "adaptive_pipe".
[[nodiscard]] std::string_view name_of(PipelineKind kind);
[[nodiscard]] std::optional<PipelineKind> parse_pipeline_kind(std::string_view name);
[[nodiscard]] std::vector<std::string> pipeline_kind_names();

struct PipelineShape {
  PipelineKind kind = PipelineKind::one_f_one_b;
  int stages = 1;          // p
  int virtual_stages = 1;  // v: parts of the model on each stage
  int micro_batches = 1;   // m, of a step

  bool operator==(const PipelineShape&) const = default;
};

/// Empty if the kind can run in this shape; otherwise a sentence that says what would be legal:
/// 1f1b and zero_bubble_h1: v = 1, any p and m; interleaved_1f1b: v >= 2, m a multiple of p; dualpipe: v = 1,
/// p even, m even and at least 2p; adaptive_pipe: v = 1, or m a multiple of p.
[[nodiscard]] std::string problem_of(const PipelineShape& shape);

/// What a stage does to a micro-batch in one of its virtual stages.
enum class Phase : std::uint8_t {
  forward,
  backward,     // input gradients, weight gradients, and then the gradient goes to the stage before
  input_grad,   // input gradients alone: the gradient goes on without waiting for
  weight_grad,  // weight gradients
};

struct Action {
  Phase phase = Phase::forward;
  int virtual_stage = 0;  // of the stage
  int micro_batch = 0;
  bool paired = false;  // a forward and the backward after it in the order that overlap each other

  bool operator==(const Action&) const = default;
};

/// The whole step of stage `stage`. Throws Error when problem_of() has something to say.
[[nodiscard]] std::vector<Action> stage_order(const PipelineShape& shape, int stage);

/// The model is cut into parts, numbered in the order in which a micro-batch passes through them.
[[nodiscard]] int parts_of(const PipelineShape& shape);
/// Virtual stages on each stage: of dualpipe 2, which are stage's own and the mirrored stage's.
[[nodiscard]] int virtual_stages_of(const PipelineShape& shape);
[[nodiscard]] int part_at(const PipelineShape& shape, int stage, int virtual_stage);
/// Whether micro-batches pass from virtual stage to virtual stage towards lower stages.
[[nodiscard]] bool runs_down(const PipelineShape& shape, int virtual_stage);

}  // namespace expedite::schedule
