// SPDX-License-Identifier: Apache-2.0
/* A model of the recovery from the loss of an engine: control/recovery.h.
 *
 * Three ranks run two operations with one tag in place, each at its own pace and possibly both at
 * once, on an engine with a window of one block. The first operation has two blocks, the second
 * has one. At any step any rank may lose the engine; the engine may still serve the other ranks,
 * and not all ranks need to notice. In every case, all ranks return the same bits, to which each
 * rank's input contributes once; a rank neither writes to memory that it has returned nor sends
 * from it; and all operations are returned in the end.
 *
 * A rank that dies takes no more steps, and neither does a rank that has noticed the death and
 * failed its remaining operations. The search covers what the other ranks may then still return,
 * because any rank may pause at any step.
 *
 * Each guard of the protocol has a mutant, a macro that removes it; SPIN must find an error with
 * each mutant (tests/model/run).
 */
#define RANKS 3
#define OPERATIONS 2
#define BLOCKS 3
#define OPERATION(b) ((b) / 2)
#define BLOCKS_OF(o) ((o) == 0 -> 3 : 4) /* as a set */
#define LAST_OF(o) ((o) + 1)             /* the only block that others may lack: the window */

#define BIT(i) (1 << (i))
#define NOBODY 3

/* The contents of a block in a rank's memory. The engine and the hosts sum in different orders. */
#define INPUT 0
#define BY_ENGINE 1
#define BY_HOSTS 2
#define WRONG 3

/* The state of an operation on a rank. */
#define ABSENT 0
#define ON_ENGINE 1
#define FROZEN 2  /* and the rank has reported what it has */
#define WAITING 3 /* called but not begun */
#define ON_HOSTS 4
#define RETURNED 5

mtype = {lost, frozen, freeze, recover};
chan to_rank[RANKS] = [2] of {mtype};
chan to_coordinator = [6] of {mtype, byte};

byte memory[RANKS * BLOCKS];
#define MEMORY(r, b) memory[(r)*BLOCKS + (b)]
byte status[RANKS * OPERATIONS];
#define STATUS(r, o) status[(r)*OPERATIONS + (o)]
byte retained[RANKS];  /* returned blocks that the engine retains */
byte contributed[RANKS]; /* blocks */
byte got[RANKS];       /* blocks that are final, or were final when they were returned */
byte result[BLOCKS];   /* as the first rank returned it */

/* The reports and the answer, as sets of blocks. */
byte has[RANKS];
byte lacks[RANKS];
byte missing;
bool is_whole[OPERATIONS];
byte source[BLOCKS];

/* Work by the hosts. Whole operations of the tag match in the order in which ranks start them. */
byte wholes[RANKS * OPERATIONS]; /* by turn: the operation, plus 1 */
#define WHOLE(r, turn) wholes[(r)*OPERATIONS + (turn)]
byte turns[RANKS];
byte taken[RANKS];     /* the number of turns whose results have arrived */
bool spoilt[BLOCKS];   /* something other than inputs was added */
byte joined[RANKS];    /* single blocks that are reduced again */
byte given;            /* blocks that their sources have sent */
byte gift[BLOCKS];     /* the contents that the source sent */
byte awaits[RANKS];    /* blocks that a source must send */

#define ALL_GOT(b) ((got[0] & got[1] & got[2] & BIT(b)) != 0)
#define ALL_RETURNED(o) (STATUS(0, o) == RETURNED && STATUS(1, o) == RETURNED && STATUS(2, o) == RETURNED)

inline add_input(r, b) { spoilt[b] = spoilt[b] || MEMORY(r, b) != INPUT }

/* The hosts run the whole slice from the input. */
inline join_whole(r, o) {
  WHOLE(r, turns[r]) = o + 1;
  turns[r]++;
  STATUS(r, o) = ON_HOSTS;
  if
  :: o == 0 -> add_input(r, 0); add_input(r, 1)
  :: else -> add_input(r, 2)
  fi
}

inline write(r, b, value) {
  assert(STATUS(r, OPERATION(b)) != RETURNED);
  MEMORY(r, b) = value;
  got[r] = got[r] | BIT(b)
}

