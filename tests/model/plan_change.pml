// SPDX-License-Identifier: Apache-2.0
/* A model of the change of a plan: control/plan_agreement.h.
 *
 * Three ranks start the same operations, each in its own order, while the coordinator changes the
 * plan twice. An operation that all ranks have started may finish, on each rank at a different
 * time. In every case, all ranks run an operation by the same plan, and all operations start in
 * the end (otherwise SPIN reports an invalid end state).
 *
 * Each guard of the protocol has a mutant, a macro that removes it; SPIN must find an error with
 * each mutant (tests/model/run).
 */
#define RANKS 3
#ifdef LONG
#define OPERATIONS 3
#else
#define OPERATIONS 2
#endif
#define STEPS 2

#define BIT(i) (1 << (i))
#define ALL (BIT(OPERATIONS) - 1)

mtype = {prepare, commit};
chan to_rank[RANKS] = [2] of {mtype, byte}; /* commit: the operations that keep the old plan */
chan to_coordinator = [RANKS] of {byte, byte}; /* rank, the operations it reports */

/* For each rank and operation: the plan + 1 by which it was started; 0: not started. */
byte plan_of[RANKS * OPERATIONS];
#define PLAN(rank, operation) plan_of[(rank)*OPERATIONS + (operation)]
/* The operations that each rank has started, or finished. */
byte started[RANKS];
byte finished[RANKS];

inline check(rank, operation) {
  assert(PLAN(0, operation) == 0 || PLAN(0, operation) == PLAN(rank, operation));
  assert(PLAN(1, operation) == 0 || PLAN(1, operation) == PLAN(rank, operation));
  assert(PLAN(2, operation) == 0 || PLAN(2, operation) == PLAN(rank, operation));
}

proctype rank(byte me) {
  byte current = 0;           /* the plan's version */
  byte by_current = 0;        /* the operations started by this plan */
  bool holding = false;       /* no operation starts between a report and its commit */
  byte keeps[STEPS];          /* by version: operations that must run by it and have not started */
  byte set;
  byte i;

end:
  do
  :: atomic {
       to_rank[me]?prepare(_) ->
         set = by_current & ~finished[me];
#ifdef MUTANT_REPORTS_NOTHING_IN_FLIGHT
         set = 0;
#endif
#ifndef MUTANT_STARTS_WHILE_IT_WAITS
         holding = true;
#endif
         to_coordinator!me, set
     }
  :: atomic {
       to_rank[me]?commit(set) ->
#ifdef MUTANT_FORGETS_OLDER_EXCEPTIONS
         keeps[0] = 0;
#endif
#ifndef MUTANT_IGNORES_THE_OTHERS_REPORTS
         keeps[current] = set & ~started[me];
#endif
         current++;
         by_current = 0;
         holding = false;
         set = 0
     }
  :: atomic { /* any operation may be next: each rank has its own order */
       !holding && started[me] != ALL ->
         if
         :: !(started[me] & BIT(0)) -> i = 0
         :: !(started[me] & BIT(1)) -> i = 1
         :: OPERATIONS > 2 && !(started[me] & BIT(2)) -> i = 2
         fi;
         if
         :: keeps[0] & BIT(i) -> PLAN(me, i) = 1; keeps[0] = keeps[0] & ~BIT(i)
         :: !(keeps[0] & BIT(i)) && (keeps[1] & BIT(i)) ->
              PLAN(me, i) = 2; keeps[1] = keeps[1] & ~BIT(i)
         :: else -> PLAN(me, i) = current + 1; by_current = by_current | BIT(i)
         fi;
         started[me] = started[me] | BIT(i);
         check(me, i);
         i = 0
     }
  :: atomic {
       (started[0] & started[1] & started[2] & ~finished[me]) != 0 ->
         set = started[0] & started[1] & started[2] & ~finished[me];
         if
         :: set & BIT(0) -> finished[me] = finished[me] | BIT(0)
         :: set & BIT(1) -> finished[me] = finished[me] | BIT(1)
         :: OPERATIONS > 2 && (set & BIT(2)) -> finished[me] = finished[me] | BIT(2)
         fi;
         set = 0
     }
  od
}

active proctype coordinator() {
  byte step = 0;
  byte reports;
  byte keep;
  byte who;
  byte set;

  atomic { run rank(0); run rank(1); run rank(2) }
  do
  :: step < STEPS ->
       atomic { to_rank[0]!prepare(0); to_rank[1]!prepare(0); to_rank[2]!prepare(0) }
       keep = 0;
       reports = 0;
       do
#ifdef MUTANT_COMMITS_EARLY
       :: reports < RANKS - 1 ->
#else
       :: reports < RANKS ->
#endif
            atomic { to_coordinator?who, set -> keep = keep | set; reports++ }
       :: else -> break
       od;
       /* The ranks receive the commit one after the other. */
       to_rank[0]!commit(keep);
       to_rank[1]!commit(keep);
       to_rank[2]!commit(keep);
       step++
  :: else -> break
  od
  /* All operations start and finish. */
  (finished[0] == ALL && finished[1] == ALL && finished[2] == ALL)
}
