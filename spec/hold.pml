/*
 * How a lock is held: refresh, look and deadline. lock.pml models how it is acquired
 * and resumed. docs/evidence/testing.md maps each step to docs/evidence/protocol.md.
 *
 * A holder holds with two objects: its flag, and lock.exclusive, which this model calls
 * the pointer. It renews each apart, and a failure of one keeps the progress of the
 * other. Beside that it looks at both from time to time. A successor enters when it finds
 * the flag gone, or stale and reaped.
 *
 * Two assertions:
 * 1. The holder doesn't act while the successor is in. BESIDE leaves it out.
 * 2. No look and no refresh confirms a lock that the successor has passed before it was
 *    sent. So a holder whose look is answered after its loss acts no more.
 * A loss ends the run: what the holder's late requests do to others is lock.pml's.
 *
 * Two assumptions, each of which a variant drops:
 *   PAUSED   the holder's clocks stop, and real time doesn't: a hypervisor pauses the
 *            machine.
 *   DIVIDED  another client deletes the flag after a refresh has looked at it and before
 *            the put of that refresh is applied, or is certain never to be.
 * BREAK is no assumption: break-lock deletes the objects of a live lock. CLONED is none
 * either: the machine is cloned, and a copy of the holder refreshes the lock in place of
 * the successor. OWN_BY_ID: the holder takes the copy's bodies for its own.
 *
 * The store heeds If-Match; or CREATES: it heeds it, but creates an object that is
 * absent; or IGNORES: it heeds no condition. The engine puts with If-Match; or LOOKS: it
 * looks before each put, and puts with no condition; or LOOKS and MATCHES: both.
 *
 * Time goes in ticks. A request has the three outcomes that it has in lock.pml. One put
 * of each object at most is late at a time.
 */

#ifndef DEADLINE
#define DEADLINE 3            /* ticks from the send of a refresh to the end of its lease */
#define TTL 4                 /* ticks from its arrival until the object is stale */
#endif
#define INTERVAL 2            /* ticks from one refresh to the next */
#define LOOK 1                /* ticks from one look to the next */

#define FLAG 0
#define POINTER 1

/* What is stored under a key: nothing; the version that the holder knows; a version of
 * the holder's that it doesn't know, because the put had no answer; another client's. */
#define NONE 0
#define KNOWN 1
#define UNKNOWN 2
#define OTHERS 3
byte stored[2];
#define gone(o) (stored[o] == NONE || stored[o] == OTHERS)
#ifdef OWN_BY_ID
#define COPIED UNKNOWN
#else
#define COPIED OTHERS
#endif

/* A put that is applied later: it has no condition; or names the version that the holder
 * knows; or one that the holder knew, which is never stored again. */
#define PLAIN 1
#define NAMES_KNOWN 2
#define NAMES_PAST 3
byte late[2];
byte lateAge;                 /* of the body that a late put of the pointer brings */

byte age[2];                  /* of what is stored, in real ticks */
byte sent[2];                 /* ticks since the send of the last refresh that counts */
byte begun[2];                /* ticks since the send of the one that is under way */
#define IDLE DEADLINE
bit dated[2];                 /* the one that counts was sent when the successor had entered */
bit looked[2];                /* a refresh has looked, and its put isn't over */

bit live = 1;                 /* the lock's context is live: the command runs */
bit in;                       /* the successor holds */
bit passed;                   /* it has entered since the holder did */
byte acted;                   /* the holder's ticks since then */
byte unseen;                  /* the holder's ticks since the send of its last answered look */
bit looking;

/* The lease counts from the older of both sends. */
#if defined(SHARED) || defined(DATED_BY_THE_FLAG)
#define leaseAge sent[FLAG]
#elif defined(DATED_BY_THE_LAST)
#define leaseAge (sent[FLAG] < sent[POINTER] -> sent[FLAG] : sent[POINTER])
#else
#define leaseAge (sent[FLAG] > sent[POINTER] -> sent[FLAG] : sent[POINTER])
#endif

/* Another client can delete the flag now. */
#ifdef DIVIDED
#define whole 1
#else
#define whole (!looked[FLAG] && !late[FLAG])
#endif

#if !defined(LOOKS) || defined(MATCHES)
#define condition NAMES_KNOWN
#else
#define condition PLAIN
#endif

