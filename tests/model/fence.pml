// SPDX-License-Identifier: Apache-2.0
//
// The fence (docs/adr/0016): HOSTS hosts, SETS data sets. Set 0 is the first one. Another set is a
// copy of an earlier one, taken at any moment, to which hosts may connect at any later moment: a
// promoted replica, a restored dump, an older node. Sets persist: a hung primary comes back, and
// hosts fail back. Each statement that a host sends is one step. README.md lists the assertions;
// run.py runs the model and its variants.
//
// A host may stop anywhere: no step waits for a host, and a stopped host keeps what it was granted.
// A host may also lose its connection or restart, with its disk: "goto changed".
//
// Time: World decides when the time for which a host counts itself complete has passed (`stale`). A
// row is set to "out" only after that: the host that sets it has watched the row for longer. The
// difference is how long two sets may be in use at the same time. So when a host becomes stale
// whose last look was at `newest`, the set that hosts came to last, the other sets accept nothing
// any more (`stopped`), until a host comes to them again. The variant OVERLAP goes without this.
//
// Runs and beats are not modelled as numbers. `fresh` says whether a row has the run and the beat that
// its host wrote last: each connection and each state has a run of its own, in which beats rise, so no
// older row has both.
//
//   -DHOSTS=n -DSETS=n -DTAGS=n -DLEASES=n -DRAISES=n
//   -DCHANGES=n     how many times connections are lost or hosts restarted, all together
//   -DTICKS=n       how many times a host becomes stale
//   -DMEMBERS=n     the first n hosts are members of set 0 at the start, the others are new
//   -DALL_CAME      a host may also join when all that the set knows have come (b)
//   -DLEAVES=n      clean stops
//   -DWIPES=n       hosts that are set up again under their name, without their disk
//   -DPROXY         between any two statements a session may be moved to another set
//   -DMOVES=n       how many times, all together
//   -DRESTORED      set 0 is once replaced in place by a dump, under the running server
//   -DREPLICA       set 1 can be watched while it still replicates set 0
//   -DMARKS_PUT_OFF a host that is killed may lose its marks
//   -DSAME_NAME     set 1 has the name of set 0: its server restarted, with older data
//   -DNUMBERS       a host that waits may say so in its row, and hosts number the states that they
//                   write. Without this, rows of hosts that wait stay as they are, and a push makes
//                   every member live.
//   -DOLD_COPY      with NUMBERS: set 1 is there at the start, and was copied while the last host
//                   waited, before it joined set 0
//   -DSELF_OUT      a host that cannot write to its disk may put itself out
//   -DCOVERED       asks for Invariant 1 as well
//
// Every other define changes one thing and makes a variant.

#ifndef HOSTS
#define HOSTS 2
#endif
#ifndef SETS
#define SETS 2
#endif
#ifndef TAGS
#define TAGS 1
#endif
#ifndef LEASES
#define LEASES 3
#endif
#ifndef RAISES
#define RAISES 2
#endif
#ifndef MEMBERS
#define MEMBERS HOSTS
#endif
#ifndef CHANGES
#define CHANGES 3
#endif
#ifndef TICKS
#define TICKS 2
#endif
#ifndef MOVES
#define MOVES 3
#endif
#ifndef LEAVES
#define LEAVES 0
#endif
#ifndef WIPES
#define WIPES 0
#endif

#define MAX(a, b) ((a) > (b) -> (a) : (b))

#define NONE 0
#define LIVE 1
#define OUT 2
#define LEFT 3
#define WAITING 4

#ifdef SAME_NAME
#define NAME(d) ((d) == 1 -> 1 : (d) + 1)
#else
#define NAME(d) ((d) + 1)
#endif

// --- The data sets. The last one is the dump that is restored in place ---

typedef Set {
  byte counter;
  byte max_id[TAGS];
  byte current[TAGS]; // the ceiling's `active`, a keyword here
  byte wanted[TAGS];
  byte epoch[TAGS];
  byte state[HOSTS];
  byte noted[HOSTS];
  byte server[HOSTS];
  bool fresh[HOSTS];
#ifdef NUMBERS
  byte number[HOSTS];
#endif
  byte since[HOSTS]
};
#ifdef RESTORED
#define DUMP SETS
Set set[SETS + 1];
#else
Set set[SETS];
#endif
byte copied = 1; // a set of bits
#ifdef REPLICA
bool moved; // a host on set 0 moved a row of set 0 since the last replication
byte opened = 1;
#define OPENED(d) ((opened & (1 << (d))) != 0)
#else
#define OPENED(d) true
#endif
#define COPIED(d) ((copied & (1 << (d))) != 0)
byte newest;  // the set that a host came to last
byte stopped; // a set of bits
#ifdef OVERLAP
#define ACCEPTS(d) true
#else
#define ACCEPTS(d) ((stopped & (1 << (d))) == 0)
#endif

