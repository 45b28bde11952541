// The results of finished runs in one file, so that they can be carried to another machine without their folders.
//
//   a line per run, sorted by name: {"name": .., "result": .., "env": ..}
//
// Scores of single examples, paths and weights are left out. A claim that needs weights trains its runs again.
#pragma once

#include <string>

namespace horner {

// Makes the folders of recorded runs that are not in `runs`. A file that is not there has none. Returns how many it made.
int64_t restore_runs(const std::string& record, const std::string& runs);
// Adds the finished runs of a folder. Returns how many the file has then.
int64_t record_runs(const std::string& record, const std::string& runs);
// Whether a folder was made by restore_runs: it has a result and no weights.
bool restored(const std::string& folder);

}  // namespace horner
