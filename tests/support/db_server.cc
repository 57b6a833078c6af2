// SPDX-License-Identifier: Apache-2.0
#include "support/db_server.h"

#include <fcntl.h>
#include <mysql.h>
#include <pwd.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <sstream>
#include <string_view>
#include <utility>

#include "idd/base/scoped_fd.h"
#include "support/test_environment.h"

namespace idd::harness {

using std::chrono_literals::operator""s;

namespace {

// Neither server runs as root.
constexpr const char* kUser = "mysql";
constexpr const char* kInstall = "/usr/bin/mariadb-install-db";
// Made by scripts/mysql-tree.
constexpr const char* kMysqlTree = IDD_TEST_MYSQL_TREE;

std::string MysqlTree(const std::string& path) { return std::string(kMysqlTree) + "/" + path; }

std::string ServerBinary() { return IsMysql() ? MysqlTree("bin/mysqld") : "/usr/sbin/mariadbd"; }

// For temporary tables. Not /tmp: a starting server removes those it finds there, including those
// of other tests' servers.
std::string TemporaryDir(const std::string& data_dir) { return data_dir + ".tmp"; }

// Where any user may read the key of MySQL's server.
std::string KeyOf(const std::string& data_dir) { return data_dir + ".public_key.pem"; }

void Run(const std::vector<std::string>& argv) {
  ChildOptions child;
  child.argv = argv;
  ChildProcess process(child);
  const std::optional<int> status = process.WaitFor(Patience(120s));
  Require(status == 0, argv[0] + " failed:\n" + process.stdout_text() + process.stderr_text());
}

// The server's user needs access to it.
void OpenToServer(const std::string& path) {
  if (::geteuid() != 0) return;
  Require(::getpwnam(kUser) != nullptr, "there is no user mysql; install mariadb-server");
  Require(::chmod(path.c_str(), 0777) == 0, "chmod");
}

// Where a server finds what is its own.
std::vector<std::string> OwnFiles() {
  if (!IsMysql()) return {"--no-defaults"};
  return {"--no-defaults", "--basedir=" + MysqlTree("usr"),
          "--lc-messages-dir=" + MysqlTree("usr/share/mysql"),
          "--character-sets-dir=" + MysqlTree("usr/share/mysql/charsets"),
          "--plugin-dir=" + MysqlTree("usr/lib/mysql/plugin")};
}

void MakeData(const std::string& path, const std::string& temporary) {
  std::vector<std::string> argv = {IsMysql() ? ServerBinary() : kInstall};
  for (std::string& option : OwnFiles()) argv.push_back(std::move(option));
  argv.insert(argv.end(),
              {"--datadir=" + path, "--tmpdir=" + temporary, "--skip-log-bin", RedoLog("8M")});
  if (IsMysql()) {
    argv.emplace_back("--initialize-insecure");
  } else {
    argv.insert(argv.end(), {"--auth-root-authentication-method=normal", "--skip-test-db"});
  }
  if (::geteuid() == 0) argv.push_back(std::string("--user=") + kUser);
  Run(argv);
}

// The installation time of the server, so that another version does not use the files of an earlier
// one.
std::string ServerVersion() {
  struct stat server {};
  Require(::stat(ServerBinary().c_str(), &server) == 0,
          "there is no " + ServerBinary() + (IsMysql() ? "; run scripts/mysql-tree" : ""));
  return (IsMysql() ? "mysql-" : "mariadb-") + std::to_string(server.st_mtime);
}

// Making a data directory takes seconds, copying one a moment: the first test process that needs it
// makes it in the build's folder, for all the others.
std::string PristineData() {
  const std::string cache = IDD_TEST_CACHE_DIR;
  const std::string path = cache + "/" + ServerVersion() + "-" + std::to_string(::geteuid());
  std::filesystem::create_directories(cache);
  const ScopedFd lock(::open((path + ".lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  RequireErrno(lock.valid() && ::flock(lock.get(), LOCK_EX) == 0, "lock " + path);
  if (std::filesystem::exists(path)) return path;
  const TempDir made;  // the server's user may lack access to the build's folder
  OpenToServer(made.path());
  MakeData(made.File("data"), made.path());
  std::filesystem::remove_all(path + ".part");
  CopyTree(made.File("data"), path + ".part");
  std::filesystem::rename(path + ".part", path);
  return path;
}

}  // namespace

bool IsMysql() {
  // NOLINTNEXTLINE(concurrency-mt-unsafe): nothing changes the environment
  const char* const set = std::getenv("IDD_TEST_SERVER");
  const std::string_view server = set == nullptr ? "mariadb" : set;
  Require(server == "mariadb" || server == "mysql", "IDD_TEST_SERVER must be mariadb or mysql");
  return server == "mysql";
}

std::string RedoLog(const std::string& size) {
  return (IsMysql() ? "--innodb-redo-log-capacity=" : "--innodb-log-file-size=") + size;
}

std::string Numbers(std::uint64_t first, std::uint64_t last) {
  const std::string from = std::to_string(first);
  const std::string to = std::to_string(last);
  if (!IsMysql()) return "seq_" + from + "_to_" + to;
  return "(WITH RECURSIVE rising(seq) AS (SELECT CAST(" + from +
         " AS UNSIGNED) UNION ALL SELECT seq + 1 FROM rising WHERE seq < " + to +
         ") SELECT seq FROM rising) AS numbers";
}

DbSession::DbSession(const std::string& socket, const std::string& user,
                     const std::string& database)
    : mysql_(mysql_init(nullptr)) {
  if (mysql_real_connect(mysql_, nullptr, user.c_str(), "", database.c_str(), 0, socket.c_str(),
                         0) == nullptr) {
    const std::string error = mysql_error(mysql_);
    mysql_close(mysql_);
    throw HarnessError("cannot connect to " + socket + ": " + error);
  }
  if (IsMysql()) Execute("SET SESSION cte_max_recursion_depth = 4294967295");  // for Numbers()
}

DbSession::DbSession(std::uint16_t port) : mysql_(mysql_init(nullptr)) {
  const unsigned tcp = MYSQL_PROTOCOL_TCP;
  mysql_options(mysql_, MYSQL_OPT_PROTOCOL, &tcp);
  if (mysql_real_connect(mysql_, "127.0.0.1", "idd", "secret", "idd", port, nullptr, 0) ==
      nullptr) {
    const std::string error = mysql_error(mysql_);
    mysql_close(mysql_);
    throw HarnessError("cannot connect to port " + std::to_string(port) + ": " + error);
  }
}

DbSession::~DbSession() { mysql_close(mysql_); }

unsigned DbSession::Try(const std::string& sql) {
  if (mysql_real_query(mysql_, sql.data(), sql.size()) != 0) return mysql_errno(mysql_);
  const std::unique_ptr<MYSQL_RES, void (*)(MYSQL_RES*)> rows(mysql_store_result(mysql_),
                                                              mysql_free_result);
  return 0;
}

void DbSession::Execute(const std::string& sql) {
  if (Try(sql) != 0) throw HarnessError(sql + ": " + mysql_error(mysql_));
}

std::map<std::string, double> DbSession::Counters() {
  if (mysql_query(mysql_, "SHOW GLOBAL STATUS") != 0) throw HarnessError(mysql_error(mysql_));
  const std::unique_ptr<MYSQL_RES, void (*)(MYSQL_RES*)> rows(mysql_store_result(mysql_),
                                                              mysql_free_result);
  std::map<std::string, double> counters;
  while (MYSQL_ROW row = rows ? mysql_fetch_row(rows.get()) : nullptr) {
    std::string name = row[0];
    std::transform(name.begin(), name.end(), name.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    counters[name] = std::strtod(row[1], nullptr);
  }
  return counters;
}

std::string DbSession::Query(const std::string& sql) {
  if (mysql_real_query(mysql_, sql.data(), sql.size()) != 0) {
    throw HarnessError(sql + ": " + mysql_error(mysql_));
  }
  const std::unique_ptr<MYSQL_RES, void (*)(MYSQL_RES*)> rows(mysql_store_result(mysql_),
                                                              mysql_free_result);
  std::string answer;
  while (MYSQL_ROW row = rows ? mysql_fetch_row(rows.get()) : nullptr) {
    answer += (answer.empty() ? "" : ",") + std::string(row[0] == nullptr ? "NULL" : row[0]);
  }
  return answer;
}

DbServer::DbServer(const TempDir& dir, const std::string& name, Options options)
    : data_dir_(dir.File(name + ".data")),
      socket_(dir.File(name + ".mysql")),
      log_(dir.File(name + ".mysql.log")),
      options_(std::move(options)) {
  Install(dir);
}

void DbServer::Install(const TempDir& dir) {
  OpenToServer(dir.path());
  CopyTree(PristineData(), data_dir_);
  if (IsMysql()) {
    CopyTree(data_dir_ + "/public_key.pem", KeyOf(data_dir_));
    Require(::chmod(KeyOf(data_dir_).c_str(), 0644) == 0, "chmod");
  }
  // Each MySQL server makes a name of its own, which replication and idd tell it by.
  std::filesystem::remove(data_dir_ + "/auto.cnf");
  const std::string temporary = TemporaryDir(data_dir_);
  Require(::mkdir(temporary.c_str(), 0777) == 0, "mkdir");
  Require(::chmod(temporary.c_str(), 0777) == 0, "chmod");  // independent of the umask
}

std::string DbServer::Url() const {
  return "mysql://idd:secret@localhost/idd?unix_socket=" + socket_;
}

std::string DbServer::TcpUrl(const std::vector<const DbServer*>& others) const {
  std::string url = "mysql://idd:secret@127.0.0.1:" + std::to_string(options_.port);
  for (const DbServer* other : others) url += ",127.0.0.1:" + std::to_string(other->options_.port);
  url += "/idd";
  // All servers have the keys of the first data directory.
  if (IsMysql()) url += "?server_public_key=" + KeyOf(data_dir_);
  return url;
}

std::vector<std::string> DbServer::Command() const {
  std::vector<std::string> argv = {ServerBinary()};
  for (std::string& option : OwnFiles()) argv.push_back(std::move(option));
  argv.insert(argv.end(),
              {"--datadir=" + data_dir_, "--socket=" + socket_, "--pid-file=" + data_dir_ + "/pid",
               "--tmpdir=" + TemporaryDir(data_dir_), "--skip-log-bin", "--skip-name-resolve",
               "--innodb-buffer-pool-size=32M", "--max-connections=400", RedoLog("8M")});
  if (IsMysql()) argv.insert(argv.end(), {"--mysqlx=OFF", "--secure-file-priv=NULL"});
  if (::geteuid() == 0) argv.push_back(std::string("--user=") + kUser);
  if (options_.port == 0) {
    argv.emplace_back("--skip-networking");
  } else {
    argv.emplace_back("--bind-address=127.0.0.1");
    argv.push_back("--port=" + std::to_string(options_.port));
  }
  argv.insert(argv.end(), options_.arguments.begin(), options_.arguments.end());
  return argv;
}

void DbServer::Recover(const std::string& log) {
  std::vector<std::string> argv = Command();
  argv.emplace_back("--wsrep-recover");
  argv.push_back("--log-error=" + log);
  if (::geteuid() == 0) Require(::chmod(log.c_str(), 0666) == 0, "chmod");
  Run(argv);
}

void DbServer::Start(const std::vector<std::string>& once) {
  ChildOptions child;
  child.argv = Command();
  child.argv.insert(child.argv.end(), once.begin(), once.end());
  child.stderr_path = log_;
  process_.emplace(child);
  const auto answers = [this] {
    if (!process_->Running()) return true;
    try {
      DbSession session(socket_, "root", "");
      // A member of a group must have no transaction of its own.
      if (IsMysql()) session.Execute("SET sql_log_bin = 0");
      session.Execute("CREATE DATABASE IF NOT EXISTS idd");
      session.Execute("CREATE USER IF NOT EXISTS idd@localhost IDENTIFIED BY 'secret'");
      session.Execute("CREATE USER IF NOT EXISTS idd@'127.0.0.1' IDENTIFIED BY 'secret'");
      session.Execute("GRANT ALL ON idd.* TO idd@localhost");
      session.Execute("GRANT ALL ON idd.* TO idd@'127.0.0.1'");
      return true;
    } catch (const HarnessError&) {
      return false;
    }
  };
  const bool is_up = WaitUntil(Patience(120s), answers) && process_->Running();
  Require(is_up, "the server did not start; its log:\n" + Log());
}

void DbServer::Stop() {
  process_.value().Signal(SIGTERM);
  Require(process_->WaitFor(Patience(120s)).has_value(), "the server did not stop");
  process_.reset();
}

void DbServer::Kill() {
  process_.value().Kill();
  process_.reset();
}

void DbServer::Replicate(const DbServer& primary) const {
  const std::string port = std::to_string(primary.options_.port);
  primary.Session().Execute("GRANT REPLICATION SLAVE ON *.* TO idd@'127.0.0.1'");
  DbSession session = Session();
  if (IsMysql()) {
    session.Execute("RESET BINARY LOGS AND GTIDS");
    session.Execute("CHANGE REPLICATION SOURCE TO SOURCE_HOST='127.0.0.1', SOURCE_PORT=" + port +
                    ", SOURCE_USER='idd', SOURCE_PASSWORD='secret', GET_SOURCE_PUBLIC_KEY=1,"
                    " SOURCE_LOG_FILE='binlog.000001', SOURCE_LOG_POS=4");
    session.Execute("START REPLICA");
  } else {
    session.Execute("RESET MASTER");
    session.Execute("CHANGE MASTER TO MASTER_HOST='127.0.0.1', MASTER_PORT=" + port +
                    ", MASTER_USER='idd', MASTER_PASSWORD='secret',"
                    " MASTER_LOG_FILE='binlog.000001', MASTER_LOG_POS=4");
    session.Execute("START SLAVE");
  }
}

void DbServer::EndSessions() const {
  DbSession session = Session("");
  std::istringstream ids(
      session.Query("SELECT GROUP_CONCAT(id SEPARATOR ' ') FROM information_schema.processlist "
                    "WHERE user = 'idd'"));
  for (std::string id; ids >> id;) static_cast<void>(session.Try("KILL " + id));  // it may be gone
}

void DbServer::StopReplicating() const {
  Session().Execute(IsMysql() ? "STOP REPLICA" : "STOP SLAVE");
}

std::string DbServer::DumpCommand() const {
  const std::string program =
      IsMysql() ? MysqlTree("bin/mysqldump") + " --no-defaults --set-gtid-purged=OFF"
                : "/usr/bin/mariadb-dump --no-defaults";
  return program + " -u root -S " + socket_ + " --single-transaction idd";
}

std::string DbServer::ClientCommand() const {
  return (IsMysql() ? MysqlTree("bin/mysql") : "/usr/bin/mariadb") + " --no-defaults -u root -S " +
         socket_ + " idd";
}

std::vector<std::string> DbServer::RouterCommand(const std::string& config) {
  return {MysqlTree("bin/mysqlrouter"), "--config=" + config,
          "--DEFAULT.plugin_folder=" + MysqlTree("usr/lib/mysqlrouter/plugin")};
}

void CopyTree(const std::string& from, const std::string& to) { Run({"/bin/cp", "-a", from, to}); }

}  // namespace idd::harness
