// SPDX-License-Identifier: Apache-2.0
#include "sql/mysql_db.h"

#include <arpa/inet.h>
#include <errmsg.h>
#include <fcntl.h>
#include <mysql.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <fstream>
#include <iterator>
#include <limits>
#include <utility>

#include "idd/base/clock.h"
#include "platform/bounded_call.h"
#include "platform/descriptor_limit.h"
#include "platform/name_service.h"

namespace idd::daemon {
namespace {

// What a session means must not depend on the server's settings, nor on what its init_connect has
// done before: values that do not fit are errors, a query has all of its rows and compares whole
// texts, a statement reads what is committed when it begins, no wait for a lock outlasts this
// side's timeout, times are UTC and texts utf8mb4.
constexpr const char* kSession[] = {
    // First: in some character sets, the names of modes and zones below mean nothing.
    "SET NAMES utf8mb4 COLLATE utf8mb4_bin",
    "SET SESSION completion_type=0, autocommit=1,"
    " sql_mode='STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION', time_zone='+00:00',"
    " sql_select_limit=18446744073709551615, max_join_size=18446744073709551615,"
    " sql_big_selects=1, sql_safe_updates=0, sql_auto_is_null=0, unique_checks=1,"
    " max_sort_length=1024, innodb_lock_wait_timeout=1, lock_wait_timeout=1, wait_timeout=600,"
    " net_read_timeout=30, net_write_timeout=60"
    // A transaction whose COMMIT the server has refused keeps its locks until its session ends: a
    // host that hangs would keep all others from the row. MySQL can only end all idle sessions.
    // (MariaDB's max_statement_time would set a timer at each packet, which costs a third of a
    // lease.)
    " /*M!100300 , idle_transaction_timeout=5, check_constraint_checks=1, max_statement_time=0 */"
    " /*!80000 , wait_timeout=10, max_execution_time=0, information_schema_stats_expiry=0 */",
    // Ends what init_connect has begun, and uses up what it has set for the next transaction.
    "START TRANSACTION",
    "ROLLBACK",
    "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE",
};

// The same, for servers that have the setting and let idd's user change it.
constexpr const char* kSessionIfKnown[] = {
    "SET @@timestamp=DEFAULT",
    "/*M! SET @@insert_id=0 */",
    "SET @@query_cache_type=0",
    "SET @@wsrep_dirty_reads=0",
    "SET @@system_versioning_asof=DEFAULT",
    "SET @@in_predicate_conversion_threshold=0",
    // On since MariaDB 11.6: a row that changed after its statement began refuses the statement's
    // lock (1020), where it waits otherwise and reads the row again.
    "SET @@innodb_snapshot_isolation=0",
    "SET @@max_session_mem_used=9223372036854775807",
};

// The most that an answer may have, and each of its packets. The longest rows of idd's own tables
// have two texts of 16 MiB.
constexpr std::size_t kMaxAnswerBytes = std::size_t{512} << 20;
constexpr std::size_t kMaxPacketBytes = std::size_t{64} << 20;

// The ways to log in that idd agrees to, whatever the server asks for. The server sees no password
// in these ...
constexpr const char* kSecretLogins = "mysql_native_password client_ed25519 parsec";
// ... and in this one it may ask for it, under a key of its own.
constexpr const char* kKeyLogin = " caching_sha2_password";
// In these it sees the password.
constexpr const char* kOpenLogins = " sha256_password mysql_clear_password dialog";
constexpr const char* kOpenLoginAdvice =
    "the server asks for the password itself, which idd sends only to a server that it has "
    "verified: set ssl_ca or ssl_verify=1 (for caching_sha2_password, server_public_key or a Unix "
    "socket will do), or give the account the plugin ed25519 or mysql_native_password";

// What an error of the server is about.
enum class About {
  kServer,    // the server, the session or its rights: nothing else can be done there
  kSchema,    // a table or a column, which idd or only a trigger may need
  kConflict,  // another transaction, or an end that an operator has set to this one: tried again
  kStatement,
};

struct KnownError {
  unsigned number;
  About about;
  const char* advice;
  const char* words = "";  // that the server's message has
};
// An error that is not listed is about its statement.
constexpr std::array kKnown = {
    KnownError{1021, About::kServer, "free space on the server's disk"},
    KnownError{1026, About::kServer, "check the server's disk"},
    KnownError{1030, About::kServer, "check the server's disk and its error log"},
    KnownError{1034, About::kServer, "check the table"},
    KnownError{1037, About::kServer, "the server is out of memory"},
    KnownError{1038, About::kServer, "the server is out of memory"},
    KnownError{1040, About::kServer, "the server has too many connections"},
    KnownError{1041, About::kServer, "the server is out of memory"},
    KnownError{1044, About::kServer, "grant idd's user its rights on the database"},
    KnownError{1045, About::kServer, "check user and password"},
    KnownError{1047, About::kServer, "the cluster's node is not ready"},
    KnownError{1049, About::kServer, "create the database"},
    KnownError{1053, About::kServer, "the server is shutting down"},
    KnownError{1114, About::kServer, "free space on the server's disk"},
    KnownError{1180, About::kServer, "check the server's error log"},
    KnownError{1194, About::kServer, "check the table"},
    KnownError{1195, About::kServer, "check the table"},
    KnownError{1203, About::kServer, "idd's user has too many connections"},
    KnownError{1226, About::kServer, "idd's user has used up its resources"},
    KnownError{1153, About::kServer, "raise the server's max_allowed_packet"},
    KnownError{1184, About::kServer, "the server's init_connect fails for idd's user"},
    KnownError{1290, About::kServer, "the server is read-only", "read-only"},
    KnownError{1290, About::kServer, "unset its enforce_storage_engine", "NO_ENGINE_SUBSTITUTION"},
    KnownError{1290, About::kStatement, ""},  // the message names the option
    KnownError{1698, About::kServer, "check user and password"},
    KnownError{1792, About::kServer, "the server is read-only"},
    KnownError{1820, About::kServer, "idd's password has expired"},
    KnownError{1836, About::kServer, "the server is read-only"},
    KnownError{1927, About::kServer, "the server has ended the connection"},
    KnownError{3159, About::kServer, "set ssl_ca in the database URL"},
    KnownError{1054, About::kSchema, "the table is not as idd needs it"},
    KnownError{1146, About::kSchema, ""},
    KnownError{1020, About::kConflict, "another transaction was in the way"},
    KnownError{1205, About::kConflict, "a lock is held on the row or the table"},
    KnownError{1206, About::kConflict, "the server holds too many locks"},
    KnownError{1213, About::kConflict, "another transaction was in the way"},
    KnownError{1223, About::kConflict, "another session has locked all tables"},
    KnownError{1317, About::kConflict, ""},
    KnownError{1412, About::kConflict, "the table was altered a moment ago"},
    KnownError{1467, About::kConflict, "a lock is held on the table"},
    KnownError{1615, About::kConflict, "the table was altered a moment ago"},
    KnownError{1969, About::kConflict, "the server's max_statement_time has passed"},
    KnownError{3024, About::kConflict, "the server's max_execution_time has passed"},
    KnownError{3101, About::kConflict, "another member of the group was first"},
    KnownError{3572, About::kConflict, "a lock is held on the row"},
    KnownError{1142, About::kStatement, "grant idd's user the right that is missing"},
    KnownError{1143, About::kStatement, "grant idd's user the right that is missing"},
    KnownError{1227, About::kStatement, "grant idd's user the right that is missing"},
    KnownError{1370, About::kStatement, "grant idd's user the right that is missing"},
    KnownError{1264, About::kStatement, "the number does not fit its column"},
    KnownError{1267, About::kStatement, "the column's character set cannot store the name"},
    KnownError{1270, About::kStatement, "the column's character set cannot store the name"},
    KnownError{1271, About::kStatement, "the column's character set cannot store the name"},
    KnownError{3854, About::kStatement, "the column's character set cannot store the name"},
    KnownError{1364, About::kStatement, "give the column a default value"},
    KnownError{1366, About::kStatement, "the value does not fit its column"},
    KnownError{1406, About::kStatement, "the text does not fit its column"},
    KnownError{1665, About::kStatement, "set the server's binlog_format to MIXED or ROW"},
    KnownError{1690, About::kStatement, "the number does not fit its column"},
    KnownError{3819, About::kStatement, "the table's own check refuses it"},
    KnownError{4025, About::kStatement, "the table's own check refuses it"},
};

Code CodeOf(About about) {
  switch (about) {
    case About::kServer:
      return Code::kUnavailable;
    case About::kSchema:
      return Code::kIncompatible;
    case About::kConflict:
      return Code::kTimeout;
    case About::kStatement:
      break;
  }
  return Code::kInvalid;
}

// Makes the kernel notice within some five seconds, without a query, that a server has vanished. If
// this fails, the timeouts notice it.
void KeepAlive(int socket) {
  const auto set = [socket](int level, int option, int value) {
    static_cast<void>(::setsockopt(socket, level, option, &value, sizeof value));
  };
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 2);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 1);
  set(IPPROTO_TCP, TCP_KEEPCNT, 2);
  set(IPPROTO_TCP, TCP_USER_TIMEOUT, 4000);
}

