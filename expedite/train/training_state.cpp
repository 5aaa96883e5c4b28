#include "expedite/train/training_state.h"

#include <fstream>

#include "expedite/base/durable_file.h"
#include "expedite/base/error.h"
#include "expedite/base/read_text.h"
#include "expedite/comm/collectives.h"
#include "expedite/model/checkpoint_io.h"
#include "expedite/train/tokenizer_choice.h"

namespace expedite::train {
namespace {

using model::StateTensor;
namespace fs = std::filesystem;

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

/// What must not change for a resumed run to be the same run, wherever it is started.
nlohmann::json identity(const TrainConfig& given) {
  const TrainConfig config = with_absolute_paths(given);
  return {{"seed", config.seed},
          {"dtype", name_of(config.dtype)},
          {"data.path", config.data.path},
          {"data.extensions", config.data.extensions},
          {"data.tokenizer", tokenizer_choice(config)},
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
  nlohmann::json source = nlohmann::json::parse(parameters.config().source);
  if (!source.contains("architectures")) {
    source["architectures"] = {architecture::hugging_face_class(parameters.config().family)};
  }
  source["torch_dtype"] = parameters.dtype() == DType::f32 ? "float32" : "bfloat16";
  return source;
}

nlohmann::json read_state(const fs::path& checkpoint) {
  const fs::path path = checkpoint / kStateFile;
  try {
    return nlohmann::json::parse(read_text(path.string()));
  } catch (const nlohmann::json::exception& error) {
    fail("{}: is damaged: {}", path.string(), error.what());
  }
}

/// Relative paths, which earlier versions saved, are taken to be of the working directory.
void make_paths_absolute(nlohmann::json& saved) {
  TrainConfig config;
  config.data.path = saved.value("data.path", config.data.path);
  config.data.tokenizer = saved.value("data.tokenizer", config.data.tokenizer);
  config = with_absolute_paths(config);
  saved["data.path"] = config.data.path;
  saved["data.tokenizer"] = config.data.tokenizer;
}

void require_same_run(const TrainConfig& config, nlohmann::json saved, const fs::path& path) {
  const nlohmann::json mine = identity(config);
  make_paths_absolute(saved);
  for (const auto& [key, value] : mine.items()) {
    require(saved.contains(key) && saved[key] == value,
            "{}: saved with {} = {}, but the configuration says {}: --resume continues the same run; give "
            "another `name` to start a new one",
            (path / kStateFile).string(), key, saved.contains(key) ? saved[key].dump() : "nothing",
            value.dump());
  }
}

}  // namespace

bool is_of_model(const std::string& file) {
  return file != kStateFile && !file.starts_with("optimizer/");
}

fs::path save_training_state(const TrainConfig& config, model::Parameters& parameters,
                             const comm::ProcessGrid& grid, std::int64_t step,
                             const TokenizerCopy& tokenizer) {
  const fs::path dir = checkpoint_dir(config);
  const bool writes = grid.rank() == 0;
  const fs::path staging = writes ? stage_checkpoint(dir, step) : fs::path();
  std::vector<FileRecord> files;
  const model::FileWritten written = [&](const fs::path& file, const hf::WrittenFile& what) {
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
    for (const TokenizerCopy::File& file : tokenizer.files()) {
      files.push_back(
          write_file(staging, file.name, [&](const fs::path& path) { write_synced(path, file.content); }));
    }
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

std::optional<Checkpoint> find_training_state(const TrainConfig& config, Resume resume, Check check) {
  if (resume == Resume::no) {
    return std::nullopt;
  }
  const fs::path dir = checkpoint_dir(config);
  std::optional<Checkpoint> checkpoint = latest_valid(dir, check);
  require(
      checkpoint || resume == Resume::automatic,
      "{} holds no checkpoint to resume from: is the name right? Leave --resume away to start the run, or "
      "say --resume=auto, which starts it when there is nothing to resume",
      dir.string());
  if (checkpoint) {
    require_same_run(config, read_state(checkpoint->path), checkpoint->path);
  }
  return checkpoint;
}

std::optional<Checkpoint> load_training_state(const TrainConfig& config, Resume resume,
                                              model::Parameters& parameters, const comm::ProcessGrid& grid) {
  Checkpoint found;
  if (grid.rank() == 0) {
    if (resume != Resume::no) {
      remove_leftovers(checkpoint_dir(config));
    }
    found = find_training_state(config, resume).value_or(Checkpoint{});
  }
  found.path = comm::broadcast_text(grid.world(), found.path.string(), 0);
  if (found.path.empty()) {
    return std::nullopt;
  }
  found.step = read_state(found.path).at("step").get<std::int64_t>();
  load_weights(parameters, hf::SafetensorsFolder(found.path));
  for (const Part& part : optimizer_parts(parameters.dtype())) {
    load_tensors(parameters, part.which, hf::SafetensorsFolder(found.path / part.folder));
  }
  return found;
}

}  // namespace expedite::train