// --- A host's disk ---

typedef Tags { byte id[TAGS] };
Tags note[HOSTS];   // no lease that may be lost lies above it
Tags mark[HOSTS];   // leases begin above it
bool member[HOSTS]; // was a live member at its last look
bool stale[HOSTS];  // its last look was sent too long ago
byte known[HOSTS];  // the live members that it has read, as bits
#ifdef NUMBERS
byte last[HOSTS];   // the number of the last state that it wrote
typedef Numbers { byte host[HOSTS] };
Numbers live_at[HOSTS]; // the numbers of the live members that it has read
#endif

// --- What a running host knows ---

byte conf[HOSTS];   // the connection and the server that it has checked
#ifdef PROXY
byte at[HOSTS];     // where its session really is
#define AT(h) at[h]
#define CONNECTED(h) (at[h] == conf[h])
#else
#define AT(h) conf[h]
#define CONNECTED(h) true
#endif
bool aged[HOSTS];   // the same as stale, for the look in progress
byte looked[HOSTS]; // the set of its last look
byte read[HOSTS];   // the counter that the look in progress has read
bool joined[HOSTS];
bool waits[HOSTS];  // watches set `conf`
bool lifted[HOSTS]; // (a): saw a host there that has joined
#ifdef ALL_CAME
byte came[HOSTS];   // (b): has seen these hosts come, as bits
bool witness[HOSTS];
#endif
#ifdef RESTORED
bool gap[HOSTS];    // seconds have passed since its last look, by the server's clock
#define GAP(h) gap[h]
#else
#define GAP(h) false
#endif

// --- What the assertions compare; the protocol does not read it ---

byte leases, raises, changes, ticks, leaves, wipes, moves;
Tags highest;
short granted[TAGS]; // a set of bits
bool twice, uncovered;

#define ROW_INTACT(h) (ACCEPTS(AT(h)) && set[AT(h)].state[h] == LIVE && set[AT(h)].fresh[h])
#define INTACT(h) (CONNECTED(h) && ROW_INTACT(h))
#define COMPLETE(h) (member[h] && !stale[h])

// Nothing after the last lease matters, so stop there: fewer states.
#define GOING (leases < LEASES)
#define MAY_BREAK (changes < CHANGES && GOING)

// The conditions of the look's statements, and the effect of a lease.
#ifdef OUT_NOT_NOTICED
#define LOOK_ROW(h) (ACCEPTS(AT(h)) && set[AT(h)].fresh[h])
#else
#define LOOK_ROW(h) ROW_INTACT(h)
#endif
// The row moved seconds ago, by the server's clock.
#ifdef NOT_RECENT
#define RECENT(h) true
#else
#define RECENT(h) (!aged[h])
#endif
#ifdef NO_IDENTITY_IN_BEAT
#define BEAT_GUARD(h) (LOOK_ROW(h) && RECENT(h))
#else
#define BEAT_GUARD(h) (CONNECTED(h) && LOOK_ROW(h) && RECENT(h))
#endif
#ifdef NO_IDENTITY_IN_NOTED
#define NOTED_GUARD(h) LOOK_ROW(h)
#elif defined(NOTHING_IN_NOTED)
#define NOTED_GUARD(h) true
#else
#define NOTED_GUARD(h) (CONNECTED(h) && LOOK_ROW(h))
#endif
#ifdef NO_IDENTITY_IN_JOIN
#define JOIN_GUARD(h) true
#else
#define JOIN_GUARD(h) CONNECTED(h)
#endif
#ifdef NO_IDENTITY_IN_LEASE
#define LEASE_IDENTITY(h) true
#else
#define LEASE_IDENTITY(h) CONNECTED(h)
#endif
#ifdef NO_OWN_ROW_IN_LEASE
#define LEASE_ROW(h) true
#else
#define LEASE_ROW(h) ROW_INTACT(h)
#endif
#ifdef NO_GAP
#define LEASE_GAP(h) true
#else
#define LEASE_GAP(h) (!GAP(h) && RECENT(h))
#endif

