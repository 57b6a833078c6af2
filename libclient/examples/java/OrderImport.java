// SPDX-License-Identifier: Apache-2.0

import dev.idd.client.IdClient;
import dev.idd.client.IdClientException;
import dev.idd.client.IdTag;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.SQLException;
import java.util.ArrayList;
import java.util.List;

/**
 * Imports orders with items into MariaDB over JDBC.
 *
 * <pre>java -cp idclient-0.1.0.jar:mariadb-java-client.jar OrderImport.java URL USER ORDERS</pre>
 *
 * <p>The tables are those of {@code ../schema.sql}, the tags are {@code orders} and {@code
 * order_items}, and the password is {@code $MYSQL_PWD}. With {@code rewriteBatchedStatements=true}
 * in the URL, the driver sends each batch as an INSERT of many rows. The import reads no generated
 * keys: {@link IdTag#claimMany} has filled an array with the ids before the first row is added.
 */
public final class OrderImport {
  private static final int ORDERS_PER_BATCH = 250;

  private static final String INSERT_ORDER =
      "INSERT INTO orders (id, channel, customer) VALUES (?, 'java', ?)";
  private static final String INSERT_ITEM =
      "INSERT INTO order_items (id, order_id, article, quantity) VALUES (?, ?, ?, ?)";

  record Item(String article, int quantity) {}

  record Order(String customer, List<Item> items) {}

  private final Connection connection;
  private final IdTag orderIds;
  private final IdTag itemIds;

  /** Both must stay open as long as the import is in use. Turns off the connection's autocommit. */
  OrderImport(Connection connection, IdClient client) throws SQLException {
    this.connection = connection;
    connection.setAutoCommit(false);
    orderIds = client.tag("orders");
    itemIds = client.tag("order_items");
  }

  /** Commits all of the orders, or throws and leaves none. Ids of a failed batch become a gap. */
  void insert(List<Order> orders) throws SQLException {
    long[] ids = new long[orders.size()];
    long[] idsOfItems = new long[orders.stream().mapToInt(order -> order.items().size()).sum()];
    orderIds.claimMany(ids);
    itemIds.claimMany(idsOfItems);
    try {
      insertOrders(orders, ids);
      insertItems(orders, ids, idsOfItems);
      connection.commit();
    } catch (SQLException error) {
      connection.rollback();
      throw error;
    }
  }

  private void insertOrders(List<Order> orders, long[] ids) throws SQLException {
    try (PreparedStatement insert = connection.prepareStatement(INSERT_ORDER)) {
      for (int i = 0; i < ids.length; i++) {
        insert.setLong(1, ids[i]);
        insert.setString(2, orders.get(i).customer());
        insert.addBatch();
      }
      insert.executeBatch();
    }
  }

  private void insertItems(List<Order> orders, long[] ids, long[] idsOfItems)
      throws SQLException {
    int next = 0;
    try (PreparedStatement insert = connection.prepareStatement(INSERT_ITEM)) {
      for (int i = 0; i < ids.length; i++) {
        for (Item item : orders.get(i).items()) {
          insert.setLong(1, idsOfItems[next++]);
          insert.setLong(2, ids[i]);
          insert.setString(3, item.article());
          insert.setInt(4, item.quantity());
          insert.addBatch();
        }
      }
      insert.executeBatch();
    }
  }

  /** Orders of one to five items. */
  private static List<Order> makeOrders(int first, int count) {
    List<Order> orders = new ArrayList<>(count);
    for (int number = first; number < first + count; number++) {
      List<Item> items = new ArrayList<>();
      for (int item = 0; item < 1 + number % 5; item++) {
        items.add(new Item("article " + item, 1));
      }
      orders.add(new Order("customer " + number % 100, items));
    }
    return orders;
  }

  public static void main(String[] arguments) throws SQLException {
    if (arguments.length != 3) {
      System.err.println("usage: OrderImport URL USER ORDERS");
      System.exit(2);
    }
    int count = Integer.parseInt(arguments[2]);
    int items = 0;
    // IdClient.open(): $IDD_SOCKET, else /run/idd/idd.sock.
    try (IdClient client = IdClient.open();
        Connection connection =
            DriverManager.getConnection(arguments[0], arguments[1], System.getenv("MYSQL_PWD"))) {
      OrderImport orderImport = new OrderImport(connection, client);
      for (int first = 0; first < count; first += ORDERS_PER_BATCH) {
        List<Order> orders = makeOrders(first, Math.min(ORDERS_PER_BATCH, count - first));
        orderImport.insert(orders);
        items += orders.stream().mapToInt(order -> order.items().size()).sum();
      }
    } catch (IdClientException error) {
      System.err.println("OrderImport: " + error.status() + ": " + error.getMessage());
      System.exit(1);
    }
    System.out.println("orders=" + count + " items=" + items);
  }
}