// The deadline of this thread's present request to a server.
thread_local MonotonicTime ask_ends = MonotonicTime::max();
// Whether that request is a login.
thread_local bool logs_in = false;

// Sets the mode of a socket that libmariadb takes for a blocking one. On a blocking socket its TLS
// read blocks for as long as bytes come, and since 3.4 every read and write blocks without a limit;
// on a non-blocking one it waits in WaitForServer().
void SetBlocking(int socket, bool blocks) {
  const int flags = ::fcntl(socket, F_GETFL);
  if (flags < 0) return;
  static_cast<void>(::fcntl(socket, F_SETFL, blocks ? flags & ~O_NONBLOCK : flags | O_NONBLOCK));
}

// While an object lives, answers are read within the deadline, from TLS too. Requests are written
// to TLS with a blocking socket: libmariadb would otherwise wait for the wrong event.
class ReadsInTime {
 public:
  explicit ReadsInTime(MYSQL* mysql) : mysql_(mysql), socket_(mysql_get_socket(mysql)) {
    if (has_tls_) SetBlocking(socket_, false);
  }
  ~ReadsInTime() {
    // Not if libmariadb has closed the socket.
    if (has_tls_ && mysql_get_socket(mysql_) == socket_) SetBlocking(socket_, true);
  }
  ReadsInTime(const ReadsInTime&) = delete;
  ReadsInTime& operator=(const ReadsInTime&) = delete;

