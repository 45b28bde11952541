#include "lab/convert/training.h"

#include <cmath>
#include <filesystem>

#include "core/check.h"
#include "core/device.h"
#include "core/file.h"
#include "lab/convert/objectives.h"
#include "model/formats/seal.h"
#include "model/formats/write_folder.h"
#include "tasks/text/text.h"
#include "train/run_folder.h"

namespace horner {
namespace {

namespace fs = std::filesystem;

constexpr double kAlignShare = 0.15;  // of all tokens
constexpr double kWarmup = 0.05;      // of the steps
constexpr int64_t kCurve = 200;       // points of the loss

// Windows at random places of the training text, for a model that may know more tokens than its tokenizer.
class TrainingText : public TextTask {
 public:
  TrainingText(const TextOptions& o, std::shared_ptr<const Corpus> corpus, int64_t vocabulary)
      : TextTask(o, std::move(corpus)), o_(o), vocabulary_(vocabulary) {}
  TaskShape shape() const override {
    TaskShape shape = TextTask::shape();
    shape.vocabulary = vocabulary_;
    return shape;
  }
  std::vector<Baseline> baselines() const override { return {}; }
  Json options() const override { return {{"T", o_.T}, {"seed", o_.seed}}; }

 private:
  const TextOptions o_;
  const int64_t vocabulary_;
};

std::shared_ptr<Task> training_text(
    const LoadedModel& teacher, const ConvertTexts& texts, const ConvertOptions& o
) {
  TextOptions settings;
  settings.T = o.length;
  settings.seed = o.seed;
  TokenSplits splits;
  splits.streams.fill(texts.train);  // only training's is read
  const auto corpus = std::make_shared<const Corpus>(Corpus{
      teacher.need_tokenizer(), std::move(splits), text_sources(o)});
  return std::make_shared<TrainingText>(settings, corpus, teacher.model->options().vocabulary);
}

TrainOptions run_options(
    const std::string& name,
    int64_t steps,
    double rate,
    const Model& student,
    const ConvertOptions& o,
    const WorkFolder& work
) {
  TrainOptions t;
  t.task = t.name = name;
  t.out = work.folder();
  t.seed = o.seed;
  t.device = o.device;
  t.model = student.options();
  t.optim.lr = rate;
  t.optim.weight_decay = 0;  // it would pull towards 0, not towards the teacher
  t.schedule.steps = steps;
  t.schedule.warmup = int64_t(std::ceil(kWarmup * double(steps)));
  t.train.batch = o.batch;
  t.checkpoint.every = o.checkpoint;
  t.checkpoint.keep = 1;
  t.log.every = std::max<int64_t>(1, steps / kCurve);
  t.log.tensorboard = false;
  return t;
}

// What the settings say of the outcome.
Json outcome_of(const ConvertOptions& given) {
  ConvertOptions o = given;
  Json json = to_json(o);
  for (const char* key : {"out", "minutes", "device", "checkpoint"}) json.erase(key);
  return json;
}

std::vector<std::pair<int64_t, double>> curve_of(const TrainResult& r, int64_t tokens_of_step) {
  std::vector<std::pair<int64_t, double>> curve;
  for (const TrainResult::Point& p : r.curve) curve.emplace_back(p.step * tokens_of_step, p.loss);
  return curve;
}

}  // namespace

WorkFolder::WorkFolder(const ConvertOptions& o, const Json& data)
    : folder_(o.out + "/training"),
      is_{{"format_version", kFormatVersion}, {"settings", outcome_of(o)}, {"data", data}} {
  const std::string about = path("conversion.json");
  if (!fs::exists(about)) {
    HORNER_CHECK(!fs::exists(o.out + "/config.json"), "{}: holds a model already", o.out);
    return;
  }
  const std::string other = read_from(about, [&](const Json& then) {
    check_format_version(then, about);
    const std::string setting = difference(then.at("settings"), is_["settings"]);
    return setting.empty() ? data_difference(then.at("data"), is_["data"]) : setting;
  });
  HORNER_CHECK(other.empty(), "{}: holds another conversion: {}; take another --out", o.out, other);
}

void WorkFolder::open() {
  make_folder(folder_);
  lock_ = std::make_unique<FolderLock>(folder_);
  if (!fs::exists(path("conversion.json"))) write_file(path("conversion.json"), is_.dump(2) + "\n");
}

bool WorkFolder::started(const TellConvert& tell) const {
  if (!fs::exists(path("start/DONE"))) return false;
  const std::string damaged = damage(path("start"));
  if (!damaged.empty() && tell.train) {
    TrainTick tick{};
    tick.note = damaged + "; the start is made again";
    tell.train(tick);
  }
  return damaged.empty();
}

void WorkFolder::write_start(const Model& student, const LoadedModel& like, const Json& described)
    const {
  write_model_folder(path("start"), student, like);
  write_file(path("start/start.json"), described.dump(2) + "\n");
  write_file(path("start/DONE"), seal_of(path("start")));
}

std::optional<ConvertStep> WorkFolder::finished(const std::string& step) const {
  const std::string file = path(step + ".json");
  if (!fs::exists(file)) return {};
  return read_from(file, [](const Json& json) { return ConvertStep::from(json); });
}

void WorkFolder::write_step(const ConvertStep& step) const {
  write_file(path(step.name + ".json"), step.json().dump(2) + "\n");
}

StepCounts step_counts(const ConvertOptions& o) {
  const int64_t one = o.batch * o.length;
  HORNER_CHECK(
      o.tokens >= one,
      "tokens must be 0 or at least batch x length = {}, one step, got {}",
      one,
      o.tokens
  );
  const int64_t all = o.tokens / one;
  StepCounts n;
  n.align =
      o.align_tokens ? *o.align_tokens / one : int64_t(std::lround(kAlignShare * double(all)));
  HORNER_CHECK(
      n.align >= 0 && n.align <= all,
      "align_tokens must be from 0 to tokens = {}, got {}",
      o.tokens,
      o.align_tokens.value_or(0)
  );
  n.distil = all - n.align;
  return n;
}

void train_student(
    Certificate& c,
    std::optional<TextScore>& last,
    const LoadedModel& loaded,
    const std::shared_ptr<Model>& student,
    const Kept& kept,
    const ConvertTexts& texts,
    const ConvertOptions& o,
    const WorkFolder& work,
    const ConvertScores& scores,
    const TellConvert& tell
) {
  Model& teacher = *loaded.model;
  const StepCounts counts = step_counts(o);
  const auto task = training_text(loaded, texts, o);
  const auto run = [&](const std::string& name, int64_t steps, const Rates& rates, const Loss& loss
                   ) {
    if (steps == 0) return;
    const Objective objective = objective_of(student, rates, loss);
    const TrainOptions options = run_options(name, steps, highest(rates), *student, o, work);
    if (tell.train) {
      TrainTick tick{};
      tick.note = fmt::format("{}: {} steps of {} x {} tokens", name, steps, o.batch, o.length);
      tell.train(tick);
    }
    const TrainResult result = train(options, task, objective, tell.train);
    for (at::Tensor& p : student->parameters()) p.mutable_grad().reset();  // their vector goes too
    c.precision = result.options.train.precision;
    last.reset();
    std::optional<ConvertStep> step = work.finished(name);
    if (!step) {
      last = scores.of(student, "score after " + name);
      step = ConvertStep::of(name, *last);
      step->tokens = result.tokens;
      step->seconds = result.seconds;
      step->curve = curve_of(result, o.batch * o.length);
      work.write_step(*step);
    }
    c.steps.push_back(*step);
  };
  run("align",
      counts.align,
      align_rates(teacher, *student, kept, o.align),
      [&](const at::Tensor& tokens, const Context&) {
        return align_loss(teacher, *student, kept, tokens);
      });
  run("distil",
      counts.distil,
      distil_rates(teacher, *student, o.distil),
      [&](const at::Tensor& tokens, const Context& context) {
        return distil_loss(teacher, *student, tokens, context);
      });
}

}  // namespace horner
