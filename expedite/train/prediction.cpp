#include "expedite/train/prediction.h"

#include <algorithm>

#include "expedite/base/error.h"
#include "expedite/base/log.h"
#include "expedite/base/median.h"
#include "expedite/schedule/verify.h"
#include "expedite/text/tokenizer.h"
#include "expedite/train/batches.h"
#include "expedite/train/ep_plan.h"
#include "expedite/train/model_source.h"
#include "expedite/train/tokenizer_choice.h"
#include "expedite/train/training.h"

namespace expedite::train {

namespace {

/// The experts' plan is left open.
model::StepCase open_case(const TrainConfig& config, const comm::Placement& placement) {
  const int ranks = placement.layout.world_size();
  const std::int64_t micro_batches =
      micro_batch_count(config.train.global_batch_size, config.train.micro_batch_size, ranks);
  model::StepCase step{
      .config = model_of(config, text::make_tokenizer(tokenizer_choice(config))->vocab_size()),
      .dtype = config.dtype,
      .builder = config.parallel.schedule,
      .placement = placement,
      .sequence_length = config.data.seq_length,
      .balance = balance_options(config.moe)};
  std::ranges::for_each(step.config.notes, warn_once);
  step.shape = {.micro_batches = static_cast<int>(micro_batches),
                .batch_aux_loss = step.balance.aux_loss == model::AuxLoss::batch,
                .tokens = config.train.global_batch_size * config.data.seq_length / ranks / micro_batches};
  return step;
}

}  // namespace

model::StepCase step_case(const TrainConfig& config, const cost::Cluster& cluster) {
  const auto ranks = static_cast<int>(cluster.ranks());
  const std::int64_t wanted = config.parallel.expert_parallel_size;
  const comm::GridLayout layout(ranks, wanted > 0 ? static_cast<int>(wanted) : ranks);
  const std::int64_t threads = config.runtime.threads_per_rank;
  require(threads == 0 || threads == cluster.devices.front().cores,
          "runtime.threads_per_rank = {}, but the cluster {} was measured with {} cores of each rank",
          threads, cluster.name, cluster.devices.front().cores);
  model::StepCase step =
      open_case(config, comm::even_placement(layout, static_cast<int>(cluster.ranks_per_node)));
  step.plan = ep_plan(config, step.config, step.placement, cluster);
  return step;
}

model::StepCase step_case(const TrainConfig& config, const comm::Placement& placement) {
  model::StepCase step = open_case(config, placement);
  step.plan = plan_as_asked(config);
  step.plan.taper();
  return step;
}

Prediction predict(const model::StepCase& step, const cost::Cluster& cluster) {
  Prediction prediction{.schedules = build_schedules(step),
                        .tokens = step.shape.tokens * step.shape.micro_batches * step.ranks()};
  std::vector<cost::RankClass> ranks;
  for (const schedule::Schedule& schedule : prediction.schedules) {
    ranks.push_back({&schedule});
  }
  const model::TaskCosts costs(step, cluster);
  cost::SimulationOptions options{.contention = true, .events = true, .memory = true};
  options.cores = cost::Cores{.node_of = step.placement.node_of, .sharing = cluster.sharing};
  prediction.simulation = cost::simulate(ranks, std::cref(costs), options);
  return prediction;
}

StepTimes step_times(std::span<const Prediction> predictions) {
  std::vector<double> seconds;
  std::vector<double> exposed;
  std::vector<ClassSeconds> classes;
  for (const Prediction& prediction : predictions) {
    const cost::Simulation& simulation = prediction.simulation;
    double waiting = 0.0;
    for (const cost::RankTimes& rank : simulation.ranks) {
      waiting += simulation.seconds - rank.compute;
    }
    seconds.push_back(simulation.seconds);
    exposed.push_back(waiting / (simulation.seconds * static_cast<double>(simulation.ranks.size())));
    classes.push_back(class_seconds(cost::traces_of(simulation), prediction.schedules).front());
  }
  return {.step_seconds = median(std::move(seconds)),
          .exposed = median(std::move(exposed)),
          .classes = median_classes(classes),
          .steps = std::ssize(predictions)};
}

}  // namespace expedite::train
