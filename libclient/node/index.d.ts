// SPDX-License-Identifier: Apache-2.0

declare global {
  interface SymbolConstructor {
    readonly dispose: unique symbol;
  }
}

/** The version of this package and of the C library that it uses. */
export const version: string;

export type Status =
  | 'INVALID'
  | 'UNAVAILABLE'
  | 'NO_SUCH_TAG'
  | 'DENIED'
  | 'TIMEOUT'
  | 'OUT_OF_IDS'
  | 'INCOMPATIBLE'
  | 'SYSTEM';

/** A failure of the library. Its message says what failed, why, and what to do. */
export class IdClientError extends Error {
  readonly status: Status;
  /** `IDCLIENT_` and the status. */
  readonly code: `IDCLIENT_${Status}`;
  /** Whether the same call may succeed later (UNAVAILABLE, TIMEOUT). */
  readonly retryable: boolean;
  /** Of claimMany: the ids that it claimed before it failed. They are yours. */
  readonly ids?: BigUint64Array;
  /** Of claimMany and claimInto: how many ids that is. */
  readonly claimed?: number;
}

export interface ClientOptions {
  /** The daemon's socket. Default: $IDD_SOCKET, else /run/idd/idd.sock. */
  socketPath?: string;
  /**
   * The longest wait, in milliseconds, of a claim on a dry ring, of the constructor and of tag().
   * 0 to 3,600,000; 0 means the default, 500.
   */
  timeoutMs?: number;
  /** A user whose daemon is trusted, like that of root, the caller and the user idd. */
  trustedUid?: number;
  /** The constructor and tag() try once and do not wait for a daemon that is not there. */
  openOnce?: boolean;
  /**
   * Gets what happens to the connection, later and on the event loop that made the client. Does not
   * keep the process alive: messages that are under way when it ends are lost. What it throws is
   * an uncaught exception.
   */
  log?: (level: 'info' | 'warning', message: string) => void;
}

export interface TagOptions {
  /**
   * How many ids each thread claims at once and hands out by itself, at most 65,536; 0 or 1: none.
   * Ids then rise within a thread only.
   */
  blockSize?: number;
}

export interface ClaimOptions {
  /** The longest wait of this claim, instead of the client's. 0: no wait. */
  timeoutMs?: number;
}

export interface ClaimAsyncOptions extends ClaimOptions {
  /** Rejects the claim with the signal's reason. An id that arrives after that is a gap. */
  signal?: AbortSignal;
}

export interface TagInfo {
  mode: 'unknown' | 'segment' | 'snowflake' | 'ticket';
  order: 'unknown' | 'host' | 'cpu';
  state: 'unknown' | 'no_ring' | 'ok' | 'dry' | 'quarantined' | 'drained';
  /** Ids of the next lease; 0 without a ring and in mode snowflake. Rounded above 2^53. */
  step: number;
  /** Ids that this host's ring has for all programs; 0 in mode snowflake. Rounded above 2^53. */
  available: number;
  /** How long they last, in milliseconds; undefined without load or ring. */
  coverMs: number | undefined;
}

/** Contiguous ids [first, first + count). */
export class IdRange implements Iterable<bigint> {
  private constructor();
  readonly first: bigint;
  readonly count: number;
  [Symbol.iterator](): IterableIterator<bigint>;
}

/**
 * One tag, made by Client.tag(). Keeps its client open. After close(), of the tag or of the client,
 * every method but close() fails with INVALID.
 *
 * Each method that can fail throws IdClientError; claimAsync rejects with it.
 */
export class Tag {
  private constructor();
  readonly name: string;

  /**
   * Claims one id. Never waits while the ring has ids. If it is dry, blocks the event loop until an
   * id comes, for at most timeoutMs. Needs no `this`.
   */
  readonly claim: (options?: ClaimOptions) => bigint;

  /** Claims one id without a wait; undefined: there is none now. Needs no `this`. */
  readonly tryClaim: () => bigint | undefined;

  /**
   * claim() with a number as its result. Throws a RangeError with the code IDCLIENT_NUMBER_RANGE
   * for an id above Number.MAX_SAFE_INTEGER. The id is in the error's `id`; if the program does not
   * use that, it is a gap. Needs no `this`.
   */
  readonly claimNumber: (options?: ClaimOptions) => number;

  /** Claims one id. If the ring is dry, waits without blocking the event loop. */
  claimAsync(options?: ClaimAsyncOptions): Promise<bigint>;

  /**
   * Claims `count` rising ids, not necessarily contiguous. Blocks the event loop while the ring is
   * dry. An error has the ids that were claimed before it.
   */
  claimMany(count: number): BigUint64Array;

  /**
   * Fills an array as claimMany does. Returns how many ids it claimed: fewer than the length only
   * if it failed after them. Throws if it could claim none.
   */
  claimInto(ids: BigUint64Array): number;

  /**
   * Claims the largest contiguous run up to `count` that one segment has left; at least one id.
   * Blocks the event loop while the ring is dry.
   */
  claimRange(count: number): IdRange;

  /** What this process can see of the tag, without a request and without a wait. */
  info(): TagInfo;

  /** Closes this handle; others of the same tag stay open. Claims that wait are rejected. */
  close(): void;
  [Symbol.dispose](): void;
}

/** A connection to the host's idd. A worker makes its own. */
export class Client {
  /** Connects. Blocks the event loop for at most timeoutMs if there is no daemon yet. */
  constructor(options?: ClientOptions);

  /** Opens a tag: 1 to 128 bytes of printable UTF-8. Waits like the constructor. */
  tag(name: string, options?: TagOptions): Tag;

  /** Closes the client and all its tags. Unclaimed ids stay in the ring. */
  close(): void;
  [Symbol.dispose](): void;
}
