// SPDX-License-Identifier: Apache-2.0
//
// The protocol of shm/include/idd/shm/abi.h: one daemon, CLAIMERS claimers, SLOTS slots. Every
// access to a shared word is one step, with the label it has in ring_protocol.h and
// ring_claimer.cc. README.md lists the assertions; run.py runs the model and its variants.
//
// A claimer may stop anywhere: no step waits for another process, so a stopped claimer is one that
// takes no further step, and the assertions are about steps that were taken.
//
//   -DCLAIMERS=n    how many claimers
//   -DBATCH=n       a claim is of 1 or of n ids
//   -DSEGMENTS=n    how many segments the daemon publishes, 1 to 4
//   -DDRAINS=n      how many times it drains the ring
//   -DSHARED_VIEW   the claimers are threads of one process, with one view and one position
//   -DWAITERS=1     when the ring is dry, the first id of the next segment may go to a waiting request
//   -DHOSTILE=n     a client writes n words of its choice into the cursors
//   -DKILLED=n      the daemon, and then the next one, may be killed n times between any two steps
//   -DQUICK         one claimer more, which nothing interrupts
//   -DLOOKUP_IN_ONE_STEP  finding the next segment is one step: fewer interleavings
//   -DRETIRE_IN_ONE_STEP  D3 D4 D1 of an exhausted segment are one step: fewer interleavings
//   -DENDS_STAND    ends are forgotten by recycling alone: fewer interleavings
//   -DMOVES         mode snowflake: a claimer may move the cursor with the time before it adds
//   -DDAEMON_MOVES  the daemon may do so at any time
//
// Every other define changes one thing and makes a variant.

// --- What is published ---

#ifndef SLOTS
#define SLOTS 2
#endif
#define SLOT(s) ((s) % SLOTS)
#define DRY SLOTS /* a view that shows no slot */
#define CLOSING 64 /* kClosingStep: a quarter of a byte's range */

// Segment s is [BASE(s), LIMIT(s)). Late adds to segment 1 reach into segment 3, the next one in
// its slot, so an overshoot could be mistaken for an id.
#if defined(HOSTILE)
// Here the ids between the segments belong to another host.
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
// The ids [first, limit) as a set of bits. Ids are below 14.
#define BELOW(limit) ((1 << MIN(limit, 14)) - 1)
#define IDS(first, limit) (BELOW(limit) & ~BELOW(first))
#define OF(s) IDS(BASE(s), LIMIT(s))

// --- Shared memory ---

typedef Slot { byte segment, base, limit, cursor, ended_segment, ended_at };
Slot slots[SLOTS];
byte tail_segment;
byte head_segment = 1;

// --- What a client's process knows: ClaimView, ClaimPoint::segment, RingClaimer::position_ ---

// `position` is twice the segment's number, plus 1 if that segment is exhausted.
#define KNOWLEDGE           \
  byte view = DRY;          \
  byte known_segment[SLOTS]; \
  byte position = 1;
#ifdef LOOKUP_IN_ONE_STEP
#define LOOKUP atomic
#else
#define LOOKUP
#endif
#ifdef RETIRE_IN_ONE_STEP
#define STEP_OF_RETIRING atomic
#else
#define STEP_OF_RETIRING
#endif
#ifdef SHARED_VIEW
#define STEP
KNOWLEDGE
#define OWN_KNOWLEDGE
#else
#define STEP atomic /* one access to shared memory, and steps that no other process can see */
#define OWN_KNOWLEDGE KNOWLEDGE
#endif

// --- What the assertions compare; the protocol does not read it ---

short published;     // ids of segments that were published (P5)
short forgotten;     // ids of segments whose end is no longer recorded (D5), or never will be
short taken;         // ids covered by adds to their segment's cursor, and waiters' ids
short accepted;      // ids that a claim has returned
short drained;       // ids that a drain returned: they are leased again and handed out elsewhere
byte in_cursor[SLOTS]; // the segment that the cursor belongs to, from P3 on
byte newest;         // the largest id of a claim that has returned
byte rest = TOP + 4; // the least id that a next daemon may hand out, once it closed every cursor
hidden byte twice, outside, elsewhere, after_end, gap, disorder, unaccounted, beyond;

// With forged cursors, ids come twice until the daemon notices. The bounds still hold: `outside`,
// `elsewhere` and `after_end`. TWICE_ONLY asks whether a variant that violates several assertions
// really hands out an id twice.
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

