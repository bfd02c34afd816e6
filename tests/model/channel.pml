// SPDX-License-Identifier: Apache-2.0
/* A model of one direction of a channel: transport/channel.h, outbox.h, inbox.h and tcp/link.h.
 *
 * A sender sends over two links. It sends either message 0 with two segments, which the sender may
 * abandon or the receiver cancel, or messages 0 and 1 with the same tag and one segment each.
 * Either end may give up a link at any step. The other end learns of it later; until then it reads
 * what came before, and writes it to memory. Lost links return. A link keeps its frames in order.
 * Acknowledgements and grants (which are lost with their link) return on it. The model tries every
 * choice of links for segments, at every time. Whatever happens:
 *  - nothing reads the sender's memory after its operation has returned, and nothing writes to the
 *    receiver's memory after its operation has returned (both use the memory for other things);
 *  - each segment lands once, in the right receive;
 *  - segments that come before they are asked for fit the credit;
 *  - the run ends: both messages are received or dropped, and all credit has come back (otherwise
 *    SPIN reports an invalid end state).
 *
 * Announcements and the ends of abandoned messages are segments without payload, which need no
 * memory. The rail's thread reads a payload without the lock: in the phase COPYING a system call
 * has been given the memory. A step that needs a fence waits until this call has ended.
 *
 * Each guard of the protocol has a mutant, a macro that removes it; SPIN must find an error with
 * each mutant (tests/model/run).
 */
/* The links are alike, so only link 0 is ever lost, and a payload on the other link is read in one
 * step. */
#ifdef LONG
#define LOSSES 2
#else
#define LOSSES 1
#endif
#define MAY_LOSE(link) ((link) == 0)
#define CREDIT 1 /* segments */
#define LINKS 2
#define MESSAGES 2

/* Segments 0, 1, 2 (announcement) and 3 (end) of message 0; 4 and 5 (announcement) of message 1. */
#define SEGMENTS 6
#define END_OF_0 3
#define MESSAGE(segment) ((segment) >= 4)
#define FIRST(message) ((message)*4)
#define PAYLOADS(message) ((message) == 0 -> payloads_of_0 : 1)
#define ANNOUNCEMENT(message) ((message) == 0 -> 2 : 5)
#define HAS_PAYLOAD(segment) ((segment) < 2 || (segment) == 4)

/* ---- The sender ----------------------------------------------------------------------------*/

/* The state of a segment: not made or dropped; without credit; in the scheduler; given to link 0
 * or 1; acknowledged. */
#define NONE 0
#define BLOCKED 1
#define QUEUED 2
#define GIVEN_TO(link) (3 + (link))
#define ACKED 5
byte place[SEGMENTS];
byte attempt[SEGMENTS];
bit is_charged[SEGMENTS];
bit copied[SEGMENTS];

bit opened[MESSAGES];
bit follows = 0; /* message 1 says that another message with its tag comes before it */
bit announced[MESSAGES];
bit sender_granted[MESSAGES];
bit returned[MESSAGES]; /* the sender may use its memory again */
bit has_abandoned = 0;
byte payloads_of_0 = 2;
byte coming; /* segments of message 0 with payload, as its end says */
byte charged = 0;
byte credit = CREDIT;

/* ---- The links -----------------------------------------------------------------------------*/

byte losses = LOSSES;
bit up_at_sender[LINKS];
bit up_at_receiver[LINKS];
#define UNDER_WAY 2 /* the most unacknowledged segments of a link */
chan wire[LINKS] = [UNDER_WAY] of {byte, byte};  /* segment, attempt */
chan unacked[LINKS] = [UNDER_WAY] of {byte};
byte landed_on[LINKS]; /* segments that landed and whose acknowledgement has not come */
bit grant_on[LINKS * MESSAGES];
#define GRANT(link, message) grant_on[(link)*MESSAGES + (message)]

/* ---- The receiver --------------------------------------------------------------------------*/

#define UNKNOWN 0
#define ARRIVED 1
#define MATCHED 2
#define DISCARDED 3
#define FINISHED 4
byte state[MESSAGES];
byte posted = 0;  /* receives */
byte matched = 0; /* receives that have a message */
bit in_use[MESSAGES]; /* the memory of the receive that this message is for */
bit wants_grant[MESSAGES];
bit granted[MESSAGES];
bit is_abandoned = 0; /* the receiver knows that message 0 was abandoned */
byte received[MESSAGES];
bit got[SEGMENTS];
bit held[SEGMENTS];
bit landed[SEGMENTS]; /* the receiver was told */
byte consumed = 0;
byte held_count = 0;

