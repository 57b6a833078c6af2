// SPDX-License-Identifier: Apache-2.0
package dev.idd.example;

import dev.idd.client.IdClient;
import dev.idd.client.IdRange;
import dev.idd.client.IdTag;
import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.SQLException;
import java.util.List;

/**
 * Stores orders over JDBC with ids of idd as primary keys.
 *
 * <p>The ids are known before the rows are written, so that an order and its lines are one batch
 * without {@code getGeneratedKeys()}. Thread-safe.
 */
public final class OrderService {
  private final IdTag orders;
  private final IdTag lines;

  /**
   * A service that uses the tags {@code orders} and {@code order_lines}.
   *
   * @param client outlives the service
   */
  public OrderService(IdClient client) {
    orders = client.tag("orders");
    lines = client.tag("order_lines");
  }

  /**
   * Stores an order and its lines. The caller commits.
   *
   * @param connection to the database
   * @param customer who ordered
   * @param articles one line each
   * @return the order's id
   * @throws SQLException from the database
   */
  public long store(Connection connection, String customer, List<String> articles)
      throws SQLException {
    long order = orders.claim();
    try (PreparedStatement insert =
        connection.prepareStatement("INSERT INTO orders (id, customer) VALUES (?, ?)")) {
      insert.setLong(1, order);
      insert.setString(2, customer);
      insert.executeUpdate();
    }
    storeLines(connection, order, articles);
    return order;
  }

  private void storeLines(Connection connection, long order, List<String> articles)
      throws SQLException {
    try (PreparedStatement insert =
        connection.prepareStatement(
            "INSERT INTO order_lines (id, order_id, article) VALUES (?, ?, ?)")) {
      int stored = 0;
      while (stored < articles.size()) {
        // A range has fewer ids than asked for at the end of a segment.
        IdRange range = lines.claimRange(articles.size() - stored);
        for (long id : range) {
          insert.setLong(1, id);
          insert.setLong(2, order);
          insert.setString(3, articles.get(stored++));
          insert.addBatch();
        }
      }
      insert.executeBatch();
    }
  }
}
