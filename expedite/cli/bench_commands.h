// The subcommands of `expedite bench`, one source file for each subject.
#pragma once

#include "expedite/cli/commands.h"

namespace expedite::cli {

void add_bench_kernels(CLI::App& bench, Context& context);
void add_bench_train(CLI::App& bench, Context& context);
/// `bench layer` and `bench dispatch`.
void add_bench_layer(CLI::App& bench, Context& context);
void add_bench_pipeline(CLI::App& bench, Context& context);

}  // namespace expedite::cli
