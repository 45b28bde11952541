// A step of the CPU decoder takes no memory: every `new` of the program and its libraries is counted.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "core/sanitizer_test.h"
#include "engine/cpu/decoder_test.h"

namespace {
std::atomic<int64_t> news = 0;
}  // namespace

#if !defined(__SANITIZE_ADDRESS__)
#if !defined(__has_feature) || !__has_feature(address_sanitizer)
void* operator new(size_t size) {
  ++news;
  if (void* memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
#endif
#endif

namespace horner {
namespace {

TEST(CpuDecoder, AStepAllocatesNothing) {
  if (kSanitized) GTEST_SKIP() << "sanitizers have their own new";
  const int64_t none = news;
  delete new int;
  ASSERT_GT(news, none);  // it counts
  for (const char* mixer :
       {"softmax:heads=6,groups=2",
        "hybrid:far=gated_deltanet,heads=6,groups=2,window=8,sinks=2"}) {
    for (const char* weights : {"fp32", "bf16", "q8", "q4"}) {
      const auto model = small_model({mixer}, "tied=true");
      CpuDecoder decoder(*model, weights);
      std::vector<Pages> streams(3);
      std::vector<CpuDecoder::Row> rows;
      const std::vector<int64_t> wanted = {0, 1, 2};
      for (Pages& stream : streams) {
        decoder.prefill(stream, random_tokens(20));
        rows.push_back({&stream, 7});
      }
      decoder.forward(rows, wanted);  // makes room for three
      const int64_t before = news;
      for (int i = 0; i < 40; ++i) decoder.forward(rows, wanted);
      EXPECT_EQ(news, before) << mixer << " " << weights;
    }
  }
}

}  // namespace
}  // namespace horner
