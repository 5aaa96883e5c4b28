// The program `expedite`.
#include "expedite/cli/commands.h"

int main(int argc, char** argv) {
  return expedite::cli::run_program({argv + 1, argv + argc});
}
