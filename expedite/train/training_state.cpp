#include "expedite/train/training_state.h"

#include <fstream>

#include "expedite/base/error.h"
#include "expedite/base/log.h"
#include "expedite/comm/collectives.h"
#include "expedite/model/checkpoint_io.h"

namespace expedite::train {
namespace {

using model::StateTensor;
namespace fs = std::filesystem;

constexpr const char* kStateFile = "training_state.json";

struct Part {
  StateTensor which;
  const char* folder;
};

/// Beside the model's own weights. In f32 the weights are the masters.
std::vector<Part> optimizer_parts(DType dtype) {
  std::vector<Part> parts = {{StateTensor::exp_avg, "optimizer/exp_avg"},
                             {StateTensor::exp_avg_sq, "optimizer/exp_avg_sq"}};
  if (dtype != DType::f32) {
    parts.push_back({StateTensor::master, "optimizer/master"});
  }
  return parts;
}

fs::path checkpoint_dir(const TrainConfig& config) {
  return config.run_dir() / "checkpoints";
}

/// What must not change for a resumed run to be the same run.
nlohmann::json identity(const TrainConfig& config) {
  return {{"seed", config.seed},
          {"dtype", name_of(config.dtype)},
          {"data.path", config.data.path},
          {"data.extensions", config.data.extensions},
          {"data.tokenizer", config.data.tokenizer},
          {"data.seq_length", config.data.seq_length},
          {"data.validation_fraction", config.data.validation_fraction},
          {"train.global_batch_size", config.train.global_batch_size}};
}

void write_json(const fs::path& path, const nlohmann::json& json) {
  std::ofstream file(path);
  file << json.dump(2) << '\n';
  file.close();
  require(!file.fail(), "{}: cannot write: is the disk full?", path.string());
}

nlohmann::json hugging_face_config(const model::Parameters& parameters) {
  nlohmann::json source = parameters.config().source;
  source["torch_dtype"] = parameters.dtype() == DType::f32 ? "float32" : "bfloat16";
  return source;
}

void require_same_run(const TrainConfig& config, const nlohmann::json& saved, const fs::path& path) {
  const nlohmann::json mine = identity(config);
  for (const auto& [key, value] : mine.items()) {
    require(saved.contains(key) && saved[key] == value,
            "{}: saved with {} = {}, but the configuration says {}: --resume continues the same run; give "
            "another "
            "`name` to start a new one",
            (path / kStateFile).string(), key, saved.contains(key) ? saved[key].dump() : "nothing",
            value.dump());
  }
}

}  // namespace

fs::path save_training_state(const TrainConfig& config, model::Parameters& parameters,
                             const comm::ProcessGrid& grid, std::int64_t step) {
  const fs::path dir = checkpoint_dir(config);
  const bool writes = grid.rank() == 0;
  const fs::path staging = writes ? stage_checkpoint(dir, step) : fs::path();
  std::vector<FileRecord> files;
  const model::FileWritten written = [&](const fs::path& file, const model::WrittenFile& what) {
    files.push_back({fs::relative(file, staging).string(), what.bytes, what.crc32});
  };
  save_tensors(parameters, StateTensor::weight, grid, staging, written);
  for (const Part& part : optimizer_parts(parameters.dtype())) {
    if (writes) {
      fs::create_directories(staging / part.folder);
    }
    save_tensors(parameters, part.which, grid, staging / part.folder, written);
  }
  if (writes) {
    files.push_back(write_file(staging, "config.json", [&](const fs::path& path) {
      write_json(path, hugging_face_config(parameters));
    }));
    files.push_back(write_file(staging, kStateFile, [&](const fs::path& path) {
      nlohmann::json state = identity(config);
      state["step"] = step;
      write_json(path, state);
    }));
    static_cast<void>(commit_checkpoint(dir, step, files));
    prune_checkpoints(dir, config.checkpoint.keep, step);
  }
  comm::barrier(grid.world());
  return checkpoint_path(dir, step);
}

std::optional<std::int64_t> load_training_state(const TrainConfig& config, model::Parameters& parameters,
                                                const comm::ProcessGrid& grid) {
  std::string found;
  if (grid.rank() == 0) {
    remove_leftovers(checkpoint_dir(config));
    if (const std::optional<Checkpoint> checkpoint = latest_valid(checkpoint_dir(config))) {
      found = checkpoint->path.string();
    }
  }
  found = comm::broadcast_text(grid.world(), found, 0);
  if (found.empty()) {
    return std::nullopt;
  }
  const fs::path path(found);
  std::ifstream file(path / kStateFile);
  const nlohmann::json state = nlohmann::json::parse(file);
  require_same_run(config, state, path);
  load_weights(parameters, model::SafetensorsFolder(path));
  for (const Part& part : optimizer_parts(parameters.dtype())) {
    load_tensors(parameters, part.which, model::SafetensorsFolder(path / part.folder));
  }
  return state.at("step").get<std::int64_t>();
}

}  // namespace expedite::train
