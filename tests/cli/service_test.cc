// The server as systemd runs it: the unit file, and what the server tells over NOTIFY_SOCKET.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cstring>

#include "server_process.h"
#include "shell.h"

namespace mlxcel {
namespace {

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
  return text;
}

TEST(Unit, SystemdAcceptsIt) {
  if (!is_installed("systemd-analyze")) GTEST_SKIP() << "not run: systemd-analyze is absent";
  const ScratchFolder folder;
  std::string text = *read_file(source_path("packaging/systemd/mlxcel.service.in"));
  text = replaced(text, "@CMAKE_INSTALL_FULL_BINDIR@", path_join(MLXCEL_BINARY_DIR, "bin"));
  text = replaced(text, "@MLXCEL_CONFIG_DIR@", "/etc/mlxcel");
  EXPECT_FALSE(contains(text, "@MLXCEL")) << "a placeholder that nothing replaces";
  ASSERT_TRUE(write_file_atomically(folder / "mlxcel.service", text).ok());
  const ShellResult good = shell("systemd-analyze verify --man=no " + (folder / "mlxcel.service"));
  EXPECT_EQ(good.code, 0) << good.output;
  EXPECT_FALSE(contains(good.output, "mlxcel.service:")) << good.output;
  // The canary: a misspelt key is found.
  const std::string wrong = replaced(text, "TimeoutStopSec", "TimeoutStoppSec");
  ASSERT_TRUE(write_file_atomically(folder / "mlxcel.service", wrong).ok());
  EXPECT_TRUE(contains(shell("systemd-analyze verify --man=no " + (folder / "mlxcel.service")).output,
                       "TimeoutStoppSec"));
}

// systemd's end of the protocol.
class NotifySocket {
 public:
  explicit NotifySocket(const std::string& path) : socket_(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path.data(), std::min(path.size(), sizeof address.sun_path - 1));
    EXPECT_EQ(::bind(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  }
  ~NotifySocket() { ::close(socket_); }
  NotifySocket(const NotifySocket&) = delete;
  NotifySocket& operator=(const NotifySocket&) = delete;
  std::string next() const {
    pollfd file{socket_, POLLIN, 0};
    if (::poll(&file, 1, static_cast<int>(kPatienceSeconds * 1000)) <= 0) return "nothing came";
    char buffer[4096];
    const ssize_t got = ::recv(socket_, buffer, sizeof buffer, 0);
    return got < 0 ? "error" : std::string(buffer, static_cast<size_t>(got));
  }

 private:
  int socket_;
};

TEST(Service, SaysWhenItIsReadyAndWhenItStops) {
  const ScratchFolder home;
  const NotifySocket systemd(home / "notify");
  ServerInBackground server(home, {"-m", tiny_chat(), "--port", "0"}, {{"NOTIFY_SOCKET", home / "notify"}});
  EXPECT_EQ(systemd.next(), "READY=1");
  EXPECT_TRUE(contains(*read_file(home / "server.log"), "ready in"));  // not before the model was loaded
  ::kill(server.pid(), SIGTERM);
  EXPECT_EQ(systemd.next(), "STOPPING=1");
  EXPECT_EQ(server.wait_for_exit(), 0);
}

TEST(Service, AModelThatCannotBeLoadedIsNeverReady) {
  const ScratchFolder home;
  const NotifySocket systemd(home / "notify");
  ServerInBackground server(home, {"-m", fixture("llama") + "/config.json", "--port", "0"},
                            {{"NOTIFY_SOCKET", home / "notify"}});
  EXPECT_EQ(server.wait_for_exit(), 3);  // RestartPreventExitStatus holds it
  if (!server.address().empty()) {
    EXPECT_EQ(systemd.next(), "STOPPING=1");
  }
}

}  // namespace
}  // namespace mlxcel
