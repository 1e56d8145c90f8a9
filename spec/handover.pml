/*
 * The hand-over of one session from a source to a target, ordered by a controller with a durable record.
 *
 * Written as tables. A row S(before, Event, after, when, then) is one transition of the source's machine, T of the
 * target's and H of the controller's hand-over; tests/simulation/test_spec.py compares every row with the code's
 * TRANSITIONS. X_S and X_T are rows of shapes that were rejected, and M are steps of the model that no table has.
 *
 * Messages. One that was sent is a bit that stays: it may be received at any later time, in any order, again and again,
 * or never. A repeated delivery that changes nothing has no row, and what can't be received any more is cleared. Loss
 * needs no row of its own: who waits for a message can always give it up instead (Deadline, PeerFailed, LinkLost,
 * SwapUnknown), and what the code repeats until it is done (thaw, retire, activate, the second swap) is one message that
 * stays.
 *
 * Time. There is none: every deadline may pass at any moment at which the code looks at it.
 *
 * Bounds: N actions, one order; source and target end at most once each, the controller CRASHES times. A process that
 * stops and goes on later is one that is not scheduled for a while.
 *
 *   HANDED    the source's arena is handed over: commit, retire, activate. Else it is copied: commit, activate, retire.
 */

#ifndef N
#define N 2                     /* actions */
#endif
#ifndef CRASHES
#define CRASHES 2               /* of the controller */
#endif
#ifdef HANDED
#define handed 1
#else
#define handed 0
#endif

mtype = {                       /* the source */
    S_CONNECTING, S_CUTTING, S_COPYING, S_FROZEN, S_SEALED, S_PREPARED, S_RETIRED, S_THAWED,
    M_IDLE,                     /* plays; the order has not come */
    M_SOURCE_ENDED,             /* the process is gone, and what it held */
    M_SOURCE_ANEW               /* another process in its name, which holds nothing */
}
mtype = {                       /* the target */
    T_WAITING, T_RECEIVING, T_VERIFYING, T_PREPARED, T_ACTIVE, T_DISCARDED,
    M_ABSENT, M_TARGET_ENDED, M_TARGET_ANEW
}
mtype = {                       /* the hand-over at the controller */
    H_NEW, H_PREPARING, H_COPYING, H_VERIFYING, H_COMMITTING, H_FENCING, H_ACTIVATING, H_RETURNING, H_THAWING, H_RETIRING,
    H_ABORTING, H_ENDED,
    M_DOWN
}
mtype = { J_NONE, J_BEGUN, J_COMMITTED, J_ACTIVATED, J_RETURNED, J_ABORTED, J_DONE }
mtype = { SOURCE, TARGET, NOBODY }

/* The record: all that survives a crash of the controller. */
mtype owner = SOURCE;
mtype journal = J_NONE;
byte cut;                       /* last block of the owner before, once the owner has changed */
bool activated;                 /* ACTIVATED was journalled: from here on the gateway is told of the target */
bool returned;                  /* the owner was swapped back: the source owns again, two epochs later */
bool lost;                      /* the session was declared lost */

/* Hosts. */
mtype src = M_IDLE, tgt = M_ABSENT;
bool src_ended, tgt_ended;      /* the process that took part is gone */
bool round;                     /* a pre-copy round was begun */
bool good;                      /* the bytes at the target are the source's at its seal */
bool verified;                  /* the target has computed an equal root */
bool installed;                 /* ... and installed and captured again: it has answered with the receipt */
byte src_block, src_number;     /* blocks made, actions applied */
byte seal_block, seal_number;
byte tgt_block, tgt_number;

/* The data link, as either end sees it. It may be cut at any time; an end receives until it notices. */
bool src_linked, tgt_linked, link_used;
bool r_hello, r_round, r_digests, r_seal, r_abort, r_prepared, r_refused;

/* Calls, and their answers. */
bool c_prepare, c_run, c_activate, c_retire, c_discard, c_thaw, c_swap, c_return;
bool a_ready, a_sealed, a_receipt, a_activated, a_retired, a_discarded, a_thawed;
bool a_swapped;

