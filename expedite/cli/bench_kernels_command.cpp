#include <memory>

#include "bench/kernels.h"
#include "expedite/cli/bench_commands.h"
#include "expedite/cli/bf16_option.h"
#include "expedite/cli/legal_values.h"

namespace expedite::cli {

void add_bench_kernels(CLI::App& bench, Context& context) {
  auto options = std::make_shared<bench::KernelBenchOptions>();
  CLI::App* command =
      bench.add_subcommand("kernels", "Every kernel against the machine's own limit in the same run");
  command->add_option("--json", options->json_path, "Write the results to this file too");
  command
      ->add_option(
          "--case", options->cases,
          "Check and measure this kernel and shape, as in 'matmul bf16 2048x1024x1024'; may be given again; "
          "help: list them")
      ->allow_extra_args(false);
  command->add_option("--cases", options->cases_path, "File of such cases, one per line; # begins a comment")
      ->check(CLI::Validator(CLI::ExistingFile).description(""));
  command->add_option("--filter", options->filter, "Only cases whose name or shape contains this");
  whole_number(command->add_option("--threads", options->threads, "Cores"), 1, kMostThreads)
      ->capture_default_str();
  add_bf16_products_option(*command);
  command->callback([options, &context] { context.exit_code = bench::run_kernel_bench(*options); });
}

}  // namespace expedite::cli