/* The store takes a put of this condition. */
#if defined(IGNORES)
#define takes(o, c) 1
#elif defined(CREATES)
#define takes(o, c) (c == PLAIN || stored[o] == NONE || c == NAMES_KNOWN && stored[o] == KNOWN)
#else
#define takes(o, c) (c == PLAIN || c == NAMES_KNOWN && stored[o] == KNOWN)
#endif

/* A put that replaces what the copy has written ends the copy's lock at its next look. */
#ifdef CLONED
#define outlives(o) passed = (stored[o] == OTHERS -> 0 : passed)
#else
#define outlives(o) skip
#endif

/* learn: the holder knows what is stored now. */
inline learn(o) {
	stored[o] = KNOWN;
	late[o] = (late[o] == NAMES_KNOWN -> NAMES_PAST : late[o])
}

/* A pointer's age is that of its body, the only thing that a client of the original
 * protocol looks at; a flag's is that by the store's clock. */
#ifdef ORIGINAL
#define ageOf(o, body) (o == POINTER -> body : 0)
#else
#define ageOf(o, body) 0
#endif

/* An answer confirms the lock: a look's does, and that of a refresh by which the lease
 * counts from a later time, which takes both objects. */
#ifdef CLONED
#define confirm(after) assert(!(after && passed))
#else
#define confirm(after) assert(!after)
#endif
#ifdef SHARED
#define datedAfter dated[FLAG]
#else
#define datedAfter (dated[FLAG] && dated[POINTER])
#endif

/* Renew is one refresh of one object after another, whenever the holder likes. */
proctype Renew(byte o) provided (live) {
	bit after, lost;

again:	atomic { begun[o] = 0; after = passed };
#ifdef LOOKS
	if
	:: atomic { gone(o) -> looked[o] = 1; lost = 1 }
	:: atomic { !gone(o) -> looked[o] = 1; if :: stored[o] == UNKNOWN -> learn(o) :: else fi }
#ifndef STEADY
	:: atomic { looked[o] = 0; begun[o] = IDLE; after = 0; goto again }
#endif
	fi;
	if
	:: atomic { lost -> live = 0 }
	:: atomic { !lost -> skip }
	fi;
#endif
	if
	:: atomic { takes(o, condition) ->
		dated[o] = after;
		confirm(datedAfter);
		outlives(o);
		learn(o);
		age[o] = ageOf(o, begun[o]);
		sent[o] = begun[o];
		looked[o] = 0; begun[o] = IDLE; after = 0;
		goto again }
	:: atomic { !takes(o, condition) -> looked[o] = 0 }
#ifndef STEADY
	:: atomic { !late[o] ->
		late[o] = condition;
#ifdef ORIGINAL
		lateAge = (o == POINTER -> begun[o] : lateAge);
#endif
		looked[o] = 0; begun[o] = IDLE; after = 0;
		goto again }
	:: atomic { looked[o] = 0; begun[o] = IDLE; after = 0; goto again }
#endif
	fi;
	/* Refused: the object isn't as the holder knows it. */
	if
	:: atomic { gone(o) -> live = 0 }
	:: atomic { !gone(o) -> learn(o); begun[o] = IDLE; after = 0; goto again }
#ifndef STEADY
	:: atomic { begun[o] = IDLE; after = 0; goto again }
#endif
	fi
}

/* Watch is one look after another. A look that fails changes nothing. */
proctype Watch() provided (live) {
	bit after, lost;

again:	atomic { after = passed; looking = 1; unseen = 0; lost = gone(FLAG) };
	if
#ifdef BLIND
	:: atomic { confirm(after) }
#elif defined(SHARED)
	:: atomic { lost -> live = 0 }
	:: atomic { !lost -> confirm(after) }
#else
	:: atomic { lost || gone(POINTER) -> live = 0 }
	:: atomic { !lost && !gone(POINTER) -> confirm(after) }
#endif
#ifndef STEADY
	:: skip
#endif
	fi;
	atomic { looking = 0; after = 0; lost = 0; goto again }
}

/* Act is what the lock is for. */
proctype Act() provided (live) {
	do
	:: assert(!in)
	od
}