/* The controller's memory. */
mtype ctl = H_NEW;
mtype reading;                  /* 0, or the record is being read (J_NONE), or it said: SOURCE, TARGET */
bool asks_source, asks_target;  /* begun anew, it asks what it was told or would have been told before */
bool receipt, silent, src_gone, tgt_gone, await_discard, await_thaw;

/* The gateway and its player. */
byte taken, sent, shown;        /* actions taken, sent to the source; blocks shown, which answer their actions */
byte sent_from;                 /* the first action that the target was sent; 0: not attached to it */
bool sees_target;               /* it knows that the epoch has grown */

/* Never set: their names say in spin's output which property a failed assertion belongs to. */
bool never_two, thawed_after_commit, only_verified, exactly_once, in_order, honest, fenced_first, lets_go, comes_to_rest;
bool never_seen, kept, not_wasted;

#define plays_source (src == M_IDLE || src == S_CONNECTING || src == S_CUTTING || src == S_COPYING || src == S_THAWED)
#define plays_target (tgt == T_ACTIVE)
#define stands (src == S_SEALED || src == S_PREPARED)
#define source_let_go (src == S_RETIRED || src == M_SOURCE_ENDED || src == M_SOURCE_ANEW)

#ifdef ROWS                     /* spin tells which statements are never reached only where a row is not one step to it */
#define STEP atomic
#else
#define STEP d_step
#endif
#define S(before, event, after, when, then) :: STEP { src == S_##before && (when) -> src = S_##after; then }
#define T(before, event, after, when, then) :: STEP { tgt == T_##before && (when) -> tgt = T_##after; then }
#define H(before, event, after, when, then) :: STEP { ctl == H_##before && (when) -> ctl = H_##after; then }
#define M(when, then) :: STEP { (when) -> then }
#define X_S(before, event, after, when, then) S(before, event, after, when, then)
#define X_H(before, event, after, when, then) H(before, event, after, when, then)
#define X_T(before, event, after, when, then) T(before, event, after, when, then)

/* ------------------------------------------------------------------------------------------------ the source */

#define SRC_UNLINKS src_linked = 0; r_digests = 0; r_prepared = 0; r_refused = 0
#define SEALS seal_block = src_block; seal_number = src_number; r_seal = tgt_linked; a_sealed = asks
#define THAWS assert(thawed_after_commit || owner == SOURCE); r_abort = src_linked && tgt_linked; SRC_UNLINKS
#define ENDS SRC_UNLINKS; THAWS
#define OBEYS THAWS; HEARS_THAW
#define RESUMES r_abort = src_linked && tgt_linked; SRC_UNLINKS
#define RETIRES assert(kept || owner != SOURCE); SRC_UNLINKS; c_retire = 0; a_retired = 1
#define listening (tgt == T_WAITING && !link_used)
#define asks (ctl == H_PREPARING || ctl == H_COPYING || ctl == H_VERIFYING)

#ifdef FORGETFUL                /* a late call of a move that was given up is taken for a new one */
#define HEARS_THAW c_thaw = 0; a_thawed = 1
#define HEARS_DISCARD c_discard = 0; a_discarded = 1
#else
#define HEARS_THAW c_thaw = 0; a_thawed = 1; c_run = 0
#define HEARS_DISCARD c_discard = 0; a_discarded = 1; c_prepare = 0
#endif

