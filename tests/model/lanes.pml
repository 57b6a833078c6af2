// SPDX-License-Identifier: Apache-2.0
//
// Order cpu: THREADS claimers on CPUS processors, each with a lane, and the daemon. Labels are those of
// abi.h. README.md lists the assertions; lanes.py runs the model and its variants.
//
// A thread takes a step only while it is on a CPU. The scheduler may take it off, and put it on
// another, between any two steps. All that a restartable sequence gives is this: a thread that loses
// its CPU before the commit goes on at the abort handler. Each access to a word of a lane is a step.
// A claim from the slots (Y2) is one step, because ring.pml explores that.
//
//   -DTHREADS=n -DCPUS=n   claimers and CPUs
//   -DKILLS=n       so many claimers are killed, each at any step
//   -DDRAIN         the daemon withdraws and closes segment 1, and publishes segment 2
//   -DLATER_DAEMON  the daemon is killed; the next one closes the cursors and stops the lanes (Y6)
//   -DHOSTILE       a client writes two words of its choice into the lanes
//   -DRECYCLED      a segment's slot may be taken from a lane that has ids of it
//
// Every other define changes one thing and makes a variant.

#ifndef THREADS
#define THREADS 2
#endif
#ifndef CPUS
#define CPUS 1
#endif
#ifndef KILLS
#define KILLS 0
#endif

// Segment s is [BASE(s), LIMIT(s)), in a slot of its own. A block has two ids.
#define SEGMENTS 2
#define BLOCK 2
#ifndef IDS_OF_SEGMENT
#define IDS_OF_SEGMENT 4
#endif
#define BASE(s) (((s) - 1) * IDS_OF_SEGMENT + 1)
#define LIMIT(s) ((s) * IDS_OF_SEGMENT + 1)
#define TOP (LIMIT(SEGMENTS))
#define MIN(a, b) ((a) < (b) -> (a) : (b))
#define IDS(first, limit) (((1 << (limit)) - 1) & ~((1 << (first)) - 1))
#define BIT(id) (1 << (id))

#ifdef HOSTILE
#define HOSTILITY true
#else
#define HOSTILITY false
#endif

#define OFF 0 /* of on[]; otherwise the CPU and 1 */

typedef Lane { byte next, limit, segment };
Lane lanes[CPUS];
byte published[SEGMENTS + 1]; // SlotDescriptor.segment of each segment's slot
byte cursor[SEGMENTS + 1];
bool closed[SEGMENTS + 1];
byte tail = 1;

byte on[THREADS];
bool is_busy[CPUS];
bool in_sequence[THREADS], is_aborted[THREADS], is_dead[THREADS], is_done[THREADS];
byte kills = 0;

// What became of each id: bits.
int accepted = 0;  // a claim returned it
int returned = 0;  // the daemon took it out of the ring: it belongs to others
int given_up = 0;  // a claimer counted it as dropped, or refused it
int in_hand = 0;   // of a block that a thread has claimed and not yet given to a lane
byte floor[CPUS];  // ghost: one above the last id that the lane gave
bool is_drained = false;  // ghost: the drain is over

inline accept(id) {
#ifndef HOSTILE
  assert((accepted & BIT(id)) == 0);   // twice
  assert((returned & BIT(id)) == 0);   // twice: others have it
#endif
  accepted = accepted | BIT(id)
}

#define RUNS (on[me] != OFF && !is_aborted[me])
#define ABORTED (on[me] != OFF && is_aborted[me])
#define CPU (on[me] - 1)
#define LEAVE in_sequence[me] = false; is_aborted[me] = false