// A claim returns [first, limit); `before` was the newest id when it began.
inline Return(first, limit) {
  outside = OTHERS && (IDS(first, limit) & ~published) != 0;
  assert(!outside);
  elsewhere = (IDS(first, limit) & drained) != 0;
  assert(!elsewhere);
  twice = HONEST && (IDS(first, limit) & accepted) != 0;
  assert(!twice);
  disorder = HONEST && OTHERS && (first <= before || limit > rest);
  assert(!disorder);
  accepted = accepted | (HONEST -> IDS(first, limit) : 0);
  newest = (HONEST -> MAX(newest, limit - 1) : 0)
}

// Published = taken (accepted, lost with a claimer, given up or skipped by a move) + still in the
// cursor. `next` is the first id of segment s that no claimer has taken.
inline CheckAccount(s, next) {
  unaccounted = HONEST && OTHERS && (taken & OF(s)) != IDS(BASE(s), MIN(next, LIMIT(s)));
  assert(!unaccounted)
}

// --- The time moves on ---

// MoveWithTime() of snowflake.h after U1, which has read `next`. `target` becomes min(now, limit),
// where `now` is any number: a clock may be late, ahead or set back at any moment. Targets up to
// `next` are left out, because they move nothing. That the code leaves a cursor below the base alone
// is left out too, so that more moves are made here.
inline ReadTarget(index, next, target) {
#ifdef MOVE_LIMIT_FIRST
  target = slots[index].limit; // C2
  atomic {
    next = slots[index].cursor; // U1
    AnyTime(next, target)
  }
#else
  atomic {
    target = slots[index].limit; // C2
    AnyTime(next, target)
  }
#endif
}
inline AnyTime(next, target) {
#ifdef MOVE_WITHOUT_LIMIT
  target = CLOSING + 2;
#endif
  do
#ifdef MOVE_BACK
  :: target > 1 -> target--
#else
  :: target > next + 1 -> target--
#endif
  :: break
  od
}
inline CompareAndMove(index, next, target) {
  do
#if defined(MOVE_BACK) || defined(MOVE_TO_OLD_LIMIT)
  :: next == target || target == 0 || next >= CLOSING -> break
#elif defined(MOVE_REOPENS)
  :: next % CLOSING >= target -> break
#else
  :: next >= target -> break
#endif
  :: else ->
    d_step { // U2
      if
#ifdef MOVE_BY_STORE
      :: true ->
#else
      :: slots[index].cursor == next ->
#endif
        SkipTo(index, target);
        next = target
#ifndef MOVE_BY_STORE
      :: else ->
        next = slots[index].cursor;
#ifdef MOVE_TRIES_AGAIN_BLINDLY
        if
        :: next < CLOSING -> SkipTo(index, target)
        :: else
        fi;
        next = target
#endif
#endif
      fi
    }
  od;
  next = 0;
  target = 0
}
// What is skipped counts as used.
inline SkipTo(index, target) {
  if
  :: HONEST && in_cursor[index] != 0 ->
    beyond = OTHERS && target > LIMIT(in_cursor[index]);
    assert(!beyond);
#ifndef MOVED_IS_CLAIMED
    taken = taken | (IDS(slots[index].cursor, target) & OF(in_cursor[index]))
#endif
  :: else
  fi;
  slots[index].cursor = target
}

// --- A claim ---

// ClaimAtPoint up to its add: `added` records whether one was made. BATCH looks before it adds
// (C0).
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
    assert(first + n < 4 * CLOSING);
    forgone = (HONEST -> 0 : IDS(first, first + n) & forgotten);
    if
    :: HONEST && in_cursor[slot] != 0 ->
      taken = taken | (IDS(first, first + n) & OF(in_cursor[slot]));
      owed = (in_cursor[slot] == known -> IDS(first, first + n) & OF(known) : 0)
    :: else
    fi
  }
}

// The claim returns what it may keep of what it added; anything that begins later comes after it.
// No id added to its own segment is lost as long as the segment, or its end, is recorded.
inline Accept() {
  after_end = OTHERS && (forgone & IDS(first, limit)) != 0;
  assert(!after_end);
  gap = OTHERS && (owed & ~IDS(first, limit)) != 0;
  assert(!gap);
  Return(first, limit);
  before = 0;
  ok = true;
  ForgetAdd()
}
inline Refuse() {
  gap = OTHERS && owed != 0 && (slots[slot].segment == known || slots[slot].ended_segment == known);
  assert(!gap);
  ForgetAdd()
}
inline ForgetAdd() {
  added = false;
  overtaken = false;
  first = 0;
  base = 0;
  limit = 0;
  forgone = 0;
  owed = 0;
  slot = 0;
  known = 0;
  n = 0
}

