#include "expedite/schedule/moe_layer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <tuple>

#include "expedite/schedule/train_step.h"
#include "expedite/schedule/verify.h"
#include "tests/schedule/step_specs.h"

namespace expedite::schedule {
namespace {

constexpr std::array kPipelines = {ChunkPipeline::continuous, ChunkPipeline::pairwise, ChunkPipeline::none};

struct Layout {
  int world;
  int ep;
  std::vector<int> nodes;
};

std::vector<TaskId> tasks_of(const Schedule& schedule, Op op, Pass pass) {
  std::vector<TaskId> found;
  for (std::size_t id = 0; id < schedule.tasks.size(); ++id) {
    if (schedule.tasks[id].op == op && schedule.tasks[id].pass == pass) {
      found.push_back(static_cast<TaskId>(id));
    }
  }
  return found;
}

TEST(MoeLayer, IsSoundForEveryDispatcherPipelineAndLayout) {
  const std::vector<Layout> layouts = {{1, 1, {}},           {2, 2, {1, 1}},    {4, 4, {2, 2}},
                                       {4, 4, {}},           {3, 3, {2, 1}},    {4, 2, {2, 2}},
                                       {4, 4, {1, 1, 1, 1}}, {5, 5, {1, 3, 1}}, {8, 4, {4, 3, 1}}};
  int cases = 0;
  for (const Layout& layout : layouts) {
    for (const Dispatcher dispatcher : kDispatchers) {
      for (const ChunkPipeline pipeline : kPipelines) {
        for (const int chunks : {1, 2, 3, 5}) {
          for (int variant = 0; variant < 4; ++variant, ++cases) {
            std::vector<Schedule> schedules;
            for (int rank = 0; rank < layout.world; ++rank) {
              StepSpec spec = spec_of(rank, layout.world, layout.ep, {true, false, true}, layout.nodes);
              spec.ep_plan = {.dispatcher = dispatcher,
                              .chunking = {.chunks = chunks, .tapered = variant == 1},
                              .pipeline = pipeline,
                              .window = 1 + (cases + variant) % 3,
                              .recompute = static_cast<MoeRecompute>(variant % 3)};
              spec.shared_experts = variant % 2 == 0;
              spec.training = variant != 3;
              spec.micro_batches = 1 + variant % 2;
              schedules.push_back(build_train_step(spec));
            }
            ASSERT_EQ(verify(schedules), std::vector<std::string>{})
                << "world " << layout.world << " nodes " << layout.nodes.size() << " " << name_of(dispatcher)
                << " " << name_of(pipeline) << " chunks " << chunks << " variant " << variant;
          }
        }
      }
    }
  }
}

TEST(MoeLayer, AloneIsSoundToo) {
  for (const bool training : {true, false}) {
    std::vector<Schedule> schedules;
    for (int rank = 0; rank < 4; ++rank) {
      StepSpec spec = spec_of(rank, 4, 4, {true}, {2, 2});
      spec.training = training;
      spec.ep_plan = {.dispatcher = Dispatcher::hierarchical_dedup, .chunking = {.chunks = 4}};
      schedules.push_back(build_moe_layer_step(spec));
    }
    EXPECT_EQ(verify(schedules), std::vector<std::string>{});
  }
}

TEST(MoeLayer, ExchangesMetadataOnceHoweverManyChunks) {
  StepSpec spec = spec_of(0, 4, 4, {true}, {2, 2});
  for (const Dispatcher dispatcher : kDispatchers) {
    spec.ep_plan = {.dispatcher = dispatcher, .chunking = {.chunks = 8}, .recompute = MoeRecompute::full};
    const Schedule schedule = build_moe_layer_step(spec);
    for (const Pass pass : {Pass::forward, Pass::recompute, Pass::input_grad}) {
      EXPECT_EQ(tasks_of(schedule, Op::metadata, pass).size(), pass == Pass::forward ? 1U : 0U);
    }
  }
}

TEST(MoeLayer, RecomputeRepeatsExpertsAndNoExchange) {
  StepSpec spec = spec_of(0, 2, 2, {true}, {1, 1});
  spec.ep_plan = {.chunking = {.chunks = 4}, .recompute = MoeRecompute::full};
  const Schedule schedule = build_moe_layer_step(spec);
  EXPECT_EQ(tasks_of(schedule, Op::experts, Pass::recompute).size(), 4U);
  EXPECT_EQ(std::count_if(schedule.tasks.begin(), schedule.tasks.end(),
                          [](const Task& task) {
                            return task.communication &&
                                   task.communication->collective == Collective::all_to_all;
                          }),
            4 * 4);
}

// The way out of a chunk is asked for before the way back of the one that makes room for it, and both before
// the next chunk's experts run.
TEST(MoeLayer, ContinuousPipelineKeepsTheWindowFull) {
  StepSpec spec = spec_of(0, 2, 2, {true}, {1, 1});
  spec.ep_plan = {.chunking = {.chunks = 6}, .window = 3};
  const Schedule schedule = build_moe_layer_step(spec);
  const std::vector<TaskId> dispatches = tasks_of(schedule, Op::dispatch, Pass::forward);
  const std::vector<TaskId> experts = tasks_of(schedule, Op::experts, Pass::forward);
  const std::vector<TaskId> combines = tasks_of(schedule, Op::combine, Pass::forward);
  ASSERT_EQ(dispatches.size(), 6U);
  for (std::size_t c = 0; c < 6; ++c) {
    if (c + 3 < 6) {
      EXPECT_LT(experts[c], dispatches[c + 3]);
      EXPECT_LT(dispatches[c + 3], combines[c]);
    }
    if (c + 1 < 6) {
      EXPECT_LT(combines[c], experts[c + 1]);
    }
  }
}

// Nothing of one pair is under way while another's experts run.
// What a node's ranks tell each other stands in one queue: news of a later chunk's arrival there would make a
// chunk that is computed wait for the wire.
TEST(MoeLayer, NoChunkWaitsOnItsWayBackForALaterOnesArrival) {
  for (const ChunkPipeline pipeline : kPipelines) {
    StepSpec spec = spec_of(0, 4, 4, {true}, {2, 2});
    spec.ep_plan = {.dispatcher = Dispatcher::hierarchical_dedup,
                    .chunking = {.chunks = 6},
                    .pipeline = pipeline,
                    .window = 3};
    const Schedule schedule = build_moe_layer_step(spec);
    for (const auto& [out, back, pass] : {std::tuple(Op::dispatch, Op::combine, Pass::forward),
                                          std::tuple(Op::combine, Op::dispatch, Pass::input_grad)}) {
      int told = 0;
      int returned = 0;
      for (const Task& task : schedule.tasks) {
        if (task.stream == Stream::intra && task.pass == pass && (task.op == out || task.op == back)) {
          int& next = task.op == out ? told : returned;
          EXPECT_EQ(task.chunk, next);
          ++next;
          EXPECT_GE(told, returned) << name_of(pipeline);
          EXPECT_LE(told, returned + 1) << name_of(pipeline);
        }
      }
      EXPECT_EQ(told, 6);
      EXPECT_EQ(returned, 6);
    }
  }
}

TEST(MoeLayer, PairwisePipelineDrainsEveryPair) {
  StepSpec spec = spec_of(0, 2, 2, {true}, {1, 1});
  spec.ep_plan = {.chunking = {.chunks = 5}, .pipeline = ChunkPipeline::pairwise};
  const Schedule schedule = build_moe_layer_step(spec);
  const std::vector<TaskId> dispatches = tasks_of(schedule, Op::dispatch, Pass::forward);
  const std::vector<TaskId> unpermutes = tasks_of(schedule, Op::unpermute, Pass::forward);
  for (std::size_t c = 2; c < 5; c += 2) {
    EXPECT_LT(unpermutes[c - 1], dispatches[c]);
  }
}

TEST(MoeLayer, SharedExpertsCoverTheFirstDispatchAndTheLastCombine) {
  StepSpec spec = spec_of(0, 2, 2, {true}, {1, 1});
  spec.shared_experts = true;
  spec.ep_plan = {.chunking = {.chunks = 4}};
  const Schedule schedule = build_moe_layer_step(spec);
  const std::vector<TaskId> shared = tasks_of(schedule, Op::shared_experts, Pass::forward);
  ASSERT_EQ(shared.size(), 2U);
  EXPECT_LT(tasks_of(schedule, Op::dispatch, Pass::forward)[0], shared[0]);
  EXPECT_LT(shared[0], tasks_of(schedule, Op::experts, Pass::forward)[0]);
  EXPECT_LT(tasks_of(schedule, Op::combine, Pass::forward)[3], shared[1]);
  EXPECT_LT(shared[1], tasks_of(schedule, Op::unpermute, Pass::forward)[3]);
}

TEST(MoeLayer, RecomputeAndChunksHalveTheExpertActivations) {
  StepSpec spec = spec_of(0, 2, 2, {true}, {1, 1});
  spec.bytes = bytes_of_rows(1024, 512);
  spec.tokens = 2048;
  const auto peak = [&](int chunks, MoeRecompute recompute) {
    spec.ep_plan = {.chunking = {.chunks = chunks}, .recompute = recompute};
    return forecast_memory(build_moe_layer_step(spec))
        .peak[static_cast<std::size_t>(MemoryCategory::expert_activations)];
  };
  const auto most = 0.5 * static_cast<double>(peak(1, MoeRecompute::none));
  EXPECT_LT(static_cast<double>(peak(4, MoeRecompute::activation)), most);
  EXPECT_LT(static_cast<double>(peak(4, MoeRecompute::full)), 0.8 * most);
}

TEST(Chunking, CutsEveryTokenIntoOneChunk) {
  for (const std::int64_t tokens : {0, 1, 2, 7, 64, 1000}) {
    for (const int chunks : {1, 2, 3, 4, 7}) {
      for (const bool tapered : {false, true}) {
        const std::vector<std::int64_t> bounds = chunk_bounds(tokens, {.chunks = chunks, .tapered = tapered});
        ASSERT_EQ(bounds.size(), static_cast<std::size_t>(chunks) + 1);
        EXPECT_EQ(bounds.front(), 0);
        EXPECT_EQ(bounds.back(), tokens);
        EXPECT_TRUE(std::is_sorted(bounds.begin(), bounds.end()));
      }
    }
  }
}

TEST(Chunking, TapersTheEnds) {
  EXPECT_EQ(chunk_bounds(600, {.chunks = 4, .tapered = true}),
            (std::vector<std::int64_t>{0, 100, 300, 500, 600}));
  EXPECT_EQ(chunk_bounds(10, {.chunks = 4}), (std::vector<std::int64_t>{0, 3, 6, 9, 10}));
  EXPECT_EQ(chunk_bounds(10, {.chunks = 4, .chunk_size = 4}), (std::vector<std::int64_t>{0, 4, 8, 10, 10}));
  EXPECT_THROW((void)chunk_bounds(10, {.chunks = 2, .chunk_size = 4}), Error);
}

}  // namespace
}  // namespace expedite::schedule