/* Follows the answer for block b of an operation that is repaired in pieces. */
inline take_piece(r, b) {
  if
  :: !(missing & BIT(b)) -> skip
  :: (missing & BIT(b)) && source[b] == r ->
       given = given | BIT(b);
       if
       :: STATUS(r, OPERATION(b)) == RETURNED -> /* the memory belongs to the caller */
            assert(retained[r] & BIT(b));
            gift[b] = result[b]
       :: else -> gift[b] = MEMORY(r, b)
       fi
  :: (missing & BIT(b)) && source[b] == NOBODY ->
       assert(STATUS(r, OPERATION(b)) == ON_HOSTS);
       joined[r] = joined[r] | BIT(b);
       add_input(r, b)
  :: else -> /* the block arrives; ranks that have it drop it */
       if
       :: !(got[r] & BIT(b)) -> awaits[r] = awaits[r] | BIT(b)
       :: else
       fi
  fi
}

inline answered(r, o) {
  if
  :: STATUS(r, o) == WAITING -> join_whole(r, o)
  :: STATUS(r, o) == FROZEN && is_whole[o] -> join_whole(r, o)
  :: else ->
       if
       :: STATUS(r, o) == FROZEN -> STATUS(r, o) = ON_HOSTS
       :: else
       fi;
       if
       :: is_whole[o] -> skip
       :: else ->
            assert(STATUS(r, o) != ABSENT || !(missing & BLOCKS_OF(o)));
            if
            :: o == 0 -> take_piece(r, 0); take_piece(r, 1)
            :: else -> take_piece(r, 2)
            fi
       fi
  fi
}

inline give_back(r, b) {
  assert(MEMORY(r, b) == BY_ENGINE || MEMORY(r, b) == BY_HOSTS);
  assert(result[b] == INPUT || result[b] == MEMORY(r, b));
  result[b] = MEMORY(r, b);
  MEMORY(r, b) = WRONG /* the memory belongs to the caller from now on */
}

inline contribute(b) {
  assert(MEMORY(me, b) == INPUT);
  contributed[me] = contributed[me] | BIT(b)
}
inline begin(o) {
  STATUS(me, o) = ON_ENGINE;
  contribute(2 * o)
}

#define IS_IN(set, b) ((set[0] & set[1] & set[2] & ~got[me] & BIT(b)) != 0)
#ifdef MUTANT_HAS_NO_FENCE
#define LISTENS(o) (STATUS(me, o) != ABSENT)
#else
#define LISTENS(o) (STATUS(me, o) == ON_ENGINE)
#endif
#define MAY_COME(o, b) (IS_IN(contributed, b) && LISTENS(o))
#define IS_REDUCED(b) (IS_IN(joined, b))
#define SUM(b) (spoilt[b] -> WRONG : BY_HOSTS)

#ifdef MUTANT_RETURNS_WHILE_FROZEN
#define IS_HELD(o) false
#else
#define IS_HELD(o) (STATUS(me, o) == FROZEN)
#endif
#define MAY_RETURN(o) \
  (STATUS(me, o) != RETURNED && !IS_HELD(o) && \
   (got[me] & BLOCKS_OF(o)) == BLOCKS_OF(o))
inline retain(o) {
  if
  :: STATUS(me, o) == ON_ENGINE -> retained[me] = retained[me] | BIT(LAST_OF(o))
  :: else
  fi;
  STATUS(me, o) = RETURNED
}

/* The engine drops blocks that all ranks have, but may not know of all of them yet. */
inline take_retained() {
#ifndef MUTANT_RETAINS_NOTHING
  if
  :: has[me] = has[me] | retained[me]
#ifdef MUTANT_LETS_GO_EARLY
  :: true -> retained[me] = 0
#else
  :: retained[me] = retained[me] & ~(got[0] & got[1] & got[2]); has[me] = has[me] | retained[me]
#endif
  fi
#else
  skip
#endif
}

