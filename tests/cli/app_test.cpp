// The tree of commands, and what is generated from it.
#include <gtest/gtest.h>

#include <set>

#include "expedite/cli/app_tree.h"
#include "expedite/cli/commands.h"
#include "expedite/cli/completion.h"
#include "expedite/cli/man_page.h"
#include "expedite/cli/option_meanings.h"

namespace expedite::cli {
namespace {

class AppTest : public testing::Test {
 protected:
  AppTest() { add_everything(app_, context_); }

  Context context_;
  CLI::App app_{"Description", "expedite"};
};

TEST_F(AppTest, MeaningsLeadToOptionsThatThereAre) {
  for (const OptionMeaning& meaning : option_meanings()) {
    for (const std::string_view option : meaning.options) {
      const auto commands = with_descendants(app_);
      EXPECT_TRUE(std::ranges::any_of(commands, [&](const CLI::App* command) {
        return command->get_option_no_throw(std::string(option)) != nullptr;
      })) << option;
    }
  }
}

TEST_F(AppTest, AdviceFollowsMeaningThenSpelling) {
  const auto advice = [this](std::initializer_list<const char*> words, const char* given) {
    const CLI::App* command = &app_;
    for (const char* word : words) {
      command = find_command(*command, word);
    }
    return advice_for_option(*command, given);
  };
  EXPECT_NE(advice({"train"}, "--nproc_per_node=4").find("--ranks"), std::string::npos);
  EXPECT_NE(advice({"train"}, "-n").find("--ranks"), std::string::npos);
  EXPECT_NE(advice({"train"}, "--learning-rate").find("--set optimizer.lr=VALUE"), std::string::npos);
  EXPECT_NE(advice({"train"}, "--resme").find("--resume"), std::string::npos);
  EXPECT_NE(advice({"plan"}, "--gpus").find("--devices"), std::string::npos);
  EXPECT_NE(advice({"plan"}, "--tensor-model-parallel-size").find("--explain tp="), std::string::npos);
  EXPECT_NE(advice({"simulate"}, "--pp").find("--strategy pp="), std::string::npos);
  EXPECT_NE(advice({"bench", "layer"}, "--hidden-size").find("--hidden"), std::string::npos);
  EXPECT_NE(advice({"bench", "kernels"}, "--flter").find("--filter"), std::string::npos);
}

TEST_F(AppTest, EveryOptionIsInTheManualPageAndTheCompletions) {
  const std::string page = man_page(app_);
  const std::string bash = bash_completion(app_);
  const std::string zsh = zsh_completion(app_);
  std::set<std::string> seen;
  for (const CLI::App* command : with_descendants(app_)) {
    for (const CLI::Option* option : visible_options(*command)) {
      for (const std::string& name : spellings(*option)) {
        seen.insert(name);
        std::string dashed;
        for (const char c : name) {
          dashed += c == '-' ? std::string("\\-") : std::string(1, c);
        }
        EXPECT_NE(page.find("\\fB" + dashed + "\\fR"), std::string::npos) << name;
        EXPECT_NE(bash.find(name), std::string::npos) << name;
        EXPECT_NE(zsh.find("'" + name + ":"), std::string::npos) << name;
      }
    }
  }
  EXPECT_TRUE(seen.contains("--compare-baseline") && seen.contains("--help") && seen.contains("--window"));
  EXPECT_FALSE(seen.contains("--live-width"));
}

/// A value's limits stand in its type: "INT 1..1024".
TEST_F(AppTest, EveryNumberHasLimits) {
  for (const CLI::App* command : with_descendants(app_)) {
    for (const CLI::Option* option : command->get_options({})) {
      const std::string type = option->get_type_name();
      for (const char* bare : {"INT", "UINT", "FLOAT"}) {
        EXPECT_NE(type, bare) << full_name(*command) << " " << option->get_name();
      }
      EXPECT_EQ(type.find(':'), std::string::npos)
          << full_name(*command) << " " << option->get_name() << " " << type;
    }
  }
}

}  // namespace
}  // namespace expedite::cli