proctype Claimer(byte me) {
  byte c, v, l, s, first, end, old_limit, old_segment;
claim: // Y1
  atomic { on[me] != OFF; c = 0; v = 0; l = 0; s = 0; first = 0; end = 0; old_limit = 0; old_segment = 0;
#ifdef CPU_BEFORE_SEQUENCE
    c = CPU
#endif
  };
  atomic { on[me] != OFF;
#ifndef CLAIM_OUTSIDE
    in_sequence[me] = true
#endif
  };
#ifdef LOCKED_ADD
  // A thread without rseq adds to the lane of the CPU that it believes to be on.
  if
  :: me == 0 -> atomic { RUNS -> c = CPU; LEAVE };
     atomic { on[me] != OFF; v = lanes[c].next; l = lanes[c].limit; s = lanes[c].segment; lanes[c].next = v + 1;
       if :: v >= l -> goto turn_over :: else fi };
     goto look
  :: else
  fi;
#endif
#ifndef CPU_BEFORE_SEQUENCE
  if :: atomic { RUNS -> c = CPU
#ifdef TWO_NUMBERS
     ; if :: me == 0 -> c = CPUS - 1 - c :: else fi
#endif
     } :: atomic { ABORTED -> LEAVE; goto claim } fi;
#endif
  if :: atomic { RUNS -> v = lanes[c].next } :: atomic { ABORTED -> LEAVE; goto claim } fi;
  if :: atomic { RUNS -> l = lanes[c].limit } :: atomic { ABORTED -> LEAVE; goto claim } fi;
  if :: atomic { RUNS -> s = lanes[c].segment; if :: v >= l -> LEAVE; goto turn_over :: else fi }
     :: atomic { ABORTED -> LEAVE; goto claim } fi;
  if :: atomic { RUNS -> lanes[c].next = v + 1; LEAVE;
#ifndef HOSTILE
       assert(v >= floor[c]);   // a lane rises
       floor[c] = v + 1
#endif
     } :: atomic { ABORTED -> LEAVE; goto claim } fi;
look: // C2, C3, C5
  atomic { on[me] != OFF;
    if
#ifndef ZERO_IS_A_SEGMENT
    :: s == 0 -> goto refused
#endif
    :: s > SEGMENTS -> goto refused
    :: else
    fi;
#ifndef NO_LOOK
    if
    :: published[s] != s || v < BASE(s) || v >= LIMIT(s) ->
#ifdef ZERO_IS_A_SEGMENT
       if :: s == 0 && published[0] == 0 && v < LIMIT(1) :: else -> goto refused fi
#else
       goto refused
#endif
    :: else
    fi;
#endif
    assert(s >= 1 && s <= tail && v >= BASE(s) && v < LIMIT(s));   // outside
#ifdef DRAIN
    assert(!(is_drained && s == 1));   // after the drain
#endif
    accept(v);
    goto claim
  };
refused:
  atomic { on[me] != OFF; given_up = given_up | (v < 30 -> BIT(v) : 0); old_limit = l; old_segment = s };
give_up: // Y4
  atomic { on[me] != OFF;
#ifndef GIVE_UP_OUTSIDE
    in_sequence[me] = true
#endif
  };
  if :: atomic { RUNS -> c = CPU } :: atomic { ABORTED -> LEAVE; goto give_up } fi;
  if :: atomic { RUNS -> if :: lanes[c].limit == old_limit && lanes[c].segment == old_segment
                            :: else -> LEAVE; goto turn_over fi }
     :: atomic { ABORTED -> LEAVE; goto give_up } fi;
  if :: atomic { RUNS -> v = lanes[c].next } :: atomic { ABORTED -> LEAVE; goto give_up } fi;
  if :: atomic { RUNS ->
#ifndef HOSTILE
       given_up = given_up | IDS(MIN(v, old_limit), old_limit);
#endif
       lanes[c].limit = v; LEAVE }
     :: atomic { ABORTED -> LEAVE; goto give_up } fi;
turn_over: // Y2
  atomic { on[me] != OFF; c = 0; v = 0; l = 0; old_limit = 0; old_segment = 0; s = 1;
    do :: s <= tail && (published[s] != s || closed[s] || cursor[s] >= LIMIT(s)) -> s++ :: else -> break od;
    if :: s > tail -> goto dry :: else fi;
    first = cursor[s]; end = MIN(first + BLOCK, LIMIT(s)); cursor[s] = first + BLOCK;
    in_hand = in_hand | IDS(first, end)
  };
install: // Y3
  atomic { on[me] != OFF;
#ifndef INSTALL_OUTSIDE
    in_sequence[me] = true
#endif
  };
  if :: atomic { RUNS -> c = CPU
#ifdef TWO_NUMBERS
     ; if :: me == 0 -> c = CPUS - 1 - c :: else fi
#endif
     } :: atomic { ABORTED -> LEAVE; goto install } fi;
  if :: atomic { RUNS -> l = lanes[c].limit } :: atomic { ABORTED -> LEAVE; goto install } fi;
  if :: atomic { RUNS -> v = lanes[c].next;
       if
#ifndef OVER_A_LIVE_BLOCK
       :: v < l -> LEAVE; goto keep
#endif
#ifndef NEED_NOT_RISE
       :: v >= l && first < l -> LEAVE; goto keep
#endif
       :: else
       fi }
     :: atomic { ABORTED -> LEAVE; goto install } fi;
  if :: atomic { RUNS -> lanes[c].segment = s } :: atomic { ABORTED -> LEAVE; goto install } fi;
#ifdef LIMIT_BEFORE_NEXT
  if :: atomic { RUNS -> lanes[c].limit = end } :: atomic { ABORTED -> LEAVE; goto install } fi;
  if :: atomic { RUNS -> lanes[c].next = first + 1; LEAVE; accept(first); in_hand = in_hand & ~IDS(first, end);
       goto claim } :: atomic { ABORTED -> LEAVE; goto install } fi;
#else
  if :: atomic { RUNS -> lanes[c].next = first + 1 } :: atomic { ABORTED -> LEAVE; goto install } fi;
  if :: atomic { RUNS -> lanes[c].limit = end; LEAVE;
#ifndef HOSTILE
       assert(first >= floor[c]);   // a lane rises
       floor[c] = first + 1;
#endif
       accept(first); in_hand = in_hand & ~IDS(first, end); goto claim }
     :: atomic { ABORTED -> LEAVE; goto install } fi;
#endif
keep: // another thread was faster
  atomic { on[me] != OFF; accept(first); given_up = given_up | IDS(first + 1, end);
    in_hand = in_hand & ~IDS(first, end); goto claim };
dry:
  // No more segments come, and the lanes may still have ids on other CPUs.
  atomic { tail == SEGMENTS || is_drained || published[tail] == 0 -> is_done[me] = true;
    if :: on[me] != OFF -> is_busy[CPU] = false; on[me] = OFF :: else fi }
}

