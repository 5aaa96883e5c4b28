// Fine pipelines: sound for every kind, layout, recompute and dispatcher; every layer's tasks once; the
// exchanges of a pair under the compute of the other.
#include "expedite/schedule/pipeline_step.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>

#include "expedite/base/error.h"
#include "expedite/schedule/verify.h"
#include "tests/schedule/pipeline_shapes.h"
#include "tests/schedule/pipeline_specs.h"

namespace expedite::schedule {
namespace {

using testing::pipeline_spec_of;
using testing::PipelineJob;

using Change = std::function<void(PipelineSpec&)>;

std::vector<Schedule> build(
    const PipelineJob& job, const Change& change = [](PipelineSpec&) {}) {
  std::vector<Schedule> schedules;
  for (int rank = 0; rank < job.ranks(); ++rank) {
    PipelineSpec spec = pipeline_spec_of(job, rank);
    change(spec);
    schedules.push_back(build_pipeline_step(spec));
  }
  return schedules;
}

// Two layers per part where there is room, of all kinds.
std::vector<bool> layers_for(const PipelineShape& shape) {
  std::vector<bool> sparse;
  for (int layer = 0; layer < 2 * parts_of(shape) - 1; ++layer) {
    sparse.push_back(layer % 3 != 0);
  }
  return sparse;
}

TEST(PipelineStep, IsSoundInEveryLegalShape) {
  for (const PipelineShape& shape : testing::legal_shapes(4, 2, 8)) {
    for (const auto& [per_stage, ep, per_node] :
         std::vector<std::array<int, 3>>{{1, 1, 1}, {2, 2, 2}, {2, 1, 2}, {4, 4, 2}}) {
      const PipelineJob job{shape, layers_for(shape), per_stage, ep, per_node};
      ASSERT_EQ(verify(build(job)), std::vector<std::string>{})
          << testing::name_of(shape) << " " << per_stage << " ranks per stage, ep " << ep;
    }
  }
}

const std::vector<PipelineShape> kShapes = {
    {PipelineKind::one_f_one_b, 3, 1, 5},    {PipelineKind::interleaved, 2, 3, 4},
    {PipelineKind::zero_bubble_h1, 3, 1, 5}, {PipelineKind::dualpipe, 4, 1, 10},
    {PipelineKind::adaptive_pipe, 2, 2, 6},  {PipelineKind::adaptive_pipe, 3, 1, 7}};

TEST(PipelineStep, IsSoundWithEveryDispatcherAndRecompute) {
  for (const PipelineShape& shape : kShapes) {
    for (const Dispatcher dispatcher : kDispatchers) {
      for (const int chunks : {1, 3}) {
        for (const int variant : {0, 1, 2, 3, 4, 5, 6, 7}) {
          const PipelineJob job{shape, layers_for(shape), 4, 4, 2};
          const auto schedules = build(job, [&](PipelineSpec& spec) {
            spec.step.ep_plan.dispatcher = dispatcher;
            spec.step.ep_plan.chunking.chunks = chunks;
            spec.step.relays = variant % 2 == 1;
            spec.step.shared_experts = variant != 5;
            spec.recompute = variant == 1                   ? LayerRecompute::attention
                             : variant == 2 || variant == 3 ? LayerRecompute::full
                                                            : LayerRecompute::none;
            spec.step.ep_plan.recompute = variant == 4 ? MoeRecompute::full : MoeRecompute::none;
            spec.recompute_every = variant == 3 ? 2 : 1;
            const bool one_copy = shape.kind != PipelineKind::dualpipe;
            spec.sharded_optimizer = variant == 3 || variant >= 6;
            spec.sharded_gradients = one_copy && variant >= 6;
            spec.sharded_weights = one_copy && variant == 7;
          });
          ASSERT_EQ(verify(schedules), std::vector<std::string>{})
              << testing::name_of(shape) << " " << name_of(dispatcher) << " chunks " << chunks << " variant "
              << variant;
        }
      }
    }
  }
}

TEST(PipelineStep, TakesUnlikeStages) {
  for (const PipelineShape& shape : kShapes) {
    const int parts = parts_of(shape);
    // The embedding alone, the head alone, and most layers on the second part.
    std::vector<int> bounds = {0, 1};
    for (int part = 2; part < parts; ++part) {
      bounds.push_back(9 - parts + part);
    }
    bounds.push_back(10);
    const PipelineJob job{shape, {false, true, true, false, true, true, true, true}, 2, 2, 2};
    const auto schedules = build(job, [&](PipelineSpec& spec) {
      spec.bounds = bounds;
      spec.mtp_layers = 1;
    });
    ASSERT_EQ(verify(schedules), std::vector<std::string>{}) << testing::name_of(shape);
  }
}

TEST(PipelineStep, DoesTheTasksOfEveryLayerOncePerMicroBatch) {
  for (const PipelineShape& shape : kShapes) {
    const std::vector<bool> sparse = layers_for(shape);
    std::map<std::tuple<int, int, Op, Pass>, int> counts;  // by layer and micro-batch
    const PipelineJob job{shape, sparse, 1, 1, 1};
    for (const Schedule& schedule : build(job)) {
      for (const Task& task : schedule.tasks) {
        ++counts[{task.layer, task.micro_batch, task.op, task.pass}];
      }
    }
    for (int mb = 0; mb < shape.micro_batches; ++mb) {
      for (int layer = 0; layer < static_cast<int>(sparse.size()); ++layer) {
        const Op mlp = sparse[static_cast<std::size_t>(layer)] ? Op::experts : Op::dense_mlp;
        for (const Op op : {Op::attention, mlp}) {
          for (const Pass pass : {Pass::forward, Pass::input_grad, Pass::weight_grad}) {
            EXPECT_EQ((counts[{layer, mb, op, pass}]), 1)
                << testing::name_of(shape) << " L" << layer << " " << name_of(op) << " " << name_of(pass);
          }
        }
      }
      EXPECT_EQ((counts[{-1, mb, Op::loss, Pass::forward}]), 1);
      EXPECT_EQ((counts[{-1, mb, Op::embedding, Pass::weight_grad}]), 1);
    }
    const int copies = shape.kind == PipelineKind::dualpipe ? 2 : 1;
    EXPECT_EQ((counts[{0, -1, Op::optimizer, Pass::update}]), copies);
  }
}

TEST(PipelineStep, ReducesGradientsOnceAfterTheLastMicroBatch) {
  const PipelineJob job{{PipelineKind::zero_bubble_h1, 2, 1, 4}, {true, false, true}, 4, 2, 2};
  for (const bool sharded : {false, true}) {
    for (const Schedule& schedule :
         build(job, [&](PipelineSpec& spec) { spec.sharded_optimizer = sharded; })) {
      std::map<std::pair<int, Op>, int> reductions;
      int gathers = 0;
      TaskId last_weight_grad = -1;
      for (std::size_t id = 0; id < schedule.tasks.size(); ++id) {
        const Task& task = schedule.tasks[id];
        if (task.op == Op::reduce_dense || task.op == Op::reduce_experts) {
          ++reductions[{task.layer, task.op}];
          EXPECT_EQ(task.communication->collective,
                    sharded ? Collective::reduce_scatter : Collective::all_reduce);
          const Task& done = schedule.tasks[static_cast<std::size_t>(task.after.front())];
          EXPECT_EQ(done.micro_batch, 3);
        }
        gathers += task.op == Op::gather_weights ? 1 : 0;
        last_weight_grad = task.pass == Pass::weight_grad ? static_cast<TaskId>(id) : last_weight_grad;
      }
      // Stage 0: embedding, L0 (sparse). Stage 1: L1, L2 (sparse), head... by items cut evenly.
      const int expected = schedule.rank / 4 == 0 ? 2 + 1 : 3 + 1;
      EXPECT_EQ(static_cast<int>(reductions.size()), expected) << "rank " << schedule.rank;
      EXPECT_TRUE(std::ranges::all_of(reductions, [](const auto& entry) { return entry.second == 1; }));
      EXPECT_EQ(gathers, sharded ? expected : 0);
    }
  }
}

// The index of the first task like this, on the compute stream or not.
std::size_t find(const Schedule& schedule, Op op, Pass pass, int micro_batch, int layer) {
  const auto found = std::ranges::find_if(schedule.tasks, [&](const Task& task) {
    return task.op == op && task.pass == pass && task.micro_batch == micro_batch && task.layer == layer;
  });
  EXPECT_NE(found, schedule.tasks.end());
  return static_cast<std::size_t>(found - schedule.tasks.begin());
}

// The last stage of two, in the steady state: forward of micro-batch 1 with backward of micro-batch 0.
TEST(PipelineStep, AdaptivePipeRunsEveryExchangeUnderTheOtherOfThePair) {
  const PipelineJob job{{PipelineKind::adaptive_pipe, 2, 1, 6}, {true, true}, 2, 2, 2};
  const Schedule schedule = build(job)[2];
  const auto at = [&](Op op, Pass pass, int micro_batch) { return find(schedule, op, pass, micro_batch, 1); };
  const std::vector<std::size_t> order = {
      at(Op::combine, Pass::input_grad, 0),   at(Op::attention, Pass::forward, 1),
      at(Op::dispatch, Pass::forward, 1),     at(Op::experts, Pass::input_grad, 0),
      at(Op::dispatch, Pass::input_grad, 0),  at(Op::experts, Pass::weight_grad, 0),
      at(Op::experts, Pass::forward, 1),      at(Op::combine, Pass::forward, 1),
      at(Op::attention, Pass::input_grad, 0), at(Op::unpermute, Pass::forward, 1),
      at(Op::attention, Pass::weight_grad, 0)};
  EXPECT_TRUE(std::ranges::is_sorted(order));
  EXPECT_LT(at(Op::unpermute, Pass::input_grad, 0), order.front());
}

TEST(PipelineStep, CutsLayersIntoChunksOnlyOutsideOfPairs) {
  const PipelineJob job{{PipelineKind::adaptive_pipe, 2, 1, 6}, {true, true}, 2, 2, 2};
  const auto chunks = [&](const Schedule& schedule, int micro_batch, Pass pass) {
    return std::ranges::count_if(schedule.tasks, [&](const Task& task) {
      return task.op == Op::dispatch && task.micro_batch == micro_batch && task.pass == pass;
    });
  };
  for (const MoeRecompute recompute : {MoeRecompute::none, MoeRecompute::full}) {
    const auto schedules = build(job, [&](PipelineSpec& spec) {
      spec.step.ep_plan.chunking.chunks = 3;
      spec.step.ep_plan.recompute = recompute;
    });
    ASSERT_EQ(verify(schedules), std::vector<std::string>{});
    // The last stage: forward of 0 alone, of 1 with backward of 0, ..., backward of 5 alone. With recompute
    // buffers are of chunks, and forward and backward must have the same.
    const int paired = recompute == MoeRecompute::none ? 1 : 3;
    EXPECT_EQ(chunks(schedules[2], 0, Pass::forward), 3);
    EXPECT_EQ(chunks(schedules[2], 1, Pass::forward), paired);
    EXPECT_EQ(chunks(schedules[2], 0, Pass::input_grad), paired);
    EXPECT_EQ(chunks(schedules[2], 5, Pass::input_grad), 3);
  }
}

TEST(PipelineStep, SendsGradientsBeforeTheLastWeightGradients) {
  const PipelineJob job{{PipelineKind::one_f_one_b, 2, 1, 4}, {true, true}, 1, 1, 1};
  const Schedule schedule = build(job)[1];
  const std::size_t sent = find(schedule, Op::send, Pass::input_grad, 0, -1);
  const Task& ready = schedule.tasks[static_cast<std::size_t>(schedule.tasks[sent].after.front())];
  EXPECT_EQ(ready.op, Op::attention);
  EXPECT_EQ(ready.pass, Pass::input_grad);
}

TEST(PipelineStep, KeepsLessWithRecompute) {
  const PipelineJob job{{PipelineKind::one_f_one_b, 4, 1, 8}, std::vector<bool>(8, true), 2, 2, 2};
  const auto peak = [&](LayerRecompute recompute) {
    const auto schedules = build(job, [&](PipelineSpec& spec) { spec.recompute = recompute; });
    return forecast_memory(schedules.front()).total_peak;
  };
  const std::int64_t none = peak(LayerRecompute::none);
  EXPECT_LT(peak(LayerRecompute::attention), none);
  EXPECT_LT(peak(LayerRecompute::full), peak(LayerRecompute::attention));
}

TEST(PipelineStep, SaysWhatDoesNotFit) {
  const PipelineJob job{{PipelineKind::one_f_one_b, 4, 1, 8}, {true, true, true}, 1, 1, 1};
  const auto expect = [&](const Change& change, const std::string& part) {
    PipelineSpec spec = pipeline_spec_of(job, 0);
    change(spec);
    try {
      (void)build_pipeline_step(spec);
      ADD_FAILURE() << "no error about " << part;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
  };
  expect([](PipelineSpec& spec) { spec.step.sparse = {true}; }, "at most 3");
  expect([](PipelineSpec& spec) { spec.shape.virtual_stages = 2; }, "no virtual stages");
  expect([](PipelineSpec& spec) { spec.step.groups.pop_back(); }, "6 groups");
  expect([](PipelineSpec& spec) { spec.step.groups.back().ranks.pop_back(); }, "3 ranks");
  expect([](PipelineSpec& spec) { spec.bounds = {0, 2, 2, 3, 5}; }, "rising");
  expect([](PipelineSpec& spec) { spec.bounds = {0, 2, 3, 5}; }, "4 parts");
  expect([](PipelineSpec& spec) { spec.mtp_layers = 4; }, "multi-token");
  expect([](PipelineSpec& spec) { spec.stage = 4; }, "stages are 0 to 3");
  expect(
      [](PipelineSpec& spec) {
        spec.recompute = LayerRecompute::full;
        spec.step.ep_plan.recompute = MoeRecompute::full;
      },
      "one of the two");
}

}  // namespace
}  // namespace expedite::schedule
