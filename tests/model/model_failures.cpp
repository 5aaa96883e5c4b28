// A training step that fails on one rank of a job: the test checks that the whole job ends, soon, with a
// message that names the rank, the layer and the step.
#include <cstdio>
#include <exception>
#include <limits>
#include <string_view>

#include "expedite/comm/environment.h"
#include "expedite/model/engine.h"

namespace {

using namespace expedite;         // NOLINT(google-build-using-namespace): a short program
using namespace expedite::model;  // NOLINT(google-build-using-namespace)

constexpr int kToBlame = 1;

ModelConfig config() {
  return architecture::parse_model_config({{"model_type", "qwen3_moe"},
                                           {"vocab_size", 31},
                                           {"hidden_size", 16},
                                           {"num_hidden_layers", 2},
                                           {"num_attention_heads", 2},
                                           {"num_key_value_heads", 1},
                                           {"head_dim", 8},
                                           {"num_experts", 4},
                                           {"num_experts_per_tok", 2},
                                           {"moe_intermediate_size", 8}},
                                          "test");
}

/// Runs the third step, with a fault of kind `mode` in the second layer's router or the tokens.
void run(std::string_view mode) {
  const comm::MpiEnvironment environment;
  const auto world = comm::Communicator::world();
  const comm::ProcessGrid grid(world, world.size());
  const ModelConfig model = config();
  MemoryPool pool;
  Parameters parameters(model, DType::f32, expert_shard(model, grid), State::training, pool);
  parameters.initialize(1);
  Engine engine(parameters, grid, pool, {.collective_timeout_s = 20.0});
  std::vector<std::int32_t> tokens = {1, 2, 3, 4};
  for (int step = 1; step <= 3; ++step) {
    if (step == 3 && world.rank() == kToBlame) {
      if (mode == "nan") {
        parameters.layer(1).moe.router->weight.as<float>()[5] = std::numeric_limits<float>::quiet_NaN();
      } else {
        tokens[2] = 31;
      }
    }
    std::vector<MicroBatch> batches(1);
    batches[0].append(tokens, std::vector<std::int32_t>{2, 3, 4, 5});
    const std::int64_t total = 4 * world.size();
    StepOptions options;
    options.step = step;
    options.adamw.step = step;
    try {
      engine.run({.tokens = 4}, {batches, total, total, {total}}, options);
    } catch (const std::exception& error) {
      engine.fail_job(error.what());
    }
  }
  std::puts("no error");
}

}  // namespace

int main(int argc, char** argv) {
  try {
    run(argc > 1 ? argv[1] : "");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