 private:
  MYSQL* const mysql_;
  const my_socket socket_;
  const bool has_tls_ = mysql_get_ssl_cipher(mysql_) != nullptr;
};

// Sets ask_ends for one request, for as long as the object lives.
class AskDeadline {
 public:
  AskDeadline() { Renew(); }
  ~AskDeadline() { ask_ends = MonotonicTime::max(); }
  static void Renew() { ask_ends = MonotonicClock::now() + kMysqlStatementTimeout; }
  AskDeadline(const AskDeadline&) = delete;
  AskDeadline& operator=(const AskDeadline&) = delete;
};

// libmariadb calls this whenever it has to wait for the socket. Its own time limits cover one read
// and start again with every byte. Its timeout argument is ignored and kMysqlTimeout used, because
// reads from TLS pass seconds in place of milliseconds. Returns like poll(2): 0 is a timeout.
int WaitForServer(my_socket socket, my_bool is_read, int /*timeout_ms*/) {
  // The greeting comes without TLS; what follows may use TLS.
  if (logs_in && is_read != 0) SetBlocking(socket, false);
  const MonotonicTime end = std::min(ask_ends, MonotonicClock::now() + kMysqlTimeout);
  pollfd entry{.fd = socket, .events = POLLOUT, .revents = 0};
  if (is_read != 0) entry.events = POLLIN;
  int ready = -1;
  do {
    const auto left = static_cast<int>(Deadline(end).remaining().count());
    ready = Deadline(ask_ends).passed() ? 0 : ::poll(&entry, 1, left);
  } while (ready < 0 && errno == EINTR);
  if (ready == 0) errno = ETIMEDOUT;
  return ready;
}