inline CheckCovered() {
#ifdef COVERED
  for (i : 0 .. HOSTS - 1) {
    for (u : 0 .. TAGS - 1) {
      uncovered = uncovered || (COMPLETE(i) && highest.id[u] > MAX(note[i].id[u], mark[i].id[u]))
    }
  }
  i = 0;
  u = 0;
  assert(!uncovered)
#else
  skip
#endif
}

// The row of h in d has the values that h wrote, and no other set's row has them.
inline Refresh(d, h) {
  for (i : 0 .. SETS - 1) {
    set[i].fresh[h] = false
  }
#ifdef RESTORED
  set[DUMP].fresh[h] = false;
#endif
  i = 0;
  set[d].fresh[h] = true
}

// Only the order of a set's epochs matters, so their numbers are made as small as that order allows:
// fewer states. A read that is in progress meets other numbers if the set is restored, and a number
// that was taken ahead of its use must stay free.
hidden byte v;
hidden byte used;
#define LESS(n) ((n) > v -> (n) - 1 : (n))
inline Compact(d) {
#if !defined(RESTORED) && !defined(EPOCH_WITHOUT_ROW_LOCK)
  v = 1;
  do
  :: v >= set[d].counter -> break
  :: else ->
    used = 0;
    for (i : 0 .. HOSTS - 1) {
      used = used || set[d].noted[i] == v || set[d].since[i] == v || (conf[i] == d && read[i] == v)
    }
    for (u : 0 .. TAGS - 1) {
      used = used || set[d].epoch[u] == v
    }
    if
    :: used -> v++
    :: else ->
      set[d].counter--;
      for (i : 0 .. HOSTS - 1) {
        set[d].noted[i] = LESS(set[d].noted[i]);
        set[d].since[i] = LESS(set[d].since[i]);
        read[i] = (conf[i] == d -> LESS(read[i]) : read[i])
      }
      for (u : 0 .. TAGS - 1) {
        set[d].epoch[u] = LESS(set[d].epoch[u])
      }
    fi
  od;
  i = 0;
  u = 0
#else
  skip
#endif
}

// Writes a state into the own row, with a number that no other state of this host has.
#ifdef NUMBERS
inline Number(d, h) {
  last[h] = MAX(last[h], set[d].number[h]) + 1;
  set[d].number[h] = last[h]
}
#else
inline Number(d, h) {
  skip
}
#endif

// No process reads the rest of a row that is not live until its host joins again.
inline End(d, h, why) {
  set[d].state[h] = why;
#if !defined(OUT_NOT_NOTICED) && !defined(NOTED_IS_KEPT)
  set[d].counter = MAX(set[d].counter, set[d].noted[h]);
  set[d].noted[h] = 0;
  set[d].since[h] = 0;
  set[d].server[h] = 0;
  set[d].fresh[h] = false
#endif
}

inline TakeEpoch(d) {
  for (i : 0 .. HOSTS - 1) {
    set[d].counter = MAX(set[d].counter, set[d].noted[i])
  }
  i = 0;
  set[d].counter++
}

inline RaiseTo(d, t, to) {
  TakeEpoch(d);
  set[d].epoch[t] = set[d].counter;
  set[d].wanted[t] = MAX(set[d].wanted[t], to)
}

// The row of u in the set is from before h saw u live.
#ifdef NUMBERS
#ifdef ONLY_MISSING_ADMITTED
#define IS_OLDER_ROW(h, u) (set[AT(h)].state[u] == NONE)
#else
#define IS_OLDER_ROW(h, u) \
  (set[AT(h)].state[u] != LIVE && set[AT(h)].number[u] < live_at[h].host[u])
#endif
#else
#define IS_OLDER_ROW(h, u) (set[AT(h)].state[u] != LIVE)
#endif

// Pushes everything that h knows to the set.
inline Push() {
  for (u : 0 .. TAGS - 1) {
#ifndef NOTES_ARE_NO_MARKS
    mark[h].id[u] = MAX(mark[h].id[u], note[h].id[u]);
#endif
#ifndef PUSH_NOTHING
    set[AT(h)].max_id[u] = MAX(set[AT(h)].max_id[u], mark[h].id[u]);
#endif
#ifdef PUSH_RAISES
    if
    :: mark[h].id[u] > set[AT(h)].wanted[u] -> new_id = mark[h].id[u]; RaiseTo(AT(h), u, new_id); new_id = 0
    :: else
    fi
#endif
  }
#ifndef MEMBERS_NOT_CARRIED
  for (u : 0 .. HOSTS - 1) {
    if
    :: (known[h] & (1 << u)) != 0 && u != h && IS_OLDER_ROW(h, u) ->
      set[AT(h)].state[u] = LIVE;
#ifdef NUMBERS
      set[AT(h)].number[u] = live_at[h].host[u];
#endif
      set[AT(h)].noted[u] = 0;
      set[AT(h)].server[u] = 0;
      set[AT(h)].fresh[u] = false
    :: else
    fi
  }
#endif
  u = 0
}

