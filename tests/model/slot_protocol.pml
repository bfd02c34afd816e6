// SPDX-License-Identifier: Apache-2.0
/* A model of the slots of aggregation switches: flare_offload/core/slot_table.h and window.h.
 *
 * Hosts 0 and 1 are children of a leaf; the leaf and host 2 are children of the root. The network
 * may lose any frame, and may deliver it again at any later time. In every case:
 *  - a switch adds up one contribution of each child, all for the same block;
 *  - a host accepts only the right block's result;
 *  - when no frame is in flight and no further frame is lost, and the hosts ask again, at least one
 *    of them progresses: no block is stuck.
 *
 * Blocks have unlimited numbers here, but frames carry them modulo NUMBERS, so they wrap. No frame
 * arrives so late that its number is in use again, because no frame stays in a network while 2^32
 * others pass. Frames of an earlier generation may arrive at any time.
 *
 * Each guard of the protocol has a mutant, a macro that removes it; SPIN must find an error with
 * each mutant (tests/model/run).
 */
#define NUMBERS 8
#ifdef LONG
#define BLOCKS 14
#else
#define BLOCKS 7
#endif

/* The window is one block wide. In a wider one, the blocks of one place (s, s+W, s+2W, ...) have
 * their own slots, and share nothing with the blocks of another place. */
#ifdef MUTANT_HAS_ONE_SLOT_A_BLOCK
#define SLOTS 1
#else
#define SLOTS 2
#endif
#define HOSTS 3
#define ROOT 0
#define LEAF 1
#define BOTH 3 /* each switch has two children */

/* The largest age of a frame in blocks; the number of an older frame could be a later block's. */
#define LIFETIME (NUMBERS - SLOTS)

#define FILLING 0
#define UP 1
#define DONE 2

/* The first block is SLOTS, so that the blocks before it have numbers, too. */
#define FIRST SLOTS
#define END (FIRST + BLOCKS)

/* For each slot of a switch: the block, its phase, the children that have contributed. */
#define AT(node, block) ((node)*SLOTS + (block) % SLOTS)
byte block_in[2 * SLOTS];
byte phase[2 * SLOTS];
byte arrived[2 * SLOTS];

/* The block in flight of each host. */
byte current[HOSTS];

/* Frames in flight for the first time, or again on request. Old frames need no memory: the state
 * shows which frames were sent before. */
bit from_host[HOSTS];
bit result_to_host[HOSTS];
bit pending_to_host[HOSTS];
bit partial[SLOTS];
bit result_to_leaf[SLOTS];
bit pending_to_leaf[SLOTS];
byte under_way = 0; /* the number of these that are set */

bit told[HOSTS]; /* kPending has arrived for the block in flight */
bit stalled = 0;     /* all have asked again; since then nothing was lost and no host progressed */

byte host;
byte block;
byte other;
byte node;
byte slot;
byte child;
byte ahead;

#define SET(frame) under_way = under_way + 1 - frame; frame = 1
#define CLEAR(frame) under_way = under_way - frame; frame = 0

#define LEAF_OF(h) ((h) == 2 -> ROOT : LEAF)
#define CHILD_OF(h) ((h) == 1 -> 1 : ((h) == 2 -> 1 : 0))

/* ---- Switches ------------------------------------------------------------------------------*/

inline send_result_to_host(h, b) {
  if
  :: current[h] == b -> SET(result_to_host[h])
  :: else /* it has the result already, and drops this one */
  fi
}

inline send_pending_to_host(h, b) {
  if
  :: current[h] == b -> SET(pending_to_host[h])
  :: else
  fi
}

inline send_result_to_leaf(b) {
  if
  :: block_in[AT(LEAF, b)] == b && phase[AT(LEAF, b)] == UP -> SET(result_to_leaf[b % SLOTS])
  :: else
  fi
}

inline send_results(n, b) {
  if
  :: n == ROOT -> send_result_to_leaf(b); send_result_to_host(2, b)
  :: else -> send_result_to_host(0, b); send_result_to_host(1, b)
  fi
}

