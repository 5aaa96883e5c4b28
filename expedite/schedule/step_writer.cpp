#include "expedite/schedule/step_writer.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace expedite::schedule {
namespace {

bool at_experts(Role role) {
  return category_of(role) == MemoryCategory::expert_activations || role == Role::dispatch_recv ||
         role == Role::combine_send || role == Role::grad_combine_recv || role == Role::grad_dispatch_send;
}

/// Rows of the buffers between ranks, for `tokens` tokens of each rank and experts that are chosen evenly.
double expected_even_rows(const StepSpec& spec, Role role, double tokens) {
  const double copies = tokens * static_cast<double>(spec.experts_per_token);
  const auto ranks = static_cast<double>(spec.group_size(kExpertParallelGroup));
  if (category_of(role) == MemoryCategory::expert_activations) {
    return copies;
  }
  if (spec.ep_plan.dispatcher == Dispatcher::alltoall) {
    return copies * (ranks - 1.0) / ranks;
  }
  const double node = spec.hierarchical() ? static_cast<double>(spec.group_size(kNodeGroup)) : 1.0;
  const double others = ranks / node - 1.0;
  if (role == Role::combine_share || role == Role::grad_dispatch_share) {
    const double wanted = 1.0 - std::pow(1.0 - 1.0 / ranks, static_cast<double>(spec.experts_per_token));
    return tokens * (ranks - 1.0) * wanted;
  }
  const double wanted = spec.ep_plan.dispatcher == Dispatcher::hierarchical
                            ? 1.0
                            : 1.0 - std::pow(1.0 - node / ranks, static_cast<double>(spec.experts_per_token));
  if (spec.hierarchical() && spec.relays) {
    const double reached = 1.0 - std::pow(1.0 - 1.0 / ranks, static_cast<double>(spec.experts_per_token));
    return tokens * (at_experts(role) ? ranks * reached : others * wanted + 1.0);
  }
  const double own =
      spec.shares_rows() && (role == Role::dispatch_recv || role == Role::grad_combine_recv) ? 1.0 : 0.0;
  return tokens * (others * wanted + own);
}

/// Likewise, but this rank's experts are chosen as often as the spec says.
double expected_rows(const StepSpec& spec, Role role, double tokens) {
  return expected_even_rows(spec, role, tokens) * (at_experts(role) ? spec.expert_load : 1.0);
}

}  // namespace

StepWriter::StepWriter(const StepSpec& spec)
    : spec_(spec), chunk_bounds_(chunk_bounds(spec.tokens, spec.ep_plan.chunking)) {
  schedule_.rank = spec.rank;
  schedule_.groups = spec.groups;
}

void StepWriter::begin_micro_batch(int micro_batch) {
  micro_batch_ = micro_batch;
  buffers_.resize(std::max(buffers_.size(), static_cast<std::size_t>(micro_batch + 2)));
}

TaskId StepWriter::compute(Work work, const Held& held) {
  Task task;
  task.op = work.op;
  task.pass = work.pass;
  task.layer = work.layer;
  task.micro_batch = micro_batch_;
  task.chunk = work.chunk;
  task.chunks = work.chunks;
  task.piece = work.piece;
  task.after = std::move(work.after);
  task.acquires = ids(held.acquires);
  task.uses = ids(held.uses);
  task.releases = ids(held.releases);
  schedule_.tasks.push_back(std::move(task));
  last_compute_ = static_cast<TaskId>(schedule_.tasks.size()) - 1;
  return last_compute_;
}

TaskId StepWriter::communicate(Work work, Stream stream, Collective collective, GroupId group,
                               const Held& held) {
  const TaskId before = last_compute_;
  const TaskId id = compute(std::move(work), held);
  last_compute_ = before;
  Task& task = schedule_.tasks[static_cast<std::size_t>(id)];
  task.stream = stream;
  task.communication = Communication{.collective = collective, .group = group};
  return id;
}

TaskId StepWriter::message(Work work, Stream stream, Collective collective, GroupId group, int peer,
                           const Held& held) {
  const TaskId id = communicate(std::move(work), stream, collective, group, held);
  schedule_.tasks[static_cast<std::size_t>(id)].communication->peer = peer;
  return id;
}

void StepWriter::renew(Role role, int layer) {
  auto& known = buffers();
  const auto begin = known.lower_bound({role, layer, -1});
  auto end = begin;
  while (end != known.end() && end->first.role == role && end->first.layer == layer) {
    ++end;
  }
  known.erase(begin, end);
}

Schedule StepWriter::take(std::span<const TaskId> order) {
  std::vector<Task> tasks;
  tasks.reserve(order.size());
  std::vector<TaskId> place(schedule_.tasks.size(), -1);
  for (const TaskId id : order) {
    place[static_cast<std::size_t>(id)] = static_cast<TaskId>(tasks.size());
    tasks.push_back(std::move(schedule_.tasks[static_cast<std::size_t>(id)]));
  }
  for (Task& task : tasks) {
    for (TaskId& earlier : task.after) {
      earlier = place[static_cast<std::size_t>(earlier)];
    }
  }
  schedule_.tasks = std::move(tasks);
  return take();
}

std::vector<BufferId> StepWriter::ids(const std::vector<BufferKey>& keys) {
  std::vector<BufferId> result;
  result.reserve(keys.size());
  for (const BufferKey& key : keys) {
    const auto [entry, added] = buffers().try_emplace(key, static_cast<BufferId>(schedule_.buffers.size()));
    if (added) {
      const bool between_ranks = category_of(key.role) == MemoryCategory::communication;
      const bool shared = key.role == Role::dispatch_recv || key.role == Role::grad_combine_recv ||
                          key.role == Role::combine_share || key.role == Role::grad_dispatch_share;
      schedule_.buffers.push_back({.role = static_cast<std::uint8_t>(key.role),
                                   .category = category_of(key.role),
                                   .layer = key.layer,
                                   .micro_batch = micro_batch_,
                                   .chunk = key.chunk,
                                   .shared = between_ranks && shared && spec_.shares_rows(),
                                   .expected_bytes = expected_bytes(key)});
    }
    result.push_back(entry->second);
  }
  return result;
}

std::int64_t StepWriter::expected_bytes(const BufferKey& key) const {
  if (!spec_.bytes) {
    return 0;
  }
  const std::int64_t tokens = key.chunk < 0 ? spec_.tokens
                                            : chunk_bounds_[static_cast<std::size_t>(key.chunk) + 1] -
                                                  chunk_bounds_[static_cast<std::size_t>(key.chunk)];
  const bool rows = holds_rows(key.role);
  return spec_.bytes(
      key.role,
      rows ? static_cast<std::int64_t>(expected_rows(spec_, key.role, static_cast<double>(tokens))) : tokens);
}

}  // namespace expedite::schedule
