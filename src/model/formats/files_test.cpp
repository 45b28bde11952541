// Folders and files as people have them: shards, mistakes, real models.
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>

#include "core/check.h"
#include "core/data_test.h"
#include "core/file.h"
#include "core/thrown_test.h"
#include "io/safetensors.h"
#include "model/formats/config.h"
#include "model/formats/formats.h"

namespace horner {
namespace {

namespace fs = std::filesystem;
const std::string kGoldens = "src/model/formats/goldens/";

// A folder with the config.json of a golden, changed by `change`, and its tensors.
struct Folder {
  explicit Folder(const std::string& golden) : path(testing::TempDir() + "formats_" + golden) {
    fs::remove_all(path);
    fs::create_directories(path);
    config = parse_json(read_file(kGoldens + golden + "/config.json"), "config.json");
    const Safetensors file = Safetensors::open(kGoldens + golden + "/model.safetensors");
    for (const std::string& name : file.names()) tensors.emplace_back(name, file.get(name));
  }
  ~Folder() { fs::remove_all(path); }
  void write() const {
    write_file(path + "/config.json", config.dump());
    write_safetensors(path + "/model.safetensors", tensors);
  }
  std::string error() const {
    write();
    return thrown<DataError>([&] { open_model(path); });
  }
  std::string path;
  Json config;
  std::vector<std::pair<std::string, at::Tensor>> tensors;
};

bool same_parameters(const Model& a, const Model& b) {
  const auto others = b.named_parameters();
  for (const auto& entry : a.named_parameters()) {
    if (!at::equal(entry.value(), others[entry.key()])) return false;
  }
  return others.size() == a.named_parameters().size();
}

TEST(FormatFiles, ShardsAreOneModel) {
  const Folder folder("llama");
  write_file(folder.path + "/config.json", folder.config.dump());
  Json index = {{"metadata", Json::object()}, {"weight_map", Json::object()}};
  std::vector<std::pair<std::string, at::Tensor>> parts[2];
  for (size_t i = 0; i < folder.tensors.size(); ++i) {
    parts[i % 2].push_back(folder.tensors[i]);
    index["weight_map"][folder.tensors[i].first] = fmt::format("part-{}.safetensors", i % 2);
  }
  for (int i = 0; i < 2; ++i)
    write_safetensors(fmt::format("{}/part-{}.safetensors", folder.path, i), parts[i]);
  const std::string path = folder.path + "/model.safetensors.index.json";
  write_file(path, index.dump());
  const LoadedModel whole = open_model(kGoldens + "llama");
  EXPECT_TRUE(same_parameters(*open_model(folder.path).model, *whole.model));

  index["weight_map"]["model.norm.weight"] = "../part-0.safetensors";
  write_file(path, index.dump());
  EXPECT_EQ(
      thrown<DataError>([&] { open_model(folder.path); }),
      path + ": the file of \"model.norm.weight\" must be a name beside the index"
  );
  write_file(path, "{}");
  EXPECT_EQ(thrown<DataError>([&] { open_model(folder.path); }), path + ": has no weight_map");
}

TEST(FormatFiles, NamesMayLackTheirPrefix) {
  Folder folder("qwen2");
  for (auto& entry : folder.tensors) entry.first = entry.first.substr(std::strlen("model."));
  folder.write();
  const LoadedModel with = open_model(kGoldens + "qwen2"), without = open_model(folder.path);
  EXPECT_TRUE(same_parameters(*with.model, *without.model));
}

TEST(FormatFiles, OldConfigsNameRopeOtherwise) {
  Folder folder("llama3");
  Json rope = folder.config["rope_parameters"];
  folder.config["rope_theta"] = rope["rope_theta"];
  rope.erase("rope_theta");
  folder.config["rope_scaling"] = rope;
  folder.config.erase("rope_parameters");
  folder.write();
  const LoadedModel now = open_model(kGoldens + "llama3"), then = open_model(folder.path);
  EXPECT_EQ(then.model->options().pattern, now.model->options().pattern);
  EXPECT_NE(now.model->options().pattern[0].find("scaling=llama3"), std::string::npos);
}

TEST(FormatFiles, AnAbsentWindowIsTheDefaultOfTransformers) {
  Folder folder("mistral");
  const auto window = [&] {
    folder.write();
    const std::string mixer = open_model(folder.path).model->options().pattern[0];
    return mixer.substr(0, mixer.find(':')) == "softmax" ? 0
           : mixer.find("window=4096") != mixer.npos     ? 4096
                                                         : -1;
  };
  EXPECT_EQ(window(), -1);  // 20
  folder.config.erase("sliding_window");
  EXPECT_EQ(window(), 4096);
  folder.config["sliding_window"] = nullptr;
  EXPECT_EQ(window(), 0);
}

// Without their scales 8-bit numbers would be taken for weights.
TEST(FormatFiles, QuantisedWeightsAreRefused) {
  Folder folder("llama");
  folder.config["quantization_config"] = {{"quant_method", "fp8"}};
  EXPECT_EQ(
      folder.error(),
      folder.path +
          "/config.json: weights quantised by 'fp8' are not read; a GGUF file of the model is"
  );
  folder.config.erase("quantization_config");
  at::Tensor& weight = folder.tensors.back().second;
  weight = weight.to(at::kFloat8_e4m3fn);
  EXPECT_EQ(
      folder.error(),
      fmt::format(
          "{}/model.safetensors: {} has numbers of type Float8_e4m3fn; weights are F32, F16, BF16 "
          "or F64",
          folder.path,
          folder.tensors.back().first
      )
  );
  weight = weight.to(at::kFloat).to(at::kChar);
  EXPECT_NE(folder.error().find("has numbers of type Char"), std::string::npos);
}

TEST(FormatFiles, DecodingSettingsAreRead) {
  Folder folder("llama");
  folder.config["eos_token_id"] = 2;
  folder.write();
  write_file(
      folder.path + "/generation_config.json",
      R"({"eos_token_id":[3,4],"temperature":0.7,"top_k":20,"top_p":0.9,"do_sample":true})"
  );
  write_file(folder.path + "/tokenizer_config.json", R"({"chat_template":"{{ x }}"})");
  const LoadedModel loaded = open_model(folder.path);
  EXPECT_EQ(loaded.begin, 1);
  EXPECT_EQ(loaded.ends, (std::vector<int32_t>{3, 4}));
  EXPECT_EQ(loaded.chat_template, "{{ x }}");
  EXPECT_EQ(loaded.context, 512);
  EXPECT_EQ(loaded.defaults.temperature, 0.7);
  EXPECT_EQ(loaded.defaults.top_k, 20);
  EXPECT_EQ(loaded.defaults.sample, true);
  EXPECT_FALSE(loaded.defaults.min_p.has_value());
  EXPECT_EQ(
      thrown<DataError>([&] { loaded.need_tokenizer(); }), folder.path + ": has no tokenizer"
  );
}

TEST(FormatFiles, MistakesAreNamed) {
  Folder folder("llama");
  const std::string config = folder.path + "/config.json",
                    file = folder.path + "/model.safetensors";
  const Json good = folder.config;
  const auto with = [&](const char* key, const Json& value) {
    folder.config = good;
    folder.config[key] = value;
    return folder.error();
  };
  EXPECT_EQ(
      with("model_type", "gemma"),
      config +
          ": architecture 'gemma' is not known; these are: llama, mistral, qwen2, qwen3, gpt2, "
          "bert, horner"
  );
  EXPECT_EQ(with("hidden_size", "16"), config + ": hidden_size must be an integer, got \"16\"");
  EXPECT_EQ(with("hidden_size", nullptr), config + ": has no hidden_size");
  EXPECT_EQ(with("hidden_act", "relu"), config + ": hidden_act = \"relu\" is not supported");
  EXPECT_EQ(
      with("num_key_value_heads", 3), config + ": 4 heads are no multiple of 3 key/value heads"
  );
  EXPECT_EQ(
      with("num_hidden_layers", 3), file + ": has no tensor model.layers.2.input_layernorm.weight"
  );
  EXPECT_EQ(with("num_hidden_layers", 60000), file + ": 35 tensors are too few for 60000 layers");
  EXPECT_EQ(
      with("vocab_size", 1000000000),
      file + ": model.embed_tokens.weight must be [1000000000, 16], got [41, 16]"
  );
  EXPECT_EQ(
      with("rope_parameters", {{"rope_type", "yarn"}}),
      config + ": rope scaling 'yarn' is not supported; default, linear and llama3 are"
  );
  folder.config = good;
  folder.tensors.pop_back();
  EXPECT_NE(folder.error().find(": has no tensor "), std::string::npos);
  fs::remove(file);
  EXPECT_EQ(
      thrown<DataError>([&] { open_model(folder.path); }),
      folder.path + ": has no model.safetensors and no index of shards"
  );
  const std::string inside = folder.path + "/runs/b";
  fs::create_directories(inside + "/checkpoints");
  fs::rename(folder.path + "/config.json", inside + "/config.json");
  EXPECT_EQ(  // a folder of `horner demo` has its models inside
      thrown<DataError>([&] { open_model(folder.path); }),
      folder.path + ": has no config.json, and not one GGUF file; name a model inside it: " + inside
  );
  EXPECT_EQ(
      thrown<DataError>([] { open_model("no/such"); }),
      "no/such: is no folder, no file and no model of `horner get` (smollm2-135m, minilm)"
  );
  EXPECT_EQ(
      thrown<DataError>([] { open_model("README.md"); }),
      "README.md: not a GGUF file: it does not begin with GGUF"
  );
}

// A folder of transformers from a file of llama2.c: 7 numbers, then the weights of all layers by kind.
void convert_llama2c(const std::string& bin, const std::string& folder) {
  const std::string bytes = read_file(bin);
  int32_t n[7];  // D, mlp, layers, heads, groups, vocabulary, context
  std::memcpy(n, bytes.data(), sizeof n);
  const int64_t D = n[0], E = n[1], L = n[2], H = n[3], G = n[4], V = n[5], hd = D / H;
  const at::Tensor all = at::from_blob(
                             const_cast<char*>(bytes.data()) + sizeof n,
                             {int64_t(bytes.size() - sizeof n) / 4},
                             at::kFloat
  )
                             .clone();
  int64_t at = 0;
  const auto take = [&](std::vector<int64_t> shape) {
    const int64_t count = c10::multiply_integers(shape);
    at += count;
    return all.narrow(0, at - count, count).view(shape);
  };
  const auto halves = [&](const at::Tensor& w, int64_t heads) {  // its rope rotates neighbours
    return w.view({L, heads, hd / 2, 2, D}).transpose(2, 3).reshape({L, heads * hd, D});
  };
  std::vector<std::pair<std::string, at::Tensor>> tensors = {
      {"model.embed_tokens.weight", take({V, D})}};
  const auto each = [&](const char* name, const at::Tensor& w) {
    for (int64_t l = 0; l < L; ++l)
      tensors.emplace_back(fmt::format("model.layers.{}.{}.weight", l, name), w[l]);
  };
  each("input_layernorm", take({L, D}));
  each("self_attn.q_proj", halves(take({L, D, D}), H));
  each("self_attn.k_proj", halves(take({L, G * hd, D}), G));
  each("self_attn.v_proj", take({L, G * hd, D}));
  each("self_attn.o_proj", take({L, D, D}));
  each("post_attention_layernorm", take({L, D}));
  each("mlp.gate_proj", take({L, E, D}));
  each("mlp.down_proj", take({L, D, E}));
  each("mlp.up_proj", take({L, E, D}));
  tensors.emplace_back("model.norm.weight", take({D}));
  fs::create_directories(folder);
  write_safetensors(folder + "/model.safetensors", tensors);
  const Json config = {
      {"model_type", "llama"},
      {"hidden_size", D},
      {"intermediate_size", E},
      {"num_hidden_layers", L},
      {"num_attention_heads", H},
      {"num_key_value_heads", G},
      {"vocab_size", V},
      {"max_position_embeddings", n[6]},
      {"rms_norm_eps", 1e-5},
      {"tie_word_embeddings", true}};
  write_file(folder + "/config.json", config.dump());
}

std::vector<int32_t> greedy(Model& model, std::vector<int32_t> ids, size_t length) {
  const c10::NoGradGuard no_graph;
  ModelState state;
  at::Tensor next = at::tensor(ids).to(at::kLong).unsqueeze(0);
  while (ids.size() < length) {
    const at::Tensor logits = model.forward(next, state);
    next = logits.select(1, logits.size(1) - 1).argmax(-1, true);
    ids.push_back(next.item<int32_t>());
  }
  return ids;
}

// The pieces of tok512.bin: the longest, then score, length and bytes of each.
std::vector<std::string> llama2c_pieces(const std::string& path) {
  const std::string bytes = read_file(path);
  std::vector<std::string> pieces;
  for (size_t at = 4; at + 8 <= bytes.size();) {
    int32_t length;
    std::memcpy(&length, bytes.data() + at + 4, 4);
    pieces.push_back(bytes.substr(at + 8, size_t(length)));
    at += 8 + size_t(length);
  }
  return pieces;
}

TEST(FormatFiles, Stories260KWritesItsGoldenText) {
  const std::string data = test_data("stories260K");
  HORNER_NEED(data);
  const std::string folder = testing::TempDir() + "stories260K";
  convert_llama2c(data + "/stories260K.bin", folder);
  const std::vector<std::string> pieces = llama2c_pieces(data + "/tok512.bin");
  const std::vector<int32_t> ids = greedy(*open_model(folder).model, {1}, 200);
  std::string text;
  for (size_t i = 1; i < ids.size() && ids[i] != 1; ++i) {
    const std::string& piece = pieces.at(size_t(ids[i]));
    text += piece == "<0x0A>" ? "\n" : i == 1 && piece.starts_with(' ') ? piece.substr(1) : piece;
  }
  std::string wanted = read_file(data + "/expected_greedy_n200.txt");
  const size_t common = std::min(text.size(), wanted.size() - (wanted.ends_with('\n') ? 1 : 0));
  EXPECT_GT(common, 400u);
  EXPECT_EQ(text.substr(0, common), wanted.substr(0, common));
  fs::remove_all(folder);
}

TEST(FormatFiles, TinyStories656kWritesItsGoldenText) {
  const std::string data = test_data("tinystories656k");
  HORNER_NEED(data);
  const Json golden =
      parse_json(read_file(data + "/golden_numpy_greedy.json"), "golden_numpy_greedy.json");
  const LoadedModel loaded = open_model(data);
  EXPECT_EQ(loaded.begin, 1);
  EXPECT_EQ(loaded.ends, (std::vector<int32_t>{2}));
  const auto prompt = golden["prompt_ids"].get<std::vector<int32_t>>();
  const auto wanted = golden["greedy_ids"].get<std::vector<int32_t>>();
  EXPECT_EQ(greedy(*loaded.model, prompt, wanted.size()), wanted);
  EXPECT_EQ(loaded.need_tokenizer().vocabulary(), 2048);
}

}  // namespace
}  // namespace horner