inline NoteTag(t) {
#ifdef NOTE_ACTIVE
  note[h].id[t] = MAX(note[h].id[t], set[AT(h)].current[t]);
#else
  note[h].id[t] = MAX(note[h].id[t], set[AT(h)].wanted[t]);
#endif
#ifndef NOTE_WITHOUT_MAX_ID
  note[h].id[t] = MAX(note[h].id[t], set[AT(h)].max_id[t])
#endif
}

// Reads the counter first, then the ceilings; then comes the sync.
inline ReadCounter() {
  read[h] = set[AT(h)].counter;
  known[h] = 0;
  for (i : 0 .. HOSTS - 1) {
    known[h] = known[h] | (set[AT(h)].state[i] == LIVE -> 1 << i : 0);
#ifdef NUMBERS
    live_at[h].host[i] =
        (i != h && set[AT(h)].state[i] == LIVE -> MAX(set[AT(h)].number[i], live_at[h].host[i]) : 0);
#endif
    unknown = unknown || (i != h && set[AT(h)].state[i] == LIVE &&
                          set[AT(h)].noted[i] < set[AT(h)].since[h])
  }
  i = 0
}
inline NoteAll() {
  for (u : 0 .. TAGS - 1) {
    NoteTag(u)
  }
  u = 0
}

// The row of h moved: a host that watches it there sees a host that has joined this server.
inline Moved() {
  for (i : 0 .. HOSTS - 1) {
    if
    :: i != h && waits[i] && conf[i] == AT(h) && set[AT(h)].server[h] == NAME(AT(h)) ->
      lifted[i] = true;
      aged[i] = false
    :: else
    fi
  }
  i = 0;
#ifdef REPLICA
  moved = moved || AT(h) == 0
#endif
}

inline Beat() {
  set[AT(h)].server[h] = NAME(conf[h]);
  Refresh(AT(h), h);
  aged[h] = false; // from now on, since it was sent before
  looked[h] = AT(h);
  Moved()
}

inline Confirm() {
#ifdef JOINER_IS_COMPLETE
  unknown = false;
#endif
  if
  :: !unknown ->
    member[h] = true;
#ifdef CONFIRMED_AT_END
    aged[h] = false;
#endif
    stale[h] = aged[h]
  :: else // not all others have noted yet that it joined
  fi;
  unknown = false;
  joined[h] = true;
  lifted[h] = false;
  read[h] = 0;
  as_complete = false;
  Compact(AT(h));
  CheckCovered()
}

#if defined(ALL_CAME) || defined(WITHOUT_WAITING) || defined(AFTER_A_TIME)
#define BY_OTHERS true
#else
#define BY_OTHERS false
#endif
#ifdef ALL_CAME
inline Announce() {
  for (i : 0 .. HOSTS - 1) {
    came[i] = came[i] | (waits[i] && conf[i] == AT(h) -> 1 << h : 0);
    witness[i] = witness[i] || (waits[i] && conf[i] == AT(h) && member[h] &&
                                set[AT(h)].state[h] == LIVE)
  }
  i = 0
}
#ifdef MEMBER_NOT_AWAITED
#define CAME(h, x) ((x) == 0 || (x) == h || set[AT(h)].state[x] != LIVE || (came[h] & (1 << (x))) != 0)
#else
#define CAME(h, x) ((x) == h || set[AT(h)].state[x] != LIVE || (came[h] & (1 << (x))) != 0)
#endif
#if HOSTS > 2
#define CAME_2(h) CAME(h, 2)
#else
#define CAME_2(h) true
#endif
#ifdef NO_WITNESS
#define WITNESS(h) true
#else
#define WITNESS(h) witness[h]
#endif
#define ALL_HAVE_COME(h) (CAME(h, 0) && CAME(h, 1) && CAME_2(h) && WITNESS(h))
#endif