// The rest of ClaimFromSlot, if an add was made: `ok` records whether it brought ids.
inline LookWhatWasAdded() {
  if
  :: added ->
#ifdef SEGMENT_CHECK_BEFORE_LIMIT
    overtaken = slots[slot].segment != known;
#endif
    limit = slots[slot].limit; // C2
    base = slots[slot].base;   // C3
    d_step {                   // C5
#if defined(NO_SEGMENT_CHECK) || defined(SEGMENT_CHECK_BEFORE_ADD)
      overtaken = false;
#elif !defined(SEGMENT_CHECK_BEFORE_LIMIT)
      overtaken = slots[slot].segment != known;
#endif
      if
#ifdef NO_BASE_CHECK
      :: first < limit ->
#else
      :: first >= base && first < limit ->
#endif
#ifdef BATCH_NOT_CUT
        limit = first + n;
#else
        limit = MIN(first + n, limit);
#endif
        base = 0;
        if
        :: overtaken
        :: else -> Accept()
        fi
      :: else -> Refuse()
      fi
    };
#ifdef OVERTAKEN_GIVES_UP
    d_step {
      if
      :: overtaken -> Refuse()
      :: else
      fi
    }
#else
    KeepOvertaken()
#endif
  :: else
  fi
}

// The real claimer looks for the end a bounded number of times. Here it looks until the end is
// recorded, or gives up at any time. Only what it gives up may be lost.
inline KeepOvertaken() {
  do
  :: !overtaken -> break
#ifdef NO_END_COMPARED
  :: overtaken && slots[slot].ended_segment != 0 -> // C6
#else
  :: overtaken && slots[slot].ended_segment == known -> // C6
#endif
    base = slots[slot].ended_at; // C7
    d_step {                     // C8
      if
#if defined(NO_C8) || defined(NO_END_COMPARED)
      :: first < base ->
#else
      :: slots[slot].ended_segment == known && first < base ->
#endif
#ifndef END_NOT_CUT
        limit = MIN(limit, base);
#endif
        Accept()
      :: else -> Refuse()
      fi
    }
#ifdef NO_END_COMPARED
  :: overtaken && slots[slot].ended_segment == 0 ->
#else
  :: overtaken && slots[slot].ended_segment != known ->
#endif
    if
    :: d_step { slots[slot].segment != 0 -> Refuse() } // C5 again: recycled
    :: slots[slot].segment == 0
    :: d_step { slots[slot].segment == 0 -> ForgetAdd() } // gives up
    fi
  od
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
  short forgone, owed;
  bool added, ok, overtaken, moves;

end:
  do
  :: STEP {
      before = (watched -> newest : 0);
#ifdef MOVES
      slot = view; // N1
      if
      :: slot != DRY -> first = slots[slot].cursor; moves = true // U1
      :: AddAtPoint() // the time does not move the cursor
      fi
    };
    if
    :: moves ->
      ReadTarget(slot, first, limit);
      CompareAndMove(slot, first, limit);
      STEP { moves = false; AddAtPoint() }
    :: else
    fi;
#else
      AddAtPoint()
    };
#endif
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

// A claimer that is never interrupted: it attaches, claims once and ends. It supplies the exhausted
// and recycled slots that the other claimers sleep over, and its ids are compared with all of
// theirs.
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

#ifdef KILLED
#define OR_KILLED              \
  if                           \
  :: kills < KILLED -> goto killed \
  :: true                      \
  fi;
#else
#define OR_KILLED
#endif

#define NUMBER (next - 1)

inline P1() { slots[SLOT(NUMBER)].segment = 0 }
inline P2() { slots[SLOT(NUMBER)].base = BASE(NUMBER) }
inline P3() {
  d_step {
    in_cursor[SLOT(NUMBER)] = NUMBER;
    taken = taken | (HONEST -> IDS(BASE(NUMBER), BASE(NUMBER) + given) : 0);
#ifdef CURSOR_AT_BASE
    slots[SLOT(NUMBER)].cursor = BASE(NUMBER)
#else
    slots[SLOT(NUMBER)].cursor = BASE(NUMBER) + given
#endif
  }
}
inline P4() { slots[SLOT(NUMBER)].limit = LIMIT(NUMBER) }
inline P5() {
  d_step {
    slots[SLOT(NUMBER)].segment = NUMBER;
    published = published | OF(NUMBER)
  }
}
inline P6() { tail_segment = NUMBER }