/* The segment + 1 that a link reads; 0: none. */
#define NOWHERE 0
#define MEMORY 1
#define POOL 2
byte reading[LINKS];
byte reading_attempt[LINKS];
byte destination[LINKS];
bit counts[LINKS]; /* the inbox knows of this segment */
#define HEADER_READ 0
#define COPYING 1
#define COPIED 2
byte phase[LINKS];
byte copies_to[LINKS]; /* the destination that the system call was given */

bit may_abandon;
bit may_cancel;
bit has_two; /* there is a message 1 */

byte l;
byte other;
byte s;
byte m;
byte k;
byte i;
byte a;
bit flag;

/* ---- Sending -------------------------------------------------------------------------------*/

#define LIVE(segment) (place[segment] != NONE && place[segment] != ACKED)
#define ALL_ACKED_0 (!LIVE(0) && !LIVE(1) && !LIVE(2) && !LIVE(3))
#define ALL_ACKED_1 (!LIVE(4) && !LIVE(5))
#define GONE(message) (returned[message] && ((message) == 0 -> ALL_ACKED_0 : ALL_ACKED_1))

#define SCHEDULE(segment) place[segment] = QUEUED

inline announce(message) {
  if
  :: !announced[message] ->
       announced[message] = 1;
#ifndef MUTANT_ANNOUNCES_NOTHING
       SCHEDULE(ANNOUNCEMENT(message))
#endif
  :: else
  fi
}

inline push(message, segment, behind) {
  if
  :: !behind && charged < credit ->
       charged++;
       is_charged[segment] = 1;
       SCHEDULE(segment)
  :: else -> place[segment] = BLOCKED; announce(message)
  fi
}

/* Schedules the blocked segment if its message was granted or credit is left. */
inline unblock(segment) {
  if
  :: place[segment] == BLOCKED && sender_granted[MESSAGE(segment)] -> SCHEDULE(segment)
  :: place[segment] == BLOCKED && !sender_granted[MESSAGE(segment)] && charged < credit ->
       charged++;
       is_charged[segment] = 1;
       SCHEDULE(segment)
  :: else
  fi
}

inline unblock_all() {
  unblock(0);
  if
  :: place[0] != BLOCKED -> unblock(1)
  :: else
  fi;
  if
  :: place[0] != BLOCKED && place[1] != BLOCKED -> unblock(4)
  :: else
  fi
}

inline open(message) {
  opened[message] = 1;
  if
  :: message == 1 -> follows = !GONE(0); push(1, 4, place[0] == BLOCKED || place[1] == BLOCKED)
  :: else ->
       push(0, 0, false);
       if
       :: payloads_of_0 == 2 -> push(0, 1, place[0] == BLOCKED)
       :: else
       fi
  fi
}

#define UNWRITTEN(segment) (place[segment] == BLOCKED || place[segment] == QUEUED)

#define MAY_SETTLE(message) \
  (opened[message] && !returned[message] && ((message) == 0 \
   -> !UNWRITTEN(0) && !UNWRITTEN(1) && !UNWRITTEN(2) : !UNWRITTEN(4) && !UNWRITTEN(5)))

/* Gives back the memory of message m. */
inline settle() {
  for (s : FIRST(m) .. FIRST(m) + PAYLOADS(m) - 1) {
    if
#ifndef MUTANT_KEEPS_NO_COPY
    :: LIVE(s) -> copied[s] = 1
#endif
    :: else
    fi
  }
  returned[m] = 1
}

inline abandon() {
  has_abandoned = 1;
  flag = place[0] != BLOCKED && place[1] != BLOCKED; /* the whole message will arrive */
  for (s : 0 .. 2) {
    if
#ifdef MUTANT_DROPS_WHAT_MAY_HAVE_COME
    :: place[s] == BLOCKED || place[s] == QUEUED ->
#else
    :: place[s] == BLOCKED || (place[s] == QUEUED && attempt[s] == 0) ->
#endif
         flag = 0;
         if
         :: HAS_PAYLOAD(s) -> coming--
         :: else
         fi;
#ifndef MUTANT_KEEPS_THE_CREDIT_OF_WHAT_IT_DROPS
         charged = charged - is_charged[s];
#endif
         is_charged[s] = 0;
         place[s] = NONE
    :: LIVE(s) && !(place[s] == BLOCKED || (place[s] == QUEUED && attempt[s] == 0)) ->
         copied[s] = 1
    :: else
    fi
  }
  returned[0] = 1;
  if
#ifndef MUTANT_ABANDONS_IN_SILENCE
  :: !flag -> SCHEDULE(END_OF_0)
#endif
  :: else
  fi;
  unblock_all()
}

