#include "expedite/model/checkpoint_io.h"

#include <zlib.h>

#include <cstring>
#include <memory>
#include <set>
#include <span>

#include "expedite/comm/collectives.h"
#include "expedite/hf/mxfp4.h"
#include "expedite/kernels/elementwise.h"

namespace expedite::model {
namespace {

std::vector<std::int64_t> dimensions(const Shape& shape) {
  std::vector<std::int64_t> result;
  result.reserve(Shape::kMaxRank);
  for (int i = 0; i < shape.rank(); ++i) {
    result.push_back(shape[i]);
  }
  return result;
}

/// A part of one of a parameter's tensors, [rows, columns].
TensorView view_of(const TensorPart& part, StateTensor which) {
  const Parameter& parameter = *part.parameter;
  TensorView whole;
  switch (which) {
    case StateTensor::weight:
      whole = parameter.weight;
      break;
    case StateTensor::master:
      whole = parameter.master;
      break;
    case StateTensor::gradient:
      whole = parameter.gradient;
      break;
    case StateTensor::exp_avg:
      whole = parameter.exp_avg;
      break;
    case StateTensor::exp_avg_sq:
      whole = parameter.exp_avg_sq;
      break;
  }
  const std::int64_t elements = whole.elements();
  return whole.reshape({elements}).slice(part.offset, part.elements()).reshape({part.rows, part.columns});
}

/// Elements of a part, in its order, to or from their places in the tensor, whose element `origin` is first.
template <typename T>
void scatter(const TensorPart& part, std::int64_t origin, const T* from, T* tensor) {
  for (std::int64_t r = 0; r < part.rows; ++r) {
    for (std::int64_t c = 0; c < part.columns; ++c) {
      tensor[part.place(r, c) - origin] = from[r * part.columns + c];
    }
  }
}
template <typename T>
void gather(const TensorPart& part, std::int64_t origin, const T* tensor, T* to) {
  for (std::int64_t r = 0; r < part.rows; ++r) {
    for (std::int64_t c = 0; c < part.columns; ++c) {
      to[r * part.columns + c] = tensor[part.place(r, c) - origin];
    }
  }
}

/// Fills parts from a tensor that holds those of all experts, of which it reads each expert's once.
class FusedReader {
 public:
  FusedReader(const CheckpointTensor& tensor, const hf::SafetensorsFolder& folder)
      : tensor_(tensor), folder_(folder), slab_(tensor.shape.elements() / tensor.shape[0]) {}

  void read(const TensorPart& part, TensorView destination) {
    load(part.begin / slab_);
    std::vector<float> ordered(static_cast<std::size_t>(part.elements()));
    gather(part, expert_ * slab_, values_.data(), ordered.data());
    kernels::convert(TensorView(std::span(ordered)).reshape(destination.shape()), destination);
  }

 private:
  void load(std::int64_t expert) {
    if (expert == expert_) {
      return;
    }
    values_.resize(static_cast<std::size_t>(slab_));
    if (folder_.contains(tensor_.name)) {
      folder_.read_rows(tensor_.name, expert, TensorView(std::span(values_)).reshape({1, slab_}));
    } else {
      hf::read_mxfp4(folder_, tensor_.name, expert, tensor_.shape, values_);
    }
    expert_ = expert;
  }

