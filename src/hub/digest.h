// SHA-256 and git's blob SHA-1, fed piece by piece.
// Owner: one download. Threads: one.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace mlxcel {

class Digest {
 public:
  static Digest sha256();
  // git's object id of a file of `size` bytes: SHA-1 of "blob <size>\0" and the bytes.
  static Digest git_blob(uint64_t size);
  Digest(Digest&&) noexcept;
  Digest& operator=(Digest&&) noexcept;
  ~Digest();

  void update(std::string_view bytes);
  std::string finish();  // lower-case hex; call once

 private:
  struct State;
  explicit Digest(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace mlxcel