active proctype Source() {
end:
    do
    M(src == M_IDLE && c_run,                           src = S_CONNECTING; c_run = 0)

    S(CONNECTING, Connected, CUTTING, listening,        src_linked = 1; tgt_linked = 1; link_used = 1; r_hello = 1)
    S(CONNECTING, Deadline, THAWED, true,               THAWS)
    S(CONNECTING, Abort, THAWED, !listening,            THAWS)
    S(CONNECTING, Abort, THAWED, c_thaw,                OBEYS)

    S(CUTTING, CutTaken, COPYING, !round,               round = 1; r_round = tgt_linked)
    S(CUTTING, CutTaken, FROZEN, true,                  skip)
    S(CUTTING, CutTaken, SEALED, round,                 SEALS)
    S(CUTTING, CutTaken, THAWED, round,                 THAWS)
    S(CUTTING, RefusedIn, THAWED, r_refused,                ENDS)
    S(CUTTING, LinkLost, THAWED, src_linked,                ENDS)
    S(CUTTING, Deadline, THAWED, true,                  THAWS)
    S(CUTTING, Abort, THAWED, c_thaw,                   OBEYS)

    S(COPYING, DigestsIn, CUTTING, r_digests,                 r_digests = 0)
    S(COPYING, RefusedIn, THAWED, r_refused,                ENDS)
    S(COPYING, LinkLost, THAWED, src_linked,                ENDS)
    S(COPYING, Deadline, THAWED, true,                  THAWS)
    S(COPYING, Abort, THAWED, c_thaw,                   OBEYS)

    S(FROZEN, Posted, SEALED, true,                     SEALS)
    S(FROZEN, Posted, THAWED, true,                     THAWS)
    S(FROZEN, RefusedIn, THAWED, r_refused,                ENDS)
    S(FROZEN, LinkLost, THAWED, src_linked,                ENDS)
    S(FROZEN, Deadline, THAWED, true,                   THAWS)
    S(FROZEN, Abort, THAWED, c_thaw,                    OBEYS)

    S(SEALED, PreparedIn, PREPARED, r_prepared,             r_prepared = 0)
    S(SEALED, RefusedIn, THAWED, r_refused,                ENDS)
    S(SEALED, LinkLost, SEALED, src_linked,              SRC_UNLINKS)
    S(SEALED, Retire, RETIRED, c_retire,                RETIRES)
    S(PREPARED, LinkLost, PREPARED, src_linked,              SRC_UNLINKS)
    S(PREPARED, Retire, RETIRED, c_retire,              RETIRES)
#ifndef NEVER_RESUME
    S(SEALED, Abort, THAWED, c_thaw,                    OBEYS)
    S(PREPARED, Abort, THAWED, c_thaw,                  OBEYS)
#endif
#ifdef RESUME_ON_SILENCE
    X_S(SEALED, Deadline, THAWED, true,                 RESUMES)
    X_S(PREPARED, Deadline, THAWED, true,               RESUMES)
#endif
#ifdef LEASE
    X_S(SEALED, LeaseHeld, THAWED, true,                RESUMES)
    X_S(PREPARED, LeaseHeld, THAWED, true,              RESUMES)
#endif
#ifdef OWN_TROUBLE
    X_S(SEALED, Trouble, THAWED, true,                  RESUMES)
    X_S(PREPARED, Trouble, THAWED, true,                RESUMES)
#endif
    S(RETIRED, Retire, RETIRED, c_retire,               RETIRES)

    M(stands && asks_source,                            asks_source = 0; a_sealed = asks)

    /* The controller's words to a source without an attempt under way. */
    M(c_thaw && (src == M_IDLE || src == S_THAWED || src == M_SOURCE_ANEW), HEARS_THAW)
    M(c_retire && (plays_source || src == M_SOURCE_ANEW), src = M_SOURCE_ANEW; RETIRES)

    /* Play: block n applies action n, and no other. */
    M(plays_source && src_number < sent,
        assert(never_two || (owner == SOURCE && !plays_target));
        src_number++; assert(exactly_once || src_number == src_block + 1); src_block++)

    M(src == M_SOURCE_ENDED,                            src = M_SOURCE_ANEW)
    od
}

/* ------------------------------------------------------------------------------------------------ the target */

#define TGT_UNLINKS tgt_linked = 0; r_hello = 0; r_round = 0; r_seal = 0; r_abort = 0
#define CLOSES TGT_UNLINKS; good = 0
#define REFUSES r_refused = src_linked && tgt_linked; CLOSES
#define FORGETS CLOSES; verified = 0; installed = 0; HEARS_DISCARD
#define INSTALLS                                                                                                       \
    assert(never_two || (owner == TARGET && !plays_source));                                                           \
    assert(only_verified || (good && verified && installed));                                                          \
    assert(fenced_first || !handed || source_let_go);                                                                  \
    tgt_block = seal_block; tgt_number = knows_number; c_activate = 0; a_activated = 1

