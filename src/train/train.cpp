#include "train/train.h"

#include <filesystem>

#include "core/check.h"
#include "core/device.h"
#include "core/file.h"
#include "core/folder_lock.h"
#include "tasks/example.h"
#include "train/limits.h"
#include "train/objective.h"
#include "train/own_data.h"
#include "train/replay.h"
#include "train/resolve.h"
#include "train/run_folder.h"
#include "train/trainer.h"

namespace horner {

namespace {

TrainTick note(const std::string& text) {
  TrainTick tick{};
  tick.note = text;
  return tick;
}

TrainResult train_with(
    const TrainOptions& options,
    const std::shared_ptr<Task>& task,
    const TrainTell& tell,
    const std::shared_ptr<Processes>& processes,
    const Objective* objective = nullptr
) {
  const TrainOptions o = resolve(options, *task);
  const Json data = data_of(*task, o.from);
  const std::string folder = o.out + "/" + run_name(o, data), path = folder + "/result.json";
  const at::Device device = find_device(local_device(o.device));
  check_memory(o, task->shape());
  const OwnStream stream(device);
  check_processes(o, task->shape(), processes ? processes->world() : 0);
  if (processes) {
    processes->connect(device);
    processes->compare({{"settings", to_json(o)}, {"data", data_hash(data)}});
  }
  const auto model =  // refuses before anything is written
      objective ? objective->model : make_model(o.model, uint64_t(o.seed));
  if (!objective && !o.from.empty()) begin_with(*model, o.from);
  if (shard_of(o) == Shard::full) {
    for (at::Tensor& buffer : model->buffers()) buffer.set_data(buffer.to(device));
  } else {
    model->to(device);
  }
  std::optional<FolderLock> lock;
  in_first(processes.get(), [&] {
    if (!std::filesystem::exists(path)) {
      make_folder(folder + "/checkpoints");
      lock.emplace(folder);
    }
    open_run_folder(folder, o, environment(o, device, *task));
  });
  if (!std::filesystem::exists(path)) {
    const bool first = !processes || processes->first();
    const TrainResult result =
        Trainer(o, task, model, folder, first ? tell : TrainTell{}, processes, objective).run();
    in_first(processes.get(), [&] {
      write_file(folder + "/task.json", describe_task(*task, o.task).dump(1) + "\n");
      write_file(path, result.json().dump() + "\n");
    });
    if (processes) processes->leave();
    if (first) return result;
  } else {
    if (objective) read_tensors(*model, model_folder(folder) + "/model.safetensors");
    if (tell) tell(note("this run had finished before; nothing is trained"));
    if (processes) processes->leave();
  }
  TrainResult result = read_result(folder);
  if (!o.expect.empty()) result.options.expect = o.expect;  // judged by what is expected now
  return result;
}

}  // namespace

TrainResult train(const TrainOptions& given, const TrainTell& tell) {
  TrainOptions options = given;
  options.task = task_of(given);
  find_task(TypeSpec::parse(options.task).name);  // or every process says what is wrong
  const std::shared_ptr<Processes> processes = Processes::meet();
  return train_with(options, make_task(options.task), tell, processes);
}

TrainResult train(
    const TrainOptions& options, const std::shared_ptr<Task>& task, const TrainTell& tell
) {
  return train_with(options, task, tell, Processes::meet());
}

TrainResult train(
    const TrainOptions& options,
    const std::shared_ptr<Task>& task,
    const Objective& objective,
    const TrainTell& tell
) {
  return train_with(options, task, tell, nullptr, &objective);
}

TrainResult read_result(const std::string& folder) {
  TrainResult result =
      read_from(folder + "/result.json", [](const Json& json) { return TrainResult::from(json); });
  result.folder = folder;  // it may have been moved
  return result;
}

}  // namespace horner