/* The sender loses link l; unacknowledged segments go by another link. */
inline sender_down() {
  for (s : 0 .. SEGMENTS - 1) {
    if
    :: place[s] == GIVEN_TO(l) ->
#ifndef MUTANT_COUNTS_NO_ATTEMPTS
         attempt[s]++;
#endif
#ifdef MUTANT_CHARGES_AGAIN
         charged = charged + is_charged[s];
#endif
#ifndef MUTANT_RESENDS_NOTHING
         SCHEDULE(s)
#endif
    :: else
    fi
  }
#ifndef MUTANT_RESENDS_WITHOUT_A_FENCE
  up_at_sender[l] = 0;
  do
  :: unacked[l]?_
  :: empty(unacked[l]) -> break
  od
#endif
}

/* ---- Receiving -----------------------------------------------------------------------------*/

inline consume(segment) { consumed = consumed + is_charged[segment] }

inline send_grant(message) {
  if
  :: up_at_receiver[0] -> GRANT(0, message) = 1
  :: up_at_receiver[1] -> GRANT(1, message) = 1
  :: else
  fi
}

inline grant_again() {
#ifndef MUTANT_GRANTS_ONCE
  if
  :: granted[0] && state[0] != FINISHED -> send_grant(0)
  :: else
  fi;
  if
  :: granted[1] && state[1] != FINISHED -> send_grant(1)
  :: else
  fi
#else
  skip
#endif
}

inline grant_if_wanted(message) {
  if
  :: wants_grant[message] ->
       wants_grant[message] = 0;
       granted[message] = 1;
       send_grant(message)
  :: else
  fi
}

inline tell_user(segment) {
  assert(in_use[MESSAGE(segment)] && !landed[segment]);
  landed[segment] = 1
}

/* The inbox ignores the rest of the segment that link `by` reads. */
inline forget_incoming(by) {
  held_count = held_count - (destination[by] == POOL);
  counts[by] = 0
}

#define ALL_RECEIVED(message) (received[message] == PAYLOADS(message))
#ifdef MUTANT_FINISHES_BEFORE_ALL_HAS_COME
#define REST_RECEIVED(message) ((message) == 0 && is_abandoned)
#else
#define REST_RECEIVED(message) ((message) == 0 && is_abandoned && received[0] >= coming)
#endif

inline finish_if_complete(message) {
  if
  :: (state[message] == MATCHED && ALL_RECEIVED(message)) ||
     (state[message] == DISCARDED && (ALL_RECEIVED(message) || REST_RECEIVED(message))) ->
       state[message] = FINISHED;
       in_use[message] = 0;
       for (i : 0 .. LINKS - 1) {
         if
         :: reading[i] != 0 && counts[i] && MESSAGE(reading[i] - 1) == message ->
              forget_incoming(i)
         :: else
         fi
       }
       for (i : FIRST(message) .. FIRST(message) + PAYLOADS(message) - 1) {
         got[i] = 0 /* the inbox forgets its segments */
       }
  :: else
  fi
}

inline deliver_held(segment) {
  if
  :: held[segment] ->
       held[segment] = 0;
       held_count--;
       consume(segment);
       received[MESSAGE(segment)]++;
       tell_user(segment)
  :: else
  fi
}

#ifdef MUTANT_MATCHES_AS_THEY_COME
#define MAY_MATCH_1 (state[0] != ARRIVED)
#else
#define MAY_MATCH_1 (state[0] != ARRIVED && !(follows && state[0] == UNKNOWN))
#endif

inline match() {
  do
  :: matched < posted && (state[0] == ARRIVED || (state[1] == ARRIVED && MAY_MATCH_1)) ->
       k = (state[0] == ARRIVED -> 0 : 1);
       assert(k == matched); /* it is the right receive */
       state[k] = MATCHED;
       matched++;
       grant_if_wanted(k);
       deliver_held(FIRST(k));
       if
       :: k == 0 -> deliver_held(1)
       :: else
       fi;
       finish_if_complete(k)
  :: else -> break
  od
}