std::string Hex(std::string_view value) {
  static constexpr char kHexDigits[] = "0123456789abcdef";
  std::string hex;
  for (const char c : value) {
    const auto byte = static_cast<unsigned char>(c);
    hex += kHexDigits[byte >> 4];
    hex += kHexDigits[byte & 0xf];
  }
  return hex;
}

// Whether the error is libmariadb's, not the server's. MySQL has errors from 3000 to 4999.
bool IsOwnError(unsigned number) { return number / 1000 == 2 || number / 1000 == 5; }

// Whether a COMMIT among `statements` may have been carried out, if the first `answered` of them
// were answered. It was not if the server reported an error before it, or for the COMMIT itself an
// error that always means an abort.
bool IsOutcomeUnknown(const std::vector<std::string>& statements, std::size_t answered,
                      unsigned error) {
  const auto commit = std::find(statements.begin(), statements.end(), "COMMIT");
  if (commit == statements.end()) return false;
  if (error == 0 || IsOwnError(error)) return true;  // the rest may still be carried out
  const auto failed = statements.begin() + static_cast<std::ptrdiff_t>(answered);
  if (failed < commit) return false;
  constexpr std::array<unsigned, 4> kAborts = {1213, 1205, 1020, 1047};
  return failed != commit || std::find(kAborts.begin(), kAborts.end(), error) == kAborts.end();
}

// Reads the rows of the present result, or how many rows it changed. Nothing: not all rows came, or
// more than an answer may have.
std::optional<MysqlResult> ReadResult(MYSQL* mysql) {
  MysqlResult result;
  if (mysql_field_count(mysql) == 0) {
    result.changed = mysql_affected_rows(mysql);
    return result;
  }
  const std::unique_ptr<MYSQL_RES, void (*)(MYSQL_RES*)> rows(mysql_use_result(mysql),
                                                              mysql_free_result);
  if (rows == nullptr) return std::nullopt;
  const unsigned columns = mysql_num_fields(rows.get());
  std::size_t bytes = 0;
  while (MYSQL_ROW row = mysql_fetch_row(rows.get())) {
    const unsigned long* const lengths = mysql_fetch_lengths(rows.get());
    MysqlCells& cells = result.rows.emplace_back();
    cells.reserve(columns);
    for (unsigned i = 0; i < columns; ++i) {
      bytes += sizeof(MysqlCells::value_type) + lengths[i];
      cells.push_back(row[i] == nullptr ? std::nullopt
                                        : std::optional(std::string(row[i], lengths[i])));
    }
    if (bytes <= kMaxAnswerBytes && !Deadline(ask_ends).passed()) continue;
    // So that freeing the result does not read on.
    ::shutdown(mysql_get_socket(mysql), SHUT_RDWR);
    return std::nullopt;
  }
  if (mysql_errno(mysql) != 0) return std::nullopt;
  return result;
}

bool IsAddress(const std::string& host) {
  in6_addr address{};
  return ::inet_pton(AF_INET, host.c_str(), &address) == 1 ||
         ::inet_pton(AF_INET6, host.c_str(), &address) == 1;
}

bool WantsTls(const MysqlUrl& url) {
  return !url.ssl_ca.empty() || !url.ssl_cert.empty() || url.ssl_verify;
}

// Not Ok: there is no such key. libmariadb would ask the server for one.
Status CheckServerKey(const std::string& path) {
  if (path.empty()) return Status::Ok();
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.find("PUBLIC KEY") != std::string::npos) return Status::Ok();
  }
  return {Code::kUnavailable, "the server's public key cannot be read from '" + path + "'"};
}

