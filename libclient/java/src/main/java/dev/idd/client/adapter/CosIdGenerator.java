// SPDX-License-Identifier: Apache-2.0
package dev.idd.client.adapter;

import dev.idd.client.IdTag;

/**
 * Ids in the shape of CosId's {@code me.ahoo.cosid.IdGenerator}: a program that is written against
 * that interface can implement it by delegation.
 */
@FunctionalInterface
public interface CosIdGenerator {
  /**
   * Claims one id.
   *
   * @return the id
   * @throws dev.idd.client.IdClientException see {@link IdTag#claim()}
   */
  long generate();

  /**
   * Claims one id.
   *
   * @return its decimal digits
   * @throws dev.idd.client.IdClientException see {@link IdTag#claim()}
   */
  default String generateAsString() {
    return Long.toString(generate());
  }

  /**
   * Ids of a tag.
   *
   * @param tag not closed by the generator
   * @return a thread-safe generator
   */
  static CosIdGenerator of(IdTag tag) {
    return tag::claim;
  }
}
