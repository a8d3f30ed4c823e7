/*
 * The protocol of docs/evidence/protocol.md: flag and look. Safety is two assertions: no client
 * is live beside a live exclusive one, and none resumes a lock that a conflicting one
 * has passed. docs/evidence/testing.md maps each step to it.
 *
 * Time is what it allows: a flag can expire whenever its owner isn't live on it,
 * and an owner can lose its lock at any time, because only the order of the two is
 * promised (a holder's deadline comes before its flag's expiry). A client that stops
 * for good at any step is one that the scheduler doesn't choose any more: what a
 * crash adds is that its context is over, which Time can do at any time.
 *
 * A request has three outcomes: answered; not answered, and applied later; not
 * answered, and never applied. "Later" has no limit.
 *
 * Not modelled here: lock.exclusive, which keeps none of our clients out (pointer.pml);
 * refreshes, looks, break-lock, and clocks that stop (hold.pml); what clocks say, which
 * internal/refresh and judge are tested for.
 */

#ifndef MODES                 /* of the clients: bit i is set where i is exclusive */
#define MODES 3
#endif
#ifndef N
#define N 2
#endif
#ifndef G
#define G 2                   /* keys of one client: the first, and one to resume or to wait under */
#endif
#define SLOTS (N * G)

#define exclusive(i) ((MODES >> (i)) & 1)
#define conflict(i, j) ((i) != (j) && (exclusive(i) || exclusive(j)))

/* TICKETS: a client first waits, with a ticket under its last key, which
 * those before it pass: the clients' order is that in which they came. PROMOTE: it waits
 * under the key that it then holds under. RESUMES: those who have waited resume, before all
 * tickets. That takes three keys; with two of them they resume under their tickets' keys. */
#ifdef PROMOTE
#define TICKETS
#define ticket(i) ((i) * G)
#else
#define ticket(i) ((i) * G + G - 1)
#endif
#ifdef TICKETS
#ifdef RESUMES
#define behind(i, j) (waiting[j] && (resuming || (j) / G > (i)))
#define resumes(i) 1
#else
#define behind(i, j) (waiting[j] && (j) / G > (i))
#define resumes(i) 0
#endif
#else
#define behind(i, j) 0
#ifndef RESUMERS              /* the clients that resume, as MODES has those that are exclusive */
#define RESUMERS 255
#endif
#define resumes(i) (G > 1 && ((RESUMERS >> (i)) & 1))
#endif

/* FAULTS: so many requests in all are not answered, or are refreshes that are under way when
 * their lease ends. Otherwise their number has no limit. */
#ifdef FAULTS
byte faults;
#define fails (!calm && faults < FAULTS)
#define count faults++
#else
#define fails (!calm)
#define count skip
#endif

bit there[SLOTS];             /* the flag is stored */
bit waiting[SLOTS];           /* and says that its owner waits */
bit lateTicket[SLOTS];        /* a put that says so is under way */
bit expired[SLOTS];           /* its mod time is more than ttl + margin ago */
bit reapable[SLOTS];          /* it has been expired once: another client can have passed */
bit revived[SLOTS];           /* it was written after that */
bit latePut[SLOTS];           /* a put is under way, and no client waits for its answer */
bit lateDelete[SLOTS];
bit over[SLOTS];              /* the deadline of the lease is past */
bit live[N];                  /* the lock's context is live: the command runs */
byte on[N];                   /* the slot of it */
bit calm;                     /* nothing fails any more, and LONE alone goes on */
bit passed[N];                /* a conflicting lock was held since this one was */

inline applyPut(s) { there[s] = 1; expired[s] = 0; revived[s] = reapable[s]; waiting[s] = 0 }
inline applyTicket(s) { applyPut(s); waiting[s] = 1 }
inline applyDelete(s) { there[s] = 0; expired[s] = 0; waiting[s] = 0 }

/* put ends at ok if it was answered. */
#define put(s, ok, lost) \
	if :: atomic { applyPut(s); goto ok } \
	   :: atomic { fails -> count; latePut[s] = 1; goto lost } \
	   :: atomic { fails -> count; goto lost } \
	fi

#define delete(s, ok, lost) \
	if :: atomic { applyDelete(s); goto ok } \
	   :: atomic { fails -> count; lateDelete[s] = 1; goto lost } \
	   :: atomic { fails -> count; goto lost } \
	fi

/* unpassed goes on if a lost lock's flag is there, and was written before another
 * client could have passed it: a client that passes deletes it first. */
#ifdef NO_REVIVED
#define early(s) 1
#else
#define early(s) (!revived[s])
#endif
#define unpassed(s, lost) \
	if :: atomic { there[s] && early(s) -> skip } \
	   :: atomic { !(there[s] && early(s)) -> goto lost } \
	fi

inline enter(i, s) {
	assert(!(resuming && passed[i]));
	live[i] = 1; on[i] = s; passed[i] = 0;
	j = 0;
	do
	:: j < N ->
		assert(!(conflict(i, j) && live[j]));
		passed[j] = passed[j] || conflict(i, j);
		j++
	:: else -> break
	od;
	j = 0
}

