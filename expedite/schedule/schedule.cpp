#include "expedite/schedule/schedule.h"

#include <fmt/format.h>

#include <iterator>

namespace expedite::schedule {

std::string_view name_of(Stream stream) {
  switch (stream) {
    case Stream::compute:
      return "compute";
    case Stream::prefetch:
      return "prefetch";
    case Stream::intra:
      return "intra";
    case Stream::inter:
      return "inter";
    case Stream::reduce:
      return "reduce";
    case Stream::send_next:
      return "send_next";
    case Stream::receive_previous:
      return "receive_previous";
    case Stream::send_previous:
      return "send_previous";
    case Stream::receive_next:
      return "receive_next";
  }
  return "?";
}

std::string_view name_of(Op op) {
  switch (op) {
    case Op::embedding:
      return "embedding";
    case Op::attention:
      return "attention";
    case Op::dense_mlp:
      return "dense_mlp";
    case Op::router:
      return "router";
    case Op::metadata:
      return "metadata";
    case Op::shared_experts:
      return "shared_experts";
    case Op::permute:
      return "permute";
    case Op::dispatch:
      return "dispatch";
    case Op::experts:
      return "experts";
    case Op::node_sum:
      return "node_sum";
    case Op::combine:
      return "combine";
    case Op::unpermute:
      return "unpermute";
    case Op::retire:
      return "retire";
    case Op::boundary:
      return "boundary";
    case Op::loss:
      return "loss";
    case Op::reduce_dense:
      return "reduce_dense";
    case Op::reduce_experts:
      return "reduce_experts";
    case Op::loads:
      return "loads";
    case Op::gradient_norm:
      return "gradient_norm";
    case Op::statistics:
      return "statistics";
    case Op::optimizer:
      return "optimizer";
    case Op::stage:
      return "stage";
    case Op::paired_stage:
      return "paired_stage";
    case Op::mtp_projection:
      return "mtp_projection";
    case Op::send:
      return "send";
    case Op::receive:
      return "receive";
    case Op::gather_weights:
      return "gather_weights";
  }
  return "?";
}

std::string_view name_of(Pass pass) {
  switch (pass) {
    case Pass::forward:
      return "forward";
    case Pass::recompute:
      return "recompute";
    case Pass::input_grad:
      return "input_grad";
    case Pass::weight_grad:
      return "weight_grad";
    case Pass::update:
      return "update";
  }
  return "?";
}

std::string_view name_of(Collective collective) {
  switch (collective) {
    case Collective::all_gather:
      return "all_gather";
    case Collective::all_to_all:
      return "all_to_all";
    case Collective::all_reduce:
      return "all_reduce";
    case Collective::reduce_scatter:
      return "reduce_scatter";
    case Collective::send:
      return "send";
    case Collective::receive:
      return "receive";
  }
  return "?";
}

std::string_view name_of(Piece piece) {
  switch (piece) {
    case Piece::chunk:
      return "chunk";
    case Piece::half:
      return "half";
    case Piece::virtual_stage:
      return "virtual stage";
    case Piece::part:
      return "part";
  }
  return "?";
}

std::string label(const Task& task) {
  std::string text;
  const auto out = std::back_inserter(text);
  if (task.layer >= 0) {
    fmt::format_to(out, "L{} ", task.layer);
  }
  if (task.micro_batch >= 0) {
    fmt::format_to(out, "mb{} ", task.micro_batch);
  }
  if (task.chunk >= 0) {
    if (task.chunks > 1) {
      fmt::format_to(out, "c{}-{} ", task.chunk, task.chunk + task.chunks - 1);
    } else {
      fmt::format_to(out, "c{} ", task.chunk);
    }
  }
  fmt::format_to(out, "{} {}", name_of(task.op), name_of(task.pass));
  return text;
}

}  // namespace expedite::schedule
