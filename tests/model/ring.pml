// SPDX-License-Identifier: Apache-2.0
//
// The protocol of shm/include/idd/shm/abi.h: one daemon, CLAIMERS claimers, SLOTS slots. Every access
// to a shared word is a step of its own, under the label it has in ring_protocol.h and
// ring_claimer.cc. README.md says what is asserted; run.py runs the model and its variants.
//
// A claimer may stop anywhere: no step waits for another process, so a claimer that stops is one that
// takes no further step, and an assertion is about steps that were taken.
//
//   -DCLAIMERS=n    how many claimers
//   -DBATCH=n       a claim is of 1 or of n ids
//   -DSEGMENTS=n    how many segments the daemon publishes, 1 to 4
//   -DDRAINS=n      how many times it drains the ring
//   -DSHARED_VIEW   the claimers are threads of one process, with one view and one position
//   -DWAITERS=1     when the ring is dry, the first id of the next segment may go to a waiting request
//   -DHOSTILE=n     a client writes n words of its choice into the cursors
//   -DQUICK         one claimer more, which nothing interrupts
//   -DLOOKUP_IN_ONE_STEP  the way to the next segment is one step: fewer interleavings
//
// Every other define changes one thing: these are the variants.

// --- What is published ---

#ifndef SLOTS
#define SLOTS 2
#endif
#define SLOT(s) ((s) % SLOTS)
#define DRY SLOTS /* a view that shows no slot */
#define CLOSED 32 /* kClosedCursor: above every id and every overshoot */

// Segment s is [BASE(s), LIMIT(s)). What late claimers add to segment 1 reaches into segment 3, which
// is the next one in its slot: an overshoot can be taken for an id.
#if defined(HOSTILE)
// Here lie ids of another host between the segments.
#define BASE(s) ((s) == 1 -> 1 : ((s) == 2 -> 4 : ((s) == 3 -> 6 : 9)))
#define LIMIT(s) ((s) == 1 -> 3 : ((s) == 2 -> 5 : ((s) == 3 -> 8 : 10)))
#elif defined(BASE_BELOW_EARLIER_LIMIT)
#define BASE(s) ((s) == 1 -> 3 : ((s) == 2 -> 5 : ((s) == 3 -> 1 : 6)))
#define LIMIT(s) ((s) == 1 -> 5 : ((s) == 2 -> 6 : ((s) == 3 -> 3 : 7)))
#else
#define BASE(s) ((s) == 1 -> 1 : ((s) == 2 -> 3 : ((s) == 3 -> 4 : 6)))
#define LIMIT(s) ((s) == 1 -> 3 : ((s) == 2 -> 4 : ((s) == 3 -> 6 : 7)))
#endif
#define TOP 10 /* above every id */

#define MIN(a, b) ((a) < (b) -> (a) : (b))
#define MAX(a, b) ((a) > (b) -> (a) : (b))
// The ids [first, limit) as a set of bits. Ids lie below 14.
#define BELOW(limit) ((1 << MIN(limit, 14)) - 1)
#define IDS(first, limit) (BELOW(limit) & ~BELOW(first))
#define OF(s) IDS(BASE(s), LIMIT(s))

// --- Shared memory ---

typedef Slot { byte segment, base, limit, cursor };
Slot slots[SLOTS];
byte tail_segment;
byte head_segment = 1;

// --- What a client's process knows: ClaimView, ClaimPoint::segment, RingClaimer::position_ ---

// `position` is twice the segment's number, and 1 more when that segment is exhausted.
#define KNOWLEDGE           \
  byte view = DRY;          \
  byte known_segment[SLOTS]; \
  byte position = 1;
#ifdef LOOKUP_IN_ONE_STEP
#define LOOKUP atomic
#else
#define LOOKUP
#endif
#ifdef SHARED_VIEW
#define STEP
KNOWLEDGE
#define OWN_KNOWLEDGE
#else
#define STEP atomic /* one access to shared memory and what nobody else can see */
#define OWN_KNOWLEDGE KNOWLEDGE
#endif

// --- What the assertions compare; the protocol reads none of it ---

