// Digests of communication: ranks whose schedules the verifier finds to meet agree, and where it finds that
// they do not, so do the digests, and the sentence names ranks and task.
#include "expedite/schedule/agreement.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "expedite/schedule/builders.h"
#include "expedite/schedule/coarse_pipeline.h"
#include "expedite/schedule/matching.h"
#include "tests/schedule/random_schedule.h"
#include "tests/schedule/step_specs.h"

namespace expedite::schedule {
namespace {

/// Empty when they agree.
std::string disagreement(std::span<const Schedule> schedules) {
  std::vector<std::vector<ChannelDigest>> digests;
  for (const Schedule& each : schedules) {
    digests.push_back(digest(each));
  }
  const auto channel = find_disagreement(digests);
  if (!channel) {
    return {};
  }
  std::vector<std::string> texts;
  for (const Schedule& each : schedules) {
    texts.push_back(channel_text(each, *channel));
  }
  return describe_disagreement(texts);
}

bool verifier_matches(std::span<const Schedule> schedules) {
  std::vector<std::string> problems;
  (void)match_communication(schedules, problems);
  return problems.empty();
}

std::vector<Schedule> steps(int world, int ep) {
  std::vector<Schedule> all;
  for (int rank = 0; rank < world; ++rank) {
    StepSpec spec = spec_of(rank, world, ep, {true, false, true});
    spec.micro_batches = 2;
    all.push_back(build(step_builders().front(), spec));
  }
  return all;
}

TEST(Agreement, OfEveryBuilderAndLayout) {
  for (const auto& [world, ep] : std::vector<std::pair<int, int>>{{1, 1}, {2, 1}, {2, 2}, {4, 2}, {6, 3}}) {
    EXPECT_EQ(disagreement(steps(world, ep)), "");
  }
  std::vector<Schedule> stages;
  for (int stage = 0; stage < 4; ++stage) {
    stages.push_back(build_coarse_pipeline({{PipelineKind::adaptive_pipe, 4, 2, 8}}, stage));
  }
  EXPECT_EQ(disagreement(stages), "");
}

// One task changed at random, wherever: the digests find what the verifier finds, and nothing else.
TEST(Agreement, FindsWhatTheVerifierFinds) {
  std::mt19937 random(5);
  int mismatches = 0;
  for (unsigned seed = 0; seed < 300; ++seed) {
    std::vector<Schedule> schedules = testing::random_schedules(seed, {.ranks = 4, .events = 30});
    EXPECT_EQ(disagreement(schedules), "");
    Schedule& victim = schedules[random() % schedules.size()];
    if (victim.tasks.empty()) {
      continue;
    }
    Task& task = victim.tasks[random() % victim.tasks.size()];
    switch (random() % 5) {
      case 0:
        ++task.layer;
        break;
      case 1:
        ++task.micro_batch;
        break;
      case 2:
        task.chunk += 2;
        break;
      case 3:
        task.piece = Piece::part;
        break;
      default:
        task.pass = task.pass == Pass::update ? Pass::forward : Pass::update;
    }
    const bool sound = verifier_matches(schedules);
    mismatches += sound ? 0 : 1;
    EXPECT_EQ(disagreement(schedules).empty(), sound) << "seed " << seed << ": " << disagreement(schedules);
  }
  EXPECT_GT(mismatches, 50);
}

TEST(Agreement, NamesRanksAndTheFirstTaskThatDiffers) {
  std::vector<Schedule> schedules = steps(4, 2);
  const auto dispatch = std::ranges::find_if(schedules[3].tasks, [](const Task& task) {
    return task.op == Op::dispatch && task.layer == 2 && task.pass == Pass::forward;
  });
  dispatch->micro_batch = 1;
  const std::string text = disagreement(schedules);
  EXPECT_NE(text.find("among the collectives of group ep on stream intra"), std::string::npos) << text;
  EXPECT_NE(text.find("'L2 mb0 dispatch forward' (all_to_all) on rank 2"), std::string::npos) << text;
  EXPECT_NE(text.find("'L2 mb1 dispatch forward' (all_to_all) on rank 3"), std::string::npos) << text;
}

TEST(Agreement, NamesWhoLacksATask) {
  std::vector<Schedule> schedules = steps(2, 2);
  const auto is_communication = [](const Task& task) { return task.communication.has_value(); };
  schedules[1].tasks.erase(
      std::ranges::find_if(schedules[1].tasks, [](const Task& task) { return task.op == Op::statistics; }));
  const std::string text = disagreement(schedules);
  EXPECT_NE(text.find("statistics update' (all_gather) on rank 0, but rank 1 has only 0: it lacks this one"),
            std::string::npos)
      << text;
  std::erase_if(schedules[1].tasks, is_communication);
  EXPECT_NE(disagreement(schedules).find("but rank 1 has only 0"), std::string::npos)
      << disagreement(schedules);
}

TEST(Agreement, TellsGroupsThatRanksSeeDifferently) {
  std::vector<Schedule> schedules = steps(4, 2);
  schedules[0].groups[kExpertParallelGroup].ranks = {0, 1, 2};
  EXPECT_NE(disagreement(schedules).find("group ep"), std::string::npos) << disagreement(schedules);
}

TEST(Agreement, OfMessagesIsBetweenTwo) {
  std::vector<Schedule> stages;
  for (int stage = 0; stage < 3; ++stage) {
    stages.push_back(build_coarse_pipeline({{PipelineKind::one_f_one_b, 3, 1, 4}}, stage));
  }
  const auto receive =
      std::ranges::find_if(stages[2].tasks, [](const Task& task) { return task.op == Op::receive; });
  receive->micro_batch = 3;
  const std::string text = disagreement(stages);
  EXPECT_NE(text.find("number 1 among the messages from rank 1 to rank 2 on stream receive_previous is"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("'mb3 c2 receive forward' (receive) on rank 2"), std::string::npos) << text;
}

}  // namespace
}  // namespace expedite::schedule
