// SPDX-License-Identifier: Apache-2.0
package dev.idd.client.adapter;

import dev.idd.client.IdClient;

/**
 * Ids in the shape of Meituan Leaf's {@code com.sankuai.inf.leaf.IDGen}: a program that is written
 * against that interface can implement it by delegation. A key is a tag.
 */
public interface LeafIdGen {
  /**
   * Claims one id. Does not throw for operating errors.
   *
   * @param key the tag's name
   * @return the id, or why there is none
   */
  LeafResult get(String key);

  /**
   * Has nothing to do: the client has connected when it was opened. Leaf's services call it once at
   * their start.
   *
   * @return true
   */
  boolean init();

  /**
   * Ids of a client's tags. Opens each tag at its first use and keeps it open.
   *
   * @param client not closed by the generator
   * @return a thread-safe generator
   */
  static LeafIdGen of(IdClient client) {
    return new ClientLeafIdGen(client);
  }
}