/* Segment s goes to memory, to the pool if nobody has asked for it, or nowhere. */
inline take() {
  counts[l] = 1;
  if
  :: state[MESSAGE(s)] == DISCARDED -> destination[l] = NOWHERE
  :: state[MESSAGE(s)] == MATCHED -> destination[l] = MEMORY
  :: else ->
       assert(is_charged[s] && held_count < CREDIT);
       held_count++;
       destination[l] = POOL
  fi
}

/* Link `other` reads the same segment. */
#define COMES_BY_OTHER (reading[other] == s + 1 && counts[other])

#ifdef MUTANT_TAKES_TWICE
#define CAME_TWICE(segment) false
#else
#define CAME_TWICE(segment) (got[segment])
#endif
#ifdef MUTANT_FORGETS_WHAT_IS_FINISHED
#define IS_FINISHED(message) false
#else
#define IS_FINISHED(message) (state[message] == FINISHED)
#endif
#ifdef MUTANT_DROPS_WITHOUT_A_FENCE
#define FENCED(link) true
#else
#define FENCED(link) (phase[link] != COPYING)
#endif

/* Segment s, attempt a, which has a payload, begins to arrive on link l. */
inline begin() {
  if
#ifdef MUTANT_THE_FIRST_TO_COME_STAYS
  :: COMES_BY_OTHER
#else
#ifdef MUTANT_THE_LAST_TO_COME_STAYS
  :: COMES_BY_OTHER ->
#else
  :: COMES_BY_OTHER && reading_attempt[other] >= a
  :: COMES_BY_OTHER && reading_attempt[other] < a ->
#endif
#ifndef MUTANT_LETS_BOTH_WRITE
       forget_incoming(other);
       destination[other] = NOWHERE;
#endif
       take()
#endif
  :: !COMES_BY_OTHER && !CAME_TWICE(s) -> take()
  :: !COMES_BY_OTHER && CAME_TWICE(s)
  fi
}

/* A segment without payload lands at once. */
inline land_empty() {
  if
  :: s == END_OF_0 -> is_abandoned = 1
  :: else -> wants_grant[m] = 1
  fi;
  if
  :: state[m] == MATCHED || state[m] == DISCARDED -> grant_if_wanted(m)
  :: else
  fi;
  finish_if_complete(m)
}

inline arrive() {
  m = MESSAGE(s);
  if
  :: HAS_PAYLOAD(s) ->
       reading[l] = s + 1;
       reading_attempt[l] = a;
       phase[l] = HEADER_READ;
       counts[l] = 0;
       destination[l] = NOWHERE
  :: else -> landed_on[l]++
  fi;
  if
  :: state[m] == UNKNOWN -> state[m] = ARRIVED; match()
  :: else
  fi;
  if
  :: IS_FINISHED(m)
  :: !IS_FINISHED(m) && HAS_PAYLOAD(s) -> begin()
  :: !IS_FINISHED(m) && !HAS_PAYLOAD(s) -> land_empty()
  fi
}

inline land() {
  s = reading[l] - 1;
  m = MESSAGE(s);
  reading[l] = 0;
  landed_on[l]++;
  if
  :: !counts[l]
#ifdef MUTANT_CONSUMES_WHAT_CAME_TWICE
       -> consume(s)
#endif
  :: else ->
       counts[l] = 0;
       got[s] = 1;
       if
       :: destination[l] == POOL && state[m] == ARRIVED -> held[s] = 1
       :: destination[l] == POOL && state[m] == MATCHED -> held[s] = 1; deliver_held(s)
       :: else ->
            held_count = held_count - (destination[l] == POOL);
#ifdef MUTANT_LOSES_THE_CREDIT_OF_WHAT_IT_DISCARDS
            if
            :: state[m] != DISCARDED -> consume(s)
            :: else
            fi;
#else
            consume(s);
#endif
            received[m]++;
            if
            :: state[m] == MATCHED -> tell_user(s)
            :: else
            fi
       fi;
       finish_if_complete(m)
  fi;
  destination[l] = NOWHERE
}

/* The link writes to the memory of message 0. */
#define WRITES_TO_0(link) (reading[link] != 0 && counts[link] && destination[link] == MEMORY && \
                           MESSAGE(reading[link] - 1) == 0)

