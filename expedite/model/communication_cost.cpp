#include <algorithm>
#include <cmath>
#include <set>

#include "expedite/base/error.h"
#include "expedite/cost/collective_cost.h"
#include "expedite/model/task_cost.h"

namespace expedite::model {

using schedule::Collective;
using schedule::Op;
using schedule::Pass;

namespace {

constexpr int kInsideNode = 0;  // the simulator's links
constexpr int kBetweenNodes = 1;
constexpr double kWord = 8.0;

}  // namespace

cost::TaskCost TaskCosts::communication(const schedule::Schedule& schedule,
                                        const schedule::Task& task) const {
  const ModelConfig& config = step_.config;
  const std::vector<int>& members =
      schedule.groups[static_cast<std::size_t>(task.communication->group)].ranks;
  std::set<int> nodes;
  for (const int member : members) {
    nodes.insert(step_.placement.node(member));
  }
  const auto spanned = static_cast<std::int64_t>(nodes.size());
  std::int64_t of_node = (std::ssize(members) + spanned - 1) / spanned;
  const auto topk = static_cast<double>(config.experts_per_token);
  double bytes = kWord;
  double sent = 0.0;       // by this rank, where that differs
  double on_thread = 0.0;  // work of the communication thread, when everything has arrived
  switch (task.op) {
    case Op::metadata: {
      constexpr double kChoice = 2.0;
      bytes = tokens_ * topk * kChoice;
      on_thread =
          static_cast<double>(members.size()) *
          kernel("dispatch_plan_complete", DType::f32, {tokens_, static_cast<double>(config.experts), topk});
      break;
    }
    case Op::dispatch:
    case Op::combine:
      if (task.communication->collective == Collective::all_to_all) {
        const ExpectedRows& layer = rows(schedule.rank, task.layer);
        const double tokens = chunk_tokens(task);
        const double row = static_cast<double>(config.hidden_size * size_of(step_.dtype)) +
                           (task.op == Op::dispatch ? topk * 4.0 : 0.0);
        // What is sent is soon in the system's hands; a rank waits for what it receives.
        const bool outward = (task.op == Op::dispatch) == (task.pass != Pass::input_grad);
        bytes = row * (outward ? layer.arrived(tokens) : layer.sent(tokens));
        sent = row * (outward ? layer.sent(tokens) : layer.arrived(tokens));
        of_node = spec_.hierarchical() ? 1 : of_node;  // relays alone exchange
      }
      break;
    case Op::loads:
      bytes = kWord * static_cast<double>(config.experts);
      break;
    case Op::statistics:
      bytes = kWord * static_cast<double>(config.experts * config.layers);
      break;
    case Op::reduce_dense:
    case Op::reduce_experts:
      bytes = 4.0 *
              static_cast<double>(bucket_elements(schedule.rank, task.layer, task.op == Op::reduce_experts));
      if (bytes == 0.0) {
        return {};
      }
      break;
    case Op::retire:
      break;
    default:
      fail("{} is not a communication task of a training step", label(task));
  }
  const cost::CollectiveTime time =
      cost::collective_time(cluster_, task.communication->collective, spanned, of_node, bytes);
  return {.seconds = time.seconds + on_thread,
          .bytes = std::llround(sent > 0.0 ? sent : bytes),
          .link = spanned > 1 ? kBetweenNodes : kInsideNode,
          .latency_seconds = on_thread + cost::collective_latency(cluster_, task.communication->collective,
                                                                  spanned, of_node),
          .rest_seconds = std::max(time.repeated_seconds - time.seconds, 0.0),
          .busy_seconds = time.busy_seconds + on_thread,
          .compute_share = time.compute_share,
          .busy_start_seconds = time.busy_start_seconds};
}

}  // namespace expedite::model
