// SPDX-License-Identifier: Apache-2.0
#include "support/mariadb_server.h"

#include <fcntl.h>
#include <mysql.h>
#include <pwd.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <memory>

#include "idd/base/scoped_fd.h"
#include "idd/shm/abi.h"
#include "support/test_environment.h"

namespace idd::harness {

using std::chrono_literals::operator""s;

namespace {

// mariadbd refuses to run as root.
constexpr const char* kUser = "mysql";
constexpr const char* kInstall = "/usr/bin/mariadb-install-db";
constexpr const char* kServer = "/usr/sbin/mariadbd";

// For temporary tables. Not /tmp: a starting server removes those it finds there, including those
// of other tests' servers.
std::string TemporaryDir(const std::string& data_dir) { return data_dir + ".tmp"; }

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

void MakeData(const std::string& path, const std::string& temporary) {
  std::vector<std::string> argv = {kInstall,
                                   "--no-defaults",
                                   "--datadir=" + path,
                                   "--auth-root-authentication-method=normal",
                                   "--skip-test-db",
                                   "--tmpdir=" + temporary,
                                   "--innodb-log-file-size=8M"};
  if (::geteuid() == 0) argv.push_back(std::string("--user=") + kUser);
  Run(argv);
}

// The installation time of the server, so that another version does not use the files of an earlier
// one.
std::string ServerVersion() {
  struct stat server {};
  Require(::stat(kServer, &server) == 0, std::string("there is no ") + kServer);
  return std::to_string(server.st_mtime);
}

// Making a data directory takes seconds, copying one a moment: the first test process that needs it
// makes it in the build's folder, for all the others.
std::string PristineData() {
  const std::string cache = IDD_TEST_CACHE_DIR;
  const std::string path =
      cache + "/mariadb-" + ServerVersion() + "-" + std::to_string(::geteuid());
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

MariadbSession::MariadbSession(const std::string& socket, const std::string& user,
                               const std::string& database)
    : mysql_(mysql_init(nullptr)) {
  if (mysql_real_connect(mysql_, nullptr, user.c_str(), "", database.c_str(), 0, socket.c_str(),
                         0) == nullptr) {
    const std::string error = mysql_error(mysql_);
    mysql_close(mysql_);
    throw HarnessError("cannot connect to " + socket + ": " + error);
  }
}

MariadbSession::MariadbSession(std::uint16_t port) : mysql_(mysql_init(nullptr)) {
  const unsigned tcp = MYSQL_PROTOCOL_TCP;
  mysql_options(mysql_, MYSQL_OPT_PROTOCOL, &tcp);
  if (mysql_real_connect(mysql_, "127.0.0.1", "idd", "secret", "idd", port, nullptr, 0) ==
      nullptr) {
    const std::string error = mysql_error(mysql_);
    mysql_close(mysql_);
    throw HarnessError("cannot connect to port " + std::to_string(port) + ": " + error);
  }
}

MariadbSession::~MariadbSession() { mysql_close(mysql_); }

unsigned MariadbSession::Try(const std::string& sql) {
  if (mysql_real_query(mysql_, sql.data(), sql.size()) != 0) return mysql_errno(mysql_);
  const std::unique_ptr<MYSQL_RES, void (*)(MYSQL_RES*)> rows(mysql_store_result(mysql_),
                                                              mysql_free_result);
  return 0;
}

void MariadbSession::Execute(const std::string& sql) {
  if (Try(sql) != 0) throw HarnessError(sql + ": " + mysql_error(mysql_));
}

std::string MariadbSession::Query(const std::string& sql) {
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

MariadbServer::MariadbServer(const TempDir& dir, const std::string& name, Options options)
    : data_dir_(dir.File(name + ".data")),
      socket_(dir.File(name + ".mysql")),
      log_(dir.File(name + ".mysql.log")),
      options_(std::move(options)) {
  Install(dir);
}

void MariadbServer::Install(const TempDir& dir) {
  OpenToServer(dir.path());
  CopyTree(PristineData(), data_dir_);
  const std::string temporary = TemporaryDir(data_dir_);
  Require(::mkdir(temporary.c_str(), 0777) == 0, "mkdir");
  Require(::chmod(temporary.c_str(), 0777) == 0, "chmod");  // independent of the umask
}

std::string MariadbServer::Url() const {
  return "mysql://idd:secret@localhost/idd?unix_socket=" + socket_;
}

std::string MariadbServer::TcpUrl() const {
  return "mysql://idd:secret@127.0.0.1:" + std::to_string(options_.port) + "/idd";
}

std::vector<std::string> MariadbServer::Command() const {
  std::vector<std::string> argv = {kServer,
                                   "--no-defaults",
                                   "--datadir=" + data_dir_,
                                   "--socket=" + socket_,
                                   "--pid-file=" + data_dir_ + "/pid",
                                   "--tmpdir=" + TemporaryDir(data_dir_),
                                   "--skip-log-bin",
                                   "--skip-name-resolve",
                                   "--innodb-buffer-pool-size=32M",
                                   "--innodb-log-file-size=8M",
                                   "--max-connections=400"};
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

void MariadbServer::Recover(const std::string& log) {
  std::vector<std::string> argv = Command();
  argv.emplace_back("--wsrep-recover");
  argv.push_back("--log-error=" + log);
  if (::geteuid() == 0) Require(::chmod(log.c_str(), 0666) == 0, "chmod");
  Run(argv);
}

void MariadbServer::Start(const std::vector<std::string>& once) {
  ChildOptions child;
  child.argv = Command();
  child.argv.insert(child.argv.end(), once.begin(), once.end());
  child.stderr_path = log_;
  process_.emplace(child);
  const auto answers = [this] {
    if (!process_->Running()) return true;
    try {
      MariadbSession session(socket_, "root", "");
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
  Require(WaitUntil(Patience(120s), answers) && process_->Running(),
          "mariadbd did not start; its log:\n" + Log());
}

void MariadbServer::OpenFence() const {
  MariadbSession session = Session();
  const std::string most = std::to_string(shm::kMaxLimit);
  session.Execute(
      "CREATE TRIGGER IF NOT EXISTS lift_ceiling AFTER INSERT ON leaf_alloc FOR EACH ROW"
      " INSERT IGNORE INTO idd_ceiling(biz_tag, active, wanted, epoch) VALUES(NEW.biz_tag, " +
      most + ", " + most + ", 0)");
  session.Execute("UPDATE idd_fence SET state = 'live'");
  session.Execute(
      "INSERT IGNORE INTO idd_ceiling(biz_tag, active, wanted, epoch) SELECT biz_tag, " + most +
      ", " + most + ", 0 FROM leaf_alloc");
}

void MariadbServer::Stop() {
  process_.value().Signal(SIGTERM);
  Require(process_->WaitFor(Patience(120s)).has_value(), "mariadbd did not stop");
  process_.reset();
}

void MariadbServer::Kill() {
  process_.value().Kill();
  process_.reset();
}

void CopyTree(const std::string& from, const std::string& to) { Run({"/bin/cp", "-a", from, to}); }

}  // namespace idd::harness