inline Publish() {
#ifndef NO_D5
  if
  :: slots[SLOT(NUMBER)].ended_segment != 0 -> D5(SLOT(NUMBER)); OR_KILLED
  :: else
  fi;
#endif
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
  P1(); OR_KILLED P2(); OR_KILLED P3(); OR_KILLED P4(); OR_KILLED P5(); OR_KILLED P6()
#endif
}

inline D1(s) {
#if defined(NO_D1) || defined(NO_P1_NO_D1)
  skip
#else
  slots[SLOT(s)].segment = 0
#endif
}

// Another host may hand out the drained ids at once.
inline Drained(s, next) {
  CheckAccount(s, next);
  twice = HONEST && (IDS(MIN(next, LIMIT(s)), LIMIT(s)) & accepted) != 0;
  assert(!twice);
  drained = drained | IDS(MIN(next, LIMIT(s)), LIMIT(s))
}

// Nothing is handed back from a cursor that is known to be forged. The modelled daemon knows less
// than the real one: it remembers only the base of a cursor.
#define FORGED(s, next) (!HONEST && ((next) < BASE(s) || (next) >= BASE(s) + CLOSING))

inline D2(s) {
#ifdef DRAIN_LOAD_STORE
  old = slots[SLOT(s)].cursor;
#endif
  d_step {
#ifndef DRAIN_LOAD_STORE
    old = slots[SLOT(s)].cursor;
#endif
#ifndef DRAIN_WITHOUT_D2
    slots[SLOT(s)].cursor = old + CLOSING;
#endif
    if
    :: FORGED(s, old) -> forgotten = forgotten | OF(s); old = 0
    :: else -> Drained(s, old); old = MIN(old, LIMIT(s))
    fi
  }
}

inline D3(s, end) { slots[SLOT(s)].ended_at = end }
inline D4(s) { slots[SLOT(s)].ended_segment = s }
inline D5(slot_of) {
  d_step {
    forgotten = forgotten |
                (!HONEST && slots[slot_of].ended_segment != 0 -> OF(slots[slot_of].ended_segment) : 0);
    slots[slot_of].ended_segment = 0;
#ifndef NO_C8
    slots[slot_of].ended_at = 0 // no process reads it any more: fewer states
#endif
  }
}

inline RecordEnd(s, end) {
#ifdef D4_BEFORE_D3
  D4(s); OR_KILLED D3(s, end)
#else
  D3(s, end); OR_KILLED D4(s)
#endif
}

inline Retire(s) {
#ifdef D1_BEFORE_D3
  D1(s); OR_KILLED RecordEnd(s, LIMIT(s))
#else
  STEP_OF_RETIRING { RecordEnd(s, LIMIT(s)); OR_KILLED D1(s) }
#endif
}

inline Drain(s) {
#ifdef D2_BEFORE_D1
  D2(s); OR_KILLED D1(s); OR_KILLED
#elif defined(D4_BEFORE_D2)
  D1(s);
  d_step { old = slots[SLOT(s)].cursor; old = MIN(old, LIMIT(s)) };
  RecordEnd(s, old);
  D2(s);
  old = 0;
#else
  D1(s); OR_KILLED D2(s); OR_KILLED
#endif
  if
  :: old != 0 -> RecordEnd(s, old)
  :: else
  fi;
  old = 0
}

#ifdef KILLED
// The next daemon after a kill: it can write the cursors but not the table, and knows the leases
// from the ledger. It publishes what is left of them in new rings.
inline NextDaemon() {
#ifdef CLOSE_OLDEST_FIRST
  s = head;
  do
  :: s == next -> break
  :: s < next -> CloseAndTake(s); OR_KILLED s++
  od;
#else
  s = next;
  do
  :: s == head -> break
  :: s > head -> s--; CloseAndTake(s); OR_KILLED
  od;
#endif
  atomic {
    rest = (given != 0 -> given : rest);
    disorder = newest >= rest;
    assert(!disorder)
  }
}

