#include "expedite/cli/version.h"

#include <fmt/format.h>
#include <hwloc.h>
#include <omp.h>
#include <spdlog/version.h>
#include <zlib.h>

#include <hwy/highway.h>
#include <CLI/Version.hpp>
#include <nlohmann/json.hpp>
#include <oneapi/dnnl/dnnl.hpp>

#include "expedite/cli/build_commit.h"
#include "expedite/cli/cpu_path.h"
#include "expedite/comm/mpi.h"

namespace expedite::cli {
namespace {

/// "Open MPI v4.1.4, package: ..." as its first part.
std::string mpi_version() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = {};
  int length = 0;
  MPI_Get_library_version(text, &length);  // allowed before MPI_Init
  const std::string whole(text, static_cast<std::size_t>(length));
  return whole.substr(0, whole.find_first_of(",\n"));
}

std::string onednn_version() {
  const dnnl_version_t* version = dnnl_version();
  return fmt::format("oneDNN {}.{}.{}", version->major, version->minor, version->patch);
}

std::string hwloc_version() {
  const unsigned version = hwloc_get_api_version();
  return fmt::format("hwloc {}.{}.{}", version >> 16U, version >> 8U & 0xFFU, version & 0xFFU);
}

/// Where a library tells its version only to who builds with it, that one; else the one at hand.
std::string libraries() {
  std::string text = fmt::format("{}, {}, Highway {}.{}.{}, {}, OpenMP {}", mpi_version(), onednn_version(),
                                 HWY_MAJOR, HWY_MINOR, HWY_PATCH, hwloc_version(), _OPENMP);
  text +=
      fmt::format(", SentencePiece {}, zlib {}, fmt {}.{}.{}, spdlog {}.{}.{}",
                  EXPEDITE_SENTENCEPIECE_VERSION, zlibVersion(), FMT_VERSION / 10000, FMT_VERSION / 100 % 100,
                  FMT_VERSION % 100, SPDLOG_VER_MAJOR, SPDLOG_VER_MINOR, SPDLOG_VER_PATCH);
  text += fmt::format(", yaml-cpp {}, nlohmann-json {}.{}.{}, CLI11 {}", EXPEDITE_YAML_VERSION,
                      NLOHMANN_JSON_VERSION_MAJOR, NLOHMANN_JSON_VERSION_MINOR, NLOHMANN_JSON_VERSION_PATCH,
                      CLI11_VERSION);
  return text;
}

}  // namespace

std::string version_number() {
  return EXPEDITE_VERSION;
}

std::string version_text() {
  return fmt::format(
      "expedite {}\n"
      "commit     {}\n"
      "compiler   {}, {}\n"
      "libraries  {}\n"
      "CPU path   {}\n",
      version_number(), kBuildCommit, EXPEDITE_COMPILER, EXPEDITE_BUILD, libraries(), cpu_path());
}

}  // namespace expedite::cli