// A daemon uses no CPU of the model: it stores at any time.
proctype Daemon() {
  byte c, first;
#ifdef DRAIN
  published[1] = 0;                                                       // D1
  atomic { first = MIN(cursor[1], LIMIT(1)); closed[1] = true;            // D2
    assert((accepted & IDS(first, LIMIT(1))) == 0 || HOSTILITY);
    returned = returned | IDS(first, LIMIT(1)) };
  is_drained = true;
#endif
#ifdef RECYCLED
  // The segment is exhausted and its slot is needed: the number goes, the cursor is at its end.
  atomic { cursor[1] >= LIMIT(1) -> published[1] = 0 };
#endif
#ifdef LATER_DAEMON
  atomic { first = MIN(cursor[1], LIMIT(1)); closed[1] = true; returned = returned | IDS(first, LIMIT(1)) };
  do
  // The ring is over, so a late installation may bring lower ids.
  :: c < CPUS -> atomic { lanes[c].limit = 0; floor[c] = 0; c++ }         // Y6
  :: c == CPUS -> break
  od;
  // Once more, as every second: a late installation is stopped too.
  c = 0;
  do
  :: c < CPUS -> atomic { lanes[c].limit = 0; floor[c] = 0; c++ }
  :: c == CPUS -> break
  od;
#endif
  atomic { cursor[2] = BASE(2); published[2] = 2; tail = 2 }
}

proctype Scheduler() {
  byte t, c;
  do
  :: atomic { select(t : 0 .. THREADS - 1); on[t] != OFF ->
       if :: in_sequence[t] -> is_aborted[t] = true :: else fi;
       is_busy[on[t] - 1] = false; on[t] = OFF; t = 0; c = 0 }
  :: atomic { select(t : 0 .. THREADS - 1); select(c : 0 .. CPUS - 1);
       on[t] == OFF && !is_dead[t] && !is_done[t] && !is_busy[c] -> on[t] = c + 1; is_busy[c] = true; t = 0; c = 0 }
#if KILLS
  :: atomic { kills < KILLS -> select(t : 0 .. THREADS - 1); !is_dead[t] && !is_done[t] ->
       kills++; is_dead[t] = true;
       if :: on[t] != OFF -> is_busy[on[t] - 1] = false; on[t] = OFF :: else fi; t = 0 }
#endif
  :: atomic { is_done[0] && is_done[THREADS - 1] && (THREADS < 3 || is_done[1]) && tail == SEGMENTS ->
#if !KILLS && !defined(HOSTILE) && !defined(LATER_DAEMON)
       // Nothing vanishes: each id that was claimed from a slot was accepted, is in a lane, or was
       // counted as given up.
       t = 1;
       do
       :: t < TOP ->
          if
          :: t < cursor[(t - 1) / IDS_OF_SEGMENT + 1] && (returned & BIT(t)) == 0 ->
             c = 0;
             do
             :: c < CPUS && !(t >= lanes[c].next && t < lanes[c].limit) -> c++
             :: else -> break
             od;
             assert(c < CPUS || (accepted & BIT(t)) || (given_up & BIT(t)));   // vanished
             assert(c == CPUS || (accepted & BIT(t)) == 0)                     // twice, later
          :: else
          fi;
          t++
       :: else -> break
       od;
#endif
       break }
  od
}

#ifdef HOSTILE
proctype Client() {
  byte c, x, i;
  do
  :: i < 2 -> i++; select(c : 0 .. CPUS - 1); select(x : 0 .. TOP);
     if
     :: lanes[c].next = x
     :: lanes[c].limit = x
     :: x <= SEGMENTS -> lanes[c].segment = x
     :: else
     fi
  :: else -> break
  od
}
#endif

init {
  atomic {
    cursor[1] = BASE(1); published[1] = 1;
    byte i;
    for (i : 0 .. THREADS - 1) { run Claimer(i) }
    run Daemon(); run Scheduler();
#ifdef HOSTILE
    run Client();
#endif
  }
}
