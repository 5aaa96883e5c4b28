#include "expedite/tracing/trace_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>
#include <iterator>
#include <limits>
#include <type_traits>

#include "expedite/base/error.h"

namespace expedite::tracing {
namespace {

constexpr std::uint64_t kMagic = 0x3330656361727478;  // "xtrace03", and the machine's byte order

class Packer {
 public:
  template <typename T>
  void put(T value) {
    const auto* bytes = reinterpret_cast<const std::byte*>(&value);
    bytes_.insert(bytes_.end(), bytes, bytes + sizeof(T));
  }
  void reserve(std::size_t bytes) { bytes_.reserve(bytes); }
  [[nodiscard]] std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

class Unpacker {
 public:
  explicit Unpacker(std::span<const std::byte> bytes) : bytes_(bytes) {}

  template <typename T>
  [[nodiscard]] T get() {
    require(bytes_.size() >= sizeof(T), "a packed trace ends in the middle");
    T value;
    std::memcpy(&value, bytes_.data(), sizeof(T));
    bytes_ = bytes_.subspan(sizeof(T));
    return value;
  }
  template <typename Enum>
  [[nodiscard]] Enum get_enum(int count) {
    const auto value = get<std::uint8_t>();
    require(value < count, "a packed trace holds a task that this version does not know");
    return static_cast<Enum>(value);
  }
  [[nodiscard]] std::size_t left() const { return bytes_.size(); }