inline cancel() {
  may_cancel = 0;
  for (i : 0 .. LINKS - 1) {
    if
#ifndef MUTANT_CANCELS_WITHOUT_DROPPING
    :: WRITES_TO_0(i) -> destination[i] = NOWHERE
#endif
    :: else
    fi
  }
  state[0] = DISCARDED;
  in_use[0] = 0;
  grant_if_wanted(0);
  finish_if_complete(0)
}

inline receiver_down() {
  up_at_receiver[l] = 0;
  if
  :: reading[l] != 0 && counts[l] -> forget_incoming(l)
  :: else
  fi;
#ifdef MUTANT_DIES_WITHOUT_A_FENCE
  if
  :: phase[l] == COPYING -> skip /* goes on */
  :: else -> reading[l] = 0
  fi;
#else
  reading[l] = 0;
#endif
  destination[l] = NOWHERE;
  grant_again()
}

inline forget() { l = 0; other = 0; s = 0; m = 0; k = 0; i = 0; a = 0; flag = 0 }

#ifdef MUTANT_DIES_WITHOUT_A_FENCE
#define MAY_DIE(link) true
#else
#define MAY_DIE(link) (!up_at_receiver[link] || reading[link] == 0 || phase[link] != COPYING)
#endif

#define CAN_GIVE(link) (up_at_sender[link] && nfull(wire[link]) && nfull(unacked[link]))
#define CAN_READ(link) (up_at_receiver[link] && reading[link] == 0)

/* ---- All steps -----------------------------------------------------------------------------*/

inline copy() {
  s = reading[l] - 1;
  assert(copied[s] || !returned[MESSAGE(s)]);
  assert(copies_to[l] != MEMORY || in_use[MESSAGE(s)])
}

inline lose() {
  if
  :: up_at_sender[l] && up_at_receiver[l] -> losses--
  :: else /* the other end had lost the link before */
  fi
}

#define DONE \
  (GONE(0) && state[0] == FINISHED && (!has_two || (GONE(1) && state[1] == FINISHED)))

#define IS_LOST(link) \
  (!DONE && ((losses > 0 && MAY_LOSE(link)) || !up_at_sender[link] || !up_at_receiver[link]))
#define CAN_GIVE(link) (up_at_sender[link] && nfull(wire[link]) && nfull(unacked[link]))
#define IS_ACKED(link) (up_at_sender[link] && landed_on[link] > 0)
#define IS_GRANTED(link) (up_at_sender[link] && (GRANT(link, 0) || GRANT(link, 1)))
#define HAS_COME(link) (up_at_receiver[link] && reading[link] == 0 && nempty(wire[link]))
#define BEGINS_TO_COPY(link) \
  (MAY_LOSE(link) && reading[link] != 0 && phase[link] == HEADER_READ && \
   destination[link] != NOWHERE)
#define IS_COPYING(link) (reading[link] != 0 && phase[link] == COPYING)
#define IS_COMPLETE(link) \
  (up_at_receiver[link] && reading[link] != 0 && \
   (phase[link] == COPIED || \
    (phase[link] == HEADER_READ && (destination[link] == NOWHERE || !MAY_LOSE(link)))))
#define LOSES_SENDER(link) (up_at_sender[link] && IS_LOST(link))
#define LOSES_RECEIVER(link) (up_at_receiver[link] && IS_LOST(link) && MAY_DIE(link))
#define MAY_RETURN(link) (!up_at_sender[link] && !up_at_receiver[link] && !IS_COPYING(link))

/* Chooses a link for which the condition holds. */
#define OF_A_LINK(condition) \
  condition(0) || condition(1) -> \
    if \
    :: condition(0) -> l = 0; other = 1 \
    :: condition(1) -> l = 1; other = 0 \
    fi