#ifdef NUMBER_FORGOTTEN
#define knows_number 0
#else
#define knows_number seal_number
#endif
#ifdef DIGEST_SKIPPED
#define roots_agree true
#else
#define roots_agree good
#endif

active proctype Target() {
end:
    do
    M(tgt == M_ABSENT && c_prepare,                     tgt = T_WAITING; c_prepare = 0; a_ready = asks)

    T(WAITING, HelloIn, RECEIVING, r_hello,          r_hello = 0)
    T(WAITING, RoundEndIn, DISCARDED, r_round, REFUSES)
    T(WAITING, SealIn, DISCARDED, r_seal, REFUSES)
    T(WAITING, AbortIn, DISCARDED, r_abort, CLOSES)
    T(WAITING, LinkLost, DISCARDED, tgt_linked, CLOSES)
    T(WAITING, Deadline, DISCARDED, true,               REFUSES)
    T(WAITING, Abort, DISCARDED, true,                  CLOSES)
    T(WAITING, DiscardIn, DISCARDED, c_discard,         FORGETS)

    T(RECEIVING, RoundEndIn, RECEIVING, r_round,    r_round = 0; r_digests = src_linked)
    T(RECEIVING, RoundEndIn, DISCARDED, r_round, REFUSES)
    T(RECEIVING, HelloIn, DISCARDED, tgt_linked,        REFUSES)
    T(RECEIVING, SealIn, VERIFYING, r_seal,        good = 1; r_seal = 0)
    T(RECEIVING, SealIn, VERIFYING, r_seal,        good = 0; r_seal = 0)
    T(RECEIVING, SealIn, DISCARDED, r_seal, REFUSES)
    T(RECEIVING, AbortIn, DISCARDED, r_abort, CLOSES)
    T(RECEIVING, LinkLost, DISCARDED, tgt_linked, CLOSES)
    T(RECEIVING, Deadline, DISCARDED, true,             REFUSES)
    T(RECEIVING, Abort, DISCARDED, true,                CLOSES)
    T(RECEIVING, DiscardIn, DISCARDED, c_discard,       FORGETS)

    T(VERIFYING, RootComputed, PREPARED, roots_agree,   verified = 1; r_prepared = src_linked && tgt_linked; TGT_UNLINKS)
    T(VERIFYING, RootComputed, DISCARDED, !good,        REFUSES)
    T(VERIFYING, SealIn, DISCARDED, tgt_linked,         REFUSES)
    T(VERIFYING, AbortIn, DISCARDED, r_abort, CLOSES)
    T(VERIFYING, LinkLost, VERIFYING, tgt_linked,       TGT_UNLINKS)
    T(VERIFYING, Deadline, DISCARDED, true,             REFUSES)
    T(VERIFYING, Abort, DISCARDED, true,                CLOSES)
    T(VERIFYING, DiscardIn, DISCARDED, c_discard,       FORGETS)

    M(tgt == T_PREPARED && !installed,                  installed = 1; a_receipt = asks)
    M(tgt == T_PREPARED && installed && asks_target,    asks_target = 0; a_receipt = asks)
    T(PREPARED, DiscardIn, DISCARDED, !installed,       CLOSES; verified = 0)
    T(PREPARED, DiscardIn, DISCARDED, c_discard,        FORGETS)
    T(PREPARED, ActivateIn, ACTIVE, c_activate && installed, INSTALLS)
    T(ACTIVE, ActivateIn, ACTIVE, c_activate,           c_activate = 0; a_activated = 1)
#ifdef LEASE
    X_T(PREPARED, LeaseOut, ACTIVE, installed,          owner = TARGET; cut = seal_block; INSTALLS)
#endif

    M(c_discard && (tgt == M_ABSENT || tgt == T_DISCARDED || tgt == T_ACTIVE || tgt == M_TARGET_ANEW), HEARS_DISCARD)

    M(plays_target && !lost && sent_from != 0 && sent_from <= tgt_number + 1 && tgt_number < taken,
        assert(never_two || (owner == TARGET && !plays_source));
        tgt_number++; assert(exactly_once || tgt_number == tgt_block + 1); tgt_block++)

    M(tgt == M_TARGET_ENDED,                            tgt = M_TARGET_ANEW)
    od
}

