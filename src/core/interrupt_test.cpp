#include "core/interrupt.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <thread>

namespace horner {
namespace {

// A run that tests its model ends at once; the runs in threads beside it are asked to save.
TEST(Interrupt, EndsAtOnceOnlyInTheMainThread) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto test_a_model = [] {
    const EndOnInterrupt at_once("stopped in the last test\n");
    std::raise(SIGINT);
  };
  EXPECT_EXIT(
      {
        const CatchInterrupt caught;
        test_a_model();
      },
      testing::ExitedWithCode(130),
      "stopped in the last test"
  );
  EXPECT_EXIT(
      {
        const CatchInterrupt caught;
        std::thread(test_a_model).join();
        ::_exit(interrupted() ? 0 : 1);
      },
      testing::ExitedWithCode(0),
      ""
  );
}

TEST(Interrupt, TheSecondSignalEndsTheProgram) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        const CatchInterrupt caught;
        std::raise(SIGINT);
        std::raise(SIGTERM);  // another signal: torchrun sends it after Ctrl-C
        if (!interrupted()) ::_exit(1);
        std::raise(SIGINT);
        ::_exit(2);
      },
      testing::KilledBySignal(SIGINT),
      ""
  );
}

TEST(Interrupt, ATimeLimitIsAnInterruption) {
  EXPECT_FALSE(interrupted());
  {
    const TimeLimit none(0);
    EXPECT_FALSE(interrupted());
  }
  {
    const TimeLimit far(3600);
    EXPECT_FALSE(interrupted());
  }
  {
    const TimeLimit soon(0.02);
    std::this_thread::sleep_for(std::chrono::milliseconds(40));
    EXPECT_TRUE(interrupted());
    EXPECT_TRUE(TimeLimit::reached());
  }
  EXPECT_FALSE(interrupted());
}

// A signal wins: the user wants to stop, not to go on with what is finished.
TEST(Interrupt, ASignalIsNoTimeLimit) {
  const CatchInterrupt catches;
  const TimeLimit soon(1e-9);
  std::raise(SIGTERM);
  EXPECT_TRUE(interrupted());
  EXPECT_FALSE(TimeLimit::reached());
  const CatchInterrupt again;  // takes the flag back
  EXPECT_TRUE(TimeLimit::reached());
}

}  // namespace
}  // namespace horner
