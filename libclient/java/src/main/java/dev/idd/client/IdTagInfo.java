// SPDX-License-Identifier: Apache-2.0
package dev.idd.client;

/**
 * What this process can see of a tag.
 *
 * @param mode how the tag's ids are made
 * @param order how ids rise on this host
 * @param state what claims can expect now
 * @param step ids of the next lease; 0 without a ring and in mode snowflake
 * @param available ids that this host's ring has, for all programs; 0 in mode snowflake
 * @param coverMillis how long they last, in milliseconds; {@link #UNKNOWN} without load or ring
 */
public record IdTagInfo(
    Mode mode, Order order, State state, long step, long available, long coverMillis) {
  /** A {@link #coverMillis()} that is not known. */
  public static final long UNKNOWN = -1;

  /** How ids are made. */
  public enum Mode {
    /** The daemon is older or newer than this library. */
    UNKNOWN,
    /** From leased segments. */
    SEGMENT,
    /** Ids carry time. */
    SNOWFLAKE,
    /** Ids rise over all hosts; each claim asks the allocator. */
    TICKET
  }

  /** How ids rise on one host. */
  public enum Order {
    /** The library is newer than these classes. */
    UNKNOWN,
    /** Ids rise on the host. */
    HOST,
    /** Ids rise in a CPU's lane. */
    CPU
  }

  /** What claims can expect. */
  public enum State {
    /**
     * Every claim asks the daemon: mode ticket, access socket, or a ring that was closed and has no
     * successor yet.
     */
    NO_RING,
    /** The ring has ids. */
    OK,
    /** The ring has no ids now. */
    DRY,
    /** The daemon has quarantined the tag. */
    QUARANTINED,
    /** An operator has drained the tag. */
    DRAINED,
    /** The library is newer than these classes. */
    UNKNOWN
  }

  /** From what NativeCalls.info() writes. */
  static IdTagInfo of(long[] fields) {
    return new IdTagInfo(
        valueAt(Mode.values(), fields[0], Mode.UNKNOWN),
        valueAt(Order.values(), fields[1], Order.UNKNOWN),
        valueAt(State.values(), fields[2], State.UNKNOWN),
        fields[3],
        fields[4],
        fields[5]);
  }

  private static <T> T valueAt(T[] values, long index, T unknown) {
    return index >= 0 && index < values.length ? values[(int) index] : unknown;
  }
}
