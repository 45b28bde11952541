// Converts a trained softmax model into one of other mixers, with a certificate of what was lost.
//
//   measure and start   the teacher reads a text; each new mixer is set from what its layer reads (`calibrate`)
//   plan                with --keep plan:..: which layers stay softmax (plan.h)
//   align, distil       with --tokens: the student learns from the teacher (objectives.h), resumable (training.h)
//   certificate         both models read a text that was not calibrated or trained on (certificate.h)
//
// The result is a model folder that every command opens.
#pragma once

#include <functional>

#include "lab/convert/certificate.h"
#include "train/train.h"

namespace horner {

struct AlignRates {
  double fresh = 1e-3, copied = 2e-4;

  template <class Visitor>
  void visit(Visitor&& visit) {
    visit("new", fresh, "of what the teacher does not have");
    visit("copied", copied, "of q, k, v and out");
  }
};

struct DistilRates {
  double fresh = 1e-3, copied = 1e-4, rest = 3e-5;

  template <class Visitor>
  void visit(Visitor&& visit) {
    visit("new", fresh, "of what the teacher does not have");
    visit("copied", copied, "of q, k, v and out");
    visit("rest", rest, "of MLPs, norms, embedding and head");
  }
};

struct ConvertOptions {
  std::string to;
  std::string keep;
  int64_t tokens = 0;
  std::optional<int64_t> align_tokens;
  std::vector<std::string> text, test;
  int64_t calibration = 8;
  int64_t context = 1024;
  int64_t windows = 4;
  int64_t texts = 8;
  int64_t needles = 0;
  int64_t batch = 8;
  int64_t length = 1024;
  AlignRates align;
  DistilRates distil;
  bool untie = true;
  int64_t seed = 0;
  std::string device = "auto";
  int64_t checkpoint = 500;
  double minutes = 0;
  std::string out;

  template <class Visitor>
  void visit(Visitor&& visit) {
    visit("to", to, "mixer or mixer:settings that takes the place of softmax");
    visit("keep", keep, "layers that stay: every=4, layers=3,7, plan:kl=0.03 or plan:state=2MB");
    visit("tokens", tokens, "of training; 0: none");
    visit("align_tokens", align_tokens, "of these for the first step, align; none: 15 %");
    visit("text", text, "texts to calibrate and train on, plain, gz or xz; empty: Shakespeare");
    visit("test", test, "texts of the certificate; empty: the last tenth of text");
    visit(
        "calibration",
        calibration,
        "pieces that are calibrated on, of --context tokens and of 512 at least"
    );
    visit("context", context, "tokens of a window of the certificate");
    visit("windows", windows, "windows of the certificate");
    visit("texts", texts, "of 32 tokens that student and teacher write; 0: none");
    visit("needles", needles, "numbers to find in texts of 1, 2, 4 and 8 times context; 0: none");
    visit("batch", batch, "training: windows of a step");
    visit("length", length, "training: tokens of a window");
    visit("align", align, "learning rates of the step align");
    visit("distil", distil, "learning rates of the step distil");
    visit("untie", untie, "training gives a head that is the embedding weights of its own");
    visit("seed", seed, "of the windows that are trained on");
    visit("device", device, "of training and scores: auto, cpu, cuda or cuda:N");
    visit("checkpoint", checkpoint, "steps between checkpoints of training");
    visit("minutes", minutes, "stop after this time; the same command goes on; 0: no limit");
    visit("out", out, "folder of the converted model");
  }
};

// `step(step, done, total)`; total 0: not known. `train`: each step of training.
struct TellConvert {
  std::function<void(const std::string& step, size_t done, size_t total)> step;
  TrainTell train;
};

// Writes the model folder with certificate.json. UsageError for settings, DataError for the model or a text,
// InterruptedError if it was told to stop. With training the same call then goes on. OUT/training stays until end_conversion.
Certificate convert(
    const std::string& model, const ConvertOptions& options, const TellConvert& tell
);

// Deletes what only a conversion that goes on would need.
void end_conversion(const std::string& out);

}  // namespace horner