short published;     // ids of segments that were published (P5)
short withdrawn;     // ids of segments that were withdrawn (D1)
short taken;         // ids that adds to the cursor of their segment have covered, and waiters' ids
short accepted;      // ids that a claim has returned
short drained;       // ids that a drain returned: they are leased again and handed out elsewhere
byte in_cursor[SLOTS]; // the segment that a cursor is of, from P3 on
byte newest;         // the largest id of a claim that has returned
hidden byte twice, outside, after_withdrawal, disorder, unaccounted;

// With forged cursors ids come twice until the daemon notices: what holds all the same are the two
// bounds, `outside` and `after_withdrawal`. TWICE_ONLY asks whether a variant, which may offend in
// several ways, goes so far as to hand out an id twice.
#ifdef HOSTILE
#define HONEST 0
#else
#define HONEST 1
#endif
#ifdef TWICE_ONLY
#define OTHERS 0
#else
#define OTHERS 1
#endif

// A claim returns [first, limit); it began when `before` was the newest.
inline Return(first, limit) {
  outside = OTHERS && (IDS(first, limit) & ~published) != 0;
  assert(!outside);
  twice = HONEST && (IDS(first, limit) & (accepted | drained)) != 0;
  assert(!twice);
  disorder = HONEST && OTHERS && first <= before;
  assert(!disorder);
  accepted = accepted | (HONEST -> IDS(first, limit) : 0);
  newest = (HONEST -> MAX(newest, limit - 1) : 0)
}

// Published = taken (accepted, lost with a claimer or given up) + still in the cursor. `next` is the
// first id of segment s that nobody has taken.
inline CheckAccount(s, next) {
  unaccounted = HONEST && OTHERS && (taken & OF(s)) != IDS(BASE(s), MIN(next, LIMIT(s)));
  assert(!unaccounted)
}

// --- A claim ---

// ClaimAtPoint up to its add: `added` tells whether one was made. BATCH looks before it adds (C0).
inline AddAtPoint() {
  slot = view; // N1
  if
  :: slot != DRY -> known = known_segment[slot] // N3
  :: else
  fi;
  if
  :: slot == DRY
  :: slot != DRY -> n = 1
  :: slot != DRY && BATCH > 1 -> n = BATCH
  fi;
  if
  :: n == 0
#ifdef SEGMENT_CHECK_BEFORE_ADD
  :: n != 0 -> added = slots[slot].segment == known
#else
  :: n > 1 -> added = slots[slot].segment == known // C0
  :: n == 1 -> added = true
#endif
  fi;
  if
  :: added -> Add()
  :: else -> slot = 0; known = 0; n = 0
  fi
}

inline Add() {
  d_step { // C1
    first = slots[slot].cursor;
    slots[slot].cursor = first + n;
    assert(first + n < 2 * CLOSED);
    gone = IDS(first, first + n) & withdrawn;
    if
    :: HONEST && in_cursor[slot] != 0 -> taken = taken | (IDS(first, first + n) & OF(in_cursor[slot]))
    :: else
    fi
  }
}

// The rest of ClaimFromSlot, if an add was made: `ok` tells whether it brought ids.
inline LookWhatWasAdded() {
  if
  :: added ->
#ifdef SEGMENT_CHECK_BEFORE_LIMIT
    ok = slots[slot].segment == known;
#endif
    limit = slots[slot].limit; // C2
    base = slots[slot].base;   // C3
    d_step {                   // C5, and the claim returns: whatever begins later is behind it
#if defined(NO_SEGMENT_CHECK) || defined(SEGMENT_CHECK_BEFORE_ADD)
      ok = true;
#elif !defined(SEGMENT_CHECK_BEFORE_LIMIT)
      ok = slots[slot].segment == known;
#endif
      if
#ifdef NO_BASE_CHECK
      :: ok && first < limit ->
#else
      :: ok && first >= base && first < limit ->
#endif
#ifdef BATCH_NOT_CUT
        limit = first + n;
#else
        limit = MIN(first + n, limit);
#endif
#if !defined(TWICE_ONLY) && !(HONEST && defined(NO_D1))
        after_withdrawal = (gone & IDS(first, limit)) != 0;
        assert(!after_withdrawal);
#endif
        Return(first, limit);
        before = 0
      :: else -> ok = false
      fi;
      added = false;
      first = 0;
      base = 0;
      limit = 0;
      gone = 0;
      slot = 0;
      known = 0;
      n = 0
    }
  :: else
  fi
}

