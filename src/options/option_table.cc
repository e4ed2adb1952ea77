#include "options/option_table.h"

#include <array>

#include "base/error.h"

namespace mlxcel {
namespace {

constexpr CommandSet set_of(std::initializer_list<Command> commands) {
  CommandSet set = 0;
  for (const Command command : commands) set |= command_bit(command);
  return set;
}
constexpr CommandSet kOnAll = ~CommandSet{0};
constexpr CommandSet kOnAsks = set_of({Command::kRun, Command::kGenerate});
constexpr CommandSet kOnServe = command_bit(Command::kServe);
constexpr CommandSet kOnSampling = kOnAsks | kOnServe;
constexpr CommandSet kOnEngine =
    set_of({Command::kRun, Command::kGenerate, Command::kServe, Command::kScore, Command::kBenchDecode});
constexpr CommandSet kOnTemplates =
    set_of({Command::kRun, Command::kGenerate, Command::kServe, Command::kTemplate});
constexpr CommandSet kOnModel =
    kOnEngine | set_of({Command::kInspect, Command::kTokenize, Command::kTemplate});
constexpr CommandSet kOnStore = kOnModel | set_of({Command::kList, Command::kPull});
constexpr CommandSet kOnGenerate = command_bit(Command::kGenerate);
constexpr CommandSet kOnTokenize = command_bit(Command::kTokenize);
constexpr CommandSet kOnTemplate = command_bit(Command::kTemplate);
constexpr CommandSet kOnScore = command_bit(Command::kScore);
constexpr CommandSet kOnBench = command_bit(Command::kBenchDecode);
constexpr CommandSet kOnLoad = command_bit(Command::kBenchServe);
constexpr CommandSet kOnPull = command_bit(Command::kPull);
constexpr CommandSet kOnJson =
    ~set_of({Command::kRun, Command::kServe, Command::kPull, Command::kCompletion, Command::kMan});

constexpr CommandRow kCommands[] = {
    {Command::kRun,
     "run",
     "chat",
     "[MODEL] [PROMPT]",
     "Chat with a model, or answer one prompt",
     {"mlxcel run mlx-community/SmolLM2-135M-Instruct-4bit",
      "git diff | mlxcel run -m MODEL -p 'Summarise this change:' -f -"},
     2},
    {Command::kGenerate,
     "generate",
     "",
     "[PROMPT]",
     "Print one answer and leave",
     {"mlxcel generate -m MODEL -p 'What is the capital of France?'",
      "mlxcel generate -m MODEL --raw -p 'Once upon a time' -n 64 --json"},
     1},
    {Command::kServe,
     "serve",
     "server",
     "[MODEL]",
     "Serve a model over HTTP, OpenAI-compatible",
     {"mlxcel serve -m MODEL --port 8080", "mlxcel-server -m model.gguf -c 8192 -np 4"},
     1},
    {Command::kInspect,
     "inspect",
     "show",
     "[MODEL]",
     "Show tensors, quantisation and memory needs without loading",
     {"mlxcel inspect MODEL", "mlxcel inspect MODEL -c 32K --sequences 8 --json"},
     1},
    {Command::kTokenize,
     "tokenize",
     "",
     "[TEXT...]",
     "Turn text into token ids, or ids into text",
     {"mlxcel tokenize -m MODEL 'Hello world'", "mlxcel tokenize -m MODEL --decode 9707 1879"},
     1000000},
    {Command::kTemplate,
     "template",
     "",
     "",
     "Render a conversation with the model's chat template",
     {"mlxcel template -m MODEL --messages chat.json",
      "mlxcel template -m MODEL --messages chat.json --tools tools.json --json"},
     0},
    {Command::kScore,
     "score",
     "",
     "[TEXT]",
     "Log-probabilities and perplexity of a text",
     {"mlxcel score -m MODEL 'The capital of France is Paris.'",
      "mlxcel score -m MODEL --file book.txt --window 2048 --stride 1024"},
     1},
    {Command::kBenchDecode,
     "bench decode",
     "",
     "",
     "Measure prefill and decode speed of the engine alone",
     {"mlxcel bench decode -m MODEL",
      "mlxcel bench decode -m MODEL --prompt-tokens 512 --gen-tokens 128 --batch 8 --json"},
     0},
    {Command::kBenchServe,
     "bench serve",
     "",
     "",
     "Measure a running OpenAI-compatible server under load",
     {"mlxcel bench serve --server http://127.0.0.1:8080 --max-concurrency 8",
      "mlxcel bench serve --num-prompts 200 --request-rate 4 --prompt-tokens 512 --gen-tokens 128"},
     0},
    {Command::kList,
     "list",
     "ls",
     "",
     "List the models on this machine",
     {"mlxcel list", "mlxcel list --json"},
     0},
    {Command::kPull,
     "pull",
     "",
     "OWNER/NAME",
     "Download a model",
     {"mlxcel pull mlx-community/SmolLM2-135M-Instruct-4bit", "mlxcel pull OWNER/NAME-GGUF:Q4_K_M"},
     1},
    {Command::kVersion,
     "version",
     "",
     "",
     "Print the version, compiler and instruction sets",
     {"mlxcel version", "mlxcel version --json"},
     0},
    {Command::kCompletion,
     "completion",
     "",
     "SHELL",
     "Print the completion script of a shell",
     {"source <(mlxcel completion bash)", "mlxcel completion fish > ~/.config/fish/completions/mlxcel.fish"},
     1,
     "bash zsh fish"},
    {Command::kMan,
     "man",
     "",
     "PAGE",
     "Print a manual page, or the reference of all flags",
     {"mlxcel man mlxcel | man -l -", "mlxcel man reference > docs/cli-reference.md"},
     1,
     "mlxcel mlxcel-server reference"},
};

using enum OptionGroup;
using enum OptionType;

// clang-format off
constexpr OptionRow kOptions[] = {
    // ---- general
    {.name = "help", .aliases = "-h", .type = kBoolean, .default_text = "false", .group = kGeneral,
     .commands = kOnAll,
     .help = "show this help; --help=all for everything, --help=GROUP for one group, --help=WORD to search"},
    {.name = "verbose", .aliases = "-v", .environment = "MLXCEL_VERBOSE", .type = kBoolean,
     .default_text = "false", .group = kGeneral, .commands = kOnAll,
     .help = "say on stderr what was loaded, which settings hold and how fast it went"},
    {.name = "log-level", .environment = "MLXCEL_LOG_LEVEL", .type = kChoice, .value_name = "LEVEL",
     .default_text = "warning", .choices = "error warning info debug trace", .group = kGeneral,
     .commands = kOnAll, .help = "least important log lines to show"},
    {.name = "log-format", .environment = "MLXCEL_LOG_FORMAT", .type = kChoice, .value_name = "NAME",
     .default_text = "plain", .choices = "plain text json", .group = kGeneral, .commands = kOnServe,
     .help = "log lines: level and message; text: with the time before them; json: an object a line"},
    {.name = "log-file", .environment = "MLXCEL_LOG_FILE LLAMA_LOG_FILE", .type = kText, .value_name = "FILE",
     .group = kGeneral, .commands = kOnServe, .help = "append log lines to this file instead of stderr"},
    {.name = "color", .aliases = "--colour", .environment = "MLXCEL_COLOR", .type = kChoice,
     .value_name = "WHEN", .default_text = "auto", .choices = "auto always never", .group = kGeneral,
     .commands = kOnAll, .help = "colours in the terminal; auto follows NO_COLOR and TERM"},
    {.name = "config", .environment = "MLXCEL_CONFIG", .type = kText, .value_name = "FILE", .group = kGeneral,
     .commands = kOnAll, .help = "TOML file with settings: keys are flag names, tables are commands"},
    {.name = "print-config", .type = kBoolean, .default_text = "false", .group = kGeneral, .commands = kOnAll,
     .advanced = true, .help = "print every setting with its value and where it came from, and leave"},
    // ---- model
    {.name = "model", .aliases = "-m -hf --hf-repo", .environment = "MLXCEL_MODEL LLAMA_ARG_MODEL",
     .type = kText, .value_name = "MODEL", .group = kModel, .commands = kOnModel,
     .help = "a folder, a .gguf file, owner/name[:QUANT], or a bare name"},
    {.name = "chat-template", .environment = "MLXCEL_CHAT_TEMPLATE LLAMA_ARG_CHAT_TEMPLATE", .type = kText,
     .value_name = "TEXT", .group = kModel, .commands = kOnTemplates, .advanced = true,
     .conflicts = "chat-template-file", .help = "Jinja source used instead of the model's own template"},
    {.name = "chat-template-file", .environment = "MLXCEL_CHAT_TEMPLATE_FILE LLAMA_ARG_CHAT_TEMPLATE_FILE",
     .type = kText, .value_name = "FILE", .group = kModel, .commands = kOnTemplates,
     .help = "the same from a file"},
    {.name = "chat-template-kwargs",
     .environment = "MLXCEL_CHAT_TEMPLATE_KWARGS LLAMA_ARG_CHAT_TEMPLATE_KWARGS", .type = kText,
     .value_name = "JSON", .group = kModel, .commands = kOnTemplates, .advanced = true,
     .help = "an object of further template variables, as {\"enable_thinking\": false}"},
    {.name = "default-org", .environment = "MLXCEL_DEFAULT_ORG", .type = kText, .value_name = "OWNER",
     .default_text = "mlx-community", .group = kModel, .commands = kOnStore, .advanced = true,
     .help = "owner put before a bare model name"},
    // ---- input
    {.name = "prompt", .aliases = "-p", .type = kText, .value_name = "TEXT", .group = kInput,
     .commands = kOnAsks, .help = "the question"},
    {.name = "prompt-file", .aliases = "-f", .type = kText, .value_name = "FILE", .group = kInput,
     .commands = kOnAsks, .help = "read the question from a file (- is stdin); after -p it follows that text"},
    {.name = "system", .aliases = "-sys --system-prompt", .environment = "MLXCEL_SYSTEM", .type = kText,
     .value_name = "TEXT", .group = kInput, .commands = kOnAsks, .conflicts = "raw", .help = "system message"},
    {.name = "raw", .type = kBoolean, .default_text = "false", .group = kInput, .commands = kOnGenerate,
     .help = "continue the text as it is, without the chat template"},
    {.name = "add-special", .type = kBoolean, .default_text = "false", .group = kInput, .commands = kOnTokenize,
     .help = "add the tokens the model expects around a text (BOS, EOS)"},
    {.name = "parse-special", .type = kBoolean, .default_text = "true", .group = kInput,
     .commands = kOnTokenize, .help = "read marker text such as <|im_start|> as the marker's token"},
    {.name = "decode", .type = kBoolean, .default_text = "false", .group = kInput, .commands = kOnTokenize,
     .help = "ids to text"},
    {.name = "messages", .type = kText, .value_name = "FILE", .group = kInput, .commands = kOnTemplate,
     .help = "JSON array of messages; - reads stdin"},
    {.name = "tools", .type = kText, .value_name = "FILE", .group = kInput, .commands = kOnTemplate,
     .help = "JSON array of tools"},
    {.name = "documents", .type = kText, .value_name = "FILE", .group = kInput, .commands = kOnTemplate,
     .advanced = true, .help = "JSON array of documents"},
    {.name = "generation-prompt", .type = kBoolean, .default_text = "true", .group = kInput,
     .commands = kOnTemplate, .help = "end with the opening of the model's turn"},
    {.name = "now", .type = kText, .value_name = "TIME", .group = kInput, .commands = kOnTemplate,
     .advanced = true,
     .help = "\"YYYY-MM-DD HH:MM:SS\" for templates that print the date; default: the current time"},
    {.name = "file", .aliases = "-f", .type = kText, .value_name = "FILE", .group = kInput,
     .commands = kOnScore, .conflicts = "tokens", .help = "text file to score; - reads stdin"},
    {.name = "tokens", .type = kText, .value_name = "IDS", .group = kInput, .commands = kOnScore,
     .help = "token ids instead of text: 1,2,3"},
    {.name = "window", .type = kCount, .value_name = "N", .default_text = "auto", .minimum = 2, .maximum = 1e9,
     .choices = "auto", .group = kInput, .commands = kOnScore,
     .help = "tokens per context window; auto: the whole context"},
    {.name = "stride", .type = kCount, .value_name = "N", .default_text = "auto", .minimum = 1, .maximum = 1e9,
     .choices = "auto", .group = kInput, .commands = kOnScore,
     .help = "tokens between two windows, each scored once; auto: half a window"},
    {.name = "prompt-tokens", .aliases = "-p --random-input-len", .type = kCount, .value_name = "N", .default_text = "512",
     .minimum = 1, .maximum = 1e8, .group = kInput, .commands = kOnBench | kOnLoad,
     .help = "prompt length of each sequence"},
    {.name = "gen-tokens", .aliases = "-n --random-output-len", .type = kCount, .value_name = "N", .default_text = "128",
     .minimum = 1, .maximum = 1e8, .group = kInput, .commands = kOnBench | kOnLoad, .help = "tokens generated after it"},
    {.name = "batch", .aliases = "-b", .type = kInteger, .value_name = "N", .default_text = "1", .minimum = 1,
     .maximum = 4096, .group = kInput, .commands = kOnBench, .help = "sequences at once"},
    {.name = "repeats", .aliases = "-r", .type = kInteger, .value_name = "N", .default_text = "1", .minimum = 1,
     .maximum = 1000, .group = kInput, .commands = kOnBench, .help = "measured runs; the median is reported"},
    {.name = "warm-up", .type = kBoolean, .default_text = "true", .group = kInput,
     .commands = kOnBench | kOnLoad,
     .help = "one short run before measuring"},
    // ---- load on a server
    {.name = "server", .aliases = "--base-url", .environment = "MLXCEL_SERVER", .type = kText, .value_name = "URL",
     .default_text = "http://127.0.0.1:8080", .group = kInput, .commands = kOnLoad,
     .help = "address of the server"},
    {.name = "served-model", .aliases = "-m --model", .type = kText, .value_name = "NAME", .group = kInput,
     .commands = kOnLoad, .help = "name to ask for; default: the first that the server lists"},
    {.name = "load-endpoint", .aliases = "--endpoint-type", .type = kChoice, .value_name = "NAME",
     .default_text = "completions", .choices = "completions chat", .group = kInput, .commands = kOnLoad,
     .help = "which route gets the requests"},
    {.name = "num-prompts", .type = kCount, .value_name = "N", .default_text = "64", .minimum = 1, .maximum = 1e7,
     .group = kInput, .commands = kOnLoad, .help = "requests in all; of a dataset: at most"},
    {.name = "max-concurrency", .aliases = "-c --clients", .type = kInteger, .value_name = "N", .default_text = "8",
     .minimum = 1, .maximum = 65536, .choices = "none", .group = kInput, .commands = kOnLoad,
     .help = "requests under way at once"},
    {.name = "request-rate", .type = kNumber, .value_name = "N", .default_text = "inf", .minimum = 1e-6,
     .maximum = 1e6, .choices = "inf", .group = kInput, .commands = kOnLoad,
     .help = "arrivals a second, at random (Poisson); inf: as soon as --max-concurrency allows"},
    {.name = "shared-prefix", .aliases = "--random-prefix-len", .type = kCount, .value_name = "N",
     .default_text = "0", .minimum = 0, .maximum = 1e8, .group = kInput, .commands = kOnLoad,
     .help = "tokens that all prompts begin with; without it servers are asked not to reuse rows"},
    {.name = "length-spread", .aliases = "--random-range-ratio", .type = kNumber, .value_name = "X",
     .default_text = "0", .minimum = 0, .maximum = 1, .group = kInput, .commands = kOnLoad,
     .help = "lengths vary evenly by this share of themselves"},
    {.name = "dataset", .aliases = "--dataset-path", .type = kText, .value_name = "FILE", .group = kInput,
     .commands = kOnLoad,
     .help = "requests instead of random words: a JSON object a line with prompt and, if wanted, max_tokens"},
    {.name = "save-result", .type = kText, .value_name = "FILE", .group = kOutput, .commands = kOnLoad,
     .help = "write the figures as JSON"},
    {.name = "sequences", .aliases = "-np --parallel --max-num-seqs", .type = kInteger, .value_name = "N",
     .default_text = "1", .minimum = 1, .maximum = 65536, .group = kInput,
     .commands = command_bit(Command::kInspect), .help = "sequences to plan memory for"},
    {.name = "tensors", .type = kBoolean, .default_text = "false", .group = kOutput,
     .commands = command_bit(Command::kInspect), .help = "list every tensor"},
    // ---- output
    {.name = "quiet", .aliases = "-q", .type = kBoolean, .default_text = "false", .group = kOutput,
     .commands = command_bit(Command::kList), .conflicts = "json", .help = "print only the names"},
    {.name = "json", .type = kBoolean, .default_text = "false", .group = kOutput, .commands = kOnJson,
     .help = "print JSON"},
    {.name = "max-tokens", .aliases = "-n --n-predict --predict",
     .environment = "MLXCEL_MAX_TOKENS LLAMA_ARG_N_PREDICT", .type = kCount, .value_name = "N",
     .default_text = "-1", .minimum = -1, .maximum = 1e9, .group = kOutput, .commands = kOnSampling,
     .help = "longest answer in tokens; -1: until the context is full"},
    {.name = "min-tokens", .type = kCount, .value_name = "N", .default_text = "0", .minimum = 0, .maximum = 1e9,
     .group = kOutput, .commands = kOnAsks, .advanced = true,
     .help = "the answer cannot end before this many tokens"},
    {.name = "stop", .aliases = "--reverse-prompt", .type = kText, .value_name = "TEXT", .group = kOutput,
     .commands = kOnAsks, .repeatable = true,
     .help = "end the answer before this text; may be given several times"},
    {.name = "ignore-eos", .type = kBoolean, .default_text = "false", .group = kOutput, .commands = kOnAsks,
     .advanced = true, .help = "do not end at the model's end token"},
    {.name = "show-special", .aliases = "--special", .type = kBoolean, .default_text = "false",
     .group = kOutput, .commands = kOnAsks, .advanced = true, .help = "print special tokens of the answer"},
    {.name = "logits-out", .type = kText, .value_name = "FILE", .group = kOutput, .commands = kOnScore,
     .help = "write the f32 logits of every position as safetensors"},
    // ---- sampling
    {.name = "temp", .aliases = "--temperature", .environment = "MLXCEL_TEMP LLAMA_ARG_TEMP", .type = kNumber,
     .value_name = "T", .default_text = "0", .serve_default = "0.8", .minimum = 0, .maximum = 100, .group = kSampling,
     .commands = kOnSampling, .help = "randomness; 0 always takes the best token"},
    {.name = "top-k", .environment = "MLXCEL_TOP_K LLAMA_ARG_TOP_K", .type = kInteger, .value_name = "N",
     .default_text = "40", .minimum = -1, .maximum = 1e9, .group = kSampling, .commands = kOnSampling,
     .help = "choose among the N best; 0: all"},
    {.name = "top-p", .environment = "MLXCEL_TOP_P LLAMA_ARG_TOP_P", .type = kNumber, .value_name = "P",
     .default_text = "0.95", .minimum = 0, .maximum = 1, .group = kSampling, .commands = kOnSampling,
     .help = "choose among the best that hold this much probability; 1: all"},
    {.name = "min-p", .environment = "MLXCEL_MIN_P LLAMA_ARG_MIN_P", .type = kNumber, .value_name = "P",
     .default_text = "0.05", .minimum = 0, .maximum = 1, .group = kSampling, .commands = kOnSampling,
     .help = "drop tokens below P times the best one's probability"},
    {.name = "seed", .aliases = "-s", .environment = "MLXCEL_SEED LLAMA_ARG_SEED", .type = kInteger,
     .value_name = "N", .default_text = "0", .minimum = 0, .maximum = 9007199254740992.0, .group = kSampling,
     .commands = kOnAsks | kOnBench | kOnLoad, .help = "the same seed gives the same answer"},
    {.name = "repeat-penalty", .aliases = "--repetition-penalty", .type = kNumber, .value_name = "X",
     .default_text = "1", .minimum = 0.01, .maximum = 100, .group = kSampling, .commands = kOnSampling,
     .help = "above 1: tokens seen recently become less likely"},
    {.name = "repeat-last-n", .type = kInteger, .value_name = "N", .default_text = "64", .minimum = -1,
     .maximum = 1e9, .group = kSampling, .commands = kOnSampling, .advanced = true,
     .help = "tokens the repeat penalty looks back at; -1: all"},
    {.name = "frequency-penalty", .type = kNumber, .value_name = "X", .default_text = "0", .minimum = -2,
     .maximum = 2, .group = kSampling, .commands = kOnSampling, .advanced = true,
     .help = "less likely with every earlier use in the answer"},
    {.name = "presence-penalty", .type = kNumber, .value_name = "X", .default_text = "0", .minimum = -2,
     .maximum = 2, .group = kSampling, .commands = kOnSampling, .advanced = true,
     .help = "less likely once used in the answer"},
    {.name = "typical-p", .aliases = "--typical", .type = kNumber, .value_name = "P", .default_text = "1",
     .minimum = 0, .maximum = 1, .group = kSampling, .commands = kOnSampling, .advanced = true,
     .help = "locally typical sampling; 1: off"},
    {.name = "top-n-sigma", .aliases = "--top-nsigma", .type = kNumber, .value_name = "X", .default_text = "0",
     .minimum = -1, .maximum = 1000, .group = kSampling, .commands = kOnSampling, .advanced = true,
     .help = "keep logits within X standard deviations of the best; 0: off"},
    {.name = "xtc-probability", .type = kNumber, .value_name = "P", .default_text = "0", .minimum = 0,
     .maximum = 1, .group = kSampling, .commands = kOnSampling, .advanced = true,
     .help = "chance of leaving out the likeliest tokens; 0: off"},
    {.name = "xtc-threshold", .type = kNumber, .value_name = "P", .default_text = "0.1", .minimum = 0,
     .maximum = 1, .group = kSampling, .commands = kOnSampling, .advanced = true,
     .help = "probability above which they are left out"},
    {.name = "dry-multiplier", .type = kNumber, .value_name = "X", .default_text = "0", .minimum = 0,
     .maximum = 1000, .group = kSampling, .commands = kOnSampling, .advanced = true,
     .help = "penalty for repeating whole phrases; 0: off"},
    {.name = "dry-base", .type = kNumber, .value_name = "X", .default_text = "1.75", .minimum = 1,
     .maximum = 100, .group = kSampling, .commands = kOnSampling, .advanced = true,
     .help = "growth of that penalty per token"},
    {.name = "dry-allowed-length", .type = kInteger, .value_name = "N", .default_text = "2", .minimum = 0,
     .maximum = 1e6, .group = kSampling, .commands = kOnSampling, .advanced = true,
     .help = "phrases up to this length may repeat"},
    {.name = "dry-penalty-last-n", .type = kInteger, .value_name = "N", .default_text = "-1", .minimum = -1,
     .maximum = 1e9, .group = kSampling, .commands = kOnSampling, .advanced = true,
     .help = "tokens looked back at; -1: all"},
    {.name = "logit-bias", .type = kText, .value_name = "ID=BIAS", .group = kSampling, .commands = kOnAsks,
     .repeatable = true, .advanced = true,
     .help = "add BIAS to the logit of a token id; may be given several times"},
    // ---- compute
    {.name = "threads", .aliases = "-t", .environment = "MLXCEL_THREADS LLAMA_ARG_THREADS", .type = kInteger,
     .value_name = "N", .default_text = "auto", .minimum = 1, .maximum = 1024, .choices = "auto",
     .group = kCompute, .commands = kOnEngine, .help = "threads; auto: every core this process may use"},
    {.name = "isa", .environment = "MLXCEL_ISA", .type = kChoice, .value_name = "NAME", .default_text = "auto",
     .choices = "auto scalar avx2 avx512 avx512vnni", .group = kCompute, .commands = kOnEngine,
     .advanced = true, .help = "instruction set of the kernels; the results are the same bits"},
    {.name = "backend", .environment = "MLXCEL_BACKEND", .type = kChoice, .value_name = "NAME",
     .default_text = "cpu", .choices = "cpu reference", .group = kCompute, .commands = kOnEngine,
     .advanced = true, .help = "reference is the slow, obviously right one"},
    {.name = "gpu-layers", .aliases = "-ngl --n-gpu-layers", .environment = "LLAMA_ARG_N_GPU_LAYERS",
     .type = kInteger, .value_name = "N", .default_text = "0", .minimum = -1, .maximum = 1e6,
     .group = kCompute, .commands = kOnEngine, .advanced = true,
     .help = "llama.cpp's spelling of the device: 0 is the CPU; others need a build with a GPU backend"},
    {.name = "device", .environment = "MLXCEL_DEVICE", .type = kChoice, .value_name = "NAME",
     .default_text = "cpu", .choices = "cpu", .group = kCompute, .commands = kOnEngine, .advanced = true,
     .help = "where the model runs"},
    {.name = "activation-precision", .environment = "MLXCEL_ACTIVATION_PRECISION", .type = kChoice,
     .value_name = "NAME", .default_text = "high", .choices = "high f32 int8", .group = kCompute,
     .commands = kOnEngine, .help = "activations that meet quantised weights: 15 bits, f32, or 8 bits"},
    {.name = "prefill-chunk", .aliases = "-ub --ubatch-size --prefill-step-size",
     .environment = "MLXCEL_PREFILL_CHUNK LLAMA_ARG_UBATCH", .type = kCount, .value_name = "N",
     .default_text = "512", .serve_default = "auto", .minimum = 1, .maximum = 1e6, .choices = "auto",
     .group = kCompute, .commands = kOnEngine,
     .help = "prompt tokens per step; auto (serve): as many as leave running answers their pace"},
    {.name = "force-padded-prefill", .environment = "MLXCEL_FORCE_PADDED_PREFILL", .type = kBoolean,
     .default_text = "false", .group = kEnvironment, .commands = kOnEngine, .advanced = true,
     .environment_only = true, .conflicts = "no-padded-prefill",
     .help = "pad prompt chunks to whole tiles and trim the padding"},
    {.name = "no-padded-prefill", .environment = "MLXCEL_NO_PADDED_PREFILL", .type = kBoolean,
     .default_text = "false", .group = kEnvironment, .commands = kOnEngine, .advanced = true,
     .environment_only = true, .help = "never pad prompt chunks"},
    {.name = "force-sync", .environment = "MLXCEL_FORCE_SYNC", .type = kBoolean, .default_text = "false",
     .group = kEnvironment, .commands = kOnServe, .advanced = true, .environment_only = true,
     .conflicts = "force-lookahead", .help = "never compute a token's row before it was looked at"},
    {.name = "force-lookahead", .environment = "MLXCEL_FORCE_LOOKAHEAD", .type = kBoolean,
     .default_text = "false", .group = kEnvironment, .commands = kOnServe, .advanced = true,
     .environment_only = true, .help = "compute the row of each new token at once (off on a CPU by default)"},
    // ---- server
    {.name = "host", .environment = "MLXCEL_HOST LLAMA_ARG_HOST", .type = kText, .value_name = "ADDRESS",
     .default_text = "127.0.0.1", .group = kServer, .commands = kOnServe,
     .help = "address to listen on; a path that ends in .sock is a unix socket"},
    {.name = "port", .environment = "MLXCEL_PORT LLAMA_ARG_PORT", .type = kInteger, .value_name = "N",
     .default_text = "8080", .minimum = 0, .maximum = 65535, .group = kServer, .commands = kOnServe,
     .help = "port to listen on; 0 picks a free one and prints it"},
    {.name = "api-key", .environment = "MLXCEL_API_KEY LLAMA_API_KEY", .type = kText, .value_name = "KEY",
     .group = kServer, .commands = kOnServe | kOnLoad, .repeatable = true, .secret = true,
     .help = "key that clients must send; others on this machine can see a flag: prefer --api-key-file"},
    {.name = "api-key-file", .environment = "MLXCEL_API_KEY_FILE", .type = kText, .value_name = "FILE",
     .group = kServer, .commands = kOnServe | kOnLoad,
     .help = "file with one key a line; lines that begin with # are comments"},
    {.name = "allowed-origins", .aliases = "--cors-allow-origins", .environment = "MLXCEL_ALLOWED_ORIGINS",
     .type = kText, .value_name = "ORIGIN", .group = kServer, .commands = kOnServe, .repeatable = true,
     .help = "web pages that may call the server, as https://example.org; * allows all"},
    {.name = "alias", .aliases = "-a --served-model-name", .environment = "MLXCEL_ALIAS LLAMA_ARG_ALIAS",
     .type = kText, .value_name = "NAME", .group = kServer, .commands = kOnServe,
     .help = "the model's name in answers"},
    {.name = "strict-model", .type = kBoolean, .default_text = "false", .group = kServer, .commands = kOnServe,
     .advanced = true, .help = "refuse requests that name another model"},
    {.name = "strict-fields", .type = kBoolean, .default_text = "false", .group = kServer,
     .commands = kOnServe, .advanced = true, .help = "refuse request fields that nobody knows"},
    {.name = "metrics", .environment = "MLXCEL_METRICS LLAMA_ARG_ENDPOINT_METRICS", .type = kBoolean,
     .default_text = "true", .group = kServer, .commands = kOnServe, .help = "answer /metrics"},
    {.name = "metrics-alias", .environment = "MLXCEL_METRICS_ALIAS", .type = kText, .value_name = "NAMES",
     .group = kServer, .commands = kOnServe,
     .help = "llama, vllm or both with a comma: /metrics also under those servers' names, for their dashboards"},
    {.name = "slots", .environment = "MLXCEL_SLOTS LLAMA_ARG_ENDPOINT_SLOTS", .type = kBoolean,
     .default_text = "true", .group = kServer, .commands = kOnServe, .help = "answer /slots"},
    {.name = "props", .environment = "MLXCEL_PROPS LLAMA_ARG_ENDPOINT_PROPS", .type = kBoolean,
     .default_text = "true", .group = kServer, .commands = kOnServe, .help = "answer /props"},
    {.name = "timeout", .aliases = "-to", .environment = "MLXCEL_TIMEOUT LLAMA_ARG_TIMEOUT",
     .type = kDuration, .value_name = "TIME", .default_text = "0s", .minimum = 0, .maximum = 864000,
     .group = kServer, .commands = kOnServe, .help = "longest time for one request; 0s: no limit"},
    {.name = "drain-timeout", .environment = "MLXCEL_DRAIN_TIMEOUT", .type = kDuration, .value_name = "TIME",
     .default_text = "30s", .minimum = 0, .maximum = 86400, .group = kServer, .commands = kOnServe,
     .advanced = true, .help = "after SIGTERM, time for answers to finish"},
    {.name = "max-body", .environment = "MLXCEL_MAX_BODY", .type = kSize, .value_name = "SIZE",
     .default_text = "32MiB", .group = kServer, .commands = kOnServe, .advanced = true,
     .help = "largest request body"},
    {.name = "jinja", .type = kBoolean, .default_text = "true", .group = kServer,
     .commands = kOnServe, .advanced = true, .help = "templates are always Jinja; accepted as llama-server's flag"},
    // ---- batching
    {.name = "parallel", .aliases = "-np --max-num-seqs", .environment = "MLXCEL_PARALLEL LLAMA_ARG_N_PARALLEL",
     .type = kInteger, .value_name = "N", .default_text = "8", .minimum = 1, .maximum = 4096,
     .group = kBatching, .commands = kOnServe, .help = "answers at once"},
    {.name = "max-batch-tokens", .aliases = "-b --batch-size --max-num-batched-tokens",
     .environment = "MLXCEL_MAX_BATCH_TOKENS LLAMA_ARG_BATCH", .type = kCount, .value_name = "N",
     .default_text = "auto", .minimum = 1, .maximum = 1e6, .choices = "auto", .group = kBatching,
     .commands = kOnServe, .help = "tokens in one step"},
    {.name = "max-queue", .environment = "MLXCEL_MAX_QUEUE", .type = kInteger, .value_name = "N",
     .default_text = "2048", .minimum = 0, .maximum = 1e6, .group = kBatching, .commands = kOnServe,
     .help = "requests that may wait; more are answered 503"},
    {.name = "prefix-cache", .aliases = "--cache-prompt", .environment = "MLXCEL_PREFIX_CACHE",
     .type = kBoolean, .default_text = "true", .group = kBatching, .commands = kOnServe,
     .help = "reuse the rows of equal beginnings; the answers are the same"},
    // ---- speculation
    {.name = "draft-kind", .environment = "MLXCEL_DRAFT_KIND", .type = kChoice, .value_name = "KIND",
     .default_text = "none", .choices = "none ngram", .group = kSpeculation, .commands = kOnServe,
     .help = "ngram: guess tokens from the request's own text; the answers are the same"},
    {.name = "draft-max", .aliases = "--draft --draft-n", .environment = "MLXCEL_DRAFT_MAX LLAMA_ARG_DRAFT_MAX",
     .type = kInteger, .value_name = "N", .default_text = "8", .minimum = 1, .maximum = 64,
     .group = kSpeculation, .commands = kOnServe, .help = "longest guess"},
    // ---- kv cache
    {.name = "ctx-size", .aliases = "-c --max-model-len", .environment = "MLXCEL_CTX_SIZE LLAMA_ARG_CTX_SIZE",
     .type = kCount, .value_name = "N", .default_text = "auto", .minimum = 0, .maximum = 1e9, .choices = "auto",
     .group = kKvCache, .commands = kOnEngine | command_bit(Command::kInspect),
     .help = "tokens a conversation may reach; auto: the model's limit, at most 8192; 0: the model's limit"},
    {.name = "cache-type-k", .aliases = "-ctk", .environment = "MLXCEL_CACHE_TYPE_K LLAMA_ARG_CACHE_TYPE_K",
     .type = kChoice, .value_name = "TYPE", .default_text = "f16", .choices = "f32 f16 bf16 q8_0",
     .group = kKvCache, .commands = kOnEngine | command_bit(Command::kInspect), .help = "how keys are kept"},
    {.name = "cache-type-v", .aliases = "-ctv", .environment = "MLXCEL_CACHE_TYPE_V LLAMA_ARG_CACHE_TYPE_V",
     .type = kChoice, .value_name = "TYPE", .default_text = "f16", .choices = "f32 f16 bf16 q8_0",
     .group = kKvCache, .commands = kOnEngine | command_bit(Command::kInspect), .help = "how values are kept"},
    {.name = "decode-storage-backend", .environment = "MLXCEL_SERVER_DECODE_STORAGE", .type = kChoice,
     .value_name = "NAME", .default_text = "auto", .choices = "auto dense paged", .group = kKvCache,
     .commands = kOnEngine,
     .help = "where rows are kept; the answers are the same; auto: paged when several sequences run"},
    {.name = "kv-block-size", .environment = "MLXCEL_KV_BLOCK_SIZE", .type = kInteger, .value_name = "N",
     .default_text = "32", .minimum = 1, .maximum = 256, .group = kKvCache, .commands = kOnEngine,
     .advanced = true, .help = "rows per block of the paged storage"},
    {.name = "kv-memory", .environment = "MLXCEL_KV_MEMORY", .type = kSizeOrPercent,
     .value_name = "SIZE|PCT", .default_text = "auto", .choices = "auto", .group = kKvCache,
     .commands = kOnEngine,
     .help = "memory of the KV cache: a size, or a share of what is free beside the weights (50%); auto: what all "
             "contexts need, at most 90%"},
    {.name = "force", .environment = "MLXCEL_FORCE", .type = kBoolean, .default_text = "false",
     .group = kModel, .commands = kOnEngine, .advanced = true,
     .help = "load even though the memory does not suffice"},
    // ---- download
    {.name = "endpoint", .environment = "HF_ENDPOINT", .type = kText, .value_name = "URL",
     .default_text = "https://huggingface.co", .group = kDownload, .commands = kOnPull,
     .help = "hub to download from"},
    {.name = "revision", .type = kText, .value_name = "NAME", .default_text = "main", .group = kDownload,
     .commands = kOnPull, .help = "branch, tag or commit"},
    {.name = "token-file", .environment = "MLXCEL_HF_TOKEN_FILE", .type = kText, .value_name = "FILE",
     .group = kDownload, .commands = kOnPull, .help = "file with the access token; HF_TOKEN is read too"},
    {.name = "retries", .type = kInteger, .value_name = "N", .default_text = "4", .minimum = 0, .maximum = 100,
     .group = kDownload, .commands = kOnPull, .advanced = true,
     .help = "attempts after a passing failure of the network or the hub"},
    {.name = "stall-timeout", .type = kDuration, .value_name = "TIME", .default_text = "60s", .minimum = 1,
     .maximum = 86400, .group = kDownload, .commands = kOnPull, .advanced = true,
     .help = "give an attempt up after this long without data"},
    // ---- environment
    {.name = "home", .environment = "MLXCEL_HOME", .type = kText, .group = kEnvironment, .commands = kOnStore,
     .advanced = true, .environment_only = true,
     .help = "folder of models and history; default ~/.cache/mlxcel"},
    {.name = "hf-home", .environment = "HF_HOME", .type = kText, .group = kEnvironment, .commands = kOnStore,
     .advanced = true, .environment_only = true,
     .help = "the Hugging Face cache, only read; default ~/.cache/huggingface"},
    {.name = "hf-token", .environment = "HF_TOKEN", .type = kText, .group = kEnvironment, .commands = kOnPull,
     .advanced = true, .environment_only = true, .secret = true,
     .help = "access token, sent to the endpoint only"},
    {.name = "user-home", .environment = "HOME", .type = kText, .group = kEnvironment, .commands = kOnAll,
     .advanced = true, .environment_only = true, .help = "where ~ is"},
    {.name = "user-cache", .environment = "XDG_CACHE_HOME", .type = kText, .group = kEnvironment,
     .commands = kOnAll, .advanced = true, .environment_only = true, .help = "where ~/.cache is"},
    {.name = "notify-socket", .environment = "NOTIFY_SOCKET", .type = kText, .group = kEnvironment,
     .commands = kOnServe, .advanced = true, .environment_only = true,
     .help = "where systemd wants to hear that the server is ready"},
    {.name = "no-color", .environment = "NO_COLOR", .type = kText, .group = kEnvironment, .commands = kOnAll,
     .advanced = true, .environment_only = true, .help = "any text: no colours"},
    {.name = "terminal", .environment = "TERM", .type = kText, .group = kEnvironment, .commands = kOnAll,
     .advanced = true, .environment_only = true, .help = "dumb: no colours and no redrawn lines"},
};
// clang-format on

constexpr std::array kGroups = {kGeneral,  kModel,       kInput,   kOutput,  kSampling, kServer,
                                kBatching, kSpeculation, kCompute, kKvCache, kDownload, kEnvironment};

}  // namespace

std::string_view option_group_name(OptionGroup group) {
  switch (group) {
    case kGeneral:
      return "General";
    case kModel:
      return "Model";
    case kInput:
      return "Input";
    case kOutput:
      return "Output";
    case kSampling:
      return "Sampling";
    case kServer:
      return "Server";
    case kBatching:
      return "Batching";
    case kSpeculation:
      return "Speculation";
    case kCompute:
      return "Compute";
    case kKvCache:
      return "KV cache";
    case kDownload:
      return "Download";
    case kEnvironment:
      return "Environment";
  }
  return "";
}

std::span<const OptionGroup> option_groups() { return kGroups; }
std::span<const CommandRow> command_table() { return kCommands; }
std::span<const OptionRow> option_table() { return kOptions; }

const CommandRow& command_row(Command command) {
  for (const CommandRow& row : kCommands) {
    if (row.command == command) return row;
  }
  MLXCEL_CHECK_MSG(false, "a command without a row");
}

const OptionRow* find_option(std::string_view name) {
  for (const OptionRow& row : kOptions) {
    if (row.name == name) return &row;
  }
  return nullptr;
}

std::vector<std::string_view> split_words(std::string_view text) {
  std::vector<std::string_view> words;
  size_t begin = 0;
  while (begin < text.size()) {
    const size_t end = std::min(text.find(' ', begin), text.size());
    if (end > begin) words.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return words;
}

}  // namespace mlxcel
