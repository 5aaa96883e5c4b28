// metrics.jsonl: one JSON object per line, whole or not there, that a resumed run continues without a seam.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "expedite/base/durable_file.h"

namespace expedite::train {

class MetricsWriter {
 public:
  /// Without `resumed_step` starts an empty file, replacing one that is there. With it continues a file (or
  /// starts one): cuts it before the first line whose "step" is greater than resumed_step, and drops a torn
  /// last line. Throws Error naming the file, and the line when one before the last is not a JSON object.
  explicit MetricsWriter(std::filesystem::path file, std::optional<std::int64_t> resumed_step = std::nullopt);

  /// Appends one line and hands it to the operating system at once. `line` is an object; NaN becomes null.
  void append(const nlohmann::json& line);

 private:
  std::filesystem::path file_;
  Descriptor descriptor_;
};

}  // namespace expedite::train