 private:
  std::span<const std::byte> bytes_;
};

constexpr std::size_t kEventBytes = 3 + 4 * sizeof(std::int32_t) + 7 * sizeof(std::int64_t);
constexpr std::size_t kSampleBytes = 1 + 2 * sizeof(std::int64_t);
constexpr int kPasses = static_cast<int>(schedule::Pass::update) + 1;

// Microseconds, as the format wants them, without losing nanoseconds.
std::string microseconds(std::int64_t nanoseconds) {
  return fmt::format("{}.{:03}", nanoseconds / 1000, nanoseconds % 1000);
}

void write_metadata(std::string& out, int rank, std::span<const TraceEvent> events) {
  const auto sink = std::back_inserter(out);
  fmt::format_to(
      sink,
      "{{\"ph\":\"M\",\"pid\":{0},\"name\":\"process_name\",\"args\":{{\"name\":\"rank {0}\"}}}},\n"
      "{{\"ph\":\"M\",\"pid\":{0},\"name\":\"process_sort_index\",\"args\":{{\"sort_index\":{0}}}}},\n",
      rank);
  std::array<bool, schedule::kStreams> present{};
  for (const TraceEvent& event : events) {
    present[static_cast<std::size_t>(event.stream)] = true;
  }
  for (int stream = 0; stream < schedule::kStreams; ++stream) {
    if (present[static_cast<std::size_t>(stream)]) {
      fmt::format_to(
          sink,
          "{{\"ph\":\"M\",\"pid\":{0},\"tid\":{1},\"name\":\"thread_name\",\"args\":{{\"name\":\"{2}\"}}}},\n"
          "{{\"ph\":\"M\",\"pid\":{0},\"tid\":{1},\"name\":\"thread_sort_index\","
          "\"args\":{{\"sort_index\":{1}}}}},\n",
          rank, stream, name_of(static_cast<schedule::Stream>(stream)));
    }
  }
}

void write_event(std::string& out, int rank, const TraceEvent& event, std::int64_t shift) {
  const auto sink = std::back_inserter(out);
  fmt::format_to(sink,
                 "{{\"ph\":\"X\",\"pid\":{},\"tid\":{},\"name\":\"{}\",\"cat\":\"{}\",\"ts\":{},\"dur\":{},"
                 "\"args\":{{\"pass\":\"{}\"",
                 rank, static_cast<int>(event.stream), label(event), name_of(event.op),
                 microseconds(event.begin + shift), microseconds(event.end - event.begin),
                 name_of(event.pass));
  if (event.layer >= 0) {
    fmt::format_to(sink, ",\"layer\":{}", event.layer);
  }
  if (event.micro_batch >= 0) {
    fmt::format_to(sink, ",\"micro_batch\":{}", event.micro_batch);
  }
  if (event.chunk >= 0) {
    fmt::format_to(sink, ",\"chunk\":{}", event.chunk);
  }
  if (event.chunks > 1) {
    fmt::format_to(sink, ",\"chunks\":{}", event.chunks);
  }
  if (is_communication(event.stream)) {
    fmt::format_to(sink, ",\"bytes\":{},\"row_bytes_between_nodes\":{}", event.bytes, event.rows.inter_node);
  }
  if (event.wait > 0) {
    fmt::format_to(sink, ",\"wait_us\":{},\"exposed_us\":{}", microseconds(event.wait),
                   microseconds(event.exposed));
  }
  out += "}},\n";
}

void write_sample(std::string& out, int rank, const MemorySample& sample, std::int64_t shift) {
  fmt::format_to(
      std::back_inserter(out),
      "{{\"ph\":\"C\",\"pid\":{},\"name\":\"memory MiB\",\"ts\":{},\"args\":{{\"{}\":{:.3f}}}}},\n", rank,
      microseconds(sample.time + shift), name_of(sample.category),
      static_cast<double>(sample.bytes) / (1 << 20));
}

}  // namespace

std::vector<std::byte> pack(const RankTrace& trace) {
  Packer packer;
  packer.reserve(40 + trace.events.size() * kEventBytes + trace.memory.size() * kSampleBytes);
  packer.put(kMagic);
  packer.put(static_cast<std::int32_t>(trace.rank));
  packer.put(trace.clock_offset);
  packer.put(static_cast<std::int64_t>(trace.events.size()));
  for (const TraceEvent& event : trace.events) {
    packer.put(static_cast<std::uint8_t>(event.op));
    packer.put(static_cast<std::uint8_t>(event.pass));
    packer.put(static_cast<std::uint8_t>(event.stream));
    packer.put(event.layer);
    packer.put(event.micro_batch);
    packer.put(event.chunk);
    packer.put(event.chunks);
    packer.put(event.begin);
    packer.put(event.end);
    packer.put(event.wait);
    packer.put(event.exposed);
    packer.put(event.bytes);
    packer.put(event.rows);
  }
  packer.put(static_cast<std::int64_t>(trace.memory.size()));
  for (const MemorySample& sample : trace.memory) {
    packer.put(sample.time);
    packer.put(static_cast<std::uint8_t>(sample.category));
    packer.put(sample.bytes);
  }
  return packer.take();
}

RankTrace unpack(std::span<const std::byte> bytes) {
  Unpacker unpacker(bytes);
  require(unpacker.get<std::uint64_t>() == kMagic, "not a packed trace of this version and byte order");
  RankTrace trace;
  trace.rank = unpacker.get<std::int32_t>();
  trace.clock_offset = unpacker.get<std::int64_t>();
  const auto count = unpacker.get<std::int64_t>();
  require(count >= 0 && static_cast<std::uint64_t>(count) <= unpacker.left() / kEventBytes,
          "a packed trace of {} events has {} bytes of them", count, unpacker.left());
  trace.events.resize(static_cast<std::size_t>(count));
  for (TraceEvent& event : trace.events) {
    event.op = unpacker.get_enum<schedule::Op>(schedule::kOps);
    event.pass = unpacker.get_enum<schedule::Pass>(kPasses);
    event.stream = unpacker.get_enum<schedule::Stream>(schedule::kStreams);
    event.layer = unpacker.get<std::int32_t>();
    event.micro_batch = unpacker.get<std::int32_t>();
    event.chunk = unpacker.get<std::int32_t>();
    event.chunks = unpacker.get<std::int32_t>();
    event.begin = unpacker.get<std::int64_t>();
    event.end = unpacker.get<std::int64_t>();
    event.wait = unpacker.get<std::int64_t>();
    event.exposed = unpacker.get<std::int64_t>();
    event.bytes = unpacker.get<std::int64_t>();
    event.rows = unpacker.get<RowTraffic>();
  }
  const auto samples = unpacker.get<std::int64_t>();
  require(samples >= 0 && unpacker.left() % kSampleBytes == 0 &&
              static_cast<std::uint64_t>(samples) == unpacker.left() / kSampleBytes,
          "a packed trace of {} samples of memory has {} bytes of them", samples, unpacker.left());
  trace.memory.resize(static_cast<std::size_t>(samples));
  for (MemorySample& sample : trace.memory) {
    sample.time = unpacker.get<std::int64_t>();
    sample.category = unpacker.get_enum<MemoryCategory>(kMemoryCategories);
    sample.bytes = unpacker.get<std::int64_t>();
  }
  return trace;
}

std::string to_chrome_json(std::span<const RankTrace> ranks) {
  std::int64_t origin = std::numeric_limits<std::int64_t>::max();
  for (const RankTrace& trace : ranks) {
    for (const TraceEvent& event : trace.events) {
      origin = std::min(origin, event.begin + trace.clock_offset);
    }
  }
  std::string out = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n";
  for (const RankTrace& trace : ranks) {
    write_metadata(out, trace.rank, trace.events);
    for (const TraceEvent& event : trace.events) {
      write_event(out, trace.rank, event, trace.clock_offset - origin);
    }
    for (const MemorySample& sample : trace.memory) {
      write_sample(out, trace.rank, sample, trace.clock_offset - origin);
    }
  }
  if (!ranks.empty()) {
    out.erase(out.size() - 2, 1);  // the last comma
  }
  return out + "]}\n";
}

void write_chrome_trace(const std::filesystem::path& path, std::span<const RankTrace> ranks) {
  const std::string json = to_chrome_json(ranks);
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  require(file.is_open(), "cannot write the trace {}; check that its folder exists and is writable",
          path.string());
  file.write(json.data(), static_cast<std::streamsize>(json.size()));
  file.close();
  require(!file.fail(), "could not write all of the trace {}; is the disk full?", path.string());
}

}  // namespace expedite::tracing