// Advance(): `found` is the slot of the oldest segment that has ids, or DRY.
inline Advance() {
  STEP {
    from = position;     // N5
    tail = tail_segment // C0
  };
  d_step {
    known = MAX(from / 2 + from % 2, head_segment); // H2
    if
    :: tail >= SLOTS -> known = MAX(known, tail - SLOTS + 1)
    :: else
    fi;
#ifdef STARTS_AT_TAIL
    known = MAX(known, tail);
#endif
    found = DRY
  };
  do
  :: known > tail -> break
  :: else ->
    if
    :: slots[SLOT(known)].segment != known -> known++ // C0
    :: else ->
      limit = slots[SLOT(known)].limit; // C2
      if
      :: slots[SLOT(known)].cursor >= limit -> known++; limit = 0 // L1
      :: else -> found = SLOT(known); limit = 0; break
      fi
    fi
  od;
#ifdef NO_PUBLISH_KNOWLEDGE
  if
  :: found == DRY && tail < SEGMENTS && known_segment[SLOT(tail + 1)] <= tail ->
    known = tail + 1;
    found = SLOT(known)
  :: else
  fi;
#endif
  if
  :: found != DRY ->
    known_segment[found] = MAX(known_segment[found], known); // N4
    position = MAX(position, 2 * known)                      // N6
  :: else -> position = MAX(position, 2 * MAX(tail, from / 2) + 1) // N6
  fi;
  known = 0;
  from = 0;
  tail = 0
}

proctype Claimer(bool watched) {
  OWN_KNOWLEDGE
  byte n, before, slot, known, first, limit, base, from, tail, seen, found;
  short gone;
  bool added, ok;

end:
  do
  :: STEP {
      before = (watched -> newest : 0);
      AddAtPoint()
    };
    LookWhatWasAdded();
    do // ClaimFromNext
    :: ok -> ok = false; break
    :: else ->
      LOOKUP {
        seen = view; // N1
        Advance();
        d_step {
          if
          :: view == seen -> view = found // N2
          :: else
          fi;
          seen = 0
        }
      };
      if
      :: found == DRY -> found = 0; before = 0; break
      :: else ->
        STEP {
          found = 0;
          AddAtPoint()
        };
        LookWhatWasAdded()
      fi
    od
  od
}

// A claimer that nothing ever interrupts: it attaches, claims once and is gone. It gives the others
// the exhausted and recycled slots to fall asleep over, and compares itself with all of them.
proctype Quick() {
  byte known, first, before;

end:
  do
  :: atomic {
      known = MAX(head_segment, (tail_segment >= SLOTS -> tail_segment - SLOTS + 1 : 1));
      do
      :: known > tail_segment -> break
      :: else ->
        if
        :: slots[SLOT(known)].segment == known &&
           slots[SLOT(known)].cursor < slots[SLOT(known)].limit &&
           slots[SLOT(known)].cursor >= slots[SLOT(known)].base ->
          d_step {
            before = newest;
            first = slots[SLOT(known)].cursor;
            slots[SLOT(known)].cursor++;
            taken = taken | IDS(first, first + 1);
            Return(first, first + 1);
            first = 0;
            before = 0
          };
          break
        :: else -> known++
        fi
      od;
      known = 0
    }
  od
}

// --- The daemon ---

inline P1() { slots[SLOT(next)].segment = 0 }
inline P2() { slots[SLOT(next)].base = BASE(next) }
inline P3() {
  d_step {
    in_cursor[SLOT(next)] = next;
    taken = taken | (HONEST -> IDS(BASE(next), BASE(next) + given) : 0);
#ifdef CURSOR_AT_BASE
    slots[SLOT(next)].cursor = BASE(next)
#else
    slots[SLOT(next)].cursor = BASE(next) + given
#endif
  }
}
inline P4() { slots[SLOT(next)].limit = LIMIT(next) }
inline P5() {
  d_step {
    slots[SLOT(next)].segment = next;
    published = published | OF(next)
  }
}
inline P6() { tail_segment = next }

