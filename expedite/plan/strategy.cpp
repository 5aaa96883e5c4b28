#include "expedite/plan/strategy.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <set>
#include <utility>
#include <vector>

#include "expedite/base/error.h"
#include "expedite/base/text.h"
#include "expedite/plan/stages.h"

namespace expedite::plan {
namespace {

constexpr std::int32_t kMost = 1 << 20;

bool divides(std::int64_t part, std::int64_t whole) {
  return part >= 1 && whole % part == 0;
}

std::string divisors(std::int64_t of) {
  std::string text;
  for (std::int64_t d = 1; d <= of && d <= 4096; ++d) {
    if (of % d == 0) {
      text += (text.empty() ? "" : ", ") + std::to_string(d);
    }
  }
  return text;
}

template <typename Enum, std::size_t N>
std::optional<Enum> by_name(const std::array<std::string_view, N>& names, std::string_view text) {
  for (std::size_t i = 0; i < N; ++i) {
    if (names[i] == text) {
      return static_cast<Enum>(i);
    }
  }
  return std::nullopt;
}

template <std::size_t N>
std::string choices(const std::array<std::string_view, N>& names) {
  return join_choices(std::vector<std::string>(names.begin(), names.end()));
}

struct Knob {
  std::string_view name;
  std::int32_t Strategy::*value;
};
constexpr std::array kKnobs = {
    Knob{"tp", &Strategy::tp},         Knob{"cp", &Strategy::cp},     Knob{"pp", &Strategy::pp},
    Knob{"vpp", &Strategy::vpp},       Knob{"ep", &Strategy::ep},     Knob{"etp", &Strategy::etp},
    Knob{"dp", &Strategy::dp},         Knob{"zero", &Strategy::zero}, Knob{"mb", &Strategy::micro_batch},
    Knob{"chunks", &Strategy::chunks},
};

void set(Strategy& strategy, std::string_view key, std::string_view value) {
  for (const Knob& knob : kKnobs) {
    if (knob.name == key) {
      std::int32_t number = -1;
      const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
      const std::int32_t lowest = key == "zero" ? 0 : 1;
      const std::int32_t highest = key == "zero" ? 3 : kMost;
      require(
          error == std::errc() && end == value.data() + value.size() && number >= lowest && number <= highest,
          "strategy: {}={} must be a whole number from {} to {}", key, value, lowest, highest);
      strategy.*knob.value = number;
      return;
    }
  }
  const auto take = [&](auto& field, const auto& found, const std::string& legal) {
    require(found.has_value(), "strategy: {}={} is unknown; legal are {}", key, value, legal);
    field = *found;
  };
  if (key == "recompute") {
    take(strategy.recompute, by_name<Recompute>(kRecomputeNames, value), choices(kRecomputeNames));
  } else if (key == "pipeline") {
    take(strategy.pipeline, by_name<Pipeline>(kPipelineNames, value), choices(kPipelineNames));
  } else if (key == "dispatcher") {
    take(strategy.dispatcher, schedule::parse_dispatcher(value), join_choices(schedule::dispatcher_names()));
  } else if (key == "sp") {
    require(value == "0" || value == "1", "strategy: sp={} must be 0 or 1", value);
    strategy.sequence_parallel = value == "1";
  } else {
    std::vector<std::string> names = {"recompute", "pipeline", "dispatcher", "sp"};
    for (const Knob& knob : kKnobs) {
      names.emplace_back(knob.name);
    }
    fail("strategy: there is no knob {}; the nearest is {}, and legal are {}", key, nearest_name(key, names),
         join_choices(names));
  }
}

}  // namespace

std::optional<Illegal> illegal(const Strategy& s, const ModelConfig& model, const Workload& workload,
                               std::int64_t devices) {
  if (s.devices() != devices) {
    return Illegal::devices;
  }
  // Key-value heads fewer than tp are repeated.
  if (!divides(s.tp, model.heads) || !(divides(s.tp, model.kv_heads) || divides(model.kv_heads, s.tp))) {
    return Illegal::heads;
  }
  const std::int64_t layers = model.layers + model.prediction_layers;
  if (s.pp > std::min<std::int64_t>(layers, kMaxStages)) {
    return Illegal::layers;
  }
  if (std::int64_t{s.pp} * s.vpp > layers || (s.vpp > 1 && s.pp == 1)) {
    return Illegal::virtual_stages;
  }
  if (model.experts == 0) {
    if (s.ep != 1 || s.etp != 1) {
      return Illegal::experts;
    }
    if (s.chunks != 1) {
      return Illegal::chunks;
    }
  } else {
    if (s.ep > model.experts || !divides(s.ep, model.experts) ||
        !divides(s.etp, model.moe_intermediate_size)) {
      return Illegal::experts;
    }
    if (!divides(std::int64_t{s.ep} * s.etp, std::int64_t{s.tp} * s.cp * s.dp)) {
      return Illegal::expert_group;
    }
  }
  if (s.ep == 1 && (s.chunks != 1 || s.dispatcher != schedule::Dispatcher::alltoall)) {
    return s.chunks != 1 ? Illegal::chunks : Illegal::dispatcher;
  }
  if (!divides(std::int64_t{s.dp} * s.micro_batch, workload.global_batch)) {
    return Illegal::batch;
  }
  if (!divides(s.cp * (s.cp > 1 ? 2 : 1), workload.seq) || !divides(s.tp, workload.seq / s.cp)) {
    return Illegal::sequence;
  }
  const bool pair_in_chunks = s.chunks > 1 && s.recompute == Recompute::moe_act && pairs_micro_batches(s);
  if (s.chunks > workload.seq / s.cp / s.tp * s.micro_batch || pair_in_chunks) {
    return Illegal::chunks;
  }
  const std::int64_t micro_batches = workload.global_batch / s.dp / s.micro_batch;
  if (s.vpp > 1 && !divides(s.pp, micro_batches)) {
    return Illegal::micro_batches;
  }
  const bool plain = s.pipeline == Pipeline::one_f_one_b;
  if (s.pp == 1 && !plain) {
    return Illegal::pipeline;
  }
  switch (s.pipeline) {
    case Pipeline::one_f_one_b:
      break;
    case Pipeline::zero_bubble_h1:
    case Pipeline::zero_bubble_h2:
      if (s.vpp != 1) {
        return Illegal::pipeline;
      }
      break;
    case Pipeline::dualpipe:
      if (s.vpp != 1 || s.pp % 2 != 0 || micro_batches < 2 * s.pp) {
        return Illegal::pipeline;
      }
      break;
    case Pipeline::adaptive:
      if (s.vpp < 2) {
        return Illegal::pipeline;
      }
      break;
  }
  return std::nullopt;
}

std::string explain(Illegal reason, const Strategy& s, const ModelConfig& model, const Workload& workload,
                    std::int64_t devices) {
  switch (reason) {
    case Illegal::devices:
      return fmt::format("tp {} * cp {} * pp {} * dp {} = {} devices, but there are {}", s.tp, s.cp, s.pp,
                         s.dp, s.devices(), devices);
    case Illegal::heads:
      return fmt::format(
          "tp {} must divide the {} attention heads, and divide or be a multiple of the {} "
          "key-value heads; divisors are {}",
          s.tp, model.heads, model.kv_heads, divisors(model.heads));
    case Illegal::layers:
      return fmt::format("pp {} must be at most {}, and no more than the {} layers", s.pp, kMaxStages,
                         model.layers + model.prediction_layers);
    case Illegal::virtual_stages:
      return fmt::format(
          "pp {} * vpp {} virtual stages need as many layers, but there are {}; vpp above 1 "
          "needs pp above 1",
          s.pp, s.vpp, model.layers + model.prediction_layers);
    case Illegal::experts:
      return model.experts == 0
                 ? std::string("a model without experts needs ep=1 and etp=1")
                 : fmt::format("ep {} must divide the {} experts ({}) and etp {} their FFN size {}", s.ep,
                               model.experts, divisors(model.experts), s.etp, model.moe_intermediate_size);
    case Illegal::expert_group:
      return fmt::format("ep {} * etp {} must divide tp * cp * dp = {}; divisors are {}", s.ep, s.etp,
                         std::int64_t{s.tp} * s.cp * s.dp, divisors(std::int64_t{s.tp} * s.cp * s.dp));
    case Illegal::batch:
      return fmt::format("dp {} * mb {} must divide the global batch {}", s.dp, s.micro_batch,
                         workload.global_batch);
    case Illegal::sequence:
      return fmt::format("cp {} must divide the sequence {} into two parts per rank, and tp {} what is left",
                         s.cp, workload.seq, s.tp);
    case Illegal::micro_batches:
      return fmt::format("with vpp {} the micro-batches per rank ({}) must be a multiple of pp {}", s.vpp,
                         workload.global_batch / s.dp / s.micro_batch, s.pp);
    case Illegal::pipeline:
      return fmt::format(
          "pipeline {} with pp {}, vpp {}: zb-h1, zb-h2 and dualpipe need vpp=1 and pp above "
          "1, dualpipe an even pp and 2 * pp micro-batches, adaptive vpp of 2 or more",
          kPipelineNames[static_cast<std::size_t>(s.pipeline)], s.pp, s.vpp);
    case Illegal::chunks:
      return fmt::format(
          "chunks {} need ep above 1 and as many tokens; with recompute=moe_act pairs of micro-batches, "
          "which "
          "keep layers whole, need chunks=1",
          s.chunks);
    case Illegal::dispatcher:
      return "with ep=1 nothing is dispatched: the dispatcher must be alltoall";
    case Illegal::program:
      return "the program that flags are wanted for cannot do it";
  }
  return {};
}

Strategy parse_strategy(std::string_view text, std::int64_t devices) {
  Strategy strategy{.dp = 0};
  std::set<std::string_view> seen;
  while (!text.empty()) {
    const std::string_view part = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), part.size() + 1));
    const std::size_t equals = part.find('=');
    require(equals != std::string_view::npos, "strategy: {} must be a knob and its value, as in tp=8", part);
    require(seen.insert(part.substr(0, equals)).second, "strategy: {} is there twice; keep one",
            part.substr(0, equals));
    set(strategy, part.substr(0, equals), part.substr(equals + 1));
  }
  if (strategy.dp == 0) {
    const std::int64_t others = std::int64_t{strategy.tp} * strategy.cp * strategy.pp;
    require(divides(others, devices), "strategy: tp {} * cp {} * pp {} = {} must divide the {} devices",
            strategy.tp, strategy.cp, strategy.pp, others, devices);
    require(devices / others <= kMost, "strategy: dp={} is more than {}", devices / others, kMost);
    strategy.dp = static_cast<std::int32_t>(devices / others);
  }
  return strategy;
}

std::string to_string(const Strategy& s) {
  std::string text = fmt::format("tp={},cp={},pp={},vpp={},ep={},etp={},dp={},zero={},mb={}", s.tp, s.cp,
                                 s.pp, s.vpp, s.ep, s.etp, s.dp, s.zero, s.micro_batch);
  text += fmt::format(",recompute={},pipeline={},dispatcher={},chunks={}",
                      kRecomputeNames[static_cast<std::size_t>(s.recompute)],
                      kPipelineNames[static_cast<std::size_t>(s.pipeline)], name_of(s.dispatcher), s.chunks);
  return s.sequence_parallel ? text : text + ",sp=0";
}

}  // namespace expedite::plan
