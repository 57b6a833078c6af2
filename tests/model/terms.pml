// SPDX-License-Identifier: Apache-2.0
//
// Terms and witnesses: when an id may be leased (ADR 0029). README.md lists the assertion and the
// searches; terms.py runs the model and its variants.
//
// A few witnesses keep ceilings on their disks. Two servers are in use side by side; a copy of
// either may replace the other at any moment. Any step may be a witness's last one. Each write to a
// disk, each transaction and each copy is one step.
//
//   WITNESSES    3, or 4: the fourth is in the new list only, the first in the old one only
//   NUMBERS      the highest number of a term
//   TAGS, IDS    tags, and ids of each
//   COPIES       copies from one server to the other
//   LISTS        1: the list of witnesses may change once
//   EMPTY        no data set is in use at first: whoever looks first begins its first term
//   QUICK        a witness's disk and its row are written in one step, no outcome is unknown, a
//                lease has no plan, and only the first and the last witness begin terms
//
// The names in upper case below are rules left out: each must give a duplicate.

#define NONE 255

// A term is its number times 8 and the witness that began it, so terms are ordered and differ.
#define NumberOf(t) ((t) / 8)

typedef DataSet {
  byte term;               // 0: none was begun
  bool is_alien;           // the identity written with the term is not that of this server
  byte entered;            // bits: the witnesses that have a row of this term
  byte noted[WITNESSES * TAGS];  // in that row
  bool knows_list[WITNESSES];    // in that row: the witness has the new list on its disk
  byte wanted[TAGS];
  byte ceiling[TAGS];      // active, in ceiling_term
  byte ceiling_term[TAGS];
  byte next[TAGS];         // max_id
  bool wants_list;         // the new list is wanted
  bool has_list;           // the new list is active
}

DataSet set[2];
byte copies;
byte granted[TAGS];        // bits: the ids that were leased, anywhere
bool twice;                // an id was leased again

// On the witnesses' disks.
byte promise[WITNESSES];
byte note[WITNESSES * TAGS];
bool list[WITNESSES];      // the new list is noted

#define Row(w, k) ((w) * TAGS + (k))
#define IsLive(d) (!set[d].is_alien && set[d].term != 0)
#define HasRow(d, w) ((set[d].entered >> (w)) & 1)

#ifdef MINORITY
#define Most(a, b, c) ((a) || (b) || (c))
#else
#define Most(a, b, c) (((a) && (b)) || ((a) && (c)) || ((b) && (c)))
#endif
#define HasNoted(d, w, k, c) (HasRow(d, w) && set[d].noted[Row(w, k)] >= (c))
#define OldHaveNoted(d, k, c) \
  Most(HasNoted(d, 0, k, c), HasNoted(d, 1, k, c), HasNoted(d, 2, k, c))
#define KnowsNew(d, w) (HasRow(d, w) && set[d].knows_list[w])

#if LISTS
#define NewHaveNoted(d, k, c) \
  Most(HasNoted(d, 1, k, c), HasNoted(d, 2, k, c), HasNoted(d, 3, k, c))
#define AnyKnowsNew(d) \
  (set[d].has_list || KnowsNew(d, 0) || KnowsNew(d, 1) || KnowsNew(d, 2) || KnowsNew(d, 3))
#ifdef LIST_WITHOUT_THE_OLD
#define MostKnowNew(d) Most(KnowsNew(d, 1), KnowsNew(d, 2), KnowsNew(d, 3))
#else
#define MostKnowNew(d) \
  (Most(KnowsNew(d, 0), KnowsNew(d, 1), KnowsNew(d, 2)) && \
   Most(KnowsNew(d, 1), KnowsNew(d, 2), KnowsNew(d, 3)))
#endif
// What the old list alone has noted must be known to the new one before that stands alone.
#define IsCarried(d, k) NewHaveNoted(d, k, set[d].wanted[k])
#ifdef LIST_WITHOUT_CEILINGS
#define AllCarried(d) true
#else
#if TAGS > 1
#define AllCarried(d) (IsCarried(d, 0) && IsCarried(d, 1))
#else
#define AllCarried(d) IsCarried(d, 0)
#endif
#endif
// As long as the new list is not active, a ceiling needs a majority of both.
#ifdef NEWEST_LIST_ALONE
#define MayActivate(d, k, c) \
  ((set[d].has_list || Most(HasRow(d, 0), HasRow(d, 1), HasRow(d, 2))) && \
   (AnyKnowsNew(d) -> NewHaveNoted(d, k, c) : OldHaveNoted(d, k, c)))