inline CloseAndTake(s) {
  if
  :: slots[SLOT(s)].ended_segment == s -> // the table records its end
    d_step { old = slots[SLOT(s)].ended_at; CheckAccount(s, old); Take(s) }
#ifndef CLOSE_UNPUBLISHED
  :: slots[SLOT(s)].ended_segment != s && slots[SLOT(s)].limit != LIMIT(s) ->
    // Killed before P4: s was never published. Adds of a sleeper to its cursor were given up.
    d_step { old = BASE(s); taken = taken & ~OF(s); Take(s) }
  :: slots[SLOT(s)].ended_segment != s && slots[SLOT(s)].limit == LIMIT(s) ->
#else
  :: slots[SLOT(s)].ended_segment != s ->
#endif
#ifdef CLOSE_AGAIN
    d_step {
      slots[SLOT(s)].cursor = slots[SLOT(s)].cursor + CLOSING;
      old = slots[SLOT(s)].cursor % CLOSING;
    };
#else
    d_step {
      old = slots[SLOT(s)].cursor;
      if
      :: old >= BASE(s) + CLOSING -> // closed by one that was killed before it recorded the end
        old = old - CLOSING;
#ifdef KILLED_IN_DRAIN_IS_EXACT
        CheckAccount(s, old)
#endif
      :: else -> // D2
        CheckAccount(s, old);
        slots[SLOT(s)].cursor = old + CLOSING
      fi
    };
#endif
    OR_KILLED
    d_step { Take(s) }
  fi
}

// If a kill cut a drain short, late adds to the closed cursor count as claims; but no claimed id
// counts as unclaimed.
inline Take(s) {
  twice = (IDS(MIN(old, LIMIT(s)), LIMIT(s)) & (accepted | taken)) != 0;
  assert(!twice);
  drained = drained | IDS(MIN(old, LIMIT(s)), LIMIT(s));
  if
#ifdef CLOSE_OLDEST_FIRST
  :: old < LIMIT(s) && given == 0 -> given = old
#else
  :: old < LIMIT(s) -> given = old
#endif
  :: else
  fi;
  old = 0
}
#endif

proctype Daemon() {
  byte next = 1; // the next to publish
  byte head = 1; // the oldest that is not retired
  byte drains, s, old, given, before, kills;

end:
  do
  :: next <= SEGMENTS && next - head < SLOTS ->
    atomic {
      before = newest;
      if
      :: given = 0
      :: WAITERS && head == next -> given = 1 // the ring was dry: the first id goes to a waiting request
      fi;
      next++ // from now on the ledger has the lease
    };
    Publish();
    d_step {
      if
      :: given == 1 -> Return(BASE(NUMBER), BASE(NUMBER) + 1)
      :: else
      fi;
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
    OR_KILLED
    Retire(head);
    OR_KILLED
    d_step { head++; head_segment = head } // H1

#ifdef DAEMON_MOVES
    // MoveWithTime, one segment: the table's limit is the daemon's own.
  :: head < next ->
    atomic {
      if
      :: s = head
      :: next - head > 1 -> s = next - 1
      fi;
      old = slots[SLOT(s)].cursor // U1
    };
    OR_KILLED
    atomic { before = LIMIT(s); AnyTime(old, before) };
    CompareAndMove(SLOT(s), old, before);
    s = 0
#endif

    // ClearOldEnds
#if !defined(NO_D5) && !defined(ENDS_STAND)
  :: slots[0].ended_segment != 0 -> D5(0)
  :: slots[SLOTS - 1].ended_segment != 0 -> D5(SLOTS - 1)
#endif

    // DrainAll: the newest first
  :: drains < DRAINS && head < next ->
#ifdef DRAIN_OLDEST_FIRST
    d_step { drains++; s = head };
    do
    :: s == next -> break
    :: s < next -> Drain(s); s++
    od;
#else
    d_step { drains++; s = next };
    do
    :: s == head -> break
    :: s > head -> s--; Drain(s)
    od;
#endif
    atomic { head = next; head_segment = head; s = 0 } // H1
#ifdef KILLED
  :: kills < KILLED -> goto killed
#endif
  od;

#ifdef KILLED
killed:
  atomic { kills++; head = head_segment; given = 0; before = 0; old = 0; drains = 0 };
  NextDaemon()
#endif
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
      run Claimer(id == 0) // the claims of only one are compared, as all are alike
    }
    id = 0
  }
}