// Bounds what a server can make this side wait for, read and keep.
void SetLimits(MYSQL* mysql) {
  const auto seconds = static_cast<unsigned>(kMysqlTimeout.count());
  const my_bool no = 0;
  mysql_options(mysql, MYSQL_OPT_CONNECT_TIMEOUT, &seconds);
  mysql_options(mysql, MYSQL_OPT_READ_TIMEOUT, &seconds);
  mysql_options(mysql, MYSQL_OPT_WRITE_TIMEOUT, &seconds);
  mysql_options(mysql, MARIADB_OPT_IO_WAIT, reinterpret_cast<const void*>(&WaitForServer));
  mysql_options(mysql, MYSQL_OPT_RECONNECT, &no);
  mysql_options(mysql, MYSQL_OPT_MAX_ALLOWED_PACKET, &kMaxPacketBytes);
}

// TLS, and what the server may ask for. libmariadb sends caching_sha2_password's password itself if
// TLS is asked for, even if it is not verified or the server has none; without TLS it encrypts the
// password with the server's key, which may be anyone's unless it is given.
void SetSecurity(MYSQL* mysql, const MysqlUrl& url, const MysqlEndpoint& endpoint) {
  const bool by_socket = endpoint.host.empty();
  const unsigned protocol = by_socket ? MYSQL_PROTOCOL_SOCKET : MYSQL_PROTOCOL_TCP;
  const unsigned no_files = 0;
  mysql_options(mysql, MYSQL_OPT_LOCAL_INFILE, &no_files);
  mysql_options(mysql, MYSQL_OPT_PROTOCOL, &protocol);
  mysql_options(mysql, MYSQL_SET_CHARSET_NAME, "utf8mb4");
  std::string logins = kSecretLogins;
  if (!WantsTls(url) || url.ssl_verify) logins += kKeyLogin;
  if (url.ssl_verify) logins += kOpenLogins;
  mysql_options(mysql, MARIADB_OPT_RESTRICTED_AUTH, logins.c_str());
  const char* const no_key = "/dev/null";
  mysql_options(mysql, MYSQL_SERVER_PUBLIC_KEY,
                url.server_public_key.empty() ? no_key : url.server_public_key.c_str());
  // Newer libraries verify unless they are told not to.
  const my_bool verify = url.ssl_verify ? 1 : 0;
  mysql_options(mysql, MYSQL_OPT_SSL_VERIFY_SERVER_CERT, &verify);
  if (!WantsTls(url)) return;
  const auto or_null = [](const std::string& path) {
    return path.empty() ? nullptr : path.c_str();
  };
  mysql_ssl_set(mysql, or_null(url.ssl_key), or_null(url.ssl_cert), or_null(url.ssl_ca), nullptr,
                nullptr);
  const my_bool enforce = 1;
  mysql_options(mysql, MYSQL_OPT_SSL_ENFORCE, &enforce);
}

}  // namespace

// --- rows

const std::optional<std::string>& MysqlRow::Cell(int column) const {
  return cells_.at(static_cast<std::size_t>(column));
}

bool MysqlRow::IsNull(int column) const { return !Cell(column).has_value(); }

std::optional<std::uint64_t> MysqlRow::UintIf(int column) const {
  const std::optional<std::string>& cell = Cell(column);
  std::uint64_t value = 0;
  if (!cell.has_value() || cell->empty()) return std::nullopt;
  const char* const end = cell->data() + cell->size();
  const auto [stop, error] = std::from_chars(cell->data(), end, value);
  const bool fits = value <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  if (error != std::errc() || stop != end || !fits) return std::nullopt;
  return value;
}

std::optional<std::string> MysqlRow::TextIf(int column) const { return Cell(column); }