inline answer_duplicate(n, c, b) {
  if
  :: phase[slot] == FILLING && n == LEAF -> send_pending_to_host(c, b)
  :: phase[slot] == FILLING && n == ROOT && c == 0 -> SET(pending_to_leaf[b % SLOTS])
  :: phase[slot] == FILLING && n == ROOT && c == 1 -> send_pending_to_host(2, b)
#ifndef MUTANT_SENDS_A_PARTIAL_ONCE
  :: phase[slot] == UP -> SET(partial[b % SLOTS])
#endif
#ifndef MUTANT_KEEPS_NO_RESULT
  :: phase[slot] == DONE && n == LEAF -> send_result_to_host(c, b)
  :: phase[slot] == DONE && n == ROOT && c == 0 -> send_result_to_leaf(b)
  :: phase[slot] == DONE && n == ROOT && c == 1 -> send_result_to_host(2, b)
#endif
  :: else
  fi
}

/* Sets `ahead` to 0 or SLOTS if block b may be accepted, otherwise to another value. */
inline look_at_number(b) {
#ifdef MUTANT_COMPARES_NO_NUMBERS
  ahead = (phase[slot] == DONE -> SLOTS : 0)
#else
#ifdef MUTANT_LETS_NUMBERS_NOT_WRAP
  ahead = (b % NUMBERS >= block_in[slot] % NUMBERS
           -> b % NUMBERS - block_in[slot] % NUMBERS : NUMBERS)
#else
  ahead = (b + NUMBERS - block_in[slot] % NUMBERS) % NUMBERS
#endif
#endif
}

#ifdef MUTANT_IGNORES_GENERATIONS
#define PASSES(is_current) true
#else
#define PASSES(is_current) (is_current)
#endif

#ifdef MUTANT_COUNTS_DUPLICATES
#define IS_IN(c) false
#else
#define IS_IN(c) (arrived[slot] & (1 << (c)))
#endif

inline open(n, b) {
  block_in[slot] = b;
  phase[slot] = FILLING;
  arrived[slot] = 0;
  ahead = 0;
  if
  :: n == LEAF -> /* frames for the block before are old from now on */
       CLEAR(partial[b % SLOTS]);
       CLEAR(result_to_leaf[b % SLOTS]);
       CLEAR(pending_to_leaf[b % SLOTS])
  :: else
  fi
}

inline add(n, c, b, is_current) {
  assert(is_current && block_in[slot] == b && !(arrived[slot] & (1 << c)));
  arrived[slot] = arrived[slot] | (1 << c);
  if
  :: arrived[slot] == BOTH && n == ROOT -> phase[slot] = DONE; send_results(ROOT, b)
  :: arrived[slot] == BOTH && n == LEAF -> phase[slot] = UP; SET(partial[b % SLOTS])
  :: else
  fi
}

/* Block b from child c arrives at switch n; is_current: it has the present generation. */
inline contribution(n, c, b, is_current) {
  slot = AT(n, b);
  look_at_number(b);
  if
  :: PASSES(is_current) && ahead == SLOTS && phase[slot] == DONE -> open(n, b)
  :: else
  fi;
  if
  :: PASSES(is_current) && ahead == 0 && IS_IN(c) -> answer_duplicate(n, c, b)
  :: PASSES(is_current) && ahead == 0 && !IS_IN(c) -> add(n, c, b, is_current)
  :: else
  fi
}

/* The result of block b arrives at the leaf from the root. */
inline result_from_root(b) {
  slot = AT(LEAF, b);
  if
#ifndef MUTANT_TAKES_ANY_RESULT
  :: phase[slot] == UP && block_in[slot] % NUMBERS == b % NUMBERS ->
#else
  :: phase[slot] == UP ->
#endif
       assert(block_in[slot] == b);
       phase[slot] = DONE;
       send_results(LEAF, b)
  :: else
  fi
}

/* ---- Hosts ---------------------------------------------------------------------------------*/

/* The result of block b arrives at host h. */
inline result_at_host(h, b) {
  if
#ifndef MUTANT_HOST_TAKES_ANY_RESULT
  :: current[h] < END && current[h] % NUMBERS == b % NUMBERS ->
#else
  :: current[h] < END ->
#endif
       assert(current[h] == b);
       CLEAR(result_to_host[h]);
       CLEAR(pending_to_host[h]);
       CLEAR(from_host[h]); /* frames for this block are old from now on */
       told[h] = 0;
       stalled = 0;
       current[h] = b + 1;
       if
       :: current[h] < END -> SET(from_host[h])
       :: else
       fi
  :: else
  fi
}

