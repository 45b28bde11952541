#include "lab/mps.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "core/file.h"

namespace horner {
namespace {

namespace fs = std::filesystem;

// A service that writes down how it is called.
struct Service {
  Service() : folder(testing::TempDir() + "/horner_mps_test"), path(std::getenv("PATH")) {
    fs::remove_all(folder);
    make_folder(folder);
    const std::string program = folder + "/nvidia-cuda-mps-control";
    write_file(
        program,
        "#!/bin/sh\nif [ \"$1\" = -d ]; then echo start $CUDA_MPS_PIPE_DIRECTORY; else cat; fi "
        ">> " +
            folder + "/calls\n"
    );
    fs::permissions(program, fs::perms::owner_all);
    ::setenv("PATH", (folder + ":" + path).c_str(), 1);
  }
  ~Service() {
    ::setenv("PATH", path.c_str(), 1);
    fs::remove_all(folder);
  }
  std::string calls() const { return read_file(folder + "/calls"); }
  std::string folder, path;
};

TEST(Mps, StartsAndEndsAServiceOfItsOwn) {
  const Service service;
  std::string place;
  {
    const Mps mps;
    ASSERT_TRUE(mps.runs());
    ASSERT_EQ(mps.environment().size(), 2u);
    place = mps.environment()[0].substr(std::string("CUDA_MPS_PIPE_DIRECTORY=").size());
    EXPECT_TRUE(fs::is_directory(place));
    EXPECT_EQ(service.calls(), "start " + place + "\n");
  }
  EXPECT_EQ(service.calls(), "start " + place + "\nquit\n");
  EXPECT_FALSE(fs::exists(place));
}

TEST(Mps, LeavesAServiceOfTheUserAlone) {
  const Service service;
  ::setenv("CUDA_MPS_PIPE_DIRECTORY", "/tmp/other", 1);
  {
    const Mps mps;
    EXPECT_FALSE(mps.runs());
    EXPECT_TRUE(mps.environment().empty());
  }
  ::unsetenv("CUDA_MPS_PIPE_DIRECTORY");
  EXPECT_FALSE(Mps(false).runs());
  EXPECT_FALSE(fs::exists(service.folder + "/calls"));
}

}  // namespace
}  // namespace horner
