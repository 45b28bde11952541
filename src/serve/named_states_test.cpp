// A file of a state that was changed in any one bit is refused by its name, or is of another model; it never is another state.
#include "serve/named_states.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "core/check.h"
#include "core/file.h"

namespace horner {
namespace {

struct Numbers : StreamState {
  explicit Numbers(at::Tensor numbers) : values(std::move(numbers)) {}
  at::Tensor values;
};

const at::Tensor& values_of(const StreamState& state) {
  return dynamic_cast<const Numbers&>(state).values;
}

class Keeper : public Runner {
 public:
  int64_t vocabulary() const override { return 257; }
  std::string name() const override { return "numbers"; }
  int64_t weight_bytes() const override { return 0; }
  std::unique_ptr<StreamState> open() override { return std::make_unique<Numbers>(at::zeros(4)); }
  std::unique_ptr<StreamState> fork(const StreamState& state) override {
    return std::make_unique<Numbers>(values_of(state));
  }
  int64_t bytes_after(int64_t) const override { return 16; }
  int64_t bytes(const StreamState&) const override { return 16; }
  Tensors tensors(const StreamState& state) const override {
    return {{"values", values_of(state)}};
  }
  std::unique_ptr<StreamState> restore(const Tensors& tensors) override {
    if (tensors.size() != 1 || tensors[0].second.numel() != 4)
      throw DataError("these are not the numbers of a state");
    return std::make_unique<Numbers>(tensors[0].second.clone());
  }
  void read(StreamState&, std::span<const int32_t>, at::Tensor*) override {}
  at::Tensor step(std::span<StreamState* const>, std::span<const int32_t> tokens) override {
    return at::zeros({int64_t(tokens.size()), vocabulary()});
  }
};

TEST(NamedStates, AFileWithAnyBitChangedIsNoOtherState) {
  const std::filesystem::path folder = testing::TempDir() + "horner_named_states_bits";
  std::filesystem::remove_all(folder);
  Keeper runner;
  const at::Tensor values = at::arange(4, at::kFloat);
  {
    NamedStates states(runner, folder, "a model", 10);
    NamedState state;
    state.tokens = {1, 2, 3};
    state.read = 2;
    state.state = std::make_unique<Numbers>(values);
    states.save("kept", std::move(state));
  }
  const std::string path = folder / "kept.safetensors", whole = read_file(path);
  int64_t refused = 0, other = 0, same = 0;
  for (size_t bit = 0; bit < 8 * whole.size(); bit += 9) {  // one of each byte
    std::string changed = whole;
    changed[bit / 8] = char(changed[bit / 8] ^ (1 << bit % 8));
    std::ofstream(path, std::ios::binary) << changed;
    try {
      NamedStates states(runner, folder, "a model", 10);
      if (states.size() == 0) {
        ++other;
        continue;
      }
      const NamedState& found = states.at("kept");
      ASSERT_EQ(found.tokens, (std::vector<int32_t>{1, 2, 3})) << bit;
      ASSERT_EQ(found.read, 2) << bit;
      ASSERT_TRUE(at::equal(values_of(*found.state), values)) << bit;
      ++same;
    } catch (const DataError& error) {
      ++refused;
      ASSERT_NE(std::string(error.what()).find("kept.safetensors"), std::string::npos)
          << bit << ": " << error.what();
    }
  }
  EXPECT_GT(refused, 16 + 12 - 4);  // the numbers and the tokens, at least
  EXPECT_GT(other, 0);
  EXPECT_LT(same, 60);  // the time of its making, or how the header is written
  std::filesystem::remove_all(folder);
}

TEST(NamedStates, OnlyFilesOfDeadWritersAreDeleted) {
  const std::filesystem::path folder = testing::TempDir() + "horner_named_states_left";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  const pid_t dead = ::fork();
  if (dead == 0) ::_exit(0);
  ::waitpid(dead, nullptr, 0);
  const auto name = [&](pid_t writer) { return fmt::format("a.safetensors.{}.tmp", writer); };
  const std::vector<std::string> stay = {
      name(::getppid()),
      "a.safetensors.tmp",
      "a.safetensors..tmp",
      "a.safetensors.12x.tmp",
      "a.txt." + std::to_string(dead) + ".tmp",
      ".tmp"};
  for (const std::string& file : stay) std::ofstream(folder / file) << "x";
  std::ofstream(folder / name(dead)) << "x";
  std::ofstream(folder / name(::getpid())) << "x";  // of an older process with this number
  Keeper runner;
  const NamedStates states(runner, folder, "a model", 10);
  for (const std::string& file : stay) EXPECT_TRUE(std::filesystem::exists(folder / file)) << file;
  EXPECT_FALSE(std::filesystem::exists(folder / name(dead)));
  EXPECT_FALSE(std::filesystem::exists(folder / name(::getpid())));
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace horner
