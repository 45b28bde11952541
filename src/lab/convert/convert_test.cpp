#include "lab/convert/convert.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>

#include "core/check.h"
#include "core/data_test.h"
#include "core/thrown_test.h"
#include "io/compressed.h"
#include "lab/score/sequences.h"
#include "model/formats/write_folder.h"

namespace horner {
namespace {

// A small teacher whose scores are not near 0.
std::shared_ptr<Model> teacher_of(
    const std::string& mixer = "softmax:heads=2,groups=1", int64_t layers = 4
) {
  ModelOptions o;
  o.pattern = {mixer};
  o.layers = layers;
  o.D = 16;
  o.vocabulary = 40;
  const auto model = make_model(o, 3);
  const c10::NoGradGuard no_graph;
  for (auto& entry : model->named_parameters()) {
    if (entry.value().dim() == 2) entry.value().mul_(12);
  }
  model->eval();
  return model;
}

at::Tensor tokens(int64_t n, int64_t T) {
  at::manual_seed(5);
  return at::randint(40, {n, T}, at::kLong);
}

at::Tensor logits(Model& model, const at::Tensor& input) {
  const c10::NoGradGuard no_graph;
  ModelState state;
  return model.forward(input, state);
}

const MixerSpec kWindow = MixerSpec::parse("window:window=6,sinks=1");

TEST(Convert, SettingsOfTheLayerReachTheNewMixer) {
  const MixerSpec layer =
      MixerSpec::parse("softmax:heads=6,groups=2,key=8,value=8,position.base=500");
  EXPECT_EQ(
      target_spec(kWindow, layer).text(),
      "window:window=6,sinks=1,heads=6,groups=2,head=8,position.base=500"
  );
  EXPECT_EQ(target_spec(MixerSpec::parse("taylor:heads=3"), layer).find("heads"), "3");
  EXPECT_FALSE(is_replaceable(MixerSpec::parse("softmax:causal=false")));
  EXPECT_FALSE(is_replaceable(MixerSpec::parse("gla")));
}

TEST(Convert, AWindowThatHoldsEverythingIsTheTeacher) {
  const auto teacher = teacher_of();
  const ModelOptions o =
      student_options(teacher->options(), MixerSpec::parse("window:window=32"), Kept(4, false));
  const auto student = shared_model(o, {teacher.get()});
  const at::Tensor input = tokens(2, 32);
  EXPECT_LT((logits(*student, input) - logits(*teacher, input)).abs().max().item<double>(), 1e-4);
  const auto narrow = shared_model(
      student_options(teacher->options(), kWindow, {false, true, false, true}), {teacher.get()}
  );
  const at::Tensor far = (logits(*narrow, input) - logits(*teacher, input)).abs().amax({0, 2});
  EXPECT_LT(far.narrow(0, 0, 6).max().item<double>(), 1e-4);  // inside the window nothing changes
  EXPECT_GT(far.max().item<double>(), 1e-2);
}

TEST(Convert, AMixerWithoutTheTeachersBiasesIsRefused) {
  const auto teacher = teacher_of("softmax:heads=2,bias=true", 1);
  EXPECT_THROW(
      shared_model(student_options(teacher->options(), kWindow, Kept(1, false)), {teacher.get()}),
      UsageError
  );
}

TEST(Convert, HeadsAreWhatOutJoins) {
  const c10::NoGradGuard no_graph;
  const auto teacher = teacher_of();
  Mixer& mixer = teacher->block(0).mixer();
  const at::Tensor x = at::randn({2, 9, 16});
  const at::Tensor before = mixer.named_parameters()["out_weight"].clone();
  const Core core = mixer.core(x);
  EXPECT_LT((heads_of(mixer, x, 2) - core.o).abs().max().item<double>(), 1e-5);
  EXPECT_TRUE(at::equal(mixer.named_parameters()["out_weight"], before));
}

TEST(Convert, KeepByRule) {
  const ModelOptions o = teacher_of()->options();
  EXPECT_EQ(parse_keep("", o).kept, Kept(4, false));
  EXPECT_EQ(parse_keep("every=2", o).kept, (Kept{false, true, false, true}));
  EXPECT_EQ(parse_keep("layers=0,3", o).kept, (Kept{true, false, false, true}));
  EXPECT_EQ(*parse_keep("plan:state=1.5KiB", o).state, 1536);
  EXPECT_EQ(*parse_keep("plan:kl=0.03", o).kl, 0.03);
  for (const char* wrong :
       {"every=0",
        "every=x",
        "layers=4",
        "layers=",
        "plan:kl=-1",
        "plan:state=2XB",
        "plan:state=MB",
        "some"})
    EXPECT_THROW(parse_keep(wrong, o), UsageError) << wrong;
  EXPECT_THROW(parse_keep("", teacher_of("gla:heads=2")->options()), DataError);
}

// KL of a model with some layers replaced, by `score`.
double kl_of(Model& teacher, const Kept& kept, const at::Tensor& windows) {
  const auto student = shared_model(student_options(teacher.options(), kWindow, kept), {&teacher});
  std::vector<Sequence> list;
  for (int64_t i = 0; i < windows.size(0); ++i) {
    const int64_t* row = windows[i].data_ptr<int64_t>();
    list.push_back({{row, row + windows.size(1)}});
    list.back().tokens.push_back(0
    );  // score predicts the token after each, the planner has no targets
  }
  double sum = 0;
  for (const SequenceScores& s : score_sequences(*student, &teacher, list, 1024, at::kCPU, nullptr))
    for (const double kl : s.kl) sum += kl / double(windows.numel());
  return sum;
}

TEST(Convert, ThePlannerKeepsWhatCostsMost) {
  const auto teacher = teacher_of();
  const auto replaced =
      shared_model(student_options(teacher->options(), kWindow, Kept(4, false)), {teacher.get()});
  const at::Tensor windows = tokens(3, 24);
  const Planning p = Planner(*teacher, *replaced, kWindow, windows, 24)
                         .plan(parse_keep("plan:kl=0.01", teacher->options()), nullptr);
  for (int64_t l = 0; l < 4; ++l) {
    Kept kept(4, true);
    kept[size_t(l)] = false;
    EXPECT_NEAR(p.alone[size_t(l)], kl_of(*teacher, kept, windows), 1e-5) << l;
  }
  for (size_t i = 1; i < 4; ++i)
    EXPECT_GE(p.alone[size_t(p.order[i - 1])], p.alone[size_t(p.order[i])]);
  const LayerPlan& chosen = p.tried[p.chosen];
  EXPECT_LE(chosen.kl.mean, 0.01);
  EXPECT_EQ(p.tried.back().name, "every=4");
  EXPECT_NEAR(p.tried.front().kl.mean, kl_of(*teacher, Kept(4, false), windows), 1e-5);
  const LayerPlan& whole = p.tried[p.tried.size() - 2];  // every layer softmax
  EXPECT_EQ(whole.kept.size(), 4u);
  EXPECT_EQ(whole.kl.mean, 0);
  EXPECT_GT(whole.state_bytes, p.tried.front().state_bytes);
}

TEST(Convert, AWrittenFolderIsTheModel) {
  const auto teacher = teacher_of();
  LoadedModel like;
  like.tokenizer = byte_tokenizer();
  like.chat_template = "{{ messages }}";
  like.ends = {7, 9};
  like.begin = 3;
  like.defaults.temperature = 0.5;
  const std::string folder = testing::TempDir() + "horner_written";
  write_model_folder(folder, *teacher, like);
  const LoadedModel read = open_model(folder);
  const at::Tensor input = tokens(1, 20);
  EXPECT_TRUE(at::equal(logits(*read.model, input), logits(*teacher, input)));
  EXPECT_EQ(read.chat_template, like.chat_template);
  EXPECT_EQ(read.ends, like.ends);
  EXPECT_EQ(read.begin, like.begin);
  EXPECT_EQ(read.defaults.temperature, 0.5);
}

// The start of every kind, on a trained model: what is read beyond the window must do no harm. Measured on a text that the
// start has not seen. far_mean and the share of the window brought gated_deltanet from 1.02 to 0.25 here, the window has 0.79.
TEST(Convert, TheStartIsNoWorseThanItsWindow) {
  const std::string model = test_data("tinystories656k"), text = test_data("eltec_eng/test.txt.xz");
  HORNER_NEED(model);
  HORNER_NEED(text);
  const LoadedModel loaded = open_model(model);
  const std::string novel = read_decompressed(text);
  const auto windows = [&](size_t from) {
    const auto ids = loaded.need_tokenizer().encode(novel.substr(from, 40000));
    return at::tensor(at::ArrayRef<int32_t>(ids), at::kLong).narrow(0, 0, 8 * 512).view({8, 512});
  };
  const at::Tensor calibration = windows(10000), other = windows(novel.size() / 2);
  Model& teacher = *loaded.model;
  const Kept none(size_t(teacher.options().layers), false);
  const at::Tensor wanted = at::log_softmax(logits(teacher, other), -1);
  const auto kl_of = [&](const std::string& far) {
    const MixerSpec to = MixerSpec::parse("hybrid:window=16,sinks=2,far=" + far);
    const auto student = shared_model(student_options(teacher.options(), to, none), {&teacher});
    calibrate_on(teacher, *student, none, calibration, nullptr);
    const at::Tensor got = at::log_softmax(logits(*student, other), -1);
    return (wanted.exp() * (wanted - got)).sum(-1).mean().item<double>();
  };
  const double window = kl_of("none");
  EXPECT_GT(window, 0.5);
  for (const auto& [far, share] :
       {std::pair{"linear", 0.99},
        {"taylor", 0.99},
        {"centres", 0.4},
        {"gla", 0.4},
        {"mlstm", 0.4},
        {"gated_deltanet", 0.4},
        {"kda", 0.4}})
    EXPECT_LT(kl_of(far), share * window) << far;
}

}  // namespace
}  // namespace horner
