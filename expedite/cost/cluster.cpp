#include "expedite/cost/cluster.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <iterator>
#include <set>

#include "expedite/base/error.h"
#include "expedite/base/read_text.h"
#include "expedite/cost/yaml_fields.h"

namespace expedite::cost {
namespace {

using schedule::Collective;

constexpr std::int64_t kVersion = 1;  // of the format
constexpr std::array<std::string_view, 3> kCollectives = {"all_gather", "all_to_all", "all_reduce"};

DType read_dtype(YamlFields& fields) {
  return fields.choice("dtype", {"bf16", "f32"}) == "bf16" ? DType::bf16 : DType::f32;
}

MatmulRate read_matmul_rate(YamlFields fields) {
  const MatmulRate rate{.m = fields.count("m"),
                        .n = fields.count("n"),
                        .k = fields.count("k"),
                        .flops_per_s = fields.positive("flops_per_s")};
  fields.finish();
  return rate;
}

MatmulRates read_matmul_rates(YamlFields fields) {
  MatmulRates rates{.dtype = read_dtype(fields), .peak_flops_per_s = fields.positive("peak_flops_per_s")};
  for (YamlFields& shape : fields.list("shapes")) {
    rates.shapes.push_back(read_matmul_rate(std::move(shape)));
  }
  fields.finish();
  return rates;
}

Cache read_cache(YamlFields fields) {
  const Cache cache{.level = fields.count("level"),
                    .bytes = fields.count("bytes"),
                    .cores = fields.count("cores"),
                    .read_bytes_per_s = fields.positive("read_bytes_per_s"),
                    .copy_bytes_per_s = fields.positive("copy_bytes_per_s")};
  fields.finish();
  return cache;
}

PeakRate read_peak(YamlFields fields) {
  PeakRate peak{.precision = fields.choice("precision", {kPeakPrecisions.begin(), kPeakPrecisions.end()}),
                .flops_per_s = fields.positive("flops_per_s")};
  fields.finish();
  return peak;
}

KernelTimes read_kernel_times(YamlFields fields, const std::string& where) {
  KernelTimes times{.kernel = fields.text("kernel"), .dtype = read_dtype(fields)};
  std::size_t points = 1;
  for (YamlFields& axis : fields.list("axes")) {
    times.axes.push_back({.name = axis.text("name"), .sizes = axis.counts("sizes")});
    axis.finish();
    const std::vector<std::int64_t>& sizes = times.axes.back().sizes;
    require(std::ranges::adjacent_find(sizes, std::greater_equal<>()) == sizes.end() && !sizes.empty(),
            "{}: the sizes of the axis {} of the kernel {} must rise", where, times.axes.back().name,
            times.kernel);
    points *= sizes.size();
  }
  times.seconds = fields.positives("seconds");
  require(!times.axes.empty() && times.seconds.size() == points,
          "{}: the kernel {} has {} seconds for the {} points of its axes", where, times.kernel,
          times.seconds.size(), times.axes.empty() ? 0 : points);
  fields.finish();
  return times;
}

Device read_device(YamlFields fields, const std::string& where) {
  Device device{.kind = fields.text("kind"),
                .cores = fields.count("cores"),
                .memory_bytes = fields.has("memory_bytes") ? fields.count("memory_bytes") : 0,
                .memory_read_bytes_per_s = fields.positive("memory_read_bytes_per_s"),
                .memory_copy_bytes_per_s = fields.positive("memory_copy_bytes_per_s")};
  for (YamlFields& rates : fields.list("matmul")) {
    device.matmul.push_back(read_matmul_rates(std::move(rates)));
  }
  for (YamlFields& cache : fields.list("caches")) {
    device.caches.push_back(read_cache(std::move(cache)));
  }
  if (fields.has("peaks")) {
    for (YamlFields& peak : fields.list("peaks")) {
      device.peaks.push_back(read_peak(std::move(peak)));
    }
  }
  if (fields.has("kernels")) {
    for (YamlFields& times : fields.list("kernels")) {
      device.kernels.push_back(read_kernel_times(std::move(times), where));
    }
  }
  fields.finish();
  return device;
}

MessageBandwidth read_message_bandwidth(YamlFields fields) {
  const MessageBandwidth bandwidth{.message_bytes = fields.count("message_bytes"),
                                   .bytes_per_s = fields.positive("bytes_per_s")};
  fields.finish();
  return bandwidth;
}

Link read_link(YamlFields fields) {
  Link link{.name = fields.text("name"),
            .ranks = fields.has("ranks") ? fields.count("ranks") : 0,
            .latency_s = fields.positive("latency_s"),
            .message_rate_per_s = fields.positive("message_rate_per_s"),
            .bandwidth_bytes_per_s = fields.positive("bandwidth_bytes_per_s"),
            .pair_bandwidth_bytes_per_s = fields.positive("pair_bandwidth_bytes_per_s")};
  for (YamlFields& bandwidth : fields.list("bandwidth_by_size")) {
    link.bandwidth_by_size.push_back(read_message_bandwidth(std::move(bandwidth)));
  }
  fields.finish();
  return link;
}

CollectiveTime read_collective_time(YamlFields fields) {
  CollectiveTime time{.bytes = fields.count("bytes"),
                      .seconds = fields.positive("seconds"),
                      .busy_seconds = fields.positive("busy_seconds"),
                      .compute_share = fields.positive("compute_share")};
  if (fields.has("busy_start_seconds")) {
    time.busy_start_seconds = fields.positive("busy_start_seconds");
  }
  if (fields.has("repeated_seconds")) {
    time.repeated_seconds = fields.positive("repeated_seconds");
  }
  fields.finish();
  return time;
}

CollectiveTimes read_collective_times(YamlFields fields, const std::string& where) {
  CollectiveTimes times;
  const std::string name = fields.choice("collective", {kCollectives.begin(), kCollectives.end()});
  for (const Collective each : {Collective::all_gather, Collective::all_to_all, Collective::all_reduce}) {
    times.collective = name_of(each) == name ? each : times.collective;
  }
  times.nodes = fields.count("nodes");
  times.ranks_per_node = fields.count("ranks_per_node");
  for (YamlFields& time : fields.list("times")) {
    times.times.push_back(read_collective_time(std::move(time)));
  }
  fields.finish();
  require(!times.times.empty() && std::ranges::adjacent_find(times.times, std::greater_equal<>(),
                                                             &CollectiveTime::bytes) == times.times.end(),
          "{}: the bytes of the collective {} must rise", where, name);
  return times;
}

/// What no key can be wrong about alone.
void check(const Cluster& cluster, const std::string& where) {
  require(!cluster.devices.empty(), "{}: devices is empty; at least one kind is needed", where);
  std::set<std::string> kinds;
  for (const Device& device : cluster.devices) {
    require(kinds.insert(device.kind).second, "{}: devices has the kind {} twice; keep one", where,
            device.kind);
  }
  std::set<std::string> names;
  for (const Link& link : cluster.links) {
    require(names.insert(link.name).second, "{}: links has {} twice; keep one", where, link.name);
    require(link.ranks > 0 || link.name == kIntraNode || link.name == kInterNode,
            "{}: the link {} needs the key ranks, how many it joins; only {} and {} go without", where,
            link.name, kIntraNode, kInterNode);
  }
  require(cluster.ranks_per_node == 1 || names.contains(std::string(kIntraNode)),
          "{}: {} ranks per node need a link named {}", where, cluster.ranks_per_node, kIntraNode);
  require(cluster.nodes == 1 || names.contains(std::string(kInterNode)), "{}: {} nodes need a link named {}",
          where, cluster.nodes, kInterNode);
}

/// Lines of YAML, indented.
class Writer {
 public:
  template <typename... Args>
  void line(int indent, fmt::format_string<Args...> format, Args&&... args) {
    text_ += std::string(static_cast<std::size_t>(indent), ' ');
    fmt::format_to(std::back_inserter(text_), format, std::forward<Args>(args)...);
    text_ += '\n';
  }
  /// A key whose value is a list; an empty one is said to be so.
  void list(int indent, std::string_view key, bool empty) { line(indent, "{}:{}", key, empty ? " []" : ""); }
  [[nodiscard]] std::string take() { return std::move(text_); }