#else
#ifdef OLD_LIST_ALONE
#define MayActivate(d, k, c) \
  (set[d].has_list -> NewHaveNoted(d, k, c) : OldHaveNoted(d, k, c))
#else
#define MayActivate(d, k, c) \
  ((set[d].has_list || OldHaveNoted(d, k, c)) && (!AnyKnowsNew(d) || NewHaveNoted(d, k, c)))
#endif
#endif
#else
#define MayActivate(d, k, c) OldHaveNoted(d, k, c)
#endif

#define Highest(a, b) ((a) > (b) -> (a) : (b))

inline Void(d) {
  set[d].entered = 0;
  for (i : 0 .. WITNESSES - 1) { set[d].knows_list[i] = 0 }
  for (i : 0 .. WITNESSES * TAGS - 1) { set[d].noted[i] = 0 }
  for (i : 0 .. TAGS - 1) {
#ifdef KEEP_ACTIVE
    if
    :: set[d].ceiling[i] != 0 -> set[d].ceiling_term[i] = set[d].term
    :: else
    fi
#else
    set[d].ceiling[i] = 0;
    set[d].ceiling_term[i] = 0
#endif
  }
}

// A data set in use at first, in a term of the first witness; the other server has nothing until it
// is given a copy.
init {
  d_step {
    set[1].is_alien = 1;
#ifdef EMPTY
    set[0].is_alien = 1;
#else
    set[0].term = 8;
    promise[0] = 8;
#endif
  }
  atomic {
    byte w;
    for (w : 0 .. WITNESSES - 1) { run Witness(w) }
    run Store(0);
    run Store(1);
#ifdef QUICK
    run Host(1);
#endif
    run Host(0)
  }
}

#ifdef PLACE_FIRST
#define TakeNumber(s) skip
#else
#define TakeNumber(s) \
  before = promise[w]; promise[w] = (NumberOf(Highest(set[s].term, promise[w])) + 1) * 8 + w
#endif
#ifdef EMPTY
#define MayHaveTerm(s) true
#else
#define MayHaveTerm(s) (set[s].term != 0)
#endif
#define BeginTerm(s) \
  d_step { \
    MayBegin && d == NONE && MayHaveTerm(s) && (set[s].is_alien || set[s].term < promise[w]) && \
        NumberOf(Highest(set[s].term, promise[w])) < NUMBERS -> \
    TakeNumber(s); \
    d = s \
  }

#ifdef REPROMISE
#define IsNew(s) (set[s].term != promise[w])
#else
#define IsNew(s) (set[s].term > promise[w])
#endif
#define Promise(s) \
  d_step { IsLive(s) && IsNew(s) -> promise[w] = set[s].term; d = NONE; before = 0 }

#ifdef PUSH_ONE_TAG
#define PUSHED 1
#else
#define PUSHED TAGS
#endif
#ifdef NO_PUSH
#define Pushed(s, i) set[s].next[i]
#else
#define Pushed(s, i) Highest(set[s].next[i], note[Row(w, i)])
#endif
#if LISTS
#ifdef LIST_NOT_ENTERED
#define EnterList(s) skip
#else
#define EnterList(s) \
  set[s].wants_list = set[s].wants_list || list[w]; set[s].knows_list[w] = list[w]
#endif
#else
#define EnterList(s) skip
#endif
#define Enter(s) \
  d_step { \
    IsLive(s) && set[s].term == promise[w] && !HasRow(s, w) -> \
    for (i : 0 .. PUSHED - 1) { \
      set[s].next[i] = Pushed(s, i); \
      set[s].wanted[i] = Highest(set[s].wanted[i], note[Row(w, i)]) \
    } \
    i = 0; \
    EnterList(s); \
    set[s].entered = set[s].entered | (1 << w) \
  }

#ifdef NOTE_WITHOUT_PROMISE
#define MayNote(s) true
#else
#define MayNote(s) (set[s].term == promise[w])
#endif
#ifdef QUICK
#define Note(s, k) \
  d_step { \
    IsLive(s) && HasRow(s, w) && MayNote(s) && set[s].wanted[k] > set[s].noted[Row(w, k)] -> \
    note[Row(w, k)] = Highest(note[Row(w, k)], set[s].wanted[k]); \
    set[s].noted[Row(w, k)] = set[s].wanted[k] \
  }
