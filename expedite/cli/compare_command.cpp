#include <fmt/core.h>

#include <memory>

#include "expedite/cli/bf16_option.h"
#include "expedite/cli/commands.h"
#include "expedite/cli/job.h"
#include "expedite/cli/legal_values.h"
#include "expedite/comm/process_grid.h"
#include "expedite/launch/launcher.h"
#include "expedite/model/compare.h"
#include "expedite/model/engine.h"

namespace expedite::cli {
namespace {

struct CompareOptions {
  std::string model_dir;
  std::string expected;
  std::int64_t ranks = 0;
  std::int64_t expert_parallel_size = 0;
  std::string dtype = "f32";
  double tolerance = 0.0;
};

// Rounding alone: fp32 sums in another order; bf16 keeps 8 bits of every activation through all layers.
double default_tolerance(const std::string& dtype) {
  return dtype == "f32" ? 1e-4 : 5e-2;
}

int print_errors(const std::vector<model::TensorError>& errors, double tolerance) {
  int beyond = 0;
  fmt::print("{:<58} {:>12} {:>12} {:>12}\n", "tensor", "max error", "max value", "measure");
  for (const model::TensorError& error : errors) {
    const bool fits = error.measure() <= tolerance;  // false for NaN
    beyond += fits ? 0 : 1;
    fmt::print("{:<58} {:>12.3e} {:>12.3e} {:>12.3e}{}\n", error.name, error.max_error, error.max_expected,
               error.measure(), fits ? "" : "  BEYOND TOLERANCE");
  }
  fmt::print(
      "{} of {} tensors within {:g} (the error, or for values below 1 its ratio to the largest of them)\n",
      errors.size() - static_cast<std::size_t>(beyond), errors.size(), tolerance);
  return beyond == 0 ? 0 : 1;
}

int run_compare(const CompareOptions& options, const Context& context) {
  const double tolerance = options.tolerance > 0.0 ? options.tolerance : default_tolerance(options.dtype);
  return run_job({.ranks = options.ranks, .arguments = context.arguments},
                 [&](const comm::Communicator& world) {
                   const auto ep = static_cast<int>(options.expert_parallel_size);
                   const comm::ProcessGrid grid(world, ep > 0 ? ep : world.size());
                   const std::vector<model::TensorError> errors =
                       model::compare({.model_dir = options.model_dir,
                                       .expected = options.expected,
                                       .dtype = options.dtype == "f32" ? DType::f32 : DType::bf16,
                                       .threads = model::threads_per_rank(grid)},
                                      grid);
                   return world.rank() == 0 ? print_errors(errors, tolerance) : 0;
                 });
}

}  // namespace

void add_compare_command(CLI::App& app, Context& context) {
  auto options = std::make_shared<CompareOptions>();
  CLI::App* command = app.add_subcommand(
      "compare",
      "Run a Hugging Face model forward and backward, and print the largest error of each tensor of a file: "
      "logits, "
      "hidden_states.<layer>, final_hidden_state, router_logits.<layer>, loss, aux_loss, grad.<parameter>, "
      "grad_aux.<parameter>; exit status 1 beyond the tolerance");
  command->add_option("MODEL_DIR", options->model_dir, "Folder with config.json and safetensors")->required();
  command->add_option("EXPECTED", options->expected, "safetensors with input_ids and the expected tensors")
      ->required();
  add_ranks_option(*command, options->ranks);
  whole_number(command->add_option("--expert-parallel-size", options->expert_parallel_size,
                                   "Ranks of a group; all if not given"),
               1, launch::kMostRanks);
  one_of(command->add_option("--dtype", options->dtype, "Of weights and activations"), {"f32", "bf16"})
      ->capture_default_str();
  add_bf16_products_option(*command);
  number(
      command->add_option("--tolerance", options->tolerance, "1e-4 for f32 and 5e-2 for bf16 if not given"),
      1e-12, 1e6);
  command->callback([options, &context] { context.exit_code = run_compare(*options, context); });
}

}  // namespace expedite::cli