inline ask_again(h) {
  if
#ifdef MUTANT_PENDING_ENDS_THE_ASKING
  :: told[h]
#endif
  :: current[h] < END -> SET(from_host[h])
  :: current[h] >= END
  fi
}

/* ---- The network ---------------------------------------------------------------------------*/

/* Whether the sent block b is so recent that switch n cannot confuse it with a later one. */
#define LIVES(n, b) (block_in[AT(n, b)] < (b) + LIFETIME)
#define IS_DONE(n, b) \
  (block_in[AT(n, b)] > (b) || (block_in[AT(n, b)] == (b) && phase[AT(n, b)] == DONE))
#define WAS_SENT_UP(b) \
  (block_in[AT(LEAF, b)] > (b) || (block_in[AT(LEAF, b)] == (b) && phase[AT(LEAF, b)] != FILLING))

inline forget() { host = 0; block = 0; other = 0; node = 0; slot = 0; child = 0; ahead = 0 }

init {
  atomic {
    for (other : 0 .. SLOTS - 1) {
      block_in[other] = other;
      block_in[SLOTS + other] = other;
      phase[other] = DONE;
      phase[SLOTS + other] = DONE;
      arrived[other] = BOTH;
      arrived[SLOTS + other] = BOTH
    }
    for (host : 0 .. HOSTS - 1) {
      current[host] = FIRST;
      SET(from_host[host])
    }
    forget()
  }
  do
  :: atomic { /* a host's frame arrives, or is lost */
       under_way > 0 -> select(host : 0 .. HOSTS - 1);
       if
       :: from_host[host] ->
            CLEAR(from_host[host]);
            block = current[host];
            if
            :: node = LEAF_OF(host); child = CHILD_OF(host); contribution(node, child, block, true)
            :: stalled = 0
            fi
       :: result_to_host[host] ->
            CLEAR(result_to_host[host]);
            block = current[host];
            if
            :: result_at_host(host, block)
            :: stalled = 0
            fi
       :: pending_to_host[host] ->
            CLEAR(pending_to_host[host]);
            if
            :: told[host] = 1
            :: stalled = 0
            fi
       :: else
       fi;
       forget()
     }
  :: atomic { /* a frame between the switches arrives, or is lost */
       under_way > 0 -> select(other : 0 .. SLOTS - 1);
       block = block_in[SLOTS + other];
       if
       :: partial[other] ->
            CLEAR(partial[other]);
            if
            :: contribution(ROOT, 0, block, true)
            :: stalled = 0
            fi
       :: result_to_leaf[other] ->
            CLEAR(result_to_leaf[other]);
            if
            :: result_from_root(block)
            :: stalled = 0
            fi
       :: pending_to_leaf[other] ->
            CLEAR(pending_to_leaf[other]);
            if
            :: phase[SLOTS + other] == UP ->
                 send_pending_to_host(0, block); send_pending_to_host(1, block)
            :: phase[SLOTS + other] != UP
            :: stalled = 0
            fi
       :: else
       fi;
       forget()
     }
  :: atomic { /* an old frame arrives again */
       select(block : FIRST .. END - 1);
       if
       :: select(host : 0 .. HOSTS - 1);
          node = LEAF_OF(host);
          child = CHILD_OF(host);
          if
          :: block <= current[host] && LIVES(node, block) ->
               contribution(node, child, block, true)
          :: IS_DONE(node, block) && current[host] < block + LIFETIME ->
               result_at_host(host, block)
          :: else
          fi
       :: WAS_SENT_UP(block) && LIVES(ROOT, block) -> contribution(ROOT, 0, block, true)
       :: IS_DONE(ROOT, block) && LIVES(LEAF, block) -> result_from_root(block)
       fi;
       forget()
     }
  :: atomic { /* a frame of an earlier generation arrives, with the number of the block in flight */
       select(host : 0 .. HOSTS - 1);
       block = current[host];
       node = LEAF_OF(host);
       child = CHILD_OF(host);
       contribution(node, child, block, false);
       forget()
     }
  :: atomic { /* nothing is in flight: all hosts ask again */
       under_way == 0 &&
       !(current[0] == END && current[1] == END && current[2] == END) ->
         assert(!stalled);
         stalled = 1;
         ask_again(0);
         ask_again(1);
         ask_again(2);
         forget()
     }
  od
}
