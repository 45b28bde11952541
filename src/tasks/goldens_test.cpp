// The tasks against another hand (tools/task_goldens.py), example by example.
#include <gtest/gtest.h>

#include "core/file.h"
#include "tasks/rows_test.h"

namespace horner {
namespace {

TEST(TaskGoldens, ExamplesAreThoseOfTheSpecification) {
  const std::string path = "src/tasks/goldens.json";
  const Json rows = parse_json(read_file(path), path);
  EXPECT_GT(rows.size(), 30u);
  for (const Json& row : rows) {
    const auto name = row["task"].get<std::string>();
    SCOPED_TRACE(fmt::format("{} {} {}", name, row["split"].dump(), row["index"].dump()));
    const Batch batch =
        make_task(name)->batch(Split(row["split"].get<uint32_t>()), {row["index"].get<int64_t>()});
    const auto expected = row["tokens"].get<std::vector<int64_t>>();
    const auto length = int64_t(expected.size());
    EXPECT_EQ(
        batch.lengths.defined() ? batch.lengths.item<int64_t>() : batch.tokens.size(1), length
    );
    EXPECT_EQ(numbers(batch.tokens[0].narrow(0, 0, length)), expected);
    if (row.contains("label")) {
      EXPECT_EQ(batch.labels.item<int64_t>(), row["label"].get<int64_t>());
    } else {
      const auto targets = row["targets"].get<std::vector<int64_t>>();
      EXPECT_EQ(numbers(batch.targets[0].narrow(0, 0, length)), targets);
    }
  }
}

}  // namespace
}  // namespace horner
