#include "lab/convert/convert.h"

#include <ATen/Functions.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>

#include "core/check.h"
#include "core/device.h"
#include "core/file.h"
#include "lab/convert/training.h"
#include "model/formats/checkpoint_folder.h"
#include "model/formats/model_files.h"
#include "model/formats/write_folder.h"
#include "train/checkpoint.h"
#include "train/run_folder.h"

namespace horner {
namespace {

constexpr int64_t kPiece = 512;  // tokens of a piece that is calibrated or planned on, at least
constexpr int64_t kPlanPieces = 4;
constexpr const char* kTokens = "tokens.bin";  // of the texts, in the work folder

void check(const ConvertOptions& o) {
  HORNER_CHECK(
      !o.to.empty(),
      "--to names the mixer that takes the place of softmax, as in --to hybrid:far=centres"
  );
  HORNER_CHECK(!o.out.empty(), "--out names the folder of the converted model");
  for (const auto& [name, value, least] :
       {std::tuple{"calibration", o.calibration, 1},
        {"windows", o.windows, 1},
        {"batch", o.batch, 1},
        {"length", o.length, 2},
        {"context", o.context, 2},
        {"tokens", o.tokens, 0},
        {"texts", o.texts, 0},
        {"needles", o.needles, 0},
        {"checkpoint", o.checkpoint, 0}})
    HORNER_CHECK(value >= least, "{} must be at least {}, got {}", name, least, value);
  for (const auto& [name, rate] :
       {std::pair{"align.new", o.align.fresh},
        {"align.copied", o.align.copied},
        {"distil.new", o.distil.fresh},
        {"distil.copied", o.distil.copied},
        {"distil.rest", o.distil.rest}})
    HORNER_CHECK(std::isfinite(rate) && rate >= 0, "{} must be at least 0, got {}", name, rate);
  if (o.tokens > 0) step_counts(o);
}

void check_model(const LoadedModel& loaded, const std::string& name) {
  const ModelOptions& m = loaded.model->options();
  if (m.classes != 0 || m.output != "tokens" || m.features != 0 || !loaded.model->causal())
    throw DataError("{}: is not a language model that reads forwards", name);
}

// The student before training, and which layers stay softmax.
struct Start {
  std::shared_ptr<Model> student;
  Kept kept;
  int64_t calibration_tokens = 0;
  std::optional<Planning> planning;
};

// What its mixers and its head are made of.
ModelOptions options_like(const Model& teacher, const ConvertOptions& o) {
  ModelOptions like = teacher.options();
  like.tied = like.tied && !(o.tokens > 0 && o.untie);
  return like;
}

// On the device of the teacher.
Start make_start(
    Model& teacher, const ConvertTexts& texts, const ConvertOptions& o, const TellConvert& tell
) {
  const c10::NoGradGuard no_graph;
  const at::Device device = teacher.parameters().front().device();
  const MixerSpec to = MixerSpec::parse(o.to);
  const ModelOptions like = options_like(teacher, o);
  const Keep keep = parse_keep(o.keep, teacher.options());
  Start s;
  s.kept = keep.plans() ? parse_keep("", teacher.options()).kept : keep.kept;
  s.student = shared_model(student_options(like, to, s.kept), {&teacher});
  HORNER_CHECK(s.student->causal(), "{} reads in both directions", o.to);
  s.student->to(device);
  const int64_t piece = std::max(kPiece, o.context);  // a state must not be new to its length
  const at::Tensor calibration = pieces(texts.train, 0, o.calibration, piece).to(device);
  s.calibration_tokens = calibration.numel();
  calibrate_on(teacher, *s.student, s.kept, calibration, [&](int64_t l) {
    tell_step(tell, "calibrating", size_t(l), size_t(like.layers));
  });
  if (!keep.plans()) return s;
  const at::Tensor windows =
      pieces(texts.train, s.calibration_tokens, kPlanPieces, piece).to(device);
  const auto planned = [&](const std::string& what, size_t done, size_t total) {
    tell_step(tell, what, done, total);
  };
  s.planning = Planner(teacher, *s.student, to, windows, o.context).plan(keep, planned);
  for (const int64_t l : s.planning->tried[s.planning->chosen].kept) s.kept[size_t(l)] = true;
  s.student = shared_model(student_options(like, to, s.kept), {s.student.get(), &teacher});
  s.student->to(device);
  return s;
}

Json describe(const Start& s) {
  Json json = {{"kept", s.kept}, {"calibration_tokens", s.calibration_tokens}};
  if (s.planning) json["planning"] = s.planning->json();
  return json;
}

// The start that an earlier command has made.
Start read_start(const WorkFolder& work, const Model& teacher, const ConvertOptions& o) {
  Start s = read_from(work.path("start/start.json"), [](const Json& json) {
    Start then;
    then.kept = json.at("kept").get<Kept>();
    then.calibration_tokens = json.at("calibration_tokens");
    if (json.contains("planning")) then.planning = Planning::from(json["planning"]);
    return then;
  });
  const MixerSpec to = MixerSpec::parse(o.to);
  s.student = std::make_shared<Model>(student_options(options_like(teacher, o), to, s.kept));
  s.student->eval();
  read_tensors(*s.student, work.path("start/model.safetensors"));
  return s;
}

// The start of an earlier command, else a new one, which is written if the student is to be trained.
Start find_start(
    const LoadedModel& loaded,
    const ConvertTexts& texts,
    const ConvertOptions& o,
    WorkFolder& work,
    const TellConvert& tell
) {
  Model& teacher = *loaded.model;
  if (o.tokens == 0) return make_start(teacher, texts, o, tell);
  if (work.started(tell)) {
    work.open();
    return read_start(work, teacher, o);
  }
  Start s = make_start(teacher, texts, o, tell);
  work.open();
  write_cache(texts, work.path(kTokens), teacher.options().vocabulary);
  work.write_start(*s.student, loaded, describe(s));
  return s;
}

Certificate described(const std::string& name, const ConvertOptions& o, const LoadedModel& loaded) {
  Certificate c;
  c.teacher = name;
  c.to = o.to;
  c.keep = o.keep;
  c.layers = loaded.model->options().layers;
  c.context = o.context;
  c.seed = o.seed;
  return c;
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

Certificate convert(const std::string& name, const ConvertOptions& o, const TellConvert& tell) {
  auto begin = std::chrono::steady_clock::now();
  check(o);
  const bool trains = o.tokens > 0;
  find_mixer(MixerSpec::parse(o.to).name);
  const at::Device device = find_device(o.device);
  const LoadedModel loaded = open_model(name);
  check_model(loaded, name);
  parse_keep(o.keep, loaded.model->options());
  Json data = text_sources(o);
  for (const Json& file : model_files(name)) data.push_back(file);
  WorkFolder work(o, data);
  const ConvertTexts texts = read_texts(loaded, o, trains ? work.path(kTokens) : "");
  Certificate c = described(name, o, loaded);
  c.text = texts.files;
  c.test = texts.test_name;
  c.device = describe_device(device);
  c.precision = "fp32";

  const ConvertScores scores(loaded, o, texts, device, tell);  // moves the teacher to the device
  const Start s = find_start(loaded, texts, o, work, tell);
  c.calibration_tokens = s.calibration_tokens;
  c.planning = s.planning;
  for (size_t l = 0; l < s.kept.size(); ++l) {
    if (s.kept[l]) c.kept.push_back(int64_t(l));
  }

  std::optional<TextScore> last;
  std::optional<ConvertStep> first = trains ? work.finished("start") : std::nullopt;
  if (!first) {
    last = scores.of(s.student, "score of the start");
    first = ConvertStep::of("start", *last);
    first->seconds = seconds_since(begin);
    if (trains) work.write_step(*first);
  }
  c.steps = {*first};
  const bool replaces = int64_t(c.kept.size()) < c.layers;
  if (trains && replaces)
    train_student(c, last, loaded, s.student, s.kept, texts, o, work, scores, tell);

  begin = std::chrono::steady_clock::now();
  c.score = last ? *last : scores.of(s.student, "certificate");
  certify(c, loaded, s.student, s.kept, texts, scores, tell);
  c.seconds = seconds_since(begin);
  for (const ConvertStep& step : c.steps) c.seconds += step.seconds;
  make_folder(o.out);
  write_file(o.out + "/certificate.json", c.json().dump(2) + "\n");
  write_model_folder(o.out, *s.student, loaded);  // config.json is last: then it is a model
  return c;
}

void end_conversion(const std::string& out) {
  const std::string folder = out + "/training";
  std::error_code error;  // what cannot be deleted does no harm
  // Without this file the rest is no conversion to go on with.
  if (std::filesystem::remove(folder + "/conversion.json", error))
    std::filesystem::remove_all(folder, error);
}

}  // namespace horner