/* Successor is an exclusive acquirer, reduced to what concerns this holder. */
proctype Successor() provided (live) {
	bit stale;

#ifdef ORIGINAL
	/* A client of the original protocol looks at the pointer alone. */
look:	stored[POINTER] == NONE || age[POINTER] >= TTL;
	atomic { stored[POINTER] = OTHERS; age[POINTER] = 0 };
	if
	:: atomic { stored[POINTER] == OTHERS -> skip }
	:: atomic { stored[POINTER] != OTHERS -> goto look }
	fi;
#else
look:	if
	:: atomic { stored[FLAG] == NONE -> skip }
	:: atomic { stored[FLAG] != NONE && age[FLAG] >= TTL -> stale = 1 }
	fi;
	if
	:: atomic { stale && whole -> stored[FLAG] = NONE; stale = 0 }
	:: atomic { !stale -> skip }
	fi;
#ifndef SHARED
	gone(POINTER) || age[POINTER] >= TTL;
	atomic { stored[POINTER] = OTHERS; age[POINTER] = 0 };
#endif
	if
	:: atomic { stored[FLAG] == NONE -> skip }
	:: atomic { stored[FLAG] != NONE -> goto look }
	fi;
#endif
	atomic { in = 1; passed = 1 };
	atomic { in = 0; stored[POINTER] = (stored[POINTER] == OTHERS -> NONE : stored[POINTER]) }
}

#ifdef BREAK
#define breakFlag atomic { whole -> stored[FLAG] = NONE }
#define breakPointer atomic { stored[POINTER] = (stored[POINTER] == OTHERS -> OTHERS : NONE) }
proctype Break() provided (live) {
#ifdef SHARED
	breakFlag
#else
	if
	:: breakFlag; breakPointer
	:: breakPointer; breakFlag
	fi
#endif
}
#endif

#ifdef CLONED
#define copies(o) atomic { stored[o] != NONE -> stored[o] = COPIED; age[o] = 0; passed = 1 }
/* Copy is the holder on the copy of its machine. The holder has never sent its bodies. */
proctype Copy() provided (live) {
#ifdef SHARED
	copies(FLAG)
#else
	if
	:: copies(FLAG); copies(POINTER)
	:: copies(POINTER); copies(FLAG)
	fi
#endif
}
#endif

inline older(a, most) { a = (a < most -> a + 1 : a) }
inline realTick() {
	older(age[FLAG], TTL); older(age[POINTER], TTL);
	if :: late[POINTER] -> older(lateAge, TTL) :: else fi
}

/* STEADY: the store answers within a tick, and the holder keeps to its schedule. */
#if defined(STEADY) && defined(NO_LOOK)
#define onTime (leaseAge < INTERVAL)
#elif defined(STEADY)
#define onTime (leaseAge < INTERVAL && unseen < LOOK && !looking)
#else
#define onTime 1
#endif

/* Time lets ticks pass, and late puts arrive. */
proctype Time() provided (live) {
	do
	:: atomic { onTime ->
		realTick();
		older(sent[FLAG], DEADLINE); older(sent[POINTER], DEADLINE);
		older(begun[FLAG], DEADLINE); older(begun[POINTER], DEADLINE);
		if
		:: leaseAge >= DEADLINE -> live = 0
		:: else
		fi;
#ifdef STEADY
		older(unseen, LOOK);
		if
		:: live && passed -> acted++; assert(acted <= LOOK)
		:: else
		fi
#endif
	   }
#ifdef PAUSED
	:: atomic { realTick() }
#endif
#ifndef STEADY
	:: atomic { late[FLAG] ->
		if
		:: takes(FLAG, late[FLAG]) -> outlives(FLAG); stored[FLAG] = UNKNOWN; age[FLAG] = 0
		:: else
		fi;
		late[FLAG] = 0 }
	:: atomic { late[POINTER] ->
		if
		:: takes(POINTER, late[POINTER]) -> stored[POINTER] = UNKNOWN; age[POINTER] = ageOf(POINTER, lateAge)
		:: else
		fi;
		late[POINTER] = 0; lateAge = 0 }
#endif
	od
}

init {
	atomic {
		stored[FLAG] = KNOWN; begun[FLAG] = IDLE; begun[POINTER] = IDLE;
#ifndef SHARED
		stored[POINTER] = KNOWN;
		run Renew(POINTER);
#endif
		run Renew(FLAG);
#ifndef NO_LOOK
		run Watch();
#endif
#ifdef CLONED
		run Copy();
#else
		run Successor();
#endif
		run Time();
#ifndef BESIDE
		run Act();
#endif
#ifdef BREAK
		run Break()
#endif
	}
}
