// Two micro-batches overlapped, from the first task to a picture: docs/builders.md goes through what this
// prints.
//
//     mpirun -n 2 build/release/example_two_micro_batches FOLDER
//
// writes FOLDER/simulated.json and FOLDER/measured.json for tools/plot_trace.py. Any number of ranks, also
// one.
#include <fmt/format.h>

#include <filesystem>
#include <iterator>

#include "examples/two_micro_batches/builder.h"
#include "expedite/base/error.h"
#include "expedite/base/log.h"
#include "expedite/base/random.h"
#include "expedite/comm/collectives.h"
#include "expedite/comm/environment.h"
#include "expedite/cost/simulator.h"
#include "expedite/model/engine.h"
#include "expedite/runtime/write_trace.h"
#include "expedite/schedule/listing.h"
#include "expedite/schedule/verify.h"
#include "expedite/tracing/trace_json.h"

namespace expedite::examples {
namespace {

using schedule::Op;
using schedule::Schedule;

const schedule::Builder& in_order() {
  return schedule::step_builders().front();
}

// ---- 1. A schedule by hand, and what the verifier says of a mistake in it

void first_tasks() {
  Schedule schedule;
  schedule.groups = {{"ep", {0, 1}}};
  schedule.buffers = {{.role = static_cast<std::uint8_t>(schedule::Role::dispatch_send),
                       .category = MemoryCategory::communication,
                       .layer = 0,
                       .micro_batch = 0,
                       .expected_bytes = 4096}};
  schedule.tasks = {{.op = Op::permute, .layer = 0, .micro_batch = 0, .acquires = {0}},
                    {.op = Op::dispatch,
                     .stream = schedule::Stream::intra,
                     .layer = 0,
                     .micro_batch = 0,
                     .after = {0},
                     .communication = schedule::Communication{.group = 0},
                     .releases = {0}}};
  std::vector<Schedule> job(2, schedule);
  job[1].rank = 1;
  require(schedule::verify(job).empty(), "the first schedule is unsound");
  fmt::print("{}\n", listing(schedule));
  job[1].tasks[1].after.clear();  // now nothing says that the rows are there before they are sent
  const std::vector<std::string> problems = schedule::verify(job);
  require(!problems.empty(), "the verifier does not see a missing dependency");
  fmt::print("without the dependency: {}\n\n", problems.front());
}

// ---- 2. The model, and what its builder is told

ModelConfig small_model() {
  return architecture::parse_model_config({{"model_type", "qwen3_moe"},
                                    {"vocab_size", 64},
                                    {"hidden_size", 64},
                                    {"num_hidden_layers", 2},
                                    {"num_attention_heads", 2},
                                    {"num_key_value_heads", 2},
                                    {"head_dim", 32},
                                    {"intermediate_size", 64},
                                    {"moe_intermediate_size", 64},
                                    {"num_experts", 8},
                                    {"num_experts_per_tok", 2},
                                    {"norm_topk_prob", true},
                                    {"max_position_embeddings", 128}},
                                   "the example's model");
}

constexpr std::int64_t kTokens = 128;  // of a micro-batch
constexpr model::StepShape kShape = {.micro_batches = 2, .tokens = kTokens};

std::vector<Schedule> schedules(const schedule::Builder& builder, const comm::Placement& placement) {
  std::vector<Schedule> all;
  for (int rank = 0; rank < placement.layout.world_size(); ++rank) {
    all.push_back(build(
        builder, model::step_spec(small_model(), DType::f32, schedule::EpPlan{}, placement, rank, kShape)));
  }
  return all;
}

// ---- 3. Simulated: times of our own choosing, in milliseconds

cost::TaskCost cost_of(const Schedule&, const schedule::Task& task) {
  constexpr double kMs = 1e-3;
  switch (task.op) {
    case Op::dispatch:
    case Op::combine:
      return {.seconds = 2.0 * kMs};
    case Op::attention:
    case Op::experts:
      return {.seconds = 1.5 * kMs};
    default:
      return {.seconds = 0.1 * kMs};
  }
}

double simulate(const schedule::Builder& builder, const comm::Placement& placement,
                const std::filesystem::path& trace) {
  const std::vector<Schedule> all = schedules(builder, placement);
  std::vector<cost::RankClass> ranks;
  for (const Schedule& each : all) {
    ranks.push_back({&each});
  }
  const cost::Simulation simulation = cost::simulate(ranks, cost_of, {.events = true});
  const cost::RankTimes& first = simulation.ranks.front();
  fmt::print("simulated {:<18} {:5.1f} ms, of which compute waits {:4.1f} ms for communication\n",
             builder.name, simulation.seconds * 1e3, first.exposed * 1e3);
  if (!trace.empty()) {
    tracing::write_chrome_trace(trace, cost::traces_of(simulation));
  }
  return simulation.seconds;
}

// ---- 4. Run: real kernels, real MPI

model::MicroBatch random_tokens(int rank, int micro_batch) {
  const Philox random(7, static_cast<std::uint64_t>(100 * micro_batch + rank));
  std::vector<std::int32_t> tokens;
  for (std::int64_t i = 0; i <= kTokens; ++i) {
    tokens.push_back(static_cast<std::int32_t>(random.bits(static_cast<std::uint64_t>(i)) % 64));
  }
  model::MicroBatch batch;
  const std::span<const std::int32_t> all(tokens);
  batch.append(all.first(all.size() - 1), all.subspan(1));
  return batch;
}

/// Three steps from the same weights. The trace is of the last.
model::StepResult train(const schedule::Builder& builder, const comm::ProcessGrid& grid,
                        const std::filesystem::path& trace) {
  const ModelConfig config = small_model();
  MemoryPool pool;
  model::Parameters parameters(config, DType::f32, model::expert_shard(config, grid), model::State::training,
                               pool);
  parameters.initialize(1);
  model::Engine engine(parameters, grid, pool, {.builder = &builder, .traced_steps = 1});
  const std::vector<model::MicroBatch> batches = {random_tokens(grid.rank(), 0),
                                                  random_tokens(grid.rank(), 1)};
  const std::int64_t each = kTokens * grid.size();
  model::StepResult result;
  constexpr int kSteps = 3;
  for (int step = 1; step <= kSteps; ++step) {
    model::StepOptions options;
    options.adamw.step = options.step = step;
    result = engine.run(kShape, {batches, 2 * each, 2 * each, {each, each}}, options);
  }
  if (!trace.empty()) {
    runtime::write_chrome_trace(trace, grid.world(), engine.trace().events());
  }
  return result;
}

void run(const std::filesystem::path& folder) {
  const comm::Communicator world = comm::Communicator::world();
  initialize_logging(world.rank(), world.size());
  const comm::ProcessGrid grid(world, world.size());
  const bool speaks = world.rank() == 0;
  if (speaks) {
    std::filesystem::create_directories(folder);
    first_tasks();
    const std::vector<Schedule> all = schedules(kTwoMicroBatches, grid.placement());
    fmt::print("{}\n", listing(all.front()));
    const std::vector<std::string> problems = schedule::verify(all);
    require(problems.empty(), "unsound: {}", fmt::join(problems, "; "));
    fmt::print("verified: {} ranks, {} tasks each\n", all.size(), all.front().tasks.size());
    const double before = simulate(in_order(), grid.placement(), {});
    const double after = simulate(kTwoMicroBatches, grid.placement(), folder / "simulated.json");
    require(world.size() == 1 || after < before, "overlapping two micro-batches hides nothing");
  }
  comm::barrier(world);
  const model::StepResult expected = train(in_order(), grid, {});
  const model::StepResult result = train(kTwoMicroBatches, grid, folder / "measured.json");
  require(
      result.loss == expected.loss && result.gradient_norm == expected.gradient_norm,
      "the order of tasks changes results: loss {} and gradient norm {}, where in order they are {} and {}",
      result.loss, result.gradient_norm, expected.loss, expected.gradient_norm);
  if (speaks) {
    fmt::print("trained: loss {:.6f}, gradient norm {:.6f} after three steps, to the bit those of {}\n",
               result.loss, result.gradient_norm, in_order().name);
  }
}

}  // namespace
}  // namespace expedite::examples

int main(int count, char** arguments) {
  if (count != 2) {
    fmt::print(stderr, "usage: example_two_micro_batches FOLDER\n");
    return 2;
  }
  const expedite::comm::MpiEnvironment mpi;
  try {
    expedite::examples::run(arguments[1]);
  } catch (const std::exception& error) {
    expedite::comm::MpiEnvironment::abort(1, error.what());
  }
  return 0;
}
