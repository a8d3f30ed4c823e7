/*
 * The queue of docs/evidence/protocol.md, wait: waiters of both modes, each with a ticket. Nothing
 * fails here, and nothing expires: lock.pml has that. Two assertions: no exclusive client
 * that came later gets in before a shared one that waits, and the clients don't wait for
 * each other for ever.
 *
 * A client first tries without a ticket. Its place is taken from its clock when it makes
 * the key of its ticket; the clocks agree. A poll decides nothing: here it is a guard.
 */

#ifndef MODES                 /* of the clients: bit i is set where i is exclusive */
#define MODES 5
#endif
#ifndef N
#define N 3
#endif
#define LATEST 255            /* the place of a shared client without a ticket */

#define exclusive(i) ((MODES >> (i)) & 1)
#define conflict(i, j) ((i) != (j) && (exclusive(i) || exclusive(j)))

bit flag[N];                  /* the flag is stored */
bit ticket[N];                /* the ticket is stored */
bit live[N];
byte place[N] = LATEST;
byte next = 1;                /* what the clocks say */
byte waited[N];               /* bit k: the shared client k was waiting already when i came */
bit waits[N];
byte done = 0;

/* The ticket of j keeps i out. */
#ifdef NO_SHARED_TICKET
#define before(i, j) (exclusive(j) && (!exclusive(i) || place[j] < place[i]))
#else
#ifdef YIELDS_TO_ALL          /* a shared waiter yields to tickets behind its own, too */
#define before(i, j) (!exclusive(i) || place[j] < place[i])
#else
#define before(i, j) (place[j] < place[i])
#endif
#endif
#define barred(i, j) (conflict(i, j) && (flag[j] || (ticket[j] && before(i, j))))

inline come(i) {              /* those that wait by now come first */
	waited[i] = 0;
	k = 0;
	do
	:: k < N -> if :: waits[k] && !exclusive(k) -> waited[i] = waited[i] | (1 << k) :: else -> skip fi; k++
	:: else -> break
	od;
	k = 0
}

inline enter(i) {
	k = 0;
	do
	:: k < N ->
		assert(!(conflict(i, k) && live[k]));
		assert(!(exclusive(i) && waits[k] && ((waited[i] >> k) & 1)));
		k++
	:: else -> break
	od;
	k = 0; live[i] = 1; waits[i] = 0
}

#if N == 3
#define free(i) (!barred(i, 0) && !barred(i, 1) && !barred(i, 2))
#else
#define free(i) (!barred(i, 0) && !barred(i, 1) && !barred(i, 2) && !barred(i, 3))
#endif

proctype Client(byte i) {
	byte j = 0, k = 0;
	atomic { come(i); if :: exclusive(i) -> place[i] = next; next++ :: else -> skip fi };
try:	flag[i] = 1;
	j = 0;
	do    /* one after another: a listing is no snapshot */
	:: j < N -> atomic { if :: barred(i, j) -> j = 0; goto refused :: else -> j++ fi }
	:: else -> break
	od;
	j = 0;
	atomic { enter(i) };
	ticket[i] = 0;
	atomic { live[i] = 0; flag[i] = 0; done++ };
	goto gone;
refused:
	flag[i] = 0;
	if
	:: waits[i] -> skip
	:: else -> atomic { come(i); place[i] = next; next++ };
		atomic { ticket[i] = 1; waits[i] = 1 }
	fi;
poll:	do
	:: free(i) -> goto try
	od;
gone:	skip
}

/* When nothing goes on any more, all must have been in. */
active proctype End() {
	timeout -> assert(done == N)
}

init {
	atomic {
		run Client(0); run Client(1); run Client(2);
#if N == 4
		run Client(3)
#endif
	}
}