std::string MysqlRow::Describe(int column) const {
  const std::optional<std::string>& cell = Cell(column);
  if (!cell.has_value()) return "NULL";
  const bool is_number = !cell->empty() && std::all_of(cell->begin(), cell->end(), [](char c) {
    return (c >= '0' && c <= '9') || c == '-' || c == '.' || c == 'e' || c == '+';
  });
  return is_number ? *cell : "a text";
}

std::string MysqlQuery::Place(int column) const {
  return "column " + std::to_string(column + 1) + " of a row at " + where_;
}

// --- connection

MysqlDb::MysqlDb(std::string where) : where_(std::move(where)) {}

MysqlDb::~MysqlDb() {
  if (mysql_ == nullptr) return;
  // mysql_close() does not free this name, and a failed login would forget it if it did not
  // remember the options.
  mysql_options(mysql_, MYSQL_SERVER_PUBLIC_KEY, nullptr);
  mysql_close(mysql_);
}

Result<std::unique_ptr<MysqlDb>> MysqlDb::Connect(const MysqlUrl& url,
                                                  const MysqlEndpoint& endpoint) {
  std::unique_ptr<MysqlDb> db(
      new MysqlDb(endpoint.host.empty() ? url.unix_socket
                                        : endpoint.host + ":" + std::to_string(endpoint.port)));
  const Result<std::string> password = PasswordOf(url);
  if (!password.ok()) return password.status();
  if (Status status = CheckServerKey(url.server_public_key); !status.ok()) return status;
  // This must not run in two threads at once, as it might if it were left to mysql_init().
  static const int library = mysql_library_init(0, nullptr, nullptr);
  if (library != 0) return Status(Code::kSystem, "libmariadb does not start");
  db->mysql_ = mysql_init(nullptr);
  if (db->mysql_ == nullptr) return Status(Code::kSystem, "out of memory");
  SetLimits(db->mysql_);
  SetSecurity(db->mysql_, url, endpoint);
  if (Status status = LogInWithin(db, url, endpoint, password.value()); !status.ok()) return status;
  if (Status status = db->SetSession(url.database); !status.ok()) return status;
  return db;
}

Status MysqlDb::SetSession(const std::string& database) {
  std::vector<std::string> statements(std::begin(kSession), std::end(kSession));
  std::string quoted;
  for (const char c : database) quoted += c == '`' ? std::string("``") : std::string(1, c);
  statements.push_back("USE `" + quoted + "`");
  for (const std::string& statement : statements) {
    const Status status = Query(statement).status();
    if (!status.ok()) return {Code::kUnavailable, status.message()};
  }
  for (const char* statement : kSessionIfKnown) {
    Status status = Query(statement).status();
    if (!status.ok() && broken_) return status;
  }
  // MySQL cannot take this back, and would give the number to a row of the journal.
  const Result<MysqlResult> forced = Query("SELECT @@insert_id");
  if (!forced.ok()) return {Code::kUnavailable, forced.status().message()};
  if (forced.value().rows.at(0)[0] != "0") {
    return {Code::kUnavailable, "the database server at " + where_ +
                                    " sets insert_id for new sessions; remove that from its "
                                    "init_connect"};
  }
  return Status::Ok();
}

// libmariadb looks the host's name up without a limit, at each login. So the name is looked up
// before, within a limit, and then the login gets one, too.
Status MysqlDb::LogInWithin(std::unique_ptr<MysqlDb>& db, const MysqlUrl& url,
                            const MysqlEndpoint& endpoint, const std::string& password) {
  if (endpoint.host.empty() || IsAddress(endpoint.host)) return db->LogIn(url, endpoint, password);
  Status status = FindHost(endpoint.host);
  if (!status.ok()) {
    const std::string shortage = DescriptorShortage();
    return status.WithContext("the database server at " + db->where_ +
                              (shortage.empty() ? "" : ", " + shortage));
  }
  struct Login {
    std::unique_ptr<MysqlDb> db;
    Status status;
  };
  const auto login = std::make_shared<Login>();
  login->db = std::move(db);
  status = RunWithin(kMysqlStatementTimeout + std::chrono::seconds(1),
                     "the login at " + login->db->where_, [login, url, endpoint, password] {
                       login->status = login->db->LogIn(url, endpoint, password);
                     });
  if (!status.ok()) return status;
  db = std::move(login->db);
  return login->status;
}