#else
#define Note(s, k) \
  d_step { \
    row_term == 0 && IsLive(s) && HasRow(s, w) && MayNote(s) && \
        set[s].wanted[k] > set[s].noted[Row(w, k)] -> \
    note[Row(w, k)] = Highest(note[Row(w, k)], set[s].wanted[k]); \
    row_term = set[s].term; \
    row_tag = k; \
    row_note = set[s].wanted[k] \
  }
#endif
#define WriteRow(s) \
  d_step { \
    row_term != 0 && IsLive(s) && set[s].term == row_term && HasRow(s, w) -> \
    set[s].noted[Row(w, row_tag)] = Highest(set[s].noted[Row(w, row_tag)], row_note); \
    row_term = 0; row_tag = 0; row_note = 0 \
  }
#ifdef QUICK
#define WithRow(s) ; set[s].knows_list[w] = 1
#else
#define WithRow(s)
#endif
#define NoteList(s) \
  d_step { \
    IsLive(s) && HasRow(s, w) && set[s].term == promise[w] && set[s].wants_list && !list[w] -> \
    list[w] = 1 WithRow(s) \
  }
#define WriteList(s) \
  d_step { \
    IsLive(s) && HasRow(s, w) && set[s].term == promise[w] && list[w] && !set[s].knows_list[w] -> \
    set[s].knows_list[w] = 1 \
  }

proctype Witness(byte w) {
  byte d = NONE;      // where it puts the term that it has promised; NONE: nowhere
  byte before;        // what it had promised before that
  byte row_term;      // a row that is under way: its term, its tag, and what it has noted
  byte row_tag;
  byte row_note;
  byte i;
end:
  do
  // Rule 1: a new number is on the disk before it is in a data set, and goes into one only.
#ifdef QUICK
#define MayBegin (w == 0 || w == WITNESSES - 1)
#else
#define MayBegin true
#endif
  :: BeginTerm(0)
  :: BeginTerm(1)
#ifdef PLACE_FIRST
  :: d_step {
       d != NONE && (set[d].is_alien || set[d].term < promise[w]) &&
           NumberOf(Highest(set[d].term, promise[w])) < NUMBERS ->
       set[d].term = (NumberOf(Highest(set[d].term, promise[w])) + 1) * 8 + w;
       set[d].is_alien = 0;
       Void(d);
       d = NONE
     }
#else
  :: d_step {
       d != NONE && (set[d].is_alien || set[d].term < promise[w]) ->
       set[d].term = promise[w];
       set[d].is_alien = 0;
       Void(d);
       before = 0;
       d = NONE
     }
#endif
  // Another witness was faster: the number is in no data set, so the promise is taken back.
  :: d_step {
       d != NONE && !set[d].is_alien && set[d].term >= promise[w] ->
       promise[w] = before;
       before = 0;
       d = NONE
     }
#ifndef QUICK
  :: d_step { d != NONE -> d = NONE; before = 0 }  // the outcome is unknown: it takes another number
#endif

  // Rule 2: the promise, then the push and the row.
  :: Promise(0)
  :: Promise(1)
  :: Enter(0)
  :: Enter(1)

  // Rule 3: the disk, and then or never the row, in a transaction that checks the term.
  :: Note(0, 0)
  :: Note(1, 0)
#if TAGS > 1
  :: Note(0, 1)
  :: Note(1, 1)
#endif
#ifndef QUICK
  :: WriteRow(0)
  :: WriteRow(1)
  :: d_step { row_term != 0 -> row_term = 0; row_tag = 0; row_note = 0 }  // it is lost
#endif

#if LISTS
  // The list, in the same way.
  :: NoteList(0)
  :: NoteList(1)
  :: WriteList(0)
  :: WriteList(1)
#endif

#ifdef GOES_ON_WITHOUT_ITS_DISK
  :: d_step {
       promise[w] != 0 ->
       promise[w] = 0;
       for (i : 0 .. TAGS - 1) { note[Row(w, i)] = 0 }
       i = 0
     }
#endif
  od
}