inline Publish() {
#if defined(NO_P1) || defined(NO_P1_NO_D1)
  P2(); P3(); P4(); P5(); P6()
#elif defined(LIMIT_BEFORE_CURSOR)
  P1(); P2(); P4(); P3(); P5(); P6()
#elif defined(BASE_AFTER_LIMIT)
  P1(); P3(); P4(); P2(); P5(); P6()
#elif defined(BASE_AFTER_SEGMENT)
  P1(); P3(); P4(); P5(); P6(); P2()
#elif defined(SEGMENT_BEFORE_LIMIT)
  P1(); P2(); P3(); P5(); P4(); P6()
#elif defined(TAIL_BEFORE_LIMIT)
  P1(); P2(); P3(); P5(); P6(); P4()
#elif defined(TAIL_BEFORE_CURSOR)
  P1(); P2(); P4(); P5(); P6(); P3()
#elif defined(TAIL_BEFORE_SEGMENT)
  P1(); P2(); P3(); P4(); P6(); P5()
#else
  P1(); P2(); P3(); P4(); P5(); P6()
#endif
}

inline D1(s) {
  d_step {
    withdrawn = withdrawn | OF(s);
#if defined(NO_D1) || defined(NO_P1_NO_D1)
    skip
#else
    slots[SLOT(s)].segment = 0
#endif
  }
}

// What the drain returns may be handed out by another host at once.
inline Drained(s, next) {
  CheckAccount(s, next);
  twice = HONEST && (IDS(MIN(next, LIMIT(s)), LIMIT(s)) & accepted) != 0;
  assert(!twice);
  drained = drained | (HONEST -> IDS(MIN(next, LIMIT(s)), LIMIT(s)) : 0)
}

proctype Daemon() {
  byte next = 1; // to be published
  byte head = 1; // the oldest that was not retired
  byte drains, s, old, given, before;

end:
  do
  :: next <= SEGMENTS && next - head < SLOTS ->
    atomic {
      before = newest;
      if
      :: given = 0
      :: WAITERS && head == next -> given = 1 // the ring was dry: the first id goes to a waiting request
      fi
    };
    Publish();
    d_step {
      if
      :: given == 1 -> Return(BASE(next), BASE(next) + 1)
      :: else
      fi;
      next++;
      given = 0;
      before = 0
    }

    // RetireExhausted, one segment
#ifdef HEAD_BEFORE_LOOK
  :: head < next && head_segment == head -> head_segment = head + 1
#endif
#ifdef RECYCLE_EARLY
  :: head < next ->
    d_step { old = slots[SLOT(head)].cursor; CheckAccount(head, old); Drained(head, old); old = 0 };
#else
  :: atomic { head < next && slots[SLOT(head)].cursor >= LIMIT(head) -> // L1
      CheckAccount(head, slots[SLOT(head)].cursor)
    };
#endif
    D1(head);
    d_step { head++; head_segment = head } // H1

    // DrainAll
  :: drains < DRAINS && head < next ->
    d_step { drains++; s = head };
    do
    :: s == next -> break
    :: s < next ->
#ifdef DRAIN_LOAD_STORE
      old = slots[SLOT(s)].cursor;
      d_step { slots[SLOT(s)].cursor = CLOSED; Drained(s, old); old = 0 };
      D1(s);
#elif defined(DRAIN_WITHOUT_D2)
      D1(s);
      d_step { old = slots[SLOT(s)].cursor; Drained(s, old); old = 0 };
#else
      D1(s);
      d_step { // D2
        old = slots[SLOT(s)].cursor;
        slots[SLOT(s)].cursor = CLOSED;
        Drained(s, old);
        old = 0
      };
#endif
      s++
    od;
    atomic { head = next; head_segment = head; s = 0 } // H1
  od
}

#ifdef HOSTILE
proctype Hostile() {
  byte words, slot, word;

end:
  do
  :: words < HOSTILE ->
    atomic {
      words++;
      select(slot : 0 .. SLOTS - 1);
      select(word : 0 .. TOP);
      slots[slot].cursor = word;
      slot = 0;
      word = 0
    }
  od
}
#endif

init {
  byte id;
  atomic {
    run Daemon();
#ifdef HOSTILE
    run Hostile();
#endif
#ifdef QUICK
    run Quick();
#endif
    for (id : 0 .. CLAIMERS - 1) {
      run Claimer(id == 0) // the claims of one are compared: all are alike
    }
    id = 0
  }
}