Status MysqlDb::LogIn(const MysqlUrl& url, const MysqlEndpoint& endpoint,
                      const std::string& password) {
  const bool by_socket = endpoint.host.empty();
  const AskDeadline deadline;
  logs_in = true;
  const bool is_in =
      mysql_real_connect(mysql_, by_socket ? nullptr : endpoint.host.c_str(), url.user.c_str(),
                         password.c_str(), url.database.c_str(), endpoint.port,
                         by_socket ? url.unix_socket.c_str() : nullptr,
                         CLIENT_MULTI_STATEMENTS | CLIENT_REMEMBER_OPTIONS) != nullptr;
  logs_in = false;
  if (!is_in) {
    // libmariadb's error is then one of the server's name or address.
    const std::string shortage = DescriptorShortage();
    Status failure = Failure("connecting");
    if (!shortage.empty()) return {failure.code(), failure.message() + ": " + shortage};
    // caching_sha2_password gives no reason if it has no key.
    const bool may_lack_key = last_error_ == CR_UNKNOWN_ERROR && url.server_public_key.empty();
    const bool asks_openly = last_error_ == CR_PLUGIN_NOT_ALLOWED || may_lack_key;
    return asks_openly ? Refusal(kOpenLoginAdvice) : failure;
  }
  // Without ssl_verify, libmariadb goes on without TLS if the server has none.
  if (WantsTls(url) && mysql_get_ssl_cipher(mysql_) == nullptr) {
    return Refusal("it has no TLS, which the URL asks for");
  }
  SetBlocking(mysql_get_socket(mysql_), mysql_get_ssl_cipher(mysql_) != nullptr);
  if (!by_socket) KeepAlive(mysql_get_socket(mysql_));
  return Status::Ok();
}

bool MysqlDb::PeerClosed() const {
  if (broken_) return true;
  pollfd entry{.fd = mysql_get_socket(mysql_), .events = POLLIN, .revents = 0};
  // Unrequested data means that the server is closing the connection.
  return ::poll(&entry, 1, 0) != 0;
}

Status MysqlDb::Failure(const char* doing) {
  last_error_ = mysql_errno(mysql_);
  const std::string what = "the database server at " + where_ + ", " + doing + ": " +
                           mysql_error(mysql_) + " (error " + std::to_string(last_error_) + ")";
  if (IsOwnError(last_error_)) {
    broken_ = true;
    return {Code::kUnavailable, what};
  }
  const auto known = std::find_if(kKnown.begin(), kKnown.end(), [&](const KnownError& error) {
    return error.number == last_error_ && what.find(error.words) != std::string::npos;
  });
  const bool is_listed = known != kKnown.end();
  const About about = is_listed ? known->about : About::kStatement;
  broken_ = broken_ || about == About::kServer;
  const std::string advice = is_listed ? known->advice : "";
  return {CodeOf(about), advice.empty() ? what : what + "; " + advice};
}

Status MysqlDb::Refusal(const std::string& what) {
  broken_ = true;
  return {Code::kUnavailable, "the database server at " + where_ + " is refused: " + what};
}

Result<MysqlResult> MysqlDb::Query(const std::string& sql) {
  Result<std::vector<MysqlResult>> results = Packet({sql});
  if (!results.ok()) return results.status();
  return std::move(results.value().front());
}

Result<std::vector<MysqlResult>> MysqlDb::Packet(const std::vector<std::string>& statements) {
  if (!sends_singly_) return Send(statements);
  std::vector<MysqlResult> results;
  for (const std::string& statement : statements) {
    Result<std::vector<MysqlResult>> one = Send({statement});
    if (!one.ok()) {
      outcome_unknown_ = IsOutcomeUnknown(statements, results.size(), last_error_);
      return one.status();
    }
    results.push_back(std::move(one.value().front()));
  }
  return results;
}

