// SPDX-License-Identifier: Apache-2.0
//
// insert_orders SOCKET USER DATABASE ORDERS: inserts orders with items into MariaDB. The tables are
// those of ../schema.sql, the ids come from the tags `orders` and `order_items` of this host's idd,
// and the password comes from $MYSQL_PWD.
//
// The ids are known before anything is sent. A batch of orders and all of their items is therefore
// two INSERT statements and a COMMIT, however many orders it has. With AUTO_INCREMENT, the server
// chooses the id of an order, and the program needs it before it can write the items.
#include <mysql.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "idclient/idclient.hpp"

namespace {

constexpr std::size_t kOrdersPerBatch = 250;  // about 1,000 rows with their items

struct Item {
  std::string article;
  int quantity = 0;
};

struct Order {
  std::string customer;
  std::vector<Item> items;
};

// A connection with one transaction at a time. Failures are thrown as std::runtime_error. The
// destructor rolls back what is not committed.
class Database {
 public:
  Database(const char* socket, const char* user, const char* database)
      : mysql_(mysql_init(nullptr), mysql_close) {
    if (mysql_real_connect(mysql_.get(), nullptr, user, std::getenv("MYSQL_PWD"), database, 0,
                           socket, 0) == nullptr) {
      Fail("cannot connect");
    }
    if (mysql_set_character_set(mysql_.get(), "utf8mb4") != 0) Fail("cannot set the charset");
    if (mysql_autocommit(mysql_.get(), 0) != 0) Fail("cannot begin a transaction");
  }

  void Execute(const std::string& sql) {
    if (mysql_real_query(mysql_.get(), sql.data(), sql.size()) != 0) Fail("INSERT failed");
  }

  void Commit() {
    if (mysql_commit(mysql_.get()) != 0) Fail("COMMIT failed");
  }

  // Without a connection there is nothing to roll back: the server has done it.
  void Rollback() noexcept { mysql_rollback(mysql_.get()); }

  // The text as a literal of SQL.
  [[nodiscard]] std::string Quoted(std::string_view text) {
    std::string escaped(2 * text.size() + 1, '\0');
    escaped.resize(
        mysql_real_escape_string(mysql_.get(), escaped.data(), text.data(), text.size()));
    return "'" + escaped + "'";
  }

 private:
  [[noreturn]] void Fail(const char* what) {
    throw std::runtime_error(std::string(what) + ": " + mysql_error(mysql_.get()));
  }

  std::unique_ptr<MYSQL, decltype(&mysql_close)> mysql_;
};

[[nodiscard]] std::vector<std::uint64_t> ClaimMany(const idclient::Tag& tag, std::size_t count) {
  std::vector<std::uint64_t> ids(count);
  tag.claim_many(ids);
  return ids;
}

class OrderStore {
 public:
  // Both must outlive the store.
  OrderStore(Database& database, idclient::Client& ids)
      : database_(database), order_tag_(ids.tag("orders")), item_tag_(ids.tag("order_items")) {}

  // Commits all of the orders or, with an exception, none. The claimed ids of a batch that failed
  // are not used again: a gap.
  void Insert(const std::vector<Order>& orders) {
    const std::vector<std::uint64_t> order_ids = ClaimMany(order_tag_, orders.size());
    const std::string order_rows = OrderRows(orders, order_ids);
    const std::string item_rows = ItemRows(orders, order_ids);
    try {
      database_.Execute(order_rows);
      if (!item_rows.empty()) database_.Execute(item_rows);
      // If the connection breaks here, the program cannot know whether the server committed. As the
      // ids are its own, it can connect again and look for order_ids[0].
      database_.Commit();
    } catch (...) {
      database_.Rollback();
      throw;
    }
  }

 private:
  [[nodiscard]] std::string OrderRows(const std::vector<Order>& orders,
                                      const std::vector<std::uint64_t>& order_ids) {
    std::string sql = "INSERT INTO orders (id, channel, customer) VALUES ";
    for (std::size_t index = 0; index < orders.size(); ++index) {
      sql += (index == 0 ? "(" : ",(") + std::to_string(order_ids[index]) + ",'cpp'," +
             database_.Quoted(orders[index].customer) + ")";
    }
    return sql;
  }

  // Empty if no order has an item.
  [[nodiscard]] std::string ItemRows(const std::vector<Order>& orders,
                                     const std::vector<std::uint64_t>& order_ids) {
    std::size_t count = 0;
    for (const Order& order : orders) count += order.items.size();
    if (count == 0) return {};
    const std::vector<std::uint64_t> item_ids = ClaimMany(item_tag_, count);
    std::string sql = "INSERT INTO order_items (id, order_id, article, quantity) VALUES ";
    std::size_t next = 0;
    for (std::size_t index = 0; index < orders.size(); ++index) {
      for (const Item& item : orders[index].items) {
        sql += (next == 0 ? "(" : ",(") + std::to_string(item_ids[next]) + "," +
               std::to_string(order_ids[index]) + "," + database_.Quoted(item.article) + "," +
               std::to_string(item.quantity) + ")";
        ++next;
      }
    }
    return sql;
  }

  Database& database_;
  idclient::Tag order_tag_;
  idclient::Tag item_tag_;
};

// Orders of one to five items; the quotation mark shows that texts are escaped.
[[nodiscard]] std::vector<Order> MakeOrders(std::size_t first, std::size_t count) {
  std::vector<Order> orders(count);
  for (std::size_t index = 0; index < count; ++index) {
    const std::size_t number = first + index;
    orders[index].customer = "O'Neill " + std::to_string(number % 100);
    for (std::size_t item = 0; item < 1 + number % 5; ++item) {
      orders[index].items.push_back({"article " + std::to_string(item), 1});
    }
  }
  return orders;
}

[[nodiscard]] std::size_t ParseCount(std::string_view text) {
  std::size_t count = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  if (error != std::errc() || end != text.data() + text.size()) {
    throw std::runtime_error("ORDERS must be a number, got " + std::string(text));
  }
  return count;
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 5) {
    std::cerr << "usage: insert_orders SOCKET USER DATABASE ORDERS\n";
    return 2;
  }
  const std::size_t count = ParseCount(argv[4]);
  idclient::Client ids;  // $IDD_SOCKET, else /run/idd/idd.sock
  Database database(argv[1], argv[2], argv[3]);
  OrderStore store(database, ids);
  std::size_t items = 0;
  for (std::size_t first = 0; first < count; first += kOrdersPerBatch) {
    const std::vector<Order> orders = MakeOrders(first, std::min(kOrdersPerBatch, count - first));
    store.Insert(orders);
    for (const Order& order : orders) items += order.items.size();
  }
  std::cout << "orders=" << count << " items=" << items << '\n';
} catch (const std::exception& error) {  // idclient::Error is one, and says why there are no ids
  std::cerr << "insert_orders: " << error.what() << '\n';
  return 1;
}
