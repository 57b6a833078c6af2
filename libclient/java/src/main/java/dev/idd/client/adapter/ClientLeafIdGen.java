// SPDX-License-Identifier: Apache-2.0
package dev.idd.client.adapter;

import dev.idd.client.IdClient;
import dev.idd.client.IdClientException;
import dev.idd.client.IdTag;
import java.util.Objects;
import java.util.concurrent.ConcurrentHashMap;

/** {@link LeafIdGen#of}. */
final class ClientLeafIdGen implements LeafIdGen {
  private final IdClient client;
  private final ConcurrentHashMap<String, IdTag> tags = new ConcurrentHashMap<>();

  ClientLeafIdGen(IdClient client) {
    this.client = Objects.requireNonNull(client, "client");
  }

  @Override
  public LeafResult get(String key) {
    try {
      IdTag tag = tags.get(key);
      return LeafResult.success((tag != null ? tag : open(key)).claim());
    } catch (IdClientException error) {
      return LeafResult.failure(error);
    }
  }

  @Override
  public boolean init() {
    return true;
  }

  // Not inside computeIfAbsent(): this may wait for the daemon, with a lock on other keys.
  private IdTag open(String key) {
    IdTag opened = client.tag(key);
    IdTag earlier = tags.putIfAbsent(key, opened);
    if (earlier == null) {
      return opened;
    }
    opened.close();
    return earlier;
  }
}