#ifdef LONE
byte lone = 255;              /* the process of LONE */
#define RUNS provided (!calm || _pid == lone)
#else
#define RUNS
#endif

proctype Client(byte i) RUNS {
	byte s = i * G;       /* the flag that is put and looked beside */
	byte j = 0;
	byte stale = 0;       /* the flags that the look found stale */
	bit resuming = 0;

#ifdef TICKETS
	if
	:: atomic { applyTicket(ticket(i)) }
	:: atomic { fails -> count; lateTicket[ticket(i)] = 1 }
	:: skip
	fi;
#endif
#ifdef LOOK_FIRST
	goto look;
raise:	put(s, entering, withdraw);
#else
raise:	put(s, look, withdraw);
#endif
look:
#ifdef UNPASSED_FIRST
	if :: resuming -> unpassed(s - 1, withdraw) :: else -> skip fi;
#endif
	j = 0; stale = 0;
	do    /* one flag after another: a listing is no snapshot */
	:: j < SLOTS ->
		atomic {
			if
			:: !conflict(i, j / G) || !there[j] || behind(i, j) -> skip
			:: else ->
				if
#ifndef NO_STALE
				:: expired[j] -> stale = stale | (1 << j)
#endif
				:: else -> assert(!calm); goto withdraw
				fi
			fi;
			j++
		}
	:: else -> break
	od;
	j = 0;
	do    /* a client that passes deletes first, and waits for the answer */
#ifndef NO_REAP
	:: j < SLOTS && ((stale >> j) & 1) -> delete(j, reaped, withdraw);
reaped:		j++
	:: j < SLOTS && !((stale >> j) & 1) -> j++
#endif
	:: else -> break
	od;
	j = 0; stale = 0;
#ifdef LOOK_FIRST
	goto raise;
#endif
entering:
#ifndef SAME_KEY
	if
	:: resuming ->
#if !defined(NO_UNPASSED) && !defined(UNPASSED_FIRST)
		unpassed(s - 1, withdraw);
#endif
		delete(s - 1, held, held)
	:: else -> skip
	fi;
#endif
held:
	atomic {
		if
#ifndef NO_DEADLINE
		:: over[s] -> assert(!calm); goto withdraw
#endif
		:: else -> enter(i, s)
		fi
	}
#if defined(TICKETS) && defined(RESUMES)
	if :: !resuming -> delete(ticket(i), alone, alone) :: else -> skip fi;
alone:
#endif
	if
	:: atomic { live[i] -> live[i] = 0; over[s] = 1 }; goto withdraw   /* released */
	:: atomic { !live[i] -> skip }                                    /* lost */
	fi;
	if
	:: resumes(i) && !resuming ->
		resuming = 1;
#ifdef SAME_KEY
		unpassed(s, withdraw);
		over[s] = 0;
#else
		s++;
#endif
		goto raise
	:: goto withdraw
	fi;
withdraw:
	delete(s, leave, leave);
leave:
#if defined(TICKETS) && !defined(PROMOTE)
	delete(ticket(i), done, done);
#endif
done:	skip
}

/* Time lets leases end and flags expire, and late requests arrive. */
active proctype Time() RUNS {
	byte k;
end:	do
	:: atomic { select(k : 0 .. (SLOTS - 1));
#ifdef WATCHED                /* a look never ends a lock that is held */
		assert(!live[k / G] || there[on[k / G]]);
#endif
		if
		:: live[k / G] && on[k / G] == k ->      /* a deadline passes */
			live[k / G] = 0; over[k] = 1;
			if :: fails -> count; latePut[k] = 1 :: skip fi /* with a refresh under way */
#ifdef NO_DEADLINE
		:: there[k] && !expired[k] -> expired[k] = 1; reapable[k] = 1
#else
		:: there[k] && !expired[k] && !(live[k / G] && on[k / G] == k) ->
			expired[k] = 1; reapable[k] = 1; over[k] = 1
#endif
		:: latePut[k] -> latePut[k] = 0; applyPut(k)
		:: lateTicket[k] -> lateTicket[k] = 0; applyTicket(k)
		:: lateDelete[k] -> lateDelete[k] = 0; applyDelete(k)
		:: else -> skip
		fi;
		k = 0 }
	od
}

init {
	byte c = 0;
	atomic {
		do
#ifdef LONE
		:: c == LONE -> c++
		:: c < N && c != LONE -> run Client(c); c++
#else
		:: c < N -> run Client(c); c++
#endif
		:: else -> break
		od
	}
}

#ifdef LONE
/* From any state: all others stop for good, what they have sent arrives or doesn't,
 * and what is left of them expires. Then a newcomer gets in at its first try. */
active proctype Calm() {
	byte k = 0;
	atomic {
		calm = 1;
		do
		:: k < SLOTS ->
			live[k / G] = 0;
			if :: latePut[k] -> applyPut(k) :: skip fi;
			if :: lateTicket[k] -> applyTicket(k) :: skip fi;
			if :: lateDelete[k] -> applyDelete(k) :: skip fi;
			latePut[k] = 0; lateTicket[k] = 0; lateDelete[k] = 0;
			expired[k] = there[k];
			k++
		:: else -> break
		od;
		lone = run Client(LONE)
	}
}
#endif
