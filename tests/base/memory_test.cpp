#include "expedite/base/memory.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "expedite/base/error.h"

namespace expedite {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kMiB = 1024 * 1024;

/// A made-up system's /proc and /sys.
class System {
 public:
  System() {
    std::string name = testing::TempDir() + "expedite-XXXXXX";
    if (mkdtemp(name.data()) == nullptr) {
      throw std::runtime_error("cannot make a folder");
    }
    root_ = name;
    write("proc/meminfo", "MemTotal:  8388608 kB\nMemFree:  10 kB\nMemAvailable:    1048576 kB\n");
  }
  ~System() {
    std::error_code ignored;
    fs::remove_all(root_, ignored);
  }
  System(const System&) = delete;
  System& operator=(const System&) = delete;

  void write(const std::string& name, const std::string& content) const {
    fs::create_directories((root_ / name).parent_path());
    std::ofstream(root_ / name) << content;
  }
  [[nodiscard]] std::int64_t available() const { return available_memory_bytes(root_); }

 private:
  fs::path root_;
};

TEST(AvailableMemory, IsTheMachinesWithoutGroups) {
  const System system;
  EXPECT_EQ(system.available(), 1024 * kMiB);
  system.write("proc/self/cgroup", "0::/user\n");
  system.write("sys/fs/cgroup/user/memory.max", "max\n");
  system.write("sys/fs/cgroup/user/memory.current", "5\n");
  EXPECT_EQ(system.available(), 1024 * kMiB);
  system.write("proc/meminfo", "MemTotal:  8388608 kB\n");
  EXPECT_THROW(static_cast<void>(system.available()), Error);
}

TEST(AvailableMemory, IsTheLeastOfTheGroupsAround) {
  const System system;
  system.write("proc/self/cgroup", "0::/job/step\n");
  system.write("sys/fs/cgroup/job/memory.max", std::to_string(300 * kMiB));
  system.write("sys/fs/cgroup/job/memory.current", std::to_string(100 * kMiB));
  system.write("sys/fs/cgroup/job/memory.stat",
               "anon 5\ninactive_file " + std::to_string(40 * kMiB) + "\nactive_file 7\n");
  system.write("sys/fs/cgroup/job/step/memory.max", std::to_string(900 * kMiB));
  system.write("sys/fs/cgroup/job/step/memory.current", "0\n");
  EXPECT_EQ(system.available(), 240 * kMiB);  // cached files give way
  system.write("sys/fs/cgroup/job/memory.current", std::to_string(400 * kMiB));
  EXPECT_EQ(system.available(), 0);
}

TEST(AvailableMemory, KnowsVersion1) {
  const System system;
  system.write("proc/self/cgroup", "5:cpu,cpuacct:/x\n4:hugetlb,memory:/box\n0::/\n");
  system.write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  system.write("sys/fs/cgroup/memory/memory.usage_in_bytes", std::to_string(kMiB));
  EXPECT_EQ(system.available(), 1024 * kMiB);
  system.write("sys/fs/cgroup/memory/box/memory.limit_in_bytes", std::to_string(64 * kMiB));
  system.write("sys/fs/cgroup/memory/box/memory.usage_in_bytes", std::to_string(4 * kMiB));
  EXPECT_EQ(system.available(), 60 * kMiB);
}

TEST(AvailableMemory, IsThereOnThisMachine) {
  EXPECT_GT(available_memory_bytes(), 0);
}

}  // namespace
}  // namespace expedite