/* -------------------------------------------------------------------------------------------- the controller */

#define UNDOES                                                                                                         \
    journal = J_ABORTED; STOPS_ASKING;                                                                                 \
    await_discard = !tgt_gone; c_discard = c_discard || !tgt_gone; await_thaw = !src_gone; c_thaw = c_thaw || !src_gone
#define STOPS_ASKING asks_source = 0; asks_target = 0; a_ready = 0; a_sealed = 0; a_receipt = 0; receipt = 0; silent = 0; ENDS_SWAP
#define ENDS_SWAP a_swapped = 0; reading = 0
#define SWAPS STOPS_ASKING; c_swap = 1
#define ACTIVATES c_activate = 1
#define TAKES_BACK c_return = 1; ENDS_SWAP
#define THAWS_AGAIN c_thaw = 1; ENDS_SWAP
#define KNOWN journal = J_ACTIVATED; activated = 1
#define DONE journal = J_DONE
#define CHECKS_SOURCE assert(lets_go || source_let_go)
#ifdef UNORDERED_READ
#define ordered true
#else
#define ordered (!c_swap && !c_return)  /* the record answers a read after every swap asked of it before */
#endif
#define swapped (a_swapped)
#define owned (reading == TARGET)
#define not_owned (reading == SOURCE)
#define source_fell (src_ended && !src_gone)
#define target_fell (tgt_ended && !tgt_gone)
#define unread (journal == J_BEGUN && ordered)

