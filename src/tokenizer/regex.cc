#include "tokenizer/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <array>

namespace mlxcel {
namespace {

// Backtracking steps of one match. Real patterns need a few per character of one word; a megabyte of spaces
// in one match needs about two per space.
constexpr uint32_t kMatchLimit = 20'000'000;
// Frames of the interpreter, in KiB: used only when the JIT's own stack does not suffice.
constexpr uint32_t kHeapLimitKib = 64 * 1024;
constexpr size_t kJitStackMin = 32 * 1024;
constexpr size_t kJitStackMax = 1024 * 1024;

std::string pcre2_message(int code) {
  std::array<PCRE2_UCHAR, 256> buffer{};
  pcre2_get_error_message(code, buffer.data(), buffer.size());
  return std::string(reinterpret_cast<const char*>(buffer.data()));
}

struct CodeFree {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
};
struct MatchDataFree {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};
struct MatchContextFree {
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
};
struct JitStackFree {
  void operator()(pcre2_jit_stack* stack) const { pcre2_jit_stack_free(stack); }
};
struct CompileContextFree {
  void operator()(pcre2_compile_context* context) const { pcre2_compile_context_free(context); }
};

}  // namespace

struct RegexScratch::State {
  std::unique_ptr<pcre2_match_data, MatchDataFree> data{pcre2_match_data_create(1, nullptr)};
  std::unique_ptr<pcre2_match_context, MatchContextFree> context{pcre2_match_context_create(nullptr)};
  std::unique_ptr<pcre2_jit_stack, JitStackFree> stack{
      pcre2_jit_stack_create(kJitStackMin, kJitStackMax, nullptr)};
};

RegexScratch::RegexScratch() = default;
RegexScratch::~RegexScratch() = default;

RegexScratch::State& RegexScratch::state() {
  if (state_) return *state_;
  state_ = std::make_unique<State>();
  MLXCEL_CHECK(state_->data && state_->context && state_->stack);
  pcre2_set_match_limit(state_->context.get(), kMatchLimit);
  pcre2_set_heap_limit(state_->context.get(), kHeapLimitKib);
  pcre2_jit_stack_assign(state_->context.get(), nullptr, state_->stack.get());
  return *state_;
}

struct Regex::Code {
  std::unique_ptr<pcre2_code, CodeFree> code;
  bool has_jit = false;
};

Regex::Regex(std::unique_ptr<Code> code) : code_(std::move(code)) {}
Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&&) noexcept = default;
Regex::~Regex() = default;

Result<Regex> Regex::compile(std::string_view pattern, const std::string& where) {
  auto translated = translate_oniguruma(pattern);
  if (!translated.ok()) {
    Error error = std::move(translated).error();
    error.where = where + (error.where.empty() ? "" : " (" + error.where + ")");
    return error;
  }
  return compile_translated(translated.value(), pattern, where);
}

Result<Regex> Regex::compile_literal(std::string_view text, const std::string& where) {
  return compile_translated(quote_for_regex(text), text, where);
}

Result<Regex> Regex::compile_translated(const std::string& translated, std::string_view pattern,
                                        const std::string& where) {
  const std::unique_ptr<pcre2_compile_context, CompileContextFree> context(
      pcre2_compile_context_create(nullptr));
  MLXCEL_CHECK(context != nullptr);
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  pcre2_set_bsr(context.get(), PCRE2_BSR_UNICODE);
  // Deep nesting is a hostile file: PCRE2's own limit of 250 stays in force.
  int code = 0;
  PCRE2_SIZE offset = 0;
  constexpr uint32_t kOptions = PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C;
  auto* compiled = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(), kOptions,
                                 &code, &offset, context.get());
  if (compiled == nullptr)
    return make_error(ErrorKind::kInvalidData, "regular expression does not compile", where,
                      "a pattern that Oniguruma and PCRE2 agree on",
                      pcre2_message(code) + " at byte " + std::to_string(offset) + " of " + translated +
                          " (from " + std::string(pattern) + ")");
  auto result = std::make_unique<Code>();
  result->code.reset(compiled);
  result->has_jit = pcre2_jit_compile(compiled, PCRE2_JIT_COMPLETE) == 0;
  return Regex(std::move(result));
}

std::optional<RegexMatch> Regex::find(std::string_view subject, size_t offset, RegexScratch& scratch) const {
  ++scratch.num_matches_;
  RegexScratch::State& state = scratch.state();
  const auto* text = reinterpret_cast<PCRE2_SPTR>(subject.data() == nullptr ? "" : subject.data());
  int count = PCRE2_ERROR_JIT_STACKLIMIT;
  if (code_->has_jit)
    count = pcre2_jit_match(code_->code.get(), text, subject.size(), offset, PCRE2_NO_UTF_CHECK,
                            state.data.get(), state.context.get());
  if (count == PCRE2_ERROR_JIT_STACKLIMIT)
    count = pcre2_match(code_->code.get(), text, subject.size(), offset, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
                        state.data.get(), state.context.get());
  if (count < 0) return std::nullopt;
  const PCRE2_SIZE* ovector = pcre2_get_ovector_pointer(state.data.get());
  if (ovector[1] < ovector[0]) return std::nullopt;  // \K inside a look-ahead can end before it begins
  return RegexMatch{ovector[0], ovector[1]};
}

}  // namespace mlxcel