// The set's own condition: every live member has noted the ceiling's epoch.
#ifdef MEMBER_FORGOTTEN
#define HAS_NOTED(d, t, x) ((x) == 0 || set[d].state[x] != LIVE || set[d].noted[x] >= set[d].epoch[t])
#else
#define HAS_NOTED(d, t, x) (set[d].state[x] != LIVE || set[d].noted[x] >= set[d].epoch[t])
#endif
#if HOSTS > 2
#define HAS_NOTED_2(d, t) HAS_NOTED(d, t, 2)
#else
#define HAS_NOTED_2(d, t) true
#endif
#define ALL_HAVE_NOTED(d, t) (HAS_NOTED(d, t, 0) && HAS_NOTED(d, t, 1) && HAS_NOTED_2(d, t))

// A look changes nothing relevant if there is nothing to note and no host watches: fewer states.
#define LOOK_IS_OF_USE(h) \
  (set[AT(h)].noted[h] < set[AT(h)].counter || !COMPLETE(h) || waits[0] || waits[1] || \
   waits[HOSTS - 1])

// A host that is late itself takes the path of a change, and has not watched any row.
#ifdef STALE_GOES_ON
#define NOT_LATE(h) true
#else
#define NOT_LATE(h) (!aged[h])
#endif
#define SILENT(h, x) (aged[x])
#define MAY_PUT_OUT(h, x)                                                     \
  (GOING && x != h && INTACT(h) && COMPLETE(h) && NOT_LATE(h) && SILENT(h, x) && \
   set[AT(h)].state[x] == LIVE)

#ifdef OUT_WITHOUT_BEAT
#define PUT_OUT(h, x) \
  atomic { MAY_PUT_OUT(h, x) }; \
  if                    \
  :: d_step { INTACT(h) -> End(AT(h), x, OUT) } \
  :: !INTACT(h)         \
  fi
#else
#define PUT_OUT(h, x) d_step { MAY_PUT_OUT(h, x) -> End(AT(h), x, OUT) }
#endif

inline Lease(t) {
  new_id = MAX(set[AT(h)].max_id[t], mark[h].id[t]) + 1;
  leases++;
  set[AT(h)].max_id[t] = new_id;
  mark[h].id[t] = new_id;
  twice = (granted[t] & (1 << new_id)) != 0;
  assert(!twice);
  granted[t] = granted[t] | (1 << new_id);
  highest.id[t] = MAX(highest.id[t], new_id);
  new_id = 0;
  CheckCovered()
}
#ifdef NO_CEILING
#define BELOW_CEILING(h, t) true
#else
#define BELOW_CEILING(h, t) (MAX(set[AT(h)].max_id[t], mark[h].id[t]) < set[AT(h)].current[t])
#endif
#define MAY_LEASE(h, t) \
  (leases < LEASES && LEASE_IDENTITY(h) && LEASE_ROW(h) && LEASE_GAP(h) && BELOW_CEILING(h, t))

#define MAY_RAISE(h, t) \
  (GOING && raises < RAISES && CONNECTED(h) && ACCEPTS(AT(h)) && set[AT(h)].wanted[t] == set[AT(h)].current[t] && \
   !BELOW_CEILING(h, t))
#define MAY_ACTIVATE(h, t) \
  (GOING && CONNECTED(h) && ACCEPTS(AT(h)) && set[AT(h)].wanted[t] > set[AT(h)].current[t] && ALL_HAVE_NOTED(AT(h), t))

inline Raise(t) {
  raises++;
  new_id = MAX(set[AT(h)].max_id[t], mark[h].id[t]) + 1;
  RaiseTo(AT(h), t, new_id);
  new_id = 0;
  Compact(AT(h))
}

#ifdef EPOCH_WITHOUT_ROW_LOCK
// The number is taken in a separate transaction.
#define RAISE(t)                                                                        \
  d_step { MAY_RAISE(h, t) -> raises++; TakeEpoch(AT(h)); taken = set[AT(h)].counter }; \
  d_step {                                                                              \
    set[AT(h)].epoch[t] = taken;                                                        \
    set[AT(h)].wanted[t] = MAX(set[AT(h)].max_id[t], mark[h].id[t]) + 1;                \
    taken = 0                                                                           \
  }
#else
#define RAISE(t) d_step { MAY_RAISE(h, t) -> Raise(t) }
#endif

