/*
 * The protocol as it was first published (internal/test/cloudsticlock), on a store that never
 * fails, with clocks that agree, and leases that never end. It lets two in; a checker
 * that doesn't find that is of no use.
 *
 * MODES as in lock.pml: 3 is two exclusive clients, 1 an exclusive and a shared one.
 */
#ifndef MODES
#define MODES 3
#endif
#define N 2
#define exclusive(i) ((MODES >> (i)) & 1)

byte owner;                   /* of lock.exclusive, from 1; 0: there is none */
byte shared;                  /* how many shared locks are stored */
byte in, inExclusive;

proctype Client(byte i) {
	if
	:: exclusive(i) ->
		if :: owner != 0 -> goto done :: else -> skip fi;
		if :: shared != 0 -> goto done :: else -> skip fi;
		owner = i + 1;
		if :: owner != i + 1 -> goto done :: else -> skip fi;
		atomic { in++; inExclusive++; assert(in == 1) };
		atomic { in--; inExclusive-- };
		owner = 0
	:: else ->
		if :: owner != 0 -> goto done :: else -> skip fi;
		shared++;
		if :: owner != 0 -> shared--; goto done :: else -> skip fi;
		atomic { in++; assert(inExclusive == 0) };
		in--;
		shared--
	fi;
done:	skip
}

init {
	byte c = 0;
	atomic {
		do
		:: c < N -> run Client(c); c++
		:: else -> break
		od
	}
}
