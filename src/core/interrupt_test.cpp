#include "core/interrupt.h"

#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <thread>
#include <vector>

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

#if defined(__x86_64__)
// As a matrix product that uses the stack pointer as one more register: the signal must not write where it points to.
TEST(Interrupt, LeavesTheMemoryAtTheStackPointer) {
  std::vector<uint8_t> memory(1 << 17, 7);
  const CatchInterrupt catching;
  const auto place = (reinterpret_cast<uintptr_t>(memory.data()) + (1 << 16)) & ~uintptr_t{63};
  int64_t result = SYS_tgkill;
  asm volatile(
      "mov %%rsp, %%rbx\n mov %[place], %%rsp\n syscall\n mov %%rbx, %%rsp"
      : "+a"(result)
      : [place] "r"(place), "D"(int64_t{::getpid()}), "S"(int64_t{::gettid()}), "d"(int64_t{SIGINT})
      : "rbx", "rcx", "r11", "memory"
  );
  EXPECT_EQ(result, 0);
  EXPECT_TRUE(interrupted());
  EXPECT_EQ(std::count(memory.begin(), memory.end(), 7), int64_t(memory.size()));
  const CatchInterrupt again;  // takes the flag back
}
#endif

}  // namespace
}  // namespace horner
