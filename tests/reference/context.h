// What every layer of one run sees.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "expedite/architecture/model_config.h"
#include "expedite/hf/names.h"
#include "tests/reference/parameters.h"
#include "tests/reference/rotary.h"

namespace expedite::reference {

struct Context {
  const ModelConfig& config;
  const Parameters& parameters;
  hf::ParameterNames names;
  std::vector<std::int64_t> bounds;     // sequence s is tokens [bounds[s], bounds[s + 1])
  std::vector<std::int64_t> positions;  // [T], from 0 in each sequence
  Rotary rotary;                        // of query and key heads
};

/// For sequences of so many tokens each. Configuration and parameters must outlive it.
[[nodiscard]] Context make_context(const ModelConfig& config, const Parameters& parameters,
                                   std::span<const std::int64_t> lengths);

}  // namespace expedite::reference