proctype Host(byte h) {
  byte i, u, new_id, taken;
  bool as_complete, unknown;

  if
  :: h >= MEMBERS -> goto changed
  :: h < MEMBERS
  fi;

go_on:
  do
  :: d_step { MAY_LEASE(h, 0) -> Lease(0) }
  :: RAISE(0)
  :: d_step { MAY_ACTIVATE(h, 0) -> set[AT(h)].current[0] = set[AT(h)].wanted[0] }
#if TAGS > 1
  :: d_step { MAY_LEASE(h, 1) -> Lease(1) }
  :: RAISE(1)
  :: d_step { MAY_ACTIVATE(h, 1) -> set[AT(h)].current[1] = set[AT(h)].wanted[1] }
#endif
  :: PUT_OUT(h, 0)
  :: PUT_OUT(h, 1)
#if HOSTS > 2
  :: PUT_OUT(h, 2)
#endif
  :: GOING && LOOK_IS_OF_USE(h) && LEASE_GAP(h) && NOT_LATE(h) -> goto look
  :: GOING && !NOT_LATE(h) -> goto changed
  :: d_step {
      leaves < LEAVES && GOING ->
      leaves++;
#ifdef LEFT_IS_COMPLETE
      joined[h] = false
#else
      joined[h] = false;
      member[h] = false
#endif
    };
    if
    :: d_step { ROW_INTACT(h) -> End(AT(h), h, LEFT); Number(AT(h), h) }
    :: !ROW_INTACT(h)
    :: true
    fi;
    goto changed
  :: atomic { // a new connection, a restart, a row that is not as it was
      MAY_BREAK -> changes++; goto changed
    }
  od;

changed:
  // First contact. A complete host pushes.
  atomic {
    joined[h] = false;
    waits[h] = false;
    lifted[h] = false;
    as_complete = false;
    read[h] = 0;
    unknown = false;
#ifdef ALL_CAME
    came[h] = 0;
    witness[h] = false;
#endif
#if WIPES > 0
    if
    :: wipes < WIPES ->
      wipes++;
      member[h] = false;
      for (u : 0 .. TAGS - 1) {
        note[h].id[u] = 0;
        mark[h].id[u] = 0
      }
      u = 0
    :: true
    fi;
#endif
#ifdef PROXY
    conf[h] = at[h];
#else
    if
    :: conf[h] = 0
#if SETS > 1
    :: COPIED(1) -> conf[h] = 1
#endif
#if SETS > 2
    :: COPIED(2) -> conf[h] = 2
#endif
    fi;
#endif
#ifdef MARKS_PUT_OFF
    if
    :: for (u : 0 .. TAGS - 1) {
         mark[h].id[u] = 0
       }
       u = 0
    :: true
    fi;
#endif
    aged[h] = stale[h];
#ifdef NUMBER_AT_CONNECTION
    Number(AT(h), h);
#endif
#if defined(STALE_IS_COMPLETE)
    as_complete = member[h];
#elif defined(NEW_IS_COMPLETE)
    as_complete = !member[h] || !stale[h];
#else
    as_complete = COMPLETE(h);
#endif
    Push();
    if
    :: !as_complete -> goto wait
    :: else
    fi
  };

join:
#ifdef JOIN_READS_FIRST
  atomic { ReadCounter(); NoteAll() };
#endif
  if
  :: d_step {
      JOIN_GUARD(h) && OPENED(AT(h)) ->
      waits[h] = false;
#ifdef ALL_CAME
      came[h] = 0;
      witness[h] = false;
#endif
      newest = AT(h);
      stopped = stopped & ~(1 << AT(h));
      TakeEpoch(AT(h));
      set[AT(h)].since[h] = set[AT(h)].counter;
      set[AT(h)].state[h] = LIVE;
      Number(AT(h), h);
#ifndef NOTED_IS_KEPT
      set[AT(h)].noted[h] = 0;
#endif
#ifdef SERVER_AT_JOIN
      set[AT(h)].server[h] = NAME(conf[h]);
      Moved();
#else
      set[AT(h)].server[h] = 0;
#endif
#ifdef RESTORED
      gap[h] = false;
#endif
      aged[h] = false;
      Refresh(AT(h), h);
      Compact(AT(h))
    }
  :: !JOIN_GUARD(h) -> goto changed
#ifdef NUMBERS
  :: atomic { MAY_BREAK -> changes++; goto changed } // killed
#endif
#ifdef SELF_OUT_COMPLETE
  :: atomic { GOING && ROW_INTACT(h) -> End(AT(h), h, OUT); goto changed }
#endif
  fi;
#ifndef JUDGED_ONCE
  if
  :: (as_complete -> stale[h] : !lifted[h] && !BY_OTHERS) -> goto wait
  :: !(as_complete -> stale[h] : !lifted[h] && !BY_OTHERS)
  fi;
#endif

look:
  // Step 1, and step 2 if no proxy can come between.
#ifdef PROXY
  if
  :: d_step { BEAT_GUARD(h) -> Beat() }
  :: !BEAT_GUARD(h) -> goto changed
  fi;
  if
  :: d_step {
      CONNECTED(h) ->
      ReadCounter();
      NoteAll()
    }
  :: !CONNECTED(h) -> goto changed
  fi;
#else
  if
  :: d_step {
      BEAT_GUARD(h) ->
      Beat();
      ReadCounter();
#if !defined(READ_IN_PAGES) && !defined(NOTED_BEFORE_NOTE) && !defined(JOIN_READS_FIRST)
      NoteAll()
#elif defined(JOIN_READS_FIRST)
      if
      :: joined[h] -> NoteAll()
      :: else
      fi
#endif
    }
  :: !BEAT_GUARD(h) -> goto changed
  fi;
#endif
#ifdef READ_IN_PAGES
  // `noted` will be the highest epoch read.
  d_step { NoteTag(0); read[h] = set[AT(h)].epoch[0] };
  d_step { NoteTag(1); read[h] = MAX(read[h], set[AT(h)].epoch[1]) };
#endif
  // Step 3.
  if
  :: d_step {
      NOTED_GUARD(h) ->
      set[AT(h)].noted[h] = MAX(read[h], set[AT(h)].noted[h]);
#ifndef NOTED_BEFORE_NOTE
      Confirm()
#endif
    }
  :: !NOTED_GUARD(h) -> goto changed
  :: atomic { MAY_BREAK -> changes++; goto changed } // killed
  fi;
#ifdef NOTED_BEFORE_NOTE
  if
  :: d_step { NoteAll(); Confirm() }
  :: atomic { MAY_BREAK -> changes++; goto changed } // killed
  fi;
#endif
  goto go_on;

wait:
  atomic { as_complete = false; lifted[h] = false; waits[h] = true };
  do
  :: atomic { MAY_BREAK -> changes++; goto changed }
#ifdef WITHOUT_WAITING
  :: goto join
#endif
#ifdef NUMBERS
  :: d_step {
      CONNECTED(h) && ACCEPTS(AT(h)) && set[AT(h)].state[h] != WAITING && GOING ->
      member[h] = false; // no host waits for it from now on
      set[AT(h)].state[h] = WAITING;
      set[AT(h)].noted[h] = 0;
      set[AT(h)].server[h] = 0;
      Number(AT(h), h)
    }
#endif
#ifdef SELF_OUT
  :: d_step {
      CONNECTED(h) && ACCEPTS(AT(h)) && lifted[h] && set[AT(h)].state[h] == LIVE && GOING ->
      End(AT(h), h, OUT)
    }
#endif
#ifdef AFTER_A_TIME
  :: stale[0] && stale[1] && stale[HOSTS - 1] -> goto join
#endif
  :: CONNECTED(h) && lifted[h] -> goto join
#ifdef ALL_CAME
  :: d_step { CONNECTED(h) -> Announce() }
  :: CONNECTED(h) && ALL_HAVE_COME(h) -> goto join
#endif
#ifdef WAITING_HOST_PUTS_OUT
  :: d_step { stale[0] && h != 0 -> set[AT(h)].state[0] = OUT }
#endif
  od
}