Result<std::vector<MysqlResult>> MysqlDb::Send(const std::vector<std::string>& statements) {
  outcome_unknown_ = false;
  last_error_ = 0;
  if (broken_) return Status(Code::kUnavailable, "the connection to " + where_ + " is broken");
  std::string packet;
  for (const std::string& statement : statements) {
    if (!packet.empty()) packet += ';';
    packet += statement;
  }
  const AskDeadline deadline;
  std::vector<MysqlResult> results;
  const bool has_commit =
      std::find(statements.begin(), statements.end(), "COMMIT") != statements.end();
  int more = mysql_send_query(mysql_, packet.data(), packet.size()) == 0 ? 0 : 1;
  const ReadsInTime reads_in_time(mysql_);
  if (more == 0) more = mysql_read_query_result(mysql_) == 0 ? 0 : 1;
  while (more == 0 && results.size() < statements.size()) {
    std::optional<MysqlResult> result = ReadResult(mysql_);
    if (!result.has_value()) {
      more = mysql_errno(mysql_) == 0 ? 0 : 1;  // an error may come after some of the rows
      break;
    }
    results.push_back(std::move(*result));
    AskDeadline::Renew();
    more = mysql_next_result(mysql_);
  }
  if (more < 0 && results.size() == statements.size()) return results;
  if (more <= 0) {
    broken_ = true;
    outcome_unknown_ = has_commit;
    return Status(Code::kUnavailable,
                  "the database server at " + where_ + " answered too little or too much");
  }
  Status status = Failure("running a statement");
  outcome_unknown_ = IsOutcomeUnknown(statements, results.size(), last_error_);
  return status;
}

Result<std::vector<MysqlResult>> MysqlDb::Transaction(const std::vector<std::string>& statements,
                                                      const std::vector<std::string>& behind) {
  std::vector<std::string> packet = {"START TRANSACTION"};
  packet.insert(packet.end(), statements.begin(), statements.end());
  packet.emplace_back("COMMIT");
  packet.insert(packet.end(), behind.begin(), behind.end());
  Result<std::vector<MysqlResult>> results = Packet(packet);
  if (!results.ok()) {
    const unsigned error = last_error_;
    const bool unknown = outcome_unknown_;
    // The server rolls back anyway when the connection ends.
    if (!broken_ && !Query("ROLLBACK").ok()) broken_ = true;
    last_error_ = error;
    outcome_unknown_ = unknown;
    return results;
  }
  std::vector<MysqlResult>& all = results.value();
  all.erase(all.begin() + 1 + static_cast<std::ptrdiff_t>(statements.size()));  // COMMIT's
  all.erase(all.begin());
  return results;
}

std::string MysqlDb::Text(std::string_view value) {
  // Most names are plain, and the server reads a plain literal in half the time.
  const bool is_plain = std::all_of(value.begin(), value.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == '.';
  });
  return is_plain ? "_utf8mb4'" + std::string(value) + "'" : "_utf8mb4 X'" + Hex(value) + "'";
}

namespace {

std::string LiteralOf(std::monostate /*null*/) { return "NULL"; }
std::string LiteralOf(std::uint64_t number) { return std::to_string(number); }
std::string LiteralOf(const std::string& text) { return MysqlDb::Text(text); }
// As an element of IN (), NULL equals nothing.
template <typename Value>
std::string LiteralOf(const std::vector<Value>& list) {
  std::string literals;
  for (const Value& value : list) literals += (literals.empty() ? "" : ", ") + LiteralOf(value);
  return literals.empty() ? "NULL" : literals;
}

}  // namespace

std::string MysqlDb::WithLiterals(const std::string& text, const SqlValues& values) {
  return ReplacePlaceholders(text, values, [](const SqlValue& value) {
    return std::visit([](const auto& one) { return LiteralOf(one); }, value);
  });
}

}  // namespace idd::daemon
