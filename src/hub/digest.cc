#include "hub/digest.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <array>

#include "base/error.h"

namespace mlxcel {

struct Digest::State {
  struct Free {
    void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
  };
  std::unique_ptr<EVP_MD_CTX, Free> context{EVP_MD_CTX_new()};

  explicit State(const EVP_MD* kind) {
    MLXCEL_CHECK(context != nullptr && EVP_DigestInit_ex(context.get(), kind, nullptr) == 1);
  }
};

Digest::Digest(std::unique_ptr<State> state) : state_(std::move(state)) {}
Digest::Digest(Digest&&) noexcept = default;
Digest& Digest::operator=(Digest&&) noexcept = default;
Digest::~Digest() = default;

Digest Digest::sha256() { return Digest(std::make_unique<State>(EVP_sha256())); }

Digest Digest::git_blob(uint64_t size) {
  Digest digest(std::make_unique<State>(EVP_sha1()));
  std::string header = fmt::format("blob {}", size);
  header.push_back('\0');
  digest.update(header);
  return digest;
}

void Digest::update(std::string_view bytes) {
  MLXCEL_CHECK(EVP_DigestUpdate(state_->context.get(), bytes.data(), bytes.size()) == 1);
}

std::string Digest::finish() {
  std::array<unsigned char, EVP_MAX_MD_SIZE> bytes{};
  unsigned int size = 0;
  MLXCEL_CHECK(EVP_DigestFinal_ex(state_->context.get(), bytes.data(), &size) == 1);
  std::string hex;
  for (unsigned int i = 0; i < size; ++i) hex += fmt::format("{:02x}", bytes[i]);
  return hex;
}

}  // namespace mlxcel