 private:
  std::string text_;
};

void write(Writer& out, const KernelTimes& times) {
  out.line(6, "- kernel: {}", yaml_string(times.kernel));
  out.line(8, "dtype: {}", name_of(times.dtype));
  out.line(8, "axes:");
  for (const GridAxis& axis : times.axes) {
    out.line(10, "- {{name: {}, sizes: [{}]}}", axis.name, fmt::join(axis.sizes, ", "));
  }
  out.line(8, "seconds: [{}]", fmt::join(times.seconds, ", "));
}

void write(Writer& out, const Device& device) {
  out.line(2, "- kind: {}", yaml_string(device.kind));
  out.line(4, "cores: {}  # of one rank", device.cores);
  if (device.memory_bytes > 0) {
    out.line(4, "memory_bytes: {}  # of one rank", device.memory_bytes);
  }
  out.line(4, "memory_read_bytes_per_s: {}", device.memory_read_bytes_per_s);
  out.line(4, "memory_copy_bytes_per_s: {}  # bytes read and bytes written", device.memory_copy_bytes_per_s);
  out.list(4, "matmul", device.matmul.empty());
  for (const MatmulRates& rates : device.matmul) {
    out.line(6, "- dtype: {}", name_of(rates.dtype));
    out.line(8, "peak_flops_per_s: {}", rates.peak_flops_per_s);
    out.list(8, "shapes", rates.shapes.empty());
    for (const MatmulRate& rate : rates.shapes) {
      out.line(10, "- {{m: {}, n: {}, k: {}, flops_per_s: {}}}", rate.m, rate.n, rate.k, rate.flops_per_s);
    }
  }
  out.list(4, "caches", device.caches.empty());
  for (const Cache& cache : device.caches) {
    out.line(6, "- {{level: {}, bytes: {}, cores: {}, read_bytes_per_s: {}, copy_bytes_per_s: {}}}",
             cache.level, cache.bytes, cache.cores, cache.read_bytes_per_s, cache.copy_bytes_per_s);
  }
  if (!device.peaks.empty()) {
    out.line(4, "peaks:  # by the data sheet");
    for (const PeakRate& peak : device.peaks) {
      out.line(6, "- {{precision: {}, flops_per_s: {}}}", peak.precision, peak.flops_per_s);
    }
  }
  if (!device.kernels.empty()) {
    out.line(4, "kernels:  # seconds at every point of the axes' sizes, the last axis fastest");
    for (const KernelTimes& times : device.kernels) {
      write(out, times);
    }
  }
}

void write(Writer& out, const Link& link) {
  out.line(2, "- name: {}", yaml_string(link.name));
  if (link.ranks > 0) {
    out.line(4, "ranks: {}  # that it joins", link.ranks);
  }
  out.line(4, "latency_s: {}  # of a small message, one way", link.latency_s);
  out.line(4, "message_rate_per_s: {}", link.message_rate_per_s);
  out.line(4, "bandwidth_bytes_per_s: {}  # all ranks at once", link.bandwidth_bytes_per_s);
  out.line(4, "pair_bandwidth_bytes_per_s: {}  # two ranks alone", link.pair_bandwidth_bytes_per_s);
  out.list(4, "bandwidth_by_size", link.bandwidth_by_size.empty());
  for (const MessageBandwidth& point : link.bandwidth_by_size) {
    out.line(6, "- {{message_bytes: {}, bytes_per_s: {}}}", point.message_bytes, point.bytes_per_s);
  }
}

void write(Writer& out, const CollectiveTimes& times) {
  out.line(2, "- collective: {}", name_of(times.collective));
  out.line(4, "nodes: {}", times.nodes);
  out.line(4, "ranks_per_node: {}", times.ranks_per_node);
  out.line(4, "times:");
  for (const CollectiveTime& time : times.times) {
    const auto if_measured = [](std::string_view key, double seconds) {
      return seconds > 0.0 ? fmt::format(", {}: {}", key, seconds) : "";
    };
    out.line(6, "- {{bytes: {}, seconds: {}, busy_seconds: {}, compute_share: {}{}{}}}", time.bytes,
             time.seconds, time.busy_seconds, time.compute_share,
             if_measured("busy_start_seconds", time.busy_start_seconds),
             if_measured("repeated_seconds", time.repeated_seconds));
  }
}

}  // namespace

const Link* Cluster::find_link(std::string_view link) const {
  const auto found = std::ranges::find(links, link, &Link::name);
  return found == links.end() ? nullptr : &*found;
}

Cluster parse_cluster(std::string_view yaml, const std::string& where) {
  const YamlSource source{.name = where};
  YamlFields fields(load_yaml(std::string(yaml), source), "", source);
  const std::int64_t version = fields.count("expedite_cluster");
  require(version == kVersion,
          "{}: expedite_cluster = {}: this program reads version {}; run expedite probe again", where,
          version, kVersion);
  Cluster cluster{.name = fields.text("name"),
                  .nodes = fields.count("nodes"),
                  .ranks_per_node = fields.count("ranks_per_node")};
  for (YamlFields& device : fields.list("devices")) {
    cluster.devices.push_back(read_device(std::move(device), where));
  }
  for (YamlFields& link : fields.list("links")) {
    cluster.links.push_back(read_link(std::move(link)));
  }
  if (fields.has("sharing")) {
    YamlFields sharing = fields.map("sharing");
    cluster.sharing = {.node = sharing.positive("node"), .cluster = sharing.positive("cluster")};
    sharing.finish();
  }
  if (fields.has("task_seconds")) {
    cluster.task_seconds = fields.positive("task_seconds");
  }
  if (fields.has("collectives")) {
    for (YamlFields& times : fields.list("collectives")) {
      cluster.collectives.push_back(read_collective_times(std::move(times), where));
    }
  }
  fields.finish();
  check(cluster, where);
  return cluster;
}

Cluster read_cluster(const std::string& path) {
  return parse_cluster(read_text(path), path);
}

std::string to_yaml(const Cluster& cluster) {
  Writer out;
  out.line(0,
           "# A cluster as expedite probe measured it. Rates are of one rank while all ranks are at work;");
  out.line(0, "# a link's are one way while both ways are in use. _s: seconds.");
  out.line(0, "expedite_cluster: {}  # version of this format", kVersion);
  out.line(0, "name: {}", yaml_string(cluster.name));
  out.line(0, "nodes: {}", cluster.nodes);
  out.line(0, "ranks_per_node: {}", cluster.ranks_per_node);
  out.list(0, "devices", cluster.devices.empty());
  for (const Device& device : cluster.devices) {
    write(out, device);
  }
  out.list(0, "links", cluster.links.empty());
  for (const Link& link : cluster.links) {
    write(out, link);
  }
  out.line(0, "sharing: {{node: {}, cluster: {}}}  # ranks of a node, and nodes, that take turns on a core",
           cluster.sharing.node, cluster.sharing.cluster);
  if (cluster.task_seconds > 0.0) {
    out.line(0, "task_seconds: {}  # that the executor adds to a task of compute", cluster.task_seconds);
  }
  if (!cluster.collectives.empty()) {
    out.line(0, "collectives:  # groups of so many ranks on so many nodes; busy: while they compute");
    for (const CollectiveTimes& times : cluster.collectives) {
      write(out, times);
    }
  }
  return out.take();
}

}  // namespace expedite::cost