active proctype Controller() {
end:
    do
    H(NEW, Begin, PREPARING, journal == J_NONE,         journal = J_BEGUN; c_prepare = !tgt_ended)
    H(NEW, Recovered, ABORTING, unread,                 UNDOES)
    H(NEW, Recovered, COPYING, unread,                  asks_source = 1; asks_target = 1)
    H(NEW, Recovered, ABORTING, journal == J_ABORTED,   UNDOES)
    H(NEW, Recovered, FENCING, journal == J_COMMITTED && ordered && handed, c_retire = 1)
    H(NEW, Recovered, ACTIVATING, journal == J_COMMITTED && ordered && !handed, ACTIVATES)
    H(NEW, Recovered, RETIRING, journal == J_ACTIVATED, c_retire = 1)
    H(NEW, Recovered, THAWING, journal == J_RETURNED,   c_thaw = 1)
    H(NEW, Recovered, ENDED, journal == J_DONE,         skip)

    H(PREPARING, TargetReady, COPYING, a_ready,         a_ready = 0; c_run = !src_ended)
    H(PREPARING, PeerFailed, ABORTING, true,            UNDOES)
    H(PREPARING, DeadlinePassed, ABORTING, true,        UNDOES)
    H(PREPARING, HostGone, ABORTING, source_fell,       src_gone = 1; UNDOES)
    H(PREPARING, HostGone, ABORTING, target_fell,       tgt_gone = 1; UNDOES)

    H(COPYING, SourceSealed, VERIFYING, a_sealed && !receipt, a_sealed = 0)
    H(COPYING, SourceSealed, COMMITTING, a_sealed && receipt, SWAPS)
    H(COPYING, SourceSealed, ABORTING, a_sealed && receipt, UNDOES)
    H(COPYING, TargetPrepared, COPYING, a_receipt && !receipt && !silent, receipt = 1; a_receipt = 0)
    H(COPYING, TargetPrepared, COMMITTING, a_receipt && silent, SWAPS)
    H(COPYING, TargetPrepared, ABORTING, a_receipt && silent, UNDOES)
    H(COPYING, PeerFailed, COPYING, !silent && !receipt, silent = 1)
    H(COPYING, PeerFailed, COMMITTING, !silent && receipt, SWAPS)
    H(COPYING, PeerFailed, ABORTING, true,              UNDOES)
    H(COPYING, HostGone, COPYING, source_fell && !receipt, src_gone = 1; silent = 1)
    H(COPYING, HostGone, COMMITTING, source_fell && receipt, src_gone = 1; SWAPS)
    H(COPYING, HostGone, ABORTING, target_fell && !src_gone, tgt_gone = 1; UNDOES)
    H(COPYING, HostGone, ENDED, target_fell && src_gone, tgt_gone = 1; UNDOES; DONE)
    H(COPYING, DeadlinePassed, ABORTING, true,          UNDOES)

    H(VERIFYING, TargetPrepared, COMMITTING, a_receipt, SWAPS)
    H(VERIFYING, TargetPrepared, ABORTING, a_receipt,   UNDOES)
    H(VERIFYING, PeerFailed, ABORTING, true,            UNDOES)
    H(VERIFYING, HostGone, VERIFYING, source_fell,      src_gone = 1)
    H(VERIFYING, HostGone, ABORTING, target_fell && !src_gone, tgt_gone = 1; UNDOES)
    H(VERIFYING, HostGone, ENDED, target_fell && src_gone, tgt_gone = 1; UNDOES; DONE)
    H(VERIFYING, DeadlinePassed, ABORTING, true,        UNDOES)

    H(COMMITTING, SwapUnknown, COMMITTING, reading == 0, reading = J_NONE)
    H(COMMITTING, HostGone, COMMITTING, source_fell,    src_gone = 1)
    H(COMMITTING, HostGone, COMMITTING, target_fell,    tgt_gone = 1)
    H(COMMITTING, Swapped, FENCING, swapped && !tgt_gone && handed && !src_gone, c_retire = 1; ENDS_SWAP)
    H(COMMITTING, Swapped, ACTIVATING, swapped && !tgt_gone && (!handed || src_gone), ACTIVATES; ENDS_SWAP)
    H(COMMITTING, OwnerRead, FENCING, owned && !tgt_gone && handed && !src_gone, c_retire = 1; ENDS_SWAP)
    H(COMMITTING, OwnerRead, ACTIVATING, owned && !tgt_gone && (!handed || src_gone), ACTIVATES; ENDS_SWAP)
#ifdef LOST_UNFENCED
    H(COMMITTING, Swapped, RETIRING, swapped && tgt_gone && !src_gone && !handed, c_retire = 1; ENDS_SWAP)
    H(COMMITTING, Swapped, ENDED, swapped && tgt_gone && (src_gone || handed), DONE; CHECKS_SOURCE; ENDS_SWAP)
    H(COMMITTING, OwnerRead, RETIRING, owned && tgt_gone && !src_gone && !handed, c_retire = 1; ENDS_SWAP)
    H(COMMITTING, OwnerRead, ENDED, owned && tgt_gone && (src_gone || handed), DONE; CHECKS_SOURCE; ENDS_SWAP)
#else
    H(COMMITTING, Swapped, RETURNING, swapped && tgt_gone && !src_gone, TAKES_BACK)
    H(COMMITTING, Swapped, ENDED, swapped && tgt_gone && src_gone, DONE; CHECKS_SOURCE; ENDS_SWAP)
    H(COMMITTING, OwnerRead, RETURNING, owned && tgt_gone && !src_gone, TAKES_BACK)
    H(COMMITTING, OwnerRead, ENDED, owned && tgt_gone && src_gone, DONE; CHECKS_SOURCE; ENDS_SWAP)
#endif
    H(COMMITTING, OwnerRead, ABORTING, not_owned && !(src_gone && tgt_gone), UNDOES)
    H(COMMITTING, OwnerRead, ENDED, not_owned && src_gone && tgt_gone, UNDOES; DONE)

    H(FENCING, Retired, ACTIVATING, a_retired && !tgt_gone, a_retired = 0; ACTIVATES)
    H(FENCING, Retired, ENDED, a_retired && tgt_gone,   a_retired = 0; DONE; CHECKS_SOURCE)
    H(FENCING, HostGone, ACTIVATING, source_fell && !tgt_gone, src_gone = 1; ACTIVATES)
    H(FENCING, HostGone, ENDED, source_fell && tgt_gone, src_gone = 1; DONE; CHECKS_SOURCE)
    H(FENCING, HostGone, FENCING, target_fell,          tgt_gone = 1)

    /* Every line of the journal is durable before what follows it: a controller that ends between them goes on so. */
    H(ACTIVATING, Activated, RETIRING, a_activated && !handed && !src_gone, a_activated = 0; KNOWN; c_retire = 1)
    H(ACTIVATING, Activated, ENDED, a_activated && (handed || src_gone), a_activated = 0; KNOWN; DONE; CHECKS_SOURCE)
    H(ACTIVATING, HostGone, RETURNING, target_fell && !handed && !src_gone, tgt_gone = 1; TAKES_BACK)
    H(ACTIVATING, HostGone, ENDED, target_fell && (handed || src_gone), tgt_gone = 1; DONE; CHECKS_SOURCE)
    H(ACTIVATING, HostGone, ACTIVATING, source_fell,    src_gone = 1)
#ifdef EXHAUSTED
    H(ACTIVATING, PeerFailed, RETIRING, !handed && !src_gone, c_retire = 1; lost = 1; owner = NOBODY; assert(honest || tgt_ended))
    H(ACTIVATING, PeerFailed, ENDED, handed || src_gone, DONE; lost = 1; owner = NOBODY; assert(honest || tgt_ended))
#endif

#ifdef RETURN_ON_SILENCE
    X_H(ACTIVATING, PeerFailed, RETURNING, !handed && !src_gone, TAKES_BACK)
#endif

    H(RETURNING, SwapUnknown, RETURNING, reading == 0, reading = J_NONE)
    H(RETURNING, HostGone, RETURNING, source_fell,      src_gone = 1)
    H(RETURNING, Swapped, THAWING, swapped && !src_gone, THAWS_AGAIN)
    H(RETURNING, Swapped, ENDED, swapped && src_gone,   DONE; ENDS_SWAP)
    H(RETURNING, OwnerRead, THAWING, not_owned && !src_gone, THAWS_AGAIN)
    H(RETURNING, OwnerRead, ENDED, not_owned && src_gone, DONE; ENDS_SWAP)

    H(THAWING, Thawed, ENDED, a_thawed,                 a_thawed = 0; DONE)
    H(THAWING, HostGone, ENDED, source_fell,            src_gone = 1; DONE)
    H(THAWING, HostGone, THAWING, target_fell,          tgt_gone = 1)

    H(RETIRING, Retired, ENDED, a_retired,              a_retired = 0; DONE; CHECKS_SOURCE)
    H(RETIRING, PeerFailed, ENDED, true,                DONE)
    H(RETIRING, HostGone, ENDED, source_fell,           src_gone = 1; DONE; CHECKS_SOURCE)
    H(RETIRING, HostGone, RETIRING, target_fell,        tgt_gone = 1)

    H(ABORTING, Discarded, ABORTING, a_discarded && await_discard && await_thaw, await_discard = 0; a_discarded = 0)
    H(ABORTING, Discarded, ENDED, a_discarded && await_discard && !await_thaw, a_discarded = 0; await_discard = 0; DONE)
    H(ABORTING, PeerFailed, ABORTING, await_discard && await_thaw, await_discard = 0)
    H(ABORTING, PeerFailed, ENDED, await_discard && !await_thaw, await_discard = 0; DONE)
    H(ABORTING, Thawed, ABORTING, a_thawed && await_thaw && await_discard, a_thawed = 0; await_thaw = 0)
    H(ABORTING, Thawed, ENDED, a_thawed && await_thaw && !await_discard, a_thawed = 0; await_thaw = 0; DONE)
    H(ABORTING, HostGone, ABORTING, source_fell && await_discard, src_gone = 1; await_thaw = 0)
    H(ABORTING, HostGone, ENDED, source_fell && !await_discard, src_gone = 1; await_thaw = 0; DONE)
    H(ABORTING, HostGone, ABORTING, target_fell && await_thaw, tgt_gone = 1; await_discard = 0)
    H(ABORTING, HostGone, ENDED, target_fell && !await_thaw, tgt_gone = 1; await_discard = 0; DONE)

    H(ENDED, HostGone, ENDED, source_fell,              src_gone = 1)
    H(ENDED, HostGone, ENDED, target_fell,              tgt_gone = 1)

    /* What the record gives to a process that has ended is declared lost once no order holds the session. */
    M(ctl == H_ENDED && ((owner == SOURCE && src_gone) || (owner == TARGET && tgt_gone)),
        assert(honest || (owner == SOURCE && src_ended) || (owner == TARGET && tgt_ended));
        assert(not_wasted || activated || !stands);
        lost = 1; owner = NOBODY)

    M(reading == J_NONE && ordered,                     reading = owner)
    M(ctl == M_DOWN,                                    ctl = H_NEW)
    od
}

