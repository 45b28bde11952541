#include "train/train.h"

#include <filesystem>

#include "core/check.h"
#include "core/device.h"
#include "core/file.h"
#include "train/resolve.h"
#include "train/run_folder.h"
#include "train/trainer.h"

namespace horner {

TrainResult train(const TrainOptions& options, const TrainTell& tell) {
  const std::shared_ptr<Task> task = make_task(options.task);
  const TrainOptions o = resolve(options, *task);
  const std::string folder = o.out + "/" + run_name(o), path = folder + "/result.json";
  const at::Device device = find_device(local_device(o.device));
  const std::shared_ptr<Processes> processes = Processes::join(device);
  const auto model = make_model(o.model, uint64_t(o.seed));  // refuses before anything is written
  if (!o.from.empty()) begin_with(*model, o.from);
  model->to(device);
  const bool first = !processes || processes->first();
  if (first) open_run_folder(folder, o, environment(o, device, task->sources()));
  if (processes) processes->wait();
  if (!std::filesystem::exists(path)) {
    const TrainResult result =
        Trainer(o, task, model, folder, first ? tell : TrainTell{}, processes).run();
    if (first) write_file(path, result.json().dump() + "\n");
    if (processes) processes->wait();
    if (first) return result;
  }
  return TrainResult::from(parse_json(read_file(path), path));
}

}  // namespace horner