init {
  atomic {
    if
    :: may_abandon = 1
    :: may_cancel = 1
    :: skip
    :: has_two = 1; payloads_of_0 = 1
    fi;
    coming = payloads_of_0;
    open(0);
    for (l : 0 .. LINKS - 1) {
      up_at_sender[l] = 1;
      up_at_receiver[l] = 1
    }
    forget()
  }
  do
  :: atomic { has_two && !opened[1] -> open(1); forget() }
  :: atomic { /* a segment is given to a link */
       (place[0] == QUEUED || place[1] == QUEUED || place[2] == QUEUED || place[3] == QUEUED ||
        place[4] == QUEUED || place[5] == QUEUED) && (CAN_GIVE(0) || CAN_GIVE(1)) ->
         if
         :: CAN_GIVE(0) -> l = 0
         :: CAN_GIVE(1) -> l = 1
         fi;
         if
         :: place[0] == QUEUED -> s = 0
         :: place[1] == QUEUED -> s = 1
         :: place[2] == QUEUED -> s = 2
         :: place[3] == QUEUED -> s = 3
         :: place[4] == QUEUED -> s = 4
         :: place[5] == QUEUED -> s = 5
         fi;
         place[s] = GIVEN_TO(l);
         wire[l]!s, attempt[s];
         unacked[l]!s;
         m = MESSAGE(s);
         if
         :: MAY_SETTLE(m) -> settle()
         :: skip /* too many copies are retained */
         fi;
         forget()
     }
  :: atomic { /* an acknowledgement arrives */
       OF_A_LINK(IS_ACKED);
       landed_on[l]--;
       unacked[l]?s;
       assert(place[s] == GIVEN_TO(l));
       place[s] = ACKED;
       credit = consumed + CREDIT; /* every frame carries the credit */
       unblock_all();
       m = MESSAGE(s);
       if
       :: !returned[m] && (m == 0 -> ALL_ACKED_0 : ALL_ACKED_1) -> returned[m] = 1
       :: else
       fi;
       forget()
     }
  :: atomic { /* a grant arrives */
       OF_A_LINK(IS_GRANTED);
       m = (GRANT(l, 0) -> 0 : 1);
       GRANT(l, m) = 0;
       if
       :: !GONE(m) -> sender_granted[m] = 1; unblock_all()
       :: else
       fi;
       forget()
     }
  :: atomic { may_abandon && opened[0] && !returned[0] -> may_abandon = 0; abandon(); forget() }

  :: atomic { posted <= has_two -> in_use[posted] = 1; posted++; match(); forget() }
  :: atomic { /* a header arrives */
       (HAS_COME(0) && FENCED(1)) || (HAS_COME(1) && FENCED(0)) ->
         if
         :: HAS_COME(0) && FENCED(1) -> l = 0; other = 1
         :: HAS_COME(1) && FENCED(0) -> l = 1; other = 0
         fi;
         wire[l]?s, a;
         arrive();
         forget()
     }
  :: atomic { /* the kernel begins to copy, without the lock */
       OF_A_LINK(BEGINS_TO_COPY);
       copies_to[l] = destination[l];
       phase[l] = COPYING;
       forget()
     }
  :: atomic { /* the copy ends */
       OF_A_LINK(IS_COPYING);
       copy();
       copies_to[l] = NOWHERE;
       phase[l] = COPIED;
       if
       :: !up_at_receiver[l] -> reading[l] = 0
       :: else
       fi;
       forget()
     }
  :: atomic { /* the segment is complete */
       OF_A_LINK(IS_COMPLETE);
       if
       :: MAY_LOSE(l) || destination[l] == NOWHERE
       :: else -> copies_to[l] = destination[l]; copy(); copies_to[l] = NOWHERE
       fi;
       land();
       assert(consumed <= charged);
       forget()
     }
  :: atomic { /* the receiver also cancels an abandoned message in the end */
       state[0] == MATCHED && (may_cancel || has_abandoned) &&
         (FENCED(0) || !WRITES_TO_0(0)) && (FENCED(1) || !WRITES_TO_0(1)) ->
         cancel();
         forget()
     }

  /* An end gives up a link; the other end learns of it later. */
  :: atomic { OF_A_LINK(LOSES_SENDER); lose(); sender_down(); forget() }
  :: atomic { OF_A_LINK(LOSES_RECEIVER); lose(); receiver_down(); forget() }
  :: atomic { /* the link is made again */
       OF_A_LINK(MAY_RETURN);
       do /* frames of the old link are lost */
       :: wire[l]?_, _
       :: empty(wire[l]) -> break
       od;
       landed_on[l] = 0;
       GRANT(l, 0) = 0;
       GRANT(l, 1) = 0;
       up_at_sender[l] = 1;
       up_at_receiver[l] = 1;
       grant_again();
       forget()
     }
  :: atomic { DONE -> break }
  od;
  assert(charged == consumed && held_count == 0);
  assert(!has_two || landed[4])
}