/* The swap: one transaction over owner, epoch and journal. It may be made although its answer is lost. */
active proctype Record() {
end:
    do
    M(c_swap && owner == SOURCE && journal == J_BEGUN,
        assert(never_two || !plays_source);
        assert(only_verified || (good && verified && installed) || tgt_ended);
        owner = TARGET; journal = J_COMMITTED; cut = seal_block; a_swapped = (ctl == H_COMMITTING); c_swap = 0)
    M(c_return && owner == TARGET && journal == J_COMMITTED,
        assert(never_seen || (!sees_target && tgt_block <= cut));
        owner = SOURCE; returned = 1; journal = J_RETURNED; a_swapped = (ctl == H_RETURNING); c_return = 0)
    M(c_return && ctl == M_DOWN,                        c_return = 0)
    M(c_swap && !(owner == SOURCE && journal == J_BEGUN), c_swap = 0)
    M(c_swap,                                           c_swap = 0)
    od
}

/* ----------------------------------------------------------------------------------------------- the gateway */

#define max(a, b) (a > b -> a : b)
#ifdef TOLD_EARLY
#define told true               /* at the commit, as the code did before there was a way back */
#else
#define told activated
#endif

active proctype Gateway() {
end:
    do
    /* The player acts; the action goes to the owner that the gateway knows, and is kept. */
    M(taken < N && !lost,                               taken++; sent = (sees_target -> sent : taken))
    M(!sees_target && owner == TARGET && told,          sees_target = 1)
    /* Attached to the target: it says what it has applied, and is sent every action without an answer. */
    M(sees_target && plays_target && sent_from == 0,    sent_from = max(shown, tgt_number) + 1)
    /* The next block, from the source up to the cut and from the target after it. */
    M(shown < src_block && (!sees_target || shown < cut),
        shown++; assert(never_two || owner != TARGET || shown <= cut))
    M(sees_target && shown >= cut && shown < tgt_block, shown++)
    od
}

/* --------------------------------------------------------------------------------------------------- trouble */

active proctype SourceEnds() {
    if
    M(src != M_SOURCE_ANEW, src = M_SOURCE_ENDED; src_ended = 1; c_run = 0; SRC_UNLINKS)
    :: skip
    fi
}

active proctype TargetEnds() {
    if
    M(true, tgt = M_TARGET_ENDED; tgt_ended = 1; c_prepare = 0; CLOSES)
    :: skip
    fi
}

active proctype ControllerEnds() {
    byte times;
    do
    M(ctl != M_DOWN && times < CRASHES, times++; ctl = M_DOWN;
        STOPS_ASKING; src_gone = 0; tgt_gone = 0; await_discard = 0; await_thaw = 0)
    :: break
    od
}

/* ------------------------------------------------------------------------------------------------ finally one */

#define one ((owner == SOURCE && plays_source) || (owner == TARGET && plays_target))
#define settled (ctl == H_ENDED && (lost || (one && shown == N)))

/* Where nothing can happen any more, the session must be settled. With the search for cycles below it is all of it. */
#ifdef REST
active proctype Rest() {
    timeout -> assert(comes_to_rest || settled)
}
#endif
#ifdef LIVENESS
ltl finally_one { <> [] settled }
#endif