inline Copy(to, from) {
  set[to].counter = set[from].counter;
  for (u : 0 .. TAGS - 1) {
    set[to].max_id[u] = set[from].max_id[u];
    set[to].current[u] = set[from].current[u];
    set[to].wanted[u] = set[from].wanted[u];
    set[to].epoch[u] = set[from].epoch[u]
  }
  u = 0;
  for (i : 0 .. HOSTS - 1) {
    set[to].state[i] = set[from].state[i];
    set[to].noted[i] = set[from].noted[i];
    set[to].server[i] = set[from].server[i];
    set[to].since[i] = set[from].since[i];
#ifdef NUMBERS
    set[to].number[i] = set[from].number[i];
#endif
    set[to].fresh[i] = set[from].fresh[i]
  }
  i = 0
}

#ifdef PROXY
#define RECONNECT(h, d) \
  d_step { GOING && moves < MOVES && COPIED(d) && at[h] != d -> moves++; at[h] = d }
#endif

#define TICK(h) \
  d_step {                                                                            \
    GOING && ticks < TICKS && !aged[h] ->                                             \
    ticks++; stale[h] = true; aged[h] = true; lifted[h] = false;                      \
    stopped = (looked[h] == newest -> ((1 << SETS) - 1) & ~(1 << newest) : stopped)   \
  }

