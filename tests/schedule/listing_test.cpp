// A schedule printed and as JSON: all of it is there, and pieces say what they are of.
#include "expedite/schedule/listing.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "expedite/schedule/coarse_pipeline.h"
#include "expedite/schedule/role.h"
#include "expedite/schedule/train_step.h"
#include "expedite/schedule/verify.h"
#include "tests/schedule/step_specs.h"

namespace expedite::schedule {
namespace {

TEST(Listing, HasALinePerTaskByStream) {
  Schedule schedule;
  schedule.rank = 1;
  schedule.groups = {{"world", {0, 1, 2, 5}}, {"ep", {1}}};
  schedule.buffers = {{.role = static_cast<std::uint8_t>(Role::mid), .layer = 3, .expected_bytes = 640},
                      {.role = static_cast<std::uint8_t>(Role::dispatch_send),
                       .category = MemoryCategory::communication,
                       .expected_bytes = 96}};
  schedule.tasks = {{.op = Op::attention, .layer = 3, .micro_batch = 0, .acquires = {0, 1}},
                    {.op = Op::dispatch,
                     .stream = Stream::intra,
                     .layer = 3,
                     .micro_batch = 0,
                     .chunk = 1,
                     .after = {0},
                     .communication = Communication{.collective = Collective::all_to_all},
                     .releases = {1}},
                    {.op = Op::experts,
                     .pass = Pass::weight_grad,
                     .layer = 3,
                     .chunk = 0,
                     .chunks = 2,
                     .after = {1, 0},
                     .uses = {0}},
                    {.op = Op::optimizer, .pass = Pass::update, .releases = {0}}};
  EXPECT_EQ(
      listing(schedule),
      "rank 1: 4 tasks, 2 buffers\n"
      "group world: ranks 0-2, 5\n"
      "group ep: rank 1\n"
      "bytes at the peak, as expected: 736; activations 640; communication 96\n"
      "\n"
      "compute, 3 tasks\n"
      "  0  attention forward    L3 mb0                     acquires 0:mid 640, 1:dispatch_send 96\n"
      "  2  experts weight_grad  L3 chunks 0-1  after 1, 0  uses 0:mid 640\n"
      "  3  optimizer update     step                       releases 0:mid 640\n"
      "\n"
      "intra, 1 task\n"
      "  1  dispatch forward  L3 mb0 chunk 1  all_to_all world, after 0  releases 1:dispatch_send 96\n");
}

TEST(Listing, SaysWhatAPieceIsOf) {
  const std::string stage = listing(build_coarse_pipeline({{PipelineKind::interleaved, 2, 2, 2}}, 0));
  EXPECT_NE(stage.find("mb0 virtual stage 1"), std::string::npos) << stage;
  EXPECT_NE(stage.find("mb1 part 3"), std::string::npos) << stage;
  EXPECT_NE(stage.find("send pp rank 1"), std::string::npos) << stage;
  StepSpec spec = spec_of(0, 2, 2, {true});
  spec.shared_experts = true;
  spec.ep_plan.chunking.chunks = 2;
  const std::string step = listing(build_train_step(spec));
  EXPECT_NE(step.find("shared_experts forward"), std::string::npos);
  EXPECT_NE(step.find("half 0"), std::string::npos) << step;
  EXPECT_NE(step.find("chunk 1"), std::string::npos);
}

// The JSON read back is the schedule.
TEST(Listing, AsJsonLosesNothing) {
  StepSpec spec = spec_of(1, 4, 4, {true, false}, {2, 2});
  spec.ep_plan.dispatcher = Dispatcher::hierarchical_dedup;
  spec.ep_plan.chunking.chunks = 3;
  spec.micro_batches = 2;
  const Schedule schedule = build_train_step(spec);
  const nlohmann::json json = nlohmann::json::parse(to_json(schedule).dump());
  EXPECT_EQ(json.at("rank"), 1);
  EXPECT_EQ(json.at("expected_peak_bytes"), forecast_memory(schedule).total_peak);
  ASSERT_EQ(json.at("groups").size(), schedule.groups.size());
  for (std::size_t i = 0; i < schedule.groups.size(); ++i) {
    EXPECT_EQ(json["groups"][i].at("name"), schedule.groups[i].name);
    EXPECT_EQ(json["groups"][i].at("ranks"), schedule.groups[i].ranks);
  }
  ASSERT_EQ(json.at("tasks").size(), schedule.tasks.size());
  for (std::size_t i = 0; i < schedule.tasks.size(); ++i) {
    const Task& task = schedule.tasks[i];
    const nlohmann::json& read = json["tasks"][i];
    EXPECT_EQ(read.at("id"), i);
    EXPECT_EQ(read.at("operation"), name_of(task.op));
    EXPECT_EQ(read.at("pass"), name_of(task.pass));
    EXPECT_EQ(read.at("stream"), name_of(task.stream));
    EXPECT_EQ(read.at("label"), label(task));
    EXPECT_EQ(read.value("layer", -1), task.layer);
    EXPECT_EQ(read.value("micro_batch", -1), task.micro_batch);
    EXPECT_EQ(read.value("first", -1), task.chunk);
    EXPECT_EQ(read.value("count", 1), task.chunks);
    EXPECT_EQ(read.at("after"), task.after);
    EXPECT_EQ(read.at("acquires"), task.acquires);
    EXPECT_EQ(read.at("uses"), task.uses);
    EXPECT_EQ(read.at("releases"), task.releases);
    EXPECT_EQ(read.contains("collective"), task.communication.has_value());
    if (task.communication) {
      EXPECT_EQ(read["collective"], name_of(task.communication->collective));
      EXPECT_EQ(read.at("group"), schedule.groups[static_cast<std::size_t>(task.communication->group)].name);
    }
  }
  ASSERT_EQ(json.at("buffers").size(), schedule.buffers.size());
  for (std::size_t i = 0; i < schedule.buffers.size(); ++i) {
    const LogicalBuffer& buffer = schedule.buffers[i];
    const nlohmann::json& read = json["buffers"][i];
    EXPECT_EQ(read.at("role"), name_of(static_cast<Role>(buffer.role)));
    EXPECT_EQ(read.at("category"), name_of(buffer.category));
    EXPECT_EQ(read.at("expected_bytes"), buffer.expected_bytes);
    EXPECT_EQ(read.at("shared"), buffer.shared);
    EXPECT_EQ(read.value("layer", -1), buffer.layer);
    EXPECT_EQ(read.value("first", -1), buffer.chunk);
  }
}

}  // namespace
}  // namespace expedite::schedule
