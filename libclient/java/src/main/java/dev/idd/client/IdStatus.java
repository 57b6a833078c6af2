// SPDX-License-Identifier: Apache-2.0
package dev.idd.client;

/** The kind of a failure: the statuses of the C library, without its prefix. */
public enum IdStatus {
  /** An argument or the tag's row is wrong, or the client or tag is closed. */
  INVALID,
  /** The daemon cannot be reached, or refuses for now. */
  UNAVAILABLE,
  /** The allocator has no such tag. */
  NO_SUCH_TAG,
  /** This user may not use the socket or the tag, or the daemon is not trusted. */
  DENIED,
  /** No ids were available before the deadline. */
  TIMEOUT,
  /** The tag's id space is used up. */
  OUT_OF_IDS,
  /** Daemon, native library and Java classes are not of matching versions. */
  INCOMPATIBLE,
  /** A system call failed, or the native library cannot be loaded. */
  SYSTEM;

  private static final IdStatus[] ALL = values();

  /**
   * Whether the same call may succeed later without a change by an operator or the program.
   *
   * @return true for UNAVAILABLE and TIMEOUT
   */
  public boolean isRetryable() {
    return this == UNAVAILABLE || this == TIMEOUT;
  }

  /** The status with the number of the C enum; SYSTEM for numbers that this version lacks. */
  static IdStatus of(long number) {
    return number >= 1 && number <= ALL.length ? ALL[(int) number - 1] : SYSTEM;
  }
}