// What any host does at server d: it asks for ceilings, activates them, asks for another list.
#define Ask(k) \
  d_step { \
    IsLive(d) && set[d].wanted[k] < IDS && set[d].wanted[k] <= set[d].next[k] + 1 -> \
    set[d].wanted[k]++ \
  }
#define Activate(k, c) \
  d_step { \
    IsLive(d) && (set[d].ceiling[k] < c || set[d].ceiling_term[k] != set[d].term) && \
        MayActivate(d, k, c) -> \
    set[d].ceiling[k] = c; \
    set[d].ceiling_term[k] = set[d].term \
  }
proctype Store(byte d) {
  byte k;
end:
  do
  :: Ask(0)
  :: Activate(0, 1)
#if IDS > 1
  :: Activate(0, 2)
#endif
#if TAGS > 1
  :: Ask(1)
  :: Activate(1, 1)
#endif
#if LISTS
  :: d_step { IsLive(d) && !set[d].wants_list -> set[d].wants_list = 1 }
#ifdef LIST_AT_ONCE
  :: d_step { IsLive(d) && set[d].wants_list && !set[d].has_list -> set[d].has_list = 1 }
#else
  :: d_step { IsLive(d) && !set[d].has_list && MostKnowNew(d) && AllCarried(d) -> set[d].has_list = 1 }
#endif
#endif
  // A replica is promoted, a dump restored: the other server has what this one had.
  :: d_step {
       set[d].term != 0 && copies < COPIES ->
       copies++;
       set[1 - d].term = set[d].term;
       set[1 - d].is_alien = 1;
       set[1 - d].entered = set[d].entered;
       set[1 - d].wants_list = set[d].wants_list;
       set[1 - d].has_list = set[d].has_list;
       for (k : 0 .. WITNESSES - 1) { set[1 - d].knows_list[k] = set[d].knows_list[k] }
       for (k : 0 .. WITNESSES * TAGS - 1) { set[1 - d].noted[k] = set[d].noted[k] }
       for (k : 0 .. TAGS - 1) {
         set[1 - d].wanted[k] = set[d].wanted[k];
         set[1 - d].ceiling[k] = set[d].ceiling[k];
         set[1 - d].ceiling_term[k] = set[d].ceiling_term[k];
         set[1 - d].next[k] = set[d].next[k]
       }
       k = 0
     }
  od
}

// Rule 5. Its plan may be old: it has read the term, and where the ceiling was, at any time before.
#ifdef PLAN_IS_TRUSTED
#define IsGranted(k) (plan_term != 0 && set[d].next[k] < plan_ceiling)
#else
#ifdef NO_IDENTITY_IN_LEASE
#define IsSameServer true
#else
#define IsSameServer (!set[d].is_alien)
#endif
#define IsGranted(k) \
  (plan_term != 0 && set[d].term == plan_term && IsSameServer && \
   set[d].ceiling_term[k] == plan_term && set[d].next[k] < set[d].ceiling[k])
#endif
#ifdef QUICK
#undef IsGranted
#define IsGranted(k) \
  (!set[d].is_alien && set[d].ceiling_term[k] == set[d].term && set[d].next[k] < set[d].ceiling[k])
#endif
#ifdef PLAN_IS_TRUSTED
#define PlanCeiling(s) plan_ceiling = set[s].ceiling[0]
#else
#define PlanCeiling(s) skip
#endif
#define Plan(s) \
  d_step { \
    plan_term == 0 && set[s].term != 0 -> \
    d = s; plan_term = set[s].term; PlanCeiling(s) \
  }
#define Lease(k) \
  d_step { \
    IsGranted(k) -> \
    twice = (granted[k] >> set[d].next[k]) & 1; \
    assert(!twice); \
    granted[k] = granted[k] | (1 << set[d].next[k]); \
    set[d].next[k]++ \
  }
proctype Host(byte d) {
  byte plan_term;     // 0: it has no plan
  byte plan_ceiling;  // looked at by PLAN_IS_TRUSTED alone
end:
  do
#ifndef QUICK
  :: Plan(0)
  :: Plan(1)
  :: d_step { plan_term != 0 -> d = 0; plan_term = 0; plan_ceiling = 0 }
#endif
  :: Lease(0)
#if TAGS > 1
  :: Lease(1)
#endif
  od
}
