// SPDX-License-Identifier: Apache-2.0
package dev.idd.client;

import java.util.NoSuchElementException;
import java.util.PrimitiveIterator;
import java.util.stream.LongStream;

/**
 * Contiguous ids, from {@code first} up to, but not including, {@code first + count}.
 *
 * @param first the smallest id
 * @param count how many ids there are; at least 1 in a range that was claimed
 */
public record IdRange(long first, int count) implements Iterable<Long> {
  /**
   * The ids, rising; {@code nextLong()} does not box them.
   *
   * @return a new iterator
   */
  @Override
  public PrimitiveIterator.OfLong iterator() {
    return new Ids(first, count);
  }

  /**
   * The ids, rising.
   *
   * @return a new stream
   */
  public LongStream stream() {
    return LongStream.range(first, first + count);
  }

  private static final class Ids implements PrimitiveIterator.OfLong {
    private long next;
    private int left;

    Ids(long first, int count) {
      next = first;
      left = count;
    }

    @Override
    public boolean hasNext() {
      return left > 0;
    }

    @Override
    public long nextLong() {
      if (left <= 0) {
        throw new NoSuchElementException("the range has no more ids");
      }
      --left;
      return next++;
    }
  }
}