proctype World() {
  byte i, u;
#ifdef RESTORED
  byte restored;
#endif

end:
  do
#if SETS > 1
  :: d_step { GOING && !COPIED(1) -> Copy(1, 0); copied = copied | 2 }
#endif
#if SETS > 2
  :: d_step { GOING && !COPIED(2) -> Copy(2, 0); copied = copied | 4 }
  :: d_step { GOING && !COPIED(2) && COPIED(1) -> Copy(2, 1); copied = copied | 4 }
#endif
  :: TICK(0)
  :: TICK(1)
#if HOSTS > 2
  :: TICK(2)
#endif
#ifdef PROXY
  :: RECONNECT(0, 0)
  :: RECONNECT(0, 1)
  :: RECONNECT(1, 0)
  :: RECONNECT(1, 1)
#if SETS > 2
  :: RECONNECT(0, 2)
  :: RECONNECT(1, 2)
#endif
#if HOSTS > 2
  :: RECONNECT(2, 0)
  :: RECONNECT(2, 1)
#if SETS > 2
  :: RECONNECT(2, 2)
#endif
#endif
#endif
#ifdef REPLICA
  // Set 1 gets the contents of set 0; a host that watches it sees rows move.
  :: d_step {
      COPIED(1) && !OPENED(1) && moved ->
      Copy(1, 0);
      moved = false;
#ifdef ANY_SERVER
      for (i : 0 .. HOSTS - 1) {
        lifted[i] = lifted[i] || (waits[i] && conf[i] == 1)
      }
      i = 0
#endif
    }
  :: d_step { COPIED(1) && !OPENED(1) -> opened = opened | 2 }
#endif
#ifdef RESTORED
  // A dump takes seconds. Hosts that looked meanwhile find another beat; the other hosts have not
  // looked for those seconds.
  :: d_step { restored == 0 -> Copy(DUMP, 0); restored = 1 }
  :: d_step {
      restored == 1 ->
      restored = 2;
      Copy(0, DUMP);
      for (i : 0 .. HOSTS - 1) {
        gap[i] = gap[i] || set[0].fresh[i];
        set[DUMP].fresh[i] = false
      }
      i = 0
    }
#endif
  od
}

init {
  byte i, t;
  d_step {
    set[0].counter = 1;
    for (t : 0 .. TAGS - 1) {
      set[0].current[t] = 1;
      set[0].wanted[t] = 1;
      set[0].epoch[t] = 1
    }
    for (i : 0 .. MEMBERS - 1) {
      set[0].state[i] = LIVE;
      set[0].noted[i] = 1;
      set[0].server[i] = 1;
#ifdef NUMBERS
      set[0].number[i] = 1;
      last[i] = 1;
#endif
      set[0].fresh[i] = true;
      member[i] = true;
      joined[i] = true;
      known[i] = (1 << MEMBERS) - 1;
#ifdef NUMBERS
      for (t : 0 .. MEMBERS - 1) {
        live_at[i].host[t] = (t == i -> 0 : 1)
      }
      t = 0;
#endif
      for (t : 0 .. TAGS - 1) {
        note[i].id[t] = 1
      }
    }
#ifdef OLD_COPY
    set[1].counter = 1;
    for (t : 0 .. TAGS - 1) {
      set[1].current[t] = 1;
      set[1].wanted[t] = 1;
      set[1].epoch[t] = 1
    }
    for (i : 0 .. MEMBERS - 2) {
      set[1].state[i] = LIVE;
      set[1].noted[i] = 1;
      set[1].server[i] = 1;
      set[1].number[i] = 1;
      live_at[i].host[MEMBERS - 1] = 2
    }
    set[1].state[MEMBERS - 1] = WAITING;
    set[1].number[MEMBERS - 1] = 1;
    set[0].number[MEMBERS - 1] = 2;
    last[MEMBERS - 1] = 2;
    copied = copied | 2
#endif
  };
  atomic {
    for (i : 0 .. HOSTS - 1) {
      run Host(i)
    }
    run World();
    i = 0;
    t = 0
  }
}
