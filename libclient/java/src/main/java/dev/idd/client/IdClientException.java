// SPDX-License-Identifier: Apache-2.0
package dev.idd.client;

/** A failed call. The message is that of the C library: what failed, why, and what to do. */
public final class IdClientException extends RuntimeException {
  private static final long serialVersionUID = 1L;

  /** The kind of failure. */
  private final IdStatus status;

  /** See {@link #claimed()}. */
  private final int claimed;

  /**
   * A failure that claimed nothing.
   *
   * @param status the kind of failure
   * @param message a sentence that explains it
   */
  public IdClientException(IdStatus status, String message) {
    this(status, message, 0, null);
  }

  IdClientException(IdStatus status, String message, int claimed, Throwable cause) {
    super(message, cause);
    this.status = status;
    this.claimed = claimed;
  }

  /**
   * The kind of failure.
   *
   * @return never null
   */
  public IdStatus status() {
    return status;
  }

  /**
   * How many ids a failed {@link IdTag#claimMany(long[])} claimed before it failed. They are the
   * first elements of its array and belong to the caller.
   *
   * @return 0 for all other calls
   */
  public int claimed() {
    return claimed;
  }

  /**
   * Whether the same call may succeed later without a change by an operator or the program.
   *
   * @return that of {@link IdStatus#isRetryable()}
   */
  public boolean isRetryable() {
    return status.isRetryable();
  }
}
