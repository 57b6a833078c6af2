-- SPDX-License-Identifier: Apache-2.0
-- The tables of the examples, for MariaDB. An id of idd is at most 2^63 - 2, so it fits in a signed
-- BIGINT. No column has AUTO_INCREMENT: the programs bring the ids.
CREATE TABLE IF NOT EXISTS orders (
  id BIGINT NOT NULL,
  channel VARCHAR(16) NOT NULL COMMENT 'the program that inserted the order',
  customer VARCHAR(64) NOT NULL,
  PRIMARY KEY (id),
  KEY customer (customer)
) ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS order_items (
  id BIGINT NOT NULL,
  order_id BIGINT NOT NULL,
  article VARCHAR(64) NOT NULL,
  quantity INT NOT NULL,
  PRIMARY KEY (id),
  FOREIGN KEY (order_id) REFERENCES orders (id)
) ENGINE = InnoDB;