  const CheckpointTensor& tensor_;
  const hf::SafetensorsFolder& folder_;
  std::int64_t slab_;  // elements of one expert
  std::int64_t expert_ = -1;
  std::vector<float> values_;
};

void read_tensor(const CheckpointTensor& tensor, StateTensor which, const hf::SafetensorsFolder& folder) {
  if (tensor.bias != nullptr) {
    folder.read(tensor.name, TensorView(std::span(*tensor.bias)));
    return;
  }
  FusedReader fused(tensor, folder);
  for (const TensorPart& part : tensor.parts) {
    if (part.parameter == nullptr) {
      continue;
    }
    if (tensor.parts.size() == 1 && part.contiguous()) {
      folder.read(tensor.name, view_of(part, which).reshape(tensor.shape));
    } else {
      fused.read(part, view_of(part, which));
    }
  }
}

/// Selection biases are part of the model, not of the optimizer's state.
bool belongs(const CheckpointTensor& tensor, StateTensor which) {
  return tensor.bias == nullptr || which == StateTensor::weight;
}

void require_fitting(const hf::StoredTensor& stored, const CheckpointTensor& tensor,
                     const hf::SafetensorsFolder& folder) {
  require(stored.shape == dimensions(tensor.shape),
          "{}: tensor '{}' has shape [{}] where the model's config.json asks for {}", folder.path().string(),
          tensor.name, fmt::join(stored.shape, ", "), to_string(tensor.shape));
}

/// "model.layers.46.…" names a layer behind the last, one of those for multi-token prediction.
bool of_prediction_layer(const std::string& name, const ModelConfig& config) {
  for (std::int64_t i = 0; i < config.prediction_layers; ++i) {
    if (name.starts_with(fmt::format("model.layers.{}.", config.layers + i))) {
      return true;
    }
  }
  return false;
}

hf::StoredType stored_type_of(const CheckpointTensor& tensor, StateTensor which,
                              const Parameters& parameters) {
  const bool f32 = which != StateTensor::weight || tensor.bias != nullptr;
  return f32 ? hf::StoredType::f32 : hf::stored_type(parameters.dtype());
}

void write_index(const hf::ShardPlan& plan, const std::filesystem::path& folder, const FileWritten& written) {
  const std::string text = hf::index_text(plan);
  const std::filesystem::path path = folder / hf::kIndexFileName;
  PosixFile file = PosixFile::create(path);
  file.write(std::as_bytes(std::span(text)));
  file.sync();
  file.close();
  written(path, {.bytes = static_cast<std::int64_t>(text.size()),
                 .crc32 = static_cast<std::uint32_t>(
                     crc32_z(0, reinterpret_cast<const unsigned char*>(text.data()), text.size()))});
}

}  // namespace

std::vector<std::byte> gather_tensor(const CheckpointTensor& tensor, StateTensor which, DType dtype,
                                     const comm::ProcessGrid& grid) {
  const std::int64_t element = size_of(dtype);
  std::vector<std::byte> bytes;
  if (grid.rank() == 0) {
    bytes.resize(static_cast<std::size_t>(tensor.shape.elements() * element));
    if (tensor.bias != nullptr) {
      kernels::convert(TensorView(std::span(*tensor.bias)), TensorView(bytes.data(), dtype, tensor.shape));
    }
  }
  for (const TensorPart& part : tensor.parts) {
    // The owner's world rank in the first replica: expert-parallel groups are consecutive ranks from 0.
    const int owner = tensor.expert ? part.owner : 0;
    if (grid.rank() != owner && grid.rank() != 0) {
      continue;
    }
    std::vector<std::byte> own(static_cast<std::size_t>(part.elements() * element));
    if (grid.rank() == owner) {
      kernels::convert(view_of(part, which), TensorView(own.data(), dtype, {part.rows, part.columns}));
      if (owner != 0) {
        comm::send_bytes(grid.world(), own, 0);
        continue;
      }
    } else {
      comm::receive_bytes(grid.world(), own, owner);
    }
    if (part.contiguous()) {
      std::memcpy(bytes.data() + part.begin * element, own.data(), own.size());
    } else if (dtype == DType::f32) {
      scatter(part, 0, reinterpret_cast<const float*>(own.data()), reinterpret_cast<float*>(bytes.data()));
    } else {
      scatter(part, 0, reinterpret_cast<const bf16*>(own.data()), reinterpret_cast<bf16*>(bytes.data()));
    }
  }
  return bytes;
}

void check_weights(Parameters& parameters, const hf::SafetensorsFolder& folder) {
  std::set<std::string> expected;
  for (const CheckpointTensor& tensor : parameters.tensors()) {
    if (!folder.contains(tensor.name) && hf::holds_mxfp4(folder, tensor.name)) {
      hf::check_mxfp4(folder, tensor.name, tensor.shape);
      expected.insert(tensor.name + hf::kMxfp4Blocks);
      expected.insert(tensor.name + hf::kMxfp4Scales);
      continue;
    }
    expected.insert(tensor.name);
    require_fitting(folder.tensor(tensor.name), tensor, folder);
  }
  for (const std::string& name : folder.names()) {
    // Some checkpoints repeat a tied head, or keep rotary tables that are worked out from the configuration.
    const bool redundant = (parameters.config().tie_word_embeddings && name == "lm_head.weight") ||
                           name.ends_with("rotary_emb.inv_freq") ||
                           of_prediction_layer(name, parameters.config());
    require(
        expected.contains(name) || redundant,
        "{}: tensor '{}' is not part of the model that config.json describes: is it the right config.json?",
        folder.path().string(), name);
  }
}

void load_weights(Parameters& parameters, const hf::SafetensorsFolder& folder) {
  check_weights(parameters, folder);
  for (const CheckpointTensor& tensor : parameters.tensors()) {
    read_tensor(tensor, parameters.state() == State::training ? StateTensor::master : StateTensor::weight,
                folder);
  }
  parameters.refresh_weights();
}

void load_tensors(Parameters& parameters, StateTensor which, const hf::SafetensorsFolder& folder) {
  for (const CheckpointTensor& tensor : parameters.tensors()) {
    if (belongs(tensor, which)) {
      require_fitting(folder.tensor(tensor.name), tensor, folder);
      read_tensor(tensor, which, folder);
    }
  }
  if (which == StateTensor::master) {
    parameters.refresh_weights();
  }
}

void save_tensors(Parameters& parameters, StateTensor which, const comm::ProcessGrid& grid,
                  const std::filesystem::path& folder, const FileWritten& written,
                  std::int64_t max_shard_bytes) {
  std::vector<hf::StoredTensor> stored;
  std::vector<const CheckpointTensor*> tensors;
  for (const CheckpointTensor& tensor : parameters.tensors()) {
    if (belongs(tensor, which)) {
      stored.push_back({tensor.name, stored_type_of(tensor, which, parameters), dimensions(tensor.shape)});
      tensors.push_back(&tensor);
    }
  }
  const hf::ShardPlan plan = hf::plan_shards(stored, max_shard_bytes);
  const bool writes = grid.rank() == 0;
  std::size_t next = 0;
  for (const hf::ShardPlan::Shard& shard : plan.shards) {
    const std::filesystem::path file = folder / shard.file;
    std::unique_ptr<hf::SafetensorsWriter> writer;
    if (writes) {
      writer = std::make_unique<hf::SafetensorsWriter>(file, shard.tensors);
    }
    for (const hf::StoredTensor& tensor : shard.tensors) {
      const DType dtype = tensor.type == hf::StoredType::f32 ? DType::f32 : DType::bf16;
      const std::vector<std::byte> bytes = gather_tensor(*tensors[next++], which, dtype, grid);
      if (writes) {
        writer->append(tensor.name, bytes);
      }
    }
    if (writes) {
      written(file, writer->finish());
    }
  }
  if (writes && plan.shards.size() > 1) {
    write_index(plan, folder, written);
  }
}

}  // namespace expedite::model