proctype rank(byte me) {
  bool knows = false;      /* the rank knows that the engine is lost */
  bool recovering = false;
  bool told = false;
  byte o, b;

end:
  do
  :: atomic { /* the next operation is called */
       STATUS(me, 1) == ABSENT ->
         o = (STATUS(me, 0) == ABSENT -> 0 : 1);
         if
#ifdef MUTANT_STARTS_ON_AN_ENGINE_THAT_IS_LOST
         :: true -> begin(o)
#else
         :: !knows -> begin(o)
#ifndef MUTANT_STARTS_BEFORE_THE_ANSWER
         :: knows && recovering -> STATUS(me, o) = WAITING
         :: knows && !recovering -> join_whole(me, o)
#else
         :: knows -> join_whole(me, o)
#endif
#endif
         fi;
         o = 0
     }
  /* A result arrives from the engine, and the next block may go there. */
  :: atomic { MAY_COME(0, 0) -> write(me, 0, BY_ENGINE); contribute(1) }
  :: atomic { MAY_COME(0, 1) -> write(me, 1, BY_ENGINE) }
  :: atomic { MAY_COME(1, 2) -> write(me, 2, BY_ENGINE) }
  /* Returns a complete operation to the caller. */
  :: atomic { MAY_RETURN(0) -> retain(0); give_back(me, 0); give_back(me, 1) }
  :: atomic { MAY_RETURN(1) -> retain(1); give_back(me, 2) }
  :: atomic { /* this rank loses the engine */
       !knows && !told -> told = true; to_coordinator!lost, me
     }
  :: atomic {
       to_rank[me]?[freeze] -> to_rank[me]?freeze;
         knows = true;
         told = false;
         recovering = true;
         if
         :: STATUS(me, 0) == ON_ENGINE ->
              STATUS(me, 0) = FROZEN;
              has[me] = has[me] | (got[me] & 3);
              lacks[me] = lacks[me] | (3 & ~got[me])
         :: else
         fi;
         if
         :: STATUS(me, 1) == ON_ENGINE ->
              STATUS(me, 1) = FROZEN;
              has[me] = has[me] | (got[me] & 4);
              lacks[me] = lacks[me] | (4 & ~got[me])
         :: else
         fi;
         take_retained();
         to_coordinator!frozen, me
     }
  :: atomic {
       to_rank[me]?[recover] -> to_rank[me]?recover;
         recovering = false;
         answered(me, 0);
         answered(me, 1);
         retained[me] = 0
     }
  :: atomic { /* the hosts' result arrives once all have joined */
       taken[me] < turns[0] && taken[me] < turns[1] && taken[me] < turns[2] ->
         assert(WHOLE(0, taken[me]) == WHOLE(1, taken[me]));
         assert(WHOLE(0, taken[me]) == WHOLE(2, taken[me]));
         if
         :: WHOLE(me, taken[me]) == 1 ->
              write(me, 0, SUM(0));
              write(me, 1, SUM(1))
         :: else -> write(me, 2, SUM(2))
         fi;
         taken[me]++
     }
  :: atomic { IS_REDUCED(0) -> write(me, 0, SUM(0)) }
  :: atomic { IS_REDUCED(1) -> write(me, 1, SUM(1)) }
  :: atomic { IS_REDUCED(2) -> write(me, 2, SUM(2)) }
  :: atomic {
       (awaits[me] & given) != 0 ->
         b = ((awaits[me] & given & 1) -> 0 : ((awaits[me] & given & 2) -> 1 : 2));
         awaits[me] = awaits[me] & ~BIT(b);
         write(me, b, gift[b]);
         b = 0
     }
  od
}

inline find_source(b) {
  source[b] = NOBODY;
#ifndef MUTANT_REDUCES_WHAT_SOMEBODY_HAS
  if
  :: (has[0] & BIT(b)) -> source[b] = 0
  :: else ->
       if
       :: (has[1] & BIT(b)) -> source[b] = 1
       :: else ->
            if
            :: (has[2] & BIT(b)) -> source[b] = 2
            :: else
            fi
       fi
  fi
#endif
}

active proctype coordinator() {
  byte reports;
  byte who;

  atomic { run rank(0); run rank(1); run rank(2) }
  do
  :: ALL_RETURNED(0) && ALL_RETURNED(1) -> goto over
  :: to_coordinator?lost, who -> break
  od;
  atomic { to_rank[0]!freeze; to_rank[1]!freeze; to_rank[2]!freeze }
  do
#ifdef MUTANT_DECIDES_EARLY
  :: reports == RANKS - 1 -> break
#else
  :: reports == RANKS -> break
#endif
  :: atomic { to_coordinator?frozen, who -> reports++ }
  :: to_coordinator?lost, who -> skip
  od;
  atomic {
    missing = lacks[0] | lacks[1] | lacks[2];
    who = has[0] | has[1] | has[2];
    is_whole[0] = (missing & 3) != 0 && (who & 3) == 0;
    is_whole[1] = (missing & 4) != 0 && (who & 4) == 0;
    find_source(0);
    find_source(1);
    find_source(2);
    who = 0;
    has[0] = 0; has[1] = 0; has[2] = 0;
    lacks[0] = 0; lacks[1] = 0; lacks[2] = 0
  }
  atomic { to_rank[0]!recover; to_rank[1]!recover; to_rank[2]!recover }
  (ALL_RETURNED(0) && ALL_RETURNED(1));
over:
  skip
}
