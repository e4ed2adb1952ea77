// The conversation in a terminal, through a pseudo-terminal.
#include <gtest/gtest.h>

#include "base/file.h"
#include "terminal_session.h"

namespace mlxcel {
namespace {

TEST(Repl, AnswersRemembersAndLeaves) {
  TerminalSession repl({"run", "-m", tiny_chat(), "-n", "40"});
  repl.wait_for_prompt();
  repl.type("What is the capital of France?\n");
  repl.wait_for("The capital of France is Paris.");
  repl.wait_for_prompt();
  repl.type("/set verbose on\n");
  repl.wait_for_prompt();
  repl.type("And of Italy?\n");
  repl.wait_for("kept from before");  // the rows of the first turn were not computed again
  repl.wait_for_prompt();
  repl.type("/show messages\n");
  const std::string messages = repl.wait_for("And of Italy?");
  EXPECT_TRUE(contains(messages, "Paris"));
  repl.wait_for_prompt();
  const std::string file = repl.home() / "chat.json";
  repl.type("/save " + file + "\n");
  repl.wait_for("4 messages");
  repl.wait_for_prompt();
  EXPECT_EQ(parse_json_file(file)->as_array().size(), 4u);
  repl.type("/clear\n");
  repl.wait_for("forgotten");
  repl.wait_for_prompt();
  repl.type("/load " + file + "\n");
  repl.wait_for("4 messages");
  repl.wait_for_prompt();
  repl.type("\x04");
  EXPECT_EQ(repl.wait_for_exit(), 0);
  EXPECT_TRUE(contains(*read_file(repl.home() / ".cache/mlxcel/history"), "Italy"));
}

TEST(Repl, CommandsAndMistakes) {
  TerminalSession repl({"run", tiny_chat()});
  repl.wait_for_prompt();
  repl.type("/help\n");
  repl.wait_for("Ctrl-C");
  repl.wait_for_prompt();
  repl.type("/hlep\n");
  repl.wait_for("did you mean /help?");
  repl.wait_for_prompt();
  repl.type("/set temp 9999\n");
  repl.wait_for("from 0 to 100");
  repl.wait_for_prompt();
  repl.type("/set threads 4\n");
  repl.wait_for("/set knows");
  repl.wait_for_prompt();
  repl.type("/show\n");
  repl.wait_for("built-in");
  repl.wait_for_prompt();
  repl.type("\"\"\"What is the capital\n");
  repl.wait_for("... ");
  repl.type("of France?\"\"\"\n");
  repl.wait_for_prompt();
  repl.type("/bye\n");
  EXPECT_EQ(repl.wait_for_exit(), 0);
}

TEST(Repl, CtrlCStopsTheAnswerAndKeepsTheSession) {
  TerminalSession repl({"run", "-m", tiny_chat(), "--ignore-eos", "-n", "1500", "--backend", "reference"});
  repl.wait_for_prompt();
  repl.type("What is the capital of France?\n");
  repl.wait_for("The capital");
  repl.type("\x03");
  repl.wait_for_prompt();
  repl.type("/stats\n");
  repl.wait_for("cancelled");
  repl.wait_for_prompt();
  repl.type("half a line\x03");
  repl.wait_for("Ctrl-D");
  repl.wait_for_prompt();
  repl.type("/show messages\n");  // nothing is left of the half line
  repl.wait_for("capital");
  repl.wait_for_prompt();
  repl.type("\x04");
  EXPECT_EQ(repl.wait_for_exit(), 0);
}

}  // namespace
}  // namespace mlxcel
